"""Runs as an `xarray.Dataset`: every number with its name, its axes and its unit."""

import json
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pdgd_jax._internal.pytree import on_host
from pdgd_jax._version import __version__
from pdgd_jax.results._evaluation import Evaluation
from pdgd_jax.simulation import History

if TYPE_CHECKING:
    import xarray

__all__ = ["VARIABLES", "dataset_of", "versions"]

# Of each variable: the axes behind those of the batch, what it is, and its unit.
VARIABLES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "reward": (("checkpoint",), "cumulative reward, expected given the policies", "reward"),
    "sampled_reward": (("checkpoint",), "cumulative reward of the sampled episodes", "reward"),
    "opt": (("checkpoint",), "optimum of the episodes so far", "reward per episode"),
    "regret": (("checkpoint",), "cumulative regret", "reward"),
    "alpha_regret": (("checkpoint",), "cumulative alpha-regret", "reward"),
    "violation": (("checkpoint",), "cumulative violation of the worst constraint", "cost"),
    "violations": (("checkpoint", "constraint"), "cumulative violation", "cost"),
    "positive_violation": (
        ("checkpoint", "constraint"),
        "positive violation so far, of the mean or as shown",
        "cost",
    ),
    "multipliers": (("checkpoint", "constraint"), "Lagrange multipliers", "reward per cost"),
    "largest_multiplier": (
        ("checkpoint",),
        "largest sum of the multipliers so far",
        "reward per cost",
    ),
    "model_error": (("checkpoint",), "cumulative distance of believed and true occupancy", "1"),
    "radius": (("checkpoint",), "mean confidence radius over pairs", "1"),
    "epoch": (("checkpoint",), "epoch of the confidence set", "1"),
    "covered": (("checkpoint",), "whether the true transitions were in every set", "1"),
    "residual": (("checkpoint",), "largest residual of a projection", "1"),
    "iterations": (("checkpoint",), "iterations of all projections", "1"),
    "most_iterations": (("checkpoint",), "most iterations of one projection", "1"),
    "unconverged": (("checkpoint",), "projections that did not converge", "1"),
    "certificate_measured": (("certificate",), "what a guarantee is about, measured", "1"),
    "certificate_bound": (("certificate",), "what the guarantee allows", "1"),
    "certificate_trivial": (("certificate",), "what is not possible to exceed at all", "1"),
    "certificate_status": (("certificate",), "holds, fails, vacuous or does not apply", "1"),
    "certificate_reason": (("certificate",), "why a guarantee does not apply", "1"),
    "rho": ((), "margin of the constraints, or a lower bound", "cost per episode"),
    "rho_upper": ((), "upper bound of the margin, the same where it is known", "cost per episode"),
    "alpha": ((), "share of the optimum that is promised, rho / (L + rho)", "1"),
    "policy": (("layer", "state", "action"), "policy after the last episode", "probability"),
}


def dataset_of(
    history: History, evaluation: Evaluation, *, dims: Sequence[str] = ("seed",)
) -> "xarray.Dataset":
    """Runs and what they mean, as one Dataset.

    Args:
      history: of runs whose leading axes are `dims`.
      evaluation: of that history.
      dims: what the leading axes are called; `()` for a single run.

    Returns:
      The variables of `VARIABLES`, each with `long_name` and `units`; the coordinate `episode` says
      how many episodes a `checkpoint` has behind it. What a learner does not have, a radius say, is
      NaN, and so is the policy of states and actions that only pad.

    Raises:
      ValueError: if the history has another number of leading axes than `dims`.

    Example:
      >>> import jax
      >>> from pdgd_jax import dataset_of, evaluate, learners, make, run
      >>> cmdp = make("two-phase", num_episodes=100)
      >>> history = run(jax.random.key(0), cmdp, learners.uniform(cmdp.layers), 100, checkpoints=4)
      >>> data = dataset_of(history, evaluate(history, cmdp), dims=())
      >>> data.regret.dims, data.episode.values.tolist()
      (('checkpoint',), [25, 50, 75, 100])
    """
    import xarray  # half a second, which who does not ask for a Dataset need not wait

    batch = np.shape(history.episode)[:-1]
    if len(batch) != len(dims):
        raise ValueError(
            f"the history has {len(batch)} leading axes, of lengths {batch}, but {len(dims)} names "
            f"were given for them: {tuple(dims)}."
        )
    metrics, certificates = history.metrics, evaluation.certificates

    def over_certificates(name: str) -> np.ndarray:
        return np.stack([getattr(certificate, name) for certificate in certificates], -1)

    values: dict[str, Any] = {
        "reward": history.reward,
        "sampled_reward": history.sampled_reward,
        "model_error": history.model_error,
        "iterations": history.iterations,
        "policy": _without_padding(history),
        **{name: getattr(metrics, name) for name in _MEASURED},
        **{name: getattr(evaluation, name) for name in _EVALUATED},
        **{f"certificate_{name}": over_certificates(name) for name in _OF_CERTIFICATES},
    }
    if history.setting is None or history.setting.confidence_scale is None:
        values["radius"] = np.full_like(on_host(metrics.radius), np.nan)
    variables = {
        name: ((*dims, *axes), on_host(values[name]), {"long_name": long_name, "units": units})
        for name, (axes, long_name, units) in VARIABLES.items()
    }
    played = {"long_name": "episodes played", "units": "episodes"}
    coordinates = {
        "episode": ("checkpoint", np.asarray(evaluation.episode), played),
        "certificate": [certificate.name for certificate in certificates],
        "theorem": ("certificate", [certificate.theorem for certificate in certificates]),
        **{dim: np.arange(length) for dim, length in zip(dims, batch, strict=True)},
    }
    return xarray.Dataset(variables, coordinates, {"versions": json.dumps(versions())})


_MEASURED = (
    "multipliers",
    "radius",
    "epoch",
    "covered",
    "residual",
    "most_iterations",
    "unconverged",
    "largest_multiplier",
)
_EVALUATED = (
    "opt",
    "regret",
    "alpha_regret",
    "violation",
    "violations",
    "positive_violation",
    "rho",
    "rho_upper",
    "alpha",
)
_OF_CERTIFICATES = ("measured", "bound", "trivial", "status", "reason")


def _without_padding(history: History) -> np.ndarray:
    """The last policy, NaN where there is no such state or action."""
    policy = on_host(history.policy)
    if history.setting is None:
        return policy
    mask = on_host(history.setting.layers.action_mask)
    return np.where(mask, policy, np.nan)


def versions() -> dict[str, str]:
    """The versions of everything that decides a result."""
    return {
        "pdgd_jax": __version__,
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
