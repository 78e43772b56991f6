"""What the instances of a report are, and what can be known of them without playing."""

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
      label: what the sweep calls it.
      make: the name that it is made by.
      about: the first sentence of its description; empty if this process does not know it.
      options: as the configuration has them.
      rho: of its runs, from the least to the largest.
      multipliers: the optimal ones of the longest horizon, if means decide them.
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
    except ValueError:  # one of somebody's own, in a module that is not imported here
        return ""


def _rho(dataset: "xarray.Dataset", label: str) -> str:
    if "rho" not in dataset or "instance" not in dataset["rho"].dims:
        return "-"
    if label not in dataset["instance"].to_numpy():  # left out by a selection
        return "-"
    low = dataset["rho"].sel(instance=label).to_numpy()
    high = dataset["rho_upper"].sel(instance=label).to_numpy() if "rho_upper" in dataset else low
    ends = [number_in_words(float(end)) for end in (np.min(low), np.max(high))]
    if ends[0] == ends[1]:
        return ends[0]
    # Of several runs, each known; or only known to lie between bounds.
    return (
        f"{ends[0]} to {ends[1]}" if np.allclose(low, high) else "between {} and {}".format(*ends)
    )


def _multipliers(dataset: "xarray.Dataset", configuration: Mapping[str, Any], label: str) -> str:
    """Of the linear program of the means; an adversary has another one after every episode."""
    if "horizon" not in dataset.coords:
        return "-"
    try:
        entries = Configuration.from_dict(configuration).instances
        entry = next(entry for entry in entries if entry.label == label)
        cmdp = entry.build(int(np.max(dataset["horizon"].to_numpy())))
    except (ValueError, StopIteration):  # not known here, see `_about`
        return "-"
    rewards, constraints = cmdp.rewards, cmdp.constraints
    if not isinstance(rewards, StochasticProcess) or not isinstance(constraints, StochasticProcess):
        return "-"
    best = oracle.optimum(cmdp.mdp, rewards.mean(), constraints.mean())
    return ", ".join(number_in_words(value) for value in best.multipliers)
