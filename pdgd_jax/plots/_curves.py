"""Figures against episodes."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pdgd_jax.plots._style import (
    COLOURS,
    COLUMN,
    DASHES,
    GREY,
    WARNING,
    Look,
    canvas,
    draw_guides,
    finish,
    logarithmic,
    plain,
    refuse_crowd,
    statistic,
)
from pdgd_jax.results import (
    Band,
    Cell,
    Quantity,
    Results,
    Style,
    as_dataset,
    axis_of,
    band_of,
    cells_of,
    makes_promises,
    quantity_of,
    styles_of,
)

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

__all__ = [
    "multipliers",
    "positive_violation",
    "radius",
    "regret",
    "reward",
    "solver",
    "violation",
]

NDArray = np.ndarray[Any, np.dtype[Any]]


def regret(
    source: Results,
    *,
    alpha: bool = False,
    bounds: bool = False,
    guides: bool = False,
    log: bool = False,
    quantiles: tuple[float, float] = (0.1, 0.9),
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Cumulative regret $R_t$ against episodes.

    Args:
      source: the results.
      alpha: draw the $\alpha$-regret, which is what adversarial constraints allow to bound.
      bounds: mark the paper's bounds that apply, at $T$, where they hold; the axis becomes
        logarithmic above the curves if bounds are far away.
      guides: draw $\sqrt t$ and $t^{3/4}$ through the end of the highest curve of a learner; a
        fixed policy, such as `uniform`, learns at no rate.
      log: logarithmic axes; if values are not positive, the vertical one is linear around 0.
      quantiles: between which the band lies.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    name = "alpha_regret" if alpha else "regret"
    prefix = "regret," if bounds and not alpha else None
    return _against_episodes(source, name, quantiles, look, ax, prefix, guides, log)


def violation(
    source: Results,
    *,
    bounds: bool = False,
    guides: bool = False,
    log: bool = False,
    quantiles: tuple[float, float] = (0.1, 0.9),
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Cumulative violation $V_t$ of the worst constraint: good episodes pay for bad ones.

    Args:
      source: the results.
      bounds: as in `regret`.
      guides: as in `regret`.
      log: as in `regret`.
      quantiles: between which the band lies.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    prefix = "violation," if bounds else None
    return _against_episodes(source, "violation", quantiles, look, ax, prefix, guides, log)


def positive_violation(
    source: Results,
    *,
    guides: bool = False,
    log: bool = False,
    quantiles: tuple[float, float] = (0.1, 0.9),
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Cumulative positive part of the violation, of the worst constraint: nothing makes up for it.

    Of which constraints, the drawn ones or their means, the results say: their `long_name` is the
    label of the axis.

    Args:
      source: the results.
      guides: as in `regret`.
      log: as in `regret`.
      quantiles: between which the band lies.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    name = "positive_violation"
    return _against_episodes(source, name, quantiles, look, ax, guides=guides, log=log)


def multipliers(
    source: "xarray.Dataset",
    *,
    bounds: bool = False,
    quantiles: tuple[float, float] = (0.1, 0.9),
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""The multipliers $\lambda_t$ against episodes, one curve for each constraint.

    Of a learner that has none, whose multipliers are 0 throughout, the legend says so.

    Args:
      source: the results.
      bounds: mark the ceiling $T^{1/4}$, and $\zeta$ of Theorem 4 where that applies.
      quantiles: between which the band lies.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    prefix = "multipliers " if bounds else None
    return _against_episodes(source, "multipliers", quantiles, look, ax, prefix)


def reward(
    source: "xarray.Dataset",
    *,
    quantiles: tuple[float, float] = (0.1, 0.9),
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""The average reward of the episodes so far, and (thin) the optimum of the same episodes.

    Against an adversary that optimum is another one after every episode, and may go up and down:
    the legend then calls it OPT of the episodes so far.

    Args:
      source: the results.
      quantiles: between which the band lies.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    dataset = as_dataset(source)
    quantity = quantity_of("reward", dataset)
    cells = cells_of(dataset)
    with canvas(ax, look) as axes:
        for curve in _curves(dataset, quantity, cells):
            _draw(axes, curve, quantiles)
        _draw_optima(axes, cells, quantiles)
        across = "episodes" + statistic(dataset, quantiles, "band")
        finish(axes, axis_of(quantity, dataset), look, ax is None, across=across)
    return axes


def radius(
    source: "xarray.Dataset",
    *,
    log: bool = False,
    quantiles: tuple[float, float] = (0.1, 0.9),
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""How well the transitions are known: the mean confidence radius, 2 where nothing is.

    Args:
      source: the results.
      log: as in `regret`.
      quantiles: between which the band lies.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    axes = _against_episodes(source, "radius", quantiles, look, ax, log=log)
    if not log:
        axes.set_ylim(bottom=0)
    return axes


def solver(
    source: "xarray.Dataset",
    *,
    quantiles: tuple[float, float] = (0.1, 0.9),
    look: Look = COLUMN,
    ax: "Sequence[Axes] | NDArray | None" = None,
) -> NDArray:
    """The projections: iterations per episode, and the largest residual so far.

    A projection that did not converge is announced in red: the numbers are then not those of the
    algorithm.

    Args:
      source: the results.
      quantiles: between which the band lies.
      look: width, legend, title.
      ax: two Axes to draw on; a new figure by default.

    Returns:
      The two Axes.
    """
    dataset = as_dataset(source)
    quantities = [quantity_of(name, dataset) for name in ("iterations", "residual")]
    drawn = [cell for cell in cells_of(dataset) if (cell.data["iterations"] > 0).any()]
    if not drawn:
        raise ValueError("no learner of these results projects anything: there is no solver.")
    if ax is not None and np.size(np.asarray(ax, object)) != 2:
        raise ValueError("the figure of the solver needs two Axes: iterations and residuals.")
    with canvas(ax, look, rows=2, height=3.2) as axes:
        for place, quantity in zip(axes, quantities, strict=True):
            for curve in _curves(dataset, quantity, drawn):
                _draw(place, curve, quantiles)
        axes[0].set_ylim(0, 1.1 * axes[0].get_ylim()[1])
        across = "episodes" + statistic(dataset, quantiles, "band")
        finish(axes[0], axis_of(quantities[0], dataset), look, ax is None, across=across)
        axes[0].set_xlabel("")
        axes[1].set_yscale("log")
        low, high = (math.log10(limit) for limit in axes[1].get_ylim())
        axes[1].set_ylim(10.0 ** math.floor(low), 10.0 ** math.ceil(high))
        label = axis_of(quantities[1], dataset)
        finish(axes[1], label, look, ax is None, across=across, legended=False)
        stuck = _unconverged(drawn)
        if stuck:
            axes[0].set_title(
                f"WARNING: {stuck:,} projections did not converge",
                color="white",
                fontsize=7,
                fontweight="bold",
                backgroundcolor=WARNING,
                pad=9,  # the box is higher than its text
            )
    return np.asarray(axes)


class _Curve(NamedTuple):
    cell: Cell
    values: "xarray.DataArray"  # [seed, checkpoint]
    label: str | None
    style: Style


def _against_episodes(
    source: Results,
    name: str,
    quantiles: tuple[float, float],
    look: Look,
    ax: "Axes | None",
    bounds: str | None = None,
    guides: bool = False,
    log: bool = False,
) -> "Axes":
    dataset = as_dataset(source)
    quantity = quantity_of(name, dataset)
    cells = cells_of(dataset)
    curves = _curves(dataset, quantity, cells)
    with canvas(ax, look) as axes:
        if quantity.label.endswith(("regret", "violation")):
            axes.axhline(0, color="black", lw=0.4)
        bands = [_draw(axes, curve, quantiles) for curve in curves]
        across = "episodes" + statistic(dataset, quantiles, "band")
        if log:
            across += logarithmic(axes, bands)
        if guides:
            _draw_guides(axes, curves, bands)
        if bounds is not None:
            _draw_bounds(axes, curves, bounds, None if log else bands)
        _name_missing(axes, cells, curves)
        finish(axes, axis_of(quantity, dataset), look, ax is None, across=across)
    return axes


def _curves(dataset: "xarray.Dataset", quantity: Quantity, cells: list[Cell]) -> list[_Curve]:
    """One for each cell, or for each of its constraints; every one drawn in its own way."""
    found: list[tuple[Cell, xarray.DataArray, str | None]] = []
    for cell in cells_of(dataset):  # those that are not drawn keep their styles
        values = quantity.of(cell.data)
        if "constraint" not in values.dims:
            found.append((cell, values, plain(cell.label)))
            continue
        count = values.sizes["constraint"]
        for i in range(count):
            name = rf"$\lambda_{{{i + 1}}}$" if count > 1 else ""
            label = ", ".join(word for word in (plain(cell.label), name) if word)
            found.append((cell, values.isel(constraint=i), label))
    styles = styles_of(dataset, [cell for cell, *_ in found])
    curves = [_Curve(*one, style) for one, style in zip(found, styles, strict=True)]
    wanted = {cell.label for cell in cells}
    curves = [curve for curve in curves if curve.cell.label in wanted]
    curves = [curve for curve in curves if bool(np.isfinite(curve.values).any())]
    if quantity.needs == ("multipliers",):  # of a learner without multipliers they are 0
        curves = [curve for curve in curves if bool((curve.values != 0).any())] or curves
    if not curves:
        raise ValueError(f"these results hold no value of {quantity.label}: nothing to draw.")
    refuse_crowd(len(curves))
    return curves


def _draw(axes: "Axes", curve: _Curve, quantiles: tuple[float, float]) -> Band:
    """Median and band."""
    band = band_of(curve.values, curve.cell.data["episode"], quantiles)
    colour, dash = COLOURS[curve.style.colour], DASHES[curve.style.dash]
    if curve.values.sizes["seed"] > 1:
        axes.fill_between(band.episode, band.low, band.high, color=colour, alpha=0.2, lw=0)
    axes.plot(band.episode, band.median, color=colour, linestyle=dash, label=curve.label or None)
    return band


def _end(band: Band) -> float:
    known = band.median[np.isfinite(band.median)]
    return float(known[-1]) if len(known) else math.nan


def _draw_guides(axes: "Axes", curves: list[_Curve], bands: list[Band]) -> None:
    """Through the end of the highest curve of a learner; what falls needs no guide."""
    rising = [
        band
        for curve, band in zip(curves, bands, strict=True)
        if makes_promises(curve.cell) and _end(band) > 0
    ]
    if rising:
        highest = max(rising, key=_end)
        t = np.linspace(0, float(highest.episode[-1]), 200)
        draw_guides(axes, t, _end(highest), "t")


def _name_missing(axes: "Axes", cells: list[Cell], curves: list[_Curve]) -> None:
    """Who has nothing to draw is named, once for all instances."""
    drawn = {curve.cell.label for curve in curves}
    missing = [cell for cell in cells if cell.label not in drawn]
    everywhere = {cell.label_without("instance") for cell in cells if cell.label in drawn}
    names = []
    for cell in missing:
        short = cell.label_without("instance")
        names.append(cell.label if short in everywhere or not short else short)
    for name in dict.fromkeys(names):
        axes.plot([], [], " ", label=plain(f"{name}: none"))


def _draw_optima(axes: "Axes", cells: list[Cell], quantiles: tuple[float, float]) -> None:
    """The optimum of each instance, once; named by whatever tells it from the others."""
    groups: dict[bytes, list[Cell]] = {}
    bands: dict[bytes, Band] = {}
    for cell in cells:  # learners on the same instance share the optimum
        band = band_of(cell.data["opt"], cell.data["episode"], quantiles)
        mark = band.median.tobytes() + band.episode.tobytes()
        groups.setdefault(mark, []).append(cell)
        bands[mark] = band
    for number, (mark, sharing) in enumerate(groups.items()):
        median = bands[mark].median
        words = ["OPT of the episodes so far" if np.ptp(median) > 1e-9 else "OPT"]
        if len(groups) > 1:
            alike = [dim for dim in sharing[0].names if _agree(sharing, dim)]
            words = [plain(sharing[0].names[dim]) or "" for dim in alike] + words
        look: dict[str, Any] = {"color": GREY, "lw": 0.8}
        look["linestyle"] = DASHES[number % len(DASHES)]
        axes.plot(bands[mark].episode, median, label=", ".join(words), **look)


def _agree(cells: list[Cell], dim: str) -> bool:
    return len({cell.names.get(dim) for cell in cells}) == 1


def _draw_bounds(axes: "Axes", curves: list[_Curve], prefix: str, bands: list[Band] | None) -> None:
    """Marks at T: the paper bounds what a whole run does, not each of its episodes."""
    found = [
        (curve, name, value, vacuous)
        for curve in curves
        for name, value, vacuous in _bounds_of(curve.cell, prefix)
    ]
    if not found:
        place: dict[str, Any] = {"transform": axes.transAxes, "va": "top"}
        said = axes.text(0.02, 1, "no bound applies", color=GREY, fontsize=6.5, **place)
        said.set_in_layout(False)
        return
    names = list(dict.fromkeys(name for _, name, *_ in found))
    markers = {name: "v^d<>P"[number % 6] for number, name in enumerate(names)}
    shape: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white"}
    for curve, name, value, _ in found:
        colour, end = COLOURS[curve.style.colour], float(curve.cell.data["episode"][-1])
        axes.plot(end, value, color=colour, marker=markers[name], clip_on=False, **shape)
    for name, marker in markers.items():
        idle = all(vacuous for _, other, _, vacuous in found if other == name)
        label = f"bound at T: {name}{' (vacuous)' if idle else ''}"
        axes.plot([], [], color="black", marker=marker, label=label, **shape)
    if bands is not None:
        largest = float(np.nanmax(np.abs([_end(band) for band in bands])))
        highest = max(value for _, _, value, _ in found)
        if highest > 4 * largest > 0:
            _squeeze_above(axes, largest, highest)


def _bounds_of(cell: Cell, prefix: str) -> Iterator[tuple[str, float, bool]]:
    """The bounds that apply: name, median over the seeds, whether no run could have broken it."""
    if "certificate_bound" not in cell.data:
        return
    for number, name in enumerate(str(n) for n in cell.data["certificate"].to_numpy()):
        one = cell.data.isel(certificate=number)
        bound, status = (one[f"certificate_{what}"].to_numpy() for what in ("bound", "status"))
        applies = (status != "does not apply") & np.isfinite(bound)
        if name.startswith(prefix) and applies.any():
            yield name, float(np.median(bound[applies])), bool((status[applies] == "vacuous").all())


def _squeeze_above(axes: "Axes", largest: float, highest: float) -> None:
    """Curves keep their shape below, and bounds far above them stay in the picture."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    digit = 10.0 ** math.floor(math.log10(largest))
    linear = next(n * digit for n in (1, 2, 5, 10) if n * digit >= largest)
    first = math.floor(math.log10(3 * linear)) + 1  # room between the ticks
    decades = range(first, math.ceil(math.log10(highest)) + 1)
    axes.set_yscale("symlog", linthresh=linear, linscale=1.5 * max(len(decades), 1))
    low = -linear if axes.get_ylim()[0] < -0.1 * linear else 0.0
    ticks = [*np.linspace(low, linear, 3 if low == 0 else 5)[:-1], linear]
    axes.yaxis.set_major_locator(FixedLocator([*ticks, *(10.0**n for n in decades)]))
    axes.yaxis.set_minor_locator(NullLocator())

    def name(value: float, _: int | None) -> str:
        return f"{value:g}" if abs(value) <= linear else f"$10^{{{round(math.log10(value))}}}$"

    axes.yaxis.set_major_formatter(FuncFormatter(name))


def _unconverged(cells: list[Cell]) -> int:
    return sum(int(cell.data["unconverged"].isel(checkpoint=-1).sum()) for cell in cells)
