r"""Newton's direction: the Hessian of the dual, scaled by the masses of the states.

With one cone's $\nabla^2_\theta s = s (P P^\top + J)$ the Hessian $F (\oplus \nabla^2 s) F^\top$ is
block tridiagonal over the layers, as that of the Euclidean projection. Row and column of a state
are divided by the root of its mass $\mu_x$, so that every entry is at most about 1:

$$(x, x) \mathrel{+}= \frac{s}{\mu_x}, \quad (x, x') \mathrel{-}= \frac{s P_{x'}}{\sqrt{\mu_x
\mu_{x'}}}, \quad (x', x'') \mathrel{+}= \frac{s (P P^\top + J)_{x' x''}}{\sqrt{\mu_{x'}
\mu_{x''}}}.$$

The multipliers of linear constraints border it; as $\nabla^2 s \, \mathbf 1 = q$, their columns are
flows weighted by the costs. They are eliminated by a Schur complement.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from pdgd_jax.projection._hessian import Hessian, divide, outer_sums, solve_system
from pdgd_jax.projection._layout import over_pairs, per_state, split
from pdgd_jax.projection._problem import entries_sum, per_lane
from pdgd_jax.projection._xla import fence
from pdgd_jax.projection.entropic._batch import Batch
from pdgd_jax.projection.entropic._cones import Shares
from pdgd_jax.projection.entropic._evaluation import Evaluation, Flow, Point

__all__ = ["newton_direction"]


class _PairSums(NamedTuple):
    """What the pairs of some layers with X states each add to the Hessian."""

    outer: Array  # [S', S', L, B]
    diagonal: Array  # [S', L, B]
    across: Array  # [S', X, L, B]


def _pair_sums(flow: Flow, shares: Shares) -> list[_PairSums]:
    """What each block of layers adds."""
    root = jnp.sqrt(flow.mass)
    # The root of a share, since a share may underflow, and dividing by it would blow up its error.
    weight = jnp.sqrt(flow.entries) * jnp.exp(shares.log_share / 2)
    up, down = (1 / jnp.sqrt(mass) for mass in shares.block_mass)
    block = weight * jnp.where(shares.block > 0, up[None], -down[None]) * jnp.abs(shares.block)
    diagonal = flow.entries * jnp.abs(shares.block)
    sums = []
    arrays = (split(x, flow.last) for x in (root, weight, block, diagonal))
    for r, w, e, d in zip(*arrays, strict=True):
        across = entries_sum((w * r[None]).swapaxes(0, 1))
        w, e, d = (x.reshape(x.shape[0], -1, *x.shape[3:]) for x in (w, e, d))
        sums.append(_PairSums(outer_sums(w, w, e), entries_sum(d.swapaxes(0, 1)), across))
    return sums


def _hessian_of(flow: Flow, shares: Shares, free: Array, damping: Array) -> Hessian:
    """The scaled Hessian; rows that are not free are those of the identity."""
    ahead = free[1:]
    sums = fence(_pair_sums, flow, shares)
    outer = jnp.moveaxis(jnp.concatenate([x.outer for x in sums], 2), 2, 0)
    diagonal = jnp.concatenate([x.diagonal for x in sums], 1).swapaxes(0, 1)
    across = jnp.concatenate([x.across for x in sums[1:]], 2)
    eye = jnp.eye(diagonal.shape[1], dtype=diagonal.dtype)[None, ..., None]
    layer = 1 / flow.layer[:, None, None]
    into = (outer + eye * diagonal[:, :, None]) * layer[:-1]
    return Hessian(
        own=flow.outflow * free + (1 - free) + per_lane(damping, 3),
        into=into * ahead[:, :, None] * ahead[:, None],
        root=-sums[0].across[:, 0, 0] * free[0, :1] * ahead[0] * layer[0, 0],
        across=-across.swapaxes(0, 2) * free[1:-1, :, None] * free[2:, None] * layer[1:-1],
    )


class _Border(NamedTuple):
    """The rows of the multipliers."""

    states: Array  # [m, L, S, B], their scaled columns
    own: Array  # [m, m, B]


def _border_of(batch: Batch, flow: Flow, root: Array) -> _Border:
    """The rows of the multipliers in the scaled Hessian."""
    layer = flow.layer[:, None]
    sizes = jnp.exp(flow.reference) / layer * batch.free
    states, own = [], []
    for cost, last in zip(batch.costs, batch.last_costs, strict=True):
        left = per_state(cost * flow.mass, last * flow.last) / layer
        entered = over_pairs(cost[None] * flow.entries, flow.last) / layer[:-1]
        states.append((left.at[1:].add(-entered)) * -root)
        own.append(
            jnp.stack(
                [
                    (per_state(cost * c * flow.mass, last * d * flow.last) * sizes).sum((0, 1))
                    for c, d in zip(batch.costs, batch.last_costs, strict=True)
                ]
            )
        )
    return _Border(jnp.stack(states), jnp.stack(own))


def newton_direction(
    batch: Batch, found: Evaluation, missing: Array, free: Array, damping: Array
) -> Point:
    """Newton's direction.

    Args:
      batch: the problems.
      found: the dual at the present point.
      missing: `[L, S, B]`, what each state lacks in outflow, relative to its reference.
      free: `[L, S, B]`, 1 in the states whose potentials move.
      damping: `[B]`, added to the diagonal of the scaled Hessian.
    """
    flow = found.flow
    hessian = _hessian_of(flow, found.shares, free, damping)
    root = jnp.exp(flow.reference / 2) * free
    right = missing * root
    inverse = jnp.where(free > 0, 1 / jnp.where(free > 0, root, 1), 0)
    num_constraints = len(batch.bounds)
    if not num_constraints:
        return Point(solve_system(hessian, right) * inverse, found.point.multipliers)
    border = _border_of(batch, flow, root)
    solutions = jax.vmap(solve_system, in_axes=(None, 0))(
        hessian, jnp.concatenate([right[None], border.states])
    )
    step, columns = solutions[0], solutions[1:]
    # A multiplier stays at 0 while its constraint is slack.
    held = (found.point.multipliers <= 0) & (found.slack > 0)
    moving = jnp.where(held, 0, 1).astype(right.dtype)
    products = (border.states[:, None] * columns[None]).sum((2, 3))
    eye = jnp.eye(num_constraints, dtype=right.dtype)[..., None]
    matrix = border.own - products + eye * per_lane(damping, 3)
    matrix = matrix * moving[:, None] * moving[None] + eye * (1 - moving)[None]
    rest = (-found.slack - (border.states * step[None]).sum((1, 2))) * moving
    change = divide(jnp.concatenate([matrix, rest[:, None]], 1))[:, 0]
    step = step - (columns * change[:, None, None]).sum(0)
    return Point(step * inverse, change)
