"""`pdgd settings`: the settings of a learner.

Copy to `pdgd_jax/cli/NAME.py`, import it in `pdgd_jax/cli/entry.py`, and add its `COMMAND` to
`register` there.
"""

from typing import Annotated

import typer
from rich.console import Console

from pdgd_jax.cli.app import Command
from pdgd_jax.cli.options import AsJson
from pdgd_jax.cli.output import plain_table, print_json, print_table
from pdgd_jax.learners import settings_of

__all__ = ["COMMAND"]


def settings(
    learner: Annotated[str, typer.Argument(metavar="NAME", help="The learner.")] = "pdgd-ops",
    as_json: AsJson = False,
) -> None:
    """List the settings that a learner takes in a sweep."""
    names = settings_of(learner)  # an unknown name is a ValueError of one sentence
    if as_json:
        print_json({"learner": learner, "settings": list(names)})
        return
    table = plain_table("setting")
    for name in names:
        table.add_row(name)
    print_table(Console(), table)


COMMAND = Command(settings, ("pdgd settings", "pdgd settings uc-o-gdps --json"))
