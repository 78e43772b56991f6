"""Large linear programs over the policies of an MDP, by column generation.

The best mixture of the policies found so far is a small linear program. Its multipliers price the
constraints, and backward induction finds the policy that is best at these prices. If it is no
better than the mixture, the mixture is optimal; otherwise it joins the others (Dantzig and Wolfe,
1960). Each round goes once through the transitions, so that hundreds of thousands of pairs take
seconds, where a simplex method over the pairs fails.
"""

import itertools
from typing import NamedTuple

import numpy as np
import scipy

from pdgd_jax._internal.typing import NDArray

__all__ = ["LayeredFlow", "Mixture", "most_feasible", "most_rewarding"]

# How far a mixture may be from the bound, relative to its value.
_GAP = 1e-9
# The constraints are few, and a few dozen rounds suffice.
_MOST_ROUNDS = 2000


class LayeredFlow:
    """Pairs and their transitions, layer by layer.

    Args:
      mask: `[L, S, A]`, which pairs exist. Pairs and states are counted in its order.
      inflow: sparse `[states, pairs]`, the probability that a pair leads to a state.
    """

    def __init__(self, mask: NDArray, inflow: "scipy.sparse.csr_matrix") -> None:
        self.mask, self.steps = mask, inflow.T.tocsr()
        pairs, states = mask.sum((1, 2)), mask.any(-1).sum(1)
        self.pairs = [slice(*ends) for ends in _ranges(pairs)]
        self.states = [slice(*ends) for ends in _ranges(states)]
        self.pair_at = np.cumsum(mask.reshape(-1)).reshape(mask.shape) - 1

    def best_policy(self, weights: NDArray) -> tuple[float, NDArray]:
        """The largest total weight of an episode, and the pair that each state then chooses."""
        num_states = self.steps.shape[1]
        value, chosen = np.zeros(num_states), np.zeros(num_states, np.int64)
        for layer in reversed(range(len(self.mask))):
            pairs, states, mask = self.pairs[layer], self.states[layer], self.mask[layer]
            table = np.full(mask.shape, -np.inf)
            table[mask] = weights[pairs] + self.steps[pairs] @ value
            real = np.flatnonzero(mask.any(-1))
            action = np.argmax(table[real], -1)
            value[states] = table[real, action]
            chosen[states] = self.pair_at[layer, real, action]
        return float(value[0]), chosen

    def occupancy(self, chosen: NDArray) -> NDArray:
        """How often each pair occurs in an episode, `[pairs]`."""
        mass, steps = np.zeros(len(chosen)), self.steps[chosen]
        mass[0] = 1
        for states in self.states[:-1]:
            mass += steps[states].T @ mass[states]
        visits = np.zeros(self.steps.shape[0])
        visits[chosen] = mass
        return visits


def _ranges(counts: NDArray) -> list[tuple[int, int]]:
    ends = np.cumsum([0, *counts]).tolist()
    return list(itertools.pairwise(ends))


class Mixture(NamedTuple):
    """A mixture of policies.

    Attributes:
      value: of the objective.
      occupancy: `[pairs]`.
      multipliers: of the constraints.
    """

    value: float
    occupancy: NDArray
    multipliers: NDArray


class _Columns:
    """Policies, with what each earns and costs."""

    def __init__(self, flow: LayeredFlow, reward: NDArray, costs: NDArray) -> None:
        self.flow, self.reward, self.costs = flow, reward, costs
        self.chosen: list[NDArray] = []
        self.earned: list[float] = []
        self.spent: list[NDArray] = []

    def add(self, chosen: NDArray) -> None:
        visits = self.flow.occupancy(chosen)
        self.chosen.append(chosen)
        self.earned.append(float(self.reward @ visits))
        self.spent.append(self.costs @ visits)

    def mixed(self, weights: NDArray) -> NDArray:
        total = np.zeros(len(self.reward))
        for weight, chosen in zip(weights, self.chosen, strict=True):
            if weight > 0:
                total += weight * self.flow.occupancy(chosen)
        return total


def most_feasible(
    flow: LayeredFlow, costs: NDArray, options: dict[str, float], enough: float = np.inf
) -> Mixture:
    """The mixture with the largest margin, its value: no cost is more than minus this.

    Args:
      flow: the pairs.
      costs: `[m, pairs]`.
      options: of HiGHS.
      enough: stop at a margin of at least this.
    """
    columns = _Columns(flow, np.zeros(costs.shape[1]), costs)
    return _margin(columns, options, enough)


def most_rewarding(
    flow: LayeredFlow, reward: NDArray, costs: NDArray, options: dict[str, float]
) -> Mixture | None:
    """The mixture with the largest reward whose costs, `[m, pairs]`, are not positive.

    None if there is no such mixture.
    """
    if not len(costs):
        value, chosen = flow.best_policy(reward)
        return Mixture(value, flow.occupancy(chosen), np.zeros(0))
    columns = _Columns(flow, reward, costs)
    columns.add(flow.best_policy(reward)[1])
    feasible = _margin(columns, options, enough=0.0)
    if feasible.value < -options["primal_feasibility_tolerance"]:
        return None
    for _ in range(_MOST_ROUNDS):
        mixture = _solved(
            -np.array(columns.earned), np.stack(columns.spent, 1), len(columns.chosen), options
        )
        value, multipliers = -mixture.fun, np.maximum(-mixture.ineqlin.marginals, 0)
        bound, chosen = flow.best_policy(reward - multipliers @ costs)
        if bound - value <= _GAP * max(1.0, abs(value)):
            return Mixture(value, columns.mixed(mixture.x), multipliers)
        columns.add(chosen)
    raise RuntimeError(f"the linear program was not solved in {_MOST_ROUNDS} rounds.")


def _margin(columns: _Columns, options: dict[str, float], enough: float) -> Mixture:
    """`most_feasible`, from the columns there are; those found on the way are added."""
    costs = columns.costs
    m = len(costs)
    columns.add(columns.flow.best_policy(-costs.mean(0))[1])
    for _ in range(_MOST_ROUNDS):
        number = len(columns.chosen)
        # The last unknown is the margin.
        spent = np.column_stack([np.stack(columns.spent, 1), np.ones(m)])
        mixture = _solved(np.append(np.zeros(number), -1.0), spent, number, options)
        margin, prices = float(mixture.x[-1]), np.maximum(-mixture.ineqlin.marginals, 0)
        bound, chosen = columns.flow.best_policy(-(prices @ costs))
        if margin >= enough or bound - margin <= _GAP:
            return Mixture(margin, columns.mixed(mixture.x[:-1]), prices)
        columns.add(chosen)
    raise RuntimeError(f"the linear program was not solved in {_MOST_ROUNDS} rounds.")


def _solved(
    objective: NDArray, spent: NDArray, number: int, options: dict[str, float]
) -> "scipy.optimize.OptimizeResult":
    """Minimise over the weights of `number` policies, and over one free unknown if there is one."""
    free = len(objective) - number
    solution = scipy.optimize.linprog(
        objective,
        A_ub=spent,
        b_ub=np.zeros(len(spent)),
        A_eq=np.append(np.ones(number), np.zeros(free))[None],
        b_eq=np.ones(1),
        bounds=[(0, None)] * number + [(None, None)] * free,
        method="highs",
        options=options,
    )
    if solution.status != 0:
        raise RuntimeError(f"HiGHS did not solve the linear program: {solution.message}")
    return solution
