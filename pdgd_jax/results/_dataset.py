"""Runs as an `xarray.Dataset`: every number with its name, its axes and its unit."""

import json
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING

import jax
import numpy as np

from pdgd_jax._version import __version__
from pdgd_jax.results._evaluation import Evaluation
from pdgd_jax.results._quantities import QUANTITIES
from pdgd_jax.simulation import History

if TYPE_CHECKING:
    import xarray

__all__ = ["PROBABILITY", "dataset_of", "versions"]

# Of the coordinate `probability`.
PROBABILITY = {"long_name": "with which a guarantee holds, at least", "units": "1"}


def dataset_of(
    history: History, evaluation: Evaluation, *, dims: Sequence[str] = ("seed",)
) -> "xarray.Dataset":
    """Runs and what they mean, as one Dataset.

    Args:
      history: of runs whose leading axes are `dims`.
      evaluation: of that history.
      dims: what the leading axes are called; `()` for a single run.

    Returns:
      The variables of `QUANTITIES`, each with `long_name` and `units`; the coordinate `episode`
      says how many episodes a `checkpoint` has behind it. What a learner does not have, a radius
      say, is NaN, and so is the policy of states and actions that only pad.

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
    import xarray  # half a second, which only callers of this function wait for

    batch = np.shape(history.episode)[:-1]
    if len(batch) != len(dims):
        raise ValueError(
            f"the history has {len(batch)} leading axes, of lengths {batch}, but {len(dims)} names "
            f"were given for them: {tuple(dims)}."
        )
    certificates = evaluation.certificates
    variables = {
        name: (
            (*dims, *quantity.axes),
            np.asarray(quantity.of_run(history, evaluation)),
            {"long_name": quantity.long_name, "units": quantity.units},
        )
        for name, quantity in QUANTITIES.items()
    }
    played = {"long_name": "episodes played", "units": "episodes"}
    coordinates = {
        "episode": ("checkpoint", np.asarray(evaluation.episode), played),
        "certificate": [certificate.name for certificate in certificates],
        "theorem": ("certificate", [certificate.theorem for certificate in certificates]),
        "about": ("certificate", [certificate.about.value for certificate in certificates]),
        "probability": ("certificate", [c.probability for c in certificates], PROBABILITY),
        **{dim: np.arange(length) for dim, length in zip(dims, batch, strict=True)},
    }
    return xarray.Dataset(variables, coordinates, {"versions": json.dumps(versions())})


def versions() -> dict[str, str]:
    """The versions of everything that decides a result."""
    return {
        "pdgd_jax": __version__,
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
