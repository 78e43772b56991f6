"""What is wrong with the arguments of a plan, said on the host in a sentence."""

import numpy as np
from jaxtyping import Array

from pdgd_jax.models import Layers
from pdgd_jax.planning._model import TransitionSet
from pdgd_jax.projection import BoxSet, ConfidenceSet, KnownTransitions, check_set

__all__ = ["check_plan"]


def check_plan(
    layers: Layers, confidence: TransitionSet, **arrays: tuple[Array, tuple[int, ...]]
) -> None:
    """Raise a `ValueError` unless the set belongs to the layers and each array has its shape."""
    if not isinstance(confidence, ConfidenceSet | BoxSet | KnownTransitions):
        raise ValueError(
            "the transitions are a ConfidenceSet, a BoxSet or KnownTransitions; got "
            f"{type(confidence).__name__}."
        )
    if layers.action_mask.ndim != 3:
        raise ValueError(
            f"a plan takes one instance; these layers are a stack, {layers.action_mask.shape}. "
            "Use jax.vmap, or planning.optimum."
        )
    for name, (array, shape) in arrays.items():
        if np.shape(array) != shape:
            raise ValueError(f"the {name} must have the shape {shape}; got {np.shape(array)}.")
    check_set(layers, confidence)
