"""The final values of runs against their horizon."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pdgd_jax._internal.typing import NDArray
from pdgd_jax.plots._style import (
    COLOURS,
    COLUMN,
    DASHES,
    MARKERS,
    Look,
    canvas,
    draw_guides,
    finish,
    plain,
    refuse_crowd,
    statistic,
)
from pdgd_jax.results import (
    QUANTILES,
    Cell,
    Results,
    Style,
    as_dataset,
    axis_of,
    band_of,
    cells_of,
    makes_promises,
    quantity_of,
    slope_of,
    styles_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["horizons"]


def horizons(
    source: Results,
    *,
    quantities: Sequence[str] = ("regret", "violation"),
    guides: bool = False,
    quantiles: tuple[float, float] = QUANTILES,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""The final values of runs with growing horizons, on logarithmic axes with fitted slopes.

    A slope of 1/2 means $\sqrt T$. Medians that are not positive have no logarithm: the figure and
    the fit leave them out, and the legend counts them.

    Args:
      source: results with a dimension `horizon`.
      quantities: what to draw: "regret", "alpha_regret", "violation", "positive_violation".
      guides: draw lines of slope 1/2 and 3/4 through the highest end of a learner.
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
    seen: list[NDArray] = []  # median, low and high of each curve
    highest = 0.0  # the highest end of a learner
    with canvas(ax, look) as axes:
        for group, cells in groups.items():
            cells = sorted(cells, key=lambda cell: cell.values["horizon"])
            for quantity in chosen:
                bands = [band_of(quantity.of(c.data), c.data["episode"], quantiles) for c in cells]
                ends = np.array([(b.centre[-1], b.low[-1], b.high[-1]) for b in bands])
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
            # Bars may reach below zero, so the limits depend on the medians.
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
    """Draw medians with their bars, and the fitted line."""
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
    """The positive values: horizons, medians, and the bars below and above."""
    drawn = ends[:, 0] > 0
    median, low, high = ends[drawn].T
    # A bar that reaches below zero ends far outside the figure.
    low = np.where(low > 0, low, median * 1e-3)
    return lengths[drawn], median, np.array([median - low, high - median])


def _slope_in_words(lengths: NDArray, medians: NDArray) -> str:
    slope = slope_of(lengths, medians)
    hidden = int((~(medians > 0)).sum())
    words = "no slope" if math.isnan(slope) else f"slope {slope:.2f}"
    return f"{words} ({hidden} not positive)" if hidden else words
