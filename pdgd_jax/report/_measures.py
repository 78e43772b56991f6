"""How runs ended, as numbers and in words."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pdgd_jax._internal.text import number_in_words
from pdgd_jax.results import QUANTITIES, Cell, last_tenth

if TYPE_CHECKING:
    import xarray

__all__ = [
    "BAND",
    "End",
    "Measure",
    "end_of",
    "last",
    "measures_of",
]

NDArray = np.ndarray[Any, np.dtype[Any]]

BAND = (0.1, 0.9)


class Measure(NamedTuple):
    """Something to compare runs by.

    Attributes:
      name: what it is called.
      of: from the data of a cell to one number for each seed.
      needs: the variable of the Dataset that it is read from, and that says what it is.
      inner: whether it is about how learners work, and not about what they reach.
      about: what it is, if that variable says something else.
    """

    name: str
    of: Callable[["xarray.Dataset"], NDArray]
    needs: str
    inner: bool = False
    about: str = ""


def last(name: str, per_episode: bool = False) -> Callable[["xarray.Dataset"], NDArray]:
    """How to read a variable after the last episode; of constraints, the worst."""

    def of(data: "xarray.Dataset") -> NDArray:
        drawn = QUANTITIES[name].of(data) if name in _SUMS else data[name]
        values = drawn.isel(checkpoint=-1).transpose("seed", ...).to_numpy().astype(float)
        if values.ndim > 1:  # the worst constraint; NaN where an instance has fewer
            values = np.where(np.isnan(values), -np.inf, values).max(axis=1)
            values = np.where(np.isinf(values), np.nan, values)
        return values / float(data["episode"][-1]) if per_episode else values

    return of


_SUMS = ("regret", "violation", "positive_violation")  # which may be rounding
_MEASURES = (
    Measure(
        "reward per episode",
        last("reward", per_episode=True),
        "reward",
        about="expected reward, the mean over all episodes",
    ),
    Measure("OPT per episode", last("opt"), "opt"),
    Measure("regret", last("regret"), "regret"),
    Measure("violation", last("violation"), "violation"),
    Measure(
        "violation per episode, last tenth",
        last_tenth,
        "violations",
        about="violation, the mean over the last tenth of the episodes: has it stopped?",
    ),
    Measure("positive violation", last("positive_violation"), "positive_violation"),
    Measure("multiplier, last", last("multipliers"), "multipliers"),
    Measure("multipliers, largest so far", last("largest_multiplier"), "largest_multiplier"),
    Measure("confidence radius", last("radius"), "radius", True),
    Measure(
        "iterations per episode",
        last("iterations", per_episode=True),
        "iterations",
        True,
        "iterations of a projection, the mean over all episodes",
    ),
    Measure("largest residual", last("residual"), "residual", True),
)


def measures_of(dataset: "xarray.Dataset") -> list[Measure]:
    """Those that the results hold."""
    return [measure for measure in _MEASURES if measure.needs in dataset]


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
        ends = number_in_words(low), number_in_words(high)
        band = f"{ends[0]} to {ends[1]}" if ends[0] != ends[1] else ""  # a constant has none
        return cls(float(median), number_in_words(median), band)


def end_of(measure: Measure, cell: Cell) -> End:
    """Where the runs of a cell ended."""
    return End.of(measure.of(cell.data))
