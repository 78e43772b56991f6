"""Bidding for advertisements with a budget."""

import numpy as np

from pdgd_jax._internal.checks import whole_number
from pdgd_jax.instances._build import at_most
from pdgd_jax.models import CMDP, unroll
from pdgd_jax.processes import around

__all__ = ["bidding"]


def bidding(
    horizon: int = 5,
    budget: float = 0.8,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
    support: str = "unknown",
) -> CMDP:
    """Bids in a sequence of first-price auctions, with a budget to keep on average.

    The state is how heated the market is (4 levels), the action a bid (0, 1/4, ..., 1). A bid wins
    more often in a calm market. A win earns the item's value, which is 1, costs the bid, and heats
    the market; a loss cools it. Early wins therefore make later auctions more expensive, and pacing
    pays even before the budget binds.

    Default: sizes (1, 3, 4, 4, 4, 1), A = 5, m = 1; OPT = 2.2081,
    without constraints 4.7592, rho = 0.8000.

    Args:
      horizon: auctions of an episode.
      budget: to be spent on average in an episode.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: the kind of process.
      support: "unknown", or "known": the learner is told which states can follow each pair.
    """
    heat = np.arange(4)
    bids = np.arange(5) / 4
    # A bid of 0 never wins; the price to beat grows with the heat.
    win = 1 / (1 + np.exp(-8 * (bids[None, :] - 0.25 - 0.15 * heat[:, None])))
    win = np.where(bids > 0, win, 0.0)  # [4, 5]
    hotter = np.eye(4)[np.minimum(heat + 1, 3)][:, None, :]
    cooler = np.eye(4)[np.maximum(heat - 1, 0)][:, None, :]
    moves = win[..., None] * hotter + (1 - win[..., None]) * cooler
    P = 0.8 * moves + 0.2 * np.eye(4)[:, None, :]
    mdp = unroll(P, start=1, horizon=whole_number("horizon", horizon, 1), support=support)
    G = at_most(mdp, mdp.from_flat(win * bids), budget)[None]
    return CMDP(mdp, around(mdp.from_flat(win), rewards), around(G, constraints))
