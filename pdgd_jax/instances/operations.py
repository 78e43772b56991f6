"""Constrained problems of operations research and the web, each a few states wide."""

import numpy as np

from pdgd_jax.cmdp import CMDP
from pdgd_jax.instances._build import at_most, check_size, whole_number
from pdgd_jax.processes import around
from pdgd_jax.unroll import unroll

__all__ = ["bidding", "inventory", "recommender", "riverswim", "streaming"]


def bidding(
    horizon: int = 5,
    budget: float = 0.8,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
) -> CMDP:
    """Bids in a sequence of first-price auctions, with a budget to be kept on average.

    The state is how heated the market is (4 levels), the action a bid (0, 1/4, ..., 1). A bid wins
    more often in a calm market; a win earns the item's value, 1 in every market, costs the bid,
    and heats the market, while a loss cools it. Winning early therefore makes the later auctions
    dearer: pacing pays even before the budget binds.

    Default: sizes (1, 3, 4, 4, 4, 1), A = 5, m = 1; OPT = 2.2081,
    without constraints 4.7592, rho = 0.8000.

    Args:
      horizon: auctions of an episode.
      budget: to be spent on average in an episode.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: likewise.
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
    mdp = unroll(P, start=1, horizon=whole_number("horizon", horizon, 1))
    G = at_most(mdp, mdp.from_flat(win * bids), budget)[None]
    return CMDP(mdp, around(mdp.from_flat(win), rewards), around(G, constraints))


def inventory(
    capacity: int = 4,
    horizon: int = 5,
    holding_budget: float = 0.8,
    delivery_budget: float = 1.5,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
) -> CMDP:
    """A shop orders stock each day: sell much, store little, and have few deliveries.

    The state is the stock (0 to `capacity`), the action an order of 0 to 3 units that arrives at
    once (what does not fit is lost), and demand is 0 to 3. Reward is the share of the largest
    demand that is sold. Two constraints pull against each other: few deliveries mean large ones,
    which fill the shelf.

    Default: sizes (1, 5, 5, 5, 5, 1), A = 4, m = 2; OPT = 1.6715,
    without constraints 2.1667, rho = 0.5190.

    Args:
      capacity: of the shelf.
      horizon: days of an episode.
      holding_budget: expected sum over days of (stock left) / capacity.
      delivery_budget: expected number of days with a delivery.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: likewise.
    """
    check_size(horizon, whole_number("capacity", capacity, 1) + 1, 4, 2)
    stock = np.arange(capacity + 1)
    orders = np.arange(4)
    demand, chance = np.arange(4), np.array([0.2, 0.4, 0.3, 0.1])
    available = np.minimum(stock[:, None] + orders, capacity)[..., None]  # [N, A, 1]
    sold = np.minimum(available, demand)  # [N, A, demand]
    left = available - sold
    P = (np.eye(capacity + 1)[left] * chance[:, None]).sum(2)
    mdp = unroll(P, start=capacity // 2, horizon=whole_number("horizon", horizon, 1))
    held = (left / capacity) @ chance
    delivered = np.broadcast_to((orders > 0).astype(float), held.shape)
    G = np.stack(
        [
            at_most(mdp, mdp.from_flat(held), holding_budget, "holding_budget"),
            at_most(mdp, mdp.from_flat(delivered), delivery_budget, "delivery_budget"),
        ]
    )
    reward = mdp.from_flat((sold / demand.max()) @ chance)
    return CMDP(mdp, around(reward, rewards), around(G, constraints))


def recommender(
    horizon: int = 5,
    offence_budget: float = 0.3,
    education_target: float = 1.0,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
) -> CMDP:
    """A recommender keeps a user engaged without showing offensive items, and teaches a little.

    The state is the user's engagement (4 levels), the action the kind of item: educational, light,
    provocative or outright offensive. The spicier the item the more clicks and the more engagement
    now; offence is counted by expected reports, the second constraint asks for a number of
    educational items. The constraints are of opposite sign, one a ceiling and one a floor.

    Default: sizes (1, 3, 4, 4, 4, 1), A = 4, m = 2; OPT = 1.3251,
    without constraints 2.4119, rho = 0.3000.

    Args:
      horizon: items of an episode.
      offence_budget: expected number of reports, at most.
      education_target: expected number of educational items, at least.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: likewise.
    """
    engagement = np.arange(4)
    up = np.array([0.15, 0.35, 0.55, 0.7])  # chance that an item raises the engagement
    down = np.array([0.35, 0.2, 0.2, 0.25])
    P = (
        up[:, None] * np.eye(4)[np.minimum(engagement + 1, 3)][:, None, :]
        + down[:, None] * np.eye(4)[np.maximum(engagement - 1, 0)][:, None, :]
        + (1 - up - down)[:, None] * np.eye(4)[:, None, :]
    )
    mdp = unroll(P, start=1, horizon=whole_number("horizon", horizon, 1))
    appeal = np.array([0.2, 0.4, 0.6, 0.7])
    clicks = (engagement[:, None] + 1) / 4 * appeal
    reports = np.broadcast_to(np.array([0.0, 0.02, 0.2, 0.8]), (4, 4))
    teaches = np.broadcast_to(np.array([1.0, 0.0, 0.0, 0.0]), (4, 4))
    if not 0 <= education_target <= horizon:
        raise ValueError(f"education_target lies in [0, {horizon}]; got {education_target}.")
    G = np.stack(
        [
            at_most(mdp, mdp.from_flat(reports), offence_budget, "offence_budget"),
            # "at least" is "at most" of the items that do not teach.
            at_most(mdp, mdp.from_flat(1 - teaches), horizon - education_target),
        ]
    )
    return CMDP(mdp, around(mdp.from_flat(clicks), rewards), around(G, constraints))


def riverswim(
    num_states: int = 4,
    horizon: int = 8,
    effort_budget: float = 4.0,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
) -> CMDP:
    """RiverSwim with limited strength: swimming against the current costs effort.

    The classical chain: the left bank pays 0.05, the right bank 1, drifting left is certain and
    swimming right succeeds with probability 0.35 (0.6 from the left bank). Every stroke costs 1 and
    the expected number of strokes is to stay below `effort_budget`. Exploration is expensive in
    the constraint itself: finding out that the right bank pays takes strokes.

    Default: sizes (1, 2, 3, 4, 4, 4, 4, 4, 1), A = 2, m = 1; OPT = 1.1781,
    without constraints 1.5285, rho = 4.0000.

    Args:
      num_states: length of the river.
      horizon: steps of an episode.
      effort_budget: expected strokes of an episode.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: likewise.
    """
    N = whole_number("num_states", num_states, 2)
    check_size(horizon, N, 2)
    place = np.arange(N)
    left = np.eye(N)[np.maximum(place - 1, 0)]
    right = 0.35 * np.eye(N)[np.minimum(place + 1, N - 1)] + 0.6 * np.eye(N) + 0.05 * left
    right[0] = 0.4 * np.eye(N)[0] + 0.6 * np.eye(N)[1]
    mdp = unroll(np.stack([left, right], axis=1), 0, whole_number("horizon", horizon, 1))
    pay = np.zeros((N, 2))
    pay[0, 0], pay[-1, 1] = 0.05, 1.0
    stroke = np.broadcast_to(np.array([0.0, 1.0]), (N, 2))
    G = at_most(mdp, mdp.from_flat(stroke), effort_budget, "effort_budget")[None]
    return CMDP(mdp, around(mdp.from_flat(pay), rewards), around(G, constraints))


def streaming(
    capacity: int = 4,
    horizon: int = 7,
    fast_budget: float = 2.0,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
) -> CMDP:
    """A media player keeps its buffer from running dry with few requests to an expensive server.

    The state is the buffer (0 to `capacity` packets), empty at first; each step a request to the
    slow server brings a packet with probability 0.4, to the fast one with 0.9, and a packet is
    played with probability 0.6 if there is one. Reward is 1 while the buffer is not empty. The
    optimal policy is a threshold on the buffer, randomised at the threshold by the constraint.

    Default: sizes (1, 2, 3, 4, 5, 5, 5, 1), A = 2, m = 1; OPT = 4.6222,
    without constraints 5.7246, rho = 2.0000.

    Args:
      capacity: of the buffer.
      horizon: steps of an episode.
      fast_budget: expected requests to the fast server in an episode.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: likewise.
    """
    check_size(horizon, whole_number("capacity", capacity, 1) + 1, 2)
    buffer = np.arange(capacity + 1)
    arrives = np.array([0.4, 0.9])[None, :, None]
    plays = np.where(buffer > 0, 0.6, 0.0)[:, None, None]
    levels = np.eye(capacity + 1)
    more = levels[np.minimum(buffer + 1, capacity)][:, None, :]
    less = levels[np.maximum(buffer - 1, 0)][:, None, :]
    same = levels[:, None, :]
    P = (
        arrives * (1 - plays) * more
        + (arrives * plays + (1 - arrives) * (1 - plays)) * same
        + (1 - arrives) * plays * less
    )
    mdp = unroll(P, start=0, horizon=whole_number("horizon", horizon, 1))
    smooth = np.repeat((buffer > 0).astype(float)[:, None], 2, axis=1)
    fast = np.broadcast_to(np.array([0.0, 1.0]), (capacity + 1, 2))
    G = at_most(mdp, mdp.from_flat(fast), fast_budget, "fast_budget")[None]
    return CMDP(mdp, around(mdp.from_flat(smooth), rewards), around(G, constraints))
