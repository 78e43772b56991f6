"""Turns any finite-horizon MDP into a loop-free one."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from pdgd_jax._internal.checks import check_sums, is_whole, whole_number
from pdgd_jax._internal.memory import check_memory
from pdgd_jax._internal.pytree import as_array, as_float, is_concrete, pytree, static
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models._flat import FlatSteps, steps_of_dense, steps_of_lists
from pdgd_jax.models._layers import Layers
from pdgd_jax.models._mdp import LayeredMDP

__all__ = ["UnrolledMDP", "unroll"]


@pytree
class UnrolledMDP(LayeredMDP):
    """A `LayeredMDP` made by `unroll`, which remembers the flat state behind each of its states.

    Attributes:
      flat_states: `[L+1, S]`, the flat state of which each state is a copy; -1 for the root, the
        last state and padding.
      num_flat_states: the number of flat states.
      has_root: whether layer 0 is a root that only draws the first state.
    """

    flat_states: Int[Array, "layers_and_last states"]
    num_flat_states: int = static()
    has_root: bool = static()

    @property
    def horizon(self) -> int:
        """The number of steps in the flat MDP."""
        return self.layers.shape[0] - int(self.has_root)

    def from_flat(
        self, values: Float[ArrayLike, "*horizon flat actions"]
    ) -> Float[Array, "layers states actions"]:
        """Map rewards, costs or a policy from flat states to layered ones.

        Args:
          values: `[N, A]`, the same at every step, or `[horizon, N, A]`.

        Returns:
          `[L, S, A]`, 0 outside the masks and at the root. (The root has a single action; see
          `policy_from_flat`.)
        """
        L, _, A = self.layers.shape
        # On the host unless traced: building an instance takes a dozen operations, and JAX would
        # compile each of them.
        xp: Any = np if is_concrete(values, self.flat_states) else jnp
        values = as_float(values) if xp is jnp else np.asarray(values)
        if values.shape[-2:] != (self.num_flat_states, A) or values.ndim not in (2, 3):
            raise ValueError(
                f"values must be [N, A] = {(self.num_flat_states, A)} or "
                f"[horizon, N, A] = {(self.horizon, self.num_flat_states, A)}; got {values.shape}."
            )
        by_step = xp.broadcast_to(values, (self.horizon, *values.shape[-2:]))
        root = xp.zeros((L - self.horizon, *values.shape[-2:]), values.dtype)
        by_layer = xp.concatenate([root, by_step])  # [L, N, A]
        flat = xp.asarray(self.flat_states)[:-1]
        layered = by_layer[xp.arange(L)[:, None], xp.maximum(flat, 0)]
        valid = xp.asarray(self.layers.action_mask) & (flat >= 0)[..., None]
        return as_float(xp.where(valid, layered, 0))

    def policy_from_flat(
        self, policy: Float[ArrayLike, "*horizon flat actions"]
    ) -> Float[Array, "layers states actions"]:
        """Map a flat policy to a layered one; the root plays its only action."""
        layered = self.from_flat(policy)
        return layered.at[0, 0, 0].set(1.0) if self.has_root else layered

    def to_flat(
        self, values: Float[Array, "layers states actions"]
    ) -> Float[Array, "horizon flat actions"]:
        """Map a layered policy or marginal occupancy to flat states, step by step.

        Args:
          values: `[L, S, A]`; for an occupancy over $(x, a, x')$ pass its sum over $x'$.

        Returns:
          `[horizon, N, A]`, 0 where a flat state cannot be reached at that step. The sum of a
          marginal occupancy over its first axis is the expected number of visits.
        """
        L, _, A = self.layers.shape
        flat = self.flat_states[:-1]
        target = jnp.where(flat < 0, self.num_flat_states, flat)  # an extra row, dropped below
        spread = jnp.zeros((L, self.num_flat_states + 1, A), values.dtype)
        spread = spread.at[jnp.arange(L)[:, None], target].add(values)
        return spread[L - self.horizon :, :-1]


def unroll(
    transition: Float[ArrayLike, "*horizon flat actions following"],
    start: int | Float[ArrayLike, " flat"],
    horizon: int,
    *,
    action_mask: Bool[ArrayLike, "flat actions"] | None = None,
    support: str = "unknown",
    successors: Int[ArrayLike, "*horizon flat actions following"] | None = None,
) -> UnrolledMDP:
    """Turn a finite-horizon MDP over a flat set of states into a loop-free one.

    Layer k holds a copy of each flat state that some policy reaches in exactly k steps. The last
    step leads to the single last state. Absorbing states need no special treatment.

    Args:
      transition: `[N, A, N]`, or `[horizon, N, A, N]` if it changes from step to step.
      start: the first state, or a distribution `[N]` over it. A distribution becomes a first step
        from a single root with one action, which adds one layer.
      horizon: the number of decisions of an episode.
      action_mask: `[N, A]`, the actions that each state has; all of them by default.
      support: "unknown", as in the paper, or "known": the layers then have lists of the successors
        of each pair (`Layers.from_successors`), which a learner is told without their
        probabilities. Everything then takes memory and time for the triples that can happen only.
      successors: the next states to which the entries of `transition` belong, in its shape, which
        is then `[N, A, K]` or `[horizon, N, A, K]`; -1 where there is none. For large N, where
        `[N, A, N]` would hold mostly zeros. A state may be named twice; its entries are added.

    Returns:
      The MDP, with `from_flat`, `policy_from_flat` and `to_flat` to map rewards, policies and
      occupancies between the two.

    Raises:
      ValueError: if a row is not a distribution; the error names its state and action.

    Example:
      A walk on three states, which may stay or move on:

      >>> import numpy as np
      >>> P = np.stack([np.eye(3), np.roll(np.eye(3), 1, axis=1)], axis=1)
      >>> mdp = unroll(P, start=0, horizon=4)
      >>> mdp
      UnrolledMDP(sizes=(1, 2, 3, 3, 1), num_actions=2)
      >>> mdp.flat_states.tolist()
      [[0, -1, -1], [0, 1, -1], [0, 1, 2], [0, 1, 2], [-1, -1, -1]]

      The same from lists, which hold one successor for each pair:

      >>> following = np.stack([np.arange(3), (np.arange(3) + 1) % 3], axis=1)[..., None]
      >>> unroll(np.ones((3, 2, 1)), 0, 4, successors=following, support="known")
      UnrolledMDP(sizes=(1, 2, 3, 3, 1), num_actions=2, num_triples=18)
    """
    if support not in ("known", "unknown"):
        raise ValueError(f"support must be 'known' or 'unknown'; got {support!r}.")
    horizon = whole_number("horizon", horizon, accept=is_whole, shown=str)
    steps, actions = _checked_steps(transition, horizon, action_mask, successors, support)
    N, A = actions.shape
    first = _start_distribution(start, N)
    has_root = np.ndim(start) > 0

    # The flat states of each layer, found by following every possible step.
    copies: list[NDArray] = [np.flatnonzero(first)]
    for time in range(horizon - 1):
        reached = np.zeros(N + 1, bool)
        reached[steps.at(time).following[copies[-1]]] = True  # -1, for none, is the last entry
        copies.append(np.flatnonzero(reached[:-1]))

    if has_root:
        copies.insert(0, np.array([-1]))
    sizes = [len(states) for states in copies] + [1]
    flat_states = np.full((len(sizes), max(sizes)), -1)
    rows: list[FlatSteps] = []  # [X_k, A, K_k] of each layer, to the states of the next
    for layer, states in enumerate(copies):
        flat_states[layer, : len(states)] = states
        if has_root and layer == 0:
            following, chance = np.full((1, A, sizes[1]), -1), np.zeros((1, A, sizes[1]))
            following[0, 0], chance[0, 0] = np.arange(sizes[1]), first[copies[1]]
        elif layer == len(copies) - 1:
            chance = actions[states][..., None]
            following = np.where(chance, 0, -1)
        else:
            copy_of = np.full(N + 1, -1)
            copy_of[copies[layer + 1]] = np.arange(sizes[layer + 1])
            flat, chance = (part[states] for part in steps.at(layer - int(has_root)))
            width = int((flat >= 0).sum(-1).max())
            following, chance = copy_of[flat[..., :width]], chance[..., :width]
        rows.append(FlatSteps(following, chance.astype(steps.chance.dtype)))
    build = _with_lists if support == "known" else _without_lists
    layers, layered = build(sizes, rows)
    return UnrolledMDP(
        layers, as_array(layered), as_array(flat_states), num_flat_states=N, has_root=has_root
    )


def _checked_steps(
    transition: ArrayLike,
    horizon: int,
    action_mask: ArrayLike | None,
    successors: ArrayLike | None,
    support: str,
) -> tuple[FlatSteps, NDArray]:
    """The steps of the flat MDP, and the actions that its states have, `[N, A]`."""
    P = np.asarray(transition, np.result_type(np.asarray(transition).dtype, np.float32))
    N, A = P.shape[-3:-1] if P.ndim in (3, 4) else (0, 0)
    what = f"an MDP of {N:,} states over {horizon:,} steps"
    if support == "unknown":
        check_memory(what, 4 * horizon * A * N**2 * P.itemsize)
    shape = P.shape
    P = P[None] if P.ndim == 3 else P
    fits = P.ndim == 4 and (len(shape) == 3 or len(P) == horizon)
    if not fits or (successors is None and P.shape[1] != P.shape[3]):
        last = "N" if successors is None else "K"
        raise ValueError(
            f"transition must be [N, A, {last}], or [horizon, N, A, {last}] with horizon "
            f"{horizon}; got {shape}."
        )
    actions = np.ones((N, A), bool) if action_mask is None else np.asarray(action_mask, bool)
    if actions.shape != (N, A):
        raise ValueError(f"action_mask must be [N, A] = {(N, A)}; got {actions.shape}.")
    if successors is None:
        steps = steps_of_dense(P, actions)
    else:
        lists = np.asarray(successors)
        steps = steps_of_lists(lists[None] if lists.ndim == 3 else lists, P, actions, N)
    # About eight numbers for each triple: the lists both ways, the probabilities, and copies.
    check_memory(what, 64 * horizon * steps.num_steps)
    return steps, actions


def _without_lists(sizes: list[int], rows: list[FlatSteps]) -> tuple[Layers, ArrayLike]:
    """Layers in which every state of the next layer can follow, and their transitions."""
    L, S, A = len(rows), max(sizes), rows[0].chance.shape[1]
    masks, layered = np.zeros((L, S, A), bool), np.zeros((L, S, A, S), rows[0].chance.dtype)
    for layer, (following, chance) in enumerate(rows):
        masks[layer, : len(chance)] = (following >= 0).any(-1)
        state, action, column = np.nonzero(following >= 0)
        index = state, action, column
        layered[layer, state, action, following[index]] = chance[index]
    state_mask = np.arange(S) < np.array(sizes)[:, None]
    return Layers(jnp.asarray(state_mask), jnp.asarray(masks)), layered


def _with_lists(sizes: list[int], rows: list[FlatSteps]) -> tuple[Layers, ArrayLike]:
    """Layers in which only steps of positive probability can happen, and their transitions."""
    layers = Layers.from_successors(sizes, [row.following for row in rows])
    return layers, layers.pack([row.chance for row in rows])


def _start_distribution(start: ArrayLike, num_states: int) -> NDArray:
    if np.ndim(start) == 0:
        if not is_whole(start) or not 0 <= start < num_states:
            raise ValueError(f"start must be a state 0..{num_states - 1}; got {start}.")
        return np.asarray(np.arange(num_states) == int(start))
    first = np.asarray(start, float)
    if first.shape != (num_states,):
        raise ValueError(
            f"start must be a state or a distribution [N] = ({num_states},); got {first.shape}."
        )
    bad = ~(np.isfinite(first) & (first >= 0))
    if bad.any():
        state = int(np.argmax(bad))
        raise ValueError(f"start gives state {state} the probability {first[state]}.")
    check_sums("start", first, 1e-6, must="a distribution sums to 1")
    return first / first.sum()
