r"""What is measured while a run goes on, in memory that does not depend on its length.

With $q_t = q^{P, \pi_t}$ the true occupancy of the policy that was played, computed exactly, and
$\hat q_t$ what the learner believed. Everything is cumulative over episodes, or the worst so far.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pdgd_jax._pytree import pytree
from pdgd_jax.cmdp import CMDP, Outcome
from pdgd_jax.confidence import ConfidenceSet, contains
from pdgd_jax.layers import Layers
from pdgd_jax.learners.base import Info
from pdgd_jax.occupancy import Trajectory, occupancy_of, value_of, visited
from pdgd_jax.processes import StochasticProcess

__all__ = ["Comparators", "Metrics", "Worst", "init", "split_sums", "update"]


@pytree
class Comparators:
    r"""What the players' interval regrets are measured against.

    Args:
      occupancies: `[n, L, S, A, S]`, for the primal player; for the paper's bounds to apply they
        are occupancies of the true MDP, such as $q^*$ and $q^\circ$.
      multipliers: `[d, m]`, for the dual player.
    """

    occupancies: Float[Array, "n layers states actions states"]
    multipliers: Float[Array, "d m"]

    @classmethod
    def default(cls, cmdp: CMDP) -> "Comparators":
        """No occupancy, since finding good ones is the oracle's work; 0 and each unit vector."""
        L, S, A = cmdp.layers.shape
        m, dtype = cmdp.num_constraints, cmdp.mdp.transition.dtype
        units = jnp.concatenate([jnp.zeros((1, m), dtype), jnp.eye(m, dtype=dtype)])
        return cls(jnp.zeros((0, L, S, A, S), dtype), units)


class Worst(NamedTuple):
    r"""The largest sum over any interval of episodes so far (Kadane).

    Attributes:
      ending: the largest over the intervals that end now.
      value: the largest over all intervals.
    """

    ending: Float[Array, " n"]
    value: Float[Array, " n"]

    def add(self, terms: Float[Array, " n"]) -> "Worst":
        """After one more episode."""
        ending = jnp.maximum(self.ending, 0) + terms
        return Worst(ending, jnp.maximum(self.value, ending))


class Metrics(NamedTuple):
    r"""Everything that is measured.

    Attributes:
      sums: `[n]`, the cumulative numbers, which `split_sums` names.
      lost: `[n]`, what rounding took from `sums` (compensated summation: float32 would otherwise
        lose a whole episode in 10^7).
      multipliers: `[m]`, $\lambda_{t+1}$.
      largest_multiplier: $\max_\tau \|\lambda_\tau\|_1$.
      highest_multiplier: $\max_{\tau, i} \lambda_{\tau, i}$.
      largest_loss: $\max_\tau \|\ell_\tau\|_\infty$.
      epoch: the learner's epoch.
      radius: of the confidence set, the mean over all pairs; one of 2 or more counts as 2.
      covered: whether the true P was in every confidence set.
      residual: the largest residual of a projection.
      infeasibility: how far $\hat q_t$ was from its set $\Delta(\mathcal P_i)$ at worst.
      iterations: of the projections, all together.
      most_iterations: of one projection.
      unconverged: how many projections did not converge.
      primal: worst interval regret $\sum \ell_t^\top (q_t - q)$ for each comparator.
      descent: worst interval regret $\sum \ell_t^\top (\hat q_t - q)$ for each comparator.
      dual: worst interval regret $\sum (\lambda - \lambda_t)^\top G_t^\top \hat q_t$ for each one.
      reward_sum: `[L, S, A]`, $\sum_\tau r_\tau$; None if rewards are stochastic.
      constraint_sum: `[m, L, S, A]`, $\sum_\tau G_\tau$; None if constraints are stochastic.
    """

    sums: Float[Array, " n"]
    lost: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    largest_multiplier: Float[Array, ""]
    highest_multiplier: Float[Array, ""]
    largest_loss: Float[Array, ""]
    epoch: Int[Array, ""]
    radius: Float[Array, ""]
    covered: Bool[Array, ""]
    residual: Float[Array, ""]
    infeasibility: Float[Array, ""]
    iterations: Float[Array, ""]
    most_iterations: Int[Array, ""]
    unconverged: Int[Array, ""]
    primal: Worst
    descent: Worst
    dual: Worst
    reward_sum: Float[Array, "layers states actions"] | None
    constraint_sum: Float[Array, "m layers states actions"] | None


def split_sums(sums: Float[Array, "*batch n"]) -> dict[str, Float[Array, "..."]]:
    """The cumulative numbers by name, from the vector in which they are carried."""
    m = (sums.shape[-1] - 3) // 2
    return {
        "reward": sums[..., 0],
        "sampled_reward": sums[..., 1],
        "model_error": sums[..., 2],
        "violation": sums[..., 3 : 3 + m],
        "positive_violation": sums[..., 3 + m :],
    }


def init(cmdp: CMDP, comparators: Comparators) -> Metrics:
    """Before the first episode."""
    m, shape, dtype = cmdp.num_constraints, cmdp.layers.shape, cmdp.mdp.transition.dtype
    none, count = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)

    def worst(number: int) -> Worst:
        return Worst(jnp.zeros(number, dtype), jnp.full(number, -jnp.inf, dtype))

    def total(process: Any, shape: tuple[int, ...]) -> Array | None:
        return None if isinstance(process, StochasticProcess) else jnp.zeros(shape, dtype)

    num_occupancies, num_multipliers = len(comparators.occupancies), len(comparators.multipliers)
    return Metrics(
        sums=jnp.zeros(3 + 2 * m, dtype),
        lost=jnp.zeros(3 + 2 * m, dtype),
        multipliers=jnp.zeros(m, dtype),
        largest_multiplier=none,
        highest_multiplier=none,
        largest_loss=none,
        epoch=count,
        radius=none,
        covered=jnp.ones((), bool),
        residual=none,
        infeasibility=none,
        iterations=none,
        most_iterations=count,
        unconverged=count,
        primal=worst(num_occupancies),
        descent=worst(num_occupancies),
        dual=worst(num_multipliers),
        reward_sum=total(cmdp.rewards, shape),
        constraint_sum=total(cmdp.constraints, (m, *shape)),
    )


def update(
    metrics: Metrics,
    cmdp: CMDP,
    comparators: Comparators,
    policy: Float[Array, "layers states actions"],
    trajectory: Trajectory,
    outcome: Outcome,
    info: Info,
) -> Metrics:
    """After one more episode."""
    dtype = metrics.sums.dtype
    policy = policy.astype(dtype)
    occupancy = occupancy_of(cmdp.mdp, policy)
    believed = occupancy if info.occupancy is None else info.occupancy.astype(dtype)
    cost = value_of(outcome.constraints, occupancy)
    terms = jnp.concatenate(
        [
            jnp.stack(
                [
                    value_of(outcome.reward, occupancy),
                    _sampled_reward(cmdp.layers, trajectory, outcome.reward),
                    jnp.abs(occupancy - believed).sum(),
                ]
            ),
            cost,
            jnp.maximum(cost, 0),
        ]
    )
    compensated = terms - metrics.lost
    sums = metrics.sums + compensated
    changes: dict[str, Any] = {"sums": sums, "lost": (sums - metrics.sums) - compensated}

    multipliers = jnp.zeros_like(metrics.multipliers)
    if info.multipliers is not None:
        multipliers = info.multipliers.astype(dtype)
        following = multipliers if info.next_multipliers is None else info.next_multipliers
        changes["multipliers"] = following
        largest, highest = jnp.abs(following).sum(), following.max()
        changes["largest_multiplier"] = jnp.maximum(metrics.largest_multiplier, largest)
        changes["highest_multiplier"] = jnp.maximum(metrics.highest_multiplier, highest)
    against = comparators.multipliers - multipliers[None]
    # Sums, not matrix products: those round as the number of threads has it.
    gains = (against * value_of(outcome.constraints, believed)[None]).sum(-1)
    changes["dual"] = metrics.dual.add(gains)
    loss = -outcome.reward if info.loss is None else info.loss.astype(dtype)
    changes["largest_loss"] = jnp.maximum(metrics.largest_loss, jnp.abs(loss).max())
    if comparators.occupancies.shape[0]:
        theirs = (comparators.occupancies.sum(-1) * loss[None]).sum((1, 2, 3))
        changes["primal"] = metrics.primal.add(value_of(loss, occupancy) - theirs)
        changes["descent"] = metrics.descent.add(value_of(loss, believed) - theirs)
    if info.epoch is not None:
        changes["epoch"] = info.epoch
    if info.confidence is not None:
        inside = contains(info.confidence, cmdp.mdp.transition)
        changes["covered"] = metrics.covered & inside
        pairs = cmdp.layers.action_mask.sum().astype(dtype)
        changes["radius"] = jnp.minimum(info.confidence.radius, 2).sum() / pairs
        excess = _infeasibility(cmdp.layers, believed, info.confidence)
        changes["infeasibility"] = jnp.maximum(metrics.infeasibility, excess)
    if info.projection is not None:
        residual, iterations, converged = info.projection
        changes["residual"] = jnp.maximum(metrics.residual, residual.astype(dtype))
        changes["iterations"] = metrics.iterations + iterations
        changes["most_iterations"] = jnp.maximum(metrics.most_iterations, iterations)
        changes["unconverged"] = metrics.unconverged + ~converged
    if metrics.reward_sum is not None:
        changes["reward_sum"] = metrics.reward_sum + outcome.reward
    if metrics.constraint_sum is not None:
        changes["constraint_sum"] = metrics.constraint_sum + outcome.constraints
    new = metrics._replace(**changes)
    return jax.tree.map(lambda x, old: x.astype(old.dtype), new, metrics)


def _sampled_reward(layers: Layers, trajectory: Trajectory, reward: Array) -> Array:
    """What the episode that was played earned."""
    return jnp.where(visited(layers, trajectory), reward, 0).sum()


def _infeasibility(layers: Layers, occupancy: Array, confidence: ConfidenceSet) -> Array:
    r"""The largest violation of any constraint of $\Delta(\mathcal P)$, whatever a solver says."""
    mass = occupancy.sum(-1)  # [L, S, A]
    leaving = mass.sum(-1)
    entering = jnp.concatenate(
        [jnp.eye(1, leaving.shape[1], dtype=mass.dtype), occupancy.sum((1, 2))[:-1]]
    )
    flow = jnp.where(layers.decision_mask, jnp.abs(leaving - entering), 0).max()
    away = jnp.abs(occupancy - confidence.center * mass[..., None]).sum(-1)
    # A radius above 2 allows everything, and the mass of a pair is at most 1.
    ball = (away - confidence.radius * mass).max()
    return jnp.maximum(jnp.maximum(flow, ball), -occupancy.min())
