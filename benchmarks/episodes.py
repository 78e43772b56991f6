"""The whole simulator against a NumPy loop around OSQP: `python benchmarks/episodes.py`.

Episodes per second of PDGD-OPS, everything included (draws, trajectories, learning, metrics),
against the same algorithm as a researcher would write it: a NumPy loop, one seed at a time, with
OSQP's C core as its projection (warm-started, factorised once per epoch, tolerance 1e-6; ours is at
1e-9). Both continue from the same point of learning, every contestant runs in one process per core,
all cores at the same time; they take turns, several rounds, and medians are shown. Compile time
is stated apart. On the small instance UC-O-REPS and UCPD, which project in relative entropy, are
beside it.

It also prints what each part of an episode costs, each compiled and timed alone, and the resident
memory of a short and of a long run. `--quick` only shows that all of it works.
"""

import argparse
import multiprocessing
import resource
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from projection import CASES, Osqp, program_of, quickly
from quick import add_quick, hurry
from workers import Workers

from pdgd_jax import ProjectionInfo, ProjectionResult, make, pdgd_ops, rollout, run
from pdgd_jax.learners import Info, make_learner
from pdgd_jax.learners._visits import count, estimate
from pdgd_jax.projection import Solver
from pdgd_jax.simulation import BatchProgram, Comparators, LaneInputs, stacked, start
from pdgd_jax.simulation._loop import advance
from pdgd_jax.simulation._metrics import init as init_metrics
from pdgd_jax.simulation._metrics import update as update_metrics
from pdgd_jax.simulation._reference import reference

HORIZON = 10_000
SCALE = 0.3  # of the confidence radii: with 1 nothing is learnt within the episodes timed here


class Race(NamedTuple):
    """A case, its lanes, and how many episodes are timed."""

    lanes: int
    before: int  # played before the clock starts
    episodes: int  # ours
    peer_episodes: int


class Timed(NamedTuple):
    """What a contestant measured, in microseconds an episode."""

    each: float
    compile_seconds: float
    without_epochs: float  # the same without what an epoch costs beyond its projections


RACES = {"small": Race(256, 1000, 200, 150), "large": Race(32, 600, 100, 12)}
RIVALS = {"small": ("uc-o-reps", "ucpd")}  # with the entropic projection, beside PDGD-OPS


def instance(name, seed):
    case = CASES[name]
    return make("random", sizes=case.sizes, num_actions=case.num_actions, branching=0, seed=seed)


def learner_of(cmdp, solver="newton", name="pdgd-ops"):
    if name == "pdgd-ops":
        return pdgd_ops(cmdp.layers, 1, HORIZON, confidence_scale=SCALE, solver=solver)
    return make_learner(name, cmdp, HORIZON, confidence_scale=SCALE)


# -- ours ----------------------------------------------------------------------------------------


def _no_projection(layers, target, confidence, warm_start, tolerance):
    """Costs nothing; for what is left of an episode without its projection."""
    info = ProjectionInfo(jnp.zeros((), target.dtype), jnp.ones((), jnp.int32), jnp.ones((), bool))
    return ProjectionResult(target, warm_start, info)


NO_PROJECTION = Solver(lambda layers, dtype: (), _no_projection, (0.0, 0.0), takes_lists=True)


class Ours:
    """All seeds of this process in one compiled program."""

    def __init__(self, name, core, lanes, solver="newton", learner="pdgd-ops"):
        race = RACES[name]
        cmdp = instance(name, core)
        learner = learner_of(cmdp, solver, learner)

        keys = jax.random.split(jax.random.key(core), lanes)
        program = BatchProgram(jax.local_devices()[:1])
        lane = LaneInputs(cmdp, learner, Comparators.default(cmdp))
        what = program.place(stacked([jax.tree.map(np.asarray, lane)] * lanes))
        carry = program.begin(program.place(keys), what)
        self.play = lambda carry, until: jax.block_until_ready(
            program.play(carry, what, np.array([[until]]))[0]
        )
        begin = time.perf_counter()
        self.play(carry, 0)
        self.compile_seconds = time.perf_counter() - begin
        # Rates are those of HORIZON, so that the state here is that of a real run.
        self.carry = self.play(carry, race.before)
        self.until, self.total = race.before + race.episodes, race.episodes * lanes

    def measure(self):
        begin = time.perf_counter()
        carry = self.play(self.carry, self.until)
        elapsed = time.perf_counter() - begin
        assert not np.any(carry.metrics.unconverged)
        each = elapsed / self.total * 1e6
        return Timed(each, self.compile_seconds, each)


# -- the peer ------------------------------------------------------------------------------------


class NumpyLoop:
    """One seed: the paper's boxes in NumPy, with OSQP."""

    def __init__(self, name, core):
        race = RACES[name]
        self.episodes = race.peer_episodes
        cmdp = instance(name, core)
        learner = learner_of(cmdp)
        seed = jax.random.key(core)
        play = jax.jit(lambda key: advance(start(key, cmdp, learner), cmdp, learner, race.before))
        self.first = jax.tree.map(np.asarray, play(seed).learner)
        self.layers = cmdp.layers
        self.transition = np.asarray(cmdp.mdp.transition)
        self.reward_mean = np.asarray(cmdp.rewards.mean())
        self.cost_mean = np.asarray(cmdp.constraints.mean()[0])
        self.constants = [float(x) for x in learner.setting.rates]
        sizes = cmdp.layers.sizes
        A = int(cmdp.layers.num_actions)
        logarithm = np.log(HORIZON * sum(sizes) * A / 0.05)
        self.widths = 2 * logarithm * np.asarray(sizes[1:])[:, None, None]

    def measure(self):
        rng = np.random.default_rng(0)
        pairs, valid = np.asarray(self.layers.action_mask), np.asarray(self.layers.triple_mask)
        L, S, A = pairs.shape
        primal, dual = self.first.primal, self.first.dual
        q, lam, largest = primal.occupancy.copy(), dual.multipliers[0], primal.largest_loss
        N, M = primal.visits.pairs.astype(float), primal.visits.triples.astype(float)
        snapshot = primal.visits.pairs_at_start.copy()
        center, radius = primal.confidence.center.copy(), primal.confidence.radius.copy()
        C, eta = self.constants
        earned = violated = rebuilding = 0.0
        solving = {False: [], True: []}
        solver = Osqp.__new__(Osqp)
        solver.reset()
        program = program_of(self.layers, center, radius)
        fresh, uniform = True, valid / np.maximum(valid.sum(-1, keepdims=True), 1)
        n = int(valid.sum())
        for t in range(self.episodes + 1):
            if t == 1:  # the first sets the solver up, cold
                begin = time.perf_counter()
            mass = q.sum(-1)
            total = mass.sum(-1, keepdims=True)
            policy = np.where(total > 0, mass / np.where(total > 0, total, 1), pairs / A)
            state, doubled = 0, False
            arrival = np.zeros(S)
            arrival[0] = 1.0
            true = np.zeros((L, S, A))
            for k in range(L):
                true[k] = arrival[:, None] * policy[k]
                arrival = np.einsum("xa,xay->y", true[k], self.transition[k])
                action = rng.choice(A, p=policy[k, state] / policy[k, state].sum())
                following = rng.choice(S, p=self.transition[k, state, action])
                N[k, state, action] += 1
                M[k, state, action, following] += 1
                doubled |= N[k, state, action] >= max(1, 2 * snapshot[k, state, action])
                state = following
            if doubled:
                snapshot = N.copy()
                seen = np.maximum(N, 1)
                center = np.where(N[..., None] > 0, M / seen[..., None], uniform)
                radius = np.where(N > 0, SCALE * np.sqrt(self.widths / seen), 2.0) * pairs
                clock = time.perf_counter()
                program, fresh = program_of(self.layers, center, radius), True
                rebuilding += (time.perf_counter() - clock) * (t > 0)
            reward = (rng.uniform(size=pairs.shape) < self.reward_mean) * pairs
            cost = np.where(rng.uniform(size=pairs.shape) < (1 + self.cost_mean) / 2, 1.0, -1.0)
            cost = cost * pairs
            earned += (reward * true).sum()
            violated += (cost * true).sum()
            loss = lam * cost - reward
            largest = max(largest, np.abs(loss).max())
            target = q - loss[..., None] / (largest * C * np.sqrt(HORIZON))
            lam = np.clip(lam + eta * (cost * mass).sum(), 0, HORIZON**0.25)
            clock = time.perf_counter()
            solver.solve(program, np.r_[-target[valid], np.zeros(n)], fresh)
            if t > 0:
                solving[fresh].append(time.perf_counter() - clock)
            q = np.zeros(valid.shape)
            q[valid] = np.maximum(solver.answer.x[:n], 0)
            fresh = False
        elapsed = time.perf_counter() - begin
        # What new epochs cost beyond an ordinary solve: building the program, factorising it.
        rebuilding += sum(solving[True]) - len(solving[True]) * np.mean(solving[False])
        each, rest = elapsed / self.episodes * 1e6, (elapsed - rebuilding) / self.episodes * 1e6
        return Timed(each, 0.0, rest)


def _nudge(t, leaf):
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf + 1e-14 * t.astype(leaf.dtype)
    if jnp.issubdtype(leaf.dtype, jnp.integer):
        return leaf + (t >> 20).astype(leaf.dtype)  # 0, which the compiler cannot know
    return leaf


# -- parts ---------------------------------------------------------------------------------------


class Part(Ours):
    """One part of an episode alone, over and over, in a program of its own."""

    def __init__(self, name, core, lanes, part):
        super().__init__(name, core, lanes, solver=NO_PROJECTION)
        cmdp = instance(name, core)
        race, carry = RACES[name], self.carry
        comparators = Comparators.default(cmdp)

        def draw(t, lane):
            outcome, _ = cmdp.draw(
                jax.random.fold_in(lane.key, t), lane.processes, t, policy_of(lane)
            )
            return outcome.reward.sum() + outcome.constraints.sum()

        def play(t, lane):
            path = rollout(jax.random.fold_in(lane.key, t), cmdp.mdp, policy_of(lane))
            return (path.states.sum() + path.actions.sum()).astype(float)

        def confidence(t, lane):
            visits, path = lane.learner.primal.visits, fixed_path(t)
            visits, _ = count(cmdp.layers, visits, path)
            found = estimate(
                cmdp.layers,
                visits,
                num_episodes=HORIZON,
                delta=jnp.asarray(0.05),
                scale=jnp.asarray(SCALE) + 1e-9 * t,
            )
            return found.center.sum() + found.radius.sum()

        def metrics(t, lane):
            primal = lane.learner.primal
            outcome, _ = fixed_outcome
            multipliers = lane.learner.dual.multipliers
            info = Info(
                primal.occupancy + 1e-12 * t,
                primal.confidence,
                multipliers,
                multipliers,
                -outcome.reward,
                primal.visits.epoch,
                ProjectionInfo(jnp.zeros(()), jnp.ones((), jnp.int32), jnp.ones((), bool)),
            )
            first = init_metrics(cmdp, comparators)
            new = update_metrics(
                first, cmdp, against, t, policy_of(lane), fixed_path(t), outcome, info
            )
            return sum(leaf.astype(float).sum() for leaf in jax.tree.leaves(new))

        learner = learner_of(cmdp, NO_PROJECTION)
        against = reference(cmdp, comparators, learner.setting)

        def policy_of(lane):
            return learner.policy(lane.learner)

        uniform = cmdp.layers.uniform_policy()
        fixed_outcome = cmdp.draw(jax.random.key(1), cmdp.init(jax.random.key(0)), 0, uniform)
        path = rollout(jax.random.key(2), cmdp.mdp, uniform)

        def fixed_path(t):
            return jax.tree.map(partial(_nudge, t), path)

        body = {"draws": draw, "trajectories": play, "confidence": confidence, "metrics": metrics}

        def many(carry, until):
            def lane(lane):
                def step(t, total):
                    # Something that changes, or the compiler would move the work out of the loop.
                    moved = jax.tree.map(partial(_nudge, t), lane)
                    return total + body[part](t, moved)

                return jax.lax.fori_loop(0, until, step, jnp.zeros(()))

            return jax.vmap(lane)(carry)

        self.many = jax.jit(many).lower(carry, jnp.int32(0)).compile()
        self.steps, self.lanes = race.episodes, lanes

    def measure(self):
        begin = time.perf_counter()
        jax.block_until_ready(self.many(self.carry, jnp.int32(self.steps)))
        each = (time.perf_counter() - begin) / self.steps / self.lanes * 1e6
        return Timed(each, 0.0, each)


# -- the run -------------------------------------------------------------------------------------


def build(core, kind, settings, cases, races):
    """A contestant of one process."""
    CASES.update(cases)  # a new process has read those of the file
    RACES.update(races)
    if settings.get("solver") == "none":
        settings = {**settings, "solver": NO_PROJECTION}
    return {"ours": Ours, "numpy": NumpyLoop, "part": Part}[kind](core=core, **settings)


def ask(workers, kind, **settings):
    """What all processes measured, as one."""
    each, compiling, without = zip(*workers.measure(kind, **settings), strict=True)
    return Timed(np.mean(each), np.max(compiling), np.mean(without))


def race(workers, name, rounds):
    lanes = RACES[name].lanes
    contestants = {
        "numpy": partial(ask, workers, "numpy", name=name),
        "ours": partial(ask, workers, "ours", name=name, lanes=lanes),
        "rest": partial(ask, workers, "ours", name=name, lanes=lanes, solver="none"),
    }
    rivals = RIVALS.get(name, ())
    for rival in rivals:
        contestants[rival] = partial(ask, workers, "ours", name=name, lanes=lanes, learner=rival)
    times = {label: [] for label in contestants}
    compile_seconds, without_epochs = {}, []
    for label, measure in contestants.items():
        compile_seconds[label] = measure().compile_seconds  # warm up
    for _ in range(rounds):
        for label, measure in contestants.items():
            timed = measure()
            times[label].append(timed.each)
            if label == "numpy":
                without_epochs.append(timed.without_epochs)
    median = {label: float(np.median(values)) for label, values in times.items()}
    ratios = np.array(times["numpy"]) / np.array(times["ours"])
    cores = len(workers.pipes)
    sizes = CASES[name].sizes
    print(f"\n{name}: sizes {sizes}, A = {CASES[name].num_actions}, {lanes} seeds per process")
    texts = {"numpy": "NumPy loop with OSQP, 1e-6", "ours": "pdgd_jax, 1e-9"}
    texts.update({rival: f"{rival}, 1e-9" for rival in rivals})
    for label, text in texts.items():
        speed = cores / median[label] * 1e6
        each = f"{median[label]:10,.1f} us per episode and core"
        print(f"  {text:28} {each}, {speed:10,.0f} episodes/s")
    print(
        f"  ratio {np.median(ratios):.1f} (rounds from {ratios.min():.1f} to {ratios.max():.1f}); "
        f"compile time {compile_seconds['ours']:.1f} s"
    )
    kinder = np.median(np.array(without_epochs) / np.array(times["ours"]))
    print(f"  ratio {kinder:.1f} if OSQP's programs of new epochs came built and factorised")
    rest, whole = median["rest"], median["ours"]
    print(f"  all but the projection: {rest:.1f} us, {100 * rest / whole:.0f}% of an episode")
    for part in ("draws", "trajectories", "confidence", "metrics"):
        measure = partial(ask, workers, "part", name=name, lanes=lanes, part=part)
        alone = float(np.median([measure().each for _ in range(3)]))
        print(f"    {part:14} {alone:8.2f} us, {100 * alone / whole:4.1f}%, timed alone")


def resident(num_episodes, pipe):
    """Peak resident memory, in MiB, of a run of that length."""
    jax.config.update("jax_enable_x64", True)
    cmdp = make("random", sizes=(1, 2, 1), num_actions=2)
    learner = pdgd_ops(cmdp.layers, 1, num_episodes)
    jax.block_until_ready(run(jax.random.key(0), cmdp, learner, num_episodes))
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def memory(short=10**4, long=10**6):
    context = multiprocessing.get_context("spawn")
    peaks = []
    for num_episodes in (short, long):
        ours, theirs = context.Pipe()
        process = context.Process(target=resident, args=(num_episodes, theirs))
        process.start()
        peaks.append(ours.recv())
        process.join()
    print(
        f"\nresident memory: {peaks[0]:.0f} MiB for {short:,} episodes, {peaks[1]:.0f} MiB for "
        f"{long:,} "
        f"({100 * (peaks[1] / peaks[0] - 1):+.1f}%)"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=sorted(RACES), help="one case")
    parser.add_argument("--no-memory", action="store_true")
    add_quick(parser)
    options = parser.parse_args()
    rounds, horizons, cores = options.rounds, {}, {}
    if options.quick:
        hurry()
        CASES.update({name: quickly(CASES[name]) for name in RACES})
        RACES.update({name: Race(2, 100, 2, 30) for name in RACES})
        rounds, horizons, cores = 1, {"short": 10, "long": 100}, {"cores": 1}
    workers = Workers(build, CASES, RACES, **cores)
    for name in [options.only] if options.only else RACES:
        race(workers, name, rounds)
    workers.stop()
    if not options.no_memory:
        memory(**horizons)


if __name__ == "__main__":
    main()
