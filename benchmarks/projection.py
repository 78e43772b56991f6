"""The projection against every solver a user would pick instead: `python benchmarks/projection.py`.

Replays the projections of real learning runs, so that warm starts are real, and prints one table:
microseconds per projection and core, the final residual, iterations, and the ratio to OSQP (its C
core, warm-started, factorised once per epoch, tolerance 1e-6). Every solver runs in one process per
core, all cores at the same time, each on lanes of its own; the solvers take turns, several rounds,
and the medians are shown, so that a machine that is busy for a while slows all of them. Compile
time is stated apart. A second table says what twice the layers cost (`--doublings`: it alone).
`--quick` only shows that all of it works.

What was tried for `solver="newton"` (AMD EPYC, 512 KiB of L2 per core; microseconds for all lanes
of a batch unless said otherwise, on a shared machine, most of it measured once), kept unless marked
with a minus:

- Lanes as the last axis through `custom_vmap`, instead of `vmap` of a `while_loop`: loops stop and
  branches are skipped for real.
- One classification per step, masses eliminated with their cones, instead of solving every cone
  exactly in each step.
- Pieces by S^2 comparisons at each entry's own breakpoint; their sums as unrolled slices 153, as
  broadcast and reduce 533, as `fori_loop` 258 (large, 32 lanes).
- All masked sums in one variadic `lax.reduce` 152, unrolled 204, one by one 1,770.
- `where` for `maximum`, which propagates NaN: 267 to 176.
- A conditional as a fence against recomputation: classification 6,300 to 2,200;
  `optimization_barrier` is dropped by XLA's CPU backend before it fuses (-).
- Cones flat and entries first, per projection: one small lane 82 to 59, but one large lane 575 to
  714 and 599 to 688 (alternating runs), 32 large lanes unchanged.
- The Hessian's sum over pairs unrolled 213, as matrix product 406, as `scan` 459, as reduce 931
  (large, 32 lanes); for a single lane the whole Hessian 15 with three matrix products, 53 without.
- Groups of lanes that fit the cache: small lanes in groups of 4, 8, 16, 32: 65, 37, 48, 65 per
  projection; large ones alone.
- Block elimination by LAPACK's Cholesky: 30 against 28 for one large lane, 115 against 314 for
  eight, 53 against 32 for sixteen small ones (-: groups of large lanes do not pay anyway).
- Loops that evaluate inside, so that the program holds its evaluation once: 20,700 to 13,300 lines
  of HLO (compile 10.4 s to 6.7 s, but under a falling load).
- Fallback: Levenberg-Marquardt stalls on far targets (-); a line search leaves 3 of 100 undone (-);
  with a path of growing targets and a last word of the local loop none of 10,900 (-: see below).
- Without what only pads (36% of the entries of "large"), cones of all layers and lanes on one flat
  axis; ratios of alternating runs on a busy machine, steps unchanged: 32 large lanes 1.8, one large
  lane 2.0 to 2.4, 256 small lanes 1.7, one small lane 1.15.
- Then pieces as 1 and 0 instead of truth values: classification 38 to 28 (one large lane, but not
  seen in the whole step), 34 to 28 (sixteen small).
- The block elimination written out over the layers instead of `scan`: alone 31 to 15 at best, but
  per projection 452 to 412 (32 large lanes), 21 to 25 (256 small ones), 53 to 57 (one small), the
  smallest of 15 alternating rounds, for 1 s to 4 s more to compile (-).
- Compilation: the solver under `jit` inside, so that batches and platforms share a trace: 5.0 s to
  3.2 s of tracing a run; the fenced functions likewise, to 2.2 s.
- With that: potentials looked up with constant indices 1.3, as broadcasts 4.2; two pivots at once
  36 against 22 (-); groups of 16 small lanes 28, of 8 31, of 12 34; of 2 large lanes 562, of 1 578.
- Doubling the layers. What grows with them: the cones (5 to 10 layers 2.61 times as many, 10 to 20
  2.23 times) and the Newton steps (4.3, 4.6, 5.1: the last of more cones settles later); time per
  cone and step does not. So what is spent per step whatever the size keeps the ratio low, and what
  makes all cones faster lets it rise towards 2.8 for 5 to 10. One core, old and new in turns, the
  smallest of 7 rounds, one lane of 5 and of 10 layers, steps unchanged: 279 and 652 before, 214
  and 489 after what follows. The ratios did not fall: smallest and median of 15 rounds, 5 to
  10 layers, one lane 2.5, 2.4 before and 2.5, 2.5 after, eight lanes 2.5, 2.3 and 2.4, 2.3; 10 to
  20 layers 2.3, 2.5 and 2.4, 2.5, eight lanes 2.4, 2.5 and 2.4, 2.4. For twice the variables all
  that is after lies between 1.8 and 2.3.
  - A block eliminated as one kernel (`one_kernel`): 276 to 214 and 628 to 489; sixteen small lanes
    14.8 to 12.7, one small lane 38 to 34. Its 20 operations took 0.15 each, mostly to be started.
  - `fence` as a call that is not inlined instead of a conditional, the piece of an entry as one
    number instead of three (classification 51 to 46), the sense of the input counted: 279 to 276
    and 652 to 628, 15.4 to 14.8, 40 to 38, and a shorter program.
  - All of the elimination as one kernel 38 to 10, and the classification too (large 201, deep 480,
    sixteen small 11.3): but XLA fails there on operations that it splits over threads or gives to
    a library, which depends on the size and on the cores (-).
  - Blocks eliminated from both ends at once: 40 to 36 for 10 layers, 18 to 21 for 5 (-).
  - Widths of the table padded or kept, transposed, or the inverse alone: 38 to 34, 45, 53 (-).
  - The Hessian as one matrix product instead of three: 54 to 55 (-).
  - Other starts, steps for 5 and 10 layers: potentials of the last episode 4.36, 4.57; their moving
    average 4.31, 4.48; extrapolated 4.49, 4.71; none 5.07, 5.14. Starting at the exact potentials
    would take 3.2, 3.6, at the exact masses 4.2, 4.5 (-: but see what follows).
  - Comparisons as sums of maxima: classification 35 to 31, but cancellation in float32 (-).
- Fewer steps. Newton converges quadratically here: entries that change their piece, 20 layers, step
  by step 690, 390, 85, 10, 0. So half the error at the start saves a step. Mean steps of small, 5,
  10 and 20 layers, 312 projections each, 3.59, 4.27, 4.54, 5.05 before:
  - Exact cones in every step -, 4.21, 4.48, 4.98, two classifications each -, 4.3, 4.5, 5.1: the
    masses are not what takes the steps (-).
  - The system of the last solution's pieces, solved for the change of the target: 8 tenths of the
    way 2.86, 3.84, 4.20, 4.40, all of it -, 3.91, 4.3, 4.53, at the cost of half a step (-).
  - One sweep back over the layers that keeps what leaves each state: 3.46, 4.25, 4.4, 4.66; 6
    tenths of it 3.07, 3.71, 4.04, 4.26, but it took 7, 25, 65 (5, 10, 20 layers) (-).
  - The states before moved by the mean over the flow instead, no sweep: 3.12, 3.76, 4.05, 4.28.
  - Targets by their means, so that no weights, as large as the target, are carried from episode to
    episode: 3.12, 3.75, 4.05, 4.31. Kept: `_predict`.
  - 5 and 7 tenths 3.16, 3.75, 4.07, 4.37 and 3.13, 3.83, 4.15, 4.29 (-); from a moving average of
    the potentials 3.03, 3.75, 4.07, 4.27 (-); first steps shortened to 9 and 8 tenths 3.50, 4.25,
    4.47, 4.86 and 3.65, 4.26, 4.53, 4.92 (-).
  - Most lanes of 6 steps and more had a state that nothing leaves at its potential, where the
    system is singular and the step too long. The piece of the action that opens first instead:
    3.51, 4.26, 4.47, 4.92, but nothing beside the prediction (-); a larger diagonal there: 4.8,
    4.7, 5.5, 5.4 (-).
  - Two of 936 projections of 20 layers went to the slow loop: a mass that jumps to and fro. Moved
    by half in every other step from the seventh on it ends after 9 to 11.
  - CPU time, one core, old and new in turns, the smallest of 9 rounds (medians within 2%): one lane
    of 5, 10, 20 layers 213, 483, 1099 to 188, 435, 973, eight lanes 204, 474, 1161 to 186, 442,
    1048, one small lane 31.2 to 28.5, sixteen 12.1 to 11.0. Ratios, 5 to 10 layers: 2.26 to 2.32,
    eight lanes 2.32 to 2.37, since 5 layers gained most; 10 to 20: 2.28 to 2.23 and 2.45 to 2.37.
- Sums written out (`entries_sum`). From some thousand numbers on a reduction goes to a library:
  over the actions 1.7 for 8 layers of ten states and 11.0 for 18, written out 1.7 and 3.7. A whole
  Newton step of 20 layers 86 to 71, preparing the arrays 40 to 32 (10 layers 20 to 16), 5 layers
  unchanged. The occupancy clipped once instead of in every step, and the mask of the moving entries
  inside its sum: 1 in 100 more. CPU time, one core, in turns, the medians of 9 rounds, eight lanes
  of 5, 10, 20 layers: 193, 453, 1076 to 195, 451, 972. Groups of a single lane without an axis for
  it, which XLA gave another layout and copied: 6, 13, 30 less of what is not Newton steps.
  - Whether the input makes sense, as sums in a call of their own: 14, 23, 44 more, since the
    transposed arrays are then stored (-).
  - Blocks eliminated from both ends, as two lanes: 6.5, 11.7, 24 to 8.4, 15.5, 33; as two tables
    in one kernel 5.7, 10.0, 20.4 instead of 6.2, 11.3, 22: not worth its code (-).
  - The Hessian's three matrix products of 18 layers 35: as one 84, stacked 43, without the
    transposed copies that XLA makes of both factors 50 and 72, in chunks of 4 or 9 layers 44, 39
    (-).
  - `_predict` with 7, 13, 16 tenths of what moves along, steps of 5, 10, 20 layers: 3.81, 4.10,
    4.30; 3.76, 4.09, 4.30; 3.82, 4.14, 4.34, as it is 3.75, 4.08, 4.28 (-). Masses evaluated once
    more, or twice, before the first step: 3.75, 4.05, 4.26 and 3.75, 4.06, 4.27 (-). A response
    that is smaller where little leaves a state, ten variants: 3.70 to 3.93, 4.04 to 4.24, 4.24 to
    4.41, the best of them 3.71, 4.04, 4.30 (-).
  - With eight lanes 5 to 10 layers still took 2.3 to 2.4 times the time: 31% of the projections of
    5 layers need 3 steps, 8% of 10 layers, nearly all others 4.
- float32: near the solution no descent of the dual can be seen. A step that raises it by no more
  than rounding may, while the residual falls, counts as one: 2 of 25,600 projections of 256 small
  lanes had not converged, after 3,075 steps; now all have, after 37 at most.
- Layers as the last axis but for the lanes, so that sums over pairs and actions run over contiguous
  layers (`layout.py`). One core, in turns, medians of 5 rounds, eight lanes of 5, 10, 20 layers:
  182, 429, 958 to 172, 400, 970, one small lane 29.2 to 26.1, sixteen unchanged.
  - The Hessian's outer products written out over the pairs, 3, 8, 18 inner layers: 4.9, 10.6, 31,
    in single precision 4.5, 4.9, 20, as matrix products 10, 19, 39 in either. Up to 50 pairs in one
    loop: with 96 pairs of 12 states 90, in two loops 32, as matrix products 37; with 10 to 16 pairs
    the compiler unrolls the layers instead and takes three times as long.
  - In blocks of at most 8 layers: 18 layers cost two scalar rounds for each vector of 16. By copies
    of parts 733 instead of 748 for a whole projection of 20 layers, as the order of the cones 724.
    Blocks of 4, 9, 16 layers: 754, 762, 766 (-).
  - A product before the slices of it that are added up: 3.9, after them 0.7.
  - Each of these sums in a call of its own: 3 in 100 more (-).
- A float32 phase, local steps in single precision first. Down to a residual of 1e-4 that is
  evaluated once more: 181, 423, 936 to 186, 417, 869, before the layers were last, since the matrix
  products gained nothing (-). Up to and with the first step from below 1e-3, without a further
  evaluation, and with the layers last: 182, 429, 958 to 158, 332, 764, ratios 2.11 and 2.27 instead
  of 2.36 and 2.22 there, for 3 s to 5 s more to compile. From below 1e-2, 3e-3, 5e-4, 2e-4, steps
  in single and double precision for 10 layers: 1.4 + 2.7, 2.1 + 2.0, 3.1 + 1.1, 3.4 + 1.1, with
  1e-3 2.8 + 1.3 (-: by their cost 312, 291, 271, 280 and 274; for 5 layers 138, 130, 133, 136 and
  130). Not for small lanes, where it took 25.6 instead of 26.2 and 3 s more to compile.
- Other shapes, one projection from a cold start, before and after these two: 60 layers of 10
  states, 5 actions 6,840 and 4,070; 4 layers of 30 states, 10 actions, by matrix products 11,300
  and 2,280; 10 layers of 12 states, 8 actions 2,190 and 1,680. They compile in 7 s to 11 s instead
  of 3 s to 5 s.
- Preparing the arrays straight in the layout of the cones: 5, 10, 20 layers 154, 326, 722 to 158,
  329, 750, since the transposition then jumps; without keeping the first of two transposed copies,
  or with the check of the input on that copy: no change (-).
- Closed states, out of which nothing flows at their potential, are what Newton fails at: the system
  is singular. Random problems of the tests, 118,608 of them, with the fallback as it was: 3 did not
  converge, at most 1,477 steps. A diagonal that leads a closed state to where it opens: still
  hundreds of steps, since the states after it are closed, too (-). Potentials raised layer by layer
  from the end until every state is open, then Newton with a line search: 237,216 problems, all
  converged, after 39 steps at most. By it alone, from a cold start, far targets, 4 layers of 5
  states and 10 of 12, mean steps: 4.8 and 13.0; with the path of growing targets 19.9 and 30.3 (-),
  with a damping of 0.1 instead of 0.001 7.9 and 22.7 (-).
  - States opened by a thousandth of the residual: with 1,000 entries, and nothing that enters, they
    let out as much as the residual, which then stalls (-). By a hundredth for all entries together:
    50,832 fresh problems, all converged, after 39 steps at most.
  - Local steps before it, 8, 10, 14, 25: 10 layers of 12 states 11.6, 12.2, 13.3, 16.4 steps in all
    from a cold start, recorded projections of 20 layers 4.342, 4.343, 4.346, 4.353. With masses
    moved by half in late steps, which had been for the same lanes: 4.340 (-).
  - All states opened before the first local step, by 1e-6, 1e-4, 1e-3: recorded projections of 20
    layers 4.307, 4.282, 5.084 steps instead of 4.343, the slowest of 16 lanes 5.7, 5.6, 6.3 instead
    of 5.9, but a projection takes longer by a tenth (-).
- A cone whose guessed mass is below the rounding of its target looked settled there, and was wrong
  by 1e-5. The support function of its ball is a lower bound: no such case since. A fresh guess
  wherever one is below it: 980, 59, 114 times the time for sixteen small lanes, eight of 10 and of
  20 layers (-).
- Centers scaled to distributions: 1% to 3% of the time, within what repeats differ by.
- jaxopt's solvers, `solver="osqp"` and `"projected_gradient"`, iterations per projection of `grid`
  (4,696 variables; polished by two exact steps after every 25). As they were, conjugate gradients
  and potentials scaled by degree: 6,620 and 1,773 to 1e-6. OSQP's systems solved directly,
  episodes 430 to 460: 237, a fifth of them 750 and not done, since weakly active rows settle
  slowly; with the rows of q times three 28; then step sizes 0.1, 0.3, 1 in episodes 100 to 130: 80,
  36, 26.
  Step sizes adapted by jaxopt's rule in every round: more (-). Starting at jaxopt's own last
  iterate instead of the polished point with its multipliers: 93 instead of 52 with a single exact
  step (-). Potentials scaled by the root of the Laplacian: 29. The exact steps alone, from the
  last solution, solve none of episodes 105 to 125 and two thirds of 430 to 460.
- Not tried: levels carried from step to step: the S^2 comparisons are down to
  7 of 23 of a large classification and 1 of 22 of a small one.
"""

import argparse
import multiprocessing
import os
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from quick import add_quick, hurry

from pdgd_jax import ConfidenceSet, Layers, cold_start, project


class Case(NamedTuple):
    """An instance and what to measure on it."""

    sizes: tuple[int, ...]
    num_actions: int
    lanes: tuple[int, ...]  # batch sizes of ours
    episodes: int  # replayed by ours
    peer_episodes: int  # replayed by OSQP; 0 to leave it out
    slow_peer_episodes: int  # replayed by the others; 0 to leave them out
    before: int  # episodes played before the recording starts


CASES = {
    "small": Case((1, 4, 4, 4, 1), 3, (1, 16, 256), 100, 60, 20, 1000),
    "large": Case((1, 10, 10, 10, 10, 1), 5, (1, 8, 32), 40, 8, 3, 600),
    # Twice the layers of "large", and twice again, ours alone.
    "deep": Case((1, *(10,) * 9, 1), 5, (1, 8), 40, 0, 0, 600),
    "deeper": Case((1, *(10,) * 19, 1), 5, (1, 8), 20, 0, 0, 600),
}
DOUBLINGS = (("large", "deep"), ("deep", "deeper"))


def quickly(case: Case) -> Case:
    """As many layers, and as little of everything else as there can be."""
    return Case(
        sizes=tuple(min(size, 2) for size in case.sizes),
        num_actions=2,
        lanes=(1, case.lanes[-1]),
        episodes=3,
        peer_episodes=min(case.peer_episodes, 2),
        slow_peer_episodes=min(case.slow_peer_episodes, 2),
        before=2,
    )


class Sequence(NamedTuple):
    """Projections of consecutive episodes, `[T, lanes, ...]`."""

    target: np.ndarray
    center: np.ndarray
    radius: np.ndarray


def record(case: Case, num_lanes: int, seed: int = 0, horizon: int = 10_000) -> Sequence:
    """Follow the paper's algorithm boxes in NumPy, on a random CMDP for each lane.

    Tuned rates, Bernoulli rewards and constraints, m = 1, radii scaled by 0.3.
    """
    rng = np.random.default_rng(seed)
    layers = Layers.from_sizes(case.sizes, case.num_actions)
    L, S, A = layers.shape
    pairs, valid = np.asarray(layers.action_mask), np.asarray(layers.triple_mask)
    lanes, B, T = np.arange(num_lanes), num_lanes, horizon
    transition = rng.exponential(size=(B, L, S, A, S)) ** 2 * valid
    transition /= np.maximum(transition.sum(-1, keepdims=True), 1e-300)
    reward_mean = rng.uniform(size=(B, L, S, A)) * pairs
    cost_mean = rng.uniform(-1, 0.6, size=(B, L, S, A)) * pairs
    primal_constant = np.sqrt(valid.sum() / (2 * L))
    dual_step = 1 / (L * np.sqrt(T))
    width = np.asarray(case.sizes[1:])[:, None, None]
    logarithm = np.log(T * sum(case.sizes) * A / 0.05)

    uniform = valid / np.maximum(valid.sum(-1, keepdims=True), 1)
    q = np.repeat((valid / np.maximum(valid.sum((1, 2, 3), keepdims=True), 1))[None], B, 0)
    visits, triples = np.zeros((B, L, S, A)), np.zeros((B, L, S, A, S))
    snapshot = visits.copy()
    center = np.repeat(uniform[None], B, 0)
    radius = np.repeat(2.0 * pairs[None], B, 0)
    multiplier, largest = np.zeros(B), np.zeros(B)
    warm = jax.tree.map(lambda x: jnp.stack([x] * B), cold_start(layers))
    solve = jax.jit(
        jax.vmap(lambda t, c, r, w: project(layers, t, ConfidenceSet(c, r), warm_start=w))
    )
    kept = []
    for episode in range(case.before + case.episodes):
        mass = q.sum(-1)
        total = mass.sum(-1, keepdims=True)
        policy = np.where(total > 0, mass / np.where(total > 0, total, 1), pairs / A)
        state, doubled = np.zeros(B, int), np.zeros(B, bool)
        for k in range(L):
            action = _draw(rng, policy[lanes, k, state])
            following = _draw(rng, transition[lanes, k, state, action])
            visits[lanes, k, state, action] += 1
            triples[lanes, k, state, action, following] += 1
            floor = np.maximum(1, 2 * snapshot[lanes, k, state, action])
            doubled |= visits[lanes, k, state, action] >= floor
            state = following
        snapshot[doubled] = visits[doubled]
        seen = visits[doubled]
        estimate = triples[doubled] / np.maximum(seen, 1)[..., None]
        center[doubled] = np.where(seen[..., None] > 0, estimate, uniform)
        bound = 0.3 * np.sqrt(2 * width * logarithm / np.maximum(seen, 1))
        radius[doubled] = np.where(seen > 0, bound, 2.0) * pairs

        reward = (rng.uniform(size=reward_mean.shape) < reward_mean) * pairs
        cost = np.where(rng.uniform(size=cost_mean.shape) < (1 + cost_mean) / 2, 1.0, -1.0) * pairs
        loss = multiplier[:, None, None, None] * cost - reward
        largest = np.maximum(largest, np.abs(loss).max((1, 2, 3)))
        step = 1 / (np.maximum(largest, 1e-300) * primal_constant * np.sqrt(T))
        target = (q - step[:, None, None, None, None] * loss[..., None]) * valid
        multiplier = np.clip(multiplier + dual_step * (cost * mass).sum((1, 2, 3)), 0, T**0.25)
        result = solve(target, center, radius, warm)
        assert np.all(result.info.converged)
        q, warm = np.asarray(result.occupancy), result.warm_start
        if episode >= case.before:
            kept.append((target, center.copy(), radius.copy()))
    return Sequence(*(np.stack(arrays) for arrays in zip(*kept, strict=True)))


def _draw(rng, weights):
    cumulative = np.cumsum(weights, -1)
    uniform = rng.uniform(size=(len(weights), 1)) * cumulative[:, -1:]
    return np.minimum((uniform >= cumulative).sum(-1), weights.shape[1] - 1)


class Measurement(NamedTuple):
    """What one process measured."""

    microseconds: float
    residual: float
    iterations: float
    slowest: float  # iterations of the slowest lane, averaged over episodes
    compile_seconds: float
    cpu_microseconds: float = 0.0  # of ours: tells less of what else the machine does


# -- ours ----------------------------------------------------------------------------------------


class Ours:
    """`project` under `vmap` and `scan`, compiled once."""

    def __init__(
        self, case, sequence, lanes, core, solver="newton", dtype="float64", episodes=None
    ):
        order = np.roll(np.arange(sequence.target.shape[1]), -core * lanes)[:lanes]
        count = episodes or case.episodes
        self.data = [jnp.asarray(array[:count, order], dtype) for array in sequence]
        layers = Layers.from_sizes(case.sizes, case.num_actions)

        def lane(*arrays):
            def step(warm, episode):
                target, center, radius = episode
                confidence = ConfidenceSet(center, radius)
                result = project(layers, target, confidence, solver=solver, warm_start=warm)
                # The sum stands for what a learner does with the occupancy.
                return result.warm_start, (result.info, result.occupancy.sum())

            return jax.lax.scan(step, cold_start(layers, solver, dtype), arrays)[1]

        begin = time.perf_counter()
        self.run = jax.jit(jax.vmap(lane, 1, 1)).lower(*self.data).compile()
        self.compile_seconds = time.perf_counter() - begin
        jax.block_until_ready(self.run(*self.data))
        self.projections = count * lanes

    def measure(self):
        # For as long as the others take: a few milliseconds are at the mercy of the scheduler.
        begin, turns, elapsed = time.perf_counter(), 0, 0.0
        begin_cpu = time.process_time()
        while elapsed < 0.2:
            info, _ = jax.block_until_ready(self.run(*self.data))
            turns, elapsed = turns + 1, time.perf_counter() - begin
        elapsed, cpu = elapsed / turns, (time.process_time() - begin_cpu) / turns
        count = np.asarray(info.iterations)[1:]  # the first is a cold start
        return Measurement(
            elapsed / self.projections * 1e6,
            float(np.max(info.residual)),
            count.mean(),
            count.max(1).mean(),
            self.compile_seconds,
            cpu / self.projections * 1e6,
        )


# -- the others ----------------------------------------------------------------------------------


class Program(NamedTuple):
    """The lifted quadratic program of one confidence set: unknowns (q, d)."""

    quadratic: object
    equalities: object
    right: np.ndarray
    inequalities: object  # A x <= 0
    valid: np.ndarray


def program_of(layers, center, radius):
    import scipy.sparse as sp

    pairs, valid = np.asarray(layers.action_mask), np.asarray(layers.triple_mask)
    n = int(valid.sum())
    index = -np.ones(valid.shape, int)
    index[valid] = np.arange(n)
    k, x, a, y = np.nonzero(valid)
    row_of = np.cumsum(pairs.any(-1).reshape(-1)).reshape(pairs.shape[:2]) - 1
    rows, columns, values = [row_of[k, x]], [index[valid]], [np.ones(n)]
    inner = k + 1 < pairs.shape[0]
    rows.append(row_of[k[inner] + 1, y[inner]])
    columns.append(index[valid][inner])
    values.append(-np.ones(inner.sum()))
    count = int(pairs.any(-1).sum())
    flow = _sparse(rows, columns, values, (count, 2 * n))
    pair_of = np.cumsum(pairs.reshape(-1)).reshape(pairs.shape) - 1
    of_pair = pair_of[k, x, a]
    share = sp.csr_matrix((center[valid], (np.arange(n), of_pair)), shape=(n, of_pair.max() + 1))
    mass = sp.csr_matrix((np.ones(n), (of_pair, np.arange(n))), shape=share.shape[::-1])
    identity = sp.identity(n)
    away = identity - share @ mass  # q - p s
    # |q - p s| <= d and sum d <= eps s. With d >= (q - p s)_+ and eps/2 instead there are fewer
    # nonzeros, but OSQP takes two to three times as long.
    inequalities = sp.vstack(
        [
            sp.hstack([away, -identity]),
            sp.hstack([-away, -identity]),
            sp.hstack([-sp.diags(radius[pairs]) @ mass, mass]),
            sp.hstack([-identity, 0 * identity]),
        ]
    )
    right = np.zeros(count)
    right[row_of[0, 0]] = 1
    quadratic = sp.diags(np.r_[np.ones(n), np.zeros(n)]).tocsc()
    return Program(quadratic, flow.tocsc(), right, inequalities.tocsc(), valid)


def _sparse(rows, columns, values, shape):
    import scipy.sparse as sp

    parts = (np.concatenate(x) for x in (values, rows, columns))
    data, i, j = parts
    return sp.csr_matrix((data, (i, j)), shape=shape)


class Peer:
    """A solver called episode by episode; subclasses say how."""

    def __init__(self, case, sequence, core, episodes):
        self.layers = Layers.from_sizes(case.sizes, case.num_actions)
        self.sequence, self.lane, self.episodes = sequence, core, episodes

    def measure(self):
        spent, residuals, iterations, previous, program = 0.0, [], [], None, None
        self.reset()
        for t in range(self.episodes):
            target, center, radius = (array[t, self.lane] for array in self.sequence)
            fresh = previous is None or center.tobytes() + radius.tobytes() != previous
            if fresh:
                previous = center.tobytes() + radius.tobytes()
                program = program_of(self.layers, center, radius)
            linear = np.r_[-target[program.valid], np.zeros(int(program.valid.sum()))]
            begin = time.perf_counter()
            residual, steps = self.solve(program, linear, fresh)
            elapsed = time.perf_counter() - begin
            if t > 0:
                spent += elapsed
                residuals.append(residual)
                iterations.append(steps)
        mean = float(np.mean(iterations))
        return Measurement(spent / len(residuals) * 1e6, max(residuals), mean, mean, 0.0)

    def reset(self):
        pass

    def solve(self, program, linear, fresh):
        raise NotImplementedError


class Osqp(Peer):
    """Warm-started, factorised once per epoch."""

    def reset(self):
        self.solver = self.answer = None

    def solve(self, program, linear, fresh):
        import osqp
        import scipy.sparse as sp

        if fresh:
            count = program.inequalities.shape[0]
            self.solver = osqp.OSQP()
            self.solver.setup(
                program.quadratic,
                linear,
                sp.vstack([program.equalities, program.inequalities]).tocsc(),
                np.r_[program.right, np.full(count, -np.inf)],
                np.r_[program.right, np.zeros(count)],
                eps_abs=1e-6,
                eps_rel=1e-6,
                max_iter=100_000,
                verbose=False,
            )
            if self.answer is not None:
                self.solver.warm_start(self.answer.x, self.answer.y)
        else:
            self.solver.update(q=linear)
        self.answer = self.solver.solve(raise_error=False)
        info = self.answer.info
        return max(info.prim_res, info.dual_res), info.iter


class Clarabel(Peer):
    """Cold, 1e-11."""

    def solve(self, program, linear, fresh):
        import clarabel
        import scipy.sparse as sp

        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
        count = program.inequalities.shape[0]
        solution = clarabel.DefaultSolver(
            program.quadratic,
            linear,
            sp.vstack([program.equalities, program.inequalities]).tocsc(),
            np.r_[program.right, np.zeros(count)],
            [clarabel.ZeroConeT(len(program.right)), clarabel.NonnegativeConeT(count)],
            settings,
        ).solve()
        return max(solution.r_prim, solution.r_dual), solution.iterations


class Piqp(Peer):
    """Cold, 1e-8."""

    def solve(self, program, linear, fresh):
        import piqp

        solver = piqp.SparseSolver()
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-8
        count = program.inequalities.shape[0]
        solver.setup(
            program.quadratic,
            linear,
            program.equalities,
            program.right,
            program.inequalities,
            np.full(count, -np.inf),
            np.zeros(count),
        )
        solver.solve()
        info = solver.result.info
        return max(info.primal_res, info.dual_res), info.iter


class Cvxpy(Peer):
    """CVXPY with a parameter for the target, OSQP at 1e-6 behind it, warm-started."""

    def solve(self, program, linear, fresh):
        import cvxpy as cp

        if fresh:
            n = int(program.valid.sum())
            self.unknowns, self.linear = cp.Variable(2 * n), cp.Parameter(2 * n)
            objective = cp.sum_squares(self.unknowns[:n]) / 2 + self.linear @ self.unknowns
            flow = program.equalities @ self.unknowns == program.right
            self.problem = cp.Problem(
                cp.Minimize(objective), [flow, program.inequalities @ self.unknowns <= 0]
            )
        self.linear.value = linear
        self.problem.solve(
            solver=cp.OSQP, warm_start=True, eps_abs=1e-6, eps_rel=1e-6, max_iter=100_000
        )
        x = self.unknowns.value
        violation = np.abs(program.equalities @ x - program.right).max()
        return max(violation, (program.inequalities @ x).max()), self.problem.solver_stats.num_iters


# -- the run -------------------------------------------------------------------------------------


def worker(connection, core, case, sequence):
    """One process: builds what it is asked for, and measures it when told."""
    os.sched_setaffinity(0, {core % os.cpu_count()})
    jax.config.update("jax_enable_x64", True)
    built = {}
    while True:
        request = connection.recv()
        if request is None:
            return
        label, kind, settings = request
        if label not in built:
            built[label] = KINDS[kind](case, sequence, core=core, **settings)
        connection.send(built[label].measure())


KINDS = {"ours": Ours, "osqp": Osqp, "clarabel": Clarabel, "piqp": Piqp, "cvxpy": Cvxpy}


OSQP = "OSQP (C), warm, 1e-6"
JAXOPT = {"osqp": "jaxopt BoxOSQP", "projected_gradient": "jaxopt ProjectedGradient"}
JAXOPT_LANES = 4


def contestants(case, everything):
    """(label, kind, settings) of every row."""
    rows = []
    if case.peer_episodes:
        rows.append((OSQP, "osqp", {"episodes": case.peer_episodes}))
    rows += [(f"newton 1e-9, {lanes} lanes", "ours", {"lanes": lanes}) for lanes in case.lanes]
    rows.append(
        (f"newton float32 1e-6, {case.lanes[-1]} lanes", "ours",
         {"lanes": case.lanes[-1], "dtype": "float32"})
    )  # fmt: skip
    if everything and case.slow_peer_episodes:
        few = {"episodes": case.slow_peer_episodes}
        rows += [
            ("Clarabel, cold, 1e-11", "clarabel", few),
            ("PIQP, cold, 1e-8", "piqp", few),
            ("CVXPY + OSQP, 1e-6", "cvxpy", few),
        ]
        for solver, title in JAXOPT.items():
            settings = {"lanes": JAXOPT_LANES, "solver": solver}
            suffix = f"1e-6, {JAXOPT_LANES} lanes"
            rows += [
                (f"{title}, polished, {suffix}", "ours",
                 {**settings, "episodes": case.peer_episodes}),
                (f"{title} alone, {suffix}", "ours",
                 {**settings, **few, "solver": f"{solver}-bare"}),
            ]  # fmt: skip
    return rows


class Workers:
    """One process per core, all of them for the same case."""

    def __init__(self, case, sequence, cores=None):
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for core in range(cores or os.cpu_count() or 1):
            here, there = context.Pipe()
            process = context.Process(
                target=worker, args=(there, core, case, sequence), daemon=True
            )
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def measure(self, row):
        """What each measured, all at the same time."""
        for pipe in self.pipes:
            pipe.send(row)
        return [pipe.recv() for pipe in self.pipes]

    def stop(self):
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


def table(name, rounds=3, everything=True, **cores):
    """Measure one case; returns a row for each contestant."""
    case = CASES[name]
    workers = Workers(case, record(case, max(case.lanes[-1], 2)), **cores)
    rows = contestants(case, everything)
    measured = {label: [] for label, _, _ in rows}
    for turn in range(rounds):
        for row in rows:
            slow = row[1] != "osqp" and "newton" not in row[0]
            if slow and turn > 0:
                continue
            measured[row[0]] += workers.measure(row)
    workers.stop()
    base = np.median([m.microseconds for m in measured[OSQP]]) if OSQP in measured else np.nan
    return [
        {
            "instance": name,
            "solver": label,
            "us": float(np.median([m.microseconds for m in found])),
            "ratio": float(base / np.median([m.microseconds for m in found])),
            "residual": max(m.residual for m in found),
            "iterations": float(np.mean([m.iterations for m in found])),
            "slowest_lane": float(np.mean([m.slowest for m in found])),
            "compile_s": max(m.compile_seconds for m in found),
        }
        for label, found in measured.items()
    ]


def doublings(pairs=DOUBLINGS, rounds=15, lanes=(1, 8), **cores):
    """Measure the cases of all pairs in turns; returns a row for each pair and batch."""
    names = sorted({name for pair in pairs for name in pair}, key=list(CASES).index)
    sequences = {name: record(CASES[name], max(lanes)) for name in names}
    workers = {name: Workers(CASES[name], sequences[name], **cores) for name in names}
    measured = {(name, count): [] for name in names for count in lanes}
    for _ in range(rounds):
        for name, count in measured:
            row = f"{count} lanes", "ours", {"lanes": count}
            measured[name, count] += workers[name].measure(row)
    for each in workers.values():
        each.stop()
    rows = []
    for count in lanes:
        for pair in pairs:
            half, whole = (measured[name, count] for name in pair)
            times = [[m.cpu_microseconds for m in found] for found in (half, whole)]
            variables = [
                int(
                    np.sum(
                        Layers.from_sizes(CASES[name].sizes, CASES[name].num_actions).triple_mask
                    )
                )
                for name in pair
            ]
            rows.append(
                {
                    "layers": " to ".join(str(len(CASES[name].sizes) - 1) for name in pair),
                    "lanes": count,
                    "us": tuple(float(np.median(x)) for x in times),
                    "ratio": float(np.median(times[1]) / np.median(times[0])),
                    "ratio_of_smallest": min(times[1]) / min(times[0]),
                    "variables": variables[1] / variables[0],
                    "steps": tuple(
                        float(np.mean([m.iterations for m in x])) for x in (half, whole)
                    ),
                }
            )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--doublings", action="store_true", help="only what twice the layers cost")
    parser.add_argument("--only-osqp", action="store_true", help="leave out the slower solvers")
    add_quick(parser)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    cases, settings, twice = arguments.cases, {"rounds": arguments.rounds}, {}
    if arguments.quick:
        hurry()
        CASES.update({name: quickly(case) for name, case in CASES.items()})
        cases = [name for name in cases if CASES[name].peer_episodes]
        settings = {"rounds": 1, "cores": 1}
        twice = {"pairs": DOUBLINGS[:1], "lanes": (1,), **settings}
    if not arguments.doublings:
        print_table(cases, everything=not arguments.only_osqp, **settings)
    if arguments.doublings or set(arguments.cases) >= {name for pair in DOUBLINGS for name in pair}:
        print_doublings(**twice)


def print_table(names, **settings):
    """Every solver on every case."""
    columns = ["instance", "solver", "us per projection and core", "times faster than OSQP"]
    columns += ["residual", "iterations", "slowest lane", "compile s"]
    print("|".join(["", *columns, ""]) + "\n" + "|---" * len(columns) + "|")
    for name in names:
        for row in table(name, **settings):
            print(
                f"| {row['instance']} | {row['solver']} | {row['us']:.0f} | {row['ratio']:.1f} "
                f"| {row['residual']:.0e} | {row['iterations']:.1f} | {row['slowest_lane']:.1f} "
                f"| {row['compile_s']:.1f} |",
                flush=True,
            )


def print_doublings(**settings):
    """Twice the layers: plainly, and for twice the variables.

    The first and the last layer stay small, so that more than twice the variables have to be found.
    """
    columns = ["layers", "lanes", "us of CPU per projection", "ratio", "ratio of the smallest"]
    columns += ["variables", "ratio for twice the variables", "Newton steps"]
    print("\n" + "|".join(["", *columns, ""]) + "\n" + "|---" * len(columns) + "|")
    for row in doublings(**settings):
        print(
            f"| {row['layers']} | {row['lanes']} | {row['us'][0]:.0f} to {row['us'][1]:.0f} "
            f"| {row['ratio']:.2f} | {row['ratio_of_smallest']:.2f} | {row['variables']:.2f} times "
            f"| {2 * row['ratio'] / row['variables']:.2f} "
            f"| {row['steps'][0]:.2f} to {row['steps'][1]:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
