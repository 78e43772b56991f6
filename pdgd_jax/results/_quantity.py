"""An entry of the table of quantities: computation, name, curve, column and row."""

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
# A sum below this in every episode is a rounding error, of its terms or of the LP that found OPT.
ROUNDING = {"float32": 1e-6, "float64": 1e-9}


class Curve(NamedTuple):
    """How a quantity is drawn against episodes, in figures and in the report.

    Attributes:
      label: its name.
      units: the unit on the axis; by default that of the quantity.
      of: turns the data of a cell into `[seed, checkpoint]` or `[seed, checkpoint, constraint]`; by
        default its values.
      needs: further variables of the Dataset that the figure reads.
      symbol: its mathematical symbol, indexed by constraints; empty for none.
      figure: the figure that draws it; by default a figure with its name.
      own_words: whether the axis shows the `long_name` of the variable.
      zero_line: whether 0 is marked.
      zero_is_none: whether a curve of zeros means that the learner does not have this quantity.
      logarithmic: whether its axis is logarithmic.
      inner: whether it is about the solver of the projections.
      panel: its position among the panels of the report; 0 for none.
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
      name: the name of the column.
      per_episode: whether it is divided by the number of episodes.
      of: turns the data of a cell into one number for each seed; by default the final value.
      about: a description, if it differs from the `long_name` of the variable.
      inner: whether it is about how learners work, not about what they achieve.
    """

    name: str
    per_episode: bool = False
    of: Callable[["xarray.Dataset"], NDArray] | None = None
    about: str = ""
    inner: bool = False


class Row(NamedTuple):
    """How the end of a quantity is shown in the table of `pdgd run`.

    Attributes:
      label: the label of the row, or a function of the facts of the summary.
      per_episode: whether the average over episodes is shown beside it.
      when: decides from the facts of the summary whether to show the row.
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
      name: the name of the variable.
      axes: its axes after those of the batch.
      long_name: a description.
      units: its unit.
      of_run: computes it from the history of runs and their evaluation.
      evaluated: whether the evaluation alone is enough.
      is_sum: whether it is a sum over episodes; rounding errors of such sums are shown as 0.
      each_constraint: whether constraints are shown one by one instead of the worst.
      key: the key of its final value in the summary and the JSON of a run; empty for none.
      curve: how it is drawn against episodes; None if it is not.
      column: how the report shows its final value; None if it does not.
      row: how `pdgd run` prints its final value; None if it does not.
      optional: whether a summary leaves it out where it is not known for all runs.
      absent: the text for runs without a value.
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
    optional: bool = False
    absent: str = ""

    @property
    def drawn(self) -> Curve:
        """How it is drawn; raises if it is not."""
        if self.curve is None:
            raise ValueError(f"{self.name} is not drawn against episodes.")
        return self.curve

    @property
    def label(self) -> str:
        """Its name in figures."""
        return self.drawn.label

    @property
    def needs(self) -> tuple[str, ...]:
        """The variables of the Dataset that a figure of it reads."""
        return (self.name, *self.drawn.needs)

    def of(self, data: "xarray.Dataset") -> "xarray.DataArray":
        """The values to draw: `[seed, checkpoint]` or `[seed, checkpoint, constraint]`."""
        return (self.drawn.of or self.values)(data)

    def values(self, data: "xarray.Dataset") -> "xarray.DataArray":
        """Its values, those of the worst constraint unless all are shown."""
        found = data[self.name]
        if "constraint" in found.dims and not self.each_constraint:
            found = found.max("constraint")
        return without_rounding(found, data["episode"]) if self.is_sum else found

    def end(self, data: "xarray.Dataset") -> NDArray:
        """`[seed]`, or `[seed, constraint]`: its values after the last episode."""
        last = self.values(data).isel(checkpoint=-1)
        return np.asarray(last.transpose("seed", ...).to_numpy().astype(float))

    def column_of(self, data: "xarray.Dataset") -> NDArray:
        """`[seed]`, the values of its column in a report; the largest of several constraints."""
        column = self.column
        if column is not None and column.of is not None:
            return column.of(data)
        values = self.end(data)
        if values.ndim > 1:  # NaN where an instance has fewer constraints
            values = np.where(np.isnan(values), -np.inf, values).max(axis=1)
            values = np.where(np.isinf(values), np.nan, values)
        return values / float(data["episode"][-1]) if column and column.per_episode else values


def without_rounding(values: "xarray.DataArray", episode: "xarray.DataArray") -> "xarray.DataArray":
    """Sums over episodes, with rounding errors replaced by 0."""
    limit = ROUNDING.get(str(values.dtype), 0.0) * episode
    return values.where((abs(values) > limit) | values.isnull(), 0)


def axis_of(quantity: Quantity, dataset: "xarray.Dataset") -> str:
    """The label of an axis, taken from the results where they provide one."""
    curve, told = quantity.drawn, {}
    if curve.own_words and quantity.name in dataset:
        told = dataset[quantity.name].attrs
    label = told.get("long_name", curve.label)
    units = told.get("units", curve.units or quantity.units)
    return f"{label} ({units})" if units else str(label)
