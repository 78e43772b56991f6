r"""The projection by jaxopt's `BoxOSQP`, a general QP solver.

Each cone is lifted: with $d \ge 0$ and $d(x') \ge q(x') - \bar P(x') s$, its constraint is
$\sum_{x'} d(x') \le \tfrac{\epsilon}{2} s$. The rows of the program over $(q, d)$ are scaled, which
amounts to one step size for each kind of row. jaxopt offers conjugate gradients or a dense matrix
for the linear system of every iteration. We use its structure instead: without the flow it
decomposes into pairs, each the identity plus a matrix of rank two.

`solver` polishes the result of jaxopt (see `_polish.py`), `bare` does not: it reaches about 1e-6
after hundreds to thousands of iterations. Both are for comparison, or for users who prefer a known
solver; the Newton solver is faster. jaxopt is no longer maintained.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxopt import BoxOSQP
from jaxtyping import Array, ArrayLike, DTypeLike, PyTree

from pdgd_jax.models import Layers
from pdgd_jax.projection._api import ProjectionResult
from pdgd_jax.projection._confidence import ConfidenceSet
from pdgd_jax.projection._problem import (
    Problem,
    entries_first,
    entries_last,
    entries_sum,
    point_at,
    single_lane,
)
from pdgd_jax.projection.jaxopt._blocks import inverse_of
from pdgd_jax.projection.jaxopt._polish import Point, polished_and_bare, solve_in_rounds

__all__ = ["bare", "solver"]

MAX_ITERATIONS = 20_000
# The iterations of one round. The step size is adapted after every fourth round: most projections
# end earlier, and the first step size suits them.
ITERATIONS = 25
ROUNDS_PER_STEP_SIZE = 4
STEP_SIZE = 1.0
RIDGE = 1e-6  # OSQP's sigma


class Rows(NamedTuple):
    """One entry for each constraint of the lifted program; also the bounds and the multipliers."""

    flow: Any  # [L, S], F q
    occupancy: Any  # [L, S, A, S], q
    excess: Any  # [L, S, A, S], q - P s - d
    deviation: Any  # [L, S, A, S], d
    budget: Any  # [L, S, A], sum d - (eps/2) s


# Factors of the rows. Like OSQP we make equations a thousand times as stiff. Of the other rows
# those of q are stiffer, since only q is in the objective.
SCALE = Rows(flow=30.0, occupancy=3.0, excess=1.0, deviation=1.0, budget=1.0)


class Program(NamedTuple):
    """The data of the rows."""

    center: Array  # [L, S, A, S]
    half_radius: Array  # [L, S, A]
    present: Array  # [L, S, A, S], whether there is such a variable
    conserved: Array  # [L, S]

    @classmethod
    def of(cls, problem: Problem) -> "Program":
        """The program of a single lane."""
        return cls(
            center=entries_last(problem.center)[..., 0],
            half_radius=problem.half_radius[..., 0],
            present=entries_last(problem.present)[..., 0],
            conserved=problem.conserved[..., 0],
        )

    def only(self, array: Array) -> Array:
        """Zero where there is no variable."""
        return jnp.where(self.present, array, 0)

    def flow(self, occupancy: Array) -> Array:
        """$F q$."""
        inflow = occupancy.sum((1, 2))
        entered = jnp.concatenate([jnp.zeros_like(inflow[:1]), inflow[:-1]])
        return (occupancy.sum((2, 3)) - entered) * self.conserved

    def difference(self, potential: Array) -> Array:
        r"""$F^\top y$."""
        potential = potential * self.conserved
        ahead = jnp.concatenate([potential[1:], jnp.zeros_like(potential[:1])])
        return self.only(potential[:, :, None, None] - ahead[:, None, None])


def _quadratic(_: object, unknowns: tuple[Array, Array]) -> tuple[Array, Array]:
    occupancy, deviation = unknowns
    return occupancy, jnp.zeros_like(deviation)


def _rows(program: Program, unknowns: tuple[Array, Array]) -> Rows:
    occupancy, deviation = map(program.only, unknowns)
    mass = occupancy.sum(-1)
    rows = Rows(
        flow=program.flow(occupancy),
        occupancy=occupancy,
        excess=occupancy - program.center * mass[..., None] - deviation,
        deviation=deviation,
        budget=deviation.sum(-1) - program.half_radius * mass,
    )
    return Rows(*(scale * row for scale, row in zip(SCALE, rows, strict=True)))


def _bounds(program: Program) -> tuple[Rows, Rows]:
    source = jnp.zeros_like(program.conserved).at[0, 0].set(SCALE.flow)
    source *= program.conserved
    zeros, none = jnp.zeros_like(program.center), jnp.zeros_like(program.half_radius)
    low = Rows(source, zeros, zeros - jnp.inf, zeros, none - jnp.inf)
    high = Rows(source, zeros + jnp.inf, zeros, zeros + jnp.inf, none)
    return low, high


class _Factor(NamedTuple):
    r"""The factorisation that solves $(Q + \sigma + \rho A^\top A) x = b$.

    Without the rows of the flow, and with $d$ eliminated, the matrix of a pair is $N$ with
    $N^{-1} = (I + g (p 1^\top + 1 p^\top) + g_p p p^\top + g_1 1 1^\top) / c$.
    """

    program: Program
    step: Rows  # the step size of each kind of rows
    pivot: Array  # of d
    diagonal: Array  # c
    mixed: Array  # [L, S, A], g
    square: Array  # [L, S, A], g_p
    ones: Array  # [L, S, A], g_1
    inverse: Array  # [L S, L S], of 1 / step + F N^-1 F^T

    @classmethod
    def of(cls, program: Program, step_size: ArrayLike) -> "_Factor":
        step = Rows(*(step_size * scale**2 for scale in SCALE))
        pivot = RIDGE + step.deviation + step.excess
        own = 1 + RIDGE + step.occupancy
        stiffness = step.excess * (1 - step.excess / pivot)
        p, present = program.center, program.only(jnp.ones_like(program.center))
        count, norm = present.sum(-1), (p**2).sum(-1)
        budget = step.budget * program.half_radius**2 / (1 + count * step.budget / pivot)
        diagonal = own + stiffness
        total = own + count * (stiffness * norm + budget * diagonal / own)
        mixed = stiffness / total
        square = count * stiffness * mixed / own
        ones = -(stiffness * (budget / own + norm) + budget) / total
        factor = cls(program, step, pivot, diagonal, mixed, square, ones, jnp.zeros(()))
        return factor._replace(inverse=inverse_of(*factor._of_flow(present, count)))

    def _of_flow(self, present: Array, count: Array) -> tuple[Array, Array]:
        """The matrix between the potentials: blocks on the diagonal and above it, `[L, S, S]`."""
        p, conserved = self.program.center, self.program.conserved
        leaving = present * (1 + self.mixed + count * self.ones)[..., None]
        leaving += p * (count * self.mixed + self.square)[..., None]  # N^-1 1

        def products(weight: Array, left: Array, right: Array) -> Array:
            return jnp.einsum("lxa,lxay,lxaz->lyz", weight, left, right)

        between = products(self.mixed, p, present)
        into = between + between.swapaxes(1, 2) + products(self.square, p, p)
        into += products(self.ones, present, present)
        state = jnp.eye(conserved.shape[1], dtype=p.dtype)[None]
        into += state * present.sum((1, 2))[:, None]
        into = jnp.concatenate([jnp.zeros_like(into[:1]), into[:-1]])
        own = state * leaving.sum((2, 3))[:, None] + into
        own *= conserved[:, :, None] * conserved[:, None]
        ahead = jnp.concatenate([conserved[1:], jnp.zeros_like(conserved[:1])])
        across = -leaving.sum(2) * conserved[:, :, None] * ahead[:, None]
        return own / self.diagonal + state / self.step.flow, across / self.diagonal

    def pairs(self, right: Array) -> Array:
        """$N^{-1} r$."""
        p, right = self.program.center, self.program.only(right)
        total, mean = right.sum(-1), (p * right).sum(-1)
        along = (self.mixed * total + self.square * mean)[..., None] * p
        even = (self.mixed * mean + self.ones * total)[..., None]
        return self.program.only((right + along + even) / self.diagonal)

    def solve(self, right: tuple[Array, Array]) -> tuple[Array, Array]:
        """$(q, d)$ for a right-hand side of the same shape."""
        program, step = self.program, self.step
        p, half_radius = program.center, program.half_radius
        right_q, right_d = map(program.only, right)
        count = program.present.sum(-1)
        share, stiff = step.excess / self.pivot, self.pivot + count * step.budget
        all_d = right_d.sum(-1)
        even = step.budget * half_radius * all_d / stiff - share * (p * right_d).sum(-1)
        unbound = self.pairs(right_q + share * right_d + even[..., None])
        flow = program.flow(unbound)
        potential = (self.inverse @ flow.reshape(-1)).reshape(flow.shape)
        occupancy = unbound - self.pairs(program.difference(potential))
        mass = occupancy.sum(-1)
        spare = (self.pivot * half_radius * mass - all_d) / stiff  # (eps/2) s - sum d
        excess = occupancy - p * mass[..., None]
        deviation = right_d + step.excess * excess + (step.budget * spare)[..., None]
        return occupancy, program.only(deviation / self.pivot)


class _Direct:
    """A linear solver for `BoxOSQP`, with the interface of jaxopt's."""

    def init_state(
        self,
        unknowns: PyTree,
        quadratic: object,
        program: Program,
        sigma: ArrayLike,
        step_size: ArrayLike,
    ) -> _Factor:
        return _Factor.of(program, jnp.asarray(step_size, program.center.dtype))

    def update_stepsize(self, factor: _Factor, step_size: ArrayLike) -> _Factor:
        return _Factor.of(factor.program, step_size)

    def run(self, right: tuple[Array, Array], state: PyTree) -> tuple[tuple[Array, Array], _Factor]:
        return state.solver_state.solve(right), state.solver_state


class WarmStart(NamedTuple):
    """The solution of an earlier projection."""

    occupancy: Any  # [L, S, A, S]
    deviation: Any  # [L, S, A, S]
    multipliers: Rows


def init(layers: Layers, dtype: DTypeLike) -> WarmStart:
    """All zeros."""
    L, S, A = layers.shape
    zeros = jnp.zeros((L, S, A, S), dtype)
    rows = Rows(jnp.zeros((L, S), dtype), zeros, zeros, zeros, jnp.zeros((L, S, A), dtype))
    return WarmStart(zeros, zeros, rows)


def _completed(problem: Problem, point: Point) -> WarmStart:
    r"""A solution with all its multipliers, from the occupancy and the potentials.

    With $u = v + F^\top y$ and the levels of `_cone.py`, $u - q$ is $\alpha$ on the raised entries,
    where the budget binds the excess, and $\beta$ on the lowered ones, where it does not. On the
    other entries it lies between them, and on those that are zero it is at most $\beta$.
    """
    u, q, present = point_at(problem, point.potential), point.occupancy, problem.present
    half_radius, p = problem.half_radius, problem.center
    some = present.any(0)
    high = jnp.where(some, jnp.where(present, u - q, -jnp.inf).max(0), 0)
    low = jnp.where(q > 0, u - q, jnp.inf).min(0)
    # At the apex: the level at which the support function of the ball, a minimum, is attained.
    support = jnp.einsum("i...,ij...->j...", p, jnp.maximum(u[:, None], u[None]))
    support -= half_radius[None] * u
    index = jnp.where(present, support, jnp.inf).argmin(0)
    apex = jnp.take_along_axis(u, index[None], 0)[0]
    low = jnp.where(some, jnp.where(jnp.isfinite(low), low, apex), 0)
    budget = high - low
    excess = jnp.where(present, jnp.clip(u - q - low[None], 0, budget[None]), 0)
    shared = entries_sum(p * excess) + half_radius * budget
    deviation = q - p * entries_sum(q)[None]
    multipliers = Rows(
        flow=-point.potential,
        occupancy=jnp.where(present, jnp.minimum(u - q - excess + shared[None], 0), 0),
        excess=excess,
        deviation=jnp.where(present, excess - budget[None], 0),
        budget=budget,
    )
    each = (x if x.ndim < 5 else entries_last(x) for x in multipliers)
    return WarmStart(
        occupancy=entries_last(q)[..., 0],
        deviation=jnp.maximum(entries_last(deviation)[..., 0], 0),
        multipliers=Rows(*(x[..., 0] / scale for x, scale in zip(each, SCALE, strict=True))),
    )


class _Carry(NamedTuple):
    params: PyTree  # jaxopt's KKTSolution
    step_size: Array
    factor: _Factor
    rounds: Array


def _method() -> BoxOSQP:
    method = BoxOSQP(
        matvec_Q=_quadratic,
        matvec_A=_rows,
        check_primal_dual_infeasability=False,  # the set is never empty
        sigma=RIDGE,
        rho_start=STEP_SIZE,
        implicit_diff=False,
    )
    method._eq_qp_solve_impl = _Direct()
    return method


def solve(
    layers: Layers,
    target: Array,
    confidence: ConfidenceSet,
    warm_start: WarmStart,
    tolerance: ArrayLike,
    *,
    polished: bool,
) -> ProjectionResult:
    """Run `BoxOSQP` from the warm start."""
    problem = single_lane(layers, target, confidence)
    program = Program.of(problem)
    method = _method()
    target = entries_last(jnp.where(problem.present, problem.target, 0))[..., 0]
    arguments = (None, (-target, jnp.zeros_like(target))), program, _bounds(program)

    unknowns = warm_start.occupancy, warm_start.deviation
    params = method.init_params(unknowns, *arguments)
    params = params._replace(dual_eq=warm_start.multipliers)
    state = method.init_state(params, *arguments)
    state = state._replace(error=jnp.asarray(jnp.inf, target.dtype))

    # In iteration 0 `update` adapts the step size and computes residuals that nothing else uses.
    # So the last iteration of some rounds is numbered 0, and every other one is numbered 1.
    def iterate(carry: _Carry, number: ArrayLike) -> _Carry:
        before = state._replace(iter_num=number, rho_bar=carry.step_size, solver_state=carry.factor)
        params, after = method.update(carry.params, before, *arguments)
        return carry._replace(params=params, step_size=after.rho_bar, factor=after.solver_state)

    def run(carry: _Carry) -> tuple[_Carry, Array, Array]:
        carry = lax.fori_loop(0, ITERATIONS - 1, lambda _, carry: iterate(carry, 1), carry)
        rounds = carry.rounds + 1
        carry = iterate(carry, jnp.where(rounds % ROUNDS_PER_STEP_SIZE == 0, 0, 1))
        occupancy, flow = carry.params.primal[0][0], carry.params.dual_eq.flow
        potential = -SCALE.flow * flow[..., None]
        return carry._replace(rounds=rounds), entries_first(occupancy[..., None]), potential

    def after(carry: _Carry, point: Point, exact: Array) -> WarmStart:
        (occupancy, deviation), _ = carry.params.primal
        found = WarmStart(occupancy, deviation, carry.params.dual_eq)
        if not polished:
            return found
        return jax.tree.map(partial(jnp.where, exact), _completed(problem, point), found)

    start = _Carry(
        params,
        jnp.asarray(STEP_SIZE, target.dtype),
        state.solver_state,
        jnp.zeros((), jnp.int32),
    )
    return solve_in_rounds(
        problem,
        run,
        start,
        after,
        iterations=ITERATIONS,
        max_iterations=MAX_ITERATIONS,
        tolerance=tolerance,
        polished=polished,
    )


solver, bare = polished_and_bare(init, solve)
