"""The largest and the smallest probability of reaching a state under the transitions of a set."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pdgd_jax._internal.typing import Pairs
from pdgd_jax.models import Layers
from pdgd_jax.planning._checks import check_plan
from pdgd_jax.planning._model import Model, TransitionSet

__all__ = ["occupancy_bounds"]


def occupancy_bounds(
    layers: Layers,
    policy: Pairs,
    confidence: TransitionSet,
    states: Int[Array, " layers"] | None = None,
    *,
    minimise: bool = False,
) -> Float[Array, "layers states"] | Float[Array, " layers"]:
    r"""Bound the occupancy of states under a policy and any transitions of a set, tightly.

    $u(x) = \max_{P \in \mathcal P} q^{P,\pi}(x)$, for every state at once, in one scan from the
    last layer to the first. For a target $x$ in layer $k$,

    $$f_x(\tilde x) = \mathbb 1\{\tilde x = x\} \text{ in layer } k, \qquad
    f_x(\tilde x) = \sum_a \pi(a|\tilde x) \max_{P \in \mathcal P(\tilde x, a)} P^\top f_x
    \text{ before}, \qquad u(x) = f_x(x_0).$$

    The bound on a pair is $\pi(a|x) u(x)$.

    Args:
      layers: the states and actions.
      policy: `[L, S, A]`, $\pi$.
      confidence: the set.
      states: `[L]`, one target in each layer, such as the states of a trajectory without its last;
        every state by default, which takes $S$ times as long.
      minimise: the smallest probability instead.

    Returns:
      `[L, S]`, or `[L]` for targets; 0 where no decision is taken.

    Raises:
      ValueError: if a shape is wrong, the set is of another kind, or a row is no distribution.

    Example:
      >>> import jax.numpy as jnp
      >>> from pdgd_jax import ConfidenceSet, make, planning
      >>> layers = make("random").layers
      >>> ball = ConfidenceSet(make("random").mdp.transition, jnp.full(layers.shape, 2.0))
      >>> planning.occupancy_bounds(layers, layers.uniform_policy(), ball)[1].round(6).tolist()
      [1.0, 1.0, 1.0, 1.0]

    Reference:
      C. Jin, T. Jin, H. Luo, S. Sra, T. Yu, *Learning adversarial MDPs with bandit feedback and
      unknown transition*, ICML 2020, Comp-UOB.
    """
    check_plan(layers, confidence, policy=(policy, layers.shape))
    L, S, _ = layers.shape
    if states is not None and jnp.shape(states) != (L,):
        raise ValueError(f"the states must have the shape {(L,)}; got {jnp.shape(states)}.")
    model, sign = Model.of(layers, confidence), -1 if minimise else 1
    dtype = jnp.result_type(policy, *jax.tree.leaves(model.allowed))
    if states is None:
        targets = jnp.broadcast_to(jnp.eye(S, dtype=dtype), (L, S, S))
    else:
        targets = jax.nn.one_hot(states, S, dtype=dtype)[:, None]  # [L, 1, S]
    count = targets.shape[1]

    def reach(here: Model, played: Array, ahead: Array) -> Array:
        """One target's probability from each state of a layer, [S] -> [S]."""
        best = here.best_transition(sign * ahead)
        return (played * here.expected(best, ahead)).sum(-1)

    def backward(later: Array, layer: tuple[Model, Array, Array, Array]) -> tuple[Array, None]:
        here, played, own, k = layer
        flat = later.reshape(L * count, S)
        back = jax.vmap(reach, in_axes=(None, None, 0))(here, played, flat)
        is_own = (jnp.arange(L) == k)[:, None, None]
        return jnp.where(is_own, own[None], back.reshape(L, count, S)), None

    played = jnp.where(layers.action_mask, policy, 0).astype(dtype)
    own = jnp.where(layers.decision_mask[:, None], targets, 0)
    start = jnp.zeros((L, count, S), dtype)
    steps = model, played, own, jnp.arange(L)
    found, _ = jax.lax.scan(backward, start, steps, reverse=True)
    bounds = found[:, :, 0]  # [L, targets], from the first state
    return bounds if states is None else bounds[:, 0]
