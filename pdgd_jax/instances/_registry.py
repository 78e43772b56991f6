"""Instances by name."""

import inspect
from collections.abc import Callable
from typing import Any

from pdgd_jax._internal.registry import Registry, nearest
from pdgd_jax.instances._options import options_of_builder, value_of
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

    An installed package does so without a call: by an entry point of the group
    `pdgd_jax.instances`, whose name is that of the instance and whose object is the builder.

    Args:
      name: a new name.
      builder: a function with keyword options, all with defaults, that returns a `CMDP`. Its
        docstring is what `pdgd instances` shows. Options that are annotated as numbers, text, or
        sequences of these are checked before it is called; one that is named `num_episodes` is
        T, and is given by whoever knows how many episodes will be played (`make_for`).

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
      **options: what the instance offers; see its entry in `pdgd_jax.instances`.

    Raises:
      ValueError: if the name or an option is unknown, suggesting the nearest, or if an option is
        not of the kind that the instance takes.

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

    An instance that depends on the number of episodes has an option `num_episodes`; it is set,
    unless the options say otherwise. All others are made as `make` does.

    Args:
      name: one of `registered()`.
      num_episodes: T.
      **options: what the instance offers.

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
    """Whether an instance is another one if it is played for longer."""
    return "num_episodes" in options_of(name)


def check_option(name: str, option: str) -> None:
    """Refuse, in a sentence, an option that an instance does not have."""
    known = options_of(name)
    if option not in known and not _takes_anything(builder_of(name)):
        offered = f"its options are {', '.join(known)}" if known else "it has no options"
        raise ValueError(
            f"instance {name!r} has no option {option!r}{nearest(option, known)}; {offered}."
        )


def check_value(name: str, option: str, value: object) -> Any:
    """The value as the instance takes it; an unknown option or a wrong value is refused."""
    check_option(name, option)
    return value_of(builder_of(name), name, option, value)


def builder_of(name: str) -> Builder:
    """The function behind a name."""
    return INSTANCES.get(name)


def options_of(name: str) -> dict[str, Any]:
    """The options of an instance, with their defaults."""
    return options_of_builder(builder_of(name))


def _takes_anything(builder: Builder) -> bool:
    parameters = inspect.signature(builder).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
