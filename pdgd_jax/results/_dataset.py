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

# Attributes of the coordinate `probability`.
PROBABILITY = {"long_name": "with which a guarantee holds, at least", "units": "1"}


def dataset_of(
    history: History, evaluation: Evaluation, *, dims: Sequence[str] = ("seed",)
) -> "xarray.Dataset":
    """Combine runs and their evaluation into one Dataset.

    Args:
      history: the history of runs, with leading axes `dims`.
      evaluation: the evaluation of that history.
      dims: the names of the leading axes; `()` for a single run.

    Returns:
      The variables of `QUANTITIES`, each with `long_name` and `units`. The coordinate `episode` is
      the number of episodes played at each `checkpoint`. A quantity that a learner does not have,
      such as a radius, is NaN, and so is the policy in padding states and actions.

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
    import xarray  # takes half a second to import

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
    """The versions of the packages that determine a result."""
    return {
        "pdgd_jax": __version__,
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
