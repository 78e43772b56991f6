"""Learners by name."""

import inspect
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from jaxtyping import ArrayLike

from pdgd_jax import oracle
from pdgd_jax._internal.options import kind_of, number_or_word, options_of_builder, value_of
from pdgd_jax._internal.registry import Registry, nearest
from pdgd_jax.learners._base import Learner
from pdgd_jax.learners._declaration import Declaration, declared_by, declares, described_by
from pdgd_jax.learners._fixed import best_feasible, most_feasible, uniform
from pdgd_jax.learners._rates import RatesLike
from pdgd_jax.learners._rivals import RIVALS
from pdgd_jax.learners.primal_dual import pdgd_ops, uc_o_gdps
from pdgd_jax.models import CMDP
from pdgd_jax.processes import StochasticProcess
from pdgd_jax.projection import Solver

__all__ = [
    "BY_DEFAULT",
    "LEARNERS",
    "SETTINGS",
    "about_learner",
    "check_option",
    "declaration_of",
    "is_text",
    "make_learner",
    "margin_of",
    "option_value",
    "options_of",
    "register_learner",
    "registered_learners",
    "settings_of",
]

Builder = Callable[..., Learner]

# What the command line and a configuration offer to every learner.
SETTINGS = ("delta", "rates", "confidence_scale", "solver")

# In a list of values of an option: as if it were not given. The default may depend on T.
BY_DEFAULT = "default"

LEARNERS = Registry[Builder]("learner", group="pdgd_jax.learners")


def register_learner(
    name: str,
    builder: Builder,
    *,
    knows: Collection[str] | None = None,
    feedback: str | None = None,
) -> None:
    """Make a learner available by name: to `make_learner`, the command line and configurations.

    An installed package needs no call: it declares an entry point of the group
    `pdgd_jax.learners`.

    Args:
      name: a new name.
      builder: `(cmdp, num_episodes, *, ...) -> Learner`. Its keywords have defaults: those of the
        common settings `delta`, `rates`, `confidence_scale` and `solver` that it uses, and its own
        options. Options annotated as numbers or text are checked before the call. `pdgd learners`
        shows its docstring.
      knows: what it knows, as in `declares`; by default what is declared there.
      feedback: what it sees, as in `declares`.

    Example:
      >>> from pdgd_jax import learners, make, register_learner
      >>> def greedy(cmdp, num_episodes):
      ...     '''Maximises the reward and looks at no constraint.'''
      ...     return learners.uc_o_gdps(cmdp.layers, num_episodes)
      >>> register_learner("greedy", greedy, knows=["horizon"], feedback="full")
      >>> "greedy" in learners.registered_learners()
      True
    """
    if knows is not None or feedback is not None:
        before = declared_by(builder)
        declares(
            knows=before.knows if knows is None else knows, feedback=feedback or before.feedback
        )(builder)
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
        ignored if the learner does not use them, and options of the learner (`pdgd learners NAME`).

    Raises:
      ValueError: if the name or a setting is unknown (the error suggests the nearest), or if the
        learner must know a margin rho > 0 and there is none.

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
    if declaration_of(name).needs_margin and useful.get("rho") is None:
        rho = margin_of(name, cmdp, num_episodes)
        useful |= {"rho": rho} if "rho" in taken else {}
    return LEARNERS.get(name)(cmdp, num_episodes, **useful)


def margin_of(name: str, cmdp: CMDP, num_episodes: ArrayLike) -> float:
    """The margin of a CMDP, for a learner that must know it.

    Args:
      name: the name of the learner.
      cmdp: one CMDP; this function solves its linear program on the host.
      num_episodes: T, which matters to an adversary alone; may be traced for other constraints.

    Raises:
      ValueError: if the margin is not positive.
    """
    drawn = isinstance(cmdp.constraints, StochasticProcess)
    T = None if drawn else int(np.asarray(num_episodes))
    rho = oracle.slater_margin(cmdp.mdp, cmdp.constraints, T).rho
    if not rho > 0:
        way_out = (
            " Give its option rho a value to play it anyway." if "rho" in options_of(name) else ""
        )
        raise ValueError(
            f"the learner {name!r} must know a margin rho > 0, and here no policy satisfies "
            f"the constraints strictly: rho is {rho:.4g}.{way_out}"
        )
    return rho


def declaration_of(name: str) -> Declaration:
    """What a learner knows and sees."""
    return declared_by(LEARNERS.get(name))


def about_learner(name: str) -> str:
    """The description of a learner."""
    return inspect.getdoc(LEARNERS.get(name)) or "(not described)"


def settings_of(name: str) -> dict[str, Any]:
    """The settings that a learner uses, common ones and options, with their defaults."""
    return dict([*options_of_builder(LEARNERS.get(name)).items()][2:])  # after the CMDP and T


def options_of(name: str) -> dict[str, Any]:
    """The options of a learner, which are its own settings, with their defaults.

    Example:
      >>> from pdgd_jax import learners
      >>> learners.options_of("cold")
      {'epsilon': 0.5, 'V': None, 'alpha': None}
    """
    return {option: x for option, x in settings_of(name).items() if option not in SETTINGS}


def check_option(name: str, option: str) -> None:
    """Raise if a learner has no such option; the error suggests the nearest."""
    known = options_of(name)
    if option in known:
        return
    if option in SETTINGS:
        home = "[learners]" if option == "solver" else "[settings]"
        flag = option.replace("_", "-")
        raise ValueError(
            f"{option} is a setting that learners share, not an option of {name!r}; it belongs in "
            f"{home}, and is --{flag} on the command line."
        )
    offered = f"its options are {', '.join(known)}" if known else "it has no options"
    raise ValueError(
        f"learner {name!r} has no option {option!r}{nearest(option, known)}; {offered}."
    )


def option_value(name: str, option: str, value: object) -> Any:
    """Convert an option to the type of the learner; raise if it is unknown or of a wrong type.

    The word "default" stays as it is where the default is None: configurations mean by it not to
    give the option.
    """
    check_option(name, option)
    if value == BY_DEFAULT and options_of(name)[option] is None:
        return value
    kind = _kind_of(name, option)
    return value_of(LEARNERS.get(name), f"learner {name!r}", option, value, kind=kind)


def is_text(name: str, option: str) -> bool:
    """Whether an option is text, whatever it looks like."""
    check_option(name, option)
    return bool(_kind_of(name, option) is str)


def _kind_of(name: str, option: str) -> Any:
    return number_or_word(kind_of(LEARNERS.get(name), option), options_of(name)[option])


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

    build.__doc__ = described_by(learner)
    return build


def _uniform(cmdp: CMDP, num_episodes: ArrayLike) -> Learner:
    """Play every action of a state equally often."""
    del num_episodes
    return uniform(cmdp.layers)


register_learner(
    "pdgd-ops",
    _with_common_settings(pdgd_ops, lambda cmdp: (cmdp.layers, cmdp.num_constraints)),
    knows=["horizon"],
)
register_learner(
    "uc-o-gdps",
    _with_common_settings(uc_o_gdps, lambda cmdp: (cmdp.layers,)),
    knows=["horizon"],
)
for _name, _builder in RIVALS.items():
    register_learner(_name, _builder)
register_learner("uniform", _uniform, knows=[], feedback="none")
register_learner(
    "best-feasible",
    best_feasible,
    knows=["transitions", "rewards", "constraints", "horizon"],
    feedback="none",
)
register_learner(
    "most-feasible",
    most_feasible,
    knows=["transitions", "constraints", "horizon"],
    feedback="none",
)
