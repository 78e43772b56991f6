"""Sweeps over instances, learners, settings and seeds: planned, played, saved, resumed."""

from pdgd_jax.sweeps._cluster import Cluster, join
from pdgd_jax.sweeps._configuration import Configuration, builtin_names, read_configuration
from pdgd_jax.sweeps._costs import Cost, cost_of_plan, cost_of_run, free_bytes
from pdgd_jax.sweeps._errors import StoreError, WriteError
from pdgd_jax.sweeps._executor import Interrupted, sweep
from pdgd_jax.sweeps._folder import open_results
from pdgd_jax.sweeps._lanes import LaneBuilder
from pdgd_jax.sweeps._plan import Cell, Plan, plan_of
from pdgd_jax.sweeps._progress import SweepProgress, SweepState
from pdgd_jax.sweeps._status import GroupStatus, ProcessStatus, SweepStatus, sweep_status

__all__ = [
    "Cell",
    "Cluster",
    "Configuration",
    "Cost",
    "GroupStatus",
    "Interrupted",
    "LaneBuilder",
    "Plan",
    "ProcessStatus",
    "StoreError",
    "SweepProgress",
    "SweepState",
    "SweepStatus",
    "WriteError",
    "builtin_names",
    "cost_of_plan",
    "cost_of_run",
    "free_bytes",
    "join",
    "open_results",
    "plan_of",
    "read_configuration",
    "sweep",
    "sweep_status",
]
