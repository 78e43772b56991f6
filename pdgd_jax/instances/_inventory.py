"""A shop that must not run out too often."""

import numpy as np

from pdgd_jax._internal.checks import whole_number
from pdgd_jax.instances._build import at_most, check_size
from pdgd_jax.models import CMDP, unroll
from pdgd_jax.processes import around

__all__ = ["CHANCE", "inventory"]

CHANCE = np.array([0.2, 0.4, 0.3, 0.1])  # of a demand of 0, 1, 2 and 3 units


def inventory(
    capacity: int = 4,
    horizon: int = 5,
    holding_budget: float = 0.8,
    delivery_budget: float = 1.5,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
    support: str = "unknown",
) -> CMDP:
    """A shop orders stock each day: sell much, store little, and have few deliveries.

    The state is the stock (0 to `capacity`). The action is an order of 0 to 3 units, which arrives
    at once (units that do not fit are lost). Demand is 0 to 3. The reward is the number of units
    sold, as a share of the largest demand. The two constraints conflict: few deliveries mean large
    ones, which fill the shelf.

    Default: sizes (1, 5, 5, 5, 5, 1), A = 4, m = 2; OPT = 1.6715,
    without constraints 2.1667, rho = 0.5190.

    Args:
      capacity: units that fit on the shelf.
      horizon: days of an episode.
      holding_budget: expected sum over days of (stock left) / capacity.
      delivery_budget: expected number of days with a delivery.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: the kind of process.
      support: "unknown", or "known": the learner is told which states can follow each pair.
    """
    N = whole_number("capacity", capacity, 1) + 1
    check_size(horizon, N, 4, 2, {"known": len(CHANCE)}.get(support))
    stock, orders, demand = np.arange(N), np.arange(4), np.arange(len(CHANCE))
    available = np.minimum(stock[:, None] + orders, capacity)[..., None]  # [N, A, 1]
    sold = np.minimum(available, demand)  # [N, A, demand]
    left = available - sold
    mdp = unroll(
        np.broadcast_to(CHANCE, left.shape),
        start=capacity // 2,
        horizon=whole_number("horizon", horizon, 1),
        support=support,
        successors=left,
    )
    held = (left / capacity) @ CHANCE
    delivered = np.broadcast_to((orders > 0).astype(float), held.shape)
    G = np.stack(
        [
            at_most(mdp, mdp.from_flat(held), holding_budget, "holding_budget"),
            at_most(mdp, mdp.from_flat(delivered), delivery_budget, "delivery_budget"),
        ]
    )
    reward = mdp.from_flat((sold / demand.max()) @ CHANCE)
    return CMDP(mdp, around(reward, rewards), around(G, constraints))
