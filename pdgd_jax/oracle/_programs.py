"""The offline optimum and the feasibility margin: one linear program each, or a few.

Up to `MOST_PAIRS` pairs there is one linear program; beyond, policies are generated as columns.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # loads its parts when they are used: half a second
from jaxtyping import Array, ArrayLike, Float, Key, PyTree

from pdgd_jax._internal.columns import LayeredFlow, most_feasible, most_rewarding
from pdgd_jax._internal.sums import Compensated
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import CMDP, LayeredMDP, Outcome
from pdgd_jax.processes import (
    CONSTRAINT_BOUNDS,
    REWARD_BOUNDS,
    Process,
    StochasticProcess,
    check_range,
)

__all__ = [
    "OPTIONS",
    "Flow",
    "Optimum",
    "SlaterMargin",
    "best_of",
    "hindsight",
    "optimum",
    "slater_margin",
]


class Optimum(NamedTuple):
    r"""The answer to $\mathrm{OPT}_{r,G} = \max_{q \in \Delta(M)} r^\top q$ s.t. $G^\top q \le 0$.

    Attributes:
      value: $\mathrm{OPT}_{r,G}$; minus infinity if no policy satisfies the constraints.
      occupancy: over the triples, as in the layers, an optimal $q^*$; NaN if infeasible.
      multipliers: `[m]`, optimal Lagrange multipliers, not negative; NaN if infeasible.
      status: "optimal" or "infeasible".
    """

    value: float
    occupancy: Float[NDArray, "layers *triples"]
    multipliers: Float[NDArray, " m"]
    status: Literal["optimal", "infeasible"]

    @property
    def feasible(self) -> bool:
        """Whether some policy satisfies the constraints."""
        return self.status == "optimal"


class SlaterMargin(NamedTuple):
    r"""The margin by which the most feasible policy satisfies the constraints.

    Attributes:
      rho: $\rho = \max_{q \in \Delta(M)} \min_i -[G^\top q]_i$; for adversarial constraints the
        minimum is also over all episodes. Negative if no policy satisfies them all.
      occupancy: over the triples, as in the layers, the $q^\circ$ that attains it.
      exact: whether `rho` is this number. If not, the constraints depend on chance or on the
        policies to come, and `rho` is a lower bound: the margin for the worst of them.
    """

    rho: float
    occupancy: Float[NDArray, "layers *triples"]
    exact: bool = True

    @property
    def feasible(self) -> bool:
        """Whether some policy satisfies the constraints (without margin if rho is 0)."""
        return self.rho >= -FEASIBILITY


# The default of HiGHS is 1e-7; 1e-10 is the smallest tolerance it accepts.
FEASIBILITY = 1e-10
OPTIONS = {
    "primal_feasibility_tolerance": FEASIBILITY,
    "dual_feasibility_tolerance": FEASIBILITY,
}
# Beyond, HiGHS takes seconds on one program over all pairs, then minutes, and at last fails.
MOST_PAIRS = 5000


def optimum(
    mdp: LayeredMDP,
    reward: Float[ArrayLike, "layers states actions"],
    constraints: Float[ArrayLike, "m layers states actions"] | None = None,
) -> Optimum:
    r"""Solve $\mathrm{LP}_{r,G}$: find the best policy that satisfies the constraints.

    Args:
      mdp: one MDP.
      reward: `[L, S, A]`, $\bar r$.
      constraints: `[m, L, S, A]`, $\bar G$; None for the unconstrained optimum.

    Returns:
      The optimum. An infeasible problem raises no error; it has `status == "infeasible"`.

    Example:
      >>> from pdgd_jax import make, oracle
      >>> cmdp = make("random")
      >>> best = oracle.optimum(cmdp.mdp, cmdp.rewards.mean(), cmdp.constraints.mean())
      >>> free = oracle.optimum(cmdp.mdp, cmdp.rewards.mean())
      >>> best.status, best.value < free.value
      ('optimal', True)
    """
    flow = Flow(mdp)
    objective = flow.pairs_of("reward", reward, REWARD_BOUNDS)
    G = np.zeros((0, flow.num_pairs))
    if constraints is not None:
        G = flow.pairs_of("constraints", constraints, CONSTRAINT_BOUNDS)
    return best_of(flow, objective, G)


def best_of(
    flow: "Flow", objective: Float[NDArray, " pairs"], G: Float[NDArray, "rows pairs"]
) -> Optimum:
    """The best policy for a reward of each pair, whose cost is at most 0 in every row."""
    if not flow.is_small:
        found = most_rewarding(flow.layered(), objective, G, OPTIONS)
        if found is None:
            return flow.infeasible(len(G))
        return Optimum(
            found.value, flow.occupancy_of(found.occupancy), found.multipliers, "optimal"
        )
    solution = scipy.optimize.linprog(
        -objective,
        A_ub=G if len(G) else None,
        b_ub=np.zeros(len(G)) if len(G) else None,
        A_eq=flow.matrix,
        b_eq=flow.source,
        bounds=(0, None),
        method="highs",
        options=OPTIONS,
    )
    if solution.status == 2:
        return flow.infeasible(len(G))
    require_success(solution)
    multipliers = np.maximum(-solution.ineqlin.marginals, 0) if len(G) else np.zeros(0)
    return Optimum(float(-solution.fun), flow.occupancy_of(solution.x), multipliers, "optimal")


def slater_margin(
    mdp: LayeredMDP,
    constraints: Float[ArrayLike, "*episodes m layers states actions"] | Process,
    num_episodes: int | None = None,
) -> SlaterMargin:
    r"""The feasibility margin $\rho$ of the paper, and the policy that attains it.

    Args:
      mdp: one MDP.
      constraints: the mean `[m, L, S, A]` of stochastic constraints, all episodes
        `[T, m, L, S, A]` of adversarial ones, or a process of either kind.
      num_episodes: for an adversary, count only the first `num_episodes` episodes; all by default.

    Returns:
      The margin. For an adversary that depends on chance or on policies it is a lower bound, and
      `exact` is false. With many episodes only the binding constraints enter the linear program:
      the most violated ones are added until none is violated.

    Example:
      >>> from pdgd_jax import make, oracle
      >>> cmdp = make("random")
      >>> oracle.slater_margin(cmdp.mdp, cmdp.constraints).rho > 0
      True
    """
    values, exact = _worst_of(constraints, num_episodes)
    flow = Flow(mdp)
    # [rows, pairs]: one minimum over both episodes and constraints.
    rows = flow.pairs_of("constraints", values, CONSTRAINT_BOUNDS).reshape(-1, flow.num_pairs)
    if len(rows) == 0:
        raise ValueError("rho needs at least one constraint; there are none (m = 0).")
    if not flow.is_small:
        found = most_feasible(flow.layered(), rows, OPTIONS)
        return SlaterMargin(_rounded(found.value), flow.occupancy_of(found.occupancy), exact)

    # Unknowns: the occupancy of each pair, then rho itself.
    objective = np.append(np.zeros(flow.num_pairs), -1.0)
    no_margin = scipy.sparse.csr_matrix((flow.matrix.shape[0], 1))
    equalities = scipy.sparse.hstack([flow.matrix, no_margin], format="csr")
    bounds = [(0, None)] * flow.num_pairs + [(None, None)]
    active = np.unique(
        np.argmax(rows, axis=0)
    )  # the worst row of each pair: a start that often suffices
    while True:
        solution = scipy.optimize.linprog(
            objective,
            A_ub=np.column_stack([rows[active], np.ones(len(active))]),
            b_ub=np.zeros(len(active)),
            A_eq=equalities,
            b_eq=flow.source,
            bounds=bounds,
            method="highs",
            options=OPTIONS,
        )
        require_success(solution)
        margin = solution.x[-1]
        excess = rows @ solution.x[:-1] + margin
        excess[active] = -np.inf
        worst = np.argsort(excess)[-_ROWS_PER_ROUND:]
        violated = worst[excess[worst] > 1e-9]
        if len(violated) == 0:
            return SlaterMargin(_rounded(margin), flow.occupancy_of(solution.x[:-1]), exact)
        active = np.concatenate([active, violated])


def _rounded(margin: float) -> float:
    """A margin in the precision of the linear program."""
    return 0.0 if abs(margin) < FEASIBILITY else float(margin)


# Up to this many episodes are checked one by one; beyond, all values of the process count.
_MOST_EPISODES = 2**27


def _worst_of(constraints: ArrayLike | Process, num_episodes: int | None) -> tuple[NDArray, bool]:
    """The constraints `[*n, m, L, S, A]` that bound the margin, and whether the bound is exact."""
    if not isinstance(constraints, Process):
        return np.asarray(constraints), True
    if isinstance(constraints, StochasticProcess):
        return np.asarray(constraints.mean()), True
    if num_episodes is None or num_episodes > _MOST_EPISODES:
        found = constraints.extremes(None)
        return np.asarray(found.values), found.exact and num_episodes is None
    found = constraints.extremes(np.arange(num_episodes, dtype=np.int32))
    return np.asarray(found.values), found.exact


def hindsight(
    cmdp: CMDP,
    num_episodes: int,
    key: Key[Array, ""] | None = None,
    policy: Float[Array, "layers states actions"] | None = None,
) -> Outcome:
    r"""The averages $\bar r$ and $\bar G$ that a run of $T$ episodes is measured against.

    For a stochastic process this is its mean, for an adversary the average of its $T$ episodes. If
    the adversary depends on chance or on policies, these are the episodes of one key against one
    policy, and those of another run differ.

    Args:
      cmdp: one CMDP.
      num_episodes: $T$.
      key: the key of a random adversary; `jax.random.key(0)` by default.
      policy: the policy that an adaptive adversary sees in every episode; uniform by default.
    """
    cmdp.check_lasts(num_episodes)
    reward, constraints = cmdp.rewards, cmdp.constraints
    if isinstance(reward, StochasticProcess) and isinstance(constraints, StochasticProcess):
        return Outcome(reward.mean(), constraints.mean())
    key = jax.random.key(0) if key is None else key
    dtype = cmdp.mdp.transition.dtype
    policy = cmdp.layers.uniform_policy(dtype) if policy is None else policy
    totals = jax.jit(_totals)(cmdp, key, policy, num_episodes)
    averages = [jnp.asarray(total.total() / num_episodes, dtype) for total in totals]
    return Outcome(
        *[
            process.mean() if isinstance(process, StochasticProcess) else average
            for process, average in zip((reward, constraints), averages, strict=True)
        ]
    )


def _totals(cmdp: CMDP, key: Array, policy: Array, num_episodes: Array) -> list[Compensated]:
    """The sums over all episodes: rewards, then constraints."""
    init_key, draw_key = jax.random.split(key)
    dtype, shape = policy.dtype, cmdp.layers.shape
    none = [Compensated.zeros(s, dtype) for s in (shape, (cmdp.num_constraints, *shape))]

    def episode(
        t: Array, carry: tuple[list[Compensated], PyTree]
    ) -> tuple[list[Compensated], PyTree]:
        totals, state = carry
        outcome, state = cmdp.draw(jax.random.fold_in(draw_key, t), state, t, policy)
        return [total.add(new) for total, new in zip(totals, outcome, strict=True)], state

    totals, _ = jax.lax.fori_loop(0, num_episodes, episode, (none, cmdp.init(init_key)))
    return totals


# Large enough for few rounds, small enough for cheap rounds.
_ROWS_PER_ROUND = 64


class Flow:
    """Flow conservation over the valid pairs (x, a), as a sparse matrix."""

    def __init__(self, mdp: LayeredMDP) -> None:
        self.layers = mdp.layers
        if mdp.layers.action_mask.ndim != 3:
            raise ValueError(
                f"the oracle takes one MDP; this one has transitions {mdp.transition.shape}. "
                "Solve stacked instances one by one."
            )
        mask: NDArray = np.asarray(mdp.layers.action_mask)
        L, S, A = mask.shape
        self.mask = mask
        # Rows that sum to 1 only in float32 would violate the flow balance of the LP.
        transition = np.asarray(mdp.transition).astype(np.float64)
        total = mdp.layers.rows_on_host(transition).sum(-1)
        total = mdp.layers.spread_on_host(np.where(total > 0, total, 1))
        self.transition = transition / total
        self.num_pairs = int(mask.sum())
        decides: NDArray = np.asarray(mask.any(-1))  # [L, S]
        row_of = np.cumsum(decides.reshape(-1)).reshape(decides.shape) - 1
        column_of = np.cumsum(mask.reshape(-1)).reshape(L, S * A) - 1
        of_layer, of_state, _ = np.nonzero(mask)
        outflow = scipy.sparse.coo_matrix(
            (np.ones(self.num_pairs), (row_of[of_layer, of_state], np.arange(self.num_pairs))),
            shape=(int(decides.sum()), self.num_pairs),
        )
        steps = mdp.layers.steps_on_host(self.transition)
        # Nothing is conserved in the last state.
        after = np.minimum(steps.layer + 1, L - 1)
        inside = (steps.layer + 1 < L) & decides[after, steps.following]
        states, pairs = row_of[after, steps.following], column_of[steps.layer, steps.pair]
        inflow = scipy.sparse.coo_matrix(
            (steps.value[inside], (states[inside], pairs[inside])), shape=outflow.shape
        )
        self.inflow = inflow.tocsr()
        self.matrix = (outflow - inflow).tocsr()
        self.source = np.zeros(outflow.shape[0])
        self.source[row_of[0, 0]] = 1

    def pairs_of(self, name: str, values: ArrayLike, bounds: tuple[float, float]) -> NDArray:
        """The entries of `[..., L, S, A]` at the valid pairs, `[..., pairs]`."""
        array = np.asarray(values)
        if array.shape[-3:] != self.mask.shape:
            raise ValueError(
                f"{name} must have the shape [..., L, S, A] with (L, S, A) = {self.mask.shape} of "
                f"the MDP; got {array.shape}."
            )
        if name == "reward" and array.ndim != 3:
            raise ValueError(f"reward must be [L, S, A]; got the shape {array.shape}.")
        if name == "constraints" and array.ndim == 3:
            array = array[None]
        if not array.size:
            raise ValueError("m = 0: pass None for a problem without constraints.")
        what = "a reward" if name.startswith("reward") else "a constraint"
        check_range(name, np.where(self.mask, array, 0), bounds, what)
        return array[..., self.mask].astype(np.float64)

    @property
    def is_small(self) -> bool:
        """Whether one program over all pairs is solved quickly."""
        return self.num_pairs <= MOST_PAIRS

    def layered(self) -> LayeredFlow:
        """The same for column generation."""
        return LayeredFlow(self.mask, self.inflow)

    def infeasible(self, num_constraints: int) -> Optimum:
        """What there is if no policy satisfies the constraints."""
        nothing = np.full(num_constraints, np.nan)
        return Optimum(-np.inf, np.full(self.transition.shape, np.nan), nothing, "infeasible")

    def occupancy_of(self, pairs: NDArray) -> NDArray:
        """The occupancy over the triples of a solution over pairs."""
        marginal = np.zeros(self.mask.shape)
        marginal[self.mask] = np.maximum(pairs, 0)
        return self.layers.spread_on_host(marginal) * self.transition


def require_success(solution: Any) -> None:
    if solution.status != 0:
        raise RuntimeError(f"HiGHS did not solve the linear program: {solution.message}")
