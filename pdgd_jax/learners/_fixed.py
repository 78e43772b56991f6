"""Baselines that do not learn: they play one policy in every episode."""

import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float

from pdgd_jax import oracle
from pdgd_jax._internal.typing import MaybeKey
from pdgd_jax.learners._base import Info, Learner, Setting
from pdgd_jax.models import CMDP, Layers, Outcome, Trajectory, policy_of

__all__ = ["best_feasible", "fixed_policy", "most_feasible", "uniform"]


def _init(policy: Array, key: MaybeKey) -> tuple[()]:
    del policy, key
    return ()


def _policy(policy: Array, state: tuple[()]) -> Array:
    del state
    return policy


def _update(
    policy: Array, state: tuple[()], trajectory: Trajectory, outcome: Outcome
) -> tuple[tuple[()], Info]:
    del policy, trajectory, outcome
    return state, Info()


def fixed_policy(layers: Layers, policy: Float[ArrayLike, "layers states actions"]) -> Learner:
    """Play one policy in every episode.

    Args:
      layers: the states and actions.
      policy: `[L, S, A]`; may be traced.
    """
    policy = jnp.asarray(policy, float)
    return Learner(
        init=Partial(_init, policy),
        policy=Partial(_policy, policy),
        update=Partial(_update, policy),
        setting=Setting(layers),
    )


def uniform(layers: Layers) -> Learner:
    """Play every action of a state equally often."""
    return fixed_policy(layers, layers.uniform_policy())


def best_feasible(cmdp: CMDP, num_episodes: int) -> Learner:
    r"""Play the optimal feasible policy in hindsight, which earns OPT.

    If the adversary depends on chance or on policies, this is the optimum of one draw against the
    uniform policy, not of the run.

    Args:
      cmdp: one CMDP; this function solves its linear program on the host.
      num_episodes: $T$, over which adversarial rewards and constraints are averaged.

    Raises:
      ValueError: if no policy satisfies the constraints.
    """
    cmdp.check_episodes(num_episodes)
    average = oracle.hindsight(cmdp, num_episodes)
    best = oracle.optimum(cmdp.mdp, average.reward, average.constraints)
    if not best.feasible:
        raise ValueError(
            "no policy satisfies the constraints, so that there is no best feasible one; "
            "most_feasible(cmdp) violates them the least."
        )
    return fixed_policy(cmdp.layers, policy_of(jnp.asarray(best.occupancy), cmdp.layers))


def most_feasible(cmdp: CMDP, num_episodes: int | None = None) -> Learner:
    r"""Play the policy that satisfies the constraints by the largest margin, $\rho$.

    Args:
      cmdp: one CMDP; this function solves its linear program on the host.
      num_episodes: use only the first `num_episodes` episodes of a table of constraints.
    """
    margin = oracle.slater_margin(cmdp.mdp, cmdp.constraints, num_episodes)
    return fixed_policy(cmdp.layers, policy_of(jnp.asarray(margin.occupancy), cmdp.layers))
