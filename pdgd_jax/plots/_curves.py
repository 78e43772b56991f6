"""Figures against episodes."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pdgd_jax._internal.typing import NDArray
from pdgd_jax.plots._episodes import against_episodes, curves_of, draw_curve, draw_optima
from pdgd_jax.plots._style import COLUMN, WARNING, Look, canvas, finish, statistic
from pdgd_jax.results import (
    QUANTILES,
    Cell,
    Results,
    Subject,
    as_dataset,
    axis_of,
    cells_of,
    quantity_of,
)

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

__all__ = [
    "curve",
    "multipliers",
    "positive_violation",
    "radius",
    "regret",
    "reward",
    "solver",
    "violation",
]


def curve(
    source: Results,
    name: str,
    *,
    guides: bool = False,
    log: bool = False,
    quantiles: tuple[float, float] = QUANTILES,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    """Any quantity of the table `results.QUANTITIES` that has a curve.

    Args:
      source: the results.
      name: the name of the quantity.
      guides: as in `regret`.
      log: as in `regret`.
      quantiles: between which the band lies.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    return against_episodes(source, name, quantiles, look, ax, guides=guides, log=log)


def regret(
    source: Results,
    *,
    alpha: bool = False,
    bounds: bool = False,
    guides: bool = False,
    log: bool = False,
    quantiles: tuple[float, float] = QUANTILES,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Cumulative regret $R_t$ against episodes.

    Args:
      source: the results.
      alpha: draw the $\alpha$-regret, which is what can be bounded for adversarial constraints.
      bounds: mark the paper's bounds that apply, at $T$; the axis becomes logarithmic above the
        curves if bounds are far away.
      guides: draw $\sqrt t$ and $t^{3/4}$ through the end of the highest curve of a learner. Fixed
        policies, such as `uniform`, do not count.
      log: logarithmic axes; if some values are not positive, the vertical axis is linear around 0.
      quantiles: between which the band lies.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    name = "alpha_regret" if alpha else "regret"
    about = Subject.REGRET if bounds and not alpha else None
    return against_episodes(source, name, quantiles, look, ax, about, guides, log)


def violation(
    source: Results,
    *,
    bounds: bool = False,
    guides: bool = False,
    log: bool = False,
    quantiles: tuple[float, float] = QUANTILES,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Cumulative violation $V_t$ of the worst constraint; good episodes make up for bad ones.

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
    about = Subject.VIOLATION if bounds else None
    return against_episodes(source, "violation", quantiles, look, ax, about, guides, log)


def positive_violation(
    source: Results,
    *,
    guides: bool = False,
    log: bool = False,
    quantiles: tuple[float, float] = QUANTILES,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Cumulative positive part of the violation of the worst constraint.

    Good episodes do not make up for bad ones. The label of the axis is the `long_name` in the
    results, which says whether it is about the constraints of each episode or their means.

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
    return against_episodes(source, name, quantiles, look, ax, guides=guides, log=log)


def multipliers(
    source: "xarray.Dataset",
    *,
    bounds: bool = False,
    quantiles: tuple[float, float] = QUANTILES,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""The multipliers $\lambda_t$ against episodes, one curve for each constraint.

    The legend names learners without multipliers, whose values are always 0.

    Args:
      source: the results.
      bounds: mark the ceiling $T^{1/4}$, and $\zeta$ of Theorem 4 where that applies.
      quantiles: between which the band lies.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    about = Subject.MULTIPLIERS if bounds else None
    return against_episodes(source, "multipliers", quantiles, look, ax, about)


def reward(
    source: "xarray.Dataset",
    *,
    quantiles: tuple[float, float] = QUANTILES,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""The average reward of the episodes so far, and their optimum as a thin line.

    Against an adversary the optimum changes with every episode, and may go up and down. The legend
    then calls it OPT of the episodes so far.

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
        for curve in curves_of(dataset, quantity, cells):
            draw_curve(axes, curve, quantiles)
        draw_optima(axes, cells, quantiles)
        across = "episodes" + statistic(dataset, quantiles, "band")
        finish(axes, axis_of(quantity, dataset), look, ax is None, across=across)
    return axes


def radius(
    source: "xarray.Dataset",
    *,
    log: bool = False,
    quantiles: tuple[float, float] = QUANTILES,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""The mean confidence radius, which is 2 if nothing is known about the transitions.

    Args:
      source: the results.
      log: as in `regret`.
      quantiles: between which the band lies.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    axes = against_episodes(source, "radius", quantiles, look, ax, log=log)
    if not log:
        axes.set_ylim(bottom=0)
    return axes


def solver(
    source: "xarray.Dataset",
    *,
    quantiles: tuple[float, float] = QUANTILES,
    look: Look = COLUMN,
    ax: "Sequence[Axes] | NDArray | None" = None,
) -> NDArray:
    """The projections: iterations per episode, and the largest residual so far.

    A red warning appears if a projection did not converge, since the numbers are then not those of
    the algorithm.

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
            for curve in curves_of(dataset, quantity, drawn):
                draw_curve(place, curve, quantiles)
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


def _unconverged(cells: list[Cell]) -> int:
    return sum(int(cell.data["unconverged"].isel(checkpoint=-1).sum()) for cell in cells)
