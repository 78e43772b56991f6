"""Figures of an instance: a policy and its occupancy on the layered graph, or on a grid."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from pdgd_jax._internal.checks import check_sums
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import CMDP, LayeredMDP, UnrolledMDP, occupancy_of
from pdgd_jax.plots._style import COLOURS, COLUMN, GREY, WARNING, Look, canvas, legend
from pdgd_jax.processes import StochasticProcess

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["grid", "occupancy", "policy"]


def policy(
    model: CMDP | LayeredMDP,
    policy: Float[ArrayLike, "layers states actions"],
    *,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""A policy on the layered graph: each state is a bar, divided by $\pi(a \mid x)$.

    The width of a line is the probability of that step; layers run from left to right.

    Args:
      model: the CMDP or its MDP.
      policy: `[L, S, A]`; may be padded.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    from matplotlib.patches import Patch, Rectangle

    mdp = _mdp_of(model)
    chosen = _checked_policy(mdp, policy)
    steps = _steps(mdp, mdp.layers.spread_on_host(chosen) * np.asarray(mdp.transition))
    used = np.flatnonzero(np.asarray(mdp.layers.action_mask).any((0, 1)))
    if used[-1] >= len(COLOURS):
        raise ValueError(
            f"{used[-1] + 1} actions cannot be told apart by colour, at most {len(COLOURS)} can: "
            "draw `occupancy`."
        )
    with canvas(ax, look, height=_graph_height(mdp)) as axes:
        _draw_steps(axes, mdp, steps)
        width, height = 0.56, 0.66
        for layer, state, x, y in _states(mdp):
            left = x - width / 2
            frame = (left, y - height / 2)
            axes.add_patch(Rectangle(frame, width, height, fc="white", ec="black", lw=1))
            if layer < len(chosen) and chosen[layer, state].sum() > 0:
                for action in used:
                    share = float(chosen[layer, state, action]) * width
                    corner = (left, y - height / 2)
                    colour = COLOURS[action]
                    axes.add_patch(Rectangle(corner, share, height, color=colour, lw=0))
                    left += share
        patches = [Patch(color=COLOURS[a], label=f"action {a}") for a in used]
        _finish_graph(axes, mdp, "probability of a step, once there")
        legend(axes, look, ax is None, patches, outside=True)
    return axes


def occupancy(
    model: CMDP | LayeredMDP,
    policy: Float[ArrayLike, "layers states actions"],
    *,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""The occupancy of a policy on the layered graph: how likely each state and step is.

    Args:
      model: the CMDP or its MDP.
      policy: `[L, S, A]`; may be padded.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    mdp = _mdp_of(model)
    chosen = _checked_policy(mdp, policy)
    flow = _steps(mdp, np.asarray(occupancy_of(mdp, jnp.asarray(chosen))))  # [L, S, S]
    mass = np.concatenate([flow.sum(2), flow[-1:].sum(1)])  # [L+1, S]
    with canvas(ax, look, height=_graph_height(mdp)) as axes:
        _draw_steps(axes, mdp, flow)
        places = list(_states(mdp))
        marks = axes.scatter(
            [x for *_, x, _ in places],
            [y for *_, y in places],
            c=[mass[layer, state] for layer, state, *_ in places],
            cmap="Blues",
            vmin=0,
            vmax=1,
            s=_dot_size(axes, mdp),
            edgecolors="black",
            linewidths=0.5,
            zorder=3,
        )
        axes.figure.colorbar(marks, ax=axes, label="probability of a visit", shrink=0.8)
        _finish_graph(axes, mdp, "probability of a step")
    return axes


def grid(
    model: CMDP | UnrolledMDP,
    policy: Float[ArrayLike, "layers states actions"],
    *,
    rows: int | None = None,
    columns: int | None = None,
    directions: str = "urdl",
    step: int | None = None,
    look: Look = COLUMN,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""A policy on a grid world: shades are expected visits, arrows $\pi(a \mid x)$.

    A policy may differ from step to step. Arrows are its average over the visits of an episode,
    without actions that are played in less than a twentieth of them. Cells with a positive mean
    cost are hatched, and a star marks the largest mean reward.

    Args:
      model: a CMDP over an `UnrolledMDP`, such as `make("grid")`.
      policy: `[L, S, A]`; may be padded.
      rows: the number of rows; by default the grid is square.
      columns: the number of columns.
      directions: the direction of each action, of up, right, down and left: "urdl" for
        `make("grid")`, "ldru" for Gymnasium's FrozenLake.
      step: draw only this step of the episode.
      look: width, legend, title.
      ax: where to draw; a new figure by default.

    Returns:
      The Axes.
    """
    mdp = _mdp_of(model)
    if not isinstance(mdp, UnrolledMDP):
        raise ValueError("this instance has no flat states behind its layers: draw `policy`.")
    shape = _grid_shape(mdp, rows, columns)
    if len(directions) != mdp.layers.shape[2] or set(directions) - set("urdl"):
        raise ValueError(
            f"directions name one of u, r, d, l for each of the {mdp.layers.shape[2]} actions; "
            f"got {directions!r}."
        )
    if step is not None and not 0 <= step < mdp.horizon:
        raise ValueError(f"step must lie in 0..{mdp.horizon - 1}; got {step}.")
    chosen = _checked_policy(mdp, policy)
    flat = np.asarray(
        mdp.to_flat(mdp.layers.to_pairs(occupancy_of(mdp, jnp.asarray(chosen))))
    )  # [horizon, N, A]
    pairs = flat.sum(0) if step is None else flat[step]
    pairs = pairs[: math.prod(shape)]  # [cells, A]
    visits = pairs.sum(-1)
    shares = pairs / np.where(visits > 0, visits, 1)[:, None]
    with canvas(ax, look, height=0.3 + 2.6 * min(shape[0] / shape[1], 1.6)) as axes:
        shades = axes.imshow(visits.reshape(shape), cmap="Blues", vmin=0)
        axes.figure.colorbar(shades, ax=axes, label="expected visits", shrink=0.8)
        _mark_cells(axes, model, mdp, shape)
        colours = np.where(visits > 0.6 * visits.max(), "white", "black")
        _draw_arrows(axes, shares, colours, directions, shape[1])
        axes.set_xticks(range(shape[1]))
        axes.set_yticks(range(shape[0]))
        axes.set_xlabel("column")
        axes.set_ylabel("row")
    return axes


def _draw_arrows(
    axes: "Axes", shares: NDArray, colours: NDArray, directions: str, columns: int
) -> None:
    """Draw an arrow for each action that is played in more than a twentieth of the visits."""
    moves = {"u": (0, -1), "r": (1, 0), "d": (0, 1), "l": (-1, 0)}
    row, column = np.divmod(np.arange(len(shares)), columns)
    for action, direction in enumerate(directions):
        along, down = moves[direction]
        length = 0.45 * shares[:, action]
        shown = shares[:, action] > 0.05
        if not shown.any():
            continue
        axes.quiver(
            column[shown],
            row[shown],
            along * length[shown],
            down * length[shown],
            color=colours[shown],
            angles="xy",
            scale_units="xy",
            scale=1,
            width=0.012,
            headwidth=4,
            headlength=4,
            headaxislength=3.5,
        )


def _mark_cells(
    axes: "Axes", model: CMDP | LayeredMDP, mdp: UnrolledMDP, shape: tuple[int, int]
) -> None:
    """Hatch cells that cost, and mark the best with a star; skip processes without a mean."""
    from matplotlib.patches import Rectangle

    if not isinstance(model, CMDP):
        return
    cells = math.prod(shape)

    def largest(values: Any) -> NDArray:
        return np.asarray(mdp.to_flat(values)).max((0, 2))[:cells]

    if isinstance(model.constraints, StochasticProcess):
        costs = np.max([largest(G) for G in model.constraints.mean()], axis=0)
        for cell in np.flatnonzero(costs > 0):
            corner = (cell % shape[1] - 0.5, cell // shape[1] - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="////", ec=WARNING, lw=0.8))
    if isinstance(model.rewards, StochasticProcess):
        pays = largest(model.rewards.mean())
        best = np.flatnonzero((pays > 0) & (pays == pays.max()))
        axes.plot(
            best % shape[1] + 0.33,
            best // shape[1] - 0.33,
            linestyle="none",
            marker="*",
            markersize=8,
            color="#E69F00",
            markeredgecolor="black",
            markeredgewidth=0.4,
        )


def _mdp_of(model: CMDP | LayeredMDP) -> LayeredMDP:
    mdp = model.mdp if isinstance(model, CMDP) else model
    if not isinstance(mdp, LayeredMDP) or mdp.layers.action_mask.ndim != 3:
        raise ValueError(
            f"an instance to draw is one CMDP or LayeredMDP; got a {type(model).__name__}."
        )
    return mdp


def _steps(mdp: LayeredMDP, triples: NDArray) -> NDArray:
    """The sum over the actions, `[L, S, S]`, of an array over the triples."""
    L, S, A = mdp.layers.shape
    between = np.zeros((L, S, S), triples.dtype)
    layer, pair, following, value = mdp.layers.steps_on_host(triples)
    np.add.at(between, (layer, pair // A, following), value)
    return between


def _checked_policy(mdp: LayeredMDP, policy: Any) -> NDArray:
    """The policy cut to the shape of the instance, exactly 0 outside its masks."""
    L, S, A = mdp.layers.shape
    given = np.asarray(policy, float)
    if given.ndim != 3 or any(a < b for a, b in zip(given.shape, (L, S, A), strict=True)):
        raise ValueError(
            f"a policy of this instance is [L, S, A] = {(L, S, A)}; got {given.shape}."
        )
    mask = np.asarray(mdp.layers.action_mask)
    chosen = np.where(mask, given[:L, :S, :A], 0)
    # The tolerance allows for sums that were saved in float32.
    check_sums("the policy", chosen, 1e-4, mask.any(-1))
    total = chosen.sum(-1, keepdims=True)
    return np.asarray(chosen / np.where(total > 0, total, 1))


def _states(mdp: LayeredMDP) -> Iterator[tuple[int, int, float, float]]:
    """Layer, state, and its position in the figure."""
    mask = np.asarray(mdp.layers.state_mask)
    for layer in range(len(mdp.layers.sizes)):
        states = np.flatnonzero(mask[layer])
        for number, state in enumerate(states):
            yield layer, int(state), float(layer), (len(states) - 1) / 2 - number


def _draw_steps(axes: "Axes", mdp: LayeredMDP, weights: NDArray) -> None:
    """Draw a line for each step, as wide as its weight `[L, S, S]`."""
    from matplotlib.collections import LineCollection

    places = {(layer, state): (x, y) for layer, state, x, y in _states(mdp)}
    lines, widths = [], []
    for layer, x, y in np.argwhere(weights > 1e-6):
        lines.append([places[layer, x], places[layer + 1, y]])
        widths.append(0.2 + 3 * float(weights[layer, x, y]))
    axes.add_collection(LineCollection(lines, linewidths=widths, colors=GREY, alpha=0.6, zorder=1))


def _graph_height(mdp: LayeredMDP) -> float:
    return min(1.0 + 0.35 * max(mdp.layers.sizes), 4.0)


def _dot_size(axes: "Axes", mdp: LayeredMDP) -> float:
    """The size of dots in square points, so that those of the largest layer do not touch."""
    figure: Any = axes.figure
    height = 72 * figure.get_size_inches()[1] * 0.7
    return float(min(14, 0.7 * height / max(mdp.layers.sizes)) ** 2)


def _finish_graph(axes: "Axes", mdp: LayeredMDP, width: str) -> None:
    sizes = mdp.layers.sizes
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    axes.set_ylim(-max(sizes) / 2, max(sizes) / 2)
    axes.set_xticks(range(len(sizes)))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"layer\nwidth of a line: {width}")


def _grid_shape(mdp: UnrolledMDP, rows: int | None, columns: int | None) -> tuple[int, int]:
    cells = mdp.num_flat_states
    if rows is None and columns is None:
        rows = columns = math.isqrt(cells)
        if cells - rows * columns > 1:  # Gymnasium's grids have one more state, after the end
            raise ValueError(f"{cells} states do not form a square grid: give rows and columns.")
    rows = cells // columns if rows is None and columns else rows
    columns = cells // rows if columns is None and rows else columns
    if not rows or not columns or rows * columns > cells:
        raise ValueError(f"a grid of {rows} x {columns} cells does not fit the {cells} states.")
    return rows, columns
