"""Figures of how runs ended: against horizons, and against the guarantees of the paper."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from pdgd_jax.curves import Cell, as_dataset, band_of, cells_of, quantity_of, shares_of, slope_of
from pdgd_jax.evaluation import Evaluation
from pdgd_jax.plots.canvas import (
    COLOURS,
    DASHES,
    GREY,
    MARKERS,
    canvas,
    draw_guides,
    finish,
    legend,
    plain,
    refuse_crowd,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["certificates", "horizons"]

NDArray = np.ndarray[Any, np.dtype[Any]]
Results = xarray.Dataset | Evaluation


def horizons(
    source: Results,
    *,
    quantities: Sequence[str] = ("regret", "violation"),
    guides: bool = False,
    quantiles: tuple[float, float] = (0.1, 0.9),
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Where runs of growing horizons ended, in logarithms, with the fitted slopes.

    A slope of 1/2 means $\sqrt T$. Medians that are not positive have no logarithm: they are left
    out of the picture and of the fit, and the legend counts them.

    Args:
      source: results with a dimension `horizon`.
      quantities: what to draw, of "regret", "alpha_regret", "violation", "positive_violation".
      guides: draw lines of slope 1/2 and 3/4.
      quantiles: between which the error bars lie.
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
    seen: list[NDArray] = []  # median, low, high of what is drawn
    with canvas(ax) as axes:
        for colour, (group, cells) in enumerate(groups.items()):
            cells = sorted(cells, key=lambda cell: cell.values["horizon"])
            for style, quantity in enumerate(chosen):
                bands = [band_of(quantity.of(c.data), c.data["episode"], quantiles) for c in cells]
                ends = np.array([(b.median[-1], b.low[-1], b.high[-1]) for b in bands])
                median = ends[:, 0]
                name = quantity.label.split(",")[0] if len(chosen) > 1 else ""
                words = [word for word in (plain(group), name) if word]
                axes.errorbar(
                    *_positive(lengths, ends),
                    color=COLOURS[colour % len(COLOURS)],
                    linestyle="none",
                    marker=MARKERS[style % len(MARKERS)],
                    capsize=1.5,
                    elinewidth=0.7,
                    label=", ".join([*words, _slope_in_words(lengths, median)]),
                )
                _draw_fit(axes, lengths, median, colour, style)
                seen.append(ends[median > 0])
        axes.set_xscale("log")
        axes.set_yscale("log")
        shown = np.concatenate(seen)
        if len(shown):
            # Bars may reach below zero: medians decide what is in the picture.
            axes.set_ylim(shown[:, 0].min() / 2, shown[:, 2].max() * 2)
            if guides:
                draw_guides(axes, lengths, float(shown[:, 0].max()), "T")
        if len(lengths) <= 6:
            _tick_at(axes, lengths)
        what = chosen[0].label if len(chosen) == 1 else "after the last episode"
        finish(axes, f"{what} ({chosen[0].units})" if len(chosen) == 1 else what, ax is None)
        axes.set_xlabel("horizon T (episodes)")
    return axes


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


def _draw_fit(axes: "Axes", lengths: NDArray, medians: NDArray, colour: int, style: int) -> None:
    slope = slope_of(lengths, medians)
    if math.isnan(slope):
        return
    drawn = medians > 0
    logs = np.log(lengths[drawn])
    offset = np.log(medians[drawn]).mean() - slope * logs.mean()
    axes.plot(
        lengths[drawn],
        np.exp(slope * logs + offset),
        color=COLOURS[colour % len(COLOURS)],
        linestyle=DASHES[style % len(DASHES)],
        lw=0.9,
    )


def certificates(source: Results, *, ax: "Axes | None" = None) -> "Axes":
    """How much of each guarantee was used: measured / bound, of the worst seed.

    Filled marks hold, crosses fail; what is not positive stands at the left edge. Guarantees that
    apply to no run are not drawn.

    Args:
      source: the results.
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
    names = [str(name) for name in dataset["certificate"].to_numpy()[kept]]
    found: list[tuple[int, int, float, bool]] = []  # row, cell, share, fails
    for number, cell in enumerate(cells):
        numbers = (
            cell.data[f"certificate_{what}"].transpose("seed", "certificate").to_numpy()[:, kept]
            for what in ("measured", "bound", "status")
        )
        for row, (measured, bound, status) in enumerate(zip(*(n.T for n in numbers), strict=True)):
            shares = shares_of(measured, bound)[status != "does not apply"]
            if len(shares):
                found.append((row, number, float(np.max(shares)), bool((status == "fails").any())))
    positive = [share for *_, share, _ in found if 0 < share < math.inf]
    edge = 10.0 ** math.floor(math.log10(min([*positive, 0.1]))) / 2
    top = max([*positive, 2.0]) * 2
    with canvas(ax, height=0.6 + min(0.16 + 0.04 * len(cells), 0.36) * len(names)) as axes:
        axes.axvline(1, color=GREY, lw=0.8, ls="--")
        labelled: set[int] = set()
        for row, number, share, fails in found:
            shift = 0.5 * (number - (len(cells) - 1) / 2) / max(len(cells) - 1, 1)
            axes.plot(
                np.clip(share, edge, top),
                row + shift,
                linestyle="none",
                marker="X" if fails else MARKERS[number % len(MARKERS)],
                color=COLOURS[number % len(COLOURS)],
                label=plain(cells[number].label) if number not in labelled else None,
            )
            labelled.add(number)
        axes.set_xscale("log")
        axes.set_xlim(edge / 1.5, top * 1.5)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel("measured / bound")
        legend(axes, ax is None)
    return axes
