"""A shop whose orders arrive some days later."""

import numpy as np

from pdgd_jax._internal.checks import whole_number
from pdgd_jax.instances._build import at_most, check_size
from pdgd_jax.instances._inventory import CHANCE
from pdgd_jax.models import CMDP, unroll
from pdgd_jax.processes import around

__all__ = ["inventory_lead_time"]


def inventory_lead_time(
    capacity: int = 2,
    lead_time: int = 2,
    most_ordered: int = 2,
    horizon: int = 6,
    holding_budget: float = 0.8,
    delivery_budget: float = 2.5,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
    support: str = "unknown",
) -> CMDP:
    """A shop orders stock that arrives days later: sell much, store little, order seldom.

    The state is the stock (0 to `capacity`) and the orders under way, one for each day of
    `lead_time`. The action is an order of 0 to `most_ordered` units. Each day the oldest order
    arrives (units that do not fit are lost), then demand of 0 to 3 units is met as far as
    possible. Of the states there are (capacity + 1) (most_ordered + 1)^lead_time, and of each pair
    at most four can follow. The reward is the number of units sold, as a share of the largest
    demand. The shop starts half full and with nothing under way, so that the first orders are
    placed long before they are needed.

    Default: sizes (1, 6, 18, 27, 27, 27, 1), A = 3, m = 2; OPT = 1.3310,
    without constraints 1.9200, rho = 0.6750.

    Args:
      capacity: units that fit on the shelf.
      lead_time: days from an order to its arrival, from 1 to 20; `inventory` has none.
      most_ordered: units of an order, at most; up to 1,000.
      horizon: days of an episode.
      holding_budget: expected sum over days of (stock left) / capacity.
      delivery_budget: expected number of days on which something is ordered.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: the kind of process.
      support: "unknown", or "known": the learner is told which states can follow each pair.
    """
    shelf, days = whole_number("capacity", capacity, 1), whole_number("lead_time", lead_time, 1, 20)
    A = whole_number("most_ordered", most_ordered, 1, 1000) + 1
    N = (shelf + 1) * A**days
    lists = {"known": len(CHANCE)}.get(support)
    check_size(whole_number("horizon", horizon, 1), N, A, 2, lists)

    # A state is the stock, then the orders as digits, the oldest first.
    stock, under_way = np.divmod(np.arange(N), A**days)
    oldest, younger = np.divmod(under_way, A ** (days - 1))
    orders, demand = np.arange(A), np.arange(len(CHANCE))
    available = np.minimum(stock + oldest, shelf)[:, None]  # [N, 1]
    sold = np.minimum(available, demand)  # [N, demand]
    left = available - sold
    pipeline = younger[:, None] * A + orders  # [N, A]
    following = left[:, None] * A**days + pipeline[..., None]  # [N, A, demand]
    mdp = unroll(
        np.broadcast_to(CHANCE, following.shape),
        start=(shelf // 2) * A**days,
        horizon=horizon,
        support=support,
        successors=following,
    )
    held = np.repeat((left / shelf @ CHANCE)[:, None], A, axis=1)
    ordered = np.broadcast_to((orders > 0).astype(float), (N, A))
    G = np.stack(
        [
            at_most(mdp, mdp.from_flat(held), holding_budget, "holding_budget"),
            at_most(mdp, mdp.from_flat(ordered), delivery_budget, "delivery_budget"),
        ]
    )
    reward = np.repeat((sold / demand.max() @ CHANCE)[:, None], A, axis=1)
    return CMDP(mdp, around(mdp.from_flat(reward), rewards), around(G, constraints))
