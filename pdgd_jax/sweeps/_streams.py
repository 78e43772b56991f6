"""The random streams of a sweep, and which cells share them.

A sweep has one key, which is split into one key per seed. With `streams = "paired"`, the default,
seed i of *every* cell (instance, learner, settings, horizon) plays with the i-th key. All learners
see the same rewards, constraints and random numbers, and a learner for a longer horizon sees the
same first episodes. This suits comparisons: shared luck cancels in the difference of a seed, so
that far fewer seeds distinguish two learners (`paired_difference`). But the results of different
cells are then *not* independent. A bootstrap must not resample the horizons of a slope one by one,
and cells must not be pooled as if they were more seeds.

With `streams = "independent"`, the key is first folded with the names and settings of the cell (not
with its position), then split. All runs of a sweep are then independent, and a cell does not depend
on the other cells.

Either way the streams do not depend on devices or interruptions. `pdgd run --key K` plays the seeds
of a paired sweep with the key K.
"""

import hashlib
import json
from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import Array, Key

from pdgd_jax.sweeps._configuration import Configuration
from pdgd_jax.sweeps._option import options_at

if TYPE_CHECKING:
    from pdgd_jax.sweeps._plan import Cell

__all__ = ["keys_of"]


def keys_of(configuration: Configuration, cell: "Cell") -> Key[Array, " seeds"]:
    """The random keys of a cell, one per seed."""
    key = jax.random.key(configuration.key)
    if configuration.streams == "independent":
        for word in _words(_identity(configuration, cell)):
            key = jax.random.fold_in(key, word)
    return jax.random.split(key, configuration.seeds)


def _identity(configuration: Configuration, cell: "Cell") -> dict[str, Any]:
    """What identifies a cell: never its position, unless nothing else distinguishes it."""
    entry = configuration.instances[cell.instance]
    twins = [
        other.make == entry.make and other.options == entry.options
        for other in configuration.instances[: cell.instance]
    ]
    settings = {
        name: getattr(configuration, name)[getattr(cell, name)]
        for name in ("rates", "delta", "confidence_scale", "horizon")
        if name not in cell.repeats
    }
    learner = configuration.learners[cell.learner]
    options = options_at(configuration.options, learner, cell.options)
    return {
        "instance": [entry.make, entry.options, sum(twins)],
        "learner": learner,
        **settings,
        **({"options": options} if options else {}),
    }


def _words(identity: dict[str, Any]) -> list[int]:
    """A 64-bit hash in two words, the same on every machine and in every version."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).digest()
    return [int.from_bytes(digest[i : i + 4]) for i in (0, 4)]
