"""Policies, the occupancies they induce, and trajectories."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from pdgd_jax._internal.checks import check_sums, first_place, place
from pdgd_jax._internal.pytree import is_concrete
from pdgd_jax._internal.typing import NDArray, Pairs, Triples
from pdgd_jax.models._cmdp import Outcome
from pdgd_jax.models._layers import Layers
from pdgd_jax.models._mdp import LayeredMDP
from pdgd_jax.models._successors import Successors, into_next, to_pairs, to_triples

__all__ = ["Trajectory", "observed", "occupancy_of", "policy_of", "rollout", "value_of", "visited"]


class Trajectory(NamedTuple):
    """One episode. Layers that only pad show state 0 and action 0.

    Attributes:
      states: `[L+1]`, the state visited in each layer.
      actions: `[L]`, the action played in each decision layer.
    """

    states: Int[Array, " layers_and_last"]
    actions: Int[Array, " layers"]


def occupancy_of(mdp: LayeredMDP, policy: Float[Array, "layers states actions"]) -> Triples:
    r"""The occupancy $q^{P,\pi}(x, a, x') = \Pr\{x_k = x, a_k = a, x_{k+1} = x'\}$, exactly.

    One forward pass, $q_k(x,a,x') = d_k(x)\,\pi(a \mid x)\,P(x' \mid x,a)$ with
    $d_{k+1}(x') = \sum_{x,a} q_k(x,a,x')$.

    Args:
      mdp: the MDP.
      policy: `[L, S, A]`, a distribution over the actions of each state.

    Returns:
      `[L, S, A, S]`, or `[L, M]` with successor lists, exactly 0 outside the masks.

    Raises:
      ValueError: if the policy's shape is wrong or, outside `jit`, if it is not a policy.

    Example:
      >>> from pdgd_jax import make
      >>> mdp = make("random").mdp
      >>> q = occupancy_of(mdp, mdp.layers.uniform_policy())
      >>> q.sum(axis=(1, 2, 3)).round(6).tolist()   # every layer carries the unit mass
      [1.0, 1.0, 1.0, 1.0]
    """
    _check_policy(mdp.layers, policy)

    def step(mass: Array, layer: tuple[Array, Array, Successors | None]) -> tuple[Array, Array]:
        policy_k, transition_k, lists = layer
        flow = to_triples(lists, mass[:, None] * policy_k) * transition_k
        return into_next(lists, flow), flow

    dtype = jnp.result_type(policy, mdp.transition)
    start = jnp.zeros(mdp.layers.shape[1], dtype).at[0].set(1)
    steps = policy.astype(dtype), mdp.transition.astype(dtype), mdp.layers.successors
    _, occupancy = jax.lax.scan(step, start, steps)
    return occupancy


def policy_of(
    occupancy: Triples | Pairs, layers: Layers | None = None
) -> Float[Array, "layers states actions"]:
    r"""The policy $\pi^q(a \mid x) = q(x,a) / q(x)$ that an occupancy induces.

    A state that `occupancy` gives no mass gets the uniform policy.

    Args:
      occupancy: `[L, S, A, S]`, or the marginal `[L, S, A]`, or `[L, M]` with successor lists.
        Rounding below 0 counts as 0.
      layers: says which actions exist, for the states without mass, and which successors. By
        default every action of the padded array exists.

    Returns:
      `[L, S, A]`, a distribution over actions in every state.
    """
    marginal = jnp.maximum(_marginal(occupancy, layers), 0)
    mass = marginal.sum(-1, keepdims=True)
    if layers is None:
        fallback = jnp.full(marginal.shape, 1 / marginal.shape[-1], marginal.dtype)
    else:
        fallback = layers.uniform_policy(marginal.dtype)
    return jnp.where(mass > 0, marginal / jnp.where(mass > 0, mass, 1), fallback)


def value_of(
    values: Float[Array, "*constraints layers states actions"],
    occupancy: Triples | Pairs,
    layers: Layers | None = None,
) -> Float[Array, "*constraints"]:
    r"""What an occupancy earns: $r^\top q$, or $G^\top q$ for constraints `[m, L, S, A]`.

    Args:
      values: `[..., L, S, A]`.
      occupancy: as in `policy_of`.
      layers: as in `policy_of`.
    """
    # A sum, not a matrix product: the rounding of a product depends on the number of threads.
    marginal = jnp.expand_dims(_marginal(occupancy, layers), tuple(range(values.ndim - 3)))
    return (values * marginal).sum((-3, -2, -1))


def _marginal(occupancy: Array, layers: Layers | None) -> Array:
    """`[L, S, A]` of an occupancy in any layout."""
    if occupancy.ndim == 3:
        return occupancy
    if occupancy.ndim == 2 and layers is None:
        raise ValueError("an occupancy [L, M] belongs to successor lists: pass its layers, too.")
    if layers is not None and occupancy.shape != layers.triple_shape:
        raise ValueError(
            f"an occupancy over the triples of these layers is {layers.triple_shape}; got "
            f"{occupancy.shape}."
        )
    return to_pairs(layers.successors if layers is not None else None, occupancy)


def rollout(
    key: Key[Array, ""], mdp: LayeredMDP, policy: Float[Array, "layers states actions"]
) -> Trajectory:
    """Play one episode.

    Args:
      key: determines the episode, whether the MDP is padded or not.
      mdp: the MDP.
      policy: `[L, S, A]`.

    Returns:
      The trajectory. Steps of probability 0 never occur.

    Example:
      >>> import jax
      >>> from pdgd_jax import make
      >>> mdp = make("random").mdp
      >>> trajectory = rollout(jax.random.key(0), mdp, mdp.layers.uniform_policy())
      >>> trajectory.states.shape, trajectory.actions.shape
      ((5,), (4,))
    """
    _check_policy(mdp.layers, policy)
    uniforms = jax.random.uniform(key, (mdp.layers.shape[0], 2), policy.dtype)

    def step(
        state: Array, layer: tuple[Array, Array, Successors | None, Array]
    ) -> tuple[Array, tuple[Array, Array]]:
        policy_k, transition_k, lists, uniform = layer
        action = _choose(policy_k[state], uniform[0])
        if lists is None:
            following = _choose(transition_k[state, action], uniform[1])
        else:
            entry = _choose(lists.row_of(transition_k, state, action), uniform[1])
            following = lists.row_of(lists.following, state, action)[entry]
        return following, (following, action)

    start = jnp.zeros((), jnp.int32)
    steps = policy, mdp.transition, mdp.layers.successors, uniforms
    _, (states, actions) = jax.lax.scan(step, start, steps)
    return Trajectory(jnp.concatenate([start[None], states]), actions)


def visited(layers: Layers, trajectory: Trajectory) -> Bool[Array, "layers states actions"]:
    """True for each pair (x, a) of an episode; nothing is visited in layers that only pad."""
    _, S, A = layers.shape
    # Comparisons instead of a scatter: one elementwise loop over all lanes of a batch.
    here = trajectory.states[:-1, None] == jnp.arange(S)[None]  # [L, S]
    played = trajectory.actions[:, None] == jnp.arange(A)[None]  # [L, A]
    return here[:, :, None] & played[:, None] & layers.action_mask


def observed(layers: Layers, trajectory: Trajectory, outcome: Outcome) -> Outcome:
    """What an episode reveals with bandit feedback: NaN wherever it has not been.

    A learner that looks there is poisoned visibly.

    Args:
      layers: the states and actions.
      trajectory: the episode.
      outcome: all rewards and constraints.

    Example:
      >>> import jax
      >>> from pdgd_jax import make, rollout
      >>> cmdp = make("random")
      >>> episode = rollout(jax.random.key(0), cmdp.mdp, cmdp.layers.uniform_policy())
      >>> outcome = Outcome(cmdp.rewards.mean(), cmdp.constraints.mean())
      >>> int((~jax.numpy.isnan(observed(cmdp.layers, episode, outcome).reward)).sum())
      4
    """
    seen = visited(layers, trajectory)
    return Outcome(
        jnp.where(seen, outcome.reward, jnp.nan),
        jnp.where(seen[None], outcome.constraints, jnp.nan),
    )


def _choose(weights: Float[Array, " n"], uniform: Float[Array, ""]) -> Int[Array, ""]:
    """The index at which the cumulative weight passes `uniform`; 0 if there is no weight."""
    cumulative = jnp.cumsum(weights)
    possible = weights > 0
    # Partial sums are not monotone to the last bit, so indices without weight are excluded.
    total = jnp.max(jnp.where(possible, cumulative, 0))
    return jnp.argmax(possible & (cumulative > uniform * total)).astype(jnp.int32)


def _check_policy(layers: Layers, policy: Array) -> None:
    if policy.shape != layers.shape:
        raise ValueError(
            f"policy must have the shape [L, S, A] = {layers.shape} of the layers; "
            f"got {policy.shape}."
        )
    if not is_concrete(policy, layers.action_mask):
        return
    chosen: NDArray = np.asarray(policy)
    mask: NDArray = np.asarray(layers.action_mask)
    slack = 1e-4 if chosen.dtype == np.float32 else 1e-9
    decides = np.asarray(mask.any(-1))  # [L, S]; elsewhere the policy is never used
    bad = ~np.isfinite(chosen) | (chosen < -slack) | ((chosen != 0) & ~mask)
    bad &= decides[..., None]
    where = first_place(bad)
    if where is not None:
        raise ValueError(
            f"policy of {place(where)} is {chosen[where]:.6g}; it must be a probability, and "
            "exactly 0 for an action that the state does not have "
            "(policy_of(occupancy, layers) knows which those are)."
        )
    check_sums("policy", chosen, slack, decides, over=" over its actions")
