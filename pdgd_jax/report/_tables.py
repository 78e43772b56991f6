"""The text and tables of a report as HTML; every name is escaped here."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pdgd_jax._internal.text import count_in_words, number_in_words
from pdgd_jax.learners import FEEDBACK
from pdgd_jax.report._instances import Facts, facts_of
from pdgd_jax.report._measures import Measure, end_of, measures_of
from pdgd_jax.results import QUANTITIES, Cell, Status, shares_of

if TYPE_CHECKING:
    import xarray

__all__ = ["certificates_tables", "results_table", "summary", "warnings", "what_was_run"]


def summary(dataset: "xarray.Dataset", cells: list[Cell]) -> str:
    """The contents of the report in one sentence."""
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
    """Warnings that a reader must not miss, in boxes at the top."""
    boxes = []
    stuck = [(cell, int(np.nansum(QUANTITIES["unconverged"].end(cell.data)))) for cell in cells]
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
    missing = sum(int(np.isnan(QUANTITIES["reward"].end(cell.data)).sum()) for cell in cells)
    if missing:
        boxes.append(
            f"<p><strong>{count_in_words(missing, 'run')} not finished.</strong> Figures and "
            "tables show the others.</p>"
        )
    return "".join(f'<div class="alarm" role="alert">{box}</div>' for box in boxes)


def what_was_run(dataset: "xarray.Dataset", configuration: Mapping[str, Any]) -> str:
    """The configuration, the instances, the versions."""
    rest = {name: value for name, value in configuration.items() if name != "instance"}
    facts: dict[str, Any] = {}
    for name, value in rest.items():
        if isinstance(value, Mapping):  # without the options of learners, which their table shows
            entries = {key: entry for key, entry in value.items() if not isinstance(entry, Mapping)}
            facts |= {f"{key.replace('_', ' ')}": entry for key, entry in entries.items()}
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
    rows = [_instance_row(facts) for facts in facts_of(dataset, configuration)]
    columns = ("instance", "made by", "options", ">rho", ">optimal multiplier")
    table = _table(columns, rows, sortable=False) if rows else ""
    raw = ""
    if configuration:
        text = escape(json.dumps(configuration, indent=2, ensure_ascii=False))
        raw = f"<details><summary>The whole configuration</summary><pre>{text}</pre></details>"
    return f"<dl>{listed}</dl>{_learners_table(dataset, configuration)}{table}{raw}"


def _learners_table(dataset: "xarray.Dataset", configuration: Mapping[str, Any]) -> str:
    """What each learner knows and sees, and its options; nothing for results that do not say."""
    if "knows" not in dataset.coords or "feedback" not in dataset.coords:
        return ""
    chosen = configuration.get("learners", {})
    rows = []
    names, knows, sees = (
        np.atleast_1d(dataset[key].to_numpy()) for key in ("learner", "knows", "feedback")
    )
    for name, known, seen in zip(map(str, names), knows, sees, strict=True):
        options = "; ".join(
            f"{key} = {_plain(value)}" for key, value in chosen.get(name, {}).items()
        )
        rows.append(
            [_Entry(name), _Entry(known), _Entry(FEEDBACK.get(seen, seen)), _Entry(options)]
        )
    return _table(("learner", "knows", "sees", "options"), rows, sortable=False)


def _instance_row(facts: Facts) -> "list[_Entry]":
    return [
        _Entry(facts.label),
        _Entry(facts.make, small=facts.about),
        _Entry(", ".join(f"{name} = {_plain(value)}" for name, value in facts.options.items())),
        _Entry(facts.rho),
        _Entry(facts.multipliers),
    ]


def results_table(dataset: "xarray.Dataset", cells: list[Cell]) -> str:
    """A row of final values and guarantees for each cell; a second, folded table for the solver."""
    measures = measures_of(dataset)
    outer = [measure for measure in measures if not measure.column.inner]
    inner = [measure for measure in measures if measure.column.inner]
    about = "".join(
        f"<dt>{escape(measure.column.name)}</dt><dd>{escape(_meaning(dataset, measure))}</dd>"
        for measure in measures
    )
    return (
        f"{_ends_table(cells, outer, [('guarantees', _guarantees)])}"
        f"<details><summary>What the columns are</summary><dl>{about}</dl></details>"
        "<details><summary>Confidence sets, and the solver of the projections</summary>"
        f"{_ends_table(cells, inner, [('unconverged', _stuck)])}</details>"
    )


def _meaning(dataset: "xarray.Dataset", measure: Measure) -> str:
    """The meaning of a column: its description, or the `long_name` in the results."""
    name = measure.quantity.name
    about = dataset[name].attrs
    units = about.get("units", "")
    words = measure.column.about or str(about.get("long_name", name.replace("_", " ")))
    return f"{words} ({units})" if units not in ("", "1") else words


def _ends_table(
    cells: list[Cell],
    measures: list[Measure],
    more: "Sequence[tuple[str, Callable[[Cell], _Entry]]]",
) -> str:
    dims = list(dict.fromkeys(dim for cell in cells for dim in cell.names))
    names = [dim.replace("_", " ") for dim in dims] or ["runs"]
    ends = [[end_of(measure, cell) for measure in measures] for cell in cells]
    shown = [i for i in range(len(measures)) if any(math.isfinite(e[i].value) for e in ends)]
    numbers = [*(measures[i].column.name for i in shown), *(name for name, _ in more)]
    columns = [*names, *(f">{name}" for name in numbers)]
    rows = []
    for cell, of_cell in zip(cells, ends, strict=True):
        row = [_Entry(cell.names.get(dim, "any")) for dim in dims] or [_Entry("all")]
        row += [_Entry(of_cell[i].text, of_cell[i].value, of_cell[i].band) for i in shown]
        rows.append([*row, *(entry_of(cell) for _, entry_of in more)])
    return _table(columns, rows, pinned=len(names))


def _guarantees(cell: Cell) -> "_Entry":
    """How many guarantees could have failed and held, how many failed, how many are vacuous."""
    holds, fails, vacuous = _verdicts(cell.data)
    words = [f"{holds} hold", f"{fails} fail" if fails else ""]
    kind = "fails" if fails else ""
    small = f"{vacuous} vacuous" if vacuous else ""
    return _Entry(", ".join(filter(None, words)), _rank(holds, fails), small, kind)


def _rank(holds: int, fails: int) -> float:
    """A number to sort cells by: first by how few guarantees fail, then by how many hold."""
    return holds / (1 + holds) - fails


def _stuck(cell: Cell) -> "_Entry":
    stuck = int(np.nansum(QUANTITIES["unconverged"].end(cell.data)))
    return _Entry(f"{stuck:,}", stuck, kind="fails" if stuck else "")


def certificates_tables(dataset: "xarray.Dataset", cells: list[Cell]) -> str:
    """A row for each guarantee over all runs; folded tables for the idle ones and each cell."""
    names = [str(name) for name in dataset["certificate"].to_numpy()]
    theorems = [str(theorem) for theorem in dataset["theorem"].to_numpy()]
    applied: list[list[_Entry]] = []
    idle: list[list[_Entry]] = []
    each: list[list[_Entry]] = []
    for number, (name, theorem) in enumerate(zip(names, theorems, strict=True)):
        judged = [_judged(cell, number) for cell in cells]
        together = _together(judged)
        (applied if together.applied else idle).append(_certificate_row(name, theorem, together))
        for cell, one in zip(cells, judged, strict=True):
            each.append([_Entry(cell.label or "all"), *_certificate_row(name, theorem, one)])
    columns = ("guarantee", ">measured", ">bound", ">share", ">runs", "verdict")
    tables = _table(columns, applied) if applied else "<p>None applies to these runs.</p>"
    if idle:
        reasons = [[row[0], row[-1]] for row in idle]
        count = count_in_words(len(idle), "guarantee")
        tables += (
            f"<details><summary>Not applicable to these runs: {count}</summary>"
            f"{_table(('guarantee', 'verdict'), reasons)}</details>"
        )
    if len(cells) > 1:
        tables += (
            "<details><summary>For each combination of learner and settings</summary>"
            f"{_table(('runs of', *columns), each)}</details>"
        )
    return tables


class _Entry(NamedTuple):
    """A cell of a table: its text, sort key, small print and class."""

    text: Any
    value: float | None = None
    small: str = ""
    kind: str = ""


def _table(
    columns: Sequence[str],
    rows: Iterable[Sequence[_Entry]],
    *,
    sortable: bool = True,
    pinned: int = 0,
) -> str:
    """A table; > at the start of a name marks a column of numbers; pinned columns do not scroll."""
    heads = "".join(
        f'<th scope="col" class="{"number" if column.startswith(">") else ""}'
        f'{" pinned" if place < pinned else ""}">{escape(column.removeprefix(">"))}</th>'
        for place, column in enumerate(columns)
    )
    body = []
    for row in rows:
        entries = []
        for place, (column, entry) in enumerate(zip(columns, row, strict=True)):
            number = column.startswith(">")
            short = "short" if len(str(entry.text)) <= 24 and not entry.small else ""
            words = ("number",) if number else ("name", short)
            fixed = "pinned" if place < pinned else ""
            classes = " ".join(word for word in (*words, fixed, entry.kind) if word)
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
    """Numbers and lists formatted for people."""
    if isinstance(value, list | tuple):
        parts = (f"({_plain(v)})" if isinstance(v, list) else _plain(v) for v in value)
        return ", ".join(parts)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else f"{value:g}"


def _verdicts(data: "xarray.Dataset") -> tuple[int, int, int]:
    """The numbers of guarantees that hold where they could fail, fail in a seed, cannot fail."""
    status = data["certificate_status"].transpose("seed", "certificate").to_numpy()
    fails = (status == Status.FAILS).any(0)
    holds = (status == Status.HOLDS).any(0) & ~fails
    vacuous = (status == Status.VACUOUS).any(0) & ~fails & ~holds
    return int(holds.sum()), int(fails.sum()), int(vacuous.sum())


class _Judged(NamedTuple):
    """A guarantee in some runs.

    Its numbers are those of the run with the largest share: among the runs in which it fails if
    there are any, otherwise among those in which it could have failed, otherwise among the others.
    """

    measured: float = math.nan
    bound: float = math.nan
    trivial: float = math.nan
    share: float = math.nan
    holds: int = 0
    fails: int = 0
    vacuous: int = 0
    runs: int = 0
    reasons: Mapping[str, int] = MappingProxyType({})  # in how many runs it does not apply

    @property
    def reason(self) -> str:
        """Why it does not apply; several reasons come with their number of runs."""
        if len(self.reasons) < 2:
            return "".join(self.reasons)
        return ", ".join(f"{reason} ({count:,})" for reason, count in self.reasons.items())

    @property
    def weight(self) -> tuple[bool, bool, float]:
        """The priority of its numbers over those of other runs."""
        share = -math.inf if math.isnan(self.share) else self.share
        return self.fails > 0, self.holds > 0, share

    @property
    def applied(self) -> int:
        """The number of runs to which it applies."""
        return self.holds + self.fails + self.vacuous


def _judged(cell: Cell, number: int) -> _Judged:
    def read(what: str) -> Any:
        found = cell.data[f"certificate_{what}"].transpose("seed", "certificate")
        return found.to_numpy()[:, number]

    measured, bound, status, reason = map(read, ("measured", "bound", "status", "reason"))
    trivial = read("trivial") if "certificate_trivial" in cell.data else np.full(len(bound), np.nan)
    applies = status != Status.IDLE
    why = Counter(str(word) for word in reason[~applies] if word)
    if not applies.any():
        return _Judged(runs=len(status), reasons=why)
    share = shares_of(measured, bound)
    kinds = (Status.FAILS, Status.HOLDS, Status.VACUOUS)
    kind = next(kind for kind in kinds if (status == kind).any())
    worst = int(np.argmax(np.where(status == kind, share, -np.inf)))
    return _Judged(
        measured=float(measured[worst]),
        bound=float(bound[worst]),
        trivial=float(trivial[worst]),
        share=float(share[worst]),
        holds=int((status == Status.HOLDS).sum()),
        fails=int((status == Status.FAILS).sum()),
        vacuous=int((status == Status.VACUOUS).sum()),
        runs=len(status),
        reasons=why,
    )


def _together(judged: list[_Judged]) -> _Judged:
    return max(judged, key=lambda one: one.weight)._replace(
        holds=sum(one.holds for one in judged),
        fails=sum(one.fails for one in judged),
        vacuous=sum(one.vacuous for one in judged),
        runs=sum(one.runs for one in judged),
        reasons=sum((Counter(one.reasons) for one in judged), Counter()),
    )


def _certificate_row(name: str, theorem: str, judged: _Judged) -> list[_Entry]:
    known = not math.isnan(judged.trivial)
    trivial = f"trivial: {number_in_words(judged.trivial)}" if known else ""
    said = sorted(name.split(", ")) == sorted(theorem.split(", "))  # "regret, Theorem 5" is enough
    return [
        _Entry(name, small="" if said else theorem),
        _Entry(number_in_words(judged.measured), judged.measured),
        _Entry(number_in_words(judged.bound), judged.bound, trivial),
        _Entry(number_in_words(judged.share), judged.share),
        _Entry(f"{judged.applied:,} of {judged.runs:,}", judged.applied),
        _verdict(judged),
    ]


def _verdict(judged: _Judged) -> _Entry:
    """The verdict in words; "holds" only if the guarantee could have failed."""
    notes = []
    if judged.vacuous and judged.vacuous < judged.applied:
        notes.append(f"vacuous in {judged.vacuous:,}")
    if judged.reason and judged.applied:
        notes.append(f"not in {judged.runs - judged.applied:,}: {judged.reason}")
    small = "; ".join(notes)
    if judged.fails:
        return _Entry(f"fails in {count_in_words(judged.fails, 'run')}", small=small, kind="fails")
    if judged.holds:
        return _Entry("holds", small=small, kind="holds")
    if judged.vacuous:
        small = "; ".join(["no run could exceed this bound", *notes])
        return _Entry("vacuous", small=small, kind="vacuous")
    return _Entry("does not apply", small=judged.reason, kind="idle")
