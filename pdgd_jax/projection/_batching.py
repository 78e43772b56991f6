"""Batches of projections: `vmap` of a batch is a larger batch, solved in groups of lanes.

The Newton solver and the entropic projection share it. Here the lanes of a batch are the *first*
axis, as in `vmap`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jaxtyping import Array, DTypeLike, PyTree

__all__ = ["GroupOptions", "merging", "types_of"]


@runtime_checkable
class GroupOptions(Protocol):
    """How many variables a group has; hashable."""

    @property
    def variables_at_once(self) -> int:
        """On accelerators."""

    @property
    def variables_at_once_cpu(self) -> int:
        """On the CPU, whose caches are small."""


@runtime_checkable
class Batch(Protocol):
    """The arguments of a batch, as a pytree: every array has an axis for the lanes."""

    @property
    def target(self) -> Array:
        """What is projected."""

    @property
    def warm_start(self) -> PyTree:
        """Where the projections start."""

    @property
    def tolerance(self) -> Array:
        """One number a lane."""


LanesT = TypeVar("LanesT", bound=Batch)
ResultT = TypeVar("ResultT")


def _in_groups(
    solve: Callable[[LanesT], ResultT], variables_at_once: int, lanes: LanesT
) -> ResultT:
    num_lanes = lanes.tolerance.shape[0]
    size = max(1, variables_at_once // lanes.target[0].size)
    if num_lanes <= size:
        return solve(lanes)
    if size == 1:  # an axis of length 1 would cost a copy of all arrays

        def single(lane: LanesT) -> ResultT:
            return jax.tree.map(lambda x: x[0], solve(jax.tree.map(lambda x: x[None], lane)))

        return lax.map(single, lanes)
    num_groups = -(-num_lanes // size)
    size = -(-num_lanes // num_groups)
    spare = num_groups * size - num_lanes  # lanes of the first group fill up the last group

    def grouped(x: Array) -> Array:
        return jnp.concatenate([x, x[:spare]]).reshape(num_groups, size, *x.shape[1:])

    results = lax.map(solve, jax.tree.map(grouped, lanes))
    return jax.tree.map(lambda x: x.reshape(num_groups * size, *x.shape[2:])[:num_lanes], results)


def merging(
    solve: Callable[[LanesT], ResultT],
    options: GroupOptions,
    types: Callable[[LanesT], ResultT],
) -> Callable[[LanesT], ResultT]:
    """`solve` in groups of lanes, such that `vmap` of a batch is a larger batch.

    Args:
      solve: solves a batch.
      options: the size of a group.
      types: the types of the results for those of the lanes, see `types_of`.
    """

    def project_batch(lanes: LanesT) -> ResultT:
        leaves, structure = jax.tree.flatten(lanes)
        static = {"solve": solve, "options": options, "structure": structure, "types": types}
        results = _batch.bind(*leaves, **static)
        like = types(jax.tree.map(jax.typeof, lanes))
        return jax.tree.unflatten(jax.tree.structure(like), results)

    return project_batch


class Types(NamedTuple):
    """The types of arrays of a batch; a type knows how to `update` itself."""

    target: Any
    warm_start: PyTree

    def of_lane(self, dtype: DTypeLike) -> Any:
        """One number a lane."""
        return self.target.update(shape=self.target.shape[:1], dtype=jnp.dtype(dtype))


def types_of(lanes: Batch) -> Types:
    """The types of what is returned in the shapes of the target and of the warm start."""
    given: Any = lanes.target
    target = given.update(weak_type=False)
    warm_start = jax.tree.map(lambda x: target.update(shape=x.shape), lanes.warm_start)
    return Types(target, warm_start)


# A batch is a JAX primitive that knows the types of its results. So JAX traces the solver only when
# it knows the size of the batch and its platform. `custom_vmap` would first trace it for one lane
# in vain, which takes a fifth of the time before a run compiles. JAX may change these interfaces
# with a minor version; a test fails on one that nobody has looked at (`_xla.LOOKED_AT`).
_batch = Primitive("project_batch")
_batch.multiple_results = True


def _abstract(*leaves: Any, structure: Any, types: Any, **_: Any) -> list[Any]:
    return jax.tree.leaves(types(jax.tree.unflatten(structure, leaves)))


_compiled = jax.jit(_batch.bind, static_argnames=("solve", "options", "structure", "types"))


def _run(*leaves: Array, **static: Any) -> list[Array]:
    with jax.disable_jit(False):  # a primitive has no other implementation to run
        results: list[Array] = _compiled(*leaves, **static)
    return results


def _merge(
    leaves: Sequence[Array], axes: Sequence[int | None], **static: Any
) -> tuple[list[Array], list[int]]:
    """`vmap` of a batch: a larger batch."""
    size = next(x.shape[axis] for x, axis in zip(leaves, axes, strict=True) if axis is not None)

    def widen(x: Array, axis: int | None) -> Array:
        wide = jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        return wide.reshape(wide.shape[0] * wide.shape[1], *wide.shape[2:])  # -1 fails if empty

    merged = _batch.bind(*map(widen, leaves, axes), **static)
    return [x.reshape(size, len(x) // size, *x.shape[1:]) for x in merged], [0] * len(merged)


def _lowered(at_once: str) -> Any:
    def solved(*leaves: Array, solve: Any, options: Any, structure: Any, **_: Any) -> list[Array]:
        lanes = jax.tree.unflatten(structure, leaves)
        return jax.tree.leaves(_in_groups(solve, getattr(options, at_once), lanes))

    return mlir.lower_fun(solved, multiple_results=True)


_batch.def_abstract_eval(_abstract)
_batch.def_impl(_run)
batching.primitive_batchers[_batch] = _merge
mlir.register_lowering(_batch, _lowered("variables_at_once"))
mlir.register_lowering(_batch, _lowered("variables_at_once_cpu"), platform="cpu")
