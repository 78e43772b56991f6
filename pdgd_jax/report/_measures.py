"""The final values of runs, as numbers and in words."""

import math
from typing import TYPE_CHECKING, NamedTuple

from pdgd_jax._internal.text import number_in_words
from pdgd_jax.results import QUANTITIES, Cell, Column, Estimate, Quantity

if TYPE_CHECKING:
    import xarray

__all__ = ["End", "Measure", "end_of", "measures_of"]


class Measure(NamedTuple):
    """A measure to compare runs by: a quantity and its column."""

    quantity: Quantity
    column: Column


def measures_of(dataset: "xarray.Dataset") -> list[Measure]:
    """The measures that the results hold."""
    return [
        Measure(quantity, quantity.column)
        for name, quantity in QUANTITIES.items()
        if quantity.column is not None and name in dataset
    ]


class End(NamedTuple):
    """A median over seeds with its band, as a number and in words."""

    value: float
    text: str
    band: str


def end_of(measure: Measure, cell: Cell) -> End:
    """The final value of the runs of a cell."""
    value, *ends = Estimate.of(measure.quantity.column_of(cell.data)).shown()
    low, high = map(number_in_words, ends)
    constant = low == high or math.isnan(value)  # no band
    return End(value, number_in_words(value), "" if constant else f"{low} to {high}")
