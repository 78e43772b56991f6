"""How every cell of a sweep ended, as plain numbers."""

from typing import TYPE_CHECKING, Any

from pdgd_jax.results._cells import Results, as_dataset, cells_of
from pdgd_jax.results._quantities import QUANTITIES
from pdgd_jax.results._statistics import Estimate

if TYPE_CHECKING:
    import xarray

__all__ = ["ENDS", "summarise_sweep"]

# The quantities whose final values stand for a run.
ENDS = ("regret", "violation")


def summarise_sweep(results: Results) -> dict[str, Any]:
    """Summarise a sweep in plain Python numbers, ready for JSON: a row for each cell.

    Args:
      results: the results of any number of instances, learners and settings.

    Returns:
      `cells`, the settings of each cell (None for one that its learner ignores) with the medians
      of `ENDS` over seeds after the last episode; `learners`, what each one knows and sees, empty
      for results that do not say; and facts about all of them together.
    """
    data = as_dataset(results)
    cells = cells_of(data)
    rows: list[dict[str, Any]] = []
    for cell in cells:
        swept = {name for name in cell.values if data.sizes[name] > 1}
        foreign = {name for name in cell.values if _is_of_another(name, cell.values["learner"])}
        row = cell.values | dict.fromkeys((swept - {*cell.names}) | foreign)
        ends = {name: Estimate.of(QUANTITIES[name].end(cell.data)).median for name in ENDS}
        rows.append(row | ends)
    return {
        "lanes": len(cells) * data.sizes["seed"],
        "layers": data.sizes["layer"],
        "unconverged": sum(int(QUANTITIES["unconverged"].end(cell.data).sum()) for cell in cells),
        "residual": float(data["residual"].isel(checkpoint=-1).max()),
        "cells": rows,
        "learners": _declarations(data),
    }


def _declarations(data: "xarray.Dataset") -> list[dict[str, str]]:
    keys = ("learner", "knows", "feedback")
    if not set(keys) <= set(data.coords):
        return []
    rows = zip(*(data[key].to_numpy().tolist() for key in keys), strict=True)
    return [dict(zip(("name", *keys[1:]), row, strict=True)) for row in rows]


def _is_of_another(dim: str, learner: str) -> bool:
    """Whether a dimension is an option of another learner, such as ucpd.V."""
    owner, _, option = dim.rpartition(".")
    return bool(owner and option) and owner != learner
