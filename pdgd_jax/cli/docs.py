"""Descriptions of instances and learners: their docstrings, taken apart."""

import inspect
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rich.text import Text

from pdgd_jax._internal.options import written
from pdgd_jax.cli.output import plain_table

__all__ = ["Described", "described", "options_table", "plain_defaults"]

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example|Reference):\n", re.MULTILINE)


class Described(NamedTuple):
    """A docstring in parts.

    Attributes:
      text: what comes before the sections.
      meanings: what each argument is.
      reference: where it comes from, in one line; empty if it does not say.
    """

    text: str
    meanings: dict[str, str]
    reference: str

    @property
    def source(self) -> str:
        """The authors and the year of the reference, if it names them."""
        found = re.match(r"(.*?) (\(\d{4}\))", self.reference)
        if found is None:
            return ""
        authors = re.split(r", | and ", found[1])
        short = " and ".join(authors) if len(authors) < 3 else f"{authors[0]} et al."
        return f"{short} {found[2]}"


def described(docstring: str) -> Described:
    """Take a docstring apart."""
    text, *rest = _SECTION.split(docstring)
    sections = dict(zip(rest[::2], map(inspect.cleandoc, rest[1::2]), strict=True))
    meanings: dict[str, str] = {}
    for line in sections.get("Args", "").splitlines():
        option, colon, meaning = line.partition(": ")
        if colon and option.isidentifier():
            meanings[option] = meaning
        elif meanings:
            meanings[[*meanings][-1]] += f" {line.strip()}"
    return Described(text.rstrip(), meanings, " ".join(sections.get("Reference", "").split()))


def options_table(
    options: Mapping[str, Any], meanings: Mapping[str, str], *, flag: str, nothing: str
) -> Any:
    """A table of options with their defaults.

    Args:
      options: their defaults.
      meanings: what they are.
      flag: how an option is written, with `{}` for its name.
      nothing: what a default of None means.
    """
    table = plain_table("option", "default", "what it is")
    for option, default in options.items():
        name = Text(flag.format(option), no_wrap=True)
        shown = "(needed)" if default is inspect.Parameter.empty else written(default)
        table.add_row(name, nothing if default is None else shown, meanings.get(option, ""))
    return table


def plain_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults for JSON; null for an option that is needed."""
    return {
        option: None if default is inspect.Parameter.empty else default
        for option, default in options.items()
    }
