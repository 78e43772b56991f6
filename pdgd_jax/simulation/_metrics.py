r"""Measurements during a run, in memory that does not depend on its length.

Here $q_t = q^{P, \pi_t}$ is the true occupancy of the policy that was played, computed exactly, and
$\hat q_t$ is the learner's estimate. Every measurement is cumulative or the worst so far.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pdgd_jax._internal.sums import Compensated
from pdgd_jax.learners import Info
from pdgd_jax.models import CMDP, Layers, Outcome, Trajectory, occupancy_of, value_of, visited
from pdgd_jax.processes import StochasticProcess
from pdgd_jax.projection import ConfidenceSet, contains
from pdgd_jax.simulation._reference import Comparators, Reference, dot
from pdgd_jax.simulation._worst import Worst

__all__ = ["Metrics", "init", "sums_of", "update"]


class Metrics(NamedTuple):
    r"""All measurements.

    Attributes:
      sums: `[n]`, the cumulative numbers; `sums_of` returns them by name.
      multipliers: `[m]`, $\lambda_{t+1}$.
      largest_multiplier: $\max_\tau \|\lambda_\tau\|_1$.
      highest_multiplier: $\max_{\tau, i} \lambda_{\tau, i}$.
      largest_increment: $\max_\tau \|\lambda_{\tau+1}\|_1 - \|\lambda_\tau\|_1$.
      largest_loss: $\max_\tau \|\ell_\tau\|_\infty$.
      epoch: the learner's epoch.
      radius: the mean radius of the confidence set over all pairs; one of 2 or more counts as 2.
      covered: whether the true P was in every confidence set.
      residual: the largest residual of a projection.
      infeasibility: the largest distance of $\hat q_t$ from its set $\Delta(\mathcal P_i)$.
      most_iterations: the most iterations of one projection.
      unconverged: how many projections did not converge.
      primal: worst interval regret $\sum \ell_t^\top (q_t - q)$ for each comparator.
      descent: worst interval regret $\sum \ell_t^\top (\hat q_t - q)$ for each comparator.
      dual: worst interval regret $\sum (\lambda - \lambda_t)^\top G_t^\top \hat q_t$ for each one.
      primal_excess: the most by which `primal` exceeds the bound of an interval; minus infinity for
        a learner without bounds.
      descent_excess: the same for `descent`.
      dual_excess: the same for `dual`.
      deviation: $\max_\tau |\sum_{s \le \tau} \lambda_s^\top (G_s - \bar G)^\top q| / (\sqrt \tau
        \max_{s \le \tau} \|\lambda_s\|_1)$ for each comparator; 0 if constraints are adversarial.
      margin: $\min_{\tau, i} -[G_\tau^\top q]_i$ for each comparator.
      reward_sum: `[L, S, A]`, $\sum_\tau r_\tau$; None if rewards are stochastic.
      constraint_sum: `[m, L, S, A]`, $\sum_\tau G_\tau$; None if constraints are stochastic.
      constraint_max: `[m, L, S, A]`, $\max_\tau G_\tau$, entry by entry; None if constraints are
        stochastic.
    """

    sums: Compensated
    multipliers: Float[Array, " m"]
    largest_multiplier: Float[Array, ""]
    highest_multiplier: Float[Array, ""]
    largest_increment: Float[Array, ""]
    largest_loss: Float[Array, ""]
    epoch: Int[Array, ""]
    radius: Float[Array, ""]
    covered: Bool[Array, ""]
    residual: Float[Array, ""]
    infeasibility: Float[Array, ""]
    most_iterations: Int[Array, ""]
    unconverged: Int[Array, ""]
    primal: Worst
    descent: Worst
    dual: Worst
    primal_excess: Worst
    descent_excess: Worst
    dual_excess: Worst
    deviation: Float[Array, " n"]
    margin: Float[Array, " n"]
    reward_sum: Compensated | None
    constraint_sum: Compensated | None
    constraint_max: Float[Array, "m layers states actions"] | None


# The cumulative numbers in the order of the vector that carries them, and the size of each: one,
# one per constraint, or one per comparator. They are one vector, so that one compensated addition
# adds all of them, and the scan carries two arrays instead of twenty.
_SUMS = {
    "reward": "one",
    "sampled_reward": "one",
    "model_error": "one",
    "iterations": "one",
    "dual_utility": "one",
    "strong_regret": "one",
    "feasible": "one",
    "squared_loss": "one",
    "estimation_loss": "one",
    "violation": "constraint",
    "positive_violation": "constraint",
    "believed_violation": "constraint",
    "next_violation": "constraint",
    "reward_deviation": "comparator",
    "constraint_deviation": "comparator",
    "descent_regret": "comparator",
}


def sums_of(metrics: Metrics) -> dict[str, Compensated]:
    r"""The cumulative numbers by name; leading axes are kept.

    One number each: "reward" $\sum r_t^\top q_t$, "sampled_reward" of the trajectories,
    "model_error" $\sum \|q_t - \hat q_t\|_1$, "iterations" of the projections, "dual_utility"
    $\sum \lambda_t^\top G_t^\top q_t$. "strong_regret" $\sum [\mathrm{OPT} - r^\top q_t]_+$ with
    $r = \bar r$ for stochastic rewards and $r = r_t$ for adversarial ones, NaN without an OPT.
    "feasible" counts the episodes in which $[G^\top q_t]_i \le 10^{-6} L$ for all $i$, with $G$ as
    in "positive_violation". "squared_loss" $\sum \|\ell_t\|_\infty^2$, and "estimation_loss"
    $\sum \ell_t^\top (q_t - \hat q_t)$.

    For each constraint: "violation" $\sum G_t^\top q_t$, "positive_violation"
    $\sum [G^\top q_t]_+$ with $G = \bar G$ for stochastic constraints and $G = G_t$ for adversarial
    ones, "believed_violation" $\sum G_t^\top \hat q_t$, and "next_violation"
    $\sum G_t^\top \hat q_{t+1}$ of a learner whose dual player looks ahead, else NaN.

    For each comparator: "reward_deviation" $\sum (r_t - \bar r)^\top q$ and "constraint_deviation"
    $\sum \lambda_t^\top (G_t - \bar G)^\top q$, both 0 for adversarial processes, and
    "descent_regret" $\sum \ell_t^\top (\hat q_t - q)$.
    """
    sizes = {"constraint": metrics.multipliers.shape[-1], "comparator": metrics.margin.shape[-1]}
    found, begin = {}, 0
    for name, per in _SUMS.items():
        size = sizes.get(per, 1)
        where: Any = begin if per == "one" else slice(begin, begin + size)
        found[name] = Compensated(*(part[..., where] for part in metrics.sums))
        begin += size
    return found


def init(cmdp: CMDP, comparators: Comparators) -> Metrics:
    """The measurements before the first episode."""
    m, shape, dtype = cmdp.num_constraints, cmdp.layers.shape, cmdp.mdp.transition.dtype
    none, count = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
    n, d = len(comparators.occupancies), len(comparators.multipliers)
    sizes = {"constraint": m, "comparator": n}
    fixed = isinstance(cmdp.constraints, StochasticProcess)
    return Metrics(
        sums=Compensated.zeros(sum(sizes.get(per, 1) for per in _SUMS.values()), dtype),
        multipliers=jnp.zeros(m, dtype),
        largest_multiplier=none,
        highest_multiplier=none,
        largest_increment=none,
        largest_loss=none,
        epoch=count,
        radius=none,
        covered=jnp.ones((), bool),
        residual=none,
        infeasibility=none,
        most_iterations=count,
        unconverged=count,
        primal=Worst.none(n, dtype),
        descent=Worst.none(n, dtype),
        dual=Worst.none(d, dtype),
        primal_excess=Worst.none(n, dtype),
        descent_excess=Worst.none(n, dtype),
        dual_excess=Worst.none(d, dtype),
        deviation=jnp.zeros(n, dtype),
        margin=jnp.full(n, jnp.inf, dtype),
        reward_sum=(
            None if isinstance(cmdp.rewards, StochasticProcess) else Compensated.zeros(shape, dtype)
        ),
        constraint_sum=None if fixed else Compensated.zeros((m, *shape), dtype),
        constraint_max=None if fixed else jnp.full((m, *shape), -jnp.inf, dtype),
    )


def update(
    metrics: Metrics,
    cmdp: CMDP,
    against: Reference,
    episode: Int[Array, ""],
    policy: Float[Array, "layers states actions"],
    trajectory: Trajectory,
    outcome: Outcome,
    info: Info,
) -> Metrics:
    """The measurements after one more episode, number `episode` (0, 1, ...)."""
    dtype = metrics.multipliers.dtype
    policy = policy.astype(dtype)
    occupancy = occupancy_of(cmdp.mdp, policy)
    believed = occupancy if info.occupancy is None else info.occupancy.astype(dtype)
    true_pairs, believed_pairs = (cmdp.layers.to_pairs(x) for x in (occupancy, believed))
    cost = value_of(outcome.constraints, true_pairs)
    believed_cost = value_of(outcome.constraints, believed_pairs)
    reward = value_of(outcome.reward, true_pairs)
    earned = reward if against.reward is None else value_of(against.reward, true_pairs)
    harm = cost if against.constraints is None else value_of(against.constraints, true_pairs)
    multipliers = jnp.zeros_like(metrics.multipliers)
    if info.multipliers is not None:
        multipliers = info.multipliers.astype(dtype)
    iterations = jnp.zeros((), dtype)
    if info.projection is not None:
        iterations = info.projection.iterations.astype(dtype)
    deviations, margin = _of_comparators(against, outcome, multipliers)
    losses = _losses(against, outcome, info, true_pairs, believed_pairs)
    terms = {
        "reward": reward,
        "sampled_reward": _sampled_reward(cmdp.layers, trajectory, outcome.reward),
        "model_error": jnp.abs(occupancy - believed).sum(),
        "iterations": iterations,
        "dual_utility": (multipliers * cost).sum(),
        "strong_regret": jnp.maximum(against.opt - earned, 0),
        "feasible": (harm.max() <= against.tolerance).astype(dtype),
        "squared_loss": losses.size**2,
        "estimation_loss": losses.played - losses.believed,
        "violation": cost,
        "positive_violation": jnp.maximum(harm, 0),
        "believed_violation": believed_cost,
        "next_violation": _next_cost(cmdp, outcome, info, cost),
        **deviations,
        "descent_regret": losses.believed - losses.theirs,
    }
    sums = metrics.sums.add(jnp.concatenate([jnp.atleast_1d(terms[name]) for name in _SUMS]))
    changes: dict[str, Any] = {"sums": sums, "margin": jnp.minimum(metrics.margin, margin)}
    changes |= _of_multipliers(metrics, info, multipliers)
    changes |= _of_deviations(metrics, sums, multipliers, episode)
    changes |= _of_duals(metrics, against, multipliers, believed_cost)
    changes |= _of_losses(metrics, against, losses)
    changes |= _of_learner(metrics, cmdp, info, believed)
    if metrics.reward_sum is not None:
        changes["reward_sum"] = metrics.reward_sum.add(outcome.reward)
    if metrics.constraint_sum is not None and metrics.constraint_max is not None:
        changes["constraint_sum"] = metrics.constraint_sum.add(outcome.constraints)
        changes["constraint_max"] = jnp.maximum(metrics.constraint_max, outcome.constraints)
    new = metrics._replace(**changes)
    return jax.tree.map(lambda x, old: x.astype(old.dtype), new, metrics)


def _next_cost(cmdp: CMDP, outcome: Outcome, info: Info, like: Array) -> Array:
    """What the next occupancy would have cost; NaN if the learner does not report it."""
    if info.next_occupancy is None:
        return jnp.full_like(like, jnp.nan)
    return value_of(
        outcome.constraints, cmdp.layers.to_pairs(info.next_occupancy).astype(like.dtype)
    )


def _of_comparators(
    against: Reference, outcome: Outcome, multipliers: Array
) -> tuple[dict[str, Array], Array]:
    """The deviations of the comparators' rewards and costs from their means, and their margins."""
    none = jnp.zeros(len(against.marginals), multipliers.dtype)
    if not len(against.marginals):
        return {"reward_deviation": none, "constraint_deviation": none}, none
    reward = constraint = none
    if against.mean_reward is not None:
        reward = dot(outcome.reward[None], against.marginals)[0] - against.mean_reward
    costs = dot(outcome.constraints, against.marginals).T  # [n, m]
    if against.mean_costs is not None:
        constraint = (multipliers[None] * (costs - against.mean_costs)).sum(-1)
    return {"reward_deviation": reward, "constraint_deviation": constraint}, -costs.max(-1)


def _of_multipliers(metrics: Metrics, info: Info, multipliers: Array) -> dict[str, Array]:
    if info.multipliers is None:
        return {}
    following = multipliers if info.next_multipliers is None else info.next_multipliers
    size = jnp.abs(following).sum()
    increment = size - jnp.abs(multipliers).sum()
    return {
        "multipliers": following,
        "largest_multiplier": jnp.maximum(metrics.largest_multiplier, size),
        "highest_multiplier": jnp.maximum(metrics.highest_multiplier, following.max()),
        "largest_increment": jnp.maximum(metrics.largest_increment, increment),
    }


def _of_deviations(
    metrics: Metrics, sums: Compensated, multipliers: Array, episode: Array
) -> dict[str, Array]:
    """Compare each prefix of the run with its bound (Lemma 4)."""
    deviation = jnp.abs(sums_of(metrics._replace(sums=sums))["constraint_deviation"].value)
    # The multipliers up to this episode, which are those after the previous one.
    largest = jnp.maximum(metrics.largest_multiplier, jnp.abs(multipliers).sum())
    scale = largest * jnp.sqrt((episode + 1).astype(multipliers.dtype))
    share = jnp.where(scale > 0, deviation / jnp.where(scale > 0, scale, 1), 0)
    return {"deviation": jnp.maximum(metrics.deviation, share)}


def _of_duals(
    metrics: Metrics, against: Reference, multipliers: Array, believed_cost: Array
) -> dict[str, Worst]:
    distance = against.multipliers - multipliers[None]
    gains = (distance * believed_cost[None]).sum(-1)
    changes = {"dual": metrics.dual.add(gains)}
    if against.pace is not None:
        first = -against.pace.dual_start * jnp.square(distance).sum(-1)
        changes["dual_excess"] = metrics.dual_excess.add(gains - against.pace.dual_step, first)
    return changes


class _Losses(NamedTuple):
    """What an episode lost, by its loss; without comparators nothing is compared."""

    size: Array  # its largest entry
    played: Array  # by the occupancy that was played
    believed: Array  # by the one that was believed
    theirs: Array  # [n], by the comparators


def _losses(
    against: Reference, outcome: Outcome, info: Info, played: Array, believed: Array
) -> _Losses:
    """Both occupancies are over the pairs."""
    loss = -outcome.reward if info.loss is None else info.loss.astype(played.dtype)
    theirs = jnp.zeros(len(against.marginals), played.dtype)
    if len(against.marginals):
        theirs = dot(loss[None], against.marginals)[0]
    return _Losses(jnp.abs(loss).max(), value_of(loss, played), value_of(loss, believed), theirs)


def _of_losses(metrics: Metrics, against: Reference, losses: _Losses) -> dict[str, Any]:
    """Of the losses against the comparators."""
    size = losses.size
    largest = jnp.maximum(metrics.largest_loss, size)
    changes: dict[str, Any] = {"largest_loss": largest}
    if not len(against.marginals):
        return changes
    primal, descent = losses.played - losses.theirs, losses.believed - losses.theirs
    changes["primal"] = metrics.primal.add(primal)
    changes["descent"] = metrics.descent.add(descent)
    if against.pace is not None:
        pace = against.pace
        step = pace.primal_step * jnp.where(
            largest > 0, size**2 / jnp.where(largest > 0, largest, 1), 0
        )
        toll = largest * pace.primal_end
        changes["descent_excess"] = metrics.descent_excess.add(descent - step, toll=toll)
        toll = largest * (pace.primal_end + pace.error)
        changes["primal_excess"] = metrics.primal_excess.add(primal - step, toll=toll)
    return changes


def _of_learner(metrics: Metrics, cmdp: CMDP, info: Info, believed: Array) -> dict[str, Array]:
    """What the learner reports about its confidence set and its projection."""
    changes: dict[str, Array] = {}
    if info.epoch is not None:
        changes["epoch"] = info.epoch
    if info.confidence is not None:
        dtype = believed.dtype
        inside = contains(info.confidence, cmdp.mdp.transition, cmdp.layers)
        changes["covered"] = metrics.covered & inside
        pairs = cmdp.layers.action_mask.sum().astype(dtype)
        changes["radius"] = jnp.minimum(info.confidence.radius, 2).sum() / pairs
        excess = _infeasibility(cmdp.layers, believed, info.confidence)
        changes["infeasibility"] = jnp.maximum(metrics.infeasibility, excess)
    if info.projection is not None:
        found = info.projection
        changes["residual"] = jnp.maximum(metrics.residual, found.residual.astype(believed.dtype))
        changes["most_iterations"] = jnp.maximum(metrics.most_iterations, found.iterations)
        changes["unconverged"] = metrics.unconverged + ~found.converged
    return changes


def _sampled_reward(layers: Layers, trajectory: Trajectory, reward: Array) -> Array:
    """The reward along the trajectory that was played."""
    return jnp.where(visited(layers, trajectory), reward, 0).sum()


def _infeasibility(layers: Layers, occupancy: Array, confidence: ConfidenceSet) -> Array:
    r"""The largest violation of any constraint of $\Delta(\mathcal P)$; no solver is involved."""
    mass = layers.to_pairs(occupancy)  # [L, S, A]
    leaving = mass.sum(-1)
    entering = jnp.concatenate(
        [jnp.eye(1, leaving.shape[1], dtype=mass.dtype), layers.into_next(occupancy)[:-1]]
    )
    flow = jnp.where(layers.decision_mask, jnp.abs(leaving - entering), 0).max()
    away = layers.to_pairs(jnp.abs(occupancy - confidence.center * layers.to_triples(mass)))
    # A radius above 2 allows everything, and the mass of a pair is at most 1.
    ball = (away - confidence.radius * mass).max()
    return jnp.maximum(jnp.maximum(flow, ball), -occupancy.min())
