"""Learners by name."""

import inspect
from collections.abc import Callable
from typing import Any

from jaxtyping import ArrayLike

from pdgd_jax._internal.registry import Registry, nearest
from pdgd_jax.learners._base import Learner
from pdgd_jax.learners._fixed import best_feasible, most_feasible, uniform
from pdgd_jax.learners._rates import RatesLike
from pdgd_jax.learners._rivals import RIVALS
from pdgd_jax.learners.primal_dual import pdgd_ops, uc_o_gdps
from pdgd_jax.models import CMDP
from pdgd_jax.projection import Solver

__all__ = [
    "LEARNERS",
    "SETTINGS",
    "make_learner",
    "register_learner",
    "registered_learners",
    "settings_of",
]

Builder = Callable[..., Learner]

# What the command line and a configuration offer to every learner.
SETTINGS = ("delta", "rates", "confidence_scale", "solver")

LEARNERS = Registry[Builder]("learner", group="pdgd_jax.learners")


def register_learner(name: str, builder: Builder) -> None:
    """Make a learner available by name: to `make_learner`, the command line and configurations.

    An installed package needs no call: it declares an entry point of the group
    `pdgd_jax.learners`.

    Args:
      name: a new name.
      builder: `(cmdp, num_episodes, *, ...) -> Learner`. Its keywords have defaults: those of the
        common settings `delta`, `rates`, `confidence_scale` and `solver` that it uses, and any
        further settings.

    Example:
      >>> from pdgd_jax import learners, make, register_learner
      >>> def greedy(cmdp, num_episodes):
      ...     '''Maximises the reward and looks at no constraint.'''
      ...     return learners.uc_o_gdps(cmdp.layers, num_episodes)
      >>> register_learner("greedy", greedy)
      >>> "greedy" in learners.registered_learners()
      True
    """
    LEARNERS.add(name, builder)


def registered_learners() -> tuple[str, ...]:
    """The names that `make_learner` knows; those of this package come first."""
    return LEARNERS.names()


def make_learner(name: str, cmdp: CMDP, num_episodes: ArrayLike, **settings: object) -> Learner:
    """Build a learner for a CMDP.

    Args:
      name: one of `registered_learners()`.
      cmdp: the CMDP that it will play.
      num_episodes: T; may be traced if the learner only computes with it.
      **settings: the common settings `delta`, `rates`, `confidence_scale` and `solver`, which are
        ignored if the learner does not use them, and further settings of the learner.

    Raises:
      ValueError: if the name or a setting is unknown; the error suggests the nearest.

    Example:
      >>> from pdgd_jax import make
      >>> from pdgd_jax.learners import make_learner
      >>> cmdp = make("streaming")
      >>> learner = make_learner("pdgd-ops", cmdp, 10_000, rates="theory")
      >>> idle = make_learner("uniform", cmdp, 10_000, rates="theory")  # needs no rates
    """
    taken = settings_of(name)
    for setting in settings:
        if setting not in taken and setting not in SETTINGS:
            known = dict.fromkeys([*SETTINGS, *taken])
            raise ValueError(
                f"learner {name!r} has no setting {setting!r}{nearest(setting, known)}; "
                f"the settings are {', '.join(known)}."
            )
    useful = {setting: value for setting, value in settings.items() if setting in taken}
    return LEARNERS.get(name)(cmdp, num_episodes, **useful)


def settings_of(name: str) -> dict[str, Any]:
    """The settings that a learner uses, with their defaults."""
    parameters = list(inspect.signature(LEARNERS.get(name)).parameters.values())
    return {parameter.name: parameter.default for parameter in parameters[2:]}


def _with_common_settings(
    learner: Callable[..., Learner], sizes_of: Callable[[CMDP], tuple[object, ...]]
) -> Builder:
    """A builder for a learner that takes some sizes of the CMDP, T and all common settings."""

    def build(
        cmdp: CMDP,
        num_episodes: ArrayLike,
        *,
        delta: ArrayLike = 0.05,
        rates: RatesLike = "tuned",
        confidence_scale: ArrayLike = 1.0,
        solver: str | Solver = "newton",
    ) -> Learner:
        return learner(
            *sizes_of(cmdp),
            num_episodes,
            delta=delta,
            rates=rates,
            confidence_scale=confidence_scale,
            solver=solver,
        )

    return build


def _uniform(cmdp: CMDP, num_episodes: ArrayLike) -> Learner:
    del num_episodes
    return uniform(cmdp.layers)


register_learner(
    "pdgd-ops",
    _with_common_settings(pdgd_ops, lambda cmdp: (cmdp.layers, cmdp.num_constraints)),
)
register_learner("uc-o-gdps", _with_common_settings(uc_o_gdps, lambda cmdp: (cmdp.layers,)))
for _name, _builder in RIVALS.items():
    register_learner(_name, _builder)
register_learner("uniform", _uniform)
register_learner("best-feasible", best_feasible)
register_learner("most-feasible", most_feasible)
