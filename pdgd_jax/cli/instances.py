"""`pdgd instances`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from pdgd_jax.cli.app import Command
from pdgd_jax.cli.docs import described, options_table, plain_defaults
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
        facts = {"name": name, "about": about(name), "options": plain_defaults(options)}
        print_json(facts) if as_json else _print_one(Console(), name, options)
        return
    rows = [{"name": name, **_facts_or_reason(name)} for name in registered()]
    print_json(rows) if as_json else _print_all(Console(), rows)


COMMAND = Command(instances, ("pdgd instances", "pdgd instances grid", "pdgd instances --json"))


def _print_one(console: Console, name: str, options: Mapping[str, Any]) -> None:
    """Print one instance with its options."""
    about_it = described(about(name))
    console.print(Text(name, style="bold"))
    console.print(Text(about_it.text), soft_wrap=True)
    if options:
        console.print()
        dashed = {option.replace("_", "-"): default for option, default in options.items()}
        meanings = {option.replace("_", "-"): said for option, said in about_it.meanings.items()}
        print_table(console, options_table(dashed, meanings, flag="--{}", nothing="None"))


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
