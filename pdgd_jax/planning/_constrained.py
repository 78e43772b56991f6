"""The best occupancy of a set of transitions that satisfies constraints, exactly."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike, Float

from pdgd_jax._internal.checks import whole_number
from pdgd_jax._internal.typing import Count, Flag, Number, Pairs, Triples
from pdgd_jax.models import Layers
from pdgd_jax.planning import _simplex as simplex
from pdgd_jax.planning._checks import check_plan
from pdgd_jax.planning._model import Model, TransitionSet
from pdgd_jax.planning._plan import Plan, respond

__all__ = ["ConstrainedPlan", "first_prices", "plan_constrained"]

# Plans per column, if the method has not ended before.
_MOST_CALLS = 50


class ConstrainedPlan(NamedTuple):
    r"""The best occupancy that satisfies the constraints, or the least violating one.

    Attributes:
      value: $r^\top q$, of the occupancy below.
      occupancy: over the triples, $q \in \Delta(\mathcal P)$. `policy_of` gives its policy, and its
        transitions lie in the set.
      multipliers: `[m]`, $\lambda \ge 0$. If feasible, the optimal multipliers. If not, weights
        that sum to 1 and prove it: $\lambda^\top G^\top q > 0$ for all $q \in \Delta(\mathcal P)$.
      gap: by how much the value may fall short of the optimum: the bound
        $\max_q (r - G\lambda)^\top q$ minus the value. If infeasible, by how much the violation
        may exceed the least one.
      feasible: whether some occupancy satisfies all constraints, up to rounding.
      violation: the largest entry of $G^\top q$.
      prices: `[m + 1, m + 1]`, the weights of the reward and of the constraints that the columns of
        the solution were planned for: the `start` of a similar problem.
      calls: the number of plans.
    """

    value: Number
    occupancy: Triples
    multipliers: Float[Array, " m"]
    gap: Number
    feasible: Flag
    violation: Number
    prices: Float[Array, "m_and_1 m_and_1"]
    calls: Count


def first_prices(num_constraints: int, dtype: DTypeLike = float) -> Float[Array, "m_and_1 m_and_1"]:
    """The `start` of `plan_constrained` where nothing is known: the reward alone.

    Args:
      num_constraints: m.
      dtype: of the reward.
    """
    count = whole_number("num_constraints", num_constraints) + 1
    return jnp.zeros((count, count), jnp.result_type(dtype)).at[0, 0].set(1)


def plan_constrained(
    layers: Layers,
    reward: Pairs,
    constraints: Float[Array, "m layers states actions"],
    confidence: TransitionSet,
    *,
    start: Float[Array, "m_and_1 m_and_1"] | None = None,
    max_calls: int | None = None,
) -> ConstrainedPlan:
    r"""Find the best occupancy of a set that satisfies m constraints: OptCMDP's linear program.

    $$\max_{q \in \Delta(\mathcal P)} r^\top q \quad\text{such that}\quad G^\top q \le 0,$$

    without its thousands of variables: the revised simplex method over mixtures of $m + 1$ plans.
    A basis gives multipliers $\lambda$, the plan for $r - G\lambda$ (`best_response`) is the column
    with the largest reduced profit, and its value bounds the optimum from above. It ends at the
    optimum, as the simplex method does; with one constraint it moves to the intersection of two
    lines. Shapes are static, and nothing runs on the host. Under `jax.vmap` the loop goes on until
    the last problem is solved.

    Args:
      layers: the states and actions.
      reward: `[L, S, A]`, $r$, of any size and sign.
      constraints: `[m, L, S, A]`, $G$.
      confidence: the set $\mathcal P$: a `ConfidenceSet`, a `BoxSet` or `KnownTransitions`.
      start: the `prices` of a similar problem, which saves plans; `first_prices` by default.
      max_calls: the most plans; $50 (m + 1)$ by default. What was found by then is returned, with
        its gap.

    Returns:
      The solution, with a certificate. Without a feasible occupancy, it is the one that violates
      the worst constraint the least. If a number is not finite where it matters, everything is
      NaN, and not feasible.

    Raises:
      ValueError: if there is no constraint, a shape is wrong, the set is of another kind, or a row
        is no distribution.

    Example:
      Two actions, $(r, G) = (1, \tfrac12)$ and $(\tfrac15, -\tfrac12)$, are played equally often:

      >>> import jax.numpy as jnp
      >>> from pdgd_jax import KnownTransitions, Layers, planning
      >>> layers = Layers.from_sizes((1, 1), num_actions=2)
      >>> known = KnownTransitions(jnp.ones((1, 1, 2, 1)))
      >>> reward, costs = jnp.array([[[1.0, 0.2]]]), jnp.array([[[[0.5, -0.5]]]])
      >>> best = planning.plan_constrained(layers, reward, costs, known)
      >>> round(float(best.value), 6), round(float(best.multipliers[0]), 6), bool(best.feasible)
      (0.6, 0.8, True)

    Reference:
      Y. Efroni, S. Mannor, M. Pirotta, *Exploration-exploitation in constrained MDPs*, 2020, for
      the linear program; G. B. Dantzig, P. Wolfe, *Decomposition principle for linear programs*,
      1960, for the method.
    """
    shape = np.shape(constraints)
    if len(shape) != 4 or shape[0] == 0:
        raise ValueError(
            "constraints must have the shape [m, L, S, A] with m of at least 1; got "
            f"{shape}. Without constraints use best_response."
        )
    m = shape[0]
    check_plan(
        layers,
        confidence,
        reward=(reward, layers.shape),
        constraints=(constraints, (m, *layers.shape)),
        **({} if start is None else {"start": (start, (m + 1, m + 1))}),
    )
    model = Model.of(layers, confidence)
    most = _MOST_CALLS * (m + 1)
    if max_calls is not None:
        most = whole_number("max_calls", max_calls)
    dtype = jnp.result_type(reward, constraints, *jax.tree.leaves(model.allowed))
    objective, costs = (
        jnp.where(mask, x, 0).astype(dtype)
        for x, mask in ((reward, layers.action_mask), (constraints, layers.action_mask[None]))
    )
    start = first_prices(m, dtype) if start is None else jnp.asarray(start).astype(dtype)
    return _Problem(model, objective, costs, start).solve(most)


class _Best(NamedTuple):
    """A bound that a plan has proved, and the multipliers that prove it."""

    bound: Array
    multipliers: Array

    def improved(self, bound: Array, multipliers: Array, valid: Array) -> "_Best":
        better = valid & (bound < self.bound)
        return _Best(
            jnp.where(better, bound, self.bound), jnp.where(better, multipliers, self.multipliers)
        )


class _Search(NamedTuple):
    """Where the method stands.

    Attributes:
      basis: the basis.
      occupancies: `[n, *triples]`, of the columns that are policies.
      prices: `[n, m + 1]`, what they were planned for.
      optimum: a bound on the value.
      margin: a bound on what the worst constraint can be satisfied by.
      calls: how often a plan was made.
      ended: whether no plan can improve on the basis.
    """

    basis: simplex.Basis
    occupancies: Array
    prices: Array
    optimum: _Best
    margin: _Best
    calls: Count
    ended: Flag


class _Problem(NamedTuple):
    """A constrained problem, and what its plans are priced at first."""

    model: Model
    reward: Array
    constraints: Array
    start: Array

    @property
    def sizes(self) -> tuple[Array, Array]:
        """The most that a plan can earn, and that it can spend on a constraint."""
        layers = self.model.actions.any((-2, -1)).sum()
        return layers * jnp.abs(self.reward).max(), layers * jnp.abs(self.constraints).max()

    @property
    def sound(self) -> Array:
        """Whether all numbers are valid."""
        numbers = self.reward, self.constraints, *jax.tree.leaves(self.model.allowed)
        return jnp.stack([jnp.isfinite(x).all() for x in numbers]).all()

    def solve(self, most: int) -> ConstrainedPlan:
        def goes_on(search: _Search) -> Array:
            return ~search.ended & (search.calls < most)

        found = jax.lax.while_loop(goes_on, self.step, self.first())
        return self.conclude(found)

    def first(self) -> _Search:
        m = self.constraints.shape[0]
        dtype = self.reward.dtype
        _, spent = self.sizes
        transition = jax.tree.leaves(self.model.allowed)[0]
        nothing = _Best(jnp.asarray(jnp.inf, dtype), jnp.zeros(m, dtype))
        return _Search(
            basis=simplex.first_basis(m, jnp.where(spent > 0, spent, 1)),
            occupancies=jnp.zeros((m + 1, *transition.shape), dtype),
            prices=jnp.zeros((m + 1, m + 1), dtype),
            optimum=nothing,
            margin=nothing,
            calls=jnp.zeros((), jnp.int32),
            ended=~self.sound,
        )

    def plan(self, prices: Array) -> tuple[Plan, simplex.Column]:
        """The plan for a weight of the reward and multipliers, `[m + 1]`, and its column."""
        weight, multipliers = prices[0], prices[1:]
        priced = weight * self.reward - (multipliers[:, None, None, None] * self.constraints).sum(0)
        plan = respond(self.model, priced)
        pairs = jax.vmap(Model.to_pairs)(self.model, plan.occupancy)
        costs = (self.constraints * pairs[None]).sum((1, 2, 3))
        entries = jnp.concatenate([costs, jnp.ones_like(costs[:1])])
        return plan, simplex.Column(entries, (self.reward * pairs).sum(), jnp.ones((), bool))

    def step(self, search: _Search) -> _Search:
        """One plan; it enters the basis if that pays."""
        basis, (earned, spent) = search.basis, self.sizes
        multipliers, mass_price = simplex.duals(basis)
        weight = basis.feasible.astype(self.reward.dtype)
        own = jnp.concatenate([weight[None], jnp.maximum(multipliers, 0)])
        given = self.start[jnp.minimum(search.calls, self.start.shape[0] - 1)]
        is_given = (search.calls < self.start.shape[0]) & (given != 0).any()
        prices = jnp.where(is_given, given, own)
        plan, column = self.plan(prices)

        profit = weight * column.reward - (multipliers * column.entries[:-1]).sum() - mass_price
        rounding = 64 * float(jnp.finfo(profit.dtype).eps)
        tolerance = rounding * (weight * earned + jnp.abs(multipliers).sum() * spent + (1 - weight))
        pays = profit > tolerance
        entered, place = simplex.enter(basis, column)
        entered = simplex.settle(entered)
        basis = jax.tree.map(lambda new, old: jnp.where(pays, new, old), entered, basis)
        place = pays & place

        reward_weight, total = prices[0], prices[1:].sum()
        optimum = search.optimum.improved(
            plan.value / jnp.where(reward_weight > 0, reward_weight, 1),
            prices[1:] / jnp.where(reward_weight > 0, reward_weight, 1),
            reward_weight > 0,
        )
        margin = search.margin.improved(
            plan.value / jnp.where(total > 0, total, 1),
            prices[1:] / jnp.where(total > 0, total, 1),
            (reward_weight == 0) & (total > 0),
        )
        value = (simplex.weights(basis) * basis.rewards).sum()
        closed = basis.feasible & (optimum.bound - value <= rounding * earned)
        return _Search(
            basis=basis,
            occupancies=jnp.where(
                _over(place, search.occupancies), plan.occupancy[None], search.occupancies
            ),
            prices=jnp.where(place[:, None], prices[None], search.prices),
            optimum=optimum,
            margin=margin,
            calls=search.calls + 1,
            ended=closed | (~pays & ~is_given),
        )

    def conclude(self, search: _Search) -> ConstrainedPlan:
        basis = search.basis
        shares = jnp.where(basis.is_policy, simplex.weights(basis), 0)
        shares = shares / jnp.where(shares.sum() > 0, shares.sum(), 1)
        occupancy = (_over(shares, search.occupancies) * search.occupancies).sum(0)
        pairs = jax.vmap(Model.to_pairs)(self.model, occupancy)
        value = (self.reward * pairs).sum()
        violation = (self.constraints * pairs[None]).sum((1, 2, 3)).max()
        feasible = basis.feasible
        multipliers = jnp.where(feasible, search.optimum.multipliers, search.margin.multipliers)
        gap = jnp.where(feasible, search.optimum.bound - value, violation + search.margin.bound)
        sound, present = self.sound, jax.vmap(Model.present)(self.model)

        def known(x: Array) -> Array:
            return jnp.where(sound, x, jnp.nan)

        return ConstrainedPlan(
            value=known(value),
            occupancy=jnp.where(sound | ~present, occupancy, jnp.nan),
            multipliers=known(multipliers),
            gap=known(gap),
            feasible=feasible & sound,
            violation=known(violation),
            prices=_policies_first(basis.is_policy, search.prices),
            calls=search.calls,
        )


def _policies_first(is_policy: Array, prices: Array) -> Array:
    """The rows of the policies, those for the reward before those for constraints alone."""
    rank = jnp.where(is_policy, jnp.where(prices[:, 0] > 0, 0, 1), 2)
    return jnp.where(is_policy[:, None], prices, 0)[jnp.argsort(rank, stable=True)]


def _over(positions: Array, like: Array) -> Array:
    """The numbers of the positions, with axes for the triples."""
    return positions.reshape(-1, *(1,) * (like.ndim - 1))
