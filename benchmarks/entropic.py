"""The entropic projection against what a user would pick instead: `python benchmarks/entropic.py`.

Replays the projections of real learning runs, with the steps of UCPD, and prints one table:
microseconds of CPU per projection, which tell less than those of the clock about what else the
machine does, how far the occupancy is from the projection, iterations, CPU seconds to compile, and
by how much `project_entropic` with the most lanes is faster. The peers are Clarabel, alone and
behind CVXPY, SCS and ECOS (`pip install ecos`) behind CVXPY, and the method of the papers, a
general solver on the dual: L-BFGS-B of SciPy over the potentials, with cones in closed form and
from the last potentials. The Euclidean projection replays the targets of PDGD-OPS beside it.

One process per core, all at the same time; contestants take turns, several rounds, and medians are
shown. `python benchmarks/projection.py` ends with this table, `benchmarks/chain.py` projects a
million times in a row.
"""

import argparse
import importlib.util
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from projection import CASES, Case, program_of, quickly, record
from quick import add_quick, hurry
from workers import Workers

from pdgd_jax import ConfidenceSet, Layers, cold_start, project, project_entropic
from pdgd_jax.projection import EntropicStart

NAMES = ("small", "large")


class Measurement(NamedTuple):
    """What one process measured."""

    microseconds: float
    distance: float  # the largest difference from the occupancy at 1e-12
    iterations: float
    compile_seconds: float


# -- ours ----------------------------------------------------------------------------------------


def replay(layers: Layers, dtype: str, *, euclidean: bool = False, keep: bool = False):
    """All episodes of a lane, each from the warm start of the one before."""
    L, S, _ = layers.shape
    onto = project if euclidean else project_entropic
    if euclidean:
        cold = cold_start(layers, dtype=dtype)
    else:
        cold = EntropicStart(jnp.zeros((L, S), dtype), jnp.zeros(0, dtype))

    def lane(*arrays):
        def step(warm, episode):
            target, center, radius = episode
            result = onto(layers, target, ConfidenceSet(center, radius), warm_start=warm)
            # The sum stands for what a learner does with the occupancy.
            kept = result.occupancy if keep else result.occupancy.sum()
            return result.warm_start, (result.info, kept)

        return jax.lax.scan(step, cold, arrays)[1]

    return jax.jit(jax.vmap(lane, 1, 1))


class Ours:
    """`project_entropic` under `vmap` and `scan`, compiled once; or `project`, for comparison."""

    def __init__(self, case, sequences, core, lanes, dtype="float64", euclidean=False):
        sequence = sequences["euclidean" if euclidean else "entropic"]
        order = np.roll(np.arange(sequence.target.shape[1]), -core * lanes)[:lanes]
        self.data = [jnp.asarray(array[: case.episodes, order], dtype) for array in sequence]
        layers = Layers.from_sizes(case.sizes, case.num_actions)
        begin = time.process_time()
        self.run = replay(layers, dtype, euclidean=euclidean).lower(*self.data).compile()
        self.compile_seconds = time.process_time() - begin
        self.distance = np.nan
        if not euclidean:
            q = replay(layers, dtype, keep=True)(*self.data)[1]
            self.distance = float(np.abs(np.asarray(q) - sequences["solution"][:, order]).max())
        jax.block_until_ready(self.run(*self.data))
        self.projections = case.episodes * lanes

    def measure(self):
        begin, turns, elapsed = time.process_time(), 0, 0.0
        while elapsed < 0.2:
            info, _ = jax.block_until_ready(self.run(*self.data))
            turns, elapsed = turns + 1, time.process_time() - begin
        assert np.all(info.converged)
        return Measurement(
            elapsed / turns / self.projections * 1e6,
            self.distance,
            float(np.asarray(info.iterations)[1:].mean()),  # the first is a cold start
            self.compile_seconds,
        )


# -- the others ----------------------------------------------------------------------------------


class Peer:
    """A solver called episode by episode; subclasses say how."""

    def __init__(self, case, sequences, core, episodes):
        self.layers = Layers.from_sizes(case.sizes, case.num_actions)
        self.sequence, self.solution = sequences["entropic"], sequences["solution"]
        self.lane, self.episodes = core, episodes

    def measure(self):
        spent, distances, iterations, previous, program = [], [], [], None, None
        for t in range(self.episodes):
            target, center, radius = (array[t, self.lane] for array in self.sequence)
            fresh = previous is None or center.tobytes() + radius.tobytes() != previous
            if fresh:
                previous = center.tobytes() + radius.tobytes()
                program = program_of(self.layers, center, radius)
                self.prepare(program, center, radius)
            begin = time.process_time()
            q, steps = self.solve(program, target)
            if t > 0:
                spent.append(time.process_time() - begin)
                iterations.append(steps)
                distances.append(np.abs(q - self.solution[t, self.lane][program.valid]).max())
        return Measurement(np.mean(spent) * 1e6, max(distances), float(np.mean(iterations)), 0.0)

    def prepare(self, program, center, radius):
        """A new set of transitions; not timed."""


class Clarabel(Peer):
    """Cold, 1e-11; unknowns (q, d, t) with (-t, q, 1) in the exponential cone."""

    def prepare(self, program, center, radius):
        import scipy.sparse as sp

        n = int(program.valid.sum())
        start, width = program.equalities.shape[1], program.equalities.shape[1] + n
        rows = [
            sp.hstack([x, sp.csc_matrix((x.shape[0], n))])
            for x in (program.equalities, program.inequalities)
        ]
        cone = sp.lil_matrix((3 * n, width))
        cone[3 * np.arange(n), start + np.arange(n)] = 1
        cone[3 * np.arange(n) + 1, np.arange(n)] = -1
        ones = np.zeros(3 * n)
        ones[2::3] = 1
        self.matrix = sp.vstack([*rows, cone]).tocsc()
        count = program.inequalities.shape[0]
        self.right = np.r_[program.right, np.zeros(count), ones]
        self.quadratic = sp.csc_matrix((width, width))

    def solve(self, program, target):
        import clarabel

        n = int(program.valid.sum())
        linear = np.zeros(self.matrix.shape[1])
        linear[:n], linear[-n:] = -target[program.valid], 1
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
        cones = [
            clarabel.ZeroConeT(len(program.right)),
            clarabel.NonnegativeConeT(program.inequalities.shape[0]),
            *[clarabel.ExponentialConeT()] * n,
        ]
        solver = clarabel.DefaultSolver(
            self.quadratic, linear, self.matrix, self.right, cones, settings
        )
        solution = solver.solve()
        return np.array(solution.x[:n]), solution.iterations


class Cvxpy(Peer):
    """CVXPY with a parameter for the target, and a conic solver behind it."""

    def __init__(self, case, sequences, core, episodes, solver="CLARABEL"):
        super().__init__(case, sequences, core, episodes)
        # SCS with its own tolerance would take 10,000 iterations and give up.
        self.settings = {"solver": solver, **({"eps": 1e-5} if solver == "SCS" else {})}

    def prepare(self, program, center, radius):
        import cvxpy as cp

        n = int(program.valid.sum())
        self.unknowns, self.target = cp.Variable(2 * n), cp.Parameter(n)
        q = self.unknowns[:n]
        flow = program.equalities @ self.unknowns == program.right
        divergence = -cp.sum(cp.entr(q)) - self.target @ q
        constraints = [flow, program.inequalities @ self.unknowns <= 0]
        self.problem = cp.Problem(cp.Minimize(divergence), constraints)
        self.target.value = np.zeros(n)
        self.problem.get_problem_data(self.settings["solver"])  # compiles, once for each set

    def solve(self, program, target):
        self.target.value = target[program.valid]
        self.problem.solve(**self.settings)
        found = self.unknowns.value[: self.target.size]
        return found, self.problem.solver_stats.num_iters or 0


class Dual(Peer):
    """L-BFGS-B on the potentials, from the last ones, with the cones in closed form."""

    potential = None

    def prepare(self, program, center, radius):
        self.valid = program.valid
        pairs = np.asarray(self.layers.action_mask)
        self.place = np.nonzero(pairs)
        self.entries = program.valid[self.place]
        self.center, self.half_radius = center[self.place], np.minimum(radius[self.place] / 2, 1)

    def value(self, y, log_target):
        """The dual and its gradient, by A.2 of the derivation: levels at every breakpoint."""
        k, x, _ = self.place
        p, h = self.center, self.half_radius[:, None]
        ahead = np.vstack([y[1:], np.zeros_like(y[:1])])[k]
        theta = np.where(self.entries, log_target + y[k, x][:, None] - ahead, -1e3)
        largest = theta.max(1, keepdims=True)
        w = np.exp(theta - largest) * self.entries
        total = w.sum(1, keepdims=True)
        is_open = np.maximum(w / total - p, 0).sum(1, keepdims=True) <= h
        with np.errstate(divide="ignore", invalid="ignore"):
            difference = (p / w)[:, :, None] * w[:, None] - p[:, None]
        up = (np.maximum(difference, 0).sum(2) < h) & self.entries
        down = (np.maximum(-difference, 0).sum(2) < h) & ~up & self.entries
        shares, log_mass = np.where(up | down, 0, p), np.zeros(len(p))
        for block, mass in ((up, (p * up).sum(1) + h[:, 0]), (down, (p * down).sum(1) - h[:, 0])):
            of_block = (w * block).sum(1)
            level = mass / np.where(of_block > 0, of_block, 1)
            shares = np.where(block, w * level[:, None], shares)
        shares = np.where(is_open, w / total, shares)
        positive = shares > 0
        terms = np.where(positive, np.log(np.where(positive, shares, 1)) - theta, 0)
        log_mass = -(shares * terms).sum(1)
        q = np.exp(log_mass)[:, None] * shares
        gradient = np.zeros_like(y)
        np.add.at(gradient, (k, x), q.sum(1))
        np.subtract.at(gradient[1:], k[k + 1 < len(y)], q[k + 1 < len(y)])
        gradient[0, 0] -= 1
        return q.sum() - y[0, 0], gradient, q

    def solve(self, program, target):
        import scipy.optimize

        log_target, shape = target[self.place], self.layers.shape[:2]
        if self.potential is None:
            self.potential = np.zeros(shape)

        def dual(flat):
            value, gradient, _ = self.value(flat.reshape(shape), log_target)
            return value, gradient.reshape(-1)

        found = scipy.optimize.minimize(
            dual, self.potential.reshape(-1), jac=True, method="L-BFGS-B",
            options={"ftol": 1e-16, "gtol": 1e-9, "maxiter": 2000, "maxcor": 20},
        )  # fmt: skip
        self.potential = found.x.reshape(shape)
        q = self.value(self.potential, log_target)[2]
        return q[self.entries], found.nit


# -- the run -------------------------------------------------------------------------------------

KINDS = {"ours": Ours, "clarabel": Clarabel, "cvxpy": Cvxpy, "dual": Dual}
LBFGS, OURS = "L-BFGS-B on the dual, warm", "entropic, {} lanes"


def contestants(case):
    """(label, kind, settings) of every row."""
    most = case.lanes[-1]
    rows = [(OURS.format(lanes), "ours", {"lanes": lanes}) for lanes in case.lanes]
    rows.append((f"entropic float32, {most} lanes", "ours", {"lanes": most, "dtype": "float32"}))
    rows += [
        (f"Euclidean (newton), {lanes} lanes", "ours", {"lanes": lanes, "euclidean": True})
        for lanes in (1, most)
    ]
    few = {"episodes": case.slow_peer_episodes}
    rows += [
        (LBFGS, "dual", {"episodes": case.peer_episodes}),
        ("Clarabel, cold, 1e-11", "clarabel", few),
        ("CVXPY + Clarabel", "cvxpy", few),
        ("CVXPY + SCS, 1e-5", "cvxpy", {**few, "solver": "SCS"}),
    ]
    if importlib.util.find_spec("ecos"):
        rows.append(("CVXPY + ECOS", "cvxpy", {**few, "solver": "ECOS"}))
    return rows


def sequences_of(case):
    """The recorded projections, and the solutions of the entropic ones at 1e-12."""
    lanes = max(case.lanes[-1], 2)
    entropic = record(case, lanes, entropic=True)
    layers = Layers.from_sizes(case.sizes, case.num_actions)

    def exact(target, center, radius):
        set_ = ConfidenceSet(center, radius)
        result = project_entropic(layers, target, set_, tolerance=1e-12)
        return result.occupancy

    solution = jax.jit(jax.vmap(jax.vmap(exact)))(*entropic)
    return {
        "entropic": entropic,
        "euclidean": record(case, lanes),
        "solution": np.asarray(solution),
    }


def build(core, kind, settings, case, sequences):
    """A contestant of one process."""
    return KINDS[kind](case, sequences, core, **settings)


def table(case: Case, rounds=3, **cores):
    """Measure one case; returns a row for each contestant."""
    workers, rows = Workers(build, case, sequences_of(case), **cores), contestants(case)
    measured = {label: [] for label, _, _ in rows}
    for turn in range(rounds):
        for row in rows:
            if turn == 0 or row[1] in ("ours", "dual"):
                measured[row[0]] += workers.measure(row[1], **row[2])
    workers.stop()
    ours = np.median([m.microseconds for m in measured[OURS.format(case.lanes[-1])]])
    return [
        (
            label,
            float(np.median([m.microseconds for m in found])),
            float(np.median([m.microseconds for m in found]) / ours),
            max(m.distance for m in found),
            float(np.mean([m.iterations for m in found])),
            max(m.compile_seconds for m in found),
        )
        for label, found in measured.items()
    ]


def print_table(names, **settings):
    """Every solver on every case."""
    columns = ["instance", "solver", "us of CPU per projection", "times that of ours"]
    columns += ["distance", "iterations", "compile s"]
    print("|".join(["", *columns, ""]) + "\n" + "|---" * len(columns) + "|")
    for name in names:
        for label, us, ratio, distance, iterations, compiling in table(CASES[name], **settings):
            print(
                f"| {name} | {label} | {us:.4g} | {ratio:.3g} | {distance:.0e} | {iterations:.1f} "
                f"| {compiling:.1f} |",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=3)
    add_quick(parser)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    settings = {"rounds": arguments.rounds}
    if arguments.quick:
        hurry()
        CASES.update({name: quickly(case) for name, case in CASES.items()})
        settings = {"rounds": 1, "cores": 1}
        arguments.cases = arguments.cases[:1]
    print_table(arguments.cases, **settings)


if __name__ == "__main__":
    main()
