"""`pdgd learners`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from pdgd_jax.cli.app import Command
from pdgd_jax.cli.docs import described, options_table, plain_defaults
from pdgd_jax.cli.options import AsJson, completing, learner_names
from pdgd_jax.cli.output import plain_table, print_json, print_table
from pdgd_jax.learners import (
    SETTINGS,
    about_learner,
    declaration_of,
    options_of,
    registered_learners,
    settings_of,
)

__all__ = ["COMMAND"]


def learners(
    name: Annotated[
        str | None,
        typer.Argument(help="Describe this one in full.", autocompletion=completing(learner_names)),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the learners with what they know and see, or describe one with its options."""
    if name is not None:
        facts = _facts(name)
        print_json(facts) if as_json else _print_one(Console(), facts)
        return
    rows = [_facts_or_reason(name) for name in registered_learners()]
    print_json(rows) if as_json else _print_all(Console(), rows)


COMMAND = Command(learners, ("pdgd learners", "pdgd learners ucpd", "pdgd learners --json"))


def _facts(name: str) -> dict[str, Any]:
    """The facts of a learner, ready for JSON."""
    declaration, options = declaration_of(name), options_of(name)
    return {
        "name": name,
        "knows": declaration.knows,
        "feedback": declaration.feedback,
        "about": about_learner(name),
        "reference": described(about_learner(name)).reference,
        "options": plain_defaults(options),
        "settings": [setting for setting in SETTINGS if setting in settings_of(name)],
    }


def _facts_or_reason(name: str) -> dict[str, Any]:
    """The facts of a learner, or why it is not available: its distribution may be broken."""
    try:
        return _facts(name)
    except ValueError as error:
        return {"name": name, "unavailable": str(error)}


def _print_one(console: Console, facts: Mapping[str, Any]) -> None:
    """Print one learner with its options."""
    name, about = facts["name"], described(facts["about"])
    console.print(Text(name, style="bold"))
    console.print(Text(about.text), soft_wrap=True)
    declaration = declaration_of(name)
    rows = [("knows", declaration.knows_in_words), ("sees", declaration.sees_in_words)]
    rows += [("settings", ", ".join(facts["settings"]) or "none")]
    rows += [("reference", about.reference)] if about.reference else []
    console.print()
    for title, words in rows:
        console.print(Text.assemble((f"{title}: ", "bold"), words), soft_wrap=True)
    if facts["options"]:
        console.print()
        options = options_of(name)
        if declaration.needs_margin and options.get("rho", "") is None:
            options["rho"] = "the CMDP's"
        nothing = "the paper's" if about.reference else "its own"
        table = options_table(options, about.meanings, flag="{}", nothing=nothing)
        print_table(console, table)
        option = next(iter(facts["options"]))
        console.print(
            Text(
                f"\nSay --option {option}=VALUE to pdgd run, and {option} = [VALUE, ...] in "
                f"[learners.{name}] of a configuration."
            ),
            soft_wrap=True,
        )


def _print_all(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print all learners, one per row."""
    table = plain_table("learner", "sees", "reference", "knows")
    for row in rows:
        label = Text(row["name"], no_wrap=True)
        if "unavailable" in row:
            table.add_row(label, "-", "-", Text(row["unavailable"], style="yellow"))
            continue
        sees = "nothing" if row["feedback"] == "none" else row["feedback"]
        source = Text(described(row["about"]).source)
        table.add_row(label, sees, source, Text(declaration_of(row["name"]).knows_in_words))
    print_table(console, table)
    console.print("\nDescribe one with its options: [bold]pdgd learners NAME[/].")
