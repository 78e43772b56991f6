"""How much of each guarantee was used."""

import math
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pdgd_jax._internal.typing import NDArray
from pdgd_jax.plots._style import (
    COLOURS,
    COLUMN,
    COLUMN_WIDTH,
    GREY,
    MARKERS,
    Look,
    canvas,
    legend,
    plain,
    refuse_crowd,
)
from pdgd_jax.results import (
    Cell,
    Results,
    Status,
    Style,
    as_dataset,
    cells_of,
    shares_of,
    styles_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["certificates"]


_WORST_FIRST = (Status.FAILS, Status.HOLDS, Status.VACUOUS)


def certificates(source: Results, *, look: Look = COLUMN, ax: "Axes | None" = None) -> "Axes":
    """How much of each guarantee was used: measured / bound, for the worst seed.

    Filled marks hold and crosses fail. Hollow marks are vacuous: no run could have exceeded the
    bound. Arrows at the left edge are not positive. The label below lists guarantees that apply to
    no run.

    Args:
      source: the results.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    dataset = as_dataset(source)
    cells = cells_of(dataset)
    refuse_crowd(len(cells))
    applies = dataset["certificate_status"] != Status.IDLE
    kept = applies.any([dim for dim in applies.dims if dim != "certificate"]).to_numpy()
    if not kept.any():
        raise ValueError("no guarantee of the paper applies to these runs: nothing to draw.")
    names = [str(name) for name in dataset["certificate"].to_numpy()]
    rows = [name for name, drawn in zip(names, kept, strict=True) if drawn]
    idle = [name for name, drawn in zip(names, kept, strict=True) if not drawn]
    found = _shares(cells, kept)
    positive = [one.share for one in found if 0 < one.share < math.inf]
    edge = 10.0 ** (math.floor(math.log10(min([*positive, 0.1]))) - 1)
    top = max([*positive, 2.0]) * 2
    height = 0.75 + min(0.16 + 0.04 * len(cells), 0.36) * len(rows)
    with canvas(ax, look, height=height + (0.15 if idle else 0)) as axes:
        axes.axvline(1, color=GREY, lw=0.8, ls="--")
        axes.axvline(3 * edge, color=GREY, lw=0.5, ls=":")  # values left of it have no logarithm
        styles = styles_of(dataset, cells)
        for one in found:
            shift = 0.5 * (one.cell - (len(cells) - 1) / 2) / max(len(cells) - 1, 1)
            _draw_share(axes, one, styles[one.cell], shift, edge, top)
        axes.set_xscale("log")
        axes.set_xlim(edge / 1.5, top * 1.5)
        _tick_decades(axes, edge, top)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        (axes.set_xlabel if ax is not None else axes.figure.supxlabel)(  # the figure is wider
            _below(dataset.sizes["seed"], idle, look), fontsize=7
        )
        legend(axes, look, ax is None, _keys(cells, styles, found))
    return axes


class _Share(NamedTuple):
    """The largest share of a bound that the runs of a cell used, and the verdict."""

    row: int
    cell: int
    share: float
    status: Status


def _shares(cells: list[Cell], kept: NDArray) -> list[_Share]:
    found = []
    for number, cell in enumerate(cells):
        numbers = (
            cell.data[f"certificate_{what}"].transpose("seed", "certificate").to_numpy()[:, kept]
            for what in ("measured", "bound", "status")
        )
        for row, (measured, bound, status) in enumerate(zip(*(n.T for n in numbers), strict=True)):
            shares = shares_of(measured, bound)[status != Status.IDLE]
            if len(shares):
                verdict = next(v for v in _WORST_FIRST if (status == v).any())
                found.append(_Share(row, number, float(np.max(shares)), verdict))
    return found


def _draw_share(
    axes: "Axes", one: _Share, style: Style, shift: float, edge: float, top: float
) -> None:
    marker = MARKERS[style.dash] if one.share > 0 else "<"
    colour = COLOURS[style.colour]
    axes.plot(
        np.clip(one.share, edge, top),
        one.row + shift,
        linestyle="none",
        marker="X" if one.status == Status.FAILS else marker,
        color=colour,
        markerfacecolor="white" if one.status == Status.VACUOUS else colour,
    )


def _tick_decades(axes: "Axes", edge: float, top: float) -> None:
    """Put ticks at powers of ten, and one at the edge for values without a logarithm."""
    from matplotlib.ticker import NullLocator

    first, last = math.floor(math.log10(edge)) + 1, math.floor(math.log10(top))
    step = max(1, (last - first) // 4)
    powers = range(last - (last - first) // step * step, last + 1, step)
    names = ["≤ 0", *(f"$10^{{{power}}}$" for power in powers)]
    axes.set_xticks([edge, *(10.0**power for power in powers)], names)
    axes.xaxis.set_minor_locator(NullLocator())


def _below(seeds: int, idle: list[str], look: Look) -> str:
    words = "measured / bound" + (f", largest of {seeds} seeds" if seeds > 1 else "")
    if idle:
        told = f"does not apply to any run: {'; '.join(idle)}"
        words += "\n" + textwrap.fill(told, int(64 * look.width / COLUMN_WIDTH))
    return words


def _keys(cells: list[Cell], styles: list[Style], found: list[_Share]) -> list[Any]:
    """The legend: the learners, and the meaning of marks that are not filled."""
    from matplotlib.lines import Line2D

    def key(label: str, marker: str, colour: str, face: str) -> Any:
        look: dict[str, Any] = {"marker": marker, "color": colour, "markerfacecolor": face}
        return Line2D([], [], linestyle="none", label=label, **look)

    keys = []
    for number in sorted({one.cell for one in found}):
        label, style = plain(cells[number].label), styles[number]
        if label:
            colour = COLOURS[style.colour]
            keys.append(key(label, MARKERS[style.dash], colour, colour))
    seen = {one.status for one in found}
    if Status.VACUOUS in seen:
        keys.append(key("vacuous: cannot fail", "o", GREY, "white"))
    if Status.FAILS in seen:
        keys.append(key("fails", "X", GREY, GREY))
    return keys
