"""Checks whether the guarantees of a rival held in a run; those that always hold come first."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from pdgd_jax import theory
from pdgd_jax.results._case import Case
from pdgd_jax.results._certificates import Subject
from pdgd_jax.results._judgement import Judgement, closest, judge

__all__ = ["of_rivals"]

# Of the guarantees against chance of a learner without a confidence parameter.
_DELTA = 0.05


def of_rivals(case: Case) -> Iterator[Judgement]:
    """The guarantees of the kind of learner that was played; nothing for other learners."""
    if case.descent is None:
        return
    yield _descent(case, case.descent)
    yield from _KINDS[case.kind](case)


def _descent(case: Case, player: theory.Descent) -> Judgement:
    """The regret of what was believed, against every comparator."""
    last, L, played = case.last, case.problem.num_layers, case.played
    bound = theory.descent_regret(player, L, played, float(case.sums["squared_loss"]))
    possible = player.spread * float(last.largest_loss) * case.most_cost
    # An error of an occupancy is paid for in each of the steps that follow.
    slack = case.rounding * (bound.value + possible)
    slack += played * float(last.residual) * (L / player.step + possible / played)
    regrets = case.sums["descent_regret"]
    reason = "" if len(regrets) else "no occupancies to compare with"
    if case.kind in ("uc-o-reps", "ucpd"):
        reason = reason or case.not_covered or case.lists
    bound = bound._replace(value=bound.value + slack)
    measured = np.max(regrets) if len(regrets) else np.nan
    return judge("descent over occupancies", measured, bound, reason, possible)


def _of_queues(case: Case) -> Iterator[Judgement]:
    r"""Queues $Q = V \lambda$ grow by what was violated, at least."""
    sums, V = case.sums, case.constants["V"]
    queues = V * np.asarray(case.last.multipliers, float)
    slack = case.rounding * case.most_cost + V * np.spacing(np.max(case.last.multipliers))
    excess = np.max(sums["next_violation"] - queues)
    bound = theory.Bound(slack, 1.0, "queues by their definition")
    yield judge("violation of the next policies, by the queues", excess, bound, "", case.most_cost)
    # What was played differs from what the queues have seen by one step, and by the error.
    steps = sums["believed_violation"] - sums["next_violation"]
    value = np.max(queues + steps) + float(sums["model_error"]) + slack
    bound = theory.Bound(value, 1.0, "queues by their definition")
    name = "violation, by the queues"
    yield judge(name, case.violation, bound, "", case.most_cost, Subject.VIOLATION)


def _of_uc_o_reps(case: Case) -> Iterator[Judgement]:
    problem, most = case.problem, case.most_cost
    loss = theory.estimation_loss(problem)
    usual = case.not_ended or case.other_radii
    measured = case.sums["estimation_loss"]
    trivial = 0.0 if case.certain_transitions else most
    yield judge("loss by estimation", measured, loss, usual, trivial)
    X, A, L = problem.num_states, problem.num_actions, problem.num_layers
    step = math.sqrt(math.log(X**2 * A / L**2) / problem.num_episodes)
    reason = usual or _other_step(case, step) or case.infeasible or case.hindsight
    yield _regret(case, "regret of UC-O-REPS", theory.uc_o_reps_regret(problem), reason)


def _of_o_reps(case: Case) -> Iterator[Judgement]:
    problem = case.problem
    L, X, A = problem.num_layers, problem.num_states, problem.num_actions
    step = math.sqrt(math.log(X * A / L) / problem.num_episodes)
    reason = case.not_ended or _other_step(case, step) or case.infeasible or case.hindsight
    yield _regret(case, "regret of O-REPS", theory.o_reps_regret(problem), reason)


def _of_ucpd(case: Case) -> Iterator[Judgement]:
    yield from _of_queues(case)


def _of_unifying(case: Case) -> Iterator[Judgement]:
    problem, last, sums = case.problem, case.last, case.sums
    R = case.constants["ceiling"]
    reach = problem.num_constraints * problem.dual * case.most_cost
    bound = theory.Bound(R * (1 + case.rounding), 1.0, "by construction")
    name, about = "multipliers in their ball", Subject.MULTIPLIERS
    yield judge(name, last.largest_multiplier, bound, "", reach, about)

    # Against each vertex of the ball: what was believed is what was played.
    believed, utility = sums["believed_violation"], float(sums["dual_utility"])
    found = []
    for i in range(-1, problem.num_constraints):
        size, gain = (R, R * believed[i]) if i >= 0 else (0.0, 0.0)
        whole = theory.dual_regret(problem, size, case.played)
        slack = case.rounding * (whole.value + R * case.most_cost) + R * float(sums["model_error"])
        bound = whole._replace(value=whole.value + slack)
        found.append(
            judge("regret of the dual player", gain - utility, bound, "", R * case.most_cost)
        )
    yield closest(found) or found[0]

    assert case.descent is not None
    primal = theory.descent_regret(
        case.descent, problem.num_layers, case.played, float(sums["squared_loss"])
    )
    dual = theory.dual_regret(problem, 0.0, case.played)
    adversarial = not case.stochastic_constraints
    margin = "rho is not known to be positive" if adversarial and case.margin.low <= 0 else ""
    share = theory.alpha(case.margin.low, problem.num_layers) if adversarial else 1.0
    bound = theory.lagrangian_regret(primal, dual, share, case.played * case.opt)
    bound = _with_chance(case, bound, float(last.largest_multiplier))
    reason = case.infeasible or case.hindsight or margin
    yield judge("regret, by both players", case.regret, bound, reason, *_earnings(case))


def _of_euclidean_queues(case: Case) -> Iterator[Judgement]:
    yield from _of_queues(case)
    numbers = case.problem, case.pairs, case.constants["V"], case.constants["alpha"]
    largest = float(case.last.largest_multiplier)
    stochastic = case.stochastic_constraints
    adversary = "" if stochastic else "constraints are adversarial"
    bound = _with_chance(case, theory.queue_regret(*numbers), largest)
    reason = adversary or case.infeasible or case.hindsight or case.not_ended
    yield judge("regret, by drift plus penalty", case.regret, bound, reason, *_earnings(case))

    # Against the most careful policy, which satisfies the constraints in each episode.
    drift = largest * _deviation(case).value if stochastic else 0.0
    bound = theory.queue_bound(*numbers, drift)
    if stochastic:
        bound = bound._replace(probability=1 - _DELTA)
    careful = case.margin.low >= -1e-9
    reason = "" if careful else f"rho, {case.margin.words}, is not known to be at least 0"
    reach = case.most_cost * math.sqrt(case.problem.num_constraints) / case.constants["V"]
    measured = np.linalg.norm(case.last.multipliers)
    name = "multipliers, by drift plus penalty"
    yield judge(name, measured, bound, reason or case.not_ended, reach, Subject.MULTIPLIERS)
    yield _of_windows(case)


def _of_windows(case: Case) -> Judgement:
    """The regret over the best policy of every window, of COLD."""
    name, window = "regret over windows", case.constants["window"]
    reason = "" if math.isfinite(window) else "the learner promises nothing over windows"
    reason = reason or ("constraints are stochastic" if case.stochastic_constraints else "")
    reason = reason or ("" if 2 * window <= case.played else "the run is shorter than two windows")
    reason = reason or case.not_ended
    regret = np.nan
    if not reason:
        regret, reason = case.regret_of_windows(max(1, int(window)))
    V, alpha = case.constants["V"], case.constants["alpha"]
    drift = theory.window_drift(
        case.problem,
        max(1, int(window)) if math.isfinite(window) else 1,
        V,
        float(case.last.largest_multiplier),
    )
    bound = theory.queue_regret(case.problem, case.pairs, V, alpha, drift)
    bound = bound._replace(theorem="Liakopoulos et al., Proposition 1")
    return judge(name, regret, bound, reason, case.most_cost)


def _regret(case: Case, name: str, bound: theory.Bound, reason: str) -> Judgement:
    """A bound on the regret against fixed rewards; rewards that are drawn deviate from them."""
    if case.stochastic_rewards:
        deviation = theory.reward_deviation(_confident(case.problem))
        failing = (1 - bound.probability) + (1 - deviation.probability)
        bound = bound._replace(value=bound.value + deviation.value, probability=1 - failing)
    return judge(name, case.regret, bound, reason, *_earnings(case))


def _with_chance(case: Case, bound: theory.Bound, largest: float) -> theory.Bound:
    """With the deviations of what is drawn from its mean, at a fixed policy."""
    value, probability = bound.value, bound.probability
    if case.stochastic_rewards:
        value += theory.reward_deviation(_confident(case.problem)).value
        probability -= _DELTA
    if case.stochastic_constraints:
        value += largest * _deviation(case).value
        probability -= _DELTA
    return bound._replace(value=value, probability=probability)


def _confident(problem: theory.Problem) -> theory.Problem:
    """The problem with a confidence parameter, if the learner has none."""
    return problem if math.isfinite(problem.delta) else problem._replace(delta=_DELTA)


def _deviation(case: Case) -> theory.Bound:
    """Times the largest multiplier, of the constraints at a fixed policy from their mean."""
    return theory.constraint_deviation(_confident(case.problem))


def _earnings(case: Case) -> tuple[float, Subject]:
    """The most that regret can be, and what it is."""
    return case.played * case.opt, Subject.REGRET


def _other_step(case: Case, step: float) -> str:
    same = math.isclose(case.constants["step"], step, rel_tol=1e-4)
    return "" if same else "a step other than the paper's"


_KINDS: dict[str, Callable[[Case], Iterator[Judgement]]] = {
    "uc-o-reps": _of_uc_o_reps,
    "o-reps": _of_o_reps,
    "ucpd": _of_ucpd,
    "queues": _of_euclidean_queues,
    "unifying-entropic": _of_unifying,
    "unifying-euclidean": _of_unifying,
}
