"""Results as one HTML file that opens offline. Needs Plotly: `pdgd_jax[report]`.

The page is `page.html` with `page.css` and `page.js`, Plotly, and the numbers, all in one file;
tables are written here, figures are drawn by the page.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray

import pdgd_jax
from pdgd_jax._files import publish, writing
from pdgd_jax.curves import (
    QUANTITIES,
    Band,
    Cell,
    as_dataset,
    band_of,
    cells_of,
    slope_of,
)

__all__ = ["report_of", "write_report"]

NDArray = np.ndarray[Any, np.dtype[Any]]

_BAND = (0.1, 0.9)
# So many numbers make a page that opens at once: about 8 MB of them.
_MOST_POINTS = 40_000
_LOGARITHMIC = ("residual",)
_DRAWN = [name for name in QUANTITIES if name != "alpha_regret"]


def write_report(dataset: xarray.Dataset, path: str | Path) -> None:
    """Write the report of these results, whole or not at all.

    Args:
      dataset: of `sweep`, `open_results` or `dataset_of`.
      path: the file, which is replaced if it exists.
    """
    target = Path(path)
    content = report_of(dataset).encode()
    with writing(target.parent):
        publish(target.parent, {target.name: content})


def report_of(dataset: xarray.Dataset) -> str:
    """The report of these results, as the text of an HTML file.

    Args:
      dataset: of `sweep`, `open_results` or `dataset_of`.

    Returns:
      A page that asks for nothing else: no script, style, font or image from anywhere.
    """
    dataset = as_dataset(dataset)
    cells = cells_of(dataset)
    configuration = json.loads(dataset.attrs.get("configuration", "{}"))
    page = resources.files("pdgd_jax").joinpath("report")
    parts = {
        "title": escape(str(configuration.get("name") or "Results")),
        "summary": _summary(dataset, cells),
        "style": page.joinpath("page.css").read_text(encoding="utf-8"),
        "script": page.joinpath("page.js").read_text(encoding="utf-8"),
        "plotly": _plotly(),
        "version": escape(pdgd_jax.__version__),
        "warnings": _warnings(cells),
        "run": _what_was_run(dataset, configuration),
        "results": _results_table(cells),
        "certificates": _certificates(dataset, cells),
        # A "<" could end the script, or begin a comment in it.
        "data": json.dumps(_data(dataset, cells), allow_nan=False).replace("<", "\\u003c"),
    }
    template = page.joinpath("page.html").read_text(encoding="utf-8")
    # In one pass: what is put in is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ValueError('reports need Plotly: pip install "pdgd_jax[report]".') from error
    return str(get_plotlyjs())


# How a cell ended.


class _Measure(NamedTuple):
    name: str
    of: Callable[[xarray.Dataset], NDArray]  # one number for each seed


def _last(name: str, per_episode: bool = False) -> Callable[[xarray.Dataset], NDArray]:
    def of(data: xarray.Dataset) -> NDArray:
        values = data[name].isel(checkpoint=-1).transpose("seed", ...).to_numpy().astype(float)
        if values.ndim > 1:  # the worst constraint; NaN where an instance has fewer
            values = np.nanmax(np.where(np.isnan(values), -np.inf, values), axis=1)
            values = np.where(np.isinf(values), np.nan, values)
        return values / float(data["episode"][-1]) if per_episode else values

    return of


_MEASURES = (
    _Measure("reward per episode", _last("reward", per_episode=True)),
    _Measure("OPT per episode", _last("opt")),
    _Measure("regret", _last("regret")),
    _Measure("violation", _last("violation")),
    _Measure("positive violation", _last("positive_violation")),
    _Measure("largest multiplier", _last("multipliers")),
    _Measure("confidence radius", _last("radius")),
    _Measure("iterations per episode", _last("iterations", per_episode=True)),
    _Measure("largest residual", _last("residual")),
)


class _End(NamedTuple):
    """A median over seeds with its band, as a number and in words."""

    value: float
    text: str
    band: str

    @classmethod
    def of(cls, values: NDArray) -> "_End":
        values = values[np.isfinite(values)]
        if not len(values):
            return cls(math.nan, "-", "")
        low, median, high = np.quantile(values, (_BAND[0], 0.5, _BAND[1]))
        band = f"{_number(low)} to {_number(high)}" if len(values) > 1 else ""
        return cls(float(median), _number(median), band)


def _number(value: float) -> str:
    """With four digits that matter, and all those before the point."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"


# The words and tables of the page.


def _summary(dataset: xarray.Dataset, cells: list[Cell]) -> str:
    seeds = dataset.sizes["seed"]
    episodes = sum(int(cell.data["episode"][-1]) for cell in cells) * seeds
    words = [
        f"{_count(len(cells), 'combination')} of instance, learner and settings",
        _count(seeds, "seed"),
        f"{_count(episodes, 'episode')} in all",
    ]
    created = dataset.attrs.get("created")
    date = f"; {created.replace('T', ' ').partition('.')[0]}" if created else ""
    return escape(", ".join(words) + date + ".")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _warnings(cells: list[Cell]) -> str:
    """What a reader must not miss, in boxes before everything else."""
    boxes = []
    stuck = [(cell, int(np.nansum(_last("unconverged")(cell.data)))) for cell in cells]
    stuck = [(cell, count) for cell, count in stuck if count]
    if stuck:
        total = _count(sum(count for _, count in stuck), "projection")
        where = [f"{cell.label or 'all runs'}: {count:,}" for cell, count in stuck]
        more = f"; and {len(where) - 5} more, see the results" if len(where) > 5 else ""
        boxes.append(
            f"<p><strong>{total} did not converge.</strong> The numbers of these runs are not "
            "those of the algorithm: choose another solver or tolerance, and report the instance."
            f"</p><p>{escape('; '.join(where[:5]))}{more}</p>"
        )
    missing = sum(int(np.isnan(_last("reward")(cell.data)).sum()) for cell in cells)
    if missing:
        boxes.append(
            f"<p><strong>{_count(missing, 'run')} not finished.</strong> Figures and tables show "
            "the others.</p>"
        )
    return "".join(f'<div class="alarm" role="alert">{box}</div>' for box in boxes)


def _what_was_run(dataset: xarray.Dataset, configuration: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in configuration.items() if name != "instance"}
    facts: dict[str, Any] = {}
    for name, value in rest.items():
        if isinstance(value, Mapping):
            facts |= {f"{key.replace('_', ' ')}": entry for key, entry in value.items()}
        else:
            facts[name] = value
    if "names" in facts:
        facts = {("learners" if name == "names" else name): v for name, v in facts.items()}
    if "key" in dataset.attrs:
        facts["key"] = int(dataset.attrs["key"])
    versions = json.loads(dataset.attrs.get("versions", "{}"))
    facts["versions"] = [f"{name} {version}" for name, version in versions.items()]
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(_plain(value))}</dd>" for name, value in facts.items()
    )
    rows = [
        [
            _Entry(entry.get("label", entry.get("make", ""))),
            _Entry(entry.get("make", "")),
            _Entry(
                ", ".join(
                    f"{name} = {_plain(value)}"
                    for name, value in entry.items()
                    if name not in ("make", "label")
                )
            ),
        ]
        for entry in configuration.get("instance", [])
    ]
    table = _table(("instance", "made by", "options"), rows, sortable=False) if rows else ""
    raw = ""
    if configuration:
        text = escape(json.dumps(configuration, indent=2, ensure_ascii=False))
        raw = f"<details><summary>The whole configuration</summary><pre>{text}</pre></details>"
    return f"<dl>{listed}</dl>{table}{raw}"


def _plain(value: Any) -> str:
    """Numbers and lists as a person writes them."""
    if isinstance(value, list | tuple):
        parts = (f"({_plain(v)})" if isinstance(v, list) else _plain(v) for v in value)
        return ", ".join(parts)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else f"{value:g}"


class _Entry(NamedTuple):
    """A cell of a table: its text, what it sorts by, small print, and a class."""

    text: Any
    value: float | None = None
    small: str = ""
    kind: str = ""


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[_Entry]], *, sortable: bool = True
) -> str:
    """Columns whose name starts with > hold numbers."""
    heads = "".join(
        f'<th scope="col"{" class=number" if column.startswith(">") else ""}>'
        f"{escape(column.removeprefix('>'))}</th>"
        for column in columns
    )
    body = []
    for row in rows:
        entries = []
        for column, entry in zip(columns, row, strict=True):
            number = column.startswith(">")
            short = "short" if len(str(entry.text)) <= 24 and not entry.small else ""
            words = ("number",) if number else ("name", short)
            classes = " ".join(word for word in (*words, entry.kind) if word)
            key = ""
            if number:
                known = entry.value is not None and not math.isnan(entry.value)
                key = f' data-value="{entry.value if known else ""}"'
            small = f"<small>{escape(entry.small)}</small>" if entry.small else ""
            entries.append(f'<td class="{classes}"{key}>{escape(str(entry.text))}{small}</td>')
        body.append(f"<tr>{''.join(entries)}</tr>")
    kind = ' class="sortable"' if sortable else ""
    return (
        f'<div class="scroll" tabindex="0"><table{kind}><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _results_table(cells: list[Cell]) -> str:
    dims = list(dict.fromkeys(dim for cell in cells for dim in cell.names))
    names = [dim.replace("_", " ") for dim in dims] or ["runs"]
    ends = [[_end(measure, cell) for measure in _MEASURES] for cell in cells]
    shown = [i for i in range(len(_MEASURES)) if any(math.isfinite(e[i].value) for e in ends)]
    measured = [f">{_MEASURES[i].name}" for i in shown]
    columns = [*names, *measured, ">guarantees", ">unconverged"]
    rows = []
    for cell, of_cell in zip(cells, ends, strict=True):
        row = [_Entry(cell.names.get(dim, "any")) for dim in dims] or [_Entry("all")]
        row += [_Entry(of_cell[i].text, of_cell[i].value, of_cell[i].band) for i in shown]
        holds, fails, _ = _verdicts(cell.data)
        judged = f"{holds} hold" + (f", {fails} fail" if fails else "")
        row.append(_Entry(judged, holds - 1000 * fails, kind="fails" if fails else ""))
        stuck = int(np.nansum(_last("unconverged")(cell.data)))
        row.append(_Entry(f"{stuck:,}", stuck, kind="fails" if stuck else ""))
        rows.append(row)
    return _table(columns, rows)


def _end(measure: _Measure, cell: Cell) -> _End:
    return _End.of(measure.of(cell.data))


def _verdicts(data: xarray.Dataset) -> tuple[int, int, int]:
    """How many guarantees hold in every seed that they apply to, fail in one, apply to none."""
    status = data["certificate_status"].transpose("seed", "certificate").to_numpy()
    fails = (status == "fails").any(0)
    holds = (status == "holds").any(0) & ~fails
    return int(holds.sum()), int(fails.sum()), int((~holds & ~fails).sum())


def _certificates(dataset: xarray.Dataset, cells: list[Cell]) -> str:
    names = [str(name) for name in dataset["certificate"].to_numpy()]
    theorems = [str(theorem) for theorem in dataset["theorem"].to_numpy()]
    every, each = [], []
    for number, (name, theorem) in enumerate(zip(names, theorems, strict=True)):
        judged = [_judged(cell, number) for cell in cells]
        every.append(_certificate_row(name, theorem, _together(judged)))
        for cell, one in zip(cells, judged, strict=True):
            each.append([_Entry(cell.label or "all"), *_certificate_row(name, theorem, one)])
    columns = ("guarantee", ">measured", ">bound", ">share", ">runs", "verdict")
    tables = _table(columns, every)
    if len(cells) > 1:
        tables += (
            "<details><summary>For each combination of learner and settings</summary>"
            f"{_table(('runs of', *columns), each)}</details>"
        )
    return tables


class _Judged(NamedTuple):
    """A guarantee in some runs; numbers are those of the run with the largest share."""

    measured: float
    bound: float
    share: float
    holds: int
    fails: int
    runs: int
    reason: str


def _judged(cell: Cell, number: int) -> _Judged:
    measured, bound, status, reason = (
        cell.data[f"certificate_{what}"].transpose("seed", "certificate").to_numpy()[:, number]
        for what in ("measured", "bound", "status", "reason")
    )
    applies = status != "does not apply"
    why = next((str(word) for word in reason[~applies] if word), "")
    if not applies.any():
        return _Judged(math.nan, math.nan, math.nan, 0, 0, len(status), why)
    safe = np.where(bound > 0, bound, 1)
    share = np.where(bound > 0, measured / safe, np.where(measured > bound, np.inf, 0.0))
    worst = int(np.argmax(np.where(applies, share, -np.inf)))
    holds, fails = int((status == "holds").sum()), int((status == "fails").sum())
    return _Judged(
        float(measured[worst]), float(bound[worst]), float(share[worst]), holds, fails,
        len(status), why,
    )  # fmt: skip


def _together(judged: list[_Judged]) -> _Judged:
    worst = max(judged, key=lambda one: -math.inf if math.isnan(one.share) else one.share)
    return worst._replace(
        holds=sum(one.holds for one in judged),
        fails=sum(one.fails for one in judged),
        runs=sum(one.runs for one in judged),
        reason=next((one.reason for one in judged if one.reason), ""),
    )


def _certificate_row(name: str, theorem: str, judged: _Judged) -> list[_Entry]:
    applied = judged.holds + judged.fails
    others = f"not in {judged.runs - applied:,}: {judged.reason}" if judged.reason else ""
    if judged.fails:
        failed = _count(judged.fails, "run")
        verdict = _Entry(f"fails in {failed}", small=others, kind="fails")
    elif judged.holds:
        verdict = _Entry("holds", small=others, kind="holds")
    else:
        verdict = _Entry("does not apply", small=judged.reason, kind="idle")
    return [
        _Entry(name, small=theorem),
        _Entry(_number(judged.measured), judged.measured),
        _Entry(_number(judged.bound), judged.bound),
        _Entry(_number(judged.share), judged.share),
        _Entry(f"{applied:,} of {judged.runs:,}", applied),
        verdict,
    ]


# The numbers that the page draws.


def _data(dataset: xarray.Dataset, cells: list[Cell]) -> dict[str, Any]:
    drawn = [name for name in _DRAWN if all(needed in dataset for needed in QUANTITIES[name].needs)]
    choices = {
        dim: [str(value) for value in dataset[dim].to_numpy()]
        for dim in ("instance", "horizon")
        if dim in dataset.coords and dataset[dim].ndim == 1
    }
    if "horizon" in choices:
        choices["horizon"] = [f"T = {int(value):,}" for value in dataset["horizon"].to_numpy()]
    return {
        "seeds": dataset.sizes["seed"],
        "quantities": {
            name: {
                "label": _capital(QUANTITIES[name].label),
                "axis": QUANTITIES[name].axis,
                "logarithmic": name in _LOGARITHMIC,
            }
            for name in drawn
        },
        "measures": [measure.name for measure in _MEASURES],
        "choices": choices,
        "cells": [_cell_data(dataset, cell, drawn, len(cells)) for cell in cells],
        "horizons": _horizons(cells) if dataset.sizes.get("horizon", 1) > 1 else [],
    }


def _cell_data(dataset: xarray.Dataset, cell: Cell, drawn: list[str], count: int) -> dict[str, Any]:
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
        found = [band_of(one, episode, _BAND) for one in each]
        found = [band for band in found if _shows(name, band)]
        if found:
            bands[name] = [
                [_rounded(line[kept]) for line in (band.median, band.low, band.high)]
                for band in found
            ]
    ends = [_end(measure, cell) for measure in _MEASURES]
    return {
        "label": cell.label,
        "names": cell.names,
        "place": {
            dim: int(np.flatnonzero(dataset[dim].to_numpy() == cell.values[dim])[0])
            for dim in ("instance", "horizon")
            if dim in cell.values and dim in dataset.coords
        },
        "episode": episode.to_numpy()[kept].tolist(),
        "opt": _rounded(band_of(cell.data["opt"], episode, _BAND).median[kept]),
        "bands": bands,
        "ends": [{"value": _finite(end.value), "text": end.text, "band": end.band} for end in ends],
    }


def _shows(name: str, band: Band) -> bool:
    """Whether there is anything to see: a learner without multipliers or projections has zeros."""
    known = band.median[np.isfinite(band.median)]
    return len(known) > 0 and (name not in ("multipliers", "iterations") or bool(known.any()))


def _horizons(cells: list[Cell]) -> list[dict[str, Any]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.label_without("horizon"), []).append(cell)
    lines = []
    for group, members in groups.items():
        members = sorted(members, key=lambda cell: cell.values["horizon"])
        lengths = np.array([cell.values["horizon"] for cell in members])
        for name in ("regret", "violation"):
            bands = [band_of(c.data[name], c.data["episode"], _BAND) for c in members]
            ends = np.array([(b.median[-1], b.low[-1], b.high[-1]) for b in bands])
            shown = np.where(ends[:, :1] > 0, ends, np.nan)  # others have no logarithm
            median, low, high = shown.T
            within = members[0].label_without("horizon", "instance")
            lines.append(
                {
                    "group": group,
                    "instance": str(members[0].values.get("instance")),
                    "quantity": name,
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
    """With five digits; what is not a number is null."""
    return [None if not math.isfinite(v) else float(f"{v:.5g}") for v in values.tolist()]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
