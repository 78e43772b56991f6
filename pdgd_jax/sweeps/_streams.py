"""Random streams of a sweep: which cells share them.

A sweep has one key, split into one for each seed. With `streams = "paired"`, the default, seed i of
*every* cell (instance, learner, settings, horizon) plays with the i-th of them: all learners meet
the same rewards, constraints and chances, and one that is built for a longer horizon meets the same
first episodes. This is what comparisons want: luck that both sides share cancels in the difference
of a seed, so that far fewer seeds tell two learners apart (`paired_difference`). But results of
different cells are then *not* independent: neither may a bootstrap resample the horizons of a slope
one by one, nor may cells be pooled as if they were more seeds.

With `streams = "independent"` the key is folded with what a cell is, its names and settings and not
its place, before it is split. All runs of a sweep are then independent, and a cell plays the same
whatever other cells there are.

Both decide what `sweep` plays, on every device and whenever it is resumed. `pdgd run --key K` plays
the seeds of a paired sweep with the key K.
"""

import hashlib
import json
from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import Array, Key

from pdgd_jax.sweeps._configuration import Configuration

if TYPE_CHECKING:
    from pdgd_jax.sweeps._plan import Cell

__all__ = ["keys_of"]


def keys_of(configuration: Configuration, cell: "Cell") -> Key[Array, " seeds"]:
    """The random keys of a cell, one for each seed."""
    key = jax.random.key(configuration.key)
    if configuration.streams == "independent":
        for word in _words(_identity(configuration, cell)):
            key = jax.random.fold_in(key, word)
    return jax.random.split(key, configuration.seeds)


def _identity(configuration: Configuration, cell: "Cell") -> dict[str, Any]:
    """What tells a cell from others: never its place, unless it differs in nothing else."""
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
    return {
        "instance": [entry.make, entry.options, sum(twins)],
        "learner": configuration.learners[cell.learner],
        **settings,
    }


def _words(identity: dict[str, Any]) -> list[int]:
    """64 bits, in two words: equal for equal identities, on every machine and in every version."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).digest()
    return [int.from_bytes(digest[i : i + 4]) for i in (0, 4)]
