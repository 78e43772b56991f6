"""A certificate: one guarantee of the paper, and whether it held in each run."""

import math
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from pdgd_jax._internal.typing import NDArray

__all__ = ["Certificate", "Status", "Subject"]


class Status(StrEnum):
    """The outcome of a guarantee in a run."""

    HOLDS = "holds"
    FAILS = "fails"
    VACUOUS = "vacuous"
    IDLE = "does not apply"


class Subject(StrEnum):
    """What a guarantee bounds: a quantity that figures show, or something else."""

    REGRET = "regret"
    VIOLATION = "violation"
    MULTIPLIERS = "multipliers"
    OTHER = "other"


class Certificate(NamedTuple):
    """One guarantee, and whether it held in each run.

    Attributes:
      name: what is guaranteed.
      theorem: where the paper states it.
      measured: `[...]`, the measured value of each run.
      bound: `[...]`, the guarantee: `measured` should not exceed it. 0 if `measured` is the amount
        by which an interval exceeds its bound.
      probability: the guarantee holds with at least this probability.
      reason: `[...]`, why it does not apply to a run; empty where it does.
      trivial: `[...]`, a value that no learner can exceed; a bound of this size or more is vacuous.
        Infinite if there is no such value.
      about: the quantity that it bounds; figures of this quantity mark the bound.
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
        """Whether the guarantee applies to each run, could have failed, and held."""
        return np.asarray(
            self.applies & (self.measured <= self.bound) & (self.bound < self.trivial)
        )

    @property
    def vacuous(self) -> Bool[NDArray, "*batch"]:
        """Whether the guarantee applies to each run, but could not have failed."""
        return np.asarray(self.applies & (self.measured <= self.bound) & ~self.holds)

    @property
    def fails(self) -> Bool[NDArray, "*batch"]:
        """Whether the guarantee applies to each run and failed; NaN counts as failed."""
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
