"""Plans with constraints: thousands in one call, against one linear program after the other.

    python benchmarks/planning.py           everything, two minutes
    python benchmarks/planning.py --quick   only to see that all of it works

Optima of random CMDPs with known transitions, against `oracle.optimum`; then OptCMDP's extended
linear program over L1 balls, against HiGHS on the program that is written out. Both in float64,
milliseconds per problem without compilation, medians over rounds in which the contestants take
turns, the largest difference of the values, and the plans per problem.
"""

import argparse
import pathlib
import statistics
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from quick import add_quick, hurry

from pdgd_jax import ConfidenceSet, Layers, make, oracle, planning, stack
from pdgd_jax.models import mean_outcome

# The written-out program is that of the tests.
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

SIZES = {"small": ((1, 4, 4, 4, 1), 3), "large": ((1, 10, 10, 10, 1), 5)}


def clock(call):
    start = time.perf_counter()
    found = jax.block_until_ready(call())
    return time.perf_counter() - start, found


def report(text, ours, theirs, counts, difference):
    """One row, from the seconds of each round."""
    fast, slow = (
        1e3 * statistics.median(times) / count
        for times, count in zip((ours, theirs), counts, strict=True)
    )
    print(
        f"| {text} | {fast:.4f} | {slow:.2f} | {slow / fast:.0f} | {difference:.0e} |", flush=True
    )


def optima(size, m, count, sample, rounds):
    """Thousands of CMDPs in one call, and a loop of the oracle over some of them."""
    sizes, num_actions = SIZES[size]
    settings = {"sizes": sizes, "num_actions": num_actions, "num_constraints": m}
    few = [make("random", seed=seed, **settings) for seed in range(sample)]
    some = stack(few)
    means = mean_outcome(some)
    repeat = -(-count // sample)
    # As many as wanted: other rewards on the same transitions.
    weights = jnp.asarray(np.random.default_rng(0).uniform(0.5, 1, (repeat * sample,)))
    tiled = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * repeat), (some, means))
    many, outcome = tiled
    outcome = outcome._replace(reward=outcome.reward * weights[:, None, None, None])
    outcome = outcome._replace(reward=outcome.reward.at[:sample].set(means.reward))
    call = partial(planning.optimum, many, outcome=outcome)
    clock(call)
    ours, theirs = [], []
    for _ in range(rounds):
        seconds, found = clock(call)
        ours.append(seconds)
        seconds, expected = clock(
            lambda: [
                oracle.optimum(cmdp.mdp, means.reward[i], means.constraints[i]).value
                for i, cmdp in enumerate(few)
            ]
        )
        theirs.append(seconds)
    difference = np.abs(np.asarray(found.value[:sample]) - expected)
    text = f"{size}, m = {m}, {len(weights):,} CMDPs"
    report(text, ours, theirs, (len(weights), sample), difference[np.isfinite(expected)].max())


def extended(size, m, count, sample, rounds):
    """OptCMDP's program over L1 balls."""
    from tests.reference.planning import Ball, Program

    (sizes, num_actions), rng = SIZES[size], np.random.default_rng(m)
    layers = Layers.from_sizes(sizes, num_actions)
    mask = np.asarray(layers.triple_mask)
    center = rng.exponential(size=(count, *mask.shape)) * mask
    center /= np.maximum(center.sum(-1, keepdims=True), 1e-9)
    radius = rng.uniform(0, 0.3, (count, *layers.shape))
    reward = rng.uniform(0, 1, (count, *layers.shape))
    costs = rng.uniform(-1, 0.9, (count, m, *layers.shape))
    lanes = jax.vmap(
        lambda r, G, *ball: planning.plan_constrained(layers, r, G, ConfidenceSet(*ball))
    )
    call = partial(jax.jit(lanes), *map(jnp.asarray, (reward, costs, center, radius)))
    programs = [Program(mask, Ball(center[i], radius[i])) for i in range(sample)]

    def loop():
        return [
            program.solve(program.of_pairs(r), [program.of_pairs(g) for g in G])
            for program, r, G in zip(programs, reward, costs, strict=False)
        ]

    clock(call)
    ours, theirs = [], []
    for _ in range(rounds):
        seconds, found = clock(call)
        ours.append(seconds)
        seconds, expected = clock(loop)
        theirs.append(seconds)
    known = np.array([x is not None for x in expected])
    assert (known == np.asarray(found.feasible[:sample])).all()
    value = np.asarray(found.value[:sample])[known]
    difference = np.abs(value - [x for x in expected if x is not None]).max(initial=0)
    calls = np.asarray(found.calls)
    text = f"{size}, m = {m}, L1 balls, {calls.mean():.1f} plans each, at most {calls.max()}"
    report(text, ours, theirs, (count, sample), difference)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_quick(parser)
    quick = parser.parse_args().quick
    jax.config.update("jax_enable_x64", True)
    if quick:
        hurry()
    rounds = 1 if quick else 3
    print("| problems | pdgd_jax, ms | HiGHS, ms | times | difference |\n|---|---|---|---|---|")
    for size, m, count in (("small", 1, 4096), ("small", 4, 4096), ("large", 1, 1024)):
        optima(size, m, *((4, 2) if quick else (count, 64)), rounds)
    for size, m, count in (("small", 1, 256), ("small", 4, 256), ("large", 4, 64)):
        extended(size, m, *((4, 2) if quick else (count, 8)), rounds)


if __name__ == "__main__":
    main()
