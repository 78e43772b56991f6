r"""The loop: Newton steps with a line search on the dual, and scaling steps that cannot fail.

**Near** the solution a step is Newton's on the dual. **Far** from it the inflow and outflow of a
state differ by orders of magnitude, and Newton's method on a sum of exponentials takes one e-fold a
step. So there it is applied to $\ln \mathrm{in}(x) - \ln \mathrm{out}(x) = 0$ instead, with the
Hessian at the flow that the present policy and transitions induce. In that flow what enters a state
leaves it, so that the scaled Hessian is well conditioned however far the masses lie apart. Both
steps agree near the solution.

**Scaling.** For any step $t$ of the potentials

$$f(y + t) \le f(y) + \sum_{x,a,x'} q(x,a,x') \big(e^{t(x) - t(x')} - 1\big) - t(x_0),$$

since the conjugate of the entropy on a cone lies below that of the entropy alone. With
$e^{a + b} \le \frac12 (e^{2a} + e^{2b})$ the right-hand side separates over the states, and is
least at

$$t(x) = \tfrac14 \ln \frac{\mathrm{in}(x)}{\mathrm{out}(x)},$$

where $f$ has decreased by $\frac12 \sum_x (\sqrt{\mathrm{in}} - \sqrt{\mathrm{out}})^2$ at least.
This step needs no line search. It replaces a Newton step that was shortened too often.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone import ABSENT
from pdgd_jax.projection._layout import around, split
from pdgd_jax.projection._problem import per_lane, select
from pdgd_jax.projection.entropic._batch import Batch
from pdgd_jax.projection.entropic._evaluation import (
    Evaluation,
    LogFlow,
    Point,
    evaluate,
    flow_of,
    log_ratio,
)
from pdgd_jax.projection.entropic._forward import moves_of
from pdgd_jax.projection.entropic._options import EntropicOptions
from pdgd_jax.projection.entropic._system import newton_direction

__all__ = ["Search", "floor_of", "search"]


def floor_of(like: Array) -> float:
    """Potentials of states with a mass below `exp(-floor)` do not count: 1e-564, or 1e-65."""
    return 150.0 if like.dtype == jnp.float32 else 1300.0


class Search(NamedTuple):
    """The carry of the loop."""

    trial: Point  # to be evaluated next
    point: Point  # the last one that was accepted
    direction: Point
    scaling: Point  # the scaling step at `point`
    length: Array  # [B], of the step to the trial
    slope: Array  # [B], of the dual along the direction
    value: Array  # [B], of the dual at the point
    least: Array  # [B], imbalance so far
    residual: Array  # [B], at the point
    imbalance: Array  # [B], at the point
    refused: Array  # [B], how many trials in a row
    iterations: Array  # [B]
    infeasible: Array  # [B], whether the linear constraints are
    found: LogFlow  # of the last trial


def _scaling_step(batch: Batch, found: Evaluation) -> Point:
    """The step that decreases the dual without a line search."""
    ratio = batch.free * log_ratio(found.flow)
    # For a multiplier, the same bound with costs of at most one in size.
    spent = jnp.maximum(jnp.abs(batch.bounds - found.slack), 1)
    change = -found.slack / (4 * len(found.slack) * spent) if len(found.slack) else found.slack
    return Point(ratio / 4, change)


def _most(batch: Batch) -> Array:
    r"""More than $D(q \| u) - \sum u + L$ of any occupancy $q$, `[B]`.

    If the dual exceeds it, the linear constraints are infeasible. The bound holds since
    $q \ln q \le 0$ and every layer has the mass 1.
    """
    if not len(batch.bounds):
        return jnp.full(batch.sound.shape, jnp.inf, batch.target.dtype)
    present = [jnp.where(x > ABSENT / 2, -x, -jnp.inf) for x in split(batch.target, batch.last)]
    layers = [x.max((0, 1, 2)) for x in present]
    last = jnp.where(batch.last > ABSENT / 2, -batch.last, -jnp.inf).max((0, 1))
    most = jnp.concatenate([*layers, last[None]])
    total = jnp.where(jnp.isfinite(most), most, 0).sum(0)
    return total + 1e-3 * (1 + jnp.abs(total))


def _balanced(batch: Batch, found: Evaluation) -> Evaluation:
    """The same policy and transitions, with the flow that they induce."""
    moves = moves_of(found.log_flow)
    here, _ = around(moves, batch.last.shape[1])
    log_mass = jnp.maximum(found.shares.log_mass + here, ABSENT)
    log_last = jnp.maximum(found.log_last + moves[-1][:, None], ABSENT)
    flow, _ = flow_of(log_mass, found.shares.log_share, log_last, batch.free)
    return found._replace(flow=flow, log_last=log_last)


def _slope(found: Evaluation, direction: Point) -> Array:
    """The derivative of the dual along a direction."""
    flow = found.flow
    excess = (flow.outflow - flow.inflow) * jnp.exp(flow.reference)
    along = (excess * direction.potential).sum((0, 1))
    return along + (found.slack * direction.multipliers).sum(0)


def _directed(
    options: EntropicOptions, batch: Batch, found: Evaluation, scaling: Point
) -> tuple[Point, Array, Array]:
    """A direction, its slope, and the length of its first trial."""
    far = found.residual > options.far

    def balance() -> tuple[Evaluation, Array]:
        balanced = _balanced(batch, found)
        missing = batch.free * log_ratio(found.flow) * balanced.flow.outflow
        plain = found.flow.inflow - found.flow.outflow
        flow = select(far, balanced.flow, found.flow)
        return found._replace(flow=flow), select(far, missing, plain)

    def keep() -> tuple[Evaluation, Array]:
        return found, found.flow.inflow - found.flow.outflow

    at, missing = lax.cond(far.any(), balance, keep)
    heavy = batch.free * (at.flow.reference > -floor_of(batch.target))
    damping = options.damping * jnp.minimum(found.residual, 1) + 1e-15
    newton = newton_direction(batch, at, missing, heavy, damping)
    newton = newton._replace(potential=jnp.where(heavy > 0, newton.potential, scaling.potential))
    slope = _slope(found, newton)
    size = jnp.abs(newton.potential).max((0, 1))
    good = jnp.isfinite(slope) & jnp.isfinite(size) & (slope < 0)
    direction = select(good, newton, scaling)
    longest = jnp.where(far, options.farthest, options.longest)
    length = jnp.where(good, jnp.minimum(1, longest / jnp.where(good, size, 1)), 1)
    return direction, jnp.where(good, slope, -jnp.inf), length


def _is_accepted(carry: Search, found: Evaluation, rise: Array) -> Array:
    """Whether a trial is good enough, `[B]`: the dual falls, or the flow is better balanced."""
    # A descent that is smaller is invisible.
    rounding = 8 * jnp.finfo(rise.dtype).eps * (1 + jnp.abs(found.value))
    return (
        (rise <= 1e-4 * carry.length * carry.slope)
        | (found.imbalance <= carry.least / 2)
        | ((rise <= rounding) & (found.imbalance < carry.imbalance))
        | (carry.slope == -jnp.inf)  # the first point, or a scaling step
    ) & jnp.isfinite(found.residual)


def _before_the_first(batch: Batch, start: Point, goal: Array, floor: float) -> Search:
    """The carry before the first step, whose trial is the start and is accepted."""
    zero = jax.tree.map(jnp.zeros_like, start)
    endless = jnp.full_like(goal, jnp.inf)
    none = jnp.zeros_like(goal, jnp.int32)
    shapes = jax.eval_shape(lambda: evaluate(batch, start, floor).log_flow)
    return Search(
        trial=start,
        point=start,
        direction=zero,
        scaling=zero,
        length=jnp.ones_like(goal),
        slope=-endless,
        value=endless,
        least=endless,
        residual=endless,
        imbalance=endless,
        refused=none,
        iterations=none,
        infeasible=jnp.zeros_like(goal, bool),
        found=jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes),
    )


def search(options: EntropicOptions, batch: Batch, start: Point, goal: Array) -> Search:
    """Minimise the dual in every lane.

    Args:
      options: the constants.
      batch: the problems.
      start: where to begin.
      goal: `[B]`, the residual to reach.
    """
    floor = floor_of(batch.target)
    unpayable = _most(batch)

    def running(carry: Search) -> Array:
        undone = (carry.residual > goal) & ~carry.infeasible
        return undone & (carry.iterations < options.max_steps)

    def step(carry: Search) -> Search:
        moving = running(carry)
        found = evaluate(batch, carry.trial, floor)
        rise = found.value - carry.value
        accept = _is_accepted(carry, found, rise) & moving
        scaling = select(accept, _scaling_step(batch, found), carry.scaling)
        residual = jnp.where(accept, found.residual, carry.residual)
        infeasible = carry.infeasible | (accept & (-found.value > unpayable))
        more = moving & ~infeasible & (residual > goal)

        def turn() -> tuple[Point, Array, Array]:
            return _directed(options, batch, found, scaling)

        def stay() -> tuple[Point, Array, Array]:
            return carry.direction, carry.slope, carry.length

        direction, slope, length = lax.cond((accept & more).any(), turn, stay)
        refused = jnp.where(accept, 0, carry.refused + 1)
        give_up = refused >= options.refusals
        # The minimiser of the interpolating parabola, safeguarded.
        fall = carry.length * carry.slope
        shorter = carry.length * jnp.clip(-fall / (2 * (rise - fall)), 0.1, 0.5)
        shorter = jnp.where(jnp.isfinite(shorter), shorter, carry.length / 4)
        direction = select(accept, direction, carry.direction)
        direction = select(give_up, scaling, direction)
        slope = jnp.where(give_up, -jnp.inf, jnp.where(accept, slope, carry.slope))
        length = jnp.where(give_up, 1, jnp.where(accept, length, shorter))
        point = select(accept, found.point, carry.point)
        trial = jax.tree.map(lambda x, d: x + per_lane(length, x.ndim) * d, point, direction)
        trial = trial._replace(multipliers=jnp.maximum(trial.multipliers, 0))
        return Search(
            # A lane that is done keeps its point, and evaluates to the same result again.
            trial=select(more, trial, carry.trial),
            point=point,
            direction=direction,
            scaling=scaling,
            length=length,
            slope=slope,
            value=jnp.where(accept, found.value, carry.value),
            least=jnp.where(found.imbalance < carry.least, found.imbalance, carry.least),
            residual=residual,
            imbalance=jnp.where(accept, found.imbalance, carry.imbalance),
            refused=refused,
            iterations=carry.iterations + more,
            infeasible=infeasible,
            found=found.log_flow,
        )

    first = _before_the_first(batch, start, goal, floor)
    return lax.while_loop(lambda carry: running(carry).any(), step, first)
