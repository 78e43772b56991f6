"""`pdgd instances`."""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from pdgd_jax._internal.options import written
from pdgd_jax.cli.app import Command
from pdgd_jax.cli.options import AsJson, about, completing, instance_names
from pdgd_jax.cli.output import plain_table, print_json, print_table
from pdgd_jax.cli.users import place_of
from pdgd_jax.instances import make_for, options_of, registered
from pdgd_jax.results import describe

__all__ = ["COMMAND"]


def instances(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Describe this one in full.", autocompletion=completing(instance_names)
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the built-in instances, or describe one with its options."""
    if name is not None:
        options = options_of(name)
        shown = {option: _plain_default(default) for option, default in options.items()}
        facts = {"name": name, "about": about(name), "options": shown}
        print_json(facts) if as_json else _print_one(Console(), name, options)
        return
    rows = [{"name": name, **_facts_or_reason(name)} for name in registered()]
    print_json(rows) if as_json else _print_all(Console(), rows)


COMMAND = Command(instances, ("pdgd instances", "pdgd instances grid", "pdgd instances --json"))


def _print_one(console: Console, name: str, options: Mapping[str, Any]) -> None:
    """Print one instance with its options."""
    description, meanings = _described(name)
    console.print(Text(name, style="bold"))
    console.print(Text(description), soft_wrap=True)
    if options:
        console.print()
        table = plain_table("option", "default", "what it is")
        for option, default in options.items():
            flag = Text(f"--{option.replace('_', '-')}", no_wrap=True)
            table.add_row(flag, _shown_default(default), meanings.get(option, ""))
        print_table(console, table)


def _print_all(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print all instances, one per row."""
    table = plain_table("instance", ">L", ">states", ">actions", ">m", ">OPT", ">rho", "what it is")
    for row in rows:
        label = Text(row["name"], no_wrap=True)
        if "unavailable" in row:
            table.add_row(label, *["-"] * 6, Text(row["unavailable"], style="yellow"))
            continue
        what = Text(about(row["name"]).splitlines()[0])
        if row["rho"] is None:
            what.append(f" (rho: {row['rho_reason']})", style="yellow")
        counts = (str(row[key]) for key in ("layers", "states", "actions", "constraints"))
        opt, rho = ("?" if row[key] is None else f"{row[key]:.4g}" for key in ("opt", "rho"))
        bound = "" if row["rho"] is None or row["rho_exact"] else "≥ "
        table.add_row(label, *counts, opt, f"{bound}{rho}", what)
    print_table(console, table)
    console.print("\nSolve one with [bold]pdgd solve NAME[/]; its options: pdgd instances NAME.")


def _facts_or_reason(name: str) -> dict[str, Any]:
    """The facts of an instance, or why it is not available: it may be broken or need an extra."""
    try:
        return describe(make_for(name, 10_000), 10_000).as_dict()
    except Exception as error:
        if not isinstance(error, ValueError) and not place_of(error):
            raise
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        return {"unavailable": f"{kind}{error}{place_of(error)}"}


def _described(name: str) -> tuple[str, dict[str, str]]:
    """The docstring without its section on options, and the meaning of each option."""
    description, _, section = about(name).partition("\nArgs:\n")
    meanings: dict[str, str] = {}
    for line in inspect.cleandoc(section).splitlines():
        option, colon, meaning = line.partition(": ")
        if colon and option.isidentifier():
            meanings[option] = meaning
        elif meanings:
            meanings[[*meanings][-1]] += f" {line.strip()}"
    return description.rstrip(), meanings


def _shown_default(default: Any) -> str:
    return "(needed)" if default is inspect.Parameter.empty else written(default)


def _plain_default(default: Any) -> Any:
    return None if default is inspect.Parameter.empty else default
