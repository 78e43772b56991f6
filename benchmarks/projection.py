"""The projection against every solver a user would pick instead: `python benchmarks/projection.py`.

Replays the projections of real learning runs, so that warm starts are real, and prints one table:
microseconds per projection and core, the final residual, iterations, and the ratio to OSQP (its C
core, warm-started, factorised once per epoch, tolerance 1e-6). Every solver runs in one process per
core, all cores at the same time, each on lanes of its own. The solvers take turns, several rounds,
and medians are shown, so that a machine that is busy for a while slows all of them. Compile time is
stated apart. A second table says what twice the layers cost (`--doublings`: it alone), and a third
compares the entropic projection (`benchmarks/entropic.py`: it alone).

Eight minutes on two cores; `--quick` only shows that all of it works. What was tried to make it
fast stands in `docs/developer/projection_experiments.md`.
"""

import argparse
import contextlib
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from quick import add_quick, hurry
from workers import Workers

from pdgd_jax import ConfidenceSet, Layers, cold_start, project, project_entropic
from pdgd_jax.projection import EntropicStart
from pdgd_jax.projection._xla import unfenced


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


def record(
    case: Case, num_lanes: int, seed: int = 0, horizon: int = 10_000, entropic: bool = False
) -> Sequence:
    """Follow the paper's algorithm boxes in NumPy, on a random CMDP for each lane.

    Tuned rates, Bernoulli rewards and constraints, m = 1, radii scaled by 0.3. If `entropic`, the
    primal step is that of UCPD, and targets are logarithms.
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
    uniform_occupancy = q
    onto = project_entropic if entropic else project
    cold = EntropicStart(jnp.zeros((L, S)), jnp.zeros(0)) if entropic else cold_start(layers)
    warm = jax.tree.map(lambda x: jnp.stack([x] * B), cold)
    solve = jax.jit(jax.vmap(lambda t, c, r, w: onto(layers, t, ConfidenceSet(c, r), warm_start=w)))
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
        if entropic:
            mixed = (1 - 1 / T) * q + uniform_occupancy / T
            step_taken = loss[..., None] / np.sqrt(T)
            target = np.where(valid, np.log(np.where(valid, mixed, 1)) - step_taken, 0)
        else:
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
        self,
        case,
        sequence,
        lanes,
        core,
        solver="newton",
        dtype="float64",
        episodes=None,
        fenced=True,
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
        with contextlib.nullcontext() if fenced else unfenced():
            if not fenced:
                jax.clear_caches()  # or parts that were traced with fences would be used
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


def build(core, kind, settings, case, sequence):
    """A contestant of one process."""
    return KINDS[kind](case, sequence, core=core, **settings)


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
    # Both settings of the attribute that JAX does not promise (pdgd_jax/projection/_xla.py).
    rows.append(
        (f"newton without fences, {case.lanes[-1]} lanes", "ours",
         {"lanes": case.lanes[-1], "fenced": False})
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


def table(name, rounds=3, everything=True, **cores):
    """Measure one case; returns a row for each contestant."""
    case = CASES[name]
    workers = Workers(build, case, record(case, max(case.lanes[-1], 2)), **cores)
    rows = contestants(case, everything)
    measured = {label: [] for label, _, _ in rows}
    for turn in range(rounds):
        for row in rows:
            slow = row[1] != "osqp" and "newton" not in row[0]
            if slow and turn > 0:
                continue
            measured[row[0]] += workers.measure(row[1], **row[2])
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
    workers = {name: Workers(build, CASES[name], sequences[name], **cores) for name in names}
    measured = {(name, count): [] for name in names for count in lanes}
    for _ in range(rounds):
        for name, count in measured:
            measured[name, count] += workers[name].measure("ours", lanes=count)
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
    everything = set(arguments.cases) >= {name for pair in DOUBLINGS for name in pair}
    if arguments.doublings or everything:
        print_doublings(**twice)
    if everything and not arguments.doublings:
        import entropic  # it imports this file

        entropic.CASES.update(CASES)  # as `projection`, which has those of the file
        names = entropic.NAMES[:1] if arguments.quick else entropic.NAMES
        entropic.print_table(names, **settings)


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
