r"""The dual of the entropic projection at some potentials.

$$\min_y f(y) = \sum_{(x,a)} s_{xa}(y) - y(x_0), \qquad \nabla f = F q(y) - b.$$

A constant added to the potentials of a layer multiplies the masses of that layer and divides those
of the layer before. The best constants give every layer the mass 1, and $f$ there is
$L + \sum_k \ln M_k - y(x_0)$ with the masses $M_k$ before. So every evaluation takes place there.

Masses of states range over hundreds of orders of magnitude. Everything about a state is relative to
a reference near its own mass, whose logarithm is kept: sums neither overflow nor vanish, and the
residual is relative as well.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone import ABSENT
from pdgd_jax.projection._layout import around, over_pairs, per_state
from pdgd_jax.projection._xla import fence
from pdgd_jax.projection.entropic._batch import Batch
from pdgd_jax.projection.entropic._cones import Shares, largest_entry, shares_of

__all__ = ["Evaluation", "Flow", "LogFlow", "Point", "evaluate", "flow_of", "log_ratio"]


# Maxima over so many pairs are written out. More would be a longer program than a reduction.
MOST_PAIRS = 64


class Point(NamedTuple):
    """A point of the dual, or a direction."""

    potential: Array  # [L, S, B], y
    multipliers: Array  # [m, B], lambda


class LogFlow(NamedTuple):
    """Logarithms of what flows where, before the layers have the mass 1."""

    mass: Array  # [C B], of s
    share: Array  # [S', C B], of P
    last: Array  # [S, A, B], of the masses of the last layer


class Flow(NamedTuple):
    """What flows where, relative to the references of the states."""

    mass: Array  # [C B], s relative to the reference of the state
    entries: Array  # [S', C B], q relative to the reference of the next state
    last: Array  # [S, A, B], q of the last layer
    outflow: Array  # [L, S, B]
    inflow: Array  # [L, S, B]
    reference: Array  # [L, S, B], logarithms; together with `layer` they give the mass
    layer: Array  # [L, B], what to divide the flow of each layer by


class Evaluation(NamedTuple):
    """The dual at a point."""

    point: Point  # with the best constant for every layer
    shares: Shares
    log_last: Array  # [S, A, B], the logarithms of the masses of the last layer, before `layer`
    flow: Flow
    slack: Array  # [m, B], c - G q
    value: Array  # [B], f - L
    residual: Array  # [B], relative to the mass of each state
    imbalance: Array  # [B], the same in logarithms

    @property
    def log_flow(self) -> LogFlow:
        """All that the result needs of an evaluation."""
        return LogFlow(self.shares.log_mass, self.shares.log_share, self.log_last)


def _largest(array: Array) -> Array:
    return largest_entry(array, MOST_PAIRS)


def flow_of(log_mass: Array, log_share: Array, log_last: Array, free: Array) -> tuple[Flow, Array]:
    """The flow, and the logarithm of each layer's unit, `[L, B]`."""
    num_actions = log_last.shape[1]
    top_out = per_state(log_mass, log_last, _largest, ABSENT)
    unit = jnp.where(free > 0, top_out, ABSENT).max(1)
    unit = jnp.where(unit > ABSENT / 2, unit, 0)  # of a layer that only pads
    each = jnp.broadcast_to(unit[:, None], free.shape)
    log_mass = log_mass - around(each, num_actions)[0]
    log_flow = log_share + log_mass[None]
    top_in = over_pairs(log_flow, log_last, _largest)
    source = jnp.full_like(top_in[:1], ABSENT).at[0, 0].set(0)
    reference = jnp.maximum(top_out - each, jnp.concatenate([source, top_in]))
    reference = jnp.where(free > 0, reference, 0)
    here, ahead = around(reference, num_actions)
    mass, entries = jnp.exp(log_mass - here), jnp.exp(log_flow - ahead)
    last = jnp.exp(log_last - (each + reference)[-1][:, None])
    outflow = per_state(mass, last)
    layer = (outflow * free * jnp.exp(reference)).sum(1)
    layer = jnp.where(layer > 0, layer, 1)
    entered = over_pairs(entries, last) / layer[:-1, None]
    source = jnp.zeros_like(entered[:1]).at[0, 0].set(jnp.exp(-reference[0, 0]))
    return Flow(
        mass=mass,
        entries=entries,
        last=last,
        outflow=outflow / layer[:, None],
        inflow=jnp.concatenate([source, entered]),
        reference=reference,
        layer=layer,
    ), unit


def log_ratio(flow: Flow) -> Array:
    """The logarithm of the inflow of each state over its outflow, `[L, S, B]`."""
    tiny = jnp.finfo(flow.outflow.dtype).tiny
    inflow, outflow = (jnp.maximum(x, tiny) for x in (flow.inflow, flow.outflow))
    return jnp.log(inflow) - jnp.log(outflow)


def slack_of(batch: Batch, flow: Flow) -> Array:
    """$c - G^T q$, `[m, B]`."""
    sizes = jnp.exp(flow.reference) / flow.layer[:, None] * batch.free
    spent = [
        (per_state(cost * flow.mass, last * flow.last) * sizes).sum((0, 1))
        for cost, last in zip(batch.costs, batch.last_costs, strict=True)
    ]
    return batch.bounds - jnp.stack(spent) if spent else batch.bounds


def _theta(batch: Batch, point: Point) -> tuple[Array, Array]:
    """The logarithm of w, in the cones and in the last layer."""
    y = point.potential
    here, ahead = around(y, batch.last.shape[1])
    price, last_price = jnp.zeros_like(here), jnp.zeros_like(batch.last)
    for i, multiplier in enumerate(point.multipliers):
        each = batch.costs[i].reshape(-1, multiplier.size) * multiplier[None]
        price = price + each.reshape(-1)
        last_price = last_price + batch.last_costs[i] * multiplier[None, None]
    return batch.target + (here - price)[None] - ahead, batch.last + y[-1][:, None] - last_price


def evaluate(batch: Batch, point: Point, floor: float) -> Evaluation:
    """The dual at a point, moved to the best constants of the layers.

    Args:
      batch: the problems.
      point: where.
      floor: the residual leaves out states with a mass below `exp(-floor)`.
    """
    theta, log_last = fence(_theta, batch, point)
    shares = fence(shares_of, theta, batch.cone_set)
    flow, unit = fence(flow_of, shares.log_mass, shares.log_share, log_last, batch.free)
    log_layer = unit + jnp.log(flow.layer)
    shift = lax.cumsum(log_layer, reverse=True)
    moved = Point(point.potential - shift[:, None] * batch.free, point.multipliers)
    slack = slack_of(batch, flow)
    larger = jnp.maximum(flow.outflow, flow.inflow)
    counted = (batch.free > 0) & (flow.reference > -floor)
    off = jnp.abs(flow.outflow - flow.inflow) / jnp.where(larger > 0, larger, 1)
    residual = jnp.where(counted, off, 0).max((0, 1))
    short = jnp.abs(jnp.minimum(point.multipliers, slack)).max(0, initial=0)
    ratio = jnp.where(counted, jnp.abs(log_ratio(flow)), 0).max((0, 1))
    return Evaluation(
        point=moved,
        shares=shares,
        log_last=log_last,
        flow=flow,
        slack=slack,
        value=(point.multipliers * batch.bounds).sum(0) - moved.potential[0, 0],
        residual=jnp.maximum(residual, short),
        imbalance=jnp.maximum(ratio, short),
    )
