"""How runs ended, as numbers and in words."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray

from pdgd_jax._words import number_in_words
from pdgd_jax.curves import Cell

__all__ = [
    "BAND",
    "MEASURES",
    "End",
    "Measure",
    "end_of",
    "last",
]

NDArray = np.ndarray[Any, np.dtype[Any]]

BAND = (0.1, 0.9)


class Measure(NamedTuple):
    """Something to compare runs by.

    Attributes:
      name: what it is called.
      of: from the data of a cell to one number for each seed.
    """

    name: str
    of: Callable[[xarray.Dataset], NDArray]


def last(name: str, per_episode: bool = False) -> Callable[[xarray.Dataset], NDArray]:
    """How to read a variable after the last episode; of constraints, the worst."""

    def of(data: xarray.Dataset) -> NDArray:
        values = data[name].isel(checkpoint=-1).transpose("seed", ...).to_numpy().astype(float)
        if values.ndim > 1:  # the worst constraint; NaN where an instance has fewer
            values = np.where(np.isnan(values), -np.inf, values).max(axis=1)
            values = np.where(np.isinf(values), np.nan, values)
        return values / float(data["episode"][-1]) if per_episode else values

    return of


MEASURES = (
    Measure("reward per episode", last("reward", per_episode=True)),
    Measure("OPT per episode", last("opt")),
    Measure("regret", last("regret")),
    Measure("violation", last("violation")),
    Measure("positive violation", last("positive_violation")),
    Measure("largest multiplier", last("multipliers")),
    Measure("confidence radius", last("radius")),
    Measure("iterations per episode", last("iterations", per_episode=True)),
    Measure("largest residual", last("residual")),
)


class End(NamedTuple):
    """A median over seeds with its band, as a number and in words."""

    value: float
    text: str
    band: str

    @classmethod
    def of(cls, values: NDArray) -> "End":
        """The end of one number for each seed; what is not finite is left out."""
        values = values[np.isfinite(values)]
        if not len(values):
            return cls(math.nan, "-", "")
        low, median, high = np.quantile(values, (BAND[0], 0.5, BAND[1]))
        band = f"{number_in_words(low)} to {number_in_words(high)}" if len(values) > 1 else ""
        return cls(float(median), number_in_words(median), band)


def end_of(measure: Measure, cell: Cell) -> End:
    """Where the runs of a cell ended."""
    return End.of(measure.of(cell.data))
