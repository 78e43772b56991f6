"""A batch of projections whose arrays are dense, as the loops of the solver see it."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from pdgd_jax.projection._layout import Cones, assemble
from pdgd_jax.projection._opening import opened
from pdgd_jax.projection._problem import (
    Problem,
    entries_last,
    feasible_point,
    next_states_sum,
    per_lane,
    point_at,
)

__all__ = ["DenseProblem"]


class DenseProblem(NamedTuple):
    """`Problem` with the methods that `ListProblem` has, too."""

    problem: Problem

    @property
    def sound(self) -> Array:
        """`[B]`, false if the input of the lane was invalid."""
        return self.problem.sound

    def cones(self) -> Cones:
        """The cones side by side."""
        return Cones.of(self.problem)

    def opened(self, potential: Array, margin: Array) -> Array:
        """The potentials, raised in closed states until they are open by the margin."""
        return opened(self.problem, potential, margin)

    def shifted(self, potential: Array) -> "DenseProblem":
        """The same problem with potentials moved into the target."""
        return DenseProblem(self.problem._replace(target=point_at(self.problem, potential)))

    def normalised(self) -> "DenseProblem":
        """The same with centers that sum to one in the present precision."""
        center = self.problem.center
        total = next_states_sum(center)
        center = center / jnp.where(total > 0, total, 1)[None]
        return DenseProblem(self.problem._replace(center=center))

    def assembled(self, value: Array, last: Array) -> Array:
        """The occupancy `[S', L, S, A, B]` of the cones' projections."""
        return assemble(self.problem, value, last)

    def feasible(self, occupancy: Array) -> Array:
        """A feasible occupancy near an infeasible one."""
        return feasible_point(self.problem, occupancy)

    def returned(self, occupancy: Array) -> Array:
        """The occupancy as it is returned, with the lanes last; NaN for invalid input."""
        return entries_last(jnp.where(per_lane(self.sound, 5), occupancy, jnp.nan))
