"""The table of quantities: name, computation, and where each one is shown.

The Dataset, the summary of `pdgd run`, the figures, the report and the help texts read
`QUANTITIES`. A new metric is one entry here. Its `of_run` computes it, or reads a result of
`evaluate` or of the simulation.

Example:
  >>> from pdgd_jax.results import QUANTITIES
  >>> QUANTITIES["regret"].units, QUANTITIES["regret"].label, QUANTITIES["opt"].column.name
  ('reward', 'regret', 'OPT per episode')
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pdgd_jax._internal.typing import NDArray
from pdgd_jax.results._certificates import Status
from pdgd_jax.results._evaluation import Evaluation
from pdgd_jax.results._quantity import ROUNDING, Column, Curve, OfRun, Quantity, Row
from pdgd_jax.simulation import History

if TYPE_CHECKING:
    import xarray

__all__ = ["QUANTITIES", "last_tenth", "quantity_of"]


# How quantities are computed from runs.


def _of_history(name: str) -> OfRun:
    return lambda history, _: getattr(history, name)


def _of_metrics(name: str) -> OfRun:
    return lambda history, _: getattr(history.metrics, name)


def _of_evaluation(name: str) -> OfRun:
    return lambda _, evaluation: getattr(evaluation, name)


def _of_certificates(name: str) -> OfRun:
    return lambda _, evaluation: np.stack(
        [getattr(certificate, name) for certificate in evaluation.certificates], -1
    )


def _radius(history: History, _: Evaluation) -> Any:
    """The radius; NaN for a learner without a confidence set."""
    radius = history.metrics.radius
    if history.setting is None or history.setting.confidence_scale is None:
        return np.full_like(np.asarray(radius), np.nan)
    return radius


def _policy(history: History, _: Evaluation) -> Any:
    """The last policy; NaN where there is no such state or action."""
    policy = np.asarray(history.policy)
    if history.setting is None:
        return policy
    return np.where(np.asarray(history.setting.layers.action_mask), policy, np.nan)


# What figures draw.


def _average_reward(data: "xarray.Dataset") -> "xarray.DataArray":
    return data["reward"] / data["episode"]


def _iterations_per_episode(data: "xarray.Dataset") -> "xarray.DataArray":
    """The mean over the episodes since the last checkpoint, so that changes are visible."""
    total = data["iterations"].transpose(..., "checkpoint")
    new = np.diff(total.to_numpy().astype(float), prepend=0)
    return total.copy(data=new / np.diff(data["episode"].to_numpy(), prepend=0))


def _positive_residual(data: "xarray.Dataset") -> "xarray.DataArray":
    return data["residual"].where(data["residual"] > 0)  # NaN, not drawn, if nothing was projected


# Values at the end of a run.


def last_tenth(data: "xarray.Dataset") -> NDArray:
    """`[seed]`, the violation per episode in the last tenth of the episodes: has it stopped?

    It is that of the most violated constraint there; sums are interpolated between checkpoints.
    """
    episode = data["episode"].to_numpy().astype(float)
    sums = data["violations"].transpose("seed", "constraint", "checkpoint").to_numpy()
    begin = 0.9 * episode[-1]
    before = [[np.interp(begin, episode, one, left=0) for one in seed] for seed in sums]
    each = (sums[..., -1] - np.array(before)) / (episode[-1] - begin)
    each[np.abs(each) < ROUNDING.get(str(sums.dtype), 0.0)] = 0
    worst = np.where(np.isnan(each), -np.inf, each).max(-1)
    return np.where(np.isinf(worst), np.nan, worst)


# When they are printed: a learner without multipliers or epochs has zeros.


def _is_adversarial(facts: Mapping[str, Any]) -> bool:
    return "adversarial" in facts.get("constraints_process", "")


def _differs_from_regret(facts: Mapping[str, Any]) -> bool:
    """Whether an adversary makes the dynamic regret another number than the regret."""
    kinds = facts.get("constraints_process", "") + facts.get("rewards_process", "")
    return "adversarial" in kinds


def _has_multipliers(facts: Mapping[str, Any]) -> bool:
    """Whether the learner has multipliers, even if they stayed 0 since nothing was violated."""
    promised = [c for c in facts["certificates"] if c["name"] == "multipliers in their box"]
    applied = any(c["holds"] + c["fails"] + c["vacuous"] for c in promised)
    return applied or facts["largest_multiplier"]["mean"] > 0


_LATER = ("checkpoint",)
_EACH = ("checkpoint", "constraint")
_JUDGED = ("certificate",)
_TABLE = (
    Quantity(
        "reward", _LATER, "cumulative reward, expected given the policies", "reward",
        _of_history("reward"),
        key="reward",
        curve=Curve("average reward", "per episode", _average_reward, needs=("opt",), panel=5),
        column=Column(
            "reward per episode", True, about="expected reward, the mean over all episodes"
        ),
        row=Row("reward"),
    ),
    Quantity(
        "sampled_reward", _LATER, "cumulative reward of the sampled episodes", "reward",
        _of_history("sampled_reward"),
        key="sampled_reward",
    ),
    Quantity(
        "opt", _LATER, "optimum of the episodes so far", "reward per episode",
        _of_evaluation("opt"),
        evaluated=True,
        column=Column("OPT per episode"),
    ),
    Quantity(
        "regret", _LATER, "cumulative regret", "reward",
        _of_evaluation("regret"),
        evaluated=True, is_sum=True, key="regret",
        curve=Curve("regret", own_words=True, zero_line=True, panel=1),
        column=Column("regret"),
        row=Row("regret"),
    ),
    Quantity(
        "alpha_regret", _LATER, "cumulative alpha-regret", "reward",
        _of_evaluation("alpha_regret"),
        evaluated=True, is_sum=True, key="alpha_regret",
        curve=Curve(
            "alpha-regret", figure="regret", own_words=True, zero_line=True, panel=0
        ),
        # The paper's promise for adversarial constraints; without a margin it is empty.
        row=Row(
            lambda facts: f"alpha-regret, alpha = {facts['alpha']:.3g}",
            when=lambda facts: _is_adversarial(facts) and facts["alpha"] > 0,
        ),
    ),
    Quantity(
        "strong_regret", _LATER, "positive parts of the regret of each episode so far", "reward",
        _of_evaluation("strong_regret"),
        evaluated=True, is_sum=True, key="strong_regret", optional=True,
        curve=Curve("strong regret", own_words=True, zero_line=True),
        column=Column("strong regret"),
        row=Row("strong regret", False),
    ),
    Quantity(
        "dynamic_regret", _LATER, "cumulative regret against the optimum of each episode", "reward",
        _of_evaluation("dynamic_regret"),
        evaluated=True, is_sum=True, key="dynamic_regret", optional=True,
        curve=Curve("dynamic regret", own_words=True, zero_line=True),
        column=Column("dynamic regret"),
        row=Row("dynamic regret", False, _differs_from_regret),
    ),
    Quantity(
        "dynamic_reason", (), "why the dynamic regret is not known", "1",
        _of_evaluation("dynamic_reason"), evaluated=True,
    ),
    Quantity(
        "k_regret", _LATER, "cumulative regret against the best policy of every window", "reward",
        _of_evaluation("k_regret"),
        evaluated=True, is_sum=True, key="k_regret", optional=True,
        curve=Curve("window regret", own_words=True, zero_line=True),
        column=Column("regret over windows"),
        row=Row("regret over windows", False),
    ),
    Quantity(
        "window", (), "length of the windows of the benchmark, if any", "episodes",
        _of_evaluation("window"), evaluated=True,
    ),
    Quantity(
        "violation", _LATER, "cumulative violation of the worst constraint", "cost",
        _of_evaluation("violation"),
        evaluated=True, is_sum=True, key="violation",
        curve=Curve("violation", own_words=True, zero_line=True, panel=2),
        column=Column("violation"),
        row=Row("violation, worst constraint"),
    ),
    Quantity(
        "violations", _EACH, "cumulative violation", "cost",
        _of_evaluation("violations"),
        evaluated=True,
        column=Column(
            "violation per episode, last tenth", of=last_tenth,
            about="violation, the mean over the last tenth of the episodes: has it stopped?",
        ),
    ),
    Quantity(
        "positive_violation", _EACH, "positive violation so far, of the mean or as shown", "cost",
        _of_evaluation("positive_violation"),
        evaluated=True, is_sum=True, key="positive_violation",
        curve=Curve("positive violation", own_words=True, zero_line=True, panel=3),
        column=Column("positive violation"),
        row=Row(
            lambda facts: "violation, positive parts "
            + ("as shown" if _is_adversarial(facts) else "of the mean")
        ),
    ),
    Quantity(
        "feasibility", _LATER, "share of the episodes so far that satisfied all constraints", "1",
        _of_evaluation("feasibility"),
        evaluated=True, key="feasibility",
        curve=Curve("feasible episodes", own_words=True),
        column=Column("feasible episodes"),
        row=Row("share of feasible episodes", False),
    ),
    Quantity(
        "multipliers", _EACH, "Lagrange multipliers", "reward per cost",
        _of_metrics("multipliers"),
        each_constraint=True, key="multipliers",
        curve=Curve("multipliers λ", symbol=r"\lambda", zero_is_none=True, panel=4),
        column=Column("multiplier, last"),
        row=Row("multiplier", False, _has_multipliers),
    ),
    Quantity(
        "largest_multiplier", _LATER, "largest sum of the multipliers so far", "reward per cost",
        _of_metrics("largest_multiplier"),
        key="largest_multiplier",
        column=Column("multipliers, largest so far"),
    ),
    Quantity(
        "model_error", _LATER, "cumulative distance of believed and true occupancy", "1",
        _of_history("model_error"),
        key="model_error",
    ),
    Quantity(
        "radius", _LATER, "mean confidence radius over pairs", "1",
        _radius,
        curve=Curve("confidence radius", "L1, mean", panel=6),
        column=Column("confidence radius", inner=True),
    ),
    Quantity(
        "epoch", _LATER, "epoch of the confidence set", "1",
        _of_metrics("epoch"),
        key="epochs",
        row=Row("epochs", False, lambda facts: facts["epochs"]["mean"] > 0),
    ),
    Quantity(
        "covered", _LATER, "whether the true transitions were in every set", "1",
        _of_metrics("covered"),
    ),
    Quantity(
        "iterations", _LATER, "iterations of all projections", "1",
        _of_history("iterations"),
        curve=Curve(
            "iterations", "per episode", _iterations_per_episode,
            figure="solver", zero_is_none=True, inner=True, panel=7,
        ),
        column=Column(
            "iterations per episode", True, inner=True,
            about="iterations of a projection, the mean over all episodes",
        ),
    ),
    Quantity(
        "residual", _LATER, "largest residual of a projection", "1",
        _of_metrics("residual"),
        curve=Curve(
            "residual", "largest so far", _positive_residual,
            figure="solver", logarithmic=True, inner=True, panel=8,
        ),
        column=Column("largest residual", inner=True),
    ),
    Quantity(
        "most_iterations", _LATER, "most iterations of one projection", "1",
        _of_metrics("most_iterations"),
    ),
    Quantity(
        "unconverged", _LATER, "projections that did not converge", "1",
        _of_metrics("unconverged"),
    ),
    Quantity(
        "certificate_measured", _JUDGED, "what a guarantee is about, measured", "1",
        _of_certificates("measured"), evaluated=True,
    ),
    Quantity(
        "certificate_bound", _JUDGED, "what the guarantee allows", "1",
        _of_certificates("bound"), evaluated=True,
    ),
    Quantity(
        "certificate_trivial", _JUDGED, "largest value that any learner could reach", "1",
        _of_certificates("trivial"), evaluated=True,
    ),
    Quantity(
        "certificate_status", _JUDGED, "holds, fails, vacuous or does not apply", "1",
        _of_certificates("status"), evaluated=True,
        absent=Status.IDLE.value,
    ),
    Quantity(
        "certificate_reason", _JUDGED, "why a guarantee does not apply", "1",
        _of_certificates("reason"), evaluated=True,
        absent="a guarantee for another kind of rewards or constraints",
    ),
    Quantity(
        "rho", (), "margin of the constraints, or a lower bound", "cost per episode",
        _of_evaluation("rho"), evaluated=True,
    ),
    Quantity(
        "rho_upper", (), "upper bound of the margin, the same where it is known",
        "cost per episode", _of_evaluation("rho_upper"), evaluated=True,
    ),
    Quantity(
        "alpha", (), "share of the optimum that is promised, rho / (L + rho)", "1",
        _of_evaluation("alpha"), evaluated=True,
    ),
    Quantity(
        "policy", ("layer", "state", "action"), "policy after the last episode", "probability",
        _policy,
    ),
)  # fmt: skip

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _TABLE}


def quantity_of(name: str, dataset: "xarray.Dataset") -> Quantity:
    """Look up a quantity; raise if the results do not hold it."""
    quantity = QUANTITIES[name]
    missing = [variable for variable in quantity.needs if variable not in dataset]
    if missing:
        raise ValueError(
            f"these results do not hold {missing[0]!r}, which this figure draws: give it the "
            "Dataset of sweep(...), open_results(...) or dataset_of(history, evaluation)."
        )
    return quantity
