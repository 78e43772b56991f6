"""The start of the local loop: warm starts, predictions from them, single-precision steps."""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array

from pdgd_jax.models import Layers
from pdgd_jax.projection._cone import ABSENT, positive_part
from pdgd_jax.projection._layout import MIN_LAYERS
from pdgd_jax.projection._xla import fence
from pdgd_jax.projection.newton._iteration import Guess, evaluate, newton_point, select
from pdgd_jax.projection.newton._options import NewtonOptions
from pdgd_jax.projection.newton._rays import AnyCones, has_lists

__all__ = ["WarmStart", "cast", "init", "mean_target", "predict", "roughly"]

Tree = TypeVar("Tree")


class WarmStart(NamedTuple):
    """A start for the next projection of a sequence: a solution and its target.

    Attributes:
      potential: `[L, S]`, $y$.
      mass: `[C]`, $q(x, a)$ of every cone (see `_layout.py`); 0 where it is not known.
      gain: `[C]`, the derivative of the mass with respect to the target; 0 where it is not known.
      target: `[C]`, of every cone, see `mean_target`.
      last: `[S, A]`, the target of the last layer,
        or `[S, 0]` with lists, where it is among the cones.
      change: `[L, S]` with lists, from the last prediction to the solution; `[0, 0]` without.
    """

    potential: Array
    mass: Array
    gain: Array
    target: Array
    last: Array
    change: Array


def init(layers: Layers, dtype: DTypeLike) -> WarmStart:
    """Zero potentials, unknown masses and pieces."""
    L, S, A = layers.shape
    if layers.successors is None:
        num_cones, in_last, changing = A + (max(L, MIN_LAYERS) - 2) * S * A, A, (0, 0)
    else:
        num_cones, in_last, changing = L * layers.successors.groups.num_rows, 0, (L, S)
    return WarmStart(
        potential=jnp.zeros((L, S), dtype),
        mass=jnp.zeros(num_cones, dtype),
        gain=jnp.zeros(num_cones, dtype),
        target=jnp.zeros(num_cones, dtype),
        last=jnp.zeros((S, in_last), dtype),
        change=jnp.zeros(changing, dtype),
    )


def mean_target(cones: AnyCones, before: WarmStart) -> Array:
    r"""The mean target of every cone, `[C B]`; with lists, less the mean of the last solution.

    The target of a learner is its last occupancy and a step. The potentials depend on the step
    alone, as long as the pieces stay the same: occupancies conserve flow. Where rewards hardly
    change, so that all steps are alike, the step foretells that nothing moves, and the target
    does not: CliffWalking takes 1.8 steps instead of 2.7, a grid with random rewards 6.4 instead of
    7.2. Dense instances with random rewards take up to 0.1 steps more, so they keep the target.
    """

    def present(x: Array, target: Array) -> Array:
        return jnp.where(target > ABSENT / 2, x, 0)

    ones = jax.tree.map(jnp.ones_like, cones.target)  # in the precision of the target
    total, count = (
        cones.totals(jax.tree.map(present, x, cones.target)) for x in (cones.target, ones)
    )
    if has_lists(cones):
        total = total - before.mass
    return total / jnp.maximum(count, 1)


def predict(cones: AnyCones, before: WarmStart, target: Array, *, response: float) -> Guess:
    r"""Predict a start for this target from the solution for another, without a linear system.

    Near the old solution the mass of a cone is linear in its target, here in the mean over its
    entries. If the outflow of a state would fall, its potential makes up for part of the loss. All
    states of earlier layers move by the flow-weighted mean of these changes, which leaves their
    cones unchanged.

    Args:
      cones: the new problem.
      before: the old solution, with the lanes last.
      target: `[C B]`, of every new cone, see `mean_target`.
      response: the part of the loss that the potentials make up for.
    """
    y = before.potential
    occupancy = positive_part(before.last + y[-1][:, None])
    on = jnp.where(occupancy > 0, jnp.ones_like(occupancy), 0)
    less = before.gain * (before.target - target)
    own = cones.outflow(before.gain, on)
    moves = jnp.where(own > 0, cones.free, 0)
    share = response * moves / jnp.where(own > 0, own, 1)
    change = share * cones.outflow(less, on * (before.last - cones.last))
    mean = (cones.outflow(before.mass, occupancy) * change).sum(1)  # [L, B]
    along = lax.cumsum(mean, reverse=True) - mean
    mass = before.mass - less + before.gain * cones.around(change)[0]
    guess = Guess(
        potential=y + change + moves * along[:, None],
        mass=jnp.where(mass > 0, mass, before.mass),
    )
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), guess)


def cast(tree: Tree, dtype: DTypeLike) -> Tree:
    """The same tree with its floating point arrays in another precision."""

    def in_dtype(x: Array) -> Array:
        return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(in_dtype, tree)


def _single(tree: Tree) -> Tree:
    return cast(tree, jnp.float32)


class _Rough(NamedTuple):
    """The carry of `roughly`."""

    guess: Guess
    residual: Array  # [B], where the last step began
    iterations: Array  # [B]


def roughly(options: NewtonOptions, cones: AnyCones, start: Guess) -> tuple[Guess, Array]:
    """Take local steps in single precision, each in 0.6 of the time, and count them.

    The loop ends with a step that begins near the solution, or after a fixed number of steps. A
    lane in which single precision overflows keeps its start.
    """
    each = start.potential[0, 0]  # [B]
    none = jnp.zeros_like(each, jnp.int32)
    if each.dtype != jnp.float64 or cones.lane_size < options.rough_variables:
        return start, none
    cones = fence(_single, cones)
    goal = jnp.full_like(each, options.rough_residual / 10, jnp.float32)

    def running(rough: _Rough) -> Array:
        far = rough.residual > options.rough_residual
        return far & (rough.iterations < options.rough_steps)

    def step(rough: _Rough) -> _Rough:
        lanes = running(rough)
        iterate = evaluate(options, cones, rough.guess, rough.iterations)
        point = newton_point(cones, iterate, goal)
        residual = jnp.where(lanes, iterate.residual, rough.residual)
        return _Rough(select(lanes, point, rough.guess), residual, rough.iterations + lanes)

    first = _Rough(_single(start), jnp.full_like(each, jnp.inf, jnp.float32), none)
    rough = lax.while_loop(lambda rough: running(rough).any(), step, first)
    finite = jnp.isfinite(rough.guess.potential.sum((0, 1)))
    return select(finite, cast(rough.guess, jnp.float64), start), rough.iterations
