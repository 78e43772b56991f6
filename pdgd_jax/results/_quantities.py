"""What is measured and shown: one table."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import xarray

__all__ = ["QUANTITIES", "Quantity", "axis_of", "last_tenth", "quantity_of", "without_rounding"]

NDArray = np.ndarray[Any, np.dtype[Any]]
# Below this in every episode a sum is rounding: of the numbers, and of the program that found OPT.
_ROUNDING = {"float32": 1e-6, "float64": 1e-9}


class Quantity(NamedTuple):
    """Something that is drawn against episodes.

    Attributes:
      label: what it is.
      units: its units, empty if it has none.
      needs: the variables of the Dataset that it is computed from.
      of: from a cell's data to `[seed, checkpoint]`, or `[seed, checkpoint, constraint]`.
      named_by: the variable whose `long_name` says what it is, if it is one.
    """

    label: str
    units: str
    needs: tuple[str, ...]
    of: Callable[["xarray.Dataset"], "xarray.DataArray"]
    named_by: str = ""


def without_rounding(values: "xarray.DataArray", episode: "xarray.DataArray") -> "xarray.DataArray":
    """Sums over episodes, exactly 0 where they are nothing but rounding."""
    limit = _ROUNDING.get(str(values.dtype), 0.0) * episode
    return values.where((abs(values) > limit) | values.isnull(), 0)


def last_tenth(data: "xarray.Dataset") -> NDArray:
    """`[seed]`, the violation per episode in the last tenth of the episodes: has it stopped?

    Of the constraint that is violated most there; between checkpoints sums are taken as straight.
    """
    episode = data["episode"].to_numpy().astype(float)
    sums = data["violations"].transpose("seed", "constraint", "checkpoint").to_numpy()
    begin = 0.9 * episode[-1]
    before = [[np.interp(begin, episode, one, left=0) for one in seed] for seed in sums]
    each = (sums[..., -1] - np.array(before)) / (episode[-1] - begin)
    each[np.abs(each) < _ROUNDING.get(str(sums.dtype), 0.0)] = 0
    worst = np.where(np.isnan(each), -np.inf, each).max(-1)
    return np.where(np.isinf(worst), np.nan, worst)


def _variable(name: str) -> Callable[["xarray.Dataset"], "xarray.DataArray"]:
    return lambda data: data[name]


def _sum(name: str) -> Callable[["xarray.Dataset"], "xarray.DataArray"]:
    return lambda data: without_rounding(data[name], data["episode"])


def _worst_positive(data: "xarray.Dataset") -> "xarray.DataArray":
    return without_rounding(data["positive_violation"].max("constraint"), data["episode"])


def _average_reward(data: "xarray.Dataset") -> "xarray.DataArray":
    return data["reward"] / data["episode"]


def _iterations_per_episode(data: "xarray.Dataset") -> "xarray.DataArray":
    """Of the episodes since the last checkpoint, and not since the start: a change shows."""
    total = data["iterations"].transpose(..., "checkpoint")
    new = np.diff(total.to_numpy().astype(float), prepend=0)
    return total.copy(data=new / np.diff(data["episode"].to_numpy(), prepend=0))


def _positive_residual(data: "xarray.Dataset") -> "xarray.DataArray":
    return data["residual"].where(data["residual"] > 0)  # nothing was projected: no point to draw


QUANTITIES: Mapping[str, Quantity] = {
    "regret": Quantity("regret", "reward", ("regret",), _sum("regret"), "regret"),
    "alpha_regret": Quantity(
        "alpha-regret", "reward", ("alpha_regret",), _sum("alpha_regret"), "alpha_regret"
    ),
    "violation": Quantity("violation", "cost", ("violation",), _sum("violation"), "violation"),
    "positive_violation": Quantity(
        "positive violation",
        "cost",
        ("positive_violation",),
        _worst_positive,
        "positive_violation",
    ),
    "multipliers": Quantity(
        "multipliers λ", "reward per cost", ("multipliers",), _variable("multipliers")
    ),
    "reward": Quantity("average reward", "per episode", ("reward", "opt"), _average_reward),
    "radius": Quantity("confidence radius", "L1, mean", ("radius",), _variable("radius")),
    "iterations": Quantity("iterations", "per episode", ("iterations",), _iterations_per_episode),
    "residual": Quantity("residual", "largest so far", ("residual",), _positive_residual),
}


def axis_of(quantity: Quantity, dataset: "xarray.Dataset") -> str:
    """The label of an axis, in the words of the results themselves where they have some."""
    told = dataset[quantity.named_by].attrs if quantity.named_by in dataset else {}
    label, units = told.get("long_name", quantity.label), told.get("units", quantity.units)
    return f"{label} ({units})" if units else str(label)


def quantity_of(name: str, dataset: "xarray.Dataset") -> Quantity:
    """The quantity of that name, refused in a sentence if the results do not hold it."""
    quantity = QUANTITIES[name]
    missing = [variable for variable in quantity.needs if variable not in dataset]
    if missing:
        raise ValueError(
            f"these results do not hold {missing[0]!r}, which this figure draws: give it the "
            "Dataset of sweep(...), open_results(...) or dataset_of(history, evaluation)."
        )
    return quantity
