"""Instances by name."""

import inspect
from collections.abc import Callable
from typing import Any

from pdgd_jax._names import nearest
from pdgd_jax.cmdp import CMDP

__all__ = [
    "builder_of",
    "check_option",
    "make",
    "options_of",
    "register",
    "registered",
]

Builder = Callable[..., CMDP]

_BUILDERS: dict[str, Builder] = {}


def register(name: str, builder: Builder) -> None:
    """Make a CMDP available as `make(name)`, here and on the command line.

    Args:
      name: a new name.
      builder: a function with keyword options, all with defaults, that returns a `CMDP`. Its
        docstring is what `pdgd instances` shows.

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
    if name in _BUILDERS and _BUILDERS[name] is not builder:
        raise ValueError(f"an instance named {name!r} is registered already.")
    _BUILDERS[name] = builder


def registered() -> tuple[str, ...]:
    """The names that `make` knows, in alphabetical order."""
    return tuple(sorted(_BUILDERS))


def make(name: str, **options: Any) -> CMDP:
    """Build an instance.

    Args:
      name: one of `registered()`.
      **options: what the instance offers; see its entry in `pdgd_jax.instances`.

    Raises:
      ValueError: if the name or an option is unknown, suggesting the nearest.

    Example:
      >>> from pdgd_jax import make
      >>> make("streaming", horizon=5)
      CMDP(sizes=(1, 2, 3, 4, 5, 1), num_actions=2, num_constraints=1,
           rewards=Bernoulli, constraints=Bernoulli)
    """
    for option in options:
        check_option(name, option)
    return builder_of(name)(**options)


def check_option(name: str, option: str) -> None:
    """Refuse, in a sentence, an option that an instance does not have."""
    known = options_of(name)
    if option not in known:
        offered = f"its options are {', '.join(known)}" if known else "it has no options"
        raise ValueError(
            f"instance {name!r} has no option {option!r}{nearest(option, known)}; {offered}."
        )


def builder_of(name: str) -> Builder:
    """The function behind a name."""
    if name not in _BUILDERS:
        raise ValueError(
            f"unknown instance {name!r}{nearest(name, registered())}; "
            f"the instances are {', '.join(registered())}."
        )
    return _BUILDERS[name]


def options_of(name: str) -> dict[str, Any]:
    """The options of an instance, with their defaults."""
    parameters = inspect.signature(builder_of(name)).parameters
    return {option: parameter.default for option, parameter in parameters.items()}
