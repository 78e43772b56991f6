"""Many runs at once: the only `vmap` over runs, and the only place that knows about devices.

A program plays `width` lanes on each device. The lanes of a device form a block with one episode
counter, and blocks may be at different episodes. The results of a device do not depend on the
other devices or on their number.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Key, PyTree

from pdgd_jax.learners import Learner
from pdgd_jax.models import CMDP
from pdgd_jax.simulation._loop import (
    Carry,
    advance,
    start,
)
from pdgd_jax.simulation._metrics import Metrics
from pdgd_jax.simulation._reference import Comparators

__all__ = [
    "BatchProgram",
    "LaneInputs",
    "as_arrays",
    "from_arrays",
    "stacked",
    "wait",
]

_LANES = PartitionSpec("lanes")


class LaneInputs(NamedTuple):
    """The CMDP and the learner of a lane, and what its regret is measured against."""

    cmdp: CMDP
    learner: Learner
    comparators: Comparators


def stacked(whats: Sequence[LaneInputs]) -> LaneInputs:
    """The inputs of several lanes stacked along a leading axis, on the host."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *whats)


class BatchProgram:
    """Plays one block of lanes on each device at the same time.

    It compiles once for all blocks whose arrays have the same shapes.

    Args:
      devices: one device for each block.
    """

    def __init__(self, devices: Sequence[jax.Device]) -> None:
        mesh = Mesh(np.array(devices), ("lanes",))
        self.blocks = len(devices)
        self._sharding = NamedSharding(mesh, _LANES)
        self._begin, self._play = _programs(mesh)

    def place(self, tree: PyTree) -> PyTree:
        """Put arrays on the devices; the blocks follow each other along the first axis."""
        return jax.device_put(tree, self._sharding)

    def begin(self, keys: Key[Any, " lanes"], what: LaneInputs) -> Carry:
        """Start runs; all arguments must have been placed with `place`."""
        carry: Carry = self._begin(keys, what)
        return carry

    def play(
        self, carry: Carry, what: LaneInputs, stops: Int[np.ndarray, "blocks stops"]
    ) -> tuple[Carry, Metrics, Array]:
        """Play every block up to each of its stops.

        Args:
          carry: the state of the lanes.
          what: the inputs of the lanes.
          stops: the stops of each block, in increasing order; a stop already reached plays nothing.

        Returns:
          The lanes at the last stop, their metrics `[stops, lanes, ...]` and their policies. The
          call returns at once, before the arrays are ready; see `wait`.
        """
        placed = self.place(np.asarray(stops, np.int32))
        played: tuple[Carry, Metrics, Array] = self._play(carry, what, placed)
        return played


def wait(tree: PyTree) -> None:
    """Wait for arrays, and let Python handle signals in the meantime."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if not _is_key(leaf)]
    pause = 1e-4
    while not all(leaf.is_ready() for leaf in leaves):
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    jax.block_until_ready(leaves)  # raises any error of the computation


@cache
def _programs(mesh: Mesh) -> tuple[Callable[..., Any], Callable[..., Any]]:
    across = partial(jax.shard_map, mesh=mesh, check_vma=False)
    # Explicit output shardings: otherwise passing the output in again would compile a second time.
    placed = NamedSharding(mesh, _LANES)
    rows = PartitionSpec(None, "lanes")
    begin = across(_begin, in_specs=(_LANES, _LANES), out_specs=_LANES)
    play = across(_play, in_specs=(_LANES, _LANES, _LANES), out_specs=(_LANES, rows, _LANES))
    return (
        jax.jit(begin, out_shardings=placed),
        jax.jit(play, out_shardings=(placed, NamedSharding(mesh, rows), placed)),
    )


def _begin(keys: Array, what: LaneInputs) -> Carry:
    return jax.vmap(lambda key, lane: start(key, *lane))(keys, what)


def _play(carry: Carry, what: LaneInputs, stops: Array) -> tuple[Carry, Metrics, Array]:
    """Play the lanes of one device up to each of its stops `[1, n]`."""

    def to_stop(carry: Carry, until: Array) -> tuple[Carry, Metrics]:
        # All lanes are at the same episode. They share one counter; with one each, `vmap` would
        # turn the loop into a selection of lanes.
        episode = carry.episode[0]

        def lane(lane: Carry, what: LaneInputs) -> Carry:
            here = lane._replace(episode=episode)
            return advance(here, what.cmdp, what.learner, until, what.comparators)

        carry = jax.vmap(lane)(carry, what)
        return carry, carry.metrics

    carry, rows = lax.scan(to_stop, carry, stops[0])
    policy = jax.vmap(lambda lane, what: what.learner.policy(lane.learner))(carry, what)
    return carry, rows, policy


# Arrays by name, for files.


def as_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """The leaves of a tree by name, on the host; random keys as their raw data."""
    return {
        _name(path): np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def from_arrays(like: PyTree, arrays: Mapping[str, np.ndarray]) -> PyTree:
    """A tree with the structure of `like` and the leaves that `as_arrays` returned.

    Raises:
      ValueError: if an array is missing, or has another shape or type.
    """

    def leaf(path: PyTree, old: PyTree) -> PyTree:
        name = _name(path)
        shape, dtype = old.shape, old.dtype
        if _is_key(old):
            data = jax.eval_shape(jax.random.key_data, old)
            shape, dtype = data.shape, data.dtype
        found = arrays.get(name)
        if found is None or found.shape != shape or found.dtype != dtype:
            there = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            raise ValueError(f"{name!r} should be {dtype}{list(shape)}; there is {there}.")
        return jax.random.wrap_key_data(jnp.asarray(found)) if _is_key(old) else found

    return jax.tree_util.tree_map_with_path(leaf, like)


def _name(path: PyTree) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_key(leaf: PyTree) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
