"""What an entry of the table of quantities says: how it is computed, called, drawn and shown."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from pdgd_jax._internal.typing import NDArray
from pdgd_jax.results._evaluation import Evaluation
from pdgd_jax.simulation import History

if TYPE_CHECKING:
    import xarray

__all__ = ["ROUNDING", "Column", "Curve", "OfRun", "Quantity", "Row", "axis_of", "without_rounding"]

OfRun: TypeAlias = Callable[[History, Evaluation], Any]
OfDataset: TypeAlias = Callable[["xarray.Dataset"], "xarray.DataArray"]
# Below this in every episode a sum is rounding: of the numbers, and of the program that found OPT.
ROUNDING = {"float32": 1e-6, "float64": 1e-9}


class Curve(NamedTuple):
    """How a quantity is drawn against episodes, in figures and in the report.

    Attributes:
      label: what it is called.
      units: on the axis; those of the quantity if left out.
      of: from a cell's data to `[seed, checkpoint]`, or `[seed, checkpoint, constraint]`; its
        values if left out.
      needs: further variables of the Dataset that the figure reads.
      symbol: in mathematics, numbered by the constraints; empty if it has none.
      figure: which figure draws it; one of its own, named after it, if left out.
      own_words: whether the axis says what the variable's `long_name` says.
      zero_line: whether 0 is marked.
      zero_is_none: whether a curve of zeros belongs to a learner that has no such thing.
      logarithmic: whether its axis is.
      inner: whether it is about the solver of the projections.
      panel: its place among the panels of the report; 0 if it has none.
    """

    label: str
    units: str = ""
    of: OfDataset | None = None
    needs: tuple[str, ...] = ()
    symbol: str = ""
    figure: str = ""
    own_words: bool = False
    zero_line: bool = False
    zero_is_none: bool = False
    logarithmic: bool = False
    inner: bool = False
    panel: int = 99


class Column(NamedTuple):
    """How the end of a quantity is shown in the tables of a report.

    Attributes:
      name: of the column.
      per_episode: whether it is divided by the number of episodes.
      of: from a cell's data to one number for each seed; what it ended with if left out.
      about: what it is, if the variable's `long_name` says something else.
      inner: whether it is about how learners work, and not about what they reach.
    """

    name: str
    per_episode: bool = False
    of: Callable[["xarray.Dataset"], NDArray] | None = None
    about: str = ""
    inner: bool = False


class Row(NamedTuple):
    """How the end of a quantity is shown in the table of `pdgd run`.

    Attributes:
      label: of the row, or how it is made of the facts of the summary.
      per_episode: whether the average over episodes stands beside it.
      when: from the facts of the summary to whether there is such a row.
    """

    label: str | Callable[[Mapping[str, Any]], str]
    per_episode: bool = True
    when: Callable[[Mapping[str, Any]], bool] = lambda facts: True

    def name(self, facts: Mapping[str, Any]) -> str:
        """The label of the row."""
        return self.label if isinstance(self.label, str) else self.label(facts)


@dataclasses.dataclass(frozen=True)
class Quantity:
    """An entry of the table: a variable of the Dataset.

    Attributes:
      name: of the variable.
      axes: behind those of the batch.
      long_name: what it is.
      units: its unit.
      of_run: how it is computed, from the history of runs and their evaluation.
      evaluated: whether the evaluation alone is enough.
      is_sum: whether it is a sum over episodes whose rounding errors are to be read as 0.
      each_constraint: whether constraints are shown one by one, and not the worst of them.
      key: of its end in the summary of a run and its JSON; empty if it is not there.
      curve: how it is drawn against episodes, if it is.
      column: how its end is shown in the report, if it is.
      row: how its end is printed by `pdgd run`, if it is.
      absent: the text of a run that has none.
    """

    name: str
    axes: tuple[str, ...]
    long_name: str
    units: str
    of_run: OfRun
    evaluated: bool = False
    is_sum: bool = False
    each_constraint: bool = False
    key: str = ""
    curve: Curve | None = None
    column: Column | None = None
    row: Row | None = None
    absent: str = ""

    @property
    def drawn(self) -> Curve:
        """How it is drawn; refused in a sentence if it is not."""
        if self.curve is None:
            raise ValueError(f"{self.name} is not drawn against episodes.")
        return self.curve

    @property
    def label(self) -> str:
        """What figures call it."""
        return self.drawn.label

    @property
    def needs(self) -> tuple[str, ...]:
        """The variables of the Dataset that a figure of it reads."""
        return (self.name, *self.drawn.needs)

    def of(self, data: "xarray.Dataset") -> "xarray.DataArray":
        """What is drawn: `[seed, checkpoint]`, or `[seed, checkpoint, constraint]`."""
        return (self.drawn.of or self.values)(data)

    def values(self, data: "xarray.Dataset") -> "xarray.DataArray":
        """Its values, of the worst constraint if they are not shown one by one."""
        found = data[self.name]
        if "constraint" in found.dims and not self.each_constraint:
            found = found.max("constraint")
        return without_rounding(found, data["episode"]) if self.is_sum else found

    def end(self, data: "xarray.Dataset") -> NDArray:
        """`[seed]`, or `[seed, constraint]`: its values after the last episode."""
        last = self.values(data).isel(checkpoint=-1)
        return np.asarray(last.transpose("seed", ...).to_numpy().astype(float))

    def column_of(self, data: "xarray.Dataset") -> NDArray:
        """`[seed]`, what its column in a report shows; of constraints, the largest."""
        column = self.column
        if column is not None and column.of is not None:
            return column.of(data)
        values = self.end(data)
        if values.ndim > 1:  # NaN where an instance has fewer constraints
            values = np.where(np.isnan(values), -np.inf, values).max(axis=1)
            values = np.where(np.isinf(values), np.nan, values)
        return values / float(data["episode"][-1]) if column and column.per_episode else values


def without_rounding(values: "xarray.DataArray", episode: "xarray.DataArray") -> "xarray.DataArray":
    """Sums over episodes, exactly 0 where they are nothing but rounding."""
    limit = ROUNDING.get(str(values.dtype), 0.0) * episode
    return values.where((abs(values) > limit) | values.isnull(), 0)


def axis_of(quantity: Quantity, dataset: "xarray.Dataset") -> str:
    """The label of an axis, in the words of the results themselves where they have some."""
    curve, told = quantity.drawn, {}
    if curve.own_words and quantity.name in dataset:
        told = dataset[quantity.name].attrs
    label = told.get("long_name", curve.label)
    units = told.get("units", curve.units or quantity.units)
    return f"{label} ({units})" if units else str(label)
