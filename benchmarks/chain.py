"""A million entropic projections in a row, and what has drifted: `python benchmarks/chain.py`.

Each projection begins from the last occupancy and warm start, as in a learner, first with known
transitions and then on balls. Three minutes on one core.
"""

import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from quick import add_quick, hurry

from pdgd_jax import ConfidenceSet, KnownTransitions, make, occupancy_of, project_entropic
from pdgd_jax.projection import EntropicStart


class Chain(NamedTuple):
    """The carry of a chain of projections."""

    log_occupancy: jax.Array
    warm_start: EntropicStart
    total: jax.Array  # of all losses, with Kahan's correction in `lost`
    lost: jax.Array
    unconverged: jax.Array
    residual: jax.Array  # the largest
    steps: jax.Array


def chain_step(layers, set_, carry, loss):
    """One more projection, from the last occupancy and warm start."""
    target = carry.log_occupancy - loss[..., None]
    result = project_entropic(layers, target, set_, warm_start=carry.warm_start)
    increment = loss - carry.lost
    total = carry.total + increment
    return Chain(
        log_occupancy=result.log_occupancy,
        warm_start=result.warm_start,
        total=total,
        lost=(total - carry.total) - increment,
        unconverged=carry.unconverged + ~result.info.converged,
        residual=jnp.maximum(carry.residual, result.info.residual),
        steps=carry.steps + result.info.iterations,
    )


def play_chain(layers, set_, start, count, parts=20):
    """`count` steps, in equal parts, with losses whose sum grows as that of a learning run."""
    zero, none = jnp.zeros(layers.shape), jnp.int32(0)
    cold = EntropicStart(jnp.zeros(layers.shape[:2]), jnp.zeros(0))
    drift = jax.random.normal(jax.random.key(1), layers.shape)

    def step(carry, t):
        noise = jax.random.normal(jax.random.fold_in(jax.random.key(2), t), layers.shape)
        loss = (noise + drift / np.sqrt(count)) * layers.action_mask / np.sqrt(count)
        return chain_step(layers, set_, carry, loss), None

    play = jax.jit(lambda carry, t: jax.lax.scan(step, carry, t + jnp.arange(count // parts))[0])
    carry = Chain(start, cold, zero, zero, none, jnp.zeros(()), none)
    for part in range(parts):
        carry = play(carry, part * (count // parts))
    return jax.tree.map(np.asarray, carry)


def print_chain(count):
    """What has drifted: with known transitions the chain is one step with the sum of all losses."""
    mdp = make("random").mdp
    layers = mdp.layers
    start = jnp.log(occupancy_of(mdp, layers.uniform_policy()))
    there = np.isfinite(np.asarray(start))
    balls = ConfidenceSet(mdp.transition, jnp.full(layers.shape, 0.2))
    for name, set_ in (
        ("known transitions", KnownTransitions(mdp.transition)),
        ("balls of radius 0.2", balls),
    ):
        end = play_chain(layers, set_, start, count)
        q = np.exp(end.log_occupancy)
        outflow, inflow = q.sum((2, 3))[1:], q.sum((1, 2))[:-1]
        off = np.abs(outflow - inflow) / np.maximum(outflow, 1e-300)
        print(
            f"{name}: {count:,} projections, {int(end.unconverged)} unconverged, largest residual "
            f"{float(end.residual):.1e}, {float(end.steps) / count:.2f} steps each; at the end the "
            f"flow of a state is off by {off.max():.1e} of its mass",
            flush=True,
        )
        if isinstance(set_, KnownTransitions):
            target = start - jnp.asarray(end.total)[..., None]
            whole = project_entropic(layers, target, set_, tolerance=1e-12)
            difference = end.log_occupancy[there] - np.asarray(whole.log_occupancy)[there]
            print(
                f"  ln q, between {end.log_occupancy[there].min():.0f} and 0, differs from one "
                f"projection of all losses by {np.abs(difference).max():.1e}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10**6)
    add_quick(parser)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if arguments.quick:
        hurry()
        arguments.steps = 40
    print_chain(arguments.steps)


if __name__ == "__main__":
    main()
