"""The facts about a finished run that the guarantees of the paper need."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pdgd_jax import theory
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import CMDP
from pdgd_jax.processes import Foresight, StochasticProcess, foresight
from pdgd_jax.simulation import History

__all__ = ["Case", "Margin", "case_of", "dependence_of"]


class Margin(NamedTuple):
    r"""A lower and an upper bound on $\rho$ of a run."""

    low: float
    high: float

    @property
    def words(self) -> str:
        """Both bounds, for a sentence."""
        return f"between {self.low:.4g} and {self.high:.4g}"


class Case(NamedTuple):
    """A finished run, and why a kind of guarantee does not apply to it; empty where it does."""

    problem: theory.Problem
    run: History
    last: Any  # the metrics at the end
    sums: dict[str, NDArray]  # the cumulative numbers at the end
    margin: Margin
    opt: float
    regret: float
    violation: float
    stochastic_rewards: bool
    stochastic_constraints: bool
    random_rewards: bool
    random_constraints: bool
    certain_transitions: bool  # every pair has a single successor
    precise: bool  # float64
    scale: float  # of the confidence radii
    no_promise: str
    no_multipliers: str
    not_ended: str
    other_radii: str
    not_covered: str
    infeasible: str
    hindsight: str  # why q* depends on what was drawn

    @property
    def rounding(self) -> float:
        """The relative rounding error that a deterministic bound allows for."""
        return 1e-9 if self.precise else 1e-4

    @property
    def played(self) -> int:
        """How many episodes were played."""
        return int(self.run.episode[-1])

    @property
    def most_cost(self) -> float:
        """L T, an upper bound on every reward, violation and deviation."""
        return float(self.problem.num_layers * self.played)


def case_of(
    cmdp: CMDP,
    dependence: tuple[Foresight, Foresight],
    run: History,
    sums: dict[str, NDArray],
    margin: Margin,
    opt: float,
    regret: float,
) -> Case:
    setting, played = run.setting, int(run.episode[-1])
    promises = setting is not None and setting.rates is not None
    dual = setting is not None and setting.num_constraints is not None
    horizon = played
    if setting is not None and setting.num_episodes is not None:
        horizon = int(setting.num_episodes)
    scale = 1.0
    if setting is not None and setting.confidence_scale is not None:
        scale = float(setting.confidence_scale)
    last = jax.tree.map(lambda x: x[-1], run.metrics)
    ends = {name: value[-1] for name, value in sums.items()}
    no_promise = "" if promises else "the learner makes no such promise"
    return Case(
        problem=_problem(cmdp, run, horizon),
        run=run,
        last=last,
        sums=ends,
        margin=margin,
        opt=opt,
        regret=regret,
        violation=float(np.max(ends["violation"])),
        stochastic_rewards=isinstance(cmdp.rewards, StochasticProcess),
        stochastic_constraints=isinstance(cmdp.constraints, StochasticProcess),
        random_rewards=dependence[0].chance,
        random_constraints=dependence[1].chance,
        certain_transitions=max(cmdp.layers.sizes[1:]) == 1,
        precise=cmdp.mdp.transition.dtype == jnp.float64,
        scale=scale,
        no_promise=no_promise,
        no_multipliers=no_promise or ("" if dual else "the learner has no multipliers"),
        not_ended="" if played == horizon else f"the run stopped before its {horizon} episodes",
        other_radii="" if scale == 1 else f"radii were scaled by {scale:g}",
        not_covered="" if last.covered else "the true transitions left the confidence set",
        infeasible="" if np.isfinite(opt) else "no policy satisfies the constraints",
        hindsight=_why_hindsight_depends(cmdp, dependence),
    )


def _why_hindsight_depends(cmdp: CMDP, dependence: tuple[Foresight, Foresight]) -> str:
    """Averages approach their means only at a fixed q*, but policies depend on the draws."""
    rewards, constraints = dependence
    sentence = "the {} depend on the policies, and so does q* in hindsight"
    if rewards.policy and isinstance(cmdp.constraints, StochasticProcess):
        return sentence.format("rewards")
    if constraints.policy and isinstance(cmdp.rewards, StochasticProcess):
        return sentence.format("constraints")
    return ""


def _problem(cmdp: CMDP, run: History, horizon: int) -> theory.Problem:
    layers, setting = cmdp.layers, run.setting
    sizes = layers.sizes
    delta = primal = dual = float("nan")
    if setting is not None and setting.rates is not None and setting.delta is not None:
        delta = float(setting.delta)
        primal, dual = float(setting.rates.primal), float(setting.rates.dual)
    return theory.Problem(
        num_layers=len(sizes) - 1,
        num_states=sum(sizes),
        num_actions=int(layers.num_actions),
        dimension=int(layers.num_triples),
        num_constraints=cmdp.num_constraints,
        num_episodes=horizon,
        delta=delta,
        primal=primal,
        dual=dual,
    )


def dependence_of(cmdp: CMDP) -> tuple[Foresight, Foresight]:
    """What rewards and constraints depend on, besides the number of the episode."""
    shape, dtype = cmdp.layers.shape, cmdp.mdp.transition.dtype
    return foresight(cmdp.rewards, shape, dtype), foresight(cmdp.constraints, shape, dtype)
