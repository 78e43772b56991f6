"""The data of the figures in a report."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pdgd_jax._internal.typing import NDArray
from pdgd_jax.report._measures import Measure, end_of, measures_of
from pdgd_jax.results import (
    QUANTITIES,
    Band,
    Cell,
    Quantity,
    axis_of,
    band_of,
    colours_of,
    is_paired,
    slope_of,
)

if TYPE_CHECKING:
    import xarray

__all__ = ["data_of"]

# The most numbers for a page that opens quickly: about 8 MB.
_MOST_POINTS = 40_000


def data_of(dataset: "xarray.Dataset", cells: list[Cell]) -> dict[str, Any]:
    """Everything that the figures and the comparison need, as JSON data."""
    measures = measures_of(dataset)
    drawn = [name for name, quantity in QUANTITIES.items() if _is_drawn(quantity, dataset)]
    drawn.sort(key=lambda name: QUANTITIES[name].drawn.panel)
    choices = {
        dim: [str(value) for value in dataset[dim].to_numpy()]
        for dim in ("instance", "horizon")
        if dim in dataset.coords and dataset[dim].ndim == 1
    }
    if "horizon" in choices:
        choices["horizon"] = [f"T = {int(value):,}" for value in dataset["horizon"].to_numpy()]
    return {
        "seeds": dataset.sizes["seed"],
        "paired": bool(is_paired(dataset)),
        "quantities": {
            name: {
                "label": _capital(QUANTITIES[name].label),
                "axis": axis_of(QUANTITIES[name], dataset),
                "logarithmic": QUANTITIES[name].drawn.logarithmic,
                "inner": QUANTITIES[name].drawn.inner,
            }
            for name in drawn
        },
        "measures": [measure.column.name for measure in measures],
        "choices": choices,
        "axes": {name: axis_of(QUANTITIES[name], dataset) for name in ("regret", "violation")},
        "cells": [
            {**_cell_data(dataset, cell, drawn, measures, len(cells)), "colour": colour}
            for cell, colour in zip(cells, colours_of(dataset, cells), strict=True)
        ],
        "horizons": _horizons(dataset, cells) if dataset.sizes.get("horizon", 1) > 1 else [],
    }


def _is_drawn(quantity: Quantity, dataset: "xarray.Dataset") -> bool:
    """Whether the report has a panel for it, and the results hold its variables."""
    curve = quantity.curve
    return curve is not None and curve.panel > 0 and all(n in dataset for n in quantity.needs)


def _cell_data(
    dataset: "xarray.Dataset", cell: Cell, drawn: list[str], measures: list[Measure], count: int
) -> dict[str, Any]:
    length = cell.data.sizes["checkpoint"]
    most = max(20, min(200, _MOST_POINTS // count))
    kept = np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(int))
    episode = cell.data["episode"]
    bands: dict[str, list[Any]] = {}
    for name in drawn:
        values = QUANTITIES[name].of(cell.data)
        each = [values]
        if "constraint" in values.dims:
            each = [values.isel(constraint=i) for i in range(values.sizes["constraint"])]
        found = [band_of(one, episode) for one in each]
        found = [band for band in found if _shows(name, band)]
        if found:
            bands[name] = [
                [_rounded(line[kept]) for line in (band.centre, band.low, band.high)]
                for band in found
            ]
    opt = band_of(cell.data["opt"], episode).centre
    return {
        "label": cell.label,
        "names": cell.names,
        "place": {
            dim: int(np.flatnonzero(dataset[dim].to_numpy() == cell.values[dim])[0])
            for dim in ("instance", "horizon")
            if dim in cell.values and dim in dataset.coords
        },
        "episode": episode.to_numpy()[kept].tolist(),
        "opt": _rounded(opt[kept]),
        "moving": bool(np.ptp(opt) > 1e-9),  # against an adversary it is the OPT of the prefix
        "bands": bands,
        "tradeoff": {name: _last_of(cell, name) for name in ("violation", "regret")},
        "ends": [_end_data(measure, cell) for measure in measures],
    }


def _end_data(measure: Measure, cell: Cell) -> dict[str, Any]:
    """The final value in words and for each seed; with paired streams differences are paired."""
    end = end_of(measure, cell)
    seeds = _rounded(measure.quantity.column_of(cell.data))
    return {"value": _finite(end.value), "text": end.text, "band": end.band, "seeds": seeds}


def _last_of(cell: Cell, name: str) -> list[float | None]:
    """Median, low and high after the last episode."""
    band = band_of(QUANTITIES[name].of(cell.data), cell.data["episode"])
    return _rounded(np.array([band.centre[-1], band.low[-1], band.high[-1]]))


def _shows(name: str, band: Band) -> bool:
    """Whether a curve shows anything: learners without multipliers or projections have zeros."""
    known = band.centre[np.isfinite(band.centre)]
    return len(known) > 0 and (not QUANTITIES[name].drawn.zero_is_none or bool(known.any()))


def _horizons(dataset: "xarray.Dataset", cells: list[Cell]) -> list[dict[str, Any]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.label_without("horizon"), []).append(cell)
    colours = colours_of(dataset, [members[0] for members in groups.values()])
    lines = []
    for (group, members), colour in zip(groups.items(), colours, strict=True):
        members = sorted(members, key=lambda cell: cell.values["horizon"])
        lengths = np.array([cell.values["horizon"] for cell in members])
        for name in ("regret", "violation"):
            bands = [band_of(QUANTITIES[name].of(c.data), c.data["episode"]) for c in members]
            ends = np.array([(b.centre[-1], b.low[-1], b.high[-1]) for b in bands])
            shown = np.where(ends[:, :1] > 0, ends, np.nan)  # other values have no logarithm
            median, low, high = shown.T
            within = members[0].label_without("horizon", "instance")
            lines.append(
                {
                    "group": group,
                    "instance": str(members[0].values.get("instance")),
                    "quantity": name,
                    "colour": colour,
                    "words": [within] if within else [],
                    "everywhere": [group] if group else [],
                    "horizon": lengths.tolist(),
                    "median": _rounded(median),
                    "low": _rounded(np.where(low > 0, low, median / 1000)),
                    "high": _rounded(high),
                    "slope": _finite(slope_of(lengths, ends[:, 0])),
                }
            )
    return lines


def _rounded(values: NDArray) -> list[float | None]:
    """The values with five digits; null for values that are not finite."""
    return [None if not math.isfinite(v) else float(f"{v:.5g}") for v in values.tolist()]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
