"""Confidence sets over transition functions."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pdgd_jax._internal.checks import first_place, place
from pdgd_jax._internal.pytree import as_float, is_concrete, pytree
from pdgd_jax._internal.typing import NDArray, Triples
from pdgd_jax.models import Layers
from pdgd_jax.projection._box import BoxSet
from pdgd_jax.projection._known import KnownTransitions

__all__ = ["ConfidenceSet", "contains"]


@pytree
class ConfidenceSet:
    r"""The transition functions within an L1 distance of an estimate, pair by pair.

    $\mathcal P = \{\hat P : \|\hat P(\cdot \mid x,a) - \bar P(\cdot \mid x,a)\|_1 \le
    \epsilon(x,a) \;\; \forall (x,a)\}$. A radius of 0 means a known transition; a radius of 2 or
    more allows every transition.

    Args:
      center: `[L, S, A, S]`, $\bar P$; for every valid pair a distribution over the next layer.
        `[L, M]` for layers with successor lists (see `Layers.pack`).
      radius: `[L, S, A]`, $\epsilon \ge 0$.

    Raises:
      ValueError: if the shapes disagree, or a number cannot be a probability or a radius.

    Example:
      >>> from pdgd_jax import make
      >>> mdp = make("random").mdp
      >>> known = ConfidenceSet(mdp.transition, 0 * mdp.layers.uniform_policy())
      >>> known.center.shape, known.radius.shape
      ((4, 4, 3, 4), (4, 4, 3))
    """

    center: Float[Array, "..."]
    radius: Float[Array, "*batch layers states actions"]

    def __post_init__(self) -> None:
        center, radius = np.shape(self.center), np.shape(self.radius)
        dense = len(center) == 4 and center[:3] == radius and center[3] == center[1]
        packed = len(center) == 2 and len(radius) == 3 and center[0] == radius[0]
        if not (dense or packed):
            raise ValueError(
                "a confidence set has a center [L, S, A, S] and a radius [L, S, A], or a center "
                f"[L, M] with successor lists; got the shapes {center} and {radius}."
            )
        if is_concrete(self.center, self.radius):
            _refuse_negative("center", np.asarray(self.center))
            _refuse_negative("radius", np.asarray(self.radius))
        object.__setattr__(self, "center", as_float(self.center))
        object.__setattr__(self, "radius", as_float(self.radius))


def _refuse_negative(name: str, values: NDArray) -> None:
    with np.errstate(invalid="ignore"):
        wrong = ~(values >= 0) | (np.isinf(values) if name == "center" else False)
    where = first_place(wrong)
    if where is not None:
        what = "a probability" if name == "center" else "at least 0"
        at = place(where[:3]) if values.ndim != 2 else f"layer {where[0]}, triple {where[1]}"
        raise ValueError(f"the {name} of {at} is {values[where]:.6g}; it must be {what}.")


def contains(
    confidence: ConfidenceSet | BoxSet | KnownTransitions,
    transition: Triples,
    layers: Layers | None = None,
) -> Bool[Array, ""]:
    r"""The event $P \in \mathcal P_i$, up to rounding. Successor lists need their layers."""
    if not isinstance(confidence, ConfidenceSet):
        return confidence.contains(transition)
    if transition.shape != confidence.center.shape or (layers is None and transition.ndim == 2):
        raise ValueError(
            "a transition has the shape of the center, and [L, M] belongs to successor lists: pass "
            f"their layers, too; got the shapes {transition.shape} and {confidence.center.shape}."
        )
    away = jnp.abs(transition - confidence.center)
    distance = away.sum(-1) if layers is None else layers.to_pairs(away)
    rounding = 8 * jnp.finfo(distance.dtype).eps
    return (distance <= confidence.radius + rounding).all()
