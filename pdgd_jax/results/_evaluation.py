r"""The evaluation of a history: regret, violation, and whether each guarantee of the paper held.

It runs on the host in float64, since regret is measured against a linear program.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from pdgd_jax import oracle, theory
from pdgd_jax._internal.registry import nearest
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import CMDP, occupancy_of, policy_of
from pdgd_jax.processes import StochasticProcess, foresight
from pdgd_jax.results._benchmarks import average_of, dynamic_optimum, opt_of_prefix, opt_of_windows
from pdgd_jax.results._case import Margin
from pdgd_jax.results._certificates import Certificate
from pdgd_jax.results._guarantees import certificates_of
from pdgd_jax.simulation import Comparators, History, sums_of

__all__ = ["Certificate", "Evaluation", "comparators_of", "evaluate"]


class Evaluation(NamedTuple):
    r"""The evaluation of a history; leading axes are those of the history.

    Attributes:
      episode: `[K]`, the number of episodes played.
      opt: `[..., K]`, $\mathrm{OPT}_{\bar r, \bar G}$ of the prefix; NaN if infeasible.
      regret: `[..., K]`, $R_t = t \, \mathrm{OPT} - \sum r^\top q$.
      alpha_regret: `[..., K]`, $\alpha t \, \mathrm{OPT} - \sum r^\top q$.
      violation: `[..., K]`, the violation of the worst constraint, $V_t = \max_i \sum [G^\top
        q]_i$.
      violations: `[..., K, m]`, the violation of each constraint.
      positive_violation: `[..., K, m]`, the sum of positive parts, so that good episodes do not
        make up for bad ones: of the mean constraints if they are stochastic, of those of each
        episode if they are adversarial.
      feasibility: `[..., K]`, the share of the episodes in which the policy that was played
        satisfied all constraints, up to $10^{-6} L$: the mean constraints if they are stochastic,
        those of the episode if they are adversarial.
      strong_regret: `[..., K]`, $\sum [\mathrm{OPT} - r^\top q]_+$, so that good episodes do not
        make up for bad ones. OPT is that of the whole run, known before it, as `comparators_of`
        finds it; $r$ is the mean reward if rewards are stochastic, that of the episode if they are
        adversarial. NaN if the run was played without `comparators_of`, if no policy satisfies the
        constraints, or if an adversary depends on chance or on policies: then OPT is not known
        beforehand.
      dynamic_regret: `[..., K]`, $\sum (\mathrm{OPT}_{\bar r_t, \bar G_t} - r_t^\top q_t)$,
        against the optimum of each episode by itself; NaN where it is not known.
      dynamic_reason: `[...]`, why it is not known; empty where it is.
      k_regret: `[..., K]`, regret against the best policy that satisfies the constraints over every
        window of `k` episodes of the prefix; NaN if no `k` was given. See `oracle.k_benchmark`.
      window: `[...]`, this `k`; NaN if none was given.
      primal_interval_regret: `[..., n]`, the worst over all intervals, for each comparator.
      dual_interval_regret: `[..., d]`, the worst over all intervals, for each comparator.
      rho: `[...]`, the margin $\rho$ of the constraints of each run, or a lower bound.
      rho_upper: `[...]`, an upper bound; the same number if $\rho$ is known exactly.
      alpha: `[...]`, $\rho / (L + \rho)$.
      unconverged: `[...]`, how many projections did not converge.
      certificates: each guarantee with its measured value.
    """

    episode: Int[NDArray, " checkpoints"]
    opt: Float[NDArray, "*batch checkpoints"]
    regret: Float[NDArray, "*batch checkpoints"]
    alpha_regret: Float[NDArray, "*batch checkpoints"]
    violation: Float[NDArray, "*batch checkpoints"]
    violations: Float[NDArray, "*batch checkpoints m"]
    positive_violation: Float[NDArray, "*batch checkpoints m"]
    feasibility: Float[NDArray, "*batch checkpoints"]
    strong_regret: Float[NDArray, "*batch checkpoints"]
    dynamic_regret: Float[NDArray, "*batch checkpoints"]
    dynamic_reason: NDArray
    k_regret: Float[NDArray, "*batch checkpoints"]
    window: Float[NDArray, "*batch"]
    primal_interval_regret: Float[NDArray, "*batch n"]
    dual_interval_regret: Float[NDArray, "*batch d"]
    rho: Float[NDArray, "*batch"]
    rho_upper: Float[NDArray, "*batch"]
    alpha: Float[NDArray, "*batch"]
    unconverged: Int[NDArray, "*batch"]
    certificates: tuple[Certificate, ...]

    def certificate(self, name: str) -> Certificate:
        """The certificate of that name."""
        for found in self.certificates:
            if found.name == name:
                return found
        names = [certificate.name for certificate in self.certificates]
        listed = ", ".join(map(repr, names))
        raise ValueError(
            f"there is no certificate {name!r}{nearest(name, names)}; there are {listed}."
        )


def comparators_of(cmdp: CMDP, num_episodes: int) -> Comparators:
    r"""Comparators for interval regrets: $q^*$, $q^\circ$ and, for the dual, 0 and unit vectors.

    Args:
      cmdp: one CMDP; this function solves its linear programs on the host.
      num_episodes: $T$, over which adversarial rewards and constraints are averaged.

    Returns:
      Comparators for `run`; without $q^*$ if no policy satisfies the constraints. If the adversary
      depends on chance or on policies, $q^*$ and $q^\circ$ are unknown beforehand. The optimum of
      another draw (`oracle.hindsight`) and the most careful policy replace them, and their `opt`,
      which the strong regret is against, is NaN.
    """
    cmdp.check_episodes(num_episodes)
    average = oracle.hindsight(cmdp, num_episodes)
    best = oracle.optimum(cmdp.mdp, average.reward, average.constraints)
    found = [best.occupancy] if best.feasible else []
    margin = _margin(cmdp, num_episodes)
    if margin is not None:
        found.append(margin.occupancy)
    default = Comparators.default(cmdp)
    dtype = default.occupancies.dtype
    known = best.feasible and _is_foreseen(cmdp)
    return Comparators(
        jnp.asarray(np.array(found).reshape(-1, *default.occupancies.shape[1:]), dtype),
        default.multipliers,
        jnp.asarray(best.value if known else np.nan, dtype),
    )


def _is_foreseen(cmdp: CMDP) -> bool:
    """Whether the means of all episodes are known before the first one."""
    return all(
        isinstance(process, StochasticProcess)
        or foresight(process, cmdp.layers.shape, cmdp.mdp.transition.dtype).known
        for process in (cmdp.rewards, cmdp.constraints)
    )


def evaluate(history: History, cmdp: CMDP, *, k: int | None = None) -> Evaluation:
    r"""Measure a history against the optimum, and against every guarantee of the paper.

    Args:
      history: the history of one run or of many; leading axes (seeds, settings) are kept.
      cmdp: the CMDP that was played. If it was `stack`ed, the first axis of the history is the
        instance.
      k: also measure regret against the best policy of every window of $k$ episodes; with $k = T$
        it is the regret.

    Returns:
      Regret against OPT of each prefix, violations, and certificates.

    Raises:
      ValueError: if the runs have different checkpoints, or their number differs from the stack's;
        also if `k` is given and the constraints of the episodes are not known beforehand.

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
        return _stack([evaluate(*lane, k=k) for lane in lanes])
    batch, flat, runs = _runs_of(history)
    episode, count = np.asarray(runs[0].episode), len(runs)
    bounds = _margins(cmdp, int(episode[-1]))
    margins = [bounds(run) for run in runs]
    rho, upper = np.array([margin.low for margin in margins]), [m.high for m in margins]
    num_layers = len(cmdp.layers.sizes) - 1
    alpha = np.array([theory.alpha(margin.low, num_layers) for margin in margins])
    sums = [{name: part.total() for name, part in sums_of(run.metrics).items()} for run in runs]
    reward = np.array([found["reward"] for found in sums])
    opt_of = opt_of_prefix(cmdp)
    opt = np.array([[opt_of(run, at) for at in range(len(episode))] for run in runs])
    regret = episode * opt - reward
    dynamic = dynamic_optimum(cmdp, episode)
    window_of = (lambda run, at: float("nan")) if k is None else opt_of_windows(cmdp, k)
    windows = np.array([[window_of(run, at) for at in range(len(episode))] for run in runs])

    def shaped(values: Any) -> NDArray:
        array = np.asarray(values)
        return array.reshape((*batch, *array.shape[1:]))

    return Evaluation(
        episode=episode,
        opt=shaped(opt),
        regret=shaped(regret),
        alpha_regret=shaped(alpha[:, None] * episode * opt - reward),
        violation=shaped([found["violation"].max(-1) for found in sums]),
        violations=shaped([found["violation"] for found in sums]),
        positive_violation=shaped([found["positive_violation"] for found in sums]),
        feasibility=shaped([found["feasible"] / episode for found in sums]),
        strong_regret=shaped([found["strong_regret"] for found in sums]),
        dynamic_regret=shaped(dynamic.total - reward),
        dynamic_reason=shaped([dynamic.reason] * count),
        k_regret=shaped(episode * windows - reward),
        window=shaped(np.full(count, np.nan if k is None else k, float)),
        primal_interval_regret=shaped(flat.metrics.primal.value[:, -1]),
        dual_interval_regret=shaped(flat.metrics.dual.value[:, -1]),
        rho=shaped(rho),
        rho_upper=shaped(upper),
        alpha=shaped(alpha),
        unconverged=shaped(flat.metrics.unconverged[:, -1]),
        certificates=certificates_of(cmdp, runs, sums, margins, opt[:, -1], regret[:, -1], shaped),
    )


def _runs_of(history: History) -> tuple[tuple[int, ...], History, list[History]]:
    """The leading axes of a history; its runs along one axis, and one by one, on the host."""
    numbers: History = jax.tree.map(_number, history)
    batch = numbers.episode.shape[:-1]
    episodes = np.asarray(numbers.episode).reshape(-1, numbers.episode.shape[-1])
    if (episodes != episodes[0]).any():
        raise ValueError(
            "the runs of a history must have the same checkpoints; evaluate runs "
            "of different horizons one horizon at a time."
        )
    count = math.prod(batch)
    flat = jax.tree.map(lambda x: x.reshape(count, *x.shape[len(batch) :]), numbers)
    return batch, flat, [jax.tree.map(lambda x, i=i: x[i], flat) for i in range(count)]


def _number(leaf: Any) -> NDArray:
    array = np.asarray(leaf)
    return array.astype(float) if np.issubdtype(array.dtype, np.floating) else array


def _margin(cmdp: CMDP, num_episodes: int) -> oracle.SlaterMargin | None:
    try:
        return oracle.slater_margin(cmdp.mdp, cmdp.constraints, num_episodes)
    except NotImplementedError:  # an adversary without a method `extremes`
        return None


def _margins(cmdp: CMDP, num_episodes: int) -> Callable[[History], Margin]:
    r"""The margin of a run, from what is known beforehand and what was recorded.

    Every $G_t$ is at most the maximum of each entry, and the margin of any policy is at most the
    best margin: this gives two lower bounds. The margin is at most that of the average constraints:
    this gives an upper bound.
    """
    before = _margin(cmdp, num_episodes)
    exact = None
    if before is not None and before.exact:
        exact = Margin(before.rho, before.rho)
        if isinstance(cmdp.constraints, StochasticProcess):
            return lambda run: exact
    foretold = None if exact is None else _largest(cmdp, num_episodes)
    known: dict[bytes, Margin] = {}

    def of(run: History) -> Margin:
        last = run.metrics
        assert last.constraint_max is not None  # constraints are adversarial
        largest = np.asarray(last.constraint_max[-1])
        # Otherwise another CMDP was played, perhaps this one made for another horizon.
        if exact and foretold is not None and np.allclose(largest, foretold, atol=1e-6):
            return exact
        promised = before.rho if before is not None and exact is None else -np.inf
        mean = np.clip(average_of(last.constraint_sum, run, -1), -1, 1)
        if not np.isfinite(largest).all() or not np.isfinite(mean).all():
            return Margin(float("nan"), float("nan"))
        address = largest.tobytes() + mean.tobytes()
        if address not in known:
            low = oracle.slater_margin(cmdp.mdp, np.clip(largest, -1, 1)).rho
            high = oracle.slater_margin(cmdp.mdp, mean).rho
            known[address] = Margin(low, high)
        low, high = known[address]
        played = [_is_played(cmdp, q) for q in run.comparators.occupancies]
        seen = np.max(last.margin[-1][played], initial=-np.inf)
        low = min(float(max(low, seen, promised)), high)  # rounding may put low above high
        return Margin(high if high - low < 1e-9 else low, high)

    return of


def _largest(cmdp: CMDP, num_episodes: int) -> NDArray:
    """The maximum of every entry of adversarial constraints."""
    values = cmdp.constraints.extremes(np.arange(num_episodes)).values
    mask = np.asarray(cmdp.layers.action_mask)
    return np.where(mask[None], np.asarray(values).max(0), 0)


def _is_played(cmdp: CMDP, occupancy: NDArray) -> bool:
    """Whether some policy has this occupancy in the true MDP; comparators are arbitrary."""
    policy = policy_of(jnp.asarray(occupancy), cmdp.layers).astype(cmdp.mdp.transition.dtype)
    return bool(np.allclose(occupancy_of(cmdp.mdp, policy), occupancy, atol=1e-6))


def _stack(evaluations: list[Evaluation]) -> Evaluation:
    """Stack the evaluations of several instances along a leading axis."""
    certificates = [
        Certificate(
            name=found[0].name,
            theorem=found[0].theorem,
            measured=np.stack([c.measured for c in found]),
            bound=np.stack([c.bound for c in found]),
            probability=min(c.probability for c in found),
            reason=np.stack([c.reason for c in found]),
            trivial=np.stack([c.trivial for c in found]),
            about=found[0].about,
        )
        for found in zip(*(e.certificates for e in evaluations), strict=True)
    ]
    numbers = {
        name: np.stack([getattr(evaluation, name) for evaluation in evaluations])
        for name in Evaluation._fields
        if name not in ("episode", "certificates")
    }
    return Evaluation(episode=evaluations[0].episode, certificates=tuple(certificates), **numbers)
