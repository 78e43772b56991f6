"""Constrained MDPs to learn on, by name: `make("grid")`."""

from pdgd_jax.instances._bidding import bidding
from pdgd_jax.instances._blackjack import blackjack_state
from pdgd_jax.instances._grid import grid
from pdgd_jax.instances._gymnasium import from_gymnasium, gymnasium
from pdgd_jax.instances._inventory import inventory
from pdgd_jax.instances._inventory_lead_time import inventory_lead_time
from pdgd_jax.instances._no_slater import no_slater
from pdgd_jax.instances._queueing import queueing
from pdgd_jax.instances._random import random
from pdgd_jax.instances._recommender import recommender
from pdgd_jax.instances._registry import (
    INSTANCES,
    builder_of,
    check_option,
    check_value,
    depends_on_episodes,
    make,
    make_for,
    options_of,
    register,
    registered,
)
from pdgd_jax.instances._riverswim import riverswim
from pdgd_jax.instances._streaming import streaming
from pdgd_jax.instances._two_phase import two_phase

__all__ = [
    "INSTANCES",
    "bidding",
    "blackjack_state",
    "builder_of",
    "check_option",
    "check_value",
    "depends_on_episodes",
    "from_gymnasium",
    "grid",
    "gymnasium",
    "inventory",
    "inventory_lead_time",
    "make",
    "make_for",
    "no_slater",
    "options_of",
    "queueing",
    "random",
    "recommender",
    "register",
    "registered",
    "riverswim",
    "streaming",
    "two_phase",
]

for _builder in (
    bidding,
    grid,
    gymnasium,
    inventory,
    inventory_lead_time,
    no_slater,
    queueing,
    random,
    recommender,
    riverswim,
    streaming,
    two_phase,
):
    register(_builder.__name__.replace("_", "-"), _builder)
