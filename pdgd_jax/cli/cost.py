"""Announces the cost of a command before it starts, and asks if it is large."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from pdgd_jax._internal.text import count_in_words, duration_in_words, size_in_words
from pdgd_jax.cli.output import print_json
from pdgd_jax.sweeps import Cost, free_bytes

__all__ = ["DryRun", "Yes", "announce", "cost_in_words", "show_cost"]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Estimate the cost and stop.")]
Yes = Annotated[
    bool,
    typer.Option("--yes", help="Start without asking, even if it takes long or memory is short."),
]

# Costs that deserve a line, and a question.
_NOTABLE_SECONDS, _NOTABLE_BYTES = 30, 4 * 2**30
_LONG_SECONDS = 600


def cost_in_words(cost: Cost) -> str:
    """Such as `57,048 variables, 8 lanes: about 1.4 GiB, 18 s to compile, 2 h 5 min in all`."""
    words = (
        f"{count_in_words(cost.variables, 'variable')}, {count_in_words(cost.lanes, 'lane')} on "
        f"{count_in_words(cost.devices, 'device')}: about {size_in_words(cost.memory)} of memory, "
    )
    if cost.seconds is None or cost.compile_seconds is None or cost.play_seconds is None:
        return f"{words}time {cost.reason}"
    each = cost.play_seconds / cost.episodes
    return (
        f"{words}{duration_in_words(cost.compile_seconds)} to compile, {each:.2g} s an episode, "
        f"{duration_in_words(cost.seconds)} in all (estimated)"
    )


def show_cost(cost: Cost, as_json: bool) -> None:
    """Print the cost, for a dry run."""
    facts = cost.facts() | {"free_memory": free_bytes()}
    print_json(facts) if as_json else Console().print(Text(cost_in_words(cost)), soft_wrap=True)


def announce(cost: Cost, *, yes: bool, quiet: bool = False) -> None:
    """Announce the cost if it is high, and ask for confirmation if it is very high.

    Args:
      cost: the estimate.
      yes: whether to start without asking.
      quiet: whether to print only questions and errors.

    Raises:
      ValueError: if it needs more memory than is free, and there is no terminal to ask.
      typer.Exit: if the answer is no.
    """
    free = free_bytes()
    short = free is not None and cost.memory > free
    long = cost.seconds is not None and cost.seconds > _LONG_SECONDS
    watched = sys.stdin.isatty() and sys.stderr.isatty()
    notable = cost.memory > _NOTABLE_BYTES or (cost.seconds or 0) > _NOTABLE_SECONDS
    room = f"more than the {size_in_words(free)} that are free" if short and free else ""
    if short and not yes and not watched:
        raise ValueError(
            f"{cost_in_words(cost)}: {room}; play fewer seeds or a smaller instance, or give --yes "
            "to try anyway."
        )
    asks = (short or long) and not yes and watched
    if asks or short or (notable and not quiet):
        sentence = f"{cost_in_words(cost)}{f'; {room}' if room else ''}"
        Console(stderr=True).print(Text(sentence, style="yellow"), soft_wrap=True)
    if asks and not typer.confirm("Start?", err=True):
        raise typer.Exit(1)
