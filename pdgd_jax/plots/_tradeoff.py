"""Regret against violation."""

from typing import TYPE_CHECKING

from pdgd_jax.plots._style import (
    COLOURS,
    COLUMN,
    MARKERS,
    Look,
    canvas,
    finish,
    plain,
    refuse_crowd,
    statistic,
)
from pdgd_jax.results import (
    QUANTILES,
    Results,
    as_dataset,
    axis_of,
    band_of,
    cells_of,
    quantity_of,
    styles_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["tradeoff"]


def tradeoff(
    source: Results,
    *,
    quantiles: tuple[float, float] = QUANTILES,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    """Regret against violation after the last episode.

    The lower left is good. Marks are medians, and bars reach from quantile to quantile.

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
                (b.centre[-1], b.low[-1], b.high[-1]) for b in bands
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
