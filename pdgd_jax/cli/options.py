"""Options that commands share, and options of instances."""

import ast
import inspect
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdgd_jax._internal.checks import MOST_EPISODES, is_whole, whole_number
from pdgd_jax._internal.files import ASIDE
from pdgd_jax._internal.options import kind_of, takes_text
from pdgd_jax._internal.registry import nearest

if TYPE_CHECKING:
    import xarray

    from pdgd_jax.models import CMDP

__all__ = [
    "ANY_OPTION",
    "AsJson",
    "Force",
    "InstanceName",
    "SweepFolder",
    "about",
    "check_target",
    "completing",
    "configuration_names",
    "figure_names",
    "instance_names",
    "instance_of",
    "instance_options",
    "learner_names",
    "learner_options",
    "learner_options_so_far",
    "literal",
    "rates_names",
    "selected",
    "solver_names",
    "whole",
    "with_names",
]

# For a command that passes unknown words on to an instance: `instance_options(context.args)`.
ANY_OPTION = {"allow_extra_args": True, "ignore_unknown_options": True}

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]


def whole(option: str, number: float, least: int = 1, most: int = MOST_EPISODES) -> int:
    """A whole number that may be written as 1e5."""
    far = isinstance(number, int) and number > 10**300
    return whole_number(
        option,
        number,
        least,
        most if most < number < math.inf else None,  # name the limit only if it was exceeded
        accept=is_whole,
        shown=lambda value: "far more" if far else f"{value:g}",
    )


def check_target(path: Path, force: bool = False, folder: bool = False) -> None:
    """Raise, before any work is done, if a file cannot be written or exists already.

    Args:
      path: the file.
      force: whether it may replace an existing file.
      folder: whether `path` is a folder instead.
    """
    aside = path.parent / f"{path.name}.{os.getpid()}{ASIDE}"
    try:
        if not path.parent.is_dir():
            if path.parent.exists():
                raise ValueError(f"{path.parent} is not a folder.")
            raise ValueError(f"the folder {path.parent} does not exist.")
        if path.is_dir() and not folder:
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
    with warnings.catch_warnings():  # Python warns about words like 1if
        warnings.simplefilter("ignore")
        try:
            return ast.literal_eval(word)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return word


def instance_options(context: typer.Context, name: str) -> tuple[str, dict[str, Any]]:
    """Parse the unknown words of a command as options of the instance, `--num-actions 3`.

    Args:
      context: the context of the command.
      name: the name of the instance, or the first of its options if the name was left out.

    Returns:
      The name, "random" if there is none, and its options.
    """
    from pdgd_jax.instances import builder_of

    words, instance = list(context.args), name
    if left_out := name.startswith("-"):
        words, instance = [name, *words], "random"
    if any(word.partition("=")[0] == "--import" for word in words):
        raise ValueError(BELONGS_BEFORE.format(command=context.info_name))
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


def instance_of(
    context: typer.Context, name: str, num_episodes: int
) -> "tuple[str, dict[str, Any], CMDP]":
    """The instance of a command line, made for a number of episodes.

    Args:
      context: the context of the command.
      name: as in `instance_options`.
      num_episodes: T.

    Returns:
      Its name, its options, and the CMDP.
    """
    from pdgd_jax.instances import make_for

    name, options = instance_options(context, name)
    cmdp = make_for(name, num_episodes, **options)
    cmdp.check_episodes(num_episodes)
    return name, options, cmdp


def learner_options(name: str, words: list[str]) -> dict[str, Any]:
    """Parse the words NAME=VALUE of `--option`.

    Args:
      name: the name of the learner.
      words: the words, one for each option.
    """
    from pdgd_jax.learners import is_text, option_value, options_of

    found: dict[str, Any] = {}
    for word in words:
        option, equals, text = (part.strip() for part in word.partition("="))
        if not option.isidentifier() and option not in options_of(name):
            option = option.replace("-", "_")
        if not equals or not option or not text:
            raise ValueError(f"--option {word}: write NAME=VALUE, such as V=100.")
        if option in found:
            raise ValueError(f"--option {word}: {option} is given already.")
        value = text if is_text(name, option) else literal(text)
        found[option] = option_value(name, option, value)
    return found


def about(name: str) -> str:
    """The description of an instance."""
    from pdgd_jax.instances import builder_of

    return inspect.getdoc(builder_of(name)) or "(not described)"


BELONGS_BEFORE = "--import belongs before the command: pdgd --import MODULE {command} (...)."


def _check_known(context: typer.Context, name: str, option: str) -> None:
    """Raise for an unknown option, and suggest the nearest one of the instance or the command."""
    from pdgd_jax.instances import check_option, options_of

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


# Names that the shell completes. Imported on use, since the shell waits after every Tab.


def instance_names() -> tuple[str, ...]:
    """The instances that are registered."""
    from pdgd_jax.instances import registered

    return registered()


def learner_names() -> tuple[str, ...]:
    """The learners that are registered."""
    from pdgd_jax.learners import registered_learners

    return registered_learners()


def learner_options_so_far(context: typer.Context, incomplete: str) -> list[str]:
    """For `autocompletion=` of `--option`: the options of the learner that was named before."""
    from pdgd_jax.learners import options_of

    try:
        known = options_of(str(context.params.get("learner") or "pdgd-ops"))
    except ValueError:
        return []
    return [f"{option}=" for option in known if option.startswith(incomplete)]


def solver_names() -> tuple[str, ...]:
    """The solvers of the projection."""
    from pdgd_jax.projection import SOLVERS

    return tuple(SOLVERS)


def rates_names() -> tuple[str, ...]:
    """The rates that have a name."""
    from pdgd_jax.learners import RATES

    return tuple(RATES)


def configuration_names() -> tuple[str, ...]:
    """The configurations that come with the package."""
    from pdgd_jax.sweeps import builtin_names

    return builtin_names()


def figure_names() -> tuple[str, ...]:
    """The figures of a sweep."""
    from pdgd_jax.plots import FIGURES

    return tuple(FIGURES)


_LISTS = {"{learners}": learner_names, "{solvers}": solver_names, "{figures}": figure_names}


def with_names(text: str) -> str:
    """A help text with `{learners}` and similar placeholders replaced by the current names."""
    for place, names in _LISTS.items():
        if place in text:
            text = text.replace(place, ", ".join(names()))
    return text


def completing(names: Callable[[], tuple[str, ...]]) -> Callable[[str], list[str]]:
    """For `autocompletion=` of an option or argument."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def selected(folder: Path, words: list[str]) -> "xarray.Dataset":
    """The results in a folder, or the part that `--select` asks for."""
    from pdgd_jax.results import select
    from pdgd_jax.sweeps import open_results

    dataset = open_results(folder)
    try:
        return select(dataset, words)
    except ValueError as error:
        raise ValueError(f"--select {error}") from None


InstanceName = Annotated[
    str,
    typer.Argument(
        help="An instance, see [bold]pdgd instances[/].", autocompletion=completing(instance_names)
    ),
]
SweepFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a sweep.")]
