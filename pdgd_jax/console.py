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
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from pdgd_jax._files import ASIDE
from pdgd_jax._interrupt import end_at_once
from pdgd_jax._names import nearest
from pdgd_jax._signs import write_what_can_be_written
from pdgd_jax._users import users_traceback

__all__ = [
    "ANY_OPTION",
    "EXIT_CODES",
    "LARGEST_KEY",
    "AsJson",
    "Force",
    "app",
    "check_target",
    "completing",
    "configuration_names",
    "examples",
    "instance_names",
    "instance_options",
    "learner_names",
    "literal",
    "plain_table",
    "print_json",
    "print_table",
    "rates_names",
    "run_app",
    "solver_names",
    "whole",
]

EXIT_CODES = (
    "[bold]Exit codes[/]: 0 success, 1 failure, 2 bad input, 130 interrupted (Ctrl-C). "
    "[bold]NO_COLOR[/]=1 turns colours off, [bold]PDGD_DEBUG[/]=1 shows where an error comes from."
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
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Online learning in constrained MDPs with long-term constraints.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# A command that passes words it does not know on to an instance: `instance_options(context.args)`.
ANY_OPTION = {"allow_extra_args": True, "ignore_unknown_options": True}

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file, if there is one.")]


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


def print_table(console: Console, table: Table) -> None:
    """Print a table, or its rows one below the other if the terminal is too narrow for it.

    The last column may be wrapped if it is aligned left, down to 24 characters; names may not.
    """

    def width(cell: Any) -> int:
        return Measurement.get(console, console.options, cell).maximum

    headers = [column.header if table.show_header else "" for column in table.columns]
    rows = [*zip(*(column.cells for column in table.columns), strict=True)]
    widths = [max(map(width, cells)) for cells in zip(headers, *rows, strict=True)]
    if table.columns[-1].justify == "left":
        widths[-1] = min(widths[-1], 24)
    if sum(widths) + 2 * (len(widths) - 1) <= console.width:  # two blanks between them
        console.print(table)
        return
    for name, *cells in rows:
        console.print(name, style="bold")
        pairs = [(c.header, cell) for c, cell in zip(table.columns[1:], cells, strict=True)]
        right = [column.justify == "right" for column in table.columns[1:]]
        numbers = [pair for pair, is_number in zip(pairs, right, strict=True) if is_number]
        texts = [cell for (_, cell), number in zip(pairs, right, strict=True) if not number]
        for text in [*_packed(numbers, console.width - 2), *texts]:
            if str(text):
                console.print(Padding(text, (0, 0, 0, 2)))


def _packed(numbers: list[tuple[Any, Any]], room: int) -> list[str]:
    """Numbers and their names, as many on a line as there is room for; no number is broken."""
    lines: list[str] = []
    for header, cell in numbers:
        if not str(cell):
            continue
        item = f"{header} {cell}"
        if len(item) >= room:
            item = f"{cell} ({header})"  # what is broken then is the name
        if lines and len(lines[-1]) + len(item) + 2 <= room:
            lines[-1] += f", {item}"
        else:
            lines[-1:] = [*(f"{line}," for line in lines[-1:]), item]
    return lines


def print_json(value: Any) -> None:
    """Print strict JSON: what is not a finite number is null."""
    typer.echo(json.dumps(_finite(value), allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Episodes and seeds are counted in 32 bits, and so are keys when JAX is used without float64.
_MOST = 2**31 - 1
LARGEST_KEY = 2**32 - 1


def whole(option: str, number: float, least: int = 1, most: int = _MOST) -> int:
    """A whole number that may be written as 1e5."""
    if not (least <= number <= most and int(number) == number):
        large = most < number < math.inf
        bounds = f"from {least} to {most:,}" if large else f"at least {least}"
        got = "far more" if isinstance(number, int) and number > 10**300 else f"{number:g}"
        raise ValueError(f"{option} must be a whole number, {bounds}; got {got}.")
    return int(number)


def check_target(path: Path, force: bool = False) -> None:
    """Refuse, before any work is done, a file that could not be written or that is there already.

    Args:
      path: the file.
      force: whether it may replace another.
    """
    aside = path.parent / f"{path.name}.{os.getpid()}{ASIDE}"
    try:
        if not path.parent.is_dir():
            if path.parent.exists():
                raise ValueError(f"{path.parent} is not a folder.")
            raise ValueError(f"the folder {path.parent} does not exist.")
        if path.is_dir():
            raise ValueError(f"{path} is a folder; give the name of a file.")
        if path.exists() and not force:
            raise ValueError(
                f"{path} exists already; choose another name, remove it, or say --force."
            )
        aside.touch()
        aside.unlink()
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}.") from None


def literal(word: str) -> Any:
    """A number, a tuple of numbers, or else the word."""
    with warnings.catch_warnings():  # Python has opinions about words like 1if
        warnings.simplefilter("ignore")
        try:
            return ast.literal_eval(word)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return word


def instance_options(context: typer.Context, name: str) -> tuple[str, dict[str, Any]]:
    """The words that a command does not know: options of the instance, `--num-actions 3`.

    Args:
      context: of the command.
      name: of the instance, or the first of its options where the name was left out.

    Returns:
      The name, "random" if there is none, and its options.
    """
    from pdgd_jax.instances.options import kind_of, takes_text
    from pdgd_jax.instances.registry import builder_of

    words, instance = list(context.args), name
    if left_out := name.startswith("-"):
        words, instance = [name, *words], "random"
    if any(word.partition("=")[0] == "--import" for word in words):
        raise ValueError(_BELONGS_BEFORE.format(command=context.info_name))
    found: dict[str, str | None] = {}
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            if left_out and not word.startswith("-"):  # options first, then the name
                instance, left_out = word, False
                continue
            raise ValueError(
                f"{word!r} is not an option; options of an instance look like --seed 3."
            )
        option, equals, value = word[2:].partition("=")
        given = bool(equals) or bool(words and not words[0].startswith("--"))
        found[option.replace("-", "_")] = (value if equals else words.pop(0)) if given else None
    builder = builder_of(instance)
    options = {}
    for option, text in found.items():
        _check_known(context, instance, option)
        if text is None:
            raise ValueError(f"--{_dashed(option)} needs a value.")
        options[option] = text if takes_text(kind_of(builder, option)) else literal(text)
    return instance, options


_BELONGS_BEFORE = "--import belongs before the command: pdgd --import MODULE {command} (...)."


def _check_known(context: typer.Context, name: str, option: str) -> None:
    """Suggest the nearest of all options that could have been meant, the command's own too."""
    from pdgd_jax.instances.registry import check_option, options_of

    theirs = [_dashed(known) for known in options_of(name)]
    own = [word[2:] for parameter in context.command.params for word in parameter.opts]
    near = nearest(_dashed(option), [*theirs, *own], cutoff=0.7)
    if _dashed(option) in theirs or (near and not any(near.endswith(f"'{x}'?)") for x in own)):
        check_option(name, option)
        return
    near = near.replace("mean '", "mean '--")
    raise ValueError(
        f"pdgd {context.info_name} has no option '--{_dashed(option)}'{near}, nor has "
        f"instance {name!r}, whose options are {', '.join(theirs)}."
    )


def _dashed(option: str) -> str:
    return option.replace("_", "-")


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
    Whatever comes out of a module of the user's is shown with the lines there that led to it.
    """
    write_what_can_be_written()
    with _quick_to_stop() as interrupted, _warnings_as_sentences():
        try:
            code = app(standalone_mode=False)
            if interrupted.is_set():
                _leave()
        except BaseException as error:
            if interrupted.is_set():  # whatever the exception has become on its way here
                _leave()
            if isinstance(error, SystemExit):
                raise
            sys.exit(_explain(error))
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: BaseException) -> int:
    """Say what went wrong; the exit code."""
    if os.environ.get("PDGD_DEBUG"):
        traceback.print_exception(error)
    code = 2 if isinstance(error, ValueError) else 1
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # a wrong use of options
        _say(_usage(error))
        return int(error.exit_code)
    if isinstance(error, typer.Abort):
        _say("stopped")
        return 1
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        _say(f"there is not enough memory for this: {str(error).splitlines()[0]}")
        return 1
    if theirs := users_traceback(error):
        Console(stderr=True).print(Text(theirs), soft_wrap=True, end="")
        if str(error) not in theirs:
            _say(str(error))
        return code
    if isinstance(error, ValueError | OSError):
        _say(str(error))
        return code
    if not os.environ.get("PDGD_DEBUG"):
        traceback.print_exception(error)
    _say("this is a mistake in pdgd_jax, not in what you typed; please report it with these lines.")
    return 1


def _usage(error: Any) -> str:
    """What the parser of options has to say, as one sentence."""
    command = getattr(getattr(error, "ctx", None), "info_name", None) or "pdgd"
    if getattr(error, "option_name", None) == "--import":
        return _BELONGS_BEFORE.format(command=command)
    sentence = " ".join(str(error.format_message()).split())
    sentence += "" if sentence.endswith((".", "?")) else "."
    path = "pdgd" if command == "pdgd" else f"pdgd {command}"
    return f"{sentence} See {path} --help."


@contextlib.contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    """Say once, in yellow, what Python would print with a line of ours."""
    from pdgd_jax.cmdp import EpisodesWarning

    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if not issubclass(category, EpisodesWarning):
            usual(message, category, *rest, **more)
        elif str(message) not in said:
            said.add(str(message))
            _say(str(message), "yellow")

    with warnings.catch_warnings():
        warnings.simplefilter("always", EpisodesWarning)
        usual, warnings.showwarning = warnings.showwarning, show
        yield


def _say(sentence: str, style: str = "red") -> None:
    Console(stderr=True).print(Text(sentence, style=style), soft_wrap=True)


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
