"""How runs ended, as plain numbers."""

from typing import Any, NamedTuple

import numpy as np

from pdgd_jax._internal.pytree import on_host
from pdgd_jax._internal.text import number_in_words
from pdgd_jax.models import RewardUnits
from pdgd_jax.results._evaluation import Evaluation
from pdgd_jax.simulation import History

__all__ = ["Estimate", "summarise"]

NDArray = np.ndarray[Any, np.dtype[Any]]


class Estimate(NamedTuple):
    """A mean over seeds, with its 95% confidence interval (Student's t).

    Attributes:
      mean: over the seeds.
      half_width: of the interval; NaN for a single seed.
    """

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: NDArray) -> "Estimate":
        """The estimate of one number for each seed."""
        values = np.asarray(values, float)
        count = len(values)
        if count < 2:
            return cls(float(values.mean()), float("nan"))
        from scipy import stats  # half a second to import, which `pdgd --help` need not wait for

        spread = float(values.std(ddof=1)) / np.sqrt(count)
        return cls(float(values.mean()), float(stats.t.ppf(0.975, count - 1) * spread))

    def __str__(self) -> str:
        return self.words()

    def words(self, scale: float = 0.0) -> str:
        """For people; what is nothing beside the scale is 0."""
        mean = number_in_words(self.mean, scale=scale)
        if np.isnan(self.half_width):
            return mean
        return f"{mean} ± {number_in_words(self.half_width, digits=2, scale=scale)}"


def summarise(
    history: History, result: Evaluation, units: RewardUnits | None = None
) -> dict[str, Any]:
    """The end of the runs, as numbers: plain Python, ready for JSON.

    Args:
      history: with one leading axis, the seed.
      result: its evaluation.
      units: of the environment behind the CMDP, if its rewards were rescaled.
    """
    last = history.metrics
    episodes = int(result.episode[-1])
    estimates = {
        "reward": on_host(history.reward)[:, -1],
        "regret": result.regret[:, -1],
        "violation": result.violation[:, -1],
        "positive_violation": result.positive_violation[:, -1].max(-1),
        "alpha_regret": result.alpha_regret[:, -1],
        "model_error": on_host(history.model_error)[:, -1],
        "sampled_reward": on_host(history.sampled_reward)[:, -1],
    }
    multipliers = on_host(history.multipliers)[:, -1]
    facts: dict[str, Any] = {
        "episodes": episodes,
        "seeds": len(multipliers),
        "opt": float(np.mean(result.opt[:, -1])),
        "rho": float(np.min(result.rho)),
        "rho_upper": float(np.max(result.rho_upper)),
        "alpha": float(np.min(result.alpha)),
        **{name: Estimate.of(values)._asdict() for name, values in estimates.items()},
        "multipliers": [Estimate.of(values)._asdict() for values in multipliers.T],
        "epochs": Estimate.of(on_host(last.epoch)[:, -1])._asdict(),
        "iterations_per_episode": float(on_host(history.iterations)[:, -1].mean()) / episodes,
        "most_iterations": int(on_host(last.most_iterations)[:, -1].max()),
        "residual": float(on_host(last.residual)[:, -1].max()),
        "unconverged": int(result.unconverged.sum()),
        "certificates": [
            {
                "name": certificate.name,
                "theorem": certificate.theorem,
                "measured": float(np.max(certificate.measured)),
                "bound": float(np.min(certificate.bound)),
                "probability": certificate.probability,
                "holds": int(certificate.holds.sum()),
                "fails": int(certificate.fails.sum()),
                "vacuous": int(certificate.vacuous.sum()),
                "trivial": _finite_or_none(np.min(certificate.trivial)),
                "reason": next((str(r) for r in certificate.reason if r), ""),
            }
            for certificate in result.certificates
        ],
    }
    if units is not None:  # totals, as `reward` is one
        reward, opt = facts["reward"], episodes * facts["opt"]
        facts["environment"] = {
            "reward": {
                "mean": units.to_environment(reward["mean"], episodes),
                "half_width": units.scale * reward["half_width"],
            },
            "opt": units.to_environment(opt, episodes),
        }
    return facts


def _finite_or_none(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
