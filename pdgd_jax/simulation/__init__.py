"""The interaction of learners with CMDPs: a scan over episodes, with many lanes on every device."""

from pdgd_jax.simulation._batch import (
    BatchProgram,
    LaneInputs,
    as_arrays,
    from_arrays,
    stacked,
    wait,
)
from pdgd_jax.simulation._devices import local_devices, use_cores, use_every_core
from pdgd_jax.simulation._loop import (
    Carry,
    History,
    check_run,
    checkpoint_episodes,
    history_of,
    run,
    start,
)
from pdgd_jax.simulation._metrics import Metrics, sums_of
from pdgd_jax.simulation._reference import FEASIBLE, Comparators

__all__ = [
    "FEASIBLE",
    "BatchProgram",
    "Carry",
    "Comparators",
    "History",
    "LaneInputs",
    "Metrics",
    "as_arrays",
    "check_run",
    "checkpoint_episodes",
    "from_arrays",
    "history_of",
    "local_devices",
    "run",
    "stacked",
    "start",
    "sums_of",
    "use_cores",
    "use_every_core",
    "wait",
]
