"""Checks whether each guarantee of the paper held in a run, on the host in float64."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from jaxtyping import Float

from pdgd_jax import theory
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import CMDP
from pdgd_jax.results._benchmarks import opt_of_windows
from pdgd_jax.results._case import Case, Margin, case_of, dependence_of
from pdgd_jax.results._certificates import Certificate, Subject
from pdgd_jax.results._judgement import Judgement, closest, judge, judge_excess
from pdgd_jax.results._rival_guarantees import of_rivals
from pdgd_jax.simulation import History

__all__ = ["certificates_of"]

# How far an occupancy may lie outside its set in float32 and float64: ten times the tolerance of
# the least precise solver.
_FEASIBLE = (1e-3, 1e-6)


def certificates_of(
    cmdp: CMDP,
    runs: Sequence[History],
    sums: Sequence[dict[str, NDArray]],
    margins: Sequence[Margin],
    opt: Float[NDArray, " runs"],
    regret: Float[NDArray, " runs"],
    shaped: Callable[[Any], NDArray] = np.asarray,
) -> tuple[Certificate, ...]:
    """Check every guarantee; where one does not apply, give the reason.

    Args:
      cmdp: the CMDP that was played.
      runs: single runs, on the host.
      sums: the cumulative numbers of each run by name, `[K, ...]`.
      margins: the margin of each run.
      opt: OPT of each whole run.
      regret: the regret at the end of each run.
      shaped: restores the leading axes of arrays `[runs]`.
    """
    dependence = dependence_of(cmdp)
    of_window = lru_cache(partial(opt_of_windows, cmdp))
    judged = [
        _judgements(
            case_of(cmdp, dependence, *parts, lambda window, run: of_window(window)(run, -1))
        )
        for parts in zip(runs, sums, margins, opt, regret, strict=True)
    ]
    return tuple(_together(found, shaped) for found in zip(*judged, strict=True))


def _judgements(case: Case) -> list[Judgement]:
    return [
        *_of_construction(case),
        *_of_chance(case),
        *_of_intervals(case),
        *_of_measurements(case),
        *_of_theorems(case),
        *of_rivals(case),
    ]


def _of_construction(case: Case) -> Iterator[Judgement]:
    """Guarantees that hold in every episode by construction."""
    last, problem = case.last, case.problem
    feasible = _FEASIBLE[int(case.precise)]
    yield judge("projections converged", last.unconverged, 0, case.no_player)
    yield judge("occupancies feasible", last.infeasibility, feasible, case.no_player)
    top = theory.multiplier_ceiling(problem.num_episodes)
    measured, reach = last.highest_multiplier, problem.dual * case.most_cost
    bound = top * (1 + case.rounding)
    reason, about = case.no_multipliers, Subject.MULTIPLIERS
    yield judge("multipliers in their box", measured, bound, reason, reach, about)
    increment = theory.dual_increment(problem)
    slack = increment.value * case.rounding + np.spacing(last.largest_multiplier)
    bound = increment._replace(value=increment.value + slack)
    measured, trivial = last.largest_increment, problem.num_constraints * top
    has_dual = case.kind and "dual_step" in case.constants
    reason, trivial = ("", math.inf) if has_dual else (case.no_multipliers, trivial)
    yield judge("step of the multipliers", measured, bound, reason, trivial)


def _of_chance(case: Case) -> Iterator[Judgement]:
    """How close samples are to their means: transitions, rewards, constraints."""
    last, problem, sums = case.last, case.problem, case.sums
    lemma = theory.Bound(0, 1 - problem.delta, "Lemma 5, confidence sets")
    narrow = case.other_radii if case.scale < 1 else ""
    # With radii of 2, or with a single successor, the set always contains the true transition.
    possible = 0 if last.radius >= 2 * (1 - 1e-6) or case.certain_transitions else 1
    if case.knows:
        lemma = theory.Bound(0, 1.0, "by construction")
    reason = case.no_player or narrow
    yield judge("transitions covered", not last.covered, lemma, reason, possible)
    error = theory.estimation_error(problem)
    reason = case.no_estimate or case.not_ended or case.other_radii
    measured = sums["model_error"]
    trivial = 0 if case.certain_transitions else 2 * case.most_cost
    yield judge("transitions estimated", measured, error, reason, trivial)

    count = len(last.margin)
    nothing = "" if count else "no occupancies to compare with"
    usual = case.no_promise or case.not_ended or nothing
    lemma = theory.reward_deviation(problem)
    lemma = lemma._replace(probability=max(0.0, 1 - count * problem.delta))
    reason = usual or ("" if case.stochastic_rewards else "rewards are adversarial")
    measured = np.max(np.abs(sums["reward_deviation"]), initial=0)
    trivial = case.most_cost if case.random_rewards else 0
    yield judge("rewards near their mean", measured, lemma, reason, trivial)
    # For every prefix, relative to the largest multiplier and the root of the prefix's length.
    lemma = theory.constraint_deviation(problem, 1)
    lemma = lemma._replace(probability=max(0.0, 1 - count * problem.delta))
    reason = usual or case.no_multipliers
    reason = reason or ("" if case.stochastic_constraints else "constraints are adversarial")
    measured = np.max(last.deviation, initial=0)
    trivial = 2 * problem.num_layers * math.sqrt(case.played) if case.random_constraints else 0
    yield judge("constraints near their mean", measured, lemma, reason, trivial)


def _of_intervals(case: Case) -> Iterator[Judgement]:
    """How much the regret of each player over any interval exceeds the bound of the interval."""
    last, problem, comparators = case.last, case.problem, case.run.comparators
    loss, top = float(last.largest_loss), theory.multiplier_ceiling(problem.num_episodes)
    most = case.most_cost
    duals = []
    for excess, against in zip(last.dual_excess.value, comparators.multipliers, strict=True):
        whole = theory.dual_interval_regret(problem, float(np.linalg.norm(against)), case.played)
        reach = float(np.square(np.maximum(np.abs(against), top)).sum()) / problem.dual
        possible = most * float(np.maximum(np.abs(against), np.abs(top - against)).sum())
        slack = case.rounding * (whole.value + reach)
        name = "dual interval regret"
        duals.append(judge_excess(name, excess, whole, case.no_multipliers, possible, slack))
    yield closest(duals) or judge("dual interval regret", np.nan, np.nan, "no comparators")

    nothing = "" if len(comparators.occupancies) else "no occupancies to compare with"
    reason = case.no_promise or case.not_covered or nothing
    whole = theory.primal_descent_regret(problem, loss, case.played)
    # An error of the occupancy changes the distances of each step by as much as the residual.
    steps = case.played * loss * problem.primal * math.sqrt(2 * problem.num_layers)
    slack = case.rounding * whole.value
    slack += steps * math.sqrt(problem.num_episodes) * float(last.residual)
    excess, possible = last.descent_excess.value, 2 * loss * most
    yield judge_excess("primal descent regret", excess, whole, reason, possible, slack)
    whole = theory.primal_interval_regret(problem, loss, case.played)
    reason = reason or case.other_radii or case.not_ended
    excess = last.primal_excess.value
    yield judge_excess("primal interval regret", excess, whole, reason, possible, slack)


def _of_measurements(case: Case) -> Iterator[Judgement]:
    """Bounds in terms of measured quantities, for any rates and any margin."""
    problem, last, sums = case.problem, case.last, case.sums
    error, forgiven = float(sums["model_error"]), case.rounding * problem.num_episodes
    largest = float(last.largest_multiplier)
    lemma = theory.dual_utility(problem, largest, error)
    lemma = lemma._replace(value=lemma.value + case.rounding * largest * case.most_cost)
    reason = case.no_multipliers or case.not_ended
    utility = -float(sums["dual_utility"])
    yield judge("utility of the dual player", utility, lemma, reason, largest * case.most_cost)

    final = float(np.max(np.append(last.multipliers, 0)))
    value = final / problem.dual * (1 + case.rounding) + error + forgiven
    bound = theory.Bound(value, 1.0, "Lemmas 14 and 15")
    free = last.highest_multiplier < theory.multiplier_ceiling(problem.num_episodes) * (1 - 1e-6)
    reason = case.no_multipliers or ("" if free else "a multiplier touched its ceiling")
    name = "violation, by the last multiplier"
    yield judge(name, case.violation, bound, reason, case.most_cost, Subject.VIOLATION)

    margin = case.stochastic_constraints or case.margin.low > 0
    reason = case.no_multipliers or case.infeasible or case.not_ended or case.not_covered
    reason = reason or case.hindsight
    reason = reason or ("" if margin else "rho is not known to be positive")
    bound = _regret_bound(case)(float(last.largest_multiplier), error=error)
    name = "regret, by the largest multiplier"
    yield judge(name, case.regret, bound, reason, case.played * case.opt, Subject.REGRET)


def _regret_bound(case: Case) -> Callable[..., theory.Bound]:
    return partial(
        theory.regret_bound,
        case.problem,
        stochastic_rewards=case.stochastic_rewards,
        stochastic_constraints=case.stochastic_constraints,
        rho=case.margin.low,
        opt=case.opt,
    )


def _of_theorems(case: Case) -> Iterator[Judgement]:
    """The bounds of the theorems on multipliers, regret and violation."""
    problem, last, low = case.problem, case.last, case.margin.low
    regret_of = _regret_bound(case)
    violation_of = partial(
        theory.violation_bound,
        problem,
        stochastic_rewards=case.stochastic_rewards,
        stochastic_constraints=case.stochastic_constraints,
    )
    top, earnings = theory.multiplier_ceiling(problem.num_episodes), case.played * case.opt
    box = problem.num_constraints * top

    # Theorems 4, 5 and 7, if the margin is large enough and the rates are those of the proof.
    usual = case.no_multipliers or case.infeasible or case.not_ended or case.other_radii
    condition, doubt = _condition(case)
    rates = "" if theory.rates_allow_multiplier_bound(problem) else "rates other than the proof's"
    reason = usual or doubt or rates
    zeta = theory.multiplier_bound(problem, low, case.stochastic_constraints)
    measured = last.largest_multiplier
    yield judge("multipliers bounded", measured, zeta, reason, box, Subject.MULTIPLIERS)
    theorem = "Theorem 5" if case.stochastic_constraints else "Theorem 7"
    bound, why = regret_of(zeta.value), reason or case.hindsight
    yield judge(f"regret, {theorem}", case.regret, bound, why, earnings, Subject.REGRET)
    bound = violation_of(zeta.value)
    spent = case.violation, bound, reason, case.most_cost, Subject.VIOLATION
    yield judge(f"violation, {theorem}", *spent)

    # Theorem 6, if the margin is not large enough; its bound on the regret holds for any rates.
    adversarial = "" if case.stochastic_constraints else "constraints are adversarial"
    without = "the condition on rho holds" if condition else ""
    reason = usual or adversarial or without
    bound = regret_of(box, theorem="Theorem 6")
    why = reason or case.hindsight
    yield judge("regret, Theorem 6", case.regret, bound, why, earnings, Subject.REGRET)
    bound = violation_of((2 + 2 * problem.num_layers) * top, theorem="Theorem 6")
    spent = case.violation, bound, reason or rates, case.most_cost, Subject.VIOLATION
    yield judge("violation, Theorem 6", *spent)
    feasible = "" if low >= -1e-9 else f"rho, {case.margin.words}, is not known to be at least 0"
    bound = theory.believed_violation(problem, case.stochastic_constraints)
    measured, reason = np.max(case.sums["believed_violation"]), usual or without or rates
    name = "violation, as believed"
    reason = reason or feasible
    yield judge(name, measured, bound, reason, case.most_cost, Subject.VIOLATION)


def _condition(case: Case) -> tuple[bool, str]:
    """Whether the condition on rho is known to hold; if not, the reason."""
    sizes = case.problem.num_layers, case.problem.num_constraints, case.problem.num_episodes
    low, high = (
        bool(rho > 0) and theory.slater_condition_holds(rho, *sizes)
        for rho in (case.margin.low, case.margin.high)
    )
    if low:
        return True, ""
    return False, (
        f"rho is only known to lie {case.margin.words}, too little for its condition"
        if high
        else "the condition on rho does not hold"
    )


def _together(found: tuple[Judgement, ...], shaped: Callable[[Any], NDArray]) -> Certificate:
    return Certificate(
        name=found[0].name,
        theorem=found[0].theorem,
        measured=shaped([judgement.measured for judgement in found]),
        bound=shaped([judgement.bound for judgement in found]),
        probability=min(judgement.probability for judgement in found),
        reason=shaped([judgement.reason for judgement in found]),
        trivial=shaped([judgement.trivial for judgement in found]),
        about=found[0].about,
    )
