"""Figures against episodes."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray

from pdgd_jax.curves import Cell, Quantity, as_dataset, band_of, cells_of, quantity_of
from pdgd_jax.evaluation import Evaluation
from pdgd_jax.plots.canvas import (
    COLOURS,
    DASHES,
    GREY,
    WARNING,
    canvas,
    draw_guides,
    finish,
    plain,
    refuse_crowd,
)

if TYPE_CHECKING:
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
Results = xarray.Dataset | Evaluation


def regret(
    source: Results,
    *,
    alpha: bool = False,
    bounds: bool = False,
    guides: bool = False,
    quantiles: tuple[float, float] = (0.1, 0.9),
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Cumulative regret $R_t$ against episodes.

    Args:
      source: the results.
      alpha: draw the $\alpha$-regret, which is what adversarial constraints allow to bound.
      bounds: mark the paper's bounds that apply, at $T$, where they hold; the axis becomes
        logarithmic above the curves if bounds are far away.
      guides: draw $\sqrt t$ and $t^{3/4}$ through the end of the highest curve.
      quantiles: between which the band lies.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    name = "alpha_regret" if alpha else "regret"
    prefix = "regret," if bounds and not alpha else None
    return _against_episodes(source, name, prefix, guides, quantiles, ax)


def violation(
    source: Results,
    *,
    bounds: bool = False,
    guides: bool = False,
    quantiles: tuple[float, float] = (0.1, 0.9),
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Cumulative violation $V_t$ of the worst constraint: good episodes pay for bad ones.

    Args:
      source: the results.
      bounds: as in `regret`.
      guides: as in `regret`.
      quantiles: between which the band lies.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    prefix = "violation," if bounds else None
    return _against_episodes(source, "violation", prefix, guides, quantiles, ax)


def positive_violation(
    source: Results,
    *,
    guides: bool = False,
    quantiles: tuple[float, float] = (0.1, 0.9),
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Cumulative positive violation $\sum_t [G_t^\top q_t]_+$ of the worst constraint.

    Args:
      source: the results.
      guides: as in `regret`.
      quantiles: between which the band lies.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    return _against_episodes(source, "positive_violation", None, guides, quantiles, ax)


def multipliers(
    source: xarray.Dataset,
    *,
    bounds: bool = False,
    quantiles: tuple[float, float] = (0.1, 0.9),
    ax: "Axes | None" = None,
) -> "Axes":
    r"""The multipliers $\lambda_t$ against episodes, one curve for each constraint.

    Of a learner that has none, whose multipliers are 0 throughout, the legend says so.

    Args:
      source: the results.
      bounds: mark the ceiling $T^{1/4}$, and $\zeta$ of Theorem 4 where that applies.
      quantiles: between which the band lies.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    prefix = "multipliers " if bounds else None
    return _against_episodes(source, "multipliers", prefix, False, quantiles, ax)


def reward(
    source: xarray.Dataset,
    *,
    quantiles: tuple[float, float] = (0.1, 0.9),
    ax: "Axes | None" = None,
) -> "Axes":
    r"""The average reward of the episodes so far, and (thin) the optimum of the same episodes.

    Args:
      source: the results.
      quantiles: between which the band lies.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    dataset = as_dataset(source)
    quantity = quantity_of("reward", dataset)
    curves = _curves(dataset, quantity)
    with canvas(ax) as axes:
        for curve in curves:
            _draw(axes, curve, quantiles)
        seen: set[bytes] = set()
        for curve in curves:  # learners on the same instance share the optimum
            data = curve.cell.data
            band = band_of(data["opt"], data["episode"], quantiles)
            mark = band.median.tobytes() + band.episode.tobytes()
            if mark not in seen:
                label = "OPT" if not seen else None
                axes.plot(band.episode, band.median, color=GREY, lw=0.8, label=label)
            seen.add(mark)
        finish(axes, quantity.axis, ax is None)
    return axes


def radius(
    source: xarray.Dataset,
    *,
    quantiles: tuple[float, float] = (0.1, 0.9),
    ax: "Axes | None" = None,
) -> "Axes":
    r"""How well the transitions are known: the mean confidence radius, 2 where nothing is.

    Args:
      source: the results.
      quantiles: between which the band lies.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    axes = _against_episodes(source, "radius", None, False, quantiles, ax)
    axes.set_ylim(bottom=0)
    return axes


def solver(
    source: xarray.Dataset,
    *,
    quantiles: tuple[float, float] = (0.1, 0.9),
    ax: "Sequence[Axes] | NDArray | None" = None,
) -> NDArray:
    """The projections: iterations per episode, and the largest residual so far.

    A projection that did not converge is announced in red: the numbers are then not those of the
    algorithm.

    Args:
      source: the results.
      quantiles: between which the band lies.
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
    with canvas(ax, rows=2, height=3.2) as axes:
        for place, quantity in zip(axes, quantities, strict=True):
            for curve in _curves(dataset, quantity, drawn):
                _draw(place, curve, quantiles)
        axes[0].set_ylim(0, 1.1 * axes[0].get_ylim()[1])
        finish(axes[0], quantities[0].axis, ax is None)
        axes[0].set_xlabel("")
        axes[1].set_yscale("log")
        low, high = (math.log10(limit) for limit in axes[1].get_ylim())
        axes[1].set_ylim(10.0 ** math.floor(low), 10.0 ** math.ceil(high))
        finish(axes[1], quantities[1].axis, ax is None, legended=False)
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
    values: xarray.DataArray  # [seed, checkpoint]
    label: str | None
    colour: int
    dash: int


def _against_episodes(
    source: Results,
    name: str,
    bounds: str | None,
    guides: bool,
    quantiles: tuple[float, float],
    ax: "Axes | None",
) -> "Axes":
    dataset = as_dataset(source)
    quantity = quantity_of(name, dataset)
    cells = cells_of(dataset)
    curves = _curves(dataset, quantity, cells)
    with canvas(ax) as axes:
        if quantity.label.endswith(("regret", "violation")):
            axes.axhline(0, color="black", lw=0.4)
        ends = [_draw(axes, curve, quantiles) for curve in curves]
        if guides:
            highest = int(np.nanargmax(ends))
            last = float(curves[highest].cell.data["episode"][-1])
            if ends[highest] > 0:  # what falls needs no guide
                draw_guides(axes, np.linspace(0, last, 200), ends[highest], "t")
        if bounds is not None:
            _draw_bounds(axes, curves, bounds, ends)
        for cell in cells:
            if all(curve.cell is not cell for curve in curves):
                axes.plot([], [], " ", label=plain(f"{cell.label}: none"))
        finish(axes, quantity.axis, ax is None)
    return axes


def _curves(
    dataset: xarray.Dataset, quantity: Quantity, cells: list[Cell] | None = None
) -> list[_Curve]:
    """A colour for each cell, a dash for each constraint, or for each cell if there is one."""
    curves = []
    for colour, cell in enumerate(cells_of(dataset) if cells is None else cells):
        values = quantity.of(cell.data)
        if "constraint" not in values.dims:
            curves.append(_Curve(cell, values, plain(cell.label), colour, colour + colour // 7))
            continue
        count = values.sizes["constraint"]
        for i in range(count):
            name = rf"$\lambda_{{{i + 1}}}$" if count > 1 else ""
            label = ", ".join(word for word in (plain(cell.label), name) if word)
            dash = i if count > 1 else colour + colour // 7
            curves.append(_Curve(cell, values.isel(constraint=i), label, colour, dash))
    curves = [curve for curve in curves if bool(np.isfinite(curve.values).any())]
    if quantity.needs == ("multipliers",):  # of a learner without multipliers they are 0
        curves = [curve for curve in curves if bool((curve.values != 0).any())] or curves
    if not curves:
        raise ValueError(f"these results hold no value of {quantity.label}: nothing to draw.")
    refuse_crowd(len(curves))
    return curves


def _draw(axes: "Axes", curve: _Curve, quantiles: tuple[float, float]) -> float:
    """Median and band; returns where the median ends."""
    band = band_of(curve.values, curve.cell.data["episode"], quantiles)
    colour = COLOURS[curve.colour % len(COLOURS)]
    if curve.values.sizes["seed"] > 1:
        axes.fill_between(band.episode, band.low, band.high, color=colour, alpha=0.2, lw=0)
    dash = DASHES[curve.dash % len(DASHES)]
    axes.plot(band.episode, band.median, color=colour, linestyle=dash, label=curve.label or None)
    ends = band.median[np.isfinite(band.median)]
    return float(ends[-1]) if len(ends) else math.nan


def _draw_bounds(axes: "Axes", curves: list[_Curve], prefix: str, ends: list[float]) -> None:
    """Marks at T: the paper bounds what a whole run does, not each of its episodes."""
    labelled: dict[str, str] = {}
    highest = 0.0
    for curve in curves:
        data = curve.cell.data
        if "certificate_bound" not in data:
            continue
        for number, name in enumerate(str(n) for n in data["certificate"].to_numpy()):
            one = data.isel(certificate=number)
            bound = one["certificate_bound"].to_numpy()
            applies = one["certificate_status"].to_numpy() != "does not apply"
            bound = bound[applies & np.isfinite(bound)]
            if not name.startswith(prefix) or not len(bound):
                continue
            marker = labelled.setdefault(name, "v^d<>P"[len(labelled) % 6])
            look: dict[str, Any] = {
                "linestyle": "none",
                "marker": marker,
                "markerfacecolor": "white",
            }
            colour = COLOURS[curve.colour % len(COLOURS)]
            value = float(np.median(bound))
            axes.plot(float(data["episode"][-1]), value, color=colour, clip_on=False, **look)
            highest = max(highest, value)
    for name, marker in labelled.items():
        look = {"linestyle": "none", "marker": marker, "markerfacecolor": "white"}
        axes.plot([], [], color="black", label=f"bound at T: {name}", **look)
    largest = float(np.nanmax(np.abs(ends)))
    if highest > 4 * largest > 0:
        _squeeze_above(axes, largest, highest)


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
