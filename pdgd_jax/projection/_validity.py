"""What is wrong with the arguments of a projection, said on the host in a sentence."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pdgd_jax._internal.checks import check_sums, first_place, place
from pdgd_jax._internal.pytree import is_concrete
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import Layers
from pdgd_jax.projection._box import BoxSet
from pdgd_jax.projection._confidence import ConfidenceSet
from pdgd_jax.projection._known import KnownTransitions

__all__ = ["LARGEST_TARGET", "LOOSE", "TransitionSet", "check_arguments", "check_set"]

TransitionSet = ConfidenceSet | BoxSet | KnownTransitions

# Larger than any meaningful target, and smaller than the mark of absent entries (see `_cone.py`).
LARGEST_TARGET = 1e20

# How far the sum of a row may be from 1: an estimate is a quotient of counts, perhaps in float32.
LOOSE = 1e-3


def check_arguments(
    layers: Layers,
    target: Array,
    confidence: TransitionSet,
    *,
    over_pairs: bool = False,
    logarithmic: bool = False,
) -> None:
    """Raise an error if shapes disagree or, outside `jit`, a number is invalid.

    Args:
      layers: the states and actions.
      target: over the triples.
      confidence: the set.
      over_pairs: whether the target is over the pairs instead.
      logarithmic: whether it is the logarithm of a target, which may be zero.
    """
    wanted = layers.shape if over_pairs else layers.triple_shape
    _check_shapes(("target", target, wanted), *_shapes(layers, confidence))
    if not jnp.issubdtype(target.dtype, jnp.floating):
        raise ValueError(f"the target must be floating point; it is {target.dtype}.")
    if not is_concrete(*jax.tree.leaves((layers, target, confidence))):
        return
    pairs, present = np.asarray(layers.action_mask), layers.possible()
    _check_target(layers, np.asarray(target), pairs if over_pairs else present, logarithmic)
    _check_rows(layers, confidence, present)


def check_set(layers: Layers, confidence: TransitionSet) -> None:
    """Raise an error if a set has other shapes than the layers or, outside `jit`, is invalid."""
    _check_shapes(*_shapes(layers, confidence))
    if is_concrete(*jax.tree.leaves((layers, confidence))):
        _check_rows(layers, confidence, layers.possible())


def _check_shapes(*arrays: tuple[str, Array, tuple[int, ...]]) -> None:
    for name, array, shape in arrays:
        if array.shape != shape:
            raise ValueError(f"the {name} must have the shape {shape}; got {array.shape}.")


def _shapes(layers: Layers, confidence: TransitionSet) -> list[tuple[str, Array, tuple[int, ...]]]:
    triples = layers.triple_shape
    if isinstance(confidence, BoxSet):
        return [("lower bound", confidence.lower, triples)]
    if isinstance(confidence, KnownTransitions):
        return [("transition", confidence.transition, triples)]
    return [
        ("center of the confidence set", confidence.center, triples),
        ("radius of the confidence set", confidence.radius, layers.shape),
    ]


def _check_target(layers: Layers, target: NDArray, there: NDArray, logarithmic: bool) -> None:
    fine = np.abs(target) < LARGEST_TARGET
    if logarithmic:
        fine |= target == -np.inf
    where = first_place(~fine & there)
    if where is None:
        return
    at = place(where if there.shape == layers.shape else layers.triple_at(where))
    has, or_zero = ("has the logarithm", ", or minus infinity") if logarithmic else ("is", "")
    raise ValueError(
        f"the target of {at} {has} {target[where]}; "
        f"it must be a number of size below {LARGEST_TARGET:g}{or_zero}."
    )


def _check_rows(layers: Layers, confidence: TransitionSet, present: NDArray) -> None:
    pairs = np.asarray(layers.action_mask)

    def rows(values: Array) -> NDArray:
        return layers.rows_on_host(np.where(present, np.asarray(values), 0))

    if isinstance(confidence, BoxSet):
        least, most = rows(confidence.lower).sum(-1), rows(confidence.upper).sum(-1)
        where = first_place(~((least < 1 + LOOSE) & (most > 1 - LOOSE)) & pairs)
        if where is not None:
            raise ValueError(
                f"the bounds of {place(where)} sum to {least[where]:.9g} and {most[where]:.9g} "
                "over the next layer; there must be a distribution between them."
            )
        return
    if isinstance(confidence, KnownTransitions):
        name, center = "the transition", confidence.transition
    else:
        name, center = "the center", confidence.center
    check_sums(
        name,
        rows(center),
        LOOSE,
        pairs,
        over=" over the next layer",
        must="it must be a distribution (for a pair never visited, any one will do)",
    )
    if isinstance(confidence, ConfidenceSet):
        radius = np.asarray(confidence.radius)
        where = first_place(~(radius >= 0) & pairs)
        if where is not None:
            raise ValueError(
                f"the radius of {place(where)} is {radius[where]}; it must be at least 0."
            )
