"""A grid world with hazards."""

from collections.abc import Sequence

import numpy as np

from pdgd_jax._internal.checks import fraction, whole_number
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.instances._build import at_most, check_size
from pdgd_jax.models import CMDP, unroll
from pdgd_jax.processes import around

__all__ = ["grid"]

# Up, right, down, left: (row, column).
_MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])


def grid(
    rows: int = 4,
    columns: int = 4,
    hazards: Sequence[tuple[int, int]] = ((0, 1), (0, 2), (1, 1), (1, 2)),
    hazard_density: float | None = None,
    seed: int = 0,
    horizon: int = 9,
    slip: float = 0.1,
    budget: float = 0.5,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
    support: str = "unknown",
) -> CMDP:
    """A robot crosses a slippery grid to a goal that pays every step, past hazards.

    It starts in the top left corner, and the goal is the top right corner. A move slips to one of
    the two sides with probability `slip`; walls stop it. The expected number of steps on hazards
    must stay below `budget`. The short way leads through the hazards, the safe way around them. The
    optimum mixes the two, so that no deterministic policy is optimal.

    Default: sizes (1, 3, 6, 10, 13, 15, 16, 16, 16, 1), A = 4, m = 1; OPT = 1.8704,
    without constraints 5.2523, rho = 0.5000.

    Args:
      rows: of the grid.
      columns: of the grid.
      hazards: cells as (row, column).
      hazard_density: instead of `hazards`, this share of the cells, drawn at random; never the
        start or the goal. For large grids, with `support="known"`: 30 x 30 cells take seconds.
      seed: of the hazards drawn.
      horizon: steps of an episode.
      slip: probability of slipping, half to either side.
      budget: expected steps on hazards in an episode, at most.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: the kind of process.
      support: "unknown", or "known": the learner is told which states can follow each pair.
    """
    shape = (whole_number("rows", rows, 1), whole_number("columns", columns, 1))
    N = rows * columns
    lists = {"known": 3}.get(support)  # ahead and to both sides
    check_size(whole_number("horizon", horizon, 1), N, len(_MOVES), successors=lists)
    goal = columns - 1
    rng = np.random.default_rng(whole_number("seed", seed, 0))
    if hazard_density is None:
        dangerous = _cells_of(hazards, shape)
    else:
        dangerous = _drawn_cells(hazard_density, rng, N, {0, goal})
    astray = fraction("slip", slip)

    cells = np.stack(np.unravel_index(np.arange(N), shape), axis=1)  # [N, 2]
    reached = np.clip(cells[:, None] + _MOVES, 0, np.array(shape) - 1)  # [N, 4, 2]
    landing = np.ravel_multi_index((reached[..., 0], reached[..., 1]), shape)  # [N, 4]
    sides = np.roll(landing, 1, axis=1), np.roll(landing, -1, axis=1)
    chances = np.array([1 - astray, astray / 2, astray / 2])
    mdp = unroll(
        np.broadcast_to(chances, (N, 4, 3)),
        start=0,
        horizon=horizon,
        support=support,
        successors=np.stack([landing, *sides], axis=-1),
    )

    of_cell = np.arange(N)[:, None]
    reward = mdp.from_flat(np.repeat(of_cell == goal, 4, axis=1).astype(float))
    cost = mdp.from_flat(np.repeat(np.isin(of_cell, dangerous), 4, axis=1).astype(float))
    G = at_most(mdp, cost, budget)[None]
    return CMDP(mdp, around(reward, rewards), around(G, constraints))


def _cells_of(hazards: Sequence[tuple[int, int]], shape: tuple[int, int]) -> NDArray:
    """The numbers of cells that are named."""
    for cell in hazards:
        if np.shape(cell) != (2,):
            raise ValueError(f"a hazard is a cell (row, column); got {cell!r}.")
        if not (0 <= cell[0] < shape[0] and 0 <= cell[1] < shape[1]):
            raise ValueError(f"hazard {tuple(cell)} lies outside the {shape[0]} x {shape[1]} grid.")
    return np.array([row * shape[1] + column for row, column in hazards], np.int64)


def _drawn_cells(density: float, rng: np.random.Generator, N: int, spared: set[int]) -> NDArray:
    """The numbers of cells that are drawn."""
    others = np.array(sorted(set(range(N)) - spared), np.int64)
    number = min(round(fraction("hazard_density", density) * N), len(others))
    return rng.choice(others, number, replace=False)
