"""Loop-free CMDPs with their occupancies, policies and trajectories."""

from pdgd_jax.models._cmdp import CMDP, EpisodesWarning, Outcome, RewardUnits, stack
from pdgd_jax.models._groups import Groups
from pdgd_jax.models._layers import Layers
from pdgd_jax.models._mdp import LayeredMDP
from pdgd_jax.models._occupancy import (
    Trajectory,
    occupancy_of,
    policy_of,
    rollout,
    value_of,
    visited,
)
from pdgd_jax.models._policy_values import PolicyValues, evaluate_policies, mean_outcome
from pdgd_jax.models._successors import Successors
from pdgd_jax.models._unrolling import UnrolledMDP, unroll

__all__ = [
    "CMDP",
    "EpisodesWarning",
    "Groups",
    "LayeredMDP",
    "Layers",
    "Outcome",
    "PolicyValues",
    "RewardUnits",
    "Successors",
    "Trajectory",
    "UnrolledMDP",
    "evaluate_policies",
    "mean_outcome",
    "occupancy_of",
    "policy_of",
    "rollout",
    "stack",
    "unroll",
    "value_of",
    "visited",
]
