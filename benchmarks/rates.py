"""The growth of regret and violation with the horizon: `python benchmarks/rates.py`.

Plays small instances at several horizons, confidence scales, seeds and keys (sets of seeds), and
prints what was measured, the log-log slopes of the medians with their verdicts, and how far the
proof's own rates (`rates="theory"`) come at the same horizons. `docs/benchmarks.md` explains how it
is measured, has the rule of judgement, and says what the paper promises from which horizon on.

Seven minutes on two cores, for one key. One process per core; instances of the same shape share a
process, since they share their program, which serves every horizon. Smaller: `--scales 0.1`,
`--seeds 4 --horizons 1000 3162 10000 --only two-phase`; other seeds: `--keys 1`, or several:
`--keys 1 2 3`; to see that it works: `--quick`.
"""

import argparse
import dataclasses
import itertools
import math
import multiprocessing
import os
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from quick import add_quick, hurry

from pdgd_jax import CMDP, LayeredMDP, comparators_of, evaluate, make, oracle, pdgd_ops, run, theory
from pdgd_jax.learners import check_setting, rates_of
from pdgd_jax.processes import Phases, Process
from pdgd_jax.results import slope_of as growth_of

HORIZONS = (1000, 3162, 10_000, 31_623, 100_000)
DELTA = 0.05
THEORY_SEEDS = 4
LOOKS = 100
# No power law is meant to hold more exactly than to this share: it bounds the weight of a median.
EXACTNESS = 0.1
# The first phase of an adversary is this part of the horizon.
FIRST_PHASE = 10
# The largest slopes of regret and violation that are asked for.
ASKED = {"slater": 0.6, "no slater": 0.8, "adversarial": 0.6}
# "Far below": the largest multiplier of any seed as a share of its ceiling T^(1/4).
FAR_BELOW = 1 / 3


class Case(NamedTuple):
    """An instance, the guarantee that it is to show, and how to play it."""

    instance: str
    options: dict[str, Any]
    setting: str  # of ASKED
    theory: bool = False  # whether the proof's rates are shown too


# All of shape [3, 3, 2], so that they share a program wherever their processes are alike.
SMALL = {"sizes": (1, 3, 3, 1), "num_actions": 2}
RIVER = {"num_states": 3, "horizon": 3, "effort_budget": 1.5}
BUFFER = {"capacity": 2, "horizon": 3, "fast_budget": 1.0}
SCALES = (1.0, 0.3, 0.1)

CASES = {
    "random": Case("random", SMALL, "slater", theory=True),
    "riverswim": Case("riverswim", RIVER, "slater", theory=True),
    "streaming": Case("streaming", BUFFER, "slater", theory=True),
    "random, r phases": Case("random", {**SMALL, "rewards": "phases"}, "slater"),
    "random, m=2": Case("random", {**SMALL, "num_constraints": 2}, "slater"),
    "no-slater": Case("no-slater", SMALL, "no slater", theory=True),
    "no-slater, r phases": Case("no-slater", {**SMALL, "rewards": "phases"}, "no slater"),
    "two-phase, tight": Case("two-phase", {"ending": "tight"}, "adversarial", theory=True),
    "two-phase, relaxed": Case("two-phase", {"ending": "relaxed"}, "adversarial", theory=True),
    "random, G phases": Case("random", {**SMALL, "constraints": "phases"}, "adversarial"),
    "riverswim, G phases": Case("riverswim", {**RIVER, "constraints": "phases"}, "adversarial"),
    "random, G and r phases": Case(
        "random", {**SMALL, "constraints": "phases", "rewards": "phases"}, "adversarial"
    ),
}


class Variant(NamedTuple):
    """A learner: which rates, which confidence scale."""

    rates: str
    scale: float


class Measured(NamedTuple):
    """The runs of one case, one variant and one horizon; arrays are `[keys, seeds]`."""

    horizon: int
    regret: np.ndarray
    violation: np.ndarray  # of the worst constraint
    regret_peak: np.ndarray  # the largest at any of the `LOOKS` checkpoints
    violation_peak: np.ndarray
    share: np.ndarray  # of OPT that was earned
    last_multiplier: np.ndarray  # the largest entry
    highest_multiplier: np.ndarray  # of any episode
    covered: np.ndarray
    unconverged: int
    failed: tuple[str, ...]  # certificates that failed in some run
    rho: float
    alpha: float
    error: np.ndarray  # of the learner's occupancies, sum of |q_t - qhat_t|


def stretch(process: Process, horizon: int) -> Process:
    """Doubling phases in proportion to the horizon, so that all horizons end at the same point."""
    if isinstance(process, Phases) and process.schedule == "doubling":
        return dataclasses.replace(process, period=max(1, horizon // FIRST_PHASE))
    return process


def build(case: Case, horizon: int) -> CMDP:
    """The CMDP of a case; adversaries depend on the horizon, the two-phase instance by itself."""
    late = {"num_episodes": horizon} if case.instance == "two-phase" else {}
    cmdp = make(case.instance, **case.options, **late)
    # Without what an unrolled MDP remembers of its states, so that programs can be shared.
    mdp = LayeredMDP(cmdp.layers, cmdp.mdp.transition)
    return CMDP(mdp, stretch(cmdp.rewards, horizon), stretch(cmdp.constraints, horizon))


def variants_of(case: Case, scales: list[float], seeds: int, keys: int) -> dict[Variant, int]:
    """Every learner of a case, with its number of seeds for each key."""
    found = {Variant("tuned", scale): seeds for scale in scales}
    if case.theory:
        found[Variant("theory", 1.0)] = min(seeds, max(1, THEORY_SEEDS // keys))
    return found


def streams_of(keys: list[int], horizon: int, seeds: int) -> jax.Array:
    """The random keys `[keys, seeds]` of a horizon, independent of those of any other."""
    return jnp.stack(
        [jax.random.split(jax.random.fold_in(jax.random.key(key), horizon), seeds) for key in keys]
    )


def measure(
    case: Case, horizon: int, scales: list[float], seeds: int, keys: list[int]
) -> dict[Variant, Measured]:
    """Play one case for one horizon: all learners, keys and seeds are lanes of one program."""
    cmdp = build(case, horizon)
    m, layers = cmdp.num_constraints, cmdp.layers
    comparators = comparators_of(cmdp, horizon)
    variants = variants_of(case, scales, seeds, len(keys))
    constants = {v: rates_of(v.rates, layers, m, horizon, DELTA) for v in variants}

    def lane(key, primal, dual, scale):
        learner = pdgd_ops(
            layers, m, horizon, delta=DELTA, rates=(primal, dual), confidence_scale=scale
        )
        return run(key, cmdp, learner, horizon, checkpoints=LOOKS, comparators=comparators)

    lanes = {v: len(keys) * count for v, count in variants.items()}
    numbers = [[*constants[v], v.scale] for v, count in lanes.items() for _ in range(count)]
    streams = streams_of(keys, horizon, seeds)
    each = [streams[:, :count].reshape(-1) for count in variants.values()]
    history = jax.vmap(lane)(jnp.concatenate(each), *jnp.asarray(numbers, float).T)
    judged = evaluate(history, cmdp)
    metrics = jax.tree.map(lambda x: np.asarray(x)[:, -1], history.metrics)
    results, begin = {}, 0
    for variant, count in lanes.items():
        part = slice(begin, begin + count)
        begin += count

        def by_key(values, part=part):
            return np.asarray(values)[part].reshape(len(keys), -1)

        results[variant] = Measured(
            horizon=horizon,
            regret=by_key(judged.regret[:, -1]),
            violation=by_key(judged.violation[:, -1]),
            regret_peak=by_key(judged.regret.max(-1)),
            violation_peak=by_key(judged.violation.max(-1)),
            share=by_key(np.asarray(history.reward)[:, -1] / (horizon * judged.opt[:, -1])),
            last_multiplier=by_key(metrics.multipliers.max(-1)),
            highest_multiplier=by_key(metrics.highest_multiplier),
            covered=by_key(metrics.covered),
            unconverged=int(judged.unconverged[part].sum()),
            failed=tuple(c.name for c in judged.certificates if c.fails[part].any()),
            rho=float(judged.rho[0]),
            alpha=float(judged.alpha[0]),
            error=by_key(history.model_error[:, -1]),
        )
    return results


# -- what the numbers say ------------------------------------------------------------------------


class Slope(NamedTuple):
    """The growth of a median with the horizon.

    Attributes:
      fit: the slope over the horizons at which the median is surely positive; NaN if fewer than
        two.
      low: 5% quantile of the fit over resampled keys and seeds.
      high: 95% quantile.
      last: the slope between the last two horizons; NaN if one of them is not surely positive.
      points: how many horizons were fitted.
      of_keys: the smallest and the largest slope of a single key, over the same horizons.
    """

    fit: float
    low: float
    high: float
    last: float
    points: int
    of_keys: tuple[float, float]


def resampled(values: np.ndarray, rng: np.random.Generator, count: int) -> np.ndarray:
    """Medians `[count]` of `values`, `[keys, seeds]`: keys drawn first, then seeds of each."""
    keys, seeds = values.shape
    key = rng.integers(keys, size=(count, keys, 1))
    seed = rng.integers(seeds, size=(count, keys, seeds))
    return np.median(values[key, seed], axis=(1, 2))


def slope_of(horizons: list[int], samples: list[np.ndarray], resamples: int = 500) -> Slope:
    """Fit log median against log T, wherever the median is surely positive.

    Weighted by what is known of each logarithm: that of a median near zero is hardly known.

    Args:
      horizons: increasing.
      samples: `[keys, seeds]` for each horizon, whose streams are its own: each is resampled by
        itself.
      resamples: how often.
    """
    rng = np.random.default_rng(0)
    samples = [np.atleast_2d(x) for x in samples]
    drawn = np.stack([resampled(x, rng, resamples) for x in samples], 1)  # [resamples, horizons]
    positive = np.quantile(drawn, 0.05, axis=0) > 0
    medians = np.array([np.median(x) for x in samples])
    lengths = np.asarray(horizons, float)
    errors = np.hypot(drawn.std(0) / np.maximum(np.abs(medians), 1e-9), EXACTNESS)

    def fit(values, chosen=positive):
        return growth_of(lengths[chosen], values[chosen], errors[chosen])

    def range_of(fits, *quantiles):
        return (np.nan, np.nan) if np.isnan(fits).all() else np.nanquantile(fits, quantiles)

    low, high = range_of([fit(values) for values in drawn], 0.05, 0.95)
    alone = range_of([fit(values) for values in medians_of_keys(samples).T], 0, 1)
    last_two = np.arange(len(horizons)) >= len(horizons) - 2
    last = fit(medians, last_two) if positive[-2:].all() else np.nan
    return Slope(fit(medians), low, high, last, int(positive.sum()), tuple(alone))


def medians_of_keys(samples: list[np.ndarray]) -> np.ndarray:
    """The median of each key by itself, `[horizons, keys]`."""
    return np.array([np.median(np.atleast_2d(x), axis=1) for x in samples])


class Verdict(NamedTuple):
    """One line of the second table."""

    what: str
    measured: str
    asked: str
    verdict: str
    remark: str


def judge_slope(
    what: str, horizons: list[int], ends: list[np.ndarray], peaks: list[np.ndarray], asked: float
) -> Verdict:
    """What is asked of a slope, judged by the rule above."""
    target, total = f"<= {asked:g}", len(horizons)
    pooled = np.array([np.median(x) for x in ends])
    positive = (pooled > 0) | (medians_of_keys(ends) > 0).any(1)
    if not positive.any():
        return Verdict(what, "never positive", target, "pass", "")
    if not positive[-1]:
        remark = f"positive at {positive.sum()} of {total} horizons"
        return Verdict(what, "not positive at the end", target, "pass", remark)
    slope, remarks = slope_of(horizons, ends), []
    if math.isnan(slope.fit):
        sure = f"surely positive at {slope.points} of {total} horizons"
        remarks.append(f"{sure}, at the last {pooled[-1]:,.0f}")
        what, slope = f"{what}, peak", slope_of(horizons, peaks)
    if math.isnan(slope.fit):
        return Verdict(what, "no slope", target, "not judged", remarks[0])
    measured = f"{slope.fit:.2f} [{slope.low:.2f}, {slope.high:.2f}]"
    if len(np.atleast_2d(ends[0])) > 1:
        remarks.append(f"single keys {slope.of_keys[0]:.2f} to {slope.of_keys[1]:.2f}")
    if not math.isnan(slope.last):
        remarks.append(f"last two horizons {slope.last:.2f}")
    if slope.points < total:
        remarks.append(f"fitted where surely positive, {slope.points} of {total} horizons")
    verdict = "pass" if slope.high <= asked else "FAIL" if slope.low > asked else "open"
    if verdict != "pass" and slope.last <= asked:
        remarks.append("within what is asked by then")
    return Verdict(what, measured, target, verdict, "; ".join(remarks))


_BEYOND = "more than OPT was earned, "


def verdicts_of(case: Case, found: list[Measured]) -> list[Verdict]:
    """Everything that is asked of a case, for one learner."""
    asked = ASKED[case.setting]
    horizons = [m.horizon for m in found]
    violations = [m.violation for m in found], [m.violation_peak for m in found]
    lines = [judge_slope("violation", horizons, *violations, asked)]
    if case.setting == "adversarial":
        worst = min(found, key=lambda m: m.share.min() - m.alpha)
        passed = all(m.share.min() >= m.alpha for m in found)
        lines.append(
            Verdict(
                "reward / OPT, worst seed",
                f"{worst.share.min():.3f}",
                f">= {worst.alpha:.3f}",
                "pass" if passed else "FAIL",
                f"at T = {worst.horizon:,}",
            )
        )
    else:
        regrets = [m.regret for m in found], [m.regret_peak for m in found]
        line = judge_slope("regret", horizons, *regrets, asked)
        if line.measured in ("never positive", "not positive at the end"):
            early = np.median(found[-1].violation) > 0
            reason = "by violating early" if early else "since OPT is that of one fixed policy"
            line = line._replace(remark="; ".join(filter(None, [line.remark, _BEYOND + reason])))
        lines.append(line)
    if case.setting != "no slater":
        last = found[-1]
        share = last.highest_multiplier.max() / theory.multiplier_ceiling(last.horizon)
        lines.append(
            Verdict(
                "largest multiplier / T^(1/4)",
                f"{share:.3f}",
                f"<= {FAR_BELOW:.2f}",
                "pass" if share <= FAR_BELOW else "FAIL",
                f"worst seed at T = {last.horizon:,}; rho = {last.rho:.2f}",
            )
        )
    error = slope_of(horizons, [m.error for m in found])
    reason = f"; model error grows with {error.fit:.2f}, at last {error.last:.2f}"
    return [
        line._replace(remark=line.remark + reason) if line.verdict in ("FAIL", "open") else line
        for line in lines
    ]


class Needed(NamedTuple):
    """What the proof's rates would need, for the constraint that gets there last."""

    horizon: float  # 0 if nothing binds
    multiplier: float  # the optimal one
    greedy: float  # violation of the best policy without constraints
    most: float  # the largest violation of any occupancy, whatever the transitions


def theory_horizon(case: Case) -> Needed:
    r"""From which T the proof's rates could carry a multiplier to its optimum.

    On average a multiplier grows by at most $\eta v$ in an episode, $v$ being the largest violation
    of any occupancy: it cannot reach $\lambda^*$ unless $T \, \eta(T) \, v \ge \lambda^*$.
    """
    cmdp = build(case, HORIZONS[-1])
    mean = oracle.hindsight(cmdp, HORIZONS[-1])
    best = oracle.optimum(cmdp.mdp, mean.reward, mean.constraints)
    free = oracle.optimum(cmdp.mdp, mean.reward).occupancy.sum(-1)
    mask = np.asarray(cmdp.layers.action_mask)
    worst = Needed(0.0, 0.0, 0.0, 0.0)
    for target, cost in zip(best.multipliers, np.asarray(mean.constraints), strict=True):
        most = float(np.where(mask, cost, -np.inf).max((1, 2)).sum())
        if target <= 0:
            continue
        low, high = 0.0, 60.0  # log T
        for _ in range(100):
            middle = (low + high) / 2
            T = math.exp(middle)
            eta = float(rates_of("theory", cmdp.layers, cmdp.num_constraints, T, DELTA).dual)
            low, high = (low, middle) if T * eta * most >= target else (middle, high)
        greedy = float((cost * free).sum())
        worst = max(worst, Needed(math.exp(high), float(target), greedy, most))
    return worst


# -- the run -------------------------------------------------------------------------------------


def start_worker(cores) -> None:
    """A process of its own for each core."""
    os.sched_setaffinity(0, {cores.get()})
    jax.config.update("jax_enable_x64", True)


def work(job: tuple[list[str], list[int], list[float], int, list[int]]):
    """All horizons of cases that share a shape."""
    names, horizons, *learners = job
    begin = time.perf_counter()
    found: dict[str, dict[Variant, list[Measured]]] = {name: {} for name in names}
    for horizon in horizons:
        for name in names:
            for variant, m in measure(CASES[name], horizon, *learners).items():
                found[name].setdefault(variant, []).append(m)
                print(
                    f"{name}, {variant.rates}, scale {variant.scale:g}, T = {horizon:,}: regret "
                    f"{np.median(m.regret):,.0f}, violation {np.median(m.violation):,.0f}",
                    file=sys.stderr,
                    flush=True,
                )
    return found, time.perf_counter() - begin


def jobs_of(names: list[str], scales: list[float], seeds: int, keys: int) -> list[list[str]]:
    """Cases whose programs are the same, together; the largest jobs first."""
    groups: dict[str, list[str]] = {}
    weights: dict[str, int] = {}
    for name in names:
        cmdp = build(CASES[name], HORIZONS[0])
        lanes = sum(variants_of(CASES[name], scales, seeds, keys).values())
        leaves, structure = jax.tree.flatten(cmdp)
        same = f"{structure} {[leaf.shape for leaf in leaves]} {lanes}"
        groups.setdefault(same, []).append(name)
        weights[same] = weights.get(same, 0) + lanes * int(cmdp.layers.num_triples)
    return [groups[same] for same in sorted(groups, key=lambda same: -weights[same])]


def play(names: list[str], horizons: list[int], scales: list[float], seeds: int, keys: list[int]):
    """Every case on all cores; results in the order of `names`."""
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)
    number = len(os.sched_getaffinity(0))
    groups = jobs_of(names, scales, seeds, len(keys))
    jobs = [(group, horizons, scales, seeds, keys) for group in groups]
    found: dict[str, dict[Variant, list[Measured]]] = {}
    with context.Pool(min(number, len(jobs)), start_worker, (cores,)) as pool:
        for results, seconds in pool.imap_unordered(work, jobs):
            found.update(results)
            print(f"{'; '.join(results)}: {seconds:.0f} s", flush=True)
    return {name: found[name] for name in names}


def band(values: np.ndarray, digits: int = 0) -> str:
    """Median, and the 10% and 90% quantiles."""
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"{middle:,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    print(f"\n{title}\n")
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def show_measurements(found) -> None:
    """The first table."""
    rows = [
        [
            name,
            f"{variant.scale:g}",
            f"{m.horizon:,}",
            band(m.regret),
            band(m.violation),
            f"{np.median(m.regret_peak):,.0f}, {np.median(m.violation_peak):,.0f}",
            f"{np.median(m.regret) / math.sqrt(m.horizon):.2f}",
            f"{np.median(m.violation) / math.sqrt(m.horizon):.2f}",
            f"{m.share.min():.3f}",
            f"{band(m.highest_multiplier, 2)} / {theory.multiplier_ceiling(m.horizon):.1f}",
            f"{np.median(m.error) / math.sqrt(m.horizon):.1f}",
            f"{np.mean(m.covered):.0%}",
        ]
        for name, results in found.items()
        for variant, measured in results.items()
        if variant.rates == "tuned"
        for m in measured
    ]
    columns = ["instance", "scale", "T", "regret R", "violation V", "peaks of R, V"]
    columns += ["R / sqrt(T)", "V / sqrt(T)"]
    columns += ["reward / OPT, worst seed", "largest multiplier / T^(1/4)"]
    columns += ["model error / sqrt(T)", "P covered"]
    show("Tuned rates: median [10%, 90%] over seeds.", columns, rows)


def theorem_speaks_from(case: Case, rho: float) -> float:
    """From which T the case's guarantee applies; that without a margin asks for none."""
    cmdp = build(case, HORIZONS[0])
    if case.setting == "no slater":
        return 1.0
    L, m = cmdp.layers.shape[0], cmdp.num_constraints
    return theory.episodes_for_margin(rho, L, m) or math.inf


def show_verdicts(found) -> None:
    """The second table, its sum for each scale, and from where the theorems speak."""
    rows, speaks = [], {}
    for name, results in found.items():
        for variant, measured in results.items():
            if variant.rates != "tuned":
                continue
            case, rho = CASES[name], measured[-1].rho
            speaks[name] = theorem_speaks_from(case, rho)
            begins = "any T" if speaks[name] == 1 else f"T = {speaks[name]:.0e}"
            for line in verdicts_of(case, measured):
                setting = f"{case.setting}, rho = {rho:.2f}"
                rows.append([name, setting, begins, f"{variant.scale:g}", *line])
    columns = ["instance", "setting", "theorem speaks from", "scale"]
    columns += ["what", "measured", "asked", "verdict", "remark"]
    title = "Slopes in log T, [5%, 95%] over resampled keys and seeds, and verdicts."
    show(title, columns, rows)
    scale_at, verdict_at = columns.index("scale"), columns.index("verdict")
    for scale in dict.fromkeys(row[scale_at] for row in rows):
        given = [row[verdict_at] for row in rows if row[scale_at] == scale]
        words = ("pass", "FAIL", "open", "not judged")
        count = ", ".join(f"{given.count(word)} {word}" for word in words)
        print(f"\nVerdicts at confidence scale {scale}: {count}.")
    late = [T for T in speaks.values() if T > 1]
    if late:
        print(
            "\nThe paper's guarantees of order sqrt(T) speak from T = (20 m)^4 on at the least, "
            f"160,000 for m = 1,\nand on these instances from T = {min(late):.0e} to "
            f"{max(late):.0e}; their rates are those of the proofs."
        )


def show_theory(found) -> None:
    """The third table, and what it means."""
    rows, needed, reached = [], [], []
    for name, results in found.items():
        slow = results.get(Variant("theory", 1.0))
        if slow is None:
            continue
        tuned = next(iter(results.values()))  # at the first of the scales
        need = theory_horizon(CASES[name])
        if need.horizon > 0:
            needed.append(need.horizon)
            reached.append(np.median(slow[-1].last_multiplier) / need.multiplier)
        for m, other in zip(slow, tuned, strict=True):
            rows.append(
                [
                    name,
                    f"{m.horizon:,}",
                    f"{np.median(m.last_multiplier):.4f}",
                    f"{np.median(other.last_multiplier):.2f}",
                    f"{need.multiplier:.2f}",
                    f"{np.median(m.violation) / m.horizon:.3f}",
                    f"{np.median(other.violation) / m.horizon:.3f}",
                    f"{need.greedy:.2f}",
                    f"{need.most:.2f}",
                    f"{need.horizon:.0e}" if need.horizon > 0 else "any",
                ]
            )
    if not needed:
        return
    columns = ["instance", "T", "multiplier, theory", "tuned", "optimal"]
    columns += ["violation per episode, theory", "tuned", "greedy policy"]
    columns += ["largest possible", "T needed"]
    show('rates="theory" at the same horizons: medians.', columns, rows)
    print(
        '\nWith rates="theory" no median multiplier has come further than '
        f"{max(reached):.0%} of the optimal one at the last horizon.\nWhere that one is positive, "
        "the violation per episode tends to that of the greedy policy or beyond.\nA multiplier "
        "grows by at most eta(T) times the largest possible violation v in an episode, so that it "
        "cannot\nreach the optimal one before T eta(T) v >= lambda*, "
        f'that is T = {min(needed):.0e} to {max(needed):.0e} on these instances ("T needed").'
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=32, help="of each key")
    parser.add_argument("--keys", type=int, nargs="+", default=[0], help="sets of seeds")
    parser.add_argument("--horizons", type=int, nargs="+", default=list(HORIZONS))
    parser.add_argument("--scales", type=float, nargs="+", default=list(SCALES))
    parser.add_argument("--only", nargs="+", default=[""], help="instances with this in their name")
    add_quick(parser)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if arguments.seeds < 1:
        parser.error(f"there must be a seed at least; got {arguments.seeds}")
    keys = arguments.keys
    if min(keys) < 0 or max(keys) >= 2**32 or len(set(keys)) < len(keys):
        parser.error(f"keys are different whole numbers from 0 to 2^32 - 1; got {keys}")
    try:
        for horizon, scale in itertools.product(arguments.horizons, arguments.scales):
            check_setting(horizon, DELTA, scale)
    except ValueError as error:
        parser.error(str(error))
    names = [name for name in CASES if any(part in name for part in arguments.only)]
    if not names:
        parser.error(f"there is no such instance; they are {'; '.join(CASES)}")
    if arguments.quick:
        hurry()
        arguments.seeds, arguments.horizons = 2, [20, 40]
        first_of = {CASES[name].setting: name for name in reversed(names)}
        names = list(first_of.values())
    begin = time.perf_counter()
    horizons, scales = sorted(arguments.horizons), arguments.scales
    found = play(names, horizons, scales, arguments.seeds, keys)
    seconds = time.perf_counter() - begin
    show_measurements(found)
    show_verdicts(found)
    show_theory(found)
    runs = [m for results in found.values() for measured in results.values() for m in measured]
    failed = sorted({name for m in runs for name in m.failed})
    print(
        f"\nProjections that did not converge: {sum(m.unconverged for m in runs)}. "
        f"Certificates that failed in some run: {', '.join(failed) or 'none'}. "
        f"{len(keys)} keys of {arguments.seeds} seeds, {seconds:.0f} s."
    )


if __name__ == "__main__":
    main()
