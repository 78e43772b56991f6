"""One guarantee and a single run: what was measured, and what was promised."""

import math
from typing import Any, NamedTuple

import numpy as np

from pdgd_jax import theory
from pdgd_jax.results._certificates import Subject

__all__ = ["Judgement", "closest", "judge", "judge_excess"]


class Judgement(NamedTuple):
    """A certificate of a single run."""

    name: str
    theorem: str
    measured: float
    bound: float
    probability: float
    reason: str
    trivial: float
    about: Subject


def judge(
    name: str,
    measured: Any,
    bound: theory.Bound | Any,
    reason: str = "",
    trivial: float = math.inf,
    about: Subject = Subject.OTHER,
) -> Judgement:
    if not isinstance(bound, theory.Bound):
        bound = theory.Bound(bound, 1.0, "by construction")
    numbers = float(measured), float(bound.value), bound.probability
    return Judgement(name, bound.theorem, *numbers, reason, float(trivial), about)


def judge_excess(
    name: str, excess: Any, whole: theory.Bound, reason: str, possible: float, slack: float
) -> Judgement:
    """How much the worst interval exceeds its bound; `whole` is the bound of the whole run."""
    beyond = float(np.max(excess, initial=-np.inf))
    measured = min(beyond, 0.0) if beyond <= slack else beyond  # NaN stays
    bound = theory.Bound(0.0, whole.probability, whole.theorem)
    return judge(name, measured, bound, reason, max(possible - whole.value, 0.0))


def closest(judgements: list[Judgement]) -> Judgement | None:
    """The one whose bound is nearest to what was measured."""
    return min(judgements, key=lambda judged: judged.bound - judged.measured, default=None)
