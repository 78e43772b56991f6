r"""Known transitions $P$, with distances over pairs: cones that are rays.

$$\min_s \tfrac12 \sum_{x,a} (s_{xa} - v_{xa})^2 \quad \text{over the flows} \quad q = s P, \qquad
s_{xa} = \big[v_{xa} + y(x) - \textstyle\sum_{x'} P(x' \mid x,a) \, y(x')\big]_+.$$

A `ConfidenceSet` of radius 0 has the same rays, but measures distances over triples, and weighs a
pair by $\|P(\cdot \mid x,a)\|_2^2$. Here the target of a pair is the mean of its targets over
triples, $v_{xa} = \sum_{x'} P(x' \mid x,a) \, u(x,a,x')$. The mean is linear, so potentials may be
added to $u$ as well as to $v$. So the problem is held as one of radius 0, and only its cones
differ.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array

from pdgd_jax.projection._cone import ABSENT, ConePieces, Entries
from pdgd_jax.projection._layout import Cones
from pdgd_jax.projection.newton._dense import DenseProblem
from pdgd_jax.projection.newton._lists import ListCones, ListProblem, half_lines

__all__ = ["AnyCones", "AnyProblem", "RayCones", "RayProblem", "has_lists"]


class RayCones(NamedTuple):
    """The rays of a batch, with the methods of `Cones`; the one entry of a ray is its mass."""

    base: Cones | ListCones  # of radius 0
    target: Entries  # [1, C B], or that of each group

    @classmethod
    def of(cls, base: Cones | ListCones) -> "RayCones":
        """The rays in the cones of radius 0."""

        def present(x: Array) -> Array:
            return jnp.where(x > ABSENT / 2, jnp.ones_like(x), 0)

        exists = base.totals(jax.tree.map(present, base.target)) > 0
        mean = base.totals(jax.tree.map(jnp.multiply, base.center, base.target))
        return cls(base, base.spread(jnp.where(exists, mean, ABSENT)))

    @property
    def half_radius(self) -> Array:
        """Zeros, `[C B]`."""
        return self.base.half_radius

    @property
    def last(self) -> Array:
        """The target of the last layer."""
        return self.base.last

    @property
    def free(self) -> Array:
        """0 where the potential is fixed, else 1."""
        return self.base.free

    @property
    def lane_size(self) -> int:
        """The number of variables of a lane."""
        return self.base.lane_size

    def around(self, potential: Array) -> tuple[Array, Entries]:
        """The potentials of each ray's state, and the mean of its next states'."""
        here, ahead = self.base.around(potential)
        mean = self.base.totals(jax.tree.map(jnp.multiply, self.base.center, ahead))
        return here, self.base.spread(mean)

    def spread(self, per_cone: Array) -> Entries:
        """A number of each ray, shaped as its entry."""
        return self.base.spread(per_cone)

    def totals(self, entries: Entries) -> Array:
        """The entry of each ray, `[C B]`."""
        return jnp.concatenate([x[0] for x in jax.tree.leaves(entries)])

    def pieces(self, point: Entries, mass: Array, *, exact: bool) -> ConePieces:
        """The pieces of every ray: there is nothing to search."""
        del mass, exact
        found = half_lines(self.totals(point)[None])

        def by_group(entries: Array) -> Entries:
            return self.base.spread(entries[0])

        return found._replace(
            value=by_group(found.value), weight=by_group(found.weight), block=by_group(found.block)
        )

    def triples(self, entries: Entries) -> Entries:
        """What the entries are over the triples, $q = s P$."""
        return jax.tree.map(jnp.multiply, self.base.center, entries)

    def in_base(self, pieces: ConePieces) -> ConePieces:
        """The pieces with their Jacobian over the triples: a mean in, a share of the mass out."""
        nothing = jax.tree.map(jnp.zeros_like, self.base.center)
        return pieces._replace(weight=self.base.center, block=nothing)

    def outflow(self, mass: Array, last: Array) -> Array:
        """What leaves each state, `[L, S, B]`."""
        return self.base.outflow(mass, last)

    def inflow(self, entries: Entries, last: Array) -> Array:
        """What enters each state of every layer but the first, `[L-1, S, B]`."""
        return self.base.inflow(self.triples(entries), last)

    def margin(self, residual: Array, share: float) -> Array:
        """The margin by which closed states are opened, `[B]`."""
        return self.base.margin(residual, share)


class RayProblem(NamedTuple):
    """A batch with known transitions, with the methods of `DenseProblem`.

    Attributes:
      base: the same of radius 0, whose targets have that of their pair as the mean.
    """

    base: DenseProblem | ListProblem

    @property
    def sound(self) -> Array:
        """`[B]`, false if the input of the lane was invalid."""
        return self.base.sound

    def cones(self) -> RayCones:
        """The rays side by side."""
        return RayCones.of(self.base.cones())

    def opened(self, potential: Array, margin: Array) -> Array:
        """The potentials, raised in closed states until they are open by the margin."""
        return self.base.opened(potential, margin)

    def shifted(self, potential: Array) -> "RayProblem":
        """The same problem with potentials moved into the target."""
        return RayProblem(self.base.shifted(potential))

    def normalised(self) -> "RayProblem":
        """The same with transitions that sum to one in the present precision."""
        return RayProblem(self.base.normalised())

    def assembled(self, value: Entries, last: Array) -> Array:
        """The occupancy over the triples."""
        return self.base.assembled(self.cones().triples(value), last)

    def feasible(self, occupancy: Array) -> Array:
        """A feasible occupancy near an infeasible one."""
        return self.base.feasible(occupancy)

    def returned(self, occupancy: Array) -> Array:
        """The occupancy as it is returned, with the lanes last; NaN for invalid input."""
        return self.base.returned(occupancy)


AnyCones: TypeAlias = Cones | ListCones | RayCones
AnyProblem: TypeAlias = DenseProblem | ListProblem | RayProblem


def has_lists(batch: AnyCones | AnyProblem) -> bool:
    """Whether a batch holds the triples of successor lists alone."""
    base = batch.base if isinstance(batch, RayCones | RayProblem) else batch
    return isinstance(base, ListCones | ListProblem)
