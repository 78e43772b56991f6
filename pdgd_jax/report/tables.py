"""The words and tables of a report, as HTML; every name is escaped here."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, NamedTuple

import numpy as np
import xarray

from pdgd_jax._words import count_in_words, number_in_words
from pdgd_jax.curves import Cell, shares_of
from pdgd_jax.report.measures import MEASURES, end_of, last

__all__ = ["certificates_tables", "results_table", "summary", "warnings", "what_was_run"]


def summary(dataset: xarray.Dataset, cells: list[Cell]) -> str:
    """What there is, in a sentence."""
    seeds = dataset.sizes["seed"]
    episodes = sum(int(cell.data["episode"][-1]) for cell in cells) * seeds
    words = [
        f"{count_in_words(len(cells), 'combination')} of instance, learner and settings",
        count_in_words(seeds, "seed"),
        f"{count_in_words(episodes, 'episode')} in all",
    ]
    created = dataset.attrs.get("created")
    date = f"; {datetime.fromisoformat(created):%Y-%m-%d %H:%M %Z}" if created else ""
    return escape(", ".join(words) + date.rstrip() + ".")


def warnings(cells: list[Cell]) -> str:
    """What a reader must not miss, in boxes before everything else."""
    boxes = []
    stuck = [(cell, int(np.nansum(last("unconverged")(cell.data)))) for cell in cells]
    stuck = [(cell, count) for cell, count in stuck if count]
    if stuck:
        total = count_in_words(sum(count for _, count in stuck), "projection")
        where = [f"{cell.label or 'all runs'}: {count:,}" for cell, count in stuck]
        more = f"; and {len(where) - 5} more, see the results" if len(where) > 5 else ""
        boxes.append(
            f"<p><strong>{total} did not converge.</strong> The numbers of these runs are not "
            "those of the algorithm: choose another solver or tolerance, and report the instance."
            f"</p><p>{escape('; '.join(where[:5]))}{more}</p>"
        )
    missing = sum(int(np.isnan(last("reward")(cell.data)).sum()) for cell in cells)
    if missing:
        boxes.append(
            f"<p><strong>{count_in_words(missing, 'run')} not finished.</strong> Figures and "
            "tables show the others.</p>"
        )
    return "".join(f'<div class="alarm" role="alert">{box}</div>' for box in boxes)


def what_was_run(dataset: xarray.Dataset, configuration: Mapping[str, Any]) -> str:
    """The configuration, the instances, the versions."""
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


def results_table(cells: list[Cell]) -> str:
    """A row for each cell: where its runs ended, and what held."""
    dims = list(dict.fromkeys(dim for cell in cells for dim in cell.names))
    names = [dim.replace("_", " ") for dim in dims] or ["runs"]
    ends = [[end_of(measure, cell) for measure in MEASURES] for cell in cells]
    shown = [i for i in range(len(MEASURES)) if any(math.isfinite(e[i].value) for e in ends)]
    measured = [f">{MEASURES[i].name}" for i in shown]
    columns = [*names, *measured, ">guarantees", ">unconverged"]
    rows = []
    for cell, of_cell in zip(cells, ends, strict=True):
        row = [_Entry(cell.names.get(dim, "any")) for dim in dims] or [_Entry("all")]
        row += [_Entry(of_cell[i].text, of_cell[i].value, of_cell[i].band) for i in shown]
        holds, fails, _ = _verdicts(cell.data)
        judged = f"{holds} hold" + (f", {fails} fail" if fails else "")
        row.append(_Entry(judged, holds - 1000 * fails, kind="fails" if fails else ""))
        stuck = int(np.nansum(last("unconverged")(cell.data)))
        row.append(_Entry(f"{stuck:,}", stuck, kind="fails" if stuck else ""))
        rows.append(row)
    return _table(columns, rows)


def certificates_tables(dataset: xarray.Dataset, cells: list[Cell]) -> str:
    """A row for each guarantee, over all runs; and one for each guarantee and cell."""
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


def _plain(value: Any) -> str:
    """Numbers and lists as a person writes them."""
    if isinstance(value, list | tuple):
        parts = (f"({_plain(v)})" if isinstance(v, list) else _plain(v) for v in value)
        return ", ".join(parts)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else f"{value:g}"


def _verdicts(data: xarray.Dataset) -> tuple[int, int, int]:
    """How many guarantees hold in every seed that they apply to, fail in one, apply to none."""
    status = data["certificate_status"].transpose("seed", "certificate").to_numpy()
    fails = (status == "fails").any(0)
    holds = (status == "holds").any(0) & ~fails
    return int(holds.sum()), int(fails.sum()), int((~holds & ~fails).sum())


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
    share = shares_of(measured, bound)
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
        failed = count_in_words(judged.fails, "run")
        verdict = _Entry(f"fails in {failed}", small=others, kind="fails")
    elif judged.holds:
        verdict = _Entry("holds", small=others, kind="holds")
    else:
        verdict = _Entry("does not apply", small=judged.reason, kind="idle")
    return [
        _Entry(name, small=theorem),
        _Entry(number_in_words(judged.measured), judged.measured),
        _Entry(number_in_words(judged.bound), judged.bound),
        _Entry(number_in_words(judged.share), judged.share),
        _Entry(f"{applied:,} of {judged.runs:,}", applied),
        verdict,
    ]
