"""A vectorised JAX simulator of PDGD-OPS, for constrained MDPs with long-term constraints."""

import importlib
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `_HOMES` says, for those who read without running
    from pdgd_jax import learners, oracle, processes, theory
    from pdgd_jax.cmdp import CMDP, EpisodesWarning, Outcome, RewardUnits, stack
    from pdgd_jax.confidence import ConfidenceSet
    from pdgd_jax.configuration import Configuration, read_configuration
    from pdgd_jax.dataset import dataset_of
    from pdgd_jax.evaluation import Evaluation, comparators_of, evaluate
    from pdgd_jax.instances import from_gymnasium, make, make_for, register, registered
    from pdgd_jax.layers import Layers
    from pdgd_jax.learners import Learner, make_learner, register_learner
    from pdgd_jax.learners.pdgd_ops import pdgd_ops
    from pdgd_jax.learners.uc_o_gdps import uc_o_gdps
    from pdgd_jax.mdp import LayeredMDP
    from pdgd_jax.occupancy import Trajectory, occupancy_of, policy_of, rollout, value_of
    from pdgd_jax.policies import PolicyValues, evaluate_policies
    from pdgd_jax.projection import (
        ProjectionInfo,
        ProjectionResult,
        cold_start,
        project,
        project_batch,
        register_solver,
    )
    from pdgd_jax.simulate import History, run
    from pdgd_jax.store import open_results
    from pdgd_jax.streams import paired_difference
    from pdgd_jax.sweep import sweep
    from pdgd_jax.unroll import UnrolledMDP, unroll

__version__ = "0.1.0"

__all__ = [
    "CMDP",
    "ConfidenceSet",
    "Configuration",
    "EpisodesWarning",
    "Evaluation",
    "History",
    "LayeredMDP",
    "Layers",
    "Learner",
    "Outcome",
    "PolicyValues",
    "ProjectionInfo",
    "ProjectionResult",
    "RewardUnits",
    "Trajectory",
    "UnrolledMDP",
    "__version__",
    "cold_start",
    "comparators_of",
    "dataset_of",
    "evaluate",
    "evaluate_policies",
    "from_gymnasium",
    "learners",
    "make",
    "make_for",
    "make_learner",
    "occupancy_of",
    "open_results",
    "oracle",
    "paired_difference",
    "pdgd_ops",
    "policy_of",
    "processes",
    "project",
    "project_batch",
    "read_configuration",
    "register",
    "register_learner",
    "register_solver",
    "registered",
    "rollout",
    "run",
    "stack",
    "sweep",
    "theory",
    "uc_o_gdps",
    "unroll",
    "value_of",
]

# Where each name lives. It is imported when it is first asked for, so that the command line can
# listen to Ctrl-C before JAX is loaded.
_HOMES = {
    "cmdp": ("CMDP", "EpisodesWarning", "Outcome", "RewardUnits", "stack"),
    "confidence": ("ConfidenceSet",),
    "configuration": ("Configuration", "read_configuration"),
    "dataset": ("dataset_of",),
    "evaluation": ("Evaluation", "comparators_of", "evaluate"),
    "instances": ("from_gymnasium", "make", "make_for", "register", "registered"),
    "layers": ("Layers",),
    "learners": ("Learner", "make_learner", "register_learner"),
    "learners.pdgd_ops": ("pdgd_ops",),
    "learners.uc_o_gdps": ("uc_o_gdps",),
    "mdp": ("LayeredMDP",),
    "occupancy": ("Trajectory", "occupancy_of", "policy_of", "rollout", "value_of"),
    "policies": ("PolicyValues", "evaluate_policies"),
    "projection": (
        "ProjectionInfo",
        "ProjectionResult",
        "cold_start",
        "project",
        "project_batch",
        "register_solver",
    ),
    "simulate": ("History", "run"),
    "store": ("open_results",),
    "streams": ("paired_difference",),
    "sweep": ("sweep",),
    "unroll": ("UnrolledMDP", "unroll"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = f"{__name__}.{_HOME.get(name, name)}"
    if name.startswith("_") or importlib.util.find_spec(home) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(home)
    setattr(sys.modules[__name__], name, getattr(module, name) if name in _HOME else module)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(types.ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # Python binds a module to its name once it is imported, but `sweep` is the function.
        if isinstance(value, types.ModuleType) and name in _HOME:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
