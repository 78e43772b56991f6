"""Marks the paper's bounds in a figure."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pdgd_jax.plots._style import COLOURS, GREY
from pdgd_jax.results import Band, Cell, Status, Style, Subject

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

__all__ = ["DrawnCurve", "draw_bounds", "end_of"]


class DrawnCurve(NamedTuple):
    """A curve of a figure: its cell, its values, its name and its style."""

    cell: Cell
    values: "xarray.DataArray"  # [seed, checkpoint]
    label: str | None
    style: Style


def end_of(band: Band) -> float:
    """The last value that is not missing."""
    known = band.centre[np.isfinite(band.centre)]
    return float(known[-1]) if len(known) else math.nan


def draw_bounds(
    axes: "Axes", curves: list[DrawnCurve], about: Subject, bands: list[Band] | None
) -> None:
    """Mark bounds at T, since the paper bounds a whole run, not each of its episodes."""
    found = [
        (curve, name, value, vacuous)
        for curve in curves
        for name, value, vacuous in _bounds_of(curve.cell, about)
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
        largest = float(np.nanmax(np.abs([end_of(band) for band in bands])))
        highest = max(value for _, _, value, _ in found)
        if highest > 4 * largest > 0:
            _squeeze_above(axes, largest, highest)


def _bounds_of(cell: Cell, about: Subject) -> Iterator[tuple[str, float, bool]]:
    """The bounds that apply: name, median over seeds, and whether the bound is vacuous."""
    if "certificate_bound" not in cell.data:
        return
    if "about" not in cell.data:
        raise ValueError("these results do not say what their guarantees bound: play them again.")
    names, abouts = (cell.data[key].to_numpy() for key in ("certificate", "about"))
    for number, name in enumerate(map(str, names)):
        one = cell.data.isel(certificate=number)
        bound, status = (one[f"certificate_{what}"].to_numpy() for what in ("bound", "status"))
        applies = (status != Status.IDLE) & np.isfinite(bound)
        if abouts[number] == about and applies.any():
            idle = bool((status[applies] == Status.VACUOUS).all())
            yield name, float(np.median(bound[applies])), idle


def _squeeze_above(axes: "Axes", largest: float, highest: float) -> None:
    """Make the axis logarithmic above the curves, so that distant bounds stay visible."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    digit = 10.0 ** math.floor(math.log10(largest))
    linear = next(n * digit for n in (1, 2, 5, 10) if n * digit >= largest)
    first = math.floor(math.log10(3 * linear)) + 1  # leaves space between the ticks
    decades = range(first, math.ceil(math.log10(highest)) + 1)
    axes.set_yscale("symlog", linthresh=linear, linscale=1.5 * max(len(decades), 1))
    low = -linear if axes.get_ylim()[0] < -0.1 * linear else 0.0
    ticks = [*np.linspace(low, linear, 3 if low == 0 else 5)[:-1], linear]
    axes.yaxis.set_major_locator(FixedLocator([*ticks, *(10.0**n for n in decades)]))
    axes.yaxis.set_minor_locator(NullLocator())

    def name(value: float, _: int | None) -> str:
        return f"{value:g}" if abs(value) <= linear else f"$10^{{{round(math.log10(value))}}}$"

    axes.yaxis.set_major_formatter(FuncFormatter(name))
