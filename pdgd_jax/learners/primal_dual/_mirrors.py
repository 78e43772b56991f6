r"""Mirror maps: in which distance a player stays close to where it was.

$$\hat q_{t+1} = \arg\min_{q \in \Delta(\mathcal P)} \eta \, \ell^\top q + B(q, \hat q_t),$$

with $B = \tfrac12 \|q - \hat q_t\|_2^2$ or the relative entropy $D(q \| \hat q_t)$. The first is
over triples, or over pairs if the transitions are known; for the second that is the same.
"""

import dataclasses
from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float, PyTree

from pdgd_jax._internal.typing import Triples
from pdgd_jax.models import Layers, policy_of
from pdgd_jax.projection import (
    ConfidenceSet,
    EntropicInfo,
    EntropicStart,
    KnownTransitions,
    ProjectionInfo,
    Solver,
    cold_start,
    project,
    project_entropic,
)

__all__ = ["Entropic", "Euclidean", "Mirror", "Point", "Step"]


class Point(NamedTuple):
    r"""Where a player is.

    Attributes:
      occupancy: over the triples, $\hat q_t$.
      log_occupancy: $\ln \hat q_t$, where the mirror map works with logarithms: occupancies become
        too small for floating point numbers, and their quotients are the policy.
    """

    occupancy: Triples
    log_occupancy: Triples | None = None

    @property
    def logarithm(self) -> Triples:
        """The logarithm of a point of an entropic player."""
        assert self.log_occupancy is not None
        return self.log_occupancy


class Step(NamedTuple):
    """Where a player goes, and how well the projection to there was solved."""

    point: Point
    warm_start: PyTree
    info: ProjectionInfo | EntropicInfo


@dataclasses.dataclass(frozen=True)
class Euclidean:
    """Half the squared Euclidean distance.

    Attributes:
      solver: of the projection.
    """

    solver: str | Solver = "newton"

    def cold(self, layers: Layers, dtype: DTypeLike) -> PyTree:
        """The warm start of the first projection."""
        return cold_start(layers, self.solver, dtype)

    def at(self, occupancy: Triples) -> Point:
        """The point with this occupancy."""
        return Point(occupancy)

    def policy(self, layers: Layers, point: Point) -> Float[Array, "layers states actions"]:
        """The policy of a point, uniform in states without mass."""
        return policy_of(point.occupancy, layers)

    def mixed(self, point: Point, uniform: Triples, weight: Float[Array, ""]) -> Point:
        """A share of the point is replaced by the uniform occupancy."""
        return Point((1 - weight) * point.occupancy + weight * uniform)

    def step(
        self,
        layers: Layers,
        point: Point,
        step_size: Float[Array, ""],
        loss: Float[Array, "layers states actions"],
        allowed: ConfidenceSet | KnownTransitions,
        warm_start: PyTree,
    ) -> Step:
        """A gradient step and its projection."""
        if isinstance(allowed, KnownTransitions):
            target = layers.to_pairs(point.occupancy) - step_size * loss
        else:
            target = point.occupancy - step_size * layers.to_triples(loss)
        found = project(layers, target, allowed, solver=self.solver, warm_start=warm_start)
        return Step(Point(found.occupancy), found.warm_start, found.info)


@dataclasses.dataclass(frozen=True)
class Entropic:
    """The relative entropy."""

    def cold(self, layers: Layers, dtype: DTypeLike) -> EntropicStart:
        """Potentials of zero, near the solution wherever steps are short."""
        L, S, _ = layers.shape
        return EntropicStart(jnp.zeros((L, S), dtype), jnp.zeros(0, dtype))

    def at(self, occupancy: Triples) -> Point:
        """The point with this occupancy."""
        positive = occupancy > 0
        logarithm = jnp.log(jnp.where(positive, occupancy, 1))
        return Point(occupancy, jnp.where(positive, logarithm, -jnp.inf))

    def policy(self, layers: Layers, point: Point) -> Float[Array, "layers states actions"]:
        """The policy of a point, from logarithms: exact where the mass of a state underflows."""
        log = point.logarithm
        if layers.successors is not None:
            log = jnp.where(layers.to_dense(layers.triple_mask), layers.to_dense(log), -jnp.inf)
        largest = log.max((2, 3), keepdims=True)
        scaled = jnp.exp(log - jnp.where(largest > -jnp.inf, largest, 0))
        return policy_of(scaled, layers.without_lists())

    def mixed(self, point: Point, uniform: Triples, weight: Float[Array, ""]) -> Point:
        """A share of the point is replaced by the uniform occupancy."""
        theirs = self.at(weight * uniform).logarithm
        log = jnp.logaddexp(jnp.log1p(-weight) + point.logarithm, theirs)
        return Point(jnp.exp(log), log)

    def step(
        self,
        layers: Layers,
        point: Point,
        step_size: Float[Array, ""],
        loss: Float[Array, "layers states actions"],
        allowed: ConfidenceSet | KnownTransitions,
        warm_start: EntropicStart,
    ) -> Step:
        """A multiplicative step and its projection."""
        target = point.logarithm - layers.to_triples(step_size * loss)
        found = project_entropic(layers, target, allowed, warm_start=warm_start)
        following = Point(found.occupancy, found.log_occupancy)
        return Step(following, found.warm_start, found.info)


Mirror: TypeAlias = Euclidean | Entropic
