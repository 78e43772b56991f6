r"""What a history means: regret, violation, and whether each guarantee of the paper held.

On the host, in float64: the benchmark of a regret is a linear program.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from pdgd_jax import oracle, theory
from pdgd_jax._pytree import on_host
from pdgd_jax.cmdp import CMDP
from pdgd_jax.learners.dual import ceiling
from pdgd_jax.metrics import Comparators
from pdgd_jax.processes import StochasticProcess
from pdgd_jax.simulate import History

__all__ = ["Certificate", "Evaluation", "comparators_of", "evaluate"]

NDArray = np.ndarray[Any, np.dtype[Any]]

# How far an occupancy may lie outside its set, (float32, float64): ten times what the slowest
# solver promises.
_FEASIBLE = (1e-3, 1e-6)


class Certificate(NamedTuple):
    """One guarantee, and whether it held in each run.

    Attributes:
      name: what is guaranteed.
      theorem: where the paper states it.
      measured: `[...]`, of each run.
      bound: `[...]`, the guarantee: measured should not be larger.
      probability: with which the guarantee holds, at least.
      reason: `[...]`, why it does not apply to a run; empty where it does.
    """

    name: str
    theorem: str
    measured: Float[NDArray, "*batch"]
    bound: Float[NDArray, "*batch"]
    probability: float
    reason: NDArray

    @property
    def applies(self) -> Bool[NDArray, "*batch"]:
        """Whether the guarantee applies to each run."""
        return np.asarray(self.reason == "")

    @property
    def holds(self) -> Bool[NDArray, "*batch"]:
        """Whether the guarantee applies to each run and held."""
        return np.asarray(self.applies & (self.measured <= self.bound))

    @property
    def fails(self) -> Bool[NDArray, "*batch"]:
        """Whether the guarantee applies to each run and did not hold; NaN does not hold."""
        return np.asarray(self.applies & ~self.holds)

    @property
    def distance(self) -> Float[NDArray, "*batch"]:
        """How far below the bound each run stayed."""
        return np.asarray(self.bound - self.measured)

    @property
    def status(self) -> NDArray:
        """For each run one of "holds", "fails" and "does not apply"."""
        judged = np.where(self.holds, "holds", "fails")
        return np.where(self.applies, judged, "does not apply")


class Evaluation(NamedTuple):
    r"""What a history means; leading axes are those of the history.

    Attributes:
      episode: `[K]`, how many episodes were played.
      opt: `[..., K]`, $\mathrm{OPT}_{\bar r, \bar G}$ of the prefix; NaN if infeasible.
      regret: `[..., K]`, $R_t = t \, \mathrm{OPT} - \sum r^\top q$.
      alpha_regret: `[..., K]`, $\alpha t \, \mathrm{OPT} - \sum r^\top q$.
      violation: `[..., K]`, of the worst constraint, $V_t = \max_i \sum [G^\top q]_i$.
      violations: `[..., K, m]`, of each constraint.
      positive_violation: `[..., K, m]`, without letting a good episode pay for a bad one.
      primal_interval_regret: `[..., n]`, the worst of any interval, for each comparator.
      dual_interval_regret: `[..., d]`, likewise.
      rho: `[...]`, the margin $\rho$; NaN if the process does not say which values it may take.
      alpha: `[...]`, $\rho / (L + \rho)$.
      unconverged: `[...]`, how many projections did not converge.
      certificates: each guarantee with what was measured.
    """

    episode: Int[NDArray, " checkpoints"]
    opt: Float[NDArray, "*batch checkpoints"]
    regret: Float[NDArray, "*batch checkpoints"]
    alpha_regret: Float[NDArray, "*batch checkpoints"]
    violation: Float[NDArray, "*batch checkpoints"]
    violations: Float[NDArray, "*batch checkpoints m"]
    positive_violation: Float[NDArray, "*batch checkpoints m"]
    primal_interval_regret: Float[NDArray, "*batch n"]
    dual_interval_regret: Float[NDArray, "*batch d"]
    rho: Float[NDArray, "*batch"]
    alpha: Float[NDArray, "*batch"]
    unconverged: Int[NDArray, "*batch"]
    certificates: tuple[Certificate, ...]

    def certificate(self, name: str) -> Certificate:
        """The certificate of that name."""
        for found in self.certificates:
            if found.name == name:
                return found
        names = ", ".join(repr(certificate.name) for certificate in self.certificates)
        raise ValueError(f"there is no certificate {name!r}; there are {names}.")


def comparators_of(cmdp: CMDP, num_episodes: int) -> Comparators:
    r"""What to measure interval regrets against: $q^*$, $q^\circ$ and, for the dual, 0 and units.

    Args:
      cmdp: one CMDP; its linear programs are solved here, on the host.
      num_episodes: $T$, over which adversarial rewards and constraints are averaged.

    Returns:
      Comparators for `run`; without $q^*$ if no policy satisfies the constraints.
    """
    average = oracle.hindsight(cmdp, num_episodes)
    best = oracle.optimum(cmdp.mdp, average.reward, average.constraints)
    found = [best.occupancy] if best.feasible else []
    margin = _margin(cmdp, num_episodes)
    if margin is not None:
        found.append(margin.occupancy)
    default = Comparators.default(cmdp)
    dtype = default.occupancies.dtype
    return Comparators(
        jnp.asarray(np.array(found).reshape(-1, *default.occupancies.shape[1:]), dtype),
        default.multipliers,
    )


def evaluate(history: History, cmdp: CMDP) -> Evaluation:
    r"""Measure a history against the optimum, and against every guarantee of the paper.

    Args:
      history: of one run, or of many: leading axes (seeds, settings) are kept.
      cmdp: what was played. If it was `stack`ed, the first axis of the history is the instance.

    Returns:
      Regret against OPT of each prefix, violations, and certificates.

    Raises:
      ValueError: if the runs have different checkpoints, or a stack has another number of them.

    Example:
      >>> import jax
      >>> from pdgd_jax import evaluate, learners, make, run
      >>> cmdp = make("random")
      >>> careful = learners.most_feasible(cmdp)
      >>> result = evaluate(run(jax.random.key(0), cmdp, careful, 200), cmdp)
      >>> result.regret.shape, bool(result.violation[-1] < 0 < result.regret[-1])
      ((200,), True)
    """
    if cmdp.layers.action_mask.ndim == 4:
        count = len(cmdp.layers.action_mask)
        if history.episode.ndim < 2 or len(history.episode) != count:
            raise ValueError(
                f"the CMDP is a stack of {count} instances, so that the first axis of the history "
                f"must be the instance; history.episode has the shape {history.episode.shape}."
            )
        lanes = [jax.tree.map(lambda x, i=i: x[i], (history, cmdp)) for i in range(count)]
        return _stack([evaluate(*lane) for lane in lanes])
    numbers: History = jax.tree.map(_number, history)
    batch = numbers.episode.shape[:-1]
    episodes = np.asarray(numbers.episode).reshape(-1, numbers.episode.shape[-1])
    episode = episodes[0]
    if (episodes != episode).any():
        raise ValueError(
            "the runs of a history must have been looked at after the same episodes; evaluate runs "
            "of different horizons one horizon at a time."
        )
    count = math.prod(batch)
    flat = jax.tree.map(lambda x: x.reshape(count, *x.shape[len(batch) :]), numbers)
    runs = [jax.tree.map(lambda x, i=i: x[i], flat) for i in range(count)]
    margin = _margin(cmdp, int(episode[-1]))
    rho = np.nan if margin is None else margin.rho
    num_layers = len(cmdp.layers.sizes) - 1
    alpha = theory.alpha(0.0 if np.isnan(rho) else rho, num_layers)
    opt_of = _opt_of_prefix(cmdp)
    opt = np.array([[opt_of(run, k) for k in range(len(episode))] for run in runs])
    regret = episode * opt - flat.reward
    certificates = [
        _certificates(cmdp, run, rho, opt[i, -1], regret[i, -1]) for i, run in enumerate(runs)
    ]

    def shaped(values: Any) -> NDArray:
        array = np.asarray(values)
        return array.reshape((*batch, *array.shape[1:]))

    return Evaluation(
        episode=episode,
        opt=shaped(opt),
        regret=shaped(regret),
        alpha_regret=shaped(alpha * episode * opt - flat.reward),
        violation=shaped(flat.violation.max(-1)),
        violations=shaped(flat.violation),
        positive_violation=shaped(flat.positive_violation),
        primal_interval_regret=shaped(flat.metrics.primal.value[:, -1]),
        dual_interval_regret=shaped(flat.metrics.dual.value[:, -1]),
        rho=np.full(batch, rho),
        alpha=np.full(batch, alpha),
        unconverged=shaped(flat.metrics.unconverged[:, -1]),
        certificates=tuple(_together(found, shaped) for found in zip(*certificates, strict=True)),
    )


def _number(leaf: Any) -> NDArray:
    array = on_host(leaf)
    return array.astype(float) if np.issubdtype(array.dtype, np.floating) else array


def _margin(cmdp: CMDP, num_episodes: int) -> oracle.SlaterMargin | None:
    try:
        return oracle.slater_margin(cmdp.mdp, cmdp.constraints, num_episodes)
    except NotImplementedError:  # an adversary that does not say which values it may take
        return None


def _opt_of_prefix(cmdp: CMDP) -> Callable[[History, int], float]:
    """OPT of the first episodes of a run up to a checkpoint; many runs share their answers."""
    means = [
        on_host(process.mean()) if isinstance(process, StochasticProcess) else None
        for process in (cmdp.rewards, cmdp.constraints)
    ]
    known: dict[bytes, float] = {}

    def opt(run: History, k: int) -> float:
        sums = (run.metrics.reward_sum, run.metrics.constraint_sum)
        averages = [
            mean if total is None else np.clip(np.asarray(total[k]) / run.episode[k], low, 1)
            for mean, total, low in zip(means, sums, (0, -1), strict=True)
        ]
        if any(average is None or not np.isfinite(average).all() for average in averages):
            return float("nan")
        address = b"".join(np.asarray(average).tobytes() for average in averages)
        if address not in known:
            best = oracle.optimum(cmdp.mdp, averages[0], averages[1])
            known[address] = best.value if best.feasible else float("nan")
        return known[address]

    return opt


class _Judgement(NamedTuple):
    """A certificate of a single run."""

    name: str
    theorem: str
    measured: float
    bound: float
    probability: float
    reason: str


def _judge(name: str, measured: Any, bound: theory.Bound | Any, reason: str = "") -> _Judgement:
    if not isinstance(bound, theory.Bound):
        bound = theory.Bound(bound, 1.0, "by construction")
    return _Judgement(
        name, bound.theorem, float(measured), float(bound.value), bound.probability, reason
    )


class _Case(NamedTuple):
    """One run at its end, and why a kind of guarantee does not apply to it; empty where it does."""

    problem: theory.Problem
    run: History
    last: Any  # the metrics at the end
    rho: float
    opt: float
    regret: float
    violation: float
    stochastic_rewards: bool
    stochastic_constraints: bool
    precise: bool  # float64
    scale: float  # of the confidence radii
    no_promise: str
    no_multipliers: str
    not_ended: str
    other_radii: str
    not_covered: str
    infeasible: str

    @property
    def rounding(self) -> float:
        """What a deterministic bound must be forgiven, in relative terms."""
        return 1e-9 if self.precise else 1e-4


def _case_of(cmdp: CMDP, run: History, rho: float, opt: float, regret: float) -> _Case:
    setting, played = run.setting, int(run.episode[-1])
    promises = setting is not None and setting.rates is not None
    dual = setting is not None and setting.num_constraints is not None
    horizon = played
    if setting is not None and setting.num_episodes is not None:
        horizon = int(setting.num_episodes)
    scale = 1.0
    if setting is not None and setting.confidence_scale is not None:
        scale = float(setting.confidence_scale)
    last = jax.tree.map(lambda x: x[-1], run.metrics)
    no_promise = "" if promises else "the learner makes no such promise"
    return _Case(
        problem=_problem(cmdp, run, horizon),
        run=run,
        last=last,
        rho=rho,
        opt=opt,
        regret=regret,
        violation=float(np.max(run.violation[-1])),
        stochastic_rewards=isinstance(cmdp.rewards, StochasticProcess),
        stochastic_constraints=isinstance(cmdp.constraints, StochasticProcess),
        precise=cmdp.mdp.transition.dtype == jnp.float64,
        scale=scale,
        no_promise=no_promise,
        no_multipliers=no_promise or ("" if dual else "the learner has no multipliers"),
        not_ended="" if played == horizon else f"the run stopped before its {horizon} episodes",
        other_radii="" if scale == 1 else f"radii were scaled by {scale:g}",
        not_covered="" if last.covered else "the true transitions left the confidence set",
        infeasible="" if np.isfinite(opt) else "no policy satisfies the constraints",
    )


def _certificates(
    cmdp: CMDP, run: History, rho: float, opt: float, regret: float
) -> list[_Judgement]:
    """Every guarantee, for one run; those without meaning for it with the reason why."""
    case = _case_of(cmdp, run, rho, opt, regret)
    return [*_of_construction(case), *_of_intervals(case), *_of_theorems(case)]


def _of_construction(case: _Case) -> Iterator[_Judgement]:
    """What the algorithm does in every episode, and how well it knows the transitions."""
    last, problem, run = case.last, case.problem, case.run
    feasible = _FEASIBLE[int(case.precise)]
    yield _judge("projections converged", last.unconverged, 0, case.no_promise)
    yield _judge("occupancies feasible", last.infeasibility, feasible, case.no_promise)
    top = ceiling(problem.num_episodes) * (1 + case.rounding)
    yield _judge("multipliers in their box", last.highest_multiplier, top, case.no_multipliers)
    lemma = theory.Bound(0, 1 - problem.delta, "Lemma 5, confidence sets")
    narrow = case.other_radii if case.scale < 1 else ""
    yield _judge("transitions covered", not last.covered, lemma, case.no_promise or narrow)
    error = theory.estimation_error(problem)
    reason = case.no_promise or case.not_ended or case.other_radii
    yield _judge("transitions estimated", run.model_error[-1], error, reason)


def _of_intervals(case: _Case) -> Iterator[_Judgement]:
    """The worst interval regret of each player, against the comparator closest to its bound."""
    last, problem, comparators = case.last, case.problem, case.run.comparators
    loss, played = float(last.largest_loss), int(case.run.episode[-1])
    reach = float(last.largest_multiplier)
    duals = [
        _judge(
            "dual interval regret",
            value,
            theory.dual_interval_regret(problem, reach + float(np.linalg.norm(against)), played),
            case.no_multipliers,
        )
        for value, against in zip(last.dual.value, comparators.multipliers, strict=True)
    ]
    yield _closest(duals) or _judge("dual interval regret", np.nan, np.nan, "no comparators")
    nothing = "" if len(comparators.occupancies) else "no occupancies to compare with"
    reason = case.no_promise or case.not_covered or nothing
    descent = theory.primal_descent_regret(problem, loss, played)
    measured = np.max(last.descent.value, initial=-np.inf)
    yield _judge("primal descent regret", measured, descent, reason)
    whole = theory.primal_interval_regret(problem, loss, played)
    measured = np.max(last.primal.value, initial=-np.inf)
    reason = reason or case.other_radii or case.not_ended
    yield _judge("primal interval regret", measured, whole, reason)


def _of_theorems(case: _Case) -> Iterator[_Judgement]:
    """The bounds on multipliers, regret and violation, a priori and by what was measured."""
    problem, last, rho = case.problem, case.last, case.rho
    regret_of = partial(
        theory.regret_bound,
        problem,
        stochastic_rewards=case.stochastic_rewards,
        stochastic_constraints=case.stochastic_constraints,
        rho=rho,
        opt=case.opt,
    )
    violation_of = partial(
        theory.violation_bound,
        problem,
        stochastic_rewards=case.stochastic_rewards,
        stochastic_constraints=case.stochastic_constraints,
    )
    top = ceiling(problem.num_episodes)

    # By what was measured: any rates, any margin.
    error = float(case.run.model_error[-1])
    final = float(np.max(np.append(last.multipliers, 0)))
    bound = theory.Bound(
        final / problem.dual * (1 + case.rounding) + error + case.rounding * problem.num_episodes,
        1.0,
        "Lemmas 14 and 15",
    )
    free = last.highest_multiplier < top * (1 - 1e-6)
    reason = case.no_multipliers or ("" if free else "a multiplier touched its ceiling")
    yield _judge("violation, by the last multiplier", case.violation, bound, reason)
    margin = case.stochastic_constraints or rho > 0
    reason = case.no_multipliers or case.infeasible or case.not_ended or case.not_covered
    reason = reason or ("" if margin else "rho is not known to be positive")
    bound = regret_of(float(last.largest_multiplier), error=error)
    yield _judge("regret, by the largest multiplier", case.regret, bound, reason)

    # Theorems 4, 5 and 7: if the margin is large enough, and the rates are the proof's.
    usual = case.no_multipliers or case.infeasible or case.not_ended or case.other_radii
    condition = bool(rho > 0) and theory.slater_condition_holds(
        rho, problem.num_layers, problem.num_constraints, problem.num_episodes
    )
    rates = "" if theory.rates_allow_multiplier_bound(problem) else "rates other than the proof's"
    reason = usual or ("" if condition else "the condition on rho does not hold") or rates
    zeta = theory.multiplier_bound(problem, rho, case.stochastic_constraints)
    yield _judge("multipliers bounded", last.largest_multiplier, zeta, reason)
    theorem = "Theorem 5" if case.stochastic_constraints else "Theorem 7"
    yield _judge(f"regret, {theorem}", case.regret, regret_of(zeta.value), reason)
    yield _judge(f"violation, {theorem}", case.violation, violation_of(zeta.value), reason)

    # Theorem 6: if it is not; its bound on the regret holds for any rates.
    adversarial = "" if case.stochastic_constraints else "constraints are adversarial"
    reason = usual or adversarial or ("the condition on rho holds" if condition else "")
    bound = regret_of(problem.num_constraints * top, theorem="Theorem 6")
    yield _judge("regret, Theorem 6", case.regret, bound, reason)
    bound = violation_of((2 + 2 * problem.num_layers) * top, theorem="Theorem 6")
    yield _judge("violation, Theorem 6", case.violation, bound, reason or rates)


def _closest(judgements: list[_Judgement]) -> _Judgement | None:
    return min(judgements, key=lambda j: j.bound - j.measured, default=None)


def _problem(cmdp: CMDP, run: History, horizon: int) -> theory.Problem:
    layers, setting = cmdp.layers, run.setting
    sizes = layers.sizes
    delta = primal = dual = float("nan")
    if setting is not None and setting.rates is not None and setting.delta is not None:
        delta = float(setting.delta)
        primal, dual = float(setting.rates.primal), float(setting.rates.dual)
    return theory.Problem(
        num_layers=len(sizes) - 1,
        num_states=sum(sizes),
        num_actions=int(layers.num_actions),
        dimension=int(layers.num_triples),
        num_constraints=cmdp.num_constraints,
        num_episodes=horizon,
        delta=delta,
        primal=primal,
        dual=dual,
    )


def _together(found: tuple[_Judgement, ...], shaped: Callable[[Any], NDArray]) -> Certificate:
    return Certificate(
        name=found[0].name,
        theorem=found[0].theorem,
        measured=shaped([judgement.measured for judgement in found]),
        bound=shaped([judgement.bound for judgement in found]),
        probability=min(judgement.probability for judgement in found),
        reason=shaped([judgement.reason for judgement in found]),
    )


def _stack(evaluations: list[Evaluation]) -> Evaluation:
    """Evaluations of several instances as one, with a leading axis."""
    certificates = [
        Certificate(
            name=found[0].name,
            theorem=found[0].theorem,
            measured=np.stack([c.measured for c in found]),
            bound=np.stack([c.bound for c in found]),
            probability=min(c.probability for c in found),
            reason=np.stack([c.reason for c in found]),
        )
        for found in zip(*(e.certificates for e in evaluations), strict=True)
    ]
    numbers = {
        name: np.stack([getattr(evaluation, name) for evaluation in evaluations])
        for name in Evaluation._fields
        if name not in ("episode", "certificates")
    }
    return Evaluation(episode=evaluations[0].episode, certificates=tuple(certificates), **numbers)
