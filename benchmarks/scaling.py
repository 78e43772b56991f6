"""How throughput and memory grow: with lanes, devices, S, A, L, m and T.

    python benchmarks/scaling.py             everything, six minutes on two quiet cores
    python benchmarks/scaling.py --only S    one table: lanes, devices, S, A, L, m or T
    python benchmarks/scaling.py --fit       the constants of `pdgd_jax/sweeps/_costs.py`, to be
                                             copied; 20 minutes on a quiet core
    python benchmarks/scaling.py --quick     only to see that all of it works

Every case has a process of its own, so that its peak memory is its own. PDGD-OPS plays `random`
instances with confidence_scale 0.1; programs are compiled and warmed up before the clock starts,
and lanes start from a run that is 300 episodes old. A growth exponent is the slope of a straight
line through the logarithms: CPU time per episode ~ x^exponent. What was found about cores and
widths stands in `docs/developer/scaling_experiments.md`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
from machines import rows_of
from quick import add_quick, hurry

BASE = {"sizes": [1, 4, 4, 4, 1], "num_actions": 3, "num_constraints": 1}
BEFORE = 300
CASES = {
    "lanes": [{"lanes": lanes} for lanes in (1, 8, 64, 512, 4096)],
    "S": [{"sizes": [1, S, S, 1], "x": S} for S in (3, 6, 12, 24)],
    "A": [{"num_actions": A, "x": A} for A in (2, 4, 8, 16)],
    "L": [{"sizes": [1, *[4] * (L - 1), 1], "x": L} for L in (2, 4, 8, 16)],
    "m": [{"num_constraints": m, "x": m} for m in (1, 4, 16, 64)],
    "T": [{"T": T} for T in (10**4, 10**5, 10**6)],
}
# Without the projection, which is nearly all there is to compile.
HURRY = {"solver": "none", "seconds": 0.1}
QUICK = {
    "lanes": [{"lanes": 2, **HURRY}],
    "S": [{"sizes": [1, S, 1], "x": S, **HURRY} for S in (2, 3)],
    "A": [{"num_actions": A, "x": A, **HURRY} for A in (2, 3)],
    "L": [{"sizes": [1, *[2] * (L - 1), 1], "x": L, **HURRY} for L in (2, 3)],
    "m": [{"num_constraints": m, "x": m, **HURRY} for m in (1, 2)],
    "T": [{"T": T, "solver": "none"} for T in (50, 100)],
}
# Of a learner that projects, and of one that does not; `before` episodes are played first. The last
# two have matrices that leave the first cache.
FIT = {
    "NEWTON": [
        {"lanes": 1},
        {"lanes": 16},
        {"lanes": 64},
        {"num_constraints": 16},
        {"sizes": [1, 10, 10, 10, 10, 1], "num_actions": 5, "lanes": 1},
        {"sizes": [1, 10, 10, 10, 10, 1], "num_actions": 5, "lanes": 16},
        {"sizes": [1, *[32] * 4, 1], "num_actions": 4, "lanes": 1, "before": 100},
        {"sizes": [1, *[32] * 19, 1], "num_actions": 4, "lanes": 1, "before": 50},
        {"sizes": [1, *[64] * 9, 1], "num_actions": 4, "lanes": 1, "before": 30},
        {"sizes": [1, *[100] * 3, 1], "num_actions": 4, "lanes": 1, "before": 20},
        {"sizes": [1, *[100] * 9, 1], "num_actions": 4, "lanes": 1, "before": 10},
    ],
    "FIXED": [
        {"learner": "uniform", "lanes": 1},
        {"learner": "uniform", "lanes": 16},
        {"learner": "uniform", "num_constraints": 64},
        {"learner": "uniform", "sizes": [1, *[32] * 4, 1], "num_actions": 4, "lanes": 4},
        {"learner": "uniform", "sizes": [1, *[100] * 9, 1], "num_actions": 4, "lanes": 1},
    ],
}
QUICK_FIT = {"FIXED": [{"learner": "uniform", "lanes": w, "seconds": 0.1} for w in (1, 2)]}


def growth(x, times):
    """The exponent of the straight line through the logarithms."""
    return float(np.polyfit(np.log(x), np.log(times), 1)[0])


# -- one case, in a process of its own -----------------------------------------------------------


class Case:
    """Blocks of lanes on devices, compiled and warmed up, ready to be measured again and again."""

    def __init__(
        self,
        lanes=16,
        width=None,
        devices=None,
        learner="pdgd-ops",
        solver="newton",
        seconds=1.5,
        before=BEFORE,
        **options,
    ):
        import jax

        from pdgd_jax import make, make_learner
        from pdgd_jax.simulation import (
            BatchProgram,
            Comparators,
            LaneInputs,
            local_devices,
            stacked,
        )
        from pdgd_jax.sweeps._plan import width_of

        options = {key: options.get(key, value) for key, value in BASE.items()}
        cmdp = make("random", **options)
        player = make_learner(learner, cmdp, 10**5, confidence_scale=0.1, solver=solver)
        self.shape, self.num_constraints = cmdp.layers.shape, cmdp.num_constraints
        self.before = before
        self.width = width or width_of(lanes, bytes_per_lane=1)
        self.lanes = lanes
        blocks = -(-lanes // self.width)
        program = BatchProgram(local_devices(devices)[:blocks])
        at_once = program.blocks * self.width
        lane = jax.tree.map(
            np.asarray, LaneInputs(cmdp, player.as_pytree(), Comparators.default(cmdp))
        )
        what = program.place(stacked([lane] * at_once))
        self.rounds = -(-blocks // program.blocks)
        keys = jax.random.split(jax.random.key(0), self.rounds * at_once)
        self.keys = [
            program.place(keys[i * at_once : (i + 1) * at_once]) for i in range(self.rounds)
        ]

        def play(carry, until):
            carry, _, _ = program.play(carry, what, np.full((program.blocks, 1), until))
            return jax.block_until_ready(carry)

        self.play = play
        first = program.begin(self.keys[0], what)
        begin = time.process_time()  # on one core the same as the clock's, if nobody disturbs
        self.play(first, 0)
        self.compile_seconds = time.process_time() - begin
        self.carry = self.play(first, before)
        some = min(20, before)
        begin = time.perf_counter()
        self.play(self.carry, before + some)
        each = (time.perf_counter() - begin) / some * self.rounds
        self.episodes = max(some, round(seconds / each))

    def measure(self):
        """Episodes per second of all lanes together."""
        begin = time.perf_counter()
        for keys in self.keys:
            self.play(self.carry._replace(key=keys), self.before + self.episodes)
        return self.lanes * self.episodes / (time.perf_counter() - begin)

    def facts(self):
        """What does not change between measurements."""
        return {
            "compile_seconds": self.compile_seconds,
            "width": self.width,
            "shape": self.shape,
            "num_constraints": self.num_constraints,
        }


class LongRun(Case):
    """A whole sweep of T episodes, with its files."""

    def __init__(self, T, solver="newton"):
        self.T, self.solver, self.compile_seconds, self.width = T, solver, 0.0, 1
        self.shape, self.num_constraints = (2, 2, 2), 1

    def measure(self):
        from pdgd_jax import sweep

        reports = []
        configuration = {
            "instance": [{"make": "random", "sizes": [1, 2, 1], "num_actions": 2}],
            "seeds": 2,
            "checkpoints": 50,
            "settings": {"horizon": self.T, "confidence_scale": 0.1},
            "learners": {"solver": self.solver},
        }
        with tempfile.TemporaryDirectory() as folder:
            sweep(configuration, out=f"{folder}/sweep", width=1, on_progress=reports.append)
        return reports[-1].speed


def case_of(x=None, **options):
    """A case of the tables."""
    return LongRun(**options) if "T" in options else Case(**options)


def serve(build):
    """Build the case that the first line describes; measure once for every further line."""
    options = json.loads(sys.stdin.readline())
    if (core := options.pop("core", None)) is not None:
        os.sched_setaffinity(0, {core})
    import jax

    from pdgd_jax.simulation import use_every_core

    jax.config.update("jax_enable_x64", True)
    use_every_core()
    if options.get("solver") == "none":
        from episodes import NO_PROJECTION

        from pdgd_jax import register_solver

        register_solver("none", NO_PROJECTION)
    case = build(**options)
    for _ in sys.stdin:
        cpu = time.process_time()
        begin = time.perf_counter()
        speed = case.measure()
        busy = (time.process_time() - cpu) / (time.perf_counter() - begin)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        # busy: cores, on average
        print(json.dumps({"speed": speed, "busy": busy, "peak": peak} | case.facts()), flush=True)


class Worker:
    """A process with one case; `measure` may be called again and again.

    Args:
      script: the benchmark whose `--serve` builds the case.
      package: the folder of another version of the project, whose package plays; None for this one.
      options: what describes the case.
    """

    def __init__(self, script=__file__, package=None, **options):
        path = {} if package is None else {"PYTHONPATH": package}
        self.process = subprocess.Popen(
            [sys.executable, script, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | path,
        )
        print(json.dumps(options), file=self.process.stdin, flush=True)

    def measure(self):
        print(file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process of this case died")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def measured(rounds=3, **options):
    """A case in a process of its own: medians of its speed and of the CPU time of an episode.

    Other work on the machine does not change the latter, in microseconds. Memory is in MiB.
    """
    with Worker(**options) as worker:
        answers = [worker.measure() for _ in range(1 if "T" in options else rounds)]
    speed = float(np.median([answer["speed"] for answer in answers]))
    each = float(np.median([answer["busy"] / answer["speed"] for answer in answers]))
    return answers[-1] | {"speed": speed, "each": 1e6 * each}


# -- tables --------------------------------------------------------------------------------------


def lanes_table(cases):
    print(
        f"\nlanes ({os.cpu_count()} devices)   at once  episodes/s   CPU us per episode   peak MiB"
    )
    for case in cases:
        found = measured(**case)
        print(
            f"{case['lanes']:5,}               {found['width']:6} {found['speed']:12,.0f} "
            f"{found['each']:16.1f} {found['peak']:14,.0f}",
            flush=True,
        )


def devices_table(lanes, rounds=5, **options):
    """One device that is pinned to one core, against one for each core; in turns."""
    options["lanes"] = lanes
    with Worker(core=0, **options) as one, Worker(**options) as all_:
        answers = [(one.measure(), all_.measure()) for _ in range(rounds + 1)][1:]
    speeds = np.array([[answer["speed"] for answer in pair] for pair in answers])
    busy = np.array([[answer["busy"] for answer in pair] for pair in answers])
    ratios = speeds[:, 1] / speeds[:, 0]
    count = os.cpu_count()
    print(f"\ndevices ({lanes} lanes)   episodes/s   cores busy   episodes per CPU second")
    for name, column in (("1, pinned to a core", 0), (f"{count}", 1)):
        speed, used = np.median(speeds[:, column]), np.median(busy[:, column])
        efficiency = np.median(speeds[:, column] / busy[:, column])
        print(f"{name:20} {speed:14,.0f} {used:12.2f} {efficiency:18,.0f}")
    efficiency = speeds / busy
    alone = count * np.median(efficiency[:, 1]) / np.median(efficiency[:, 0])
    print(
        f"ratio {np.median(ratios):.2f} (rounds from {ratios.min():.2f} to {ratios.max():.2f}); "
        f"{alone:.2f} by CPU time, which other work on the machine does not change",
        flush=True,
    )


def size_table(name, cases):
    print(f"\n{name:>5}  episodes/s   CPU us per episode   compile s   peak MiB   (16 lanes)")
    x, times = [], []
    for case in cases:
        found = measured(**case)
        x.append(case["x"])
        times.append(found["each"])
        print(
            f"{case['x']:5} {found['speed']:12,.0f} {times[-1]:16.1f} "
            f"{found['compile_seconds']:15.1f} {found['peak']:10,.0f}",
            flush=True,
        )
    whole, last = growth(x, times), growth(x[-2:], times[-2:])
    print(f"CPU time per episode ~ {name}^{whole:.2f}; between the last two, {name}^{last:.2f}")


def horizon_table(cases):
    print("\n        T   episodes/s   peak MiB   (a sweep of two seeds, saved as it goes)")
    peaks = []
    for case in cases:
        found = measured(**case)
        peaks.append(found["peak"])
        print(f"{case['T']:9,} {found['speed']:12,.0f} {found['peak']:10,.0f}", flush=True)
    x = [case["T"] for case in cases]
    change = 100 * (peaks[-1] / peaks[0] - 1)
    print(f"peak memory ~ T^{growth(x, peaks):.3f}: {change:+.1f}% from first to last")


# -- the constants of _costs.py -------------------------------------------------------------------


def fitted(rows, guess):
    """The constants that come closest to what was measured, by the ratio.

    Args:
      rows: `(shape, lanes, m, seconds of an episode of all lanes, seconds to compile)`.
      guess: constants to begin with; those that no row tells anything about are kept.
    """
    from scipy.optimize import least_squares

    from pdgd_jax.sweeps._costs import compile_seconds, episode_seconds

    def closest(names, error):
        """By the ratio: as far below as above."""
        used = [name for name in names if getattr(guess, name) > 0]
        start = np.log([getattr(guess, name) for name in used])

        def constants(logarithms):
            return guess._replace(**dict(zip(used, np.exp(logarithms).tolist(), strict=True)))

        found = least_squares(lambda x: error(constants(x)), start).x
        return dict(zip(used, np.exp(found).tolist(), strict=True))

    episodes = closest(
        guess._fields[:5],
        lambda constants: [
            np.log(episode_seconds(shape, lanes, num_constraints=m, constants=constants) / seconds)
            for shape, lanes, m, seconds, _ in rows
        ],
    )
    compiled = [row for row in rows if row[-1] is not None]
    compilations = closest(
        guess._fields[5:],
        lambda constants: [
            np.log(compile_seconds(row[0], constants) / row[-1]) for row in compiled
        ],
    )
    return guess._replace(**episodes, **compilations)


def fit_table(tables):
    """Measure on one core, and print the constants as `_costs.py` has them."""
    from pdgd_jax.sweeps import _costs as costs

    for name, cases in tables.items():
        rows = []
        print(f"\n{name:6}    L, S, A   lanes    m   CPU us of an episode, all lanes   compile s")
        for case in cases:
            found = measured(core=0, width=case.get("lanes", 16), **case)
            shape, lanes, m = tuple(found["shape"]), found["width"], found["num_constraints"]
            seconds = 1e-6 * found["each"] * lanes
            rows.append((shape, lanes, m, seconds, found["compile_seconds"]))
            print(
                f"{str(shape)[1:-1]:>18} {lanes:5} {m:6} {1e6 * seconds:20,.1f} "
                f"{found['compile_seconds']:24.1f}",
                flush=True,
            )
        guess = getattr(costs, name)
        print("this machine alone:", fitted(rows, guess))
        print(f"with those of machines.py:\n{name} = Constants(")
        for field, value in fitted([*rows, *rows_of(name)], guess)._asdict().items():
            print(f"    {field}={value:.2g},")
        print(")", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=[*CASES, "devices"], help="one table")
    parser.add_argument("--fit", action="store_true", help="the constants of _costs.py")
    add_quick(parser)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(case_of)
    if options.quick:
        hurry()
    begin = time.perf_counter()
    if options.fit:
        return fit_table(QUICK_FIT if options.quick else FIT)
    for name in [options.only] if options.only else ["lanes", "devices", *"SALmT"]:
        cases = (QUICK if options.quick else CASES).get(name)
        if name == "lanes":
            lanes_table(cases)
        elif name == "devices" and options.quick:
            devices_table(4, rounds=1, **HURRY)
        elif name == "devices":
            for lanes in (64, 512):
                devices_table(lanes)
        elif name == "T":
            horizon_table(cases)
        else:
            size_table(name, cases)
    print(f"\n{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
