"""Facts about the instances of a report."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pdgd_jax import oracle
from pdgd_jax._internal.text import number_in_words
from pdgd_jax.instances import builder_of
from pdgd_jax.processes import StochasticProcess
from pdgd_jax.sweeps import Configuration

if TYPE_CHECKING:
    import xarray

__all__ = ["Facts", "facts_of"]


class Facts(NamedTuple):
    """An instance of a sweep, in words.

    Attributes:
      label: its label in the sweep.
      make: its registered name.
      about: the first sentence of its description; empty if it is not registered here.
      options: its options in the configuration.
      rho: the range of rho over its runs.
      multipliers: the optimal multipliers of the longest horizon, if means determine them.
    """

    label: str
    make: str
    about: str
    options: dict[str, Any]
    rho: str
    multipliers: str


def facts_of(dataset: "xarray.Dataset", configuration: Mapping[str, Any]) -> list[Facts]:
    """The instances of a configuration, one by one."""
    found = []
    for entry in configuration.get("instance", []):
        label = str(entry.get("label", entry.get("make", "")))
        options = {name: value for name, value in entry.items() if name not in ("make", "label")}
        make = str(entry.get("make", ""))
        found.append(
            Facts(
                label,
                make,
                _about(make),
                options,
                _rho(dataset, label),
                _multipliers(dataset, configuration, label),
            )
        )
    return found


def _about(make: str) -> str:
    try:
        return (inspect.getdoc(builder_of(make)) or "").split("\n")[0]
    except ValueError:  # a user's instance, in a module that is not imported here
        return ""


def _rho(dataset: "xarray.Dataset", label: str) -> str:
    if "rho" not in dataset or "instance" not in dataset["rho"].dims:
        return "-"
    if label not in dataset["instance"].to_numpy():  # not in the selection
        return "-"
    low = dataset["rho"].sel(instance=label).to_numpy()
    high = dataset["rho_upper"].sel(instance=label).to_numpy() if "rho_upper" in dataset else low
    ends = [number_in_words(float(end)) for end in (np.min(low), np.max(high))]
    if ends[0] == ends[1]:
        return ends[0]
    # The range of exact values of several runs, or bounds.
    return (
        f"{ends[0]} to {ends[1]}" if np.allclose(low, high) else "between {} and {}".format(*ends)
    )


def _multipliers(dataset: "xarray.Dataset", configuration: Mapping[str, Any], label: str) -> str:
    """The multipliers of the LP of the means; with an adversary the LP changes every episode."""
    if "horizon" not in dataset.coords:
        return "-"
    try:
        entries = Configuration.from_dict(configuration).instances
        entry = next(entry for entry in entries if entry.label == label)
        cmdp = entry.build(int(np.max(dataset["horizon"].to_numpy())))
    except (ValueError, StopIteration):  # not registered here, see `_about`
        return "-"
    rewards, constraints = cmdp.rewards, cmdp.constraints
    if not isinstance(rewards, StochasticProcess) or not isinstance(constraints, StochasticProcess):
        return "-"
    best = oracle.optimum(cmdp.mdp, rewards.mean(), constraints.mean())
    return ", ".join(number_in_words(value) for value in best.multipliers)
