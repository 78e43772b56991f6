"""The parts of figures against episodes."""

from typing import TYPE_CHECKING, Any

import numpy as np

from pdgd_jax.plots._bounds import DrawnCurve, draw_bounds, end_of
from pdgd_jax.plots._style import (
    COLOURS,
    DASHES,
    GREY,
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
    Subject,
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

__all__ = ["against_episodes", "curves_of", "draw_curve", "draw_optima"]


def against_episodes(
    source: Results,
    name: str,
    quantiles: tuple[float, float],
    look: Look,
    ax: "Axes | None",
    bounds: Subject | None = None,
    guides: bool = False,
    log: bool = False,
) -> "Axes":
    """Draw the curves of a quantity; `bounds` says which guarantees to mark."""
    dataset = as_dataset(source)
    quantity = quantity_of(name, dataset)
    cells = cells_of(dataset)
    curves = curves_of(dataset, quantity, cells)
    with canvas(ax, look) as axes:
        if quantity.drawn.zero_line:
            axes.axhline(0, color="black", lw=0.4)
        bands = [draw_curve(axes, curve, quantiles) for curve in curves]
        across = "episodes" + statistic(dataset, quantiles, "band")
        if log:
            across += logarithmic(axes, bands)
        if guides:
            _draw_guides(axes, curves, bands)
        if bounds is not None:
            draw_bounds(axes, curves, bounds, None if log else bands)
        _name_missing(axes, cells, curves)
        finish(axes, axis_of(quantity, dataset), look, ax is None, across=across)
    return axes


def curves_of(dataset: "xarray.Dataset", quantity: Quantity, cells: list[Cell]) -> list[DrawnCurve]:
    """One curve for each cell, or for each of its constraints, all in different styles."""
    found: list[tuple[Cell, xarray.DataArray, str | None]] = []
    for cell in cells_of(dataset):  # cells that are not drawn keep their styles
        values = quantity.of(cell.data)
        if "constraint" not in values.dims:
            found.append((cell, values, plain(cell.label)))
            continue
        count = values.sizes["constraint"]
        for i in range(count):
            name = _numbered(quantity.drawn.symbol, i + 1) if count > 1 else ""
            label = ", ".join(word for word in (plain(cell.label), name) if word)
            found.append((cell, values.isel(constraint=i), label))
    styles = styles_of(dataset, [cell for cell, *_ in found])
    curves = [DrawnCurve(*one, style) for one, style in zip(found, styles, strict=True)]
    wanted = {cell.label for cell in cells}
    curves = [curve for curve in curves if curve.cell.label in wanted]
    curves = [curve for curve in curves if bool(np.isfinite(curve.values).any())]
    if quantity.drawn.zero_is_none:
        curves = [curve for curve in curves if bool((curve.values != 0).any())] or curves
    if not curves:
        raise ValueError(f"these results hold no value of {quantity.label}: nothing to draw.")
    refuse_crowd(len(curves))
    return curves


def _numbered(symbol: str, number: int) -> str:
    """The name of a constraint in the legend."""
    return rf"${symbol}_{{{number}}}$" if symbol else f"constraint {number}"


def draw_curve(axes: "Axes", curve: DrawnCurve, quantiles: tuple[float, float]) -> Band:
    """Draw a median and its band."""
    band = band_of(curve.values, curve.cell.data["episode"], quantiles)
    colour, dash = COLOURS[curve.style.colour], DASHES[curve.style.dash]
    if curve.values.sizes["seed"] > 1:
        axes.fill_between(band.episode, band.low, band.high, color=colour, alpha=0.2, lw=0)
    axes.plot(band.episode, band.centre, color=colour, linestyle=dash, label=curve.label or None)
    return band


def _draw_guides(axes: "Axes", curves: list[DrawnCurve], bands: list[Band]) -> None:
    """Draw guides through the end of the highest curve of a learner, if it rises."""
    rising = [
        band
        for curve, band in zip(curves, bands, strict=True)
        if makes_promises(curve.cell) and end_of(band) > 0
    ]
    if rising:
        highest = max(rising, key=end_of)
        t = np.linspace(0, float(highest.episode[-1]), 200)
        draw_guides(axes, t, end_of(highest), "t")


def _name_missing(axes: "Axes", cells: list[Cell], curves: list[DrawnCurve]) -> None:
    """Name learners without a curve in the legend, once for all instances."""
    drawn = {curve.cell.label for curve in curves}
    missing = [cell for cell in cells if cell.label not in drawn]
    everywhere = {cell.label_without("instance") for cell in cells if cell.label in drawn}
    names = []
    for cell in missing:
        short = cell.label_without("instance")
        names.append(cell.label if short in everywhere or not short else short)
    for name in dict.fromkeys(names):
        axes.plot([], [], " ", label=plain(f"{name}: none"))


def draw_optima(axes: "Axes", cells: list[Cell], quantiles: tuple[float, float]) -> None:
    """Draw the optimum of each instance once, named by what distinguishes it from the others."""
    groups: dict[bytes, list[Cell]] = {}
    bands: dict[bytes, Band] = {}
    for cell in cells:  # learners on the same instance share the optimum
        band = band_of(cell.data["opt"], cell.data["episode"], quantiles)
        mark = band.centre.tobytes() + band.episode.tobytes()
        groups.setdefault(mark, []).append(cell)
        bands[mark] = band
    for number, (mark, sharing) in enumerate(groups.items()):
        median = bands[mark].centre
        words = ["OPT of the episodes so far" if np.ptp(median) > 1e-9 else "OPT"]
        if len(groups) > 1:
            alike = [dim for dim in sharing[0].names if _agree(sharing, dim)]
            words = [plain(sharing[0].names[dim]) or "" for dim in alike] + words
        look: dict[str, Any] = {"color": GREY, "lw": 0.8}
        look["linestyle"] = DASHES[number % len(DASHES)]
        axes.plot(bands[mark].episode, median, label=", ".join(words), **look)


def _agree(cells: list[Cell], dim: str) -> bool:
    return len({cell.names.get(dim) for cell in cells}) == 1
