"""What the commands of `pdgd` share: the application, how they print, complete, and stop."""

import ast
import contextlib
import json
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from pdgd_jax._interrupt import end_at_once

__all__ = [
    "ANY_OPTION",
    "EXIT_CODES",
    "AsJson",
    "app",
    "check_parent",
    "completing",
    "configuration_names",
    "examples",
    "instance_names",
    "instance_options",
    "learner_names",
    "literal",
    "plain_table",
    "print_json",
    "rates_names",
    "run_app",
    "solver_names",
    "whole",
]

EXIT_CODES = (
    "[bold]Exit codes[/]: 0 success, 1 failure, 2 bad input, 130 interrupted (Ctrl-C). "
    "[bold]NO_COLOR[/]=1 turns colours off."
)

# As one would use them; a command that is not named here comes last.
_ORDER = ("run", "sweep", "status", "plot", "report", "instances", "solve")


class _InOrder(TyperGroup):
    """The commands in the order of their use, not of the modules that define them."""

    def list_commands(self, ctx: Any) -> list[str]:
        known = super().list_commands(ctx)
        return sorted(known, key=lambda name: (*_ORDER, name).index(name))


app = typer.Typer(
    cls=_InOrder,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Online learning in constrained MDPs with long-term constraints.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# A command that passes words it does not know on to an instance: `instance_options(context.args)`.
ANY_OPTION = {"allow_extra_args": True, "ignore_unknown_options": True}

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def examples(*commands: str) -> str:
    """The epilog of a command: what one would type, each on its own line."""
    return "\n".join(["[bold]Examples[/]", *(f"  {command}" for command in commands)])


def plain_table(*columns: str) -> Table:
    """A table without lines; a column whose name starts with > is aligned right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left", no_wrap=right)
    return table


def print_json(value: Any) -> None:
    """Print strict JSON: what is not a finite number is null."""
    typer.echo(json.dumps(_finite(value), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def whole(option: str, number: float) -> int:
    """A whole number that may be written as 1e5."""
    if not (number >= 1 and float(number).is_integer()):
        raise ValueError(f"{option} must be a whole number, at least 1; got {number:g}.")
    return int(number)


def check_parent(path: Path) -> None:
    """Refuse a file in a folder that is not there."""
    if not path.parent.is_dir():
        raise ValueError(f"the folder {path.parent} does not exist.")


def literal(word: str) -> Any:
    """A number, a tuple of numbers, or else the word."""
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word


def instance_options(words: list[str]) -> dict[str, Any]:
    """`--num-actions 3` or `--num-actions=3` as a dictionary."""
    options: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise ValueError(
                f"{word!r} is not an option; options of an instance look like --seed 3."
            )
        option, equals, value = word[2:].partition("=")
        if not equals:
            if not rest:
                raise ValueError(f"--{option} needs a value.")
            value = rest.pop(0)
        options[option.replace("-", "_")] = literal(value)
    return options


# Names that the shell completes. Imported when asked for: the shell waits for every Tab.


def instance_names() -> tuple[str, ...]:
    """The instances that are registered."""
    from pdgd_jax.instances import registered

    return registered()


def learner_names() -> tuple[str, ...]:
    """The learners that are registered."""
    from pdgd_jax.learners import registered_learners

    return registered_learners()


def solver_names() -> tuple[str, ...]:
    """The solvers of the projection."""
    from pdgd_jax.projection.base import SOLVERS

    return tuple(SOLVERS)


def rates_names() -> tuple[str, ...]:
    """The rates that have a name."""
    from pdgd_jax.learners import RATES

    return tuple(RATES)


def configuration_names() -> tuple[str, ...]:
    """The configurations that come with the package."""
    from pdgd_jax.configuration import builtin_names

    return builtin_names()


def completing(names: Callable[[], tuple[str, ...]]) -> Callable[[str], list[str]]:
    """For `autocompletion=` of an option or argument."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def run_app() -> None:
    """Run `pdgd`: an error is one red sentence, and never a traceback that one cannot use.

    `ValueError` means bad input, exit code 2; `OSError` (a full disk) a failure, 1; Ctrl-C is 130.
    """
    with _quick_to_stop() as interrupted:
        try:
            app()
        except BaseException as error:
            if interrupted.is_set():  # whatever the exception has become on its way here
                _leave()
            if not isinstance(error, ValueError | OSError):
                raise
            _say(str(error))
            sys.exit(2 if isinstance(error, ValueError) else 1)


def _say(sentence: str) -> None:
    Console(stderr=True).print(Text(sentence, style="red"), soft_wrap=True)


def _leave() -> NoReturn:
    Console(stderr=True).show_cursor()
    _say("interrupted")
    # No ordinary exit: Python might remember the interrupt, and end by the signal instead.
    os._exit(130)


@contextlib.contextmanager
def _quick_to_stop() -> Iterator[threading.Event]:
    """Let Ctrl-C end the process even where Python cannot: nothing on disk is lost by it.

    Python reacts to a signal between two of its own steps, but compiling, or a long piece of a run,
    is a single one: so a thread watches. And the exception may be raised where it is swallowed.

    Yields:
      Whether it was pressed.
    """
    noticed, finished = threading.Event(), threading.Event()
    before = signal.getsignal(signal.SIGINT)
    usual = before in (signal.default_int_handler, end_at_once)
    if not usual or threading.current_thread() is not threading.main_thread():
        yield noticed  # ignored, as in a background job, or handled by someone else
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def notice(number: int, frame: Any) -> None:
        noticed.set()
        signal.default_int_handler(number, frame)

    def watch() -> None:
        with reader:
            while (signals := reader.recv(1)) and signals[0] != signal.SIGINT:
                pass
            ours = signal.getsignal(signal.SIGINT) is notice  # else a command stops in its own way
            if signals and ours and not (noticed.wait(2) and finished.wait(10)):
                _leave()

    def swallowed(event: Any) -> None:
        if issubclass(event.exc_type, KeyboardInterrupt):
            _leave()
        report(event)

    report, sys.unraisablehook = sys.unraisablehook, swallowed
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, notice)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield noticed
    finally:
        signal.signal(signal.SIGINT, before)
        signal.set_wakeup_fd(wakeup)
        sys.unraisablehook = report
        writer.close()
        finished.set()
