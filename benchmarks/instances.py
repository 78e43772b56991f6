"""Instances of the size people have: successor lists against dense arrays.

    python benchmarks/instances.py                everything
    python benchmarks/instances.py --only Taxi    one row, or the growth with S or K
    python benchmarks/instances.py --old FOLDER   dense arrays are played by the package in there
    python benchmarks/instances.py --quick        only to see that all of it works

One lane on one core, float64, residual 1e-9, PDGD-OPS with the paper's radii. "Dense" is the same
instance with unknown support. Every contestant has a process of its own, so that its peak memory is
its own. All of a row play the same episodes in turns, after `--before` others, and medians are
shown. Times are CPU time, which other work on the machine does not change much. A growth exponent
is the slope of a straight line through the logarithms.
"""

import argparse
import contextlib
import itertools
import os
import sys
import time
from typing import NamedTuple

import numpy as np
from quick import add_quick, hurry
from scaling import Worker, growth, serve

HORIZON = 100_000  # step sizes and radii are those of a run of this length
# The sparse random instances of the growth tables: before the clock they play a tenth.
SPARSE = {"num_layers": 10, "num_actions": 4}


class Row(NamedTuple):
    """An instance, who plays it, and what it may take at most."""

    text: str
    make: dict
    known: bool = True  # support: by the learner that this row is about
    dense: bool = True  # small enough to be played with dense arrays, too
    floors: dict | None = None
    solver: str = "newton"


class Floor(NamedTuple):
    """The largest number that passes, and the aim."""

    most: float
    aim: float | None = None


def gymnasium(env, horizon):
    return {"name": "gymnasium", "env": env, "horizon": horizon}


def random(size):
    return {"name": "random", "sizes": [1, *[size] * 9, 1], "num_actions": 4}


ROWS = {
    "CliffWalking": Row(
        "CliffWalking, horizon 20",
        gymnasium("CliffWalking-v1", 20),
        floors={"ratio": Floor(1 / 20)},
    ),
    "FrozenLake": Row(
        "FrozenLake 8x8, horizon 30",
        gymnasium("FrozenLake8x8-v1", 30),
        floors={"ratio": Floor(1 / 12, 1 / 30)},
    ),
    "Taxi": Row(
        "Taxi, horizon 10",
        gymnasium("Taxi-v4", 10),
        dense=False,
        floors={"ms": Floor(150, 30), "peak MiB": Floor(2048), "compile s": Floor(40)},
    ),
    "grid": Row(
        "grid 20 x 20, horizon 40",
        {"name": "grid", "rows": 20, "columns": 20, "hazard_density": 0.1, "horizon": 40},
        dense=False,
        floors={"ms": Floor(400, 100)},
    ),
    "random-64": Row("dense random S = 64, L = 10, A = 4", random(64), known=False),
    "random-100": Row(
        "dense random S = 100, L = 10, A = 4",
        random(100),
        known=False,
        floors={"ratio": Floor(1 / 2, 1 / 4)},
    ),
}
GROWTH = {
    "S": [{"num_states": S, "num_successors": 4, "x": S} for S in (64, 128, 256, 512)],
    "K": [{"num_states": 128, "num_successors": K, "x": K} for K in (2, 4, 8, 16)],
}
# Without the projection, which is nearly all there is to compile, but in one row.
QUICK = {
    "CliffWalking": {"make": gymnasium("FrozenLake-v1", 3)},
    "Taxi": {
        "make": {"name": "grid", "rows": 2, "columns": 2, "hazards": [], "horizon": 2},
        "solver": "none",
    },
    "random-100": {
        "make": {"name": "random", "sizes": [1, 2, 1], "num_actions": 2},
        "solver": "none",
    },
}
HURRY = {"num_layers": 3, "num_actions": 2, "solver": "none"}
QUICK_GROWTH = {
    "S": [{"num_states": S, "num_successors": 2, "x": S, **HURRY} for S in (3, 4)],
    "K": [{"num_states": 4, "num_successors": K, "x": K, **HURRY} for K in (1, 2)],
}


# -- one contestant, in a process of its own -----------------------------------------------------


def sparse(num_states, num_successors, num_layers, num_actions, seed=0):
    """A random CMDP where K states, drawn anew for each pair, can follow; the support is known."""
    from pdgd_jax import CMDP, LayeredMDP, Layers
    from pdgd_jax.processes import around

    rng = np.random.default_rng(seed)
    sizes = (1, *[num_states] * (num_layers - 1), 1)
    lists, chances = [], []
    for size, following in itertools.pairwise(sizes):
        K = min(num_successors, following)
        order = rng.random((size, num_actions, following)).argsort(-1)
        lists.append(order[..., :K])
        chances.append(rng.dirichlet(np.ones(K), (size, num_actions)))
    layers = Layers.from_successors(sizes, lists)
    mask = np.asarray(layers.action_mask)
    reward = np.where(mask, rng.random(mask.shape), 0)
    noise = np.where(mask, rng.random(mask.shape), 0)
    cost = (2 * reward + noise) / 3 - np.where(mask, 0.4, 0)  # what earns much is expensive
    mdp = LayeredMDP(layers, layers.pack(chances))
    return CMDP(mdp, around(reward, "bernoulli"), around(cost[None], "bernoulli"))


class Contestant:
    """One lane, compiled and with some episodes behind it, ready to be measured again and again."""

    def __init__(self, make, known, before, episodes, seconds, solver):
        import jax

        import pdgd_jax
        from pdgd_jax import make_learner
        from pdgd_jax.simulation import BatchProgram, Comparators, LaneInputs, stacked

        if not jax.config.values["jax_disable_most_optimizations"]:
            # What was compiled by an earlier process would take no time.
            jax.config.update("jax_enable_compilation_cache", False)
        support = {"support": "known"} if known else {}
        name = make.pop("name")
        cmdp = sparse(**make) if name == "sparse" else pdgd_jax.make(name, **make, **support)
        player = make_learner("pdgd-ops", cmdp, HORIZON, solver=solver)
        program = BatchProgram(jax.local_devices()[:1])
        lane = LaneInputs(cmdp, player.as_pytree(), Comparators.default(cmdp))
        what = program.place(stacked([jax.tree.map(np.asarray, lane)]))
        keys = program.place(jax.random.split(jax.random.key(0), 1))

        def play(carry, until):
            carry, _, _ = program.play(carry, what, np.array([[until]]))
            return jax.block_until_ready(carry)

        begin = time.process_time()
        first = program.begin(keys, what)
        play(first, 0)
        compile_seconds = time.process_time() - begin
        self.play = play
        self.carry = play(first, before)
        self.until, self.episodes = before + episodes, episodes
        begin = time.perf_counter()
        last = play(self.carry, self.until)
        self.repeats = max(1, round(seconds / (time.perf_counter() - begin)))
        layers = cmdp.layers
        self.found = {
            "variables": _number_of_variables(layers),
            "triples": int(layers.num_triples),
            "compile_seconds": compile_seconds,
            "steps": (_steps(last) - _steps(self.carry)) / episodes,
            "unconverged": int(last.metrics.unconverged[0]),
            "residual": float(last.metrics.residual[0]),
        }

    def measure(self):
        """Episodes per second."""
        begin = time.perf_counter()
        for _ in range(self.repeats):
            self.play(self.carry, self.until)
        return self.repeats * self.episodes / (time.perf_counter() - begin)

    def facts(self):
        return self.found


def _number_of_variables(layers):
    """Of an occupancy if every state of the next layer can follow a pair."""
    pairs, states = np.asarray(layers.action_mask), np.asarray(layers.state_mask)
    return int((pairs.sum((1, 2)) * states[1:].sum(-1)).sum())


def _steps(carry):
    """The Newton steps so far."""
    from pdgd_jax.simulation import sums_of

    return float(sums_of(carry.metrics)["iterations"].value[0])


# -- tables --------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """What all contestants have in common."""

    core: int
    before: int
    dense_before: int
    episodes: int
    rounds: int
    seconds: float
    old: str | None

    def worker(self, make, known, before, package=None, solver="newton"):
        """A process that has compiled and played what comes before the clock."""
        worker = Worker(
            script=__file__,
            package=package,
            core=self.core,
            make=make,
            known=known,
            before=before,
            episodes=self.episodes,
            seconds=self.seconds,
            solver=solver,
        )
        worker.measure()  # returns when it is ready: two that compile at once disturb each other
        return worker


def in_turns(workers, rounds):
    """The answers of each worker, and their milliseconds of CPU time of an episode, `[rounds]`."""
    rows = [[worker.measure() for worker in workers] for _ in range(rounds)]
    answers = list(zip(*rows, strict=True))
    return [each[-1] for each in answers], [
        np.array([1e3 * answer["busy"] / answer["speed"] for answer in each]) for each in answers
    ]


def print_header():
    columns = (
        "instance | contestant | variables held | compile s | CPU ms an episode | Newton steps an "
        "episode | unconverged | worst residual | peak MiB"
    )
    print(f"| {columns} |\n|{'---|' * 9}", flush=True)


def print_contestant(text, contestant, found, times):
    print(
        f"| {text} | {contestant} | {found['triples']:,} | {found['compile_seconds']:.1f} | "
        f"{np.median(times):.2f} | {found['steps']:.2f} | {found['unconverged']} | "
        f"{found['residual']:.1e} | {found['peak']:,.0f} |",
        flush=True,
    )


def contestants(row, settings):
    """The one that the row is about, and its peer if there is one: (name, arguments)."""
    dense = {"known": False, "before": settings.dense_before}
    if row.known:
        yield "support known", {"known": True, "before": settings.before}
    else:
        yield "dense", dense
    if row.dense and (row.known or settings.old is not None):
        name = "dense" if settings.old is None else "dense, --old"
        yield name, dense | {"package": settings.old}


def race(row, settings):
    """Print a row; returns how many projections did not converge."""
    names, arguments = zip(*contestants(row, settings), strict=True)
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(settings.worker(row.make, solver=row.solver, **each))
            for each in arguments
        ]
        answers, times = in_turns(workers, settings.rounds)
    for name, found, each in zip(names, answers, times, strict=True):
        print_contestant(row.text, name, found, each)
    ours = answers[0]
    if not row.dense:
        empty = " - |" * 6
        print(f"| {row.text} | dense | {ours['variables']:,}: too many to be played |{empty}")
    measured = {
        "ms": float(np.median(times[0])),
        "peak MiB": ours["peak"],
        "compile s": ours["compile_seconds"],
    }
    if len(times) > 1:
        ratios = times[0] / times[1]
        measured["ratio"] = float(np.median(ratios))
        print(
            f"{row.text}: 1/{1 / measured['ratio']:.1f} of the time of {names[1]} (rounds from "
            f"1/{1 / ratios.max():.1f} to 1/{1 / ratios.min():.1f})"
        )
    print_verdicts(row, measured)
    return sum(found["unconverged"] for found in answers)


def print_verdicts(row, measured):
    for name, floor in (row.floors or {}).items():
        if name not in measured:
            print(f"{row.text}: {name} at most {_written(name, floor.most)}: needs --old")
            continue
        verdict = "holds" if measured[name] <= floor.most else "DOES NOT HOLD"
        aim = ""
        if floor.aim is not None:
            reached = "reached" if measured[name] <= floor.aim else "not reached"
            aim = f"; the aim, {_written(name, floor.aim)}, is {reached}"
        number = _written(name, measured[name])
        most = _written(name, floor.most)
        print(f"{row.text}: {name} {number}, at most {most}: {verdict}{aim}", flush=True)


def _written(name, number):
    return f"1/{1 / number:.3g}" if name == "ratio" else f"{number:,.4g}"


def growth_table(name, cases, settings):
    """Print a table and its exponents; returns how many projections did not converge."""
    before, x, found, times = settings.before // 10, [], [], []
    for case in cases:
        make = {"name": "sparse", **SPARSE, **case}
        x.append(make.pop("x"))
        solver = make.pop("solver", "newton")
        with settings.worker(make, True, before, solver=solver) as worker:
            answers, each = in_turns([worker], settings.rounds)
        text = f"sparse random S = {make['num_states']}, K = {make['num_successors']}"
        print_contestant(text, "support known", answers[0], each[0])
        found.append(answers[0])
        times.append(float(np.median(each[0])))
    steps = np.array([each["steps"] for each in found])
    peaks = [each["peak"] for each in found]
    print(
        f"after {before:,} episodes: CPU time of an episode ~ {name}^{growth(x, times):.2f}, of a "
        f"Newton step ~ {name}^{growth(x, times / steps):.2f}; peak memory ~ "
        f"{name}^{growth(x, peaks):.2f}",
        flush=True,
    )
    return sum(each["unconverged"] for each in found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=[*ROWS, *GROWTH], help="one row, or one growth")
    parser.add_argument("--before", type=int, default=2000, help="episodes not timed (2000)")
    parser.add_argument("--dense-before", type=int, help="of dense arrays, which are slow")
    parser.add_argument("--episodes", type=int, default=50, help="that are timed (50)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, help="to run on; by default the first allowed")
    parser.add_argument("--old", metavar="FOLDER", help="an earlier version of the project")
    add_quick(parser)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(Contestant)
    if options.old is not None and not os.path.isdir(f"{options.old}/pdgd_jax"):
        parser.error(f"--old {options.old}: there is no folder pdgd_jax in it.")
    core = min(os.sched_getaffinity(0)) if options.core is None else options.core
    dense_before = options.before if options.dense_before is None else options.dense_before
    settings = Settings(
        core, options.before, dense_before, options.episodes, options.rounds, 1.0, options.old
    )
    rows, tables = ROWS, GROWTH
    if options.quick:
        hurry()
        rows = {name: ROWS[name]._replace(**changes) for name, changes in QUICK.items()}
        tables = QUICK_GROWTH
        settings = settings._replace(before=20, dense_before=20, episodes=2, rounds=1, seconds=0)
    names = [options.only] if options.only else [*rows, *tables]
    if unknown := {*names} - {*rows, *tables}:
        parser.error(f"--quick has no row {unknown.pop()}; it has {', '.join([*rows, *tables])}.")
    begin = time.perf_counter()
    if dense_before != options.before:
        print(
            f"dense arrays play {dense_before:,} episodes before the clock, not {options.before:,}"
        )
    print_header()
    unconverged = 0
    for name in names:
        if name in rows:
            unconverged += race(rows[name], settings)
        else:
            unconverged += growth_table(name, tables[name], settings)
    print(
        f"\n{unconverged} projections did not converge; {time.perf_counter() - begin:.0f} s in all"
    )
    return int(unconverged > 0)


if __name__ == "__main__":
    sys.exit(main())
