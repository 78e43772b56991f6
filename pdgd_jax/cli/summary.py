"""The summary of a run, in words and pictures."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from pdgd_jax._internal.files import ASIDE, writing
from pdgd_jax._internal.text import number_in_words
from pdgd_jax.cli.options import check_target
from pdgd_jax.cli.output import plain_table, print_table
from pdgd_jax.cli.signs import only_ascii
from pdgd_jax.cli.textplot import curve
from pdgd_jax.results import (
    QUANTITIES,
    Cell,
    Estimate,
    Results,
    Statistic,
    as_dataset,
    band_of,
    cells_of,
    spread_in_words,
)

__all__ = ["check_out", "print_summary", "saving"]


def print_summary(
    console: Console,
    facts: dict[str, Any],
    results: Results,
    *,
    all_: bool,
    statistic: Statistic = "median",
) -> None:
    """Print the summary, the picture, and warnings.

    Args:
      console: the console.
      facts: the facts of `summarise`.
      results: the results behind the facts.
      all_: whether to list every guarantee.
      statistic: the statistic over seeds.
    """
    (cell,) = cells_of(as_dataset(results))
    _print_ends(console, facts, cell, statistic)
    console.print()
    width = max(20, min(60, console.width - 12))
    for name in ("regret", "violation"):
        values, episode = QUANTITIES[name].of(cell.data), cell.data["episode"]
        picture = curve(
            episode.to_numpy(),
            band_of(values, episode, statistic=statistic).centre,
            width=width,
            label=f"{name} ({statistic} over seeds)" if facts["seeds"] > 1 else name,
            only_ascii=only_ascii(console),
        )
        console.print(Text(picture), soft_wrap=True)
        console.print()
    _print_certificates(console, facts, all_)
    _print_projections(console, facts)


def _print_ends(console: Console, facts: dict[str, Any], cell: Cell, statistic: Statistic) -> None:
    """Print the final values: every quantity of the table that has a row."""
    episodes = facts["episodes"]
    layers = cell.data.sizes.get("layer", 1)  # the most that an episode can earn
    spread = f"{statistic} ({spread_in_words(statistic)})" if facts["seeds"] > 1 else "value"
    table = plain_table("after the last episode", f">{spread}", ">per episode")

    def add(label: str, estimate: Estimate, scale: float = 0.0, *, each: bool = True) -> None:
        average = estimate.map(lambda total: total / episodes)
        words = average.words(scale / episodes, statistic) if each else ""
        table.add_row(label, estimate.words(scale, statistic), words)

    for quantity in QUANTITIES.values():
        if quantity.name == "opt":  # an average, not a sum
            _add_optimum(table.add_row, facts, add)
        row = quantity.row
        if row is None or quantity.key not in facts or not row.when(facts):
            continue
        found, label = facts[quantity.key], row.name(facts)
        if not quantity.each_constraint:
            scale = episodes * layers if row.per_episode else 0.0
            add(label, Estimate(**found), scale, each=row.per_episode)
            continue
        for i, one in enumerate(found):
            numbered = label if len(found) == 1 else f"{label} {i + 1}"
            add(numbered, Estimate(**one), each=row.per_episode)
    print_table(console, table)


def _add_optimum(
    add_row: Callable[..., None], facts: dict[str, Any], add: Callable[..., None]
) -> None:
    """Add the optimum and, if rewards were rescaled, both in the units of the environment."""
    total = facts["episodes"] * facts["opt"]
    add_row("OPT", number_in_words(total), number_in_words(facts["opt"]))
    if own := facts.get("environment"):
        add("reward, in the environment's units", Estimate(**own["reward"]))
        whole, per_episode = own["opt"], own["opt"] / facts["episodes"]
        words = number_in_words(whole), number_in_words(per_episode)
        add_row("OPT, in the environment's units", *words)


def _print_certificates(console: Console, facts: dict[str, Any], all_: bool) -> None:
    found, seeds = facts["certificates"], facts["seeds"]
    if all_:
        columns = ("guarantee", ">measured", ">bound", ">trivially", ">probability", "status")
        table = plain_table(*columns)
        for c in found:
            if c["fails"]:
                status = Text(f"fails in {c['fails']} of {seeds}", style="red")
            elif c["holds"]:
                rest = f", vacuous in {c['vacuous']} of {seeds}" if c["vacuous"] else ""
                status = Text(f"holds{rest}", style="green")
            elif c["vacuous"]:
                status = Text("vacuous: no learner could exceed it", style="yellow")
            else:
                status = Text(f"does not apply: {c['reason']}", style="dim")
            trivial = "" if c["trivial"] is None else f"{c['trivial']:.4g}"
            numbers = (f"{c['measured']:.4g}", f"{c['bound']:.4g}", trivial)
            probability = f"{c['probability']:.3g}"
            place = c["theorem"].partition(",")[0]
            name = c["name"] if place in c["name"] else f"{c['name']} ({place})"
            table.add_row(name, *numbers, probability, status)
        print_table(console, table)
    fails = sum(c["fails"] > 0 for c in found)
    holds = sum(c["holds"] > 0 and not c["fails"] for c in found)
    vacuous = sum(c["vacuous"] > 0 and not c["fails"] and not c["holds"] for c in found)
    idle = len(found) - holds - fails - vacuous
    more = "" if all_ else "; --certificates lists them"
    line = (
        f"guarantees: {holds} hold, {fails} fail, {vacuous} are vacuous, {idle} do not apply{more}"
    )
    console.print(Text(line, style="red" if fails else ""), soft_wrap=True)


def _print_projections(console: Console, facts: dict[str, Any]) -> None:
    if facts["unconverged"]:
        text = (
            f"{facts['unconverged']} projections did NOT converge: the numbers above are not those "
            "of the algorithm. Choose another solver or tolerance, and report the instance."
        )
        console.print(Text(text, style="bold red"), soft_wrap=True)
    elif facts["residual"] > 0:
        steps = f"{facts['iterations_per_episode']:.2f} iterations each"
        text = f"projections: all converged, largest residual {facts['residual']:.2g}, {steps}"
        console.print(Text(text), soft_wrap=True)


def check_out(path: Path, force: bool = False) -> None:
    """Raise, before anything runs, if the results cannot be saved there.

    Args:
      path: the folder.
      force: whether to replace the results of another run or sweep.
    """
    if path.suffix == ".npz":
        raise ValueError(
            f"--out is a folder now, which pdgd plot, pdgd report and open_results read; got the "
            f"name of a file, {path.name!r}."
        )
    held = path.is_dir() and any(path.iterdir())
    if held and force and not (path / "manifest.json").exists():
        raise ValueError(f"{path} holds files that are not results; --force does not replace them.")
    check_target(path, force=force, folder=True)


@contextlib.contextmanager
def saving(out: Path | None) -> Iterator[Path | None]:
    """A temporary folder beside `out`, which replaces it at the end if all went well.

    The old folder stays until then. After a failure nothing else is left.
    """
    if out is None:
        yield None
        return
    aside, old = (out.with_name(f"{out.name}{word}.{os.getpid()}{ASIDE}") for word in ("", ".old"))
    try:
        yield aside
        with writing(out.parent):
            if out.exists():
                os.replace(out, old)
            os.replace(aside, out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        old.unlink() if old.is_file() else shutil.rmtree(old, ignore_errors=True)
