"""Constrained MDPs to learn on, by name: `make("grid")`."""

from pdgd_jax.instances.grid import grid
from pdgd_jax.instances.gymnasium import from_gymnasium, gymnasium
from pdgd_jax.instances.operations import bidding, inventory, recommender, riverswim, streaming
from pdgd_jax.instances.random import no_slater, random
from pdgd_jax.instances.registry import (
    builder_of,
    make,
    make_for,
    options_of,
    register,
    registered,
)
from pdgd_jax.instances.two_phase import two_phase

__all__ = [
    "bidding",
    "builder_of",
    "from_gymnasium",
    "grid",
    "gymnasium",
    "inventory",
    "make",
    "make_for",
    "no_slater",
    "options_of",
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
    no_slater,
    random,
    recommender,
    riverswim,
    streaming,
    two_phase,
):
    register(_builder.__name__.replace("_", "-"), _builder)
