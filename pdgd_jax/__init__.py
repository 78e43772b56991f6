"""A vectorised JAX simulator of PDGD-OPS, for constrained MDPs with long-term constraints."""

from pdgd_jax import learners, oracle, processes, theory
from pdgd_jax.cmdp import CMDP, Outcome, stack
from pdgd_jax.confidence import ConfidenceSet
from pdgd_jax.configuration import Configuration, read_configuration
from pdgd_jax.dataset import dataset_of
from pdgd_jax.evaluation import Evaluation, comparators_of, evaluate
from pdgd_jax.instances import make, register, registered
from pdgd_jax.layers import Layers
from pdgd_jax.learners import Learner, make_learner, pdgd_ops, register_learner, uc_o_gdps
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
from pdgd_jax.sweep import sweep
from pdgd_jax.unroll import UnrolledMDP, unroll

__version__ = "0.1.0"

__all__ = [
    "CMDP",
    "ConfidenceSet",
    "Configuration",
    "Evaluation",
    "History",
    "LayeredMDP",
    "Layers",
    "Learner",
    "Outcome",
    "PolicyValues",
    "ProjectionInfo",
    "ProjectionResult",
    "Trajectory",
    "UnrolledMDP",
    "__version__",
    "cold_start",
    "comparators_of",
    "dataset_of",
    "evaluate",
    "evaluate_policies",
    "learners",
    "make",
    "make_learner",
    "occupancy_of",
    "open_results",
    "oracle",
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
