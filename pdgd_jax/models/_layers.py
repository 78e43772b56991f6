"""The shape of a loop-free MDP: which states and actions each layer has."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, DTypeLike, Float, Int

from pdgd_jax._internal.checks import first_place, is_integer, place
from pdgd_jax._internal.pytree import as_array, is_concrete, numpy_for, pytree
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models._successor_arrays import build, check_lists, rectangular
from pdgd_jax.models._successors import Successors, check_fit
from pdgd_jax.models._triples import TripleArrays, growth

__all__ = ["Layers"]


@pytree
class Layers(TripleArrays):
    r"""The layers $X_0, \dots, X_L$ of a loop-free MDP, as masks over padded arrays.

    Decisions are taken in layers $0, \dots, L-1$; the first and the last layer hold one state.
    With $S$ the largest layer and $A$ the most actions, everything that depends on a state and an
    action is an array `[L, S, A]`, and whatever lies outside the masks is exactly 0.

    The masks are traced leaves and only the padded shape is static, so that instances of different
    sizes share one compiled program. An instance with fewer layers is padded at its end by layers
    of one state *without actions*, where nothing is earned, spent or conserved. The constants
    below ($L$, $|X|$, $|A|$, ...) are those of the true instance; padding does not change them.

    An array over the triples $(x, a, x')$ is `[L, S, A, S]`. If it is known which states can follow
    a pair (`from_successors`), it is `[L, M]` and holds only the triples that can happen. `pack`
    and `unpack` translate between either layout and one array per layer.

    Args:
      state_mask: `[L+1, S]`, true where a layer has that state. Layer 0 holds state 0 alone.
      action_mask: `[L, S, A]`, true where a state has that action.
      successors: the lists of `from_successors`; None if every state of the next layer can follow.

    Raises:
      ValueError: if the masks disagree, if a state has no action, or if the first or last layer
        is not a single state.

    Example:
      >>> layers = Layers.from_sizes((1, 4, 2, 1), num_actions=3)
      >>> layers
      Layers(sizes=(1, 4, 2, 1), num_actions=3)
      >>> layers.shape, int(layers.num_states), int(layers.num_triples)
      ((3, 4, 3), 8, 42)
    """

    state_mask: Bool[Array, "*batch layers_and_last states"]
    action_mask: Bool[Array, "*batch layers states actions"]
    successors: Successors | None = None

    def __post_init__(self) -> None:
        state_mask, action_mask = self.state_mask, self.action_mask
        if is_concrete(state_mask, action_mask):
            _check_masks(np.asarray(state_mask), np.asarray(action_mask))
            if self.successors is not None and is_concrete(self.successors.row):
                check_fit(self.successors, np.asarray(state_mask), np.asarray(action_mask))
        object.__setattr__(self, "state_mask", as_array(state_mask, bool))
        object.__setattr__(self, "action_mask", as_array(action_mask, bool))

    @classmethod
    def from_sizes(cls, sizes: Sequence[int], num_actions: int) -> "Layers":
        """Layers of the given sizes, with the same number of actions in every state.

        Args:
          sizes: the number of states of each layer, the first and the last being 1.
          num_actions: the number of actions of every state.
        """
        for number in (*sizes, num_actions):
            if not is_integer(number):
                raise ValueError(
                    f"sizes and num_actions are whole numbers, such as (1, 4, 1) and 3; "
                    f"got {number!r}."
                )
        sizes = tuple(int(size) for size in sizes)
        if len(sizes) < 2:
            raise ValueError(f"sizes must name at least two layers, such as (1, 1); got {sizes}.")
        if min(sizes) < 1:
            raise ValueError(f"every layer needs at least one state; got sizes {sizes}.")
        if num_actions < 1:
            raise ValueError(f"num_actions must be at least 1; got {num_actions}.")
        states = np.arange(max(sizes)) < np.array(sizes)[:, None]  # [L+1, S]
        actions = np.repeat(states[:-1, :, None], num_actions, axis=2)  # [L, S, A]
        return cls(as_array(states), as_array(actions))

    @classmethod
    def from_successors(cls, sizes: Sequence[int], successors: Sequence[Any]) -> "Layers":
        """Layers with lists of the states that can follow each pair.

        Args:
          sizes: the number of states of each layer, the first and the last being 1.
          successors: `[X_k, A, K_k]` for each decision layer k: the states of layer k + 1 that can
            follow, in any order, and -1 where there is none. A pair without successors is not an
            action of its state.

        Raises:
          ValueError: if a list names a state that the next layer does not have, or names a state
            twice; the error says where.

        Example:
          A walk that stays or moves on:

          >>> walk = Layers.from_successors((1, 2, 1), [[[[0, -1], [0, 1]]], [[[0]] * 2] * 2])
          >>> walk
          Layers(sizes=(1, 2, 1), num_actions=2, num_triples=7)
          >>> walk.unpack(walk.triple_mask)[0].tolist()
          [[[True, False], [True, True]]]
        """
        lists = [rectangular("successors", layer, each) for layer, each in enumerate(successors)]
        num_actions = lists[0].shape[1] if lists and lists[0].ndim == 3 else 1
        dense = cls.from_sizes(sizes, num_actions)
        check_lists(sizes, lists)
        actions = np.zeros(dense.shape, bool)
        for layer, array in enumerate(lists):
            actions[layer, : array.shape[0]] = (array >= 0).any(-1)
        return cls(dense.state_mask, as_array(actions), build(lists, dense.shape))

    @property
    def triple_mask(self) -> Bool[Array, "layers *triples"]:
        """True for each $(x, a, x')$ that an occupancy may give mass."""
        return as_array(self.possible())

    @property
    def decision_mask(self) -> Bool[Array, "layers states"]:
        """True for each state in which a decision is taken."""
        return self.action_mask.any(-1)

    @property
    def layer_sizes(self) -> Int[Array, " layers_and_last"]:
        """$|X_k|$, and 0 for the layers that only pad."""
        real = jnp.concatenate([jnp.ones(1, bool), self.decision_mask.any(-1)])
        return jnp.where(real, self.state_mask.sum(-1), 0)

    @property
    def num_layers(self) -> Int[Array, ""]:
        """$L$, the number of decisions of an episode."""
        return as_array(self.masks()[1].any(-1).any(-1).sum())

    @property
    def num_states(self) -> Int[Array, ""]:
        """$|X|$, the first and the last state included."""
        return self.layer_sizes.sum()

    @property
    def num_actions(self) -> Int[Array, ""]:
        """$|A|$, the most actions that a state has."""
        return as_array(self.masks()[1].sum(-1).max())

    @property
    def num_triples(self) -> Int[Array, ""]:
        """The number of $(x, a, x')$, the dimension of an occupancy."""
        return as_array(self.possible().sum())

    @property
    def num_successors(self) -> Int[Array, "layers #states #actions"]:
        """How many states can follow each pair; `[L, 1, 1]` without lists: all of a layer."""
        if self.successors is None:
            return self.layer_sizes[1:, None, None]
        return self.to_pairs(self.successors.present.astype(jnp.int32))

    def uniform_policy(self, dtype: DTypeLike = float) -> Float[Array, "layers states actions"]:
        """The policy that plays every action of a state equally often."""
        mask, dtype = self.masks()[1], jnp.result_type(dtype)
        counts = numpy_for(mask).maximum(mask.sum(-1, keepdims=True), 1)
        return as_array(mask.astype(dtype) / counts.astype(dtype))

    def without_lists(self) -> "Layers":
        """The same layers where every state of the next layer can follow."""
        return self if self.successors is None else Layers(self.state_mask, self.action_mask)

    def pad_to(self, shape: tuple[int, int, int], like: Sequence["Layers"] = ()) -> "Layers":
        """The same layers inside a larger padded `(L, S, A)`.

        Args:
          shape: the padded shape.
          like: layers for whose successor lists there must be room, too.
        """
        grow, xp = growth(self.shape, shape), numpy_for(self.state_mask, self.action_mask)
        # After the end of the episode there is a single state without actions.
        over = np.zeros((shape[0] + 1, shape[1]), bool)
        over[self.shape[0] + 1 :, 0] = True
        state_mask = xp.pad(self.state_mask, (grow[0], grow[1])) | over
        lists = None
        if self.successors is not None:
            others = [other.successors for other in like if other.successors is not None]
            lists = build(self._lists(), shape, others)
        return Layers(state_mask, xp.pad(self.action_mask, grow), lists)

    def __repr__(self) -> str:
        if not is_concrete(self.action_mask) or self.action_mask.ndim != 3:
            return f"Layers(shape={self.action_mask.shape})"
        most = int(np.asarray(self.action_mask).sum(-1).max())
        lists = "" if self.successors is None else f", num_triples={int(self.num_triples)}"
        return f"Layers(sizes={self.sizes}, num_actions={most}{lists})"


def _check_masks(state_mask: NDArray, action_mask: NDArray) -> None:
    if state_mask.ndim != 2 or action_mask.ndim != 3:
        raise ValueError(
            "state_mask must be [L+1, S] and action_mask [L, S, A]; got the shapes "
            f"{state_mask.shape} and {action_mask.shape}."
        )
    num_layers, num_states, _ = action_mask.shape
    if state_mask.shape != (num_layers + 1, num_states):
        raise ValueError(
            f"action_mask {action_mask.shape} asks for a state_mask of shape "
            f"{(num_layers + 1, num_states)}; got {state_mask.shape}."
        )
    decides: NDArray = np.asarray(action_mask.any(-1))  # [L, S]
    depth = int(decides.any(-1).sum())
    if depth == 0:
        raise ValueError("layer 0, state 0 has no action: an episode takes at least one decision.")
    if not decides[:depth].any(-1).all():
        layer = int(np.argmin(decides.any(-1)))
        raise ValueError(f"layer {layer} has no action in any state, yet a later layer has some.")
    stray = first_place(decides & ~state_mask[:-1])
    if stray is not None:
        raise ValueError(f"{place(stray)} has actions but is not in the state mask.")
    idle = first_place(state_mask[:depth] & ~decides[:depth])
    if idle is not None:
        raise ValueError(f"{place(idle)} has no action; every state needs one.")
    if state_mask[0].sum() != 1 or not state_mask[0, 0]:
        held = np.flatnonzero(state_mask[0]).tolist()
        raise ValueError(
            f"layer 0 must be the single state 0; it holds the states {held}. "
            "A start distribution becomes a first step from a single root: see pdgd_jax.unroll."
        )
    for layer in range(depth, num_layers + 1):
        if state_mask[layer].sum() != 1:
            raise ValueError(
                f"layer {layer}, where the episode is over, must be a single state; it has "
                f"{int(state_mask[layer].sum())}."
            )
