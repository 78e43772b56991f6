"""Figures of how runs ended: against horizons, against each other, and against the guarantees."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray

from pdgd_jax.curves import (
    Cell,
    Style,
    as_dataset,
    axis_of,
    band_of,
    cells_of,
    makes_promises,
    quantity_of,
    shares_of,
    slope_of,
    styles_of,
)
from pdgd_jax.evaluation import Evaluation
from pdgd_jax.plots.canvas import (
    COLOURS,
    COLUMN,
    COLUMN_WIDTH,
    DASHES,
    GREY,
    MARKERS,
    Look,
    canvas,
    draw_guides,
    finish,
    legend,
    plain,
    refuse_crowd,
    statistic,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["certificates", "horizons", "tradeoff"]

NDArray = np.ndarray[Any, np.dtype[Any]]
Results = xarray.Dataset | Evaluation


def horizons(
    source: Results,
    *,
    quantities: Sequence[str] = ("regret", "violation"),
    guides: bool = False,
    quantiles: tuple[float, float] = (0.1, 0.9),
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Where runs of growing horizons ended, in logarithms, with the fitted slopes.

    A slope of 1/2 means $\sqrt T$. Medians that are not positive have no logarithm: they are left
    out of the picture and of the fit, and the legend counts them.

    Args:
      source: results with a dimension `horizon`.
      quantities: what to draw, of "regret", "alpha_regret", "violation", "positive_violation".
      guides: draw lines of slope 1/2 and 3/4, through the highest end of a learner.
      quantiles: between which the error bars lie.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    dataset = as_dataset(source)
    if dataset.sizes.get("horizon", 1) < 2:
        raise ValueError("this figure needs results of at least two horizons.")
    chosen = [quantity_of(name, dataset) for name in quantities]
    lengths = np.sort(dataset["horizon"].to_numpy())
    groups: dict[str, list[Cell]] = {}
    for cell in cells_of(dataset):
        groups.setdefault(cell.label_without("horizon"), []).append(cell)
    refuse_crowd(len(groups) * len(chosen))
    owners = [cells[0] for cells in groups.values() for _ in chosen]
    styles = iter(styles_of(dataset, owners))
    seen: list[NDArray] = []  # median, low, high of what is drawn
    highest = 0.0  # end of a learner
    with canvas(ax, look) as axes:
        for group, cells in groups.items():
            cells = sorted(cells, key=lambda cell: cell.values["horizon"])
            for quantity in chosen:
                bands = [band_of(quantity.of(c.data), c.data["episode"], quantiles) for c in cells]
                ends = np.array([(b.median[-1], b.low[-1], b.high[-1]) for b in bands])
                name = quantity.label if len(chosen) > 1 else ""
                words = [word for word in (plain(group), name) if word]
                _draw_ends(axes, lengths, ends, next(styles), words)
                seen.append(ends[ends[:, 0] > 0])
                if makes_promises(cells[0]):
                    highest = max([highest, *seen[-1][:, 0]])
        axes.set_xscale("log")
        axes.set_yscale("log")
        shown = np.concatenate(seen)
        if len(shown):
            # Bars may reach below zero: medians decide what is in the picture.
            axes.set_ylim(shown[:, 0].min() / 2, shown[:, 2].max() * 2)
        if guides and highest > 0:
            draw_guides(axes, lengths, highest, "T")
        if len(lengths) <= 6:
            _tick_at(axes, lengths)
        what = axis_of(chosen[0], dataset) if len(chosen) == 1 else "after the last episode"
        across = "horizon T (episodes)" + statistic(dataset, quantiles, "bars")
        finish(axes, what, look, ax is None, across=across)
    return axes


def _draw_ends(
    axes: "Axes", lengths: NDArray, ends: NDArray, style: Style, words: list[str]
) -> None:
    """Medians with their bars, and the line that is fitted to them."""
    median, colour = ends[:, 0], COLOURS[style.colour]
    axes.errorbar(
        *_positive(lengths, ends),
        color=colour,
        linestyle="none",
        marker=MARKERS[style.dash],
        capsize=1.5,
        elinewidth=0.7,
        label=", ".join([*words, _slope_in_words(lengths, median)]),
    )
    slope = slope_of(lengths, median)
    if not math.isnan(slope):
        drawn = median > 0
        logs = np.log(lengths[drawn])
        offset = np.log(median[drawn]).mean() - slope * logs.mean()
        fit = np.exp(slope * logs + offset)
        axes.plot(lengths[drawn], fit, color=colour, linestyle=DASHES[style.dash], lw=0.9)


def _tick_at(axes: "Axes", lengths: NDArray) -> None:
    from matplotlib.ticker import EngFormatter, FixedLocator, NullLocator

    axes.xaxis.set_major_locator(FixedLocator(lengths.tolist()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _positive(lengths: NDArray, ends: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """What can be drawn in logarithms: horizons, medians, and the bars below and above."""
    drawn = ends[:, 0] > 0
    median, low, high = ends[drawn].T
    # A bar that reaches below zero ends far down: it leaves the picture.
    low = np.where(low > 0, low, median * 1e-3)
    return lengths[drawn], median, np.array([median - low, high - median])


def _slope_in_words(lengths: NDArray, medians: NDArray) -> str:
    slope = slope_of(lengths, medians)
    hidden = int((~(medians > 0)).sum())
    words = "no slope" if math.isnan(slope) else f"slope {slope:.2f}"
    return f"{words} ({hidden} not positive)" if hidden else words


def tradeoff(
    source: Results,
    *,
    quantiles: tuple[float, float] = (0.1, 0.9),
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    """Regret against violation after the last episode: who pays with what.

    The lower left is good. Marks are medians, bars reach from quantile to quantile.

    Args:
      source: the results.
      quantiles: between which the bars lie.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    dataset = as_dataset(source)
    cells = cells_of(dataset)
    refuse_crowd(len(cells))
    both = [quantity_of(name, dataset) for name in ("violation", "regret")]
    with canvas(ax, look) as axes:
        axes.axhline(0, color="black", lw=0.4)
        axes.axvline(0, color="black", lw=0.4)
        for cell, style in zip(cells, styles_of(dataset, cells), strict=True):
            bands = [band_of(q.of(cell.data), cell.data["episode"], quantiles) for q in both]
            (x, left, right), (y, below, above) = (
                (b.median[-1], b.low[-1], b.high[-1]) for b in bands
            )
            axes.errorbar(
                x,
                y,
                xerr=[[x - left], [right - x]],
                yerr=[[y - below], [above - y]],
                color=COLOURS[style.colour],
                marker=MARKERS[style.dash],
                linestyle="none",
                capsize=1.5,
                elinewidth=0.7,
                label=plain(cell.label),
            )
        across, up = (axis_of(quantity, dataset) for quantity in both)
        finish(axes, up, look, ax is None, across=across + statistic(dataset, quantiles, "bars"))
    return axes


def certificates(source: Results, *, look: Look = COLUMN, ax: "Axes | None" = None) -> "Axes":
    """How much of each guarantee was used: measured / bound, of the worst seed.

    Filled marks hold, crosses fail, hollow ones are vacuous: no run could have broken that bound.
    Arrows at the left edge were not positive. Below is named what applies to no run.

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
    applies = dataset["certificate_status"] != "does not apply"
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
        axes.axvline(3 * edge, color=GREY, lw=0.5, ls=":")  # what is left of it has no logarithm
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
    """How much of a bound the runs of a cell used at worst, and what that says."""

    row: int
    cell: int
    share: float
    status: str


def _shares(cells: list[Cell], kept: NDArray) -> list[_Share]:
    found = []
    for number, cell in enumerate(cells):
        numbers = (
            cell.data[f"certificate_{what}"].transpose("seed", "certificate").to_numpy()[:, kept]
            for what in ("measured", "bound", "status")
        )
        for row, (measured, bound, status) in enumerate(zip(*(n.T for n in numbers), strict=True)):
            shares = shares_of(measured, bound)[status != "does not apply"]
            if len(shares):
                verdict = next(v for v in ("fails", "holds", "vacuous") if (status == v).any())
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
        marker="X" if one.status == "fails" else marker,
        color=colour,
        markerfacecolor="white" if one.status == "vacuous" else colour,
    )


def _tick_decades(axes: "Axes", edge: float, top: float) -> None:
    """Powers of ten, and at the edge what has none."""
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
    """The legend: who, and what a mark says that is not just filled."""
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
    if "vacuous" in seen:
        keys.append(key("vacuous: cannot fail", "o", GREY, "white"))
    if "fails" in seen:
        keys.append(key("fails", "X", GREY, GREY))
    return keys
