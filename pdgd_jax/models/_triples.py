"""Arrays over the triples of layers, with successor lists or without."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Shaped

from pdgd_jax._internal.checks import first_place, place
from pdgd_jax._internal.pytree import as_array, is_concrete, numpy_for
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models._successor_arrays import rectangular
from pdgd_jax.models._successors import Successors, at_next, into_next, to_pairs, to_triples

__all__ = ["Steps", "TripleArrays", "growth"]


class Steps(NamedTuple):
    """Some triples, each with a number."""

    layer: NDArray
    pair: NDArray  # s A + a
    following: NDArray
    value: NDArray


class TripleArrays:
    """What `Layers` can do with arrays over their triples."""

    state_mask: Bool[Array, "*batch layers_and_last states"]
    action_mask: Bool[Array, "*batch layers states actions"]
    successors: Successors | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """The padded, static `(L, S, A)`."""
        num_layers, num_states, num_actions = self.action_mask.shape[-3:]
        return num_layers, num_states, num_actions

    @property
    def sizes(self) -> tuple[int, ...]:
        r"""The true $|X_0|, \dots, |X_L|$, on the host: not inside `jit`, not for a stack."""
        depth = int(np.asarray(self.action_mask).any((1, 2)).sum())
        return tuple(int(n) for n in np.asarray(self.state_mask)[: depth + 1].sum(-1))

    def masks(self) -> tuple[Any, Any]:
        """The masks of states and actions, as arrays of NumPy if the host can look at them."""
        masks = self.state_mask, self.action_mask
        return (np.asarray(masks[0]), np.asarray(masks[1])) if is_concrete(*masks) else masks

    def possible(self) -> Any:
        """`Layers.triple_mask`, as an array of NumPy if the host can look at it."""
        if self.successors is not None:
            present = self.successors.present
            return np.asarray(present) if is_concrete(present) else present
        states, actions = self.masks()
        return actions[..., None] & states[1:, None, None, :]

    @property
    def triple_shape(self) -> tuple[int, ...]:
        """The padded, static shape of an array over the triples."""
        L, S, A = self.shape
        return (L, S, A, S) if self.successors is None else (L, self.successors.groups.num_entries)

    def to_pairs(
        self, triples: Shaped[Array, "layers *triples"]
    ) -> Shaped[Array, "layers states actions"]:
        """The sum over the next states of an array over the triples."""
        return to_pairs(self.successors, triples)

    def to_triples(
        self, pairs: Shaped[Array, "layers states actions"]
    ) -> Shaped[Array, "layers *triples"]:
        """The number of each pair at its triples.

        Without lists `[L, S, A, 1]`, which broadcasts; with them 0 where there is no triple.
        """
        spread = to_triples(self.successors, pairs)
        if self.successors is None:
            return spread
        return jnp.where(self.successors.present, spread, jnp.zeros_like(spread))

    def at_next(self, states: Shaped[Array, "layers states"]) -> Shaped[Array, "layers *triples"]:
        """The number of the next state at each triple; the states are those of layers 1 to L.

        Without lists `[L, 1, 1, S]`, which broadcasts.
        """
        return at_next(self.successors, states)

    def into_next(
        self, triples: Shaped[Array, "layers *triples"]
    ) -> Shaped[Array, "layers states"]:
        """The sum over the triples that lead to each state of the layers 1 to L."""
        return into_next(self.successors, triples)

    def to_dense(
        self, triples: Shaped[Array, "layers *triples"]
    ) -> Shaped[Array, "layers states actions states"]:
        """An array over the triples as `[L, S, A, S]`, 0 where a triple cannot happen."""
        if self.successors is None:
            return triples
        L, S, A = self.shape
        known = jnp.where(self.successors.present, triples, jnp.zeros_like(triples))
        # Entries that only pad add 0 to some triple; booleans cannot be added.
        known = known.astype(jnp.int32) if known.dtype == bool else known
        dense = jnp.zeros((L, S * A, S), known.dtype).at[self._indices()].add(known)
        return dense.reshape(L, S, A, S).astype(triples.dtype)

    def from_dense(
        self, dense: Shaped[Array, "layers states actions states"]
    ) -> Shaped[Array, "layers *triples"]:
        """The entries of `[L, S, A, S]` that belong to a triple; all others are dropped."""
        if self.successors is None:
            return dense
        L, S, A = self.shape
        found = dense.reshape(L, S * A, S)[self._indices()]
        return jnp.where(self.successors.present, found, jnp.zeros_like(found))

    def _indices(self) -> tuple[Array, Array, Array]:
        """`places` of the lists, traced."""
        assert self.successors is not None
        lists = self.successors
        return jnp.arange(self.shape[0])[:, None], lists.groups.spread(lists.pair), lists.following

    def pack(self, per_layer: Sequence[Any]) -> Shaped[Array, "..."]:
        """Arrange one array per layer as these layers have it.

        Args:
          per_layer: for each decision layer an array over its triples, `[X_k, A, K_k]` as in
            `from_successors` (`[X_k, A, X_{k+1}]` without lists), or over its pairs, `[X_k, A]`.

        Returns:
          An array over the triples or the pairs, 0 where there is none.

        Raises:
          ValueError: if a shape is wrong, or a number that is not 0 stands where a list has -1.

        Example:
          >>> from pdgd_jax import Layers
          >>> walk = Layers.from_successors((1, 2, 1), [[[[0, -1], [0, 1]]], [[[0]] * 2] * 2])
          >>> P = walk.pack([[[[1.0, 0.0], [0.25, 0.75]]], [[[1.0]] * 2] * 2])
          >>> walk.to_dense(P)[0, 0].tolist()
          [[1.0, 0.0], [0.25, 0.75]]
        """
        xp = numpy_for(*per_layer)  # on the host no program is needed
        arrays = [
            rectangular("the array", layer, each) if xp is np else jnp.asarray(each)
            for layer, each in enumerate(per_layer)
        ]
        count = len(self.sizes) - 1
        if len(arrays) != count:
            raise ValueError(f"there are {count} decision layers; got {len(arrays)} arrays.")
        for layer, array in enumerate(arrays):
            expected = self._layer_shape(layer)[: array.ndim]
            if array.ndim not in (2, 3) or array.ndim != arrays[0].ndim or array.shape != expected:
                raise ValueError(
                    f"the array of layer {layer} must have the shape {expected}, or that of its "
                    f"pairs, {expected[:2]}; got {array.shape}."
                )
        shape = self.shape if arrays[0].ndim == 2 else self.triple_shape
        parts = []
        for layer, array in enumerate(arrays):
            if array.ndim == 3 and self.successors is not None:
                entry, index = self._entries(layer)
                if xp is np:
                    _refuse_outside(layer, np.asarray(array), index)
                parts.append(_placed(shape[1:], (entry,), array[index]))
            else:
                parts.append(_placed(shape[1:], tuple(map(slice, array.shape)), array))
        parts += [xp.zeros_like(parts[0])] * (shape[0] - count)
        return as_array(xp.stack(parts))

    def unpack(self, array: Shaped[Array, "..."]) -> list[Shaped[Array, "..."]]:
        """Undo `pack`: one array for each decision layer, on the host's sizes."""
        if array.shape not in (self.shape, self.triple_shape):
            raise ValueError(
                f"an array over the pairs is {self.shape}, one over the triples "
                f"{self.triple_shape}; got {array.shape}."
            )
        known: Any = np.asarray(array) if is_concrete(array) else array
        parts = []
        for layer in range(len(self.sizes) - 1):
            shape = self._layer_shape(layer)
            if array.ndim == 2:
                entry, index = self._entries(layer)
                parts.append(as_array(_placed(shape, index, known[layer, entry])))
            else:
                parts.append(as_array(known[(layer, *map(slice, shape[: array.ndim - 1]))]))
        return parts

    def moved(self, other: "TripleArrays", triples: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        """An array over the triples of `other`, which `pad_to` made these layers from."""
        if self.successors is None:
            grow = growth(other.triple_shape, self.triple_shape)
            return as_array(numpy_for(triples).pad(triples, grow))
        parts = other.unpack(as_array(triples))
        shapes = map(self._layer_shape, range(len(parts)))
        grown = [
            numpy_for(part).pad(
                part, [(0, new - old) for old, new in zip(part.shape, shape, strict=True)]
            )
            for part, shape in zip(parts, shapes, strict=True)
        ]
        return self.pack(grown)

    def _layer_shape(self, layer: int) -> tuple[int, int, int]:
        """`(X_k, A, K_k)`."""
        sizes = self.sizes
        width = sizes[layer + 1] if self.successors is None else self.successors.widths[layer]
        return sizes[layer], self.shape[2], width

    def _entries(self, layer: int) -> tuple[NDArray, tuple[NDArray, ...]]:
        """The entries of a layer that hold a triple, and their places in `[X_k, A, K_k]`."""
        assert self.successors is not None
        lists = self.successors
        entry: NDArray = np.flatnonzero(np.asarray(lists.present)[layer])
        state, action = np.divmod(self._pairs_on_host()[layer, entry], self.shape[2])
        return entry, (state, action, np.asarray(lists.slot)[layer, entry])

    def _lists(self) -> list[NDArray]:
        """The lists as they were given, on the host."""
        assert self.successors is not None
        following = self.unpack(as_array(np.asarray(self.successors.following) + 1))
        return [np.asarray(each) - 1 for each in following]

    def triple_at(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """The layer, state, action and next state of an entry of an array over the triples."""
        if self.successors is None:
            return index
        layer, entry = index
        pair = int(self._pairs_on_host()[layer, entry])
        following = int(np.asarray(self.successors.following)[layer, entry])
        return (layer, *divmod(pair, self.shape[2]), following)

    # On the host, in the precision given, which JAX may not have enabled.

    def rows_on_host(self, triples: NDArray) -> NDArray:
        """`[L, S, A, n]`, whose sums over n are those over the next states of a pair."""
        if self.successors is None:
            return triples
        L, S, A = self.shape
        total = np.zeros((L, S * A), triples.dtype)
        np.add.at(total, (np.arange(L)[:, None], self._pairs_on_host()), triples)
        return total.reshape(L, S, A, 1)

    def spread_on_host(self, pairs: NDArray) -> NDArray:
        """The number of each pair at its triples, to be multiplied with an array over them."""
        if self.successors is None:
            return pairs[..., None]
        flat = pairs.reshape(len(pairs), -1)
        return np.take_along_axis(flat, self._pairs_on_host(), -1)

    def steps_on_host(self, triples: NDArray) -> "Steps":
        """The entries of an array over the triples that are not 0."""
        L, S, A = self.shape
        if self.successors is None:
            layer, pair, following = np.nonzero(triples.reshape(L, S * A, S))
            return Steps(
                layer, pair, following, triples.reshape(L, S * A, S)[layer, pair, following]
            )
        layer, entry = np.nonzero(triples)
        pair, following = self._pairs_on_host(), np.asarray(self.successors.following)
        return Steps(layer, pair[layer, entry], following[layer, entry], triples[layer, entry])

    def _pairs_on_host(self) -> NDArray:
        """The pair of each entry, `[L, M]`."""
        assert self.successors is not None
        return self.successors.groups.spread_on_host(np.asarray(self.successors.pair))


def _refuse_outside(layer: int, array: NDArray, index: tuple[NDArray, ...]) -> None:
    """Raise a `ValueError` if the array of a layer has a number where its lists have none."""
    outside = array != 0
    outside[index] = False
    where = first_place(outside)
    if where is not None:
        raise ValueError(
            f"the array of {place((layer, *where[:2]))} has {array[where]} in column {where[2]}, "
            "where its successor list has no state (-1); it must be 0 there."
        )


def _placed(shape: tuple[int, ...], index: Any, values: Any) -> Any:
    """Zeros with some values at an index; with NumPy if the host can see the values."""
    if not is_concrete(values):
        return jnp.zeros(shape, values.dtype).at[index].set(values)
    array = np.zeros(shape, values.dtype)
    array[index] = values
    return array


def growth(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[int, int]]:
    """How much to pad each axis at its end."""
    if any(b < a for a, b in zip(old, new, strict=True)):
        raise ValueError(f"cannot pad the shape (L, S, A) = {old} to the smaller {new}.")
    return [(0, b - a) for a, b in zip(old, new, strict=True)]
