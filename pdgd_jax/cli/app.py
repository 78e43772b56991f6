"""The application: registers commands, and shows errors as sentences."""

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand

from pdgd_jax.cli.options import ANY_OPTION, BELONGS_BEFORE, with_names
from pdgd_jax.cli.output import say
from pdgd_jax.cli.signals import leave, quick_to_stop
from pdgd_jax.cli.signs import write_what_can_be_written
from pdgd_jax.cli.users import users_traceback

__all__ = ["EXIT_CODES", "Command", "app", "examples", "register", "run_app"]

EXIT_CODES = (
    "[bold]Exit codes[/]: 0 success, 1 failure, 2 bad input, 130 interrupted (Ctrl-C). "
    "[bold]NO_COLOR[/]=1 turns colours off, [bold]PDGD_DEBUG[/]=1 shows where an error comes from."
)

app = typer.Typer(
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Online learning in constrained MDPs with long-term constraints.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Command(NamedTuple):
    """A command of `pdgd`.

    Attributes:
      function: its implementation; the name is that of the command, the docstring the help.
      examples: example command lines.
      any_option: whether unknown words are options of an instance.
    """

    function: Callable[..., None]
    examples: tuple[str, ...]
    any_option: bool = False


class _NamesWhenAsked(TyperCommand):
    """Fills names into help texts when help is shown, after the user's modules are imported."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        parameters: list[Any] = self.params  # of typer, and all of them have a help
        for parameter in parameters:
            if parameter.help:
                parameter.help = with_names(parameter.help)
        super().format_help(ctx, formatter)


def register(*commands: Command) -> None:
    """Add commands to the application; help lists them in this order."""
    for command in commands:
        settings = ANY_OPTION if command.any_option else None
        epilog = examples(*command.examples)
        add = app.command(cls=_NamesWhenAsked, context_settings=settings, epilog=epilog)
        add(command.function)


def examples(*commands: str) -> str:
    """The epilog of a command: example command lines."""
    return "\n".join(["[bold]Examples[/]", *(f"  {command}" for command in commands)])


def run_app() -> None:
    """Run `pdgd`; an error is one red sentence, not a traceback.

    A `ValueError` means bad input and exit code 2, an `OSError` (a full disk) a failure and exit
    code 1. Ctrl-C gives 130. An error in a user's module is shown with the user's lines.
    """
    write_what_can_be_written()
    with quick_to_stop() as interrupted, _warnings_as_sentences():
        try:
            code = app(standalone_mode=False)
            if interrupted.is_set():
                leave()
        except BaseException as error:
            if interrupted.is_set():  # the exception may have changed its type on the way
                leave()
            if isinstance(error, SystemExit):
                raise
            sys.exit(_explain(error))
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: BaseException) -> int:
    """Explain an error, and return the exit code."""
    if os.environ.get("PDGD_DEBUG"):
        traceback.print_exception(error)
    code = 2 if isinstance(error, ValueError) else 1
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # a wrong use of options
        say(_usage(error))
        return int(error.exit_code)
    if isinstance(error, typer.Abort):
        say("stopped")
        return 1
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        say(f"there is not enough memory for this: {str(error).splitlines()[0]}")
        return 1
    if theirs := users_traceback(error):
        Console(stderr=True).print(Text(theirs), soft_wrap=True, end="")
        if str(error) not in theirs:
            say(str(error))
        return code
    if isinstance(error, ValueError | OSError):
        say(str(error))
        return code
    if not os.environ.get("PDGD_DEBUG"):
        traceback.print_exception(error)
    say("this is a mistake in pdgd_jax, not in what you typed; please report it with these lines.")
    return 1


def _usage(error: Any) -> str:
    """The message of the option parser as one sentence."""
    command = getattr(getattr(error, "ctx", None), "info_name", None) or "pdgd"
    if getattr(error, "option_name", None) == "--import":
        return BELONGS_BEFORE.format(command=command)
    sentence = " ".join(str(error.format_message()).split())
    sentence += "" if sentence.endswith((".", "?")) else "."
    path = "pdgd" if command == "pdgd" else f"pdgd {command}"
    return f"{sentence} See {path} --help."


@contextlib.contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    """Show each warning once, as a yellow sentence without a source line."""
    from pdgd_jax.models import EpisodesWarning

    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if not issubclass(category, EpisodesWarning):
            usual(message, category, *rest, **more)
        elif str(message) not in said:
            said.add(str(message))
            say(str(message), "yellow")

    with warnings.catch_warnings():
        warnings.simplefilter("always", EpisodesWarning)
        usual, warnings.showwarning = warnings.showwarning, show
        yield
