"""A network of queues that admits and routes its customers."""

import math
from collections.abc import Sequence

import numpy as np

from pdgd_jax._internal.checks import fraction, whole_number
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.instances._build import at_most, check_size
from pdgd_jax.models import CMDP, unroll
from pdgd_jax.processes import around

__all__ = ["queueing"]


def queueing(
    buffers: Sequence[int] = (3, 2),
    arrival: float = 0.4,
    service: Sequence[float] = (0.3, 0.2),
    onward: float = 0.2,
    horizon: int = 8,
    holding_budget: float = 1.2,
    rejection_budget: float = 0.6,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
    support: str = "unknown",
) -> CMDP:
    """A network of queues: serve many customers, keep few waiting, and turn few away.

    The state is the number of customers at each station; the stations are empty at first. In each
    step one thing happens at most (the uniformised chain): a customer arrives, or a station that
    is not empty serves one. The action says what becomes of an arrival: 0 turns it away, i sends
    it to station i. A customer who finds the station full is turned away, too. One who has been
    served goes on to the next station (from the last to the first) with probability `onward`, and
    waits where it is if that is full; otherwise it leaves the network, which is the reward. The
    two constraints conflict: whoever is not turned away waits.

    Default: sizes (1, 3, 6, 9, 11, 12, 12, 12, 1), A = 3, m = 2; OPT = 1.2301,
    without constraints 1.3481, rho = 0.0733.

    Args:
      buffers: customers that each station has room for.
      arrival: probability of an arrival in a step.
      service: probability that a station serves a customer in a step, for each station.
      onward: probability that a customer who has been served goes on to the next station.
      horizon: steps of an episode.
      holding_budget: expected sum over steps of the share of places that are taken.
      rejection_budget: expected number of customers turned away in an episode.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: the kind of process.
      support: "unknown", or "known": the learner is told which states can follow each pair.
    """
    n = len(buffers)
    if n == 0 or len(service) != n:
        raise ValueError(
            f"buffers and service name the same stations, at least one; got {n} and {len(service)}."
        )
    room = np.array([whole_number("each of buffers", places, 1) for places in buffers])
    chances = [fraction("arrival", arrival), *(fraction("each of service", s) for s in service)]
    idle = 1 - math.fsum(chances)
    if idle < -1e-9:
        raise ValueError(
            "one thing happens in a step: arrival and service must sum to 1 at most; "
            f"got {math.fsum(chances):.6g}."
        )
    goes_on = fraction("onward", onward)
    shape, A = tuple(int(places) + 1 for places in room), n + 1
    N, events = math.prod(shape), _num_events(n)
    lists = {"known": events}.get(support)
    check_size(whole_number("horizon", horizon, 1), N, A, 2, lists)

    queues = np.stack(np.unravel_index(np.arange(N), shape), axis=-1)  # [N, n]
    taken = np.concatenate([np.zeros((N, 1), bool), queues < room], axis=1)  # [N, A]: let in
    after = queues[:, None, None] + _changes(queues, room, taken)
    chance = [max(idle, 0.0), chances[0]]
    for rate in chances[1:]:
        chance += [rate * (1 - goes_on), rate * goes_on]
    mdp = unroll(
        np.broadcast_to(np.array(chance) / math.fsum(chance), (N, A, events)),
        start=0,
        horizon=horizon,
        support=support,
        successors=np.ravel_multi_index(tuple(np.moveaxis(after, -1, 0)), shape),
    )
    served = (queues > 0) @ np.array(chances[1:]) * (1 - goes_on)
    held = queues.sum(-1) / room.sum()
    waiting = mdp.from_flat(np.repeat(held[:, None], A, axis=1))
    rejected = mdp.from_flat(chances[0] * ~taken)
    G = np.stack(
        [
            at_most(mdp, waiting, holding_budget, "holding_budget"),
            at_most(mdp, rejected, rejection_budget, "rejection_budget"),
        ]
    )
    reward = mdp.from_flat(np.repeat(served[:, None], A, axis=1))
    return CMDP(mdp, around(reward, rewards), around(G, constraints))


def _num_events(stations: int) -> int:
    """Nothing, an arrival, and of each station a departure or a move."""
    return 2 + 2 * stations


def _changes(queues: NDArray, room: NDArray, taken: NDArray) -> NDArray:
    """What each event adds to the queues, `[N, A, events, n]`.

    Args:
      queues: `[N, n]`, the customers at each station in each state.
      room: `[n]`, the places of each station.
      taken: `[N, A]`, whether an arrival is let in.
    """
    (N, n), A = queues.shape, taken.shape[1]
    change = np.zeros((N, A, _num_events(n), n), int)
    change[:, :, 1] = np.where(taken[..., None], np.eye(A, n, -1, dtype=int), 0)
    for station in range(n):
        busy, following = queues[:, station] > 0, (station + 1) % n
        change[:, :, 2 + 2 * station, station] -= busy[:, None]
        moves = busy & (queues[:, following] < room[following])
        change[:, :, 3 + 2 * station, station] -= moves[:, None]
        change[:, :, 3 + 2 * station, following] += moves[:, None]
    return change
