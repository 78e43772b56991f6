"""The final values of runs as plain numbers."""

from typing import TYPE_CHECKING, Any

import numpy as np

from pdgd_jax.models import RewardUnits
from pdgd_jax.results._cells import Results, as_dataset, cells_of
from pdgd_jax.results._certificates import Status
from pdgd_jax.results._quantities import QUANTITIES
from pdgd_jax.results._statistics import QUANTILES, Estimate

if TYPE_CHECKING:
    import xarray

__all__ = ["summarise"]


def summarise(results: Results, units: RewardUnits | None = None) -> dict[str, Any]:
    """Summarise the final values of runs in plain Python numbers, ready for JSON.

    Args:
      results: the results of one combination of instance, learner and settings, with any number of
        seeds.
      units: the units of the environment behind the CMDP, if its rewards were rescaled.

    Returns:
      The fields of an `Estimate` for every quantity with a `key` (a list if constraints are shown
      one by one), and facts about all seeds together.

    Raises:
      ValueError: if there are several combinations.
    """
    cells = cells_of(as_dataset(results))
    if len(cells) != 1:
        raise ValueError(f"a summary is of one combination of settings; got {len(cells)}.")
    data = cells[0].data
    episodes = int(data["episode"][-1])
    last = data.isel(checkpoint=-1)
    facts: dict[str, Any] = {
        "episodes": episodes,
        "seeds": data.sizes["seed"],
        "quantiles": list(QUANTILES),
        "opt": Estimate.of(QUANTITIES["opt"].end(data)).median,
        "rho": float(data["rho"].min()),
        "rho_upper": float(data["rho_upper"].max()),
        "alpha": float(data["alpha"].min()),
        **_estimates(data),
        "iterations_per_episode": Estimate.of(QUANTITIES["iterations"].column_of(data)).median,
        "most_iterations": int(last["most_iterations"].max()),
        "residual": float(last["residual"].max()),
        "unconverged": int(last["unconverged"].sum()),
        "certificates": [
            _certificate(data.isel(certificate=number))
            for number in range(data.sizes["certificate"])
        ],
    }
    if units is not None:  # convert totals, since `reward` is a total
        reward = Estimate(**facts["reward"])
        facts["environment"] = {
            "reward": reward.map(lambda x: units.to_environment(x, episodes))._asdict(),
            "opt": units.to_environment(episodes * facts["opt"], episodes),
        }
    return facts


def _estimates(data: "xarray.Dataset") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for quantity in QUANTITIES.values():
        if quantity.key and quantity.name in data:
            ends = quantity.end(data)
            if quantity.optional and np.isnan(ends).any():
                continue
            found[quantity.key] = (
                Estimate.of(ends)._asdict()
                if ends.ndim == 1
                else [Estimate.of(each)._asdict() for each in ends.T]
            )
    return found


def _certificate(one: "xarray.Dataset") -> dict[str, Any]:
    """A guarantee over all seeds: the largest measured value and the smallest bound."""
    status = one["certificate_status"].to_numpy()
    reasons = (str(reason) for reason in one["certificate_reason"].to_numpy())
    return {
        "name": str(one["certificate"].item()),
        "theorem": str(one["theorem"].item()),
        "measured": float(np.max(one["certificate_measured"].to_numpy())),
        "bound": float(np.min(one["certificate_bound"].to_numpy())),
        "probability": float(one["probability"]),
        "holds": int((status == Status.HOLDS).sum()),
        "fails": int((status == Status.FAILS).sum()),
        "vacuous": int((status == Status.VACUOUS).sum()),
        "trivial": _finite_or_none(np.min(one["certificate_trivial"].to_numpy())),
        "reason": next((reason for reason in reasons if reason), ""),
    }


def _finite_or_none(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
