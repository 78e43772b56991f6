"""Frozen dataclasses that are pytrees. Their checks run only when a user builds one."""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, DTypeLike, Float

__all__ = ["as_array", "as_float", "is_concrete", "numpy_for", "pytree", "static"]

T = TypeVar("T")
Meta = tuple[object, ...]


def static(**kwargs: Any) -> Any:
    """A dataclass field in the tree's structure: it must be hashable; a new value recompiles."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass and a pytree.

    `__post_init__` runs when a user calls the constructor, so checks belong there. JAX rebuilds
    trees without it: inside a transformation the leaves may be tracers, batched, or not arrays at
    all, and nothing can be checked. (`jax.tree_util.register_dataclass` calls the constructor there
    too: https://github.com/jax-ml/jax/issues/25486.)
    """
    if hasattr(cls, "__post_init__"):
        # Annotations describe what the fields hold; such a constructor accepts anything it can
        # convert. So tests that execute annotations (jaxtyping) skip its arguments.
        unchecked: Any = cls
        unchecked.__no_type_check__ = True
    has_repr = cls.__repr__ is not object.__repr__
    cls = dataclasses.dataclass(frozen=True, eq=False, repr=not has_repr)(cls)
    dataclass: Any = cls
    fields = dataclasses.fields(dataclass)
    data = [f.name for f in fields if not f.metadata.get("static")]
    meta = [f.name for f in fields if f.metadata.get("static")]

    def flatten_with_keys(tree: T) -> tuple[list[tuple[object, object]], Meta]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(tree, name)) for name in data]
        return children, tuple(getattr(tree, name) for name in meta)

    def flatten(tree: T) -> tuple[list[object], Meta]:
        return [getattr(tree, name) for name in data], tuple(getattr(tree, n) for n in meta)

    def unflatten(aux: Meta, children: Iterable[object]) -> T:
        tree = object.__new__(cls)
        for name, value in zip(data, children, strict=True):
            object.__setattr__(tree, name, value)
        for name, value in zip(meta, aux, strict=True):
            object.__setattr__(tree, name, value)
        return tree

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def is_concrete(*arrays: object) -> bool:
    """Whether the host can read the values of all arrays (none is a tracer)."""
    return not any(isinstance(array, jax.core.Tracer) for array in arrays)


def numpy_for(*arrays: object) -> Any:
    """NumPy if the host can look at all arrays, else `jax.numpy`.

    On the host every operation of JAX is a program of its own, which takes 10 ms to load even if it
    was compiled long ago.
    """
    return np if is_concrete(*arrays) else jnp


def as_array(values: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """`jnp.asarray`, but without a program where the host has the numbers."""
    if not is_concrete(values) or isinstance(values, Array):
        return jnp.asarray(values, dtype)
    dtype = None if dtype is None else jnp.result_type(dtype)
    return jax.device_put(np.asarray(values, dtype))


def as_float(values: ArrayLike) -> Float[Array, "..."]:
    """`values` as a floating point array: a float type is kept, others become JAX's default."""
    array = as_array(values)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(jnp.result_type(float))
    return array
