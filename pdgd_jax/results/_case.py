"""The facts about a finished run that the guarantees of the paper need."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from pdgd_jax import oracle, theory
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import CMDP
from pdgd_jax.processes import Foresight, StochasticProcess, foresight
from pdgd_jax.simulation import History

__all__ = ["Case", "Margin", "OptOfWindows", "case_of", "dependence_of"]


# The optimum over windows of a length of the episodes of a run.
OptOfWindows: TypeAlias = Callable[[int, History], float]


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
    kind: str  # of a rival, whose guarantees hold
    constants: dict[str, float]  # of the rival's algorithm
    descent: theory.Descent | None  # how the rival descends; None if it makes no promise
    pairs: int
    precise: bool  # float64
    scale: float  # of the confidence radii
    no_promise: str
    no_multipliers: str
    no_player: str  # neither PDGD-OPS nor a rival
    knows: bool  # the transitions
    no_estimate: str  # of the transitions, with a promise
    not_ended: str
    other_radii: str
    not_covered: str
    infeasible: str
    hindsight: str  # why q* depends on what was drawn
    lists: str  # successor lists, on which a start is not uniform over the triples
    regret_of_windows: Callable[[int], tuple[float, str]]  # or why it is not known

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
    opt_of_windows: OptOfWindows,
) -> Case:
    """The facts about a run, whose arguments are those of `certificates_of`."""
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
    kind = "" if setting is None else setting.kind
    no_player = no_promise if not kind else ""
    knows = setting is not None and setting.knows_transitions
    problem, constants = _problem(cmdp, run, horizon), _constants_of(run)
    return Case(
        problem=problem,
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
        kind=kind,
        constants=constants,
        descent=_descent_of(cmdp, kind, constants),
        pairs=int(np.asarray(cmdp.layers.action_mask).sum()),
        precise=cmdp.mdp.transition.dtype == jnp.float64,
        scale=scale,
        no_promise=no_promise,
        no_multipliers=no_promise or ("" if dual else "the learner has no multipliers"),
        no_player=no_player,
        knows=knows,
        no_estimate=no_promise or ("the transitions are known" if knows else ""),
        not_ended="" if played == horizon else f"the run stopped before its {horizon} episodes",
        other_radii="" if scale == 1 else f"radii were scaled by {scale:g}",
        not_covered="" if last.covered else "the true transitions left the confidence set",
        infeasible="" if np.isfinite(opt) else "no policy satisfies the constraints",
        hindsight=_why_hindsight_depends(cmdp, dependence),
        lists="" if cmdp.layers.successors is None else "the start is not uniform over the lists",
        regret_of_windows=partial(_regret_of_windows, opt_of_windows, run, ends["reward"]),
    )


def _regret_of_windows(
    opt_of_windows: OptOfWindows, run: History, reward: float, window: int
) -> tuple[float, str]:
    """The regret over the best policy of every window, or why it is not known."""
    try:
        opt = opt_of_windows(window, run)
    except oracle.UnforeseenError as error:
        return float("nan"), str(error)
    reason = "" if np.isfinite(opt) else "no policy satisfies the constraints of every window"
    return float(run.episode[-1] * opt - reward), reason


def _why_hindsight_depends(cmdp: CMDP, dependence: tuple[Foresight, Foresight]) -> str:
    """Averages approach their means only at a fixed q*, but policies depend on the draws."""
    rewards, constraints = dependence
    sentence = "the {} depend on the policies, and so does q* in hindsight"
    if rewards.policy and isinstance(cmdp.constraints, StochasticProcess):
        return sentence.format("rewards")
    if constraints.policy and isinstance(cmdp.rewards, StochasticProcess):
        return sentence.format("constraints")
    return ""


def _constants_of(run: History) -> dict[str, float]:
    """The constants of a rival; the step sizes of both players are "step" and "dual_step"."""
    setting = run.setting
    if setting is None or not setting.kind:
        return {}
    found = {name: float(value) for name, value in setting.constants.items()}
    if "V" in found:
        found["dual_step"] = 1 / found["V"]
        # A step of V / alpha, but the squared distance of the Euclidean players has no factor 1/2.
        factor = 1 if setting.kind == "ucpd" else 2
        found["step"] = found["V"] / (factor * found["alpha"])
    return found


def _descent_of(cmdp: CMDP, kind: str, constants: dict[str, float]) -> theory.Descent | None:
    """How a rival descends; None without a constant step."""
    if "step" not in constants:
        return None
    step, mask = constants["step"], np.asarray(cmdp.layers.action_mask)
    sizes, L = cmdp.layers.sizes, len(cmdp.layers.sizes) - 1
    if kind in ("queues", "unifying-euclidean"):
        return theory.Descent(step, float(L), float(mask.sum()))
    if kind in ("o-reps", "unifying-entropic"):
        reach = theory.entropy_to_start(mask[k].sum() for k in range(L))
    else:
        most = [mask[k].sum(-1).max() for k in range(L)]
        reach = theory.entropy_to_start(sizes[k] * most[k] * sizes[k + 1] for k in range(L))
    # The losses of a learner without constraints have one sign.
    spread = 1.0 if kind in ("o-reps", "uc-o-reps") else 2.0
    mixing = constants.get("mixing", 0.0)
    return theory.Descent(step, reach, L * spread**2 / 4, spread, mixing)


def _problem(cmdp: CMDP, run: History, horizon: int) -> theory.Problem:
    layers, setting = cmdp.layers, run.setting
    sizes = layers.sizes
    delta = primal = dual = float("nan")
    knows = setting is not None and setting.knows_transitions
    if setting is not None and setting.delta is not None:
        delta = float(setting.delta)
    if setting is not None and setting.rates is not None:
        primal, dual = float(setting.rates.primal), float(setting.rates.dual)
    return theory.Problem(
        num_layers=len(sizes) - 1,
        num_states=sum(sizes),
        num_actions=int(layers.num_actions),
        dimension=int(layers.action_mask.sum() if knows else layers.num_triples),
        num_constraints=cmdp.num_constraints,
        num_episodes=horizon,
        delta=delta,
        primal=primal,
        dual=_constants_of(run).get("dual_step", dual),
        known=knows,
    )


def dependence_of(cmdp: CMDP) -> tuple[Foresight, Foresight]:
    """What rewards and constraints depend on, besides the number of the episode."""
    shape, dtype = cmdp.layers.shape, cmdp.mdp.transition.dtype
    return foresight(cmdp.rewards, shape, dtype), foresight(cmdp.constraints, shape, dtype)
