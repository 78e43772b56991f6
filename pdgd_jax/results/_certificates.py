"""A certificate: one guarantee of the paper, and whether it held in each run."""

import math
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from pdgd_jax._internal.typing import NDArray

__all__ = ["Certificate", "Status", "Subject"]


class Status(StrEnum):
    """What became of a guarantee in a run."""

    HOLDS = "holds"
    FAILS = "fails"
    VACUOUS = "vacuous"
    IDLE = "does not apply"


class Subject(StrEnum):
    """What a guarantee bounds: a quantity that is drawn, or something else."""

    REGRET = "regret"
    VIOLATION = "violation"
    MULTIPLIERS = "multipliers"
    OTHER = "other"


class Certificate(NamedTuple):
    """One guarantee, and whether it held in each run.

    Attributes:
      name: what is guaranteed.
      theorem: where the paper states it.
      measured: `[...]`, of each run.
      bound: `[...]`, the guarantee: measured should not be larger. 0 if what was measured is by how
        much an interval exceeds its own bound.
      probability: with which the guarantee holds, at least.
      reason: `[...]`, why it does not apply to a run; empty where it does.
      trivial: `[...]`, what no learner whatever could exceed; a bound that is not smaller says
        nothing. Infinite where there is no such number.
      about: which quantity it bounds, in figures of which its bound is marked.
    """

    name: str
    theorem: str
    measured: Float[NDArray, "*batch"]
    bound: Float[NDArray, "*batch"]
    probability: float
    reason: NDArray
    trivial: Float[NDArray, "*batch"] | float = math.inf
    about: Subject = Subject.OTHER

    @property
    def applies(self) -> Bool[NDArray, "*batch"]:
        """Whether the guarantee applies to each run."""
        return np.asarray(self.reason == "")

    @property
    def holds(self) -> Bool[NDArray, "*batch"]:
        """Whether the guarantee applies to each run and held, where it could have failed."""
        return np.asarray(
            self.applies & (self.measured <= self.bound) & (self.bound < self.trivial)
        )

    @property
    def vacuous(self) -> Bool[NDArray, "*batch"]:
        """Whether the guarantee applies to each run, but allows all that is possible anyway."""
        return np.asarray(self.applies & (self.measured <= self.bound) & ~self.holds)

    @property
    def fails(self) -> Bool[NDArray, "*batch"]:
        """Whether the guarantee applies to each run and did not hold; NaN does not hold."""
        return np.asarray(self.applies & ~(self.measured <= self.bound))

    @property
    def distance(self) -> Float[NDArray, "*batch"]:
        """How far below the bound each run stayed."""
        return np.asarray(self.bound - self.measured)

    @property
    def status(self) -> NDArray:
        """The `Status` of each run, as text."""
        chosen = {Status.HOLDS: self.holds, Status.FAILS: self.fails, Status.VACUOUS: self.vacuous}
        names = [status.value for status in chosen]
        return np.select([*chosen.values()], names, Status.IDLE.value)
