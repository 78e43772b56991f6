"""Results divided into cells: one for every combination of swept values except the seed."""

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from pdgd_jax._internal.typing import NDArray
from pdgd_jax.results._evaluation import Evaluation
from pdgd_jax.results._quantities import QUANTITIES

if TYPE_CHECKING:
    import xarray

__all__ = ["Cell", "Results", "as_dataset", "cells_of"]

_LABELS: Mapping[str, Callable[[Any], str]] = {
    "delta": lambda value: f"δ = {value:g}",
    "confidence_scale": lambda value: f"radii scaled by {value:g}",
    "horizon": lambda value: f"T = {value:,}",
}


# What figures and reports accept.
Results: TypeAlias = "xarray.Dataset | Evaluation"


class Cell(NamedTuple):
    """The runs of one combination of settings.

    Attributes:
      names: what distinguishes it from the other cells, in words, by dimension.
      values: its coordinates, by dimension.
      data: its part of the Dataset; the leading dimension is `seed`.
    """

    names: dict[str, str]
    values: dict[str, Any]
    data: "xarray.Dataset"

    @property
    def label(self) -> str:
        """What distinguishes it from the other cells; empty if it is the only one."""
        return self.label_without()

    def label_without(self, *dims: str) -> str:
        """The label among cells that share these dimensions."""
        return ", ".join(name for dim, name in self.names.items() if dim not in dims)


def as_dataset(source: Results) -> "xarray.Dataset":
    """The results as a Dataset with a dimension `seed`.

    Args:
      source: a Dataset of `sweep`, `open_results` or `dataset_of`, or an `Evaluation`; the last
        leading axis of an `Evaluation` is the seed.
    """
    import xarray

    if isinstance(source, Evaluation):
        dataset = _from_evaluation(source)
    elif isinstance(source, xarray.Dataset):
        dataset = source
    else:
        raise ValueError(
            "results to draw are a Dataset (of sweep, open_results or dataset_of) or an "
            f"Evaluation; got a {type(source).__name__}."
        )
    if "regret" not in dataset or "episode" not in dataset:
        raise ValueError("this Dataset holds no results: it has no 'regret' or no 'episode'.")
    return dataset if "seed" in dataset["regret"].dims else _with_seed(dataset)


def cells_of(dataset: "xarray.Dataset") -> list[Cell]:
    """One cell for every combination of swept values except the seed.

    A learner that ignores a setting, or an option of another learner, was played once, and its
    values are repeated along it. It has one cell, and the label does not name the setting.
    """
    dims = [dim for dim in dataset["regret"].dims if dim not in ("checkpoint", "seed")]
    swept = [str(dim) for dim in dims if dataset.sizes[dim] > 1]
    cells: dict[Any, Cell] = {}
    used: dict[int | None, list[str]] = {}
    for place in itertools.product(*(range(dataset.sizes[dim]) for dim in dims)):
        where = dict(zip(map(str, dims), place, strict=True))
        player = where.get("learner")
        if player not in used:
            used[player] = [dim for dim in swept if _uses(dataset, player, dim)]
        distinct = tuple(where[dim] for dim in used[player])
        if (player, distinct) not in cells:
            names = {dim: _label(dataset, dim, where[dim]) for dim in used[player]}
            values = {dim: _value(dataset, dim, index) for dim, index in where.items()}
            cells[player, distinct] = Cell(names, values, dataset.isel(where))
    return list(cells.values())


def _uses(dataset: "xarray.Dataset", player: int | None, dim: str) -> bool:
    """Whether results differ along `dim`: as `sweep` recorded it, and true otherwise.

    Args:
      dataset: the results.
      player: the position of the learner; None if there is only one.
      dim: a setting, or another swept dimension.
    """
    if "uses_setting" not in dataset or dim not in dataset["setting"]:
        return True
    recorded = dataset["uses_setting"].sel(setting=dim)
    return bool(recorded if player is None else recorded.isel(learner=player))


def _value(dataset: "xarray.Dataset", dim: str, index: int) -> Any:
    return dataset[dim].to_numpy()[index].item() if dim in dataset.coords else index


def _label(dataset: "xarray.Dataset", dim: str, index: int) -> str:
    value = _value(dataset, dim, index)
    if dim in _LABELS:
        return _LABELS[dim](value)
    text = _short(value, dataset[dim].to_numpy()) if isinstance(value, float) else str(value)
    if "." in dim:  # an option of a learner, which the label names already
        return f"{dim.rpartition('.')[2]} = {text}"
    return text if isinstance(value, str) else f"{dim} {text}"


def _short(value: float, among: NDArray) -> str:
    """The value with four digits, or as many as distinguish it from the others."""
    for digits in range(4, 17):
        if len({f"{other:.{digits}g}" for other in among}) == len(set(among.tolist())):
            break
    return f"{value:.{digits}g}"


def _with_seed(dataset: "xarray.Dataset") -> "xarray.Dataset":
    """The Dataset with a dimension `seed`; a single run has one seed."""
    return dataset.assign(
        {
            name: variable.expand_dims("seed")
            for name, variable in dataset.data_vars.items()
            if name != "episode"
        }
    )


def _from_evaluation(evaluation: Evaluation) -> "xarray.Dataset":
    import xarray

    axes = evaluation.regret.ndim - 1
    lead = ["run", *(f"run_{i}" for i in range(2, axes))][: max(axes - 1, 0)]
    lead += ["seed"] if axes else []
    nothing: Any = None  # stands for the history, which these quantities do not use
    variables = {
        name: ([*lead, *quantity.axes], np.asarray(quantity.of_run(nothing, evaluation)))
        for name, quantity in QUANTITIES.items()
        if quantity.evaluated
    }
    variables["episode"] = (["checkpoint"], evaluation.episode)
    names = [certificate.name for certificate in evaluation.certificates]
    theorems = [certificate.theorem for certificate in evaluation.certificates]
    abouts = [certificate.about.value for certificate in evaluation.certificates]
    coordinates = {
        "certificate": names,
        "theorem": ("certificate", theorems),
        "about": ("certificate", abouts),
    }
    return xarray.Dataset(variables, coordinates)
