"""Instances by name."""

import inspect
from collections.abc import Callable
from typing import Any

from pdgd_jax._internal.options import options_of_builder, value_of
from pdgd_jax._internal.registry import Registry, nearest
from pdgd_jax.models import CMDP

__all__ = [
    "INSTANCES",
    "builder_of",
    "check_option",
    "check_value",
    "depends_on_episodes",
    "make",
    "make_for",
    "options_of",
    "register",
    "registered",
]

Builder = Callable[..., CMDP]

INSTANCES = Registry[Builder]("instance", group="pdgd_jax.instances")


def register(name: str, builder: Builder) -> None:
    """Make a CMDP available as `make(name)`, here and on the command line.

    An installed package needs no call: it declares an entry point of the group
    `pdgd_jax.instances`. The name of the entry point is that of the instance, its object the
    builder.

    Args:
      name: a new name.
      builder: a function with keyword options, all with defaults, that returns a `CMDP`.
        `pdgd instances` shows its docstring. Options annotated as numbers, text, or sequences of
        these are checked before the call. An option named `num_episodes` is T; `make_for` sets it
        to the number of episodes that will be played.

    Example:
      >>> from pdgd_jax import make, register
      >>> def long_random(length: int = 8):
      ...     '''A random CMDP that is long and narrow.'''
      ...     return make("random", sizes=(1, *[2] * length, 1))
      >>> register("long-random", long_random)
      >>> make("long-random", length=3)
      CMDP(sizes=(1, 2, 2, 2, 1), num_actions=3, num_constraints=1,
           rewards=Bernoulli, constraints=Bernoulli)
    """
    INSTANCES.add(name, builder)


def registered() -> tuple[str, ...]:
    """The names that `make` knows, in alphabetical order."""
    return tuple(sorted(INSTANCES))


def make(name: str, /, **options: object) -> CMDP:
    """Build an instance.

    Args:
      name: one of `registered()`.
      **options: the options of the instance; see its entry in `pdgd_jax.instances`.

    Raises:
      ValueError: if the name or an option is unknown (the error suggests the nearest), or if an
        option has the wrong type.

    Example:
      >>> from pdgd_jax import make
      >>> make("streaming", horizon=5)
      CMDP(sizes=(1, 2, 3, 4, 5, 1), num_actions=2, num_constraints=1,
           rewards=Bernoulli, constraints=Bernoulli)
    """
    builder = builder_of(name)
    values = {option: check_value(name, option, value) for option, value in options.items()}
    try:
        cmdp = builder(**values)
    except MemoryError as error:
        raise ValueError(f"instance {name!r} does not fit into memory: {error}") from error
    if not isinstance(cmdp, CMDP):
        raise ValueError(f"the builder of {name!r} must return a CMDP; got {cmdp!r:.60}.")
    if depends_on_episodes(name):
        cmdp.note_episodes(values.get("num_episodes", options_of(name)["num_episodes"]))
    return cmdp


def make_for(name: str, num_episodes: int, /, **options: object) -> CMDP:
    """Build an instance that will be played for `num_episodes` episodes.

    An instance that depends on the number of episodes has an option `num_episodes`. It is set to
    this number unless the options set it. For other instances this is `make`.

    Args:
      name: one of `registered()`.
      num_episodes: T.
      **options: the options of the instance.

    Example:
      >>> from pdgd_jax import make_for
      >>> int(make_for("two-phase", 3000).constraints.period)
      1500
      >>> int(make_for("two-phase", 3000, num_episodes=500).constraints.period)
      250
    """
    if depends_on_episodes(name):
        options = {"num_episodes": num_episodes, **options}
    return make(name, **options)


def depends_on_episodes(name: str) -> bool:
    """Whether an instance depends on the number of episodes."""
    return "num_episodes" in options_of(name)


def check_option(name: str, option: str) -> None:
    """Raise if an instance has no such option."""
    known = options_of(name)
    if option not in known and not _takes_anything(builder_of(name)):
        offered = f"its options are {', '.join(known)}" if known else "it has no options"
        raise ValueError(
            f"instance {name!r} has no option {option!r}{nearest(option, known)}; {offered}."
        )


def check_value(name: str, option: str, value: object) -> Any:
    """Convert an option to the type of the instance; raise if it is unknown or invalid."""
    check_option(name, option)
    return value_of(builder_of(name), f"instance {name!r}", option, value)


def builder_of(name: str) -> Builder:
    """The function behind a name."""
    return INSTANCES.get(name)


def options_of(name: str) -> dict[str, Any]:
    """The options of an instance, with their defaults."""
    return options_of_builder(builder_of(name))


def _takes_anything(builder: Builder) -> bool:
    parameters = inspect.signature(builder).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
