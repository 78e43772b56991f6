"""The inputs of the lanes of a sweep: instances, learners and comparators, built on demand."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pdgd_jax._internal.typing import Table
from pdgd_jax.instances import depends_on_episodes
from pdgd_jax.learners import (
    BY_DEFAULT,
    Learner,
    declaration_of,
    make_learner,
    margin_of,
    options_of,
)
from pdgd_jax.models import CMDP
from pdgd_jax.results import comparators_of
from pdgd_jax.simulation import Comparators, LaneInputs, check_run
from pdgd_jax.sweeps._configuration import Configuration
from pdgd_jax.sweeps._option import options_at

if TYPE_CHECKING:
    from pdgd_jax.sweeps._plan import Cell

__all__ = ["SETTINGS", "LaneBuilder"]

SETTINGS = ("rates", "delta", "confidence_scale")  # of learners; some ignore some of them


class LaneBuilder:
    """Builds the inputs of the cells of a sweep, each once.

    Args:
      configuration: the configuration; cells are positions in its lists.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self._cmdps: dict[Any, CMDP] = {}
        self._padded: dict[Any, CMDP] = {}
        self._comparators: dict[Any, Comparators] = {}
        self._players: dict[Any, Any] = {}
        self._margins: dict[tuple[int, int], float] = {}

    def cmdp(self, instance: int, horizon: int) -> CMDP:
        """An instance for a horizon.

        Raises:
          ValueError: if it cannot be built, or has fewer episodes.
        """
        entry, T = self.configuration.instances[instance], self.configuration.horizon[horizon]
        open_ended = depends_on_episodes(entry.make) and "num_episodes" not in entry.options
        address = (instance, horizon if open_ended else None)
        if address not in self._cmdps:
            self._cmdps[address] = entry.build(T)
        cmdp = self._cmdps[address]
        cmdp.check_episodes(T)
        try:
            cmdp.check_lasts(T)
        except ValueError as error:
            raise ValueError(f"instance {entry.label!r}, horizon {T}: {error}") from error
        return cmdp

    def padded(self, instance: int, horizon: int, shape: tuple[int, int, int]) -> CMDP:
        """An instance padded to the (L, S, A) of a group."""
        address = (instance, horizon, shape)
        if address not in self._padded:
            # Even without padding: an unrolled MDP becomes a plain one, like the others.
            self._padded[address] = self.cmdp(instance, horizon).pad_to(shape)
        return self._padded[address]

    def comparators(self, instance: int, horizon: int) -> Comparators:
        """The comparators of an instance, by linear programs."""
        address = (instance, horizon)
        if address not in self._comparators:
            cmdp, T = self.cmdp(*address), self.configuration.horizon[horizon]
            self._comparators[address] = comparators_of(cmdp, T)
        return self._comparators[address]

    def learner(self, cell: "Cell", cmdp: CMDP) -> Learner:
        """The learner of a cell.

        Raises:
          ValueError: if it cannot play the instance; the error names both.
        """
        asked = self.configuration
        T = asked.horizon[cell.horizon]
        name, label = asked.learners[cell.learner], asked.instances[cell.instance].label
        settings = {name: getattr(asked, name)[getattr(cell, name)] for name in SETTINGS}
        at = options_at(asked.options, name, cell.options)
        options: Table = {option: value for option, value in at.items() if value != BY_DEFAULT}
        try:
            if declaration_of(name).needs_margin and "rho" in {*options_of(name)} - {*options}:
                options["rho"] = self._margin(name, cell)
            learner = make_learner(name, cmdp, T, solver=asked.solver, **settings, **options)
            check_run(cmdp, learner, T)
        except ValueError as error:
            # An option that is out of its range begins the sentence.
            wrong = [o for o in asked.options if o.learner == name and _begins(error, o.name)]
            where = wrong[0].where() if wrong else ""
            raise ValueError(f"{where}learner {name!r} on instance {label!r}: {error}") from error
        return learner.as_pytree()

    def _margin(self, name: str, cell: "Cell") -> float:
        address = (cell.instance, cell.horizon)
        if address not in self._margins:
            T = self.configuration.horizon[cell.horizon]
            self._margins[address] = margin_of(name, self.cmdp(*address), T)
        return self._margins[address]

    def kind_of_player(self, cell: "Cell", cmdp: CMDP) -> Any:
        """The kind of the learner, and the number of its comparator occupancies."""
        address = (cell.instance, cell.learner, cell.horizon, cell.options)
        if address not in self._players:
            comparators = self.comparators(cell.instance, cell.horizon)
            kind = jax.tree.structure(self.learner(cell, cmdp)), len(comparators.occupancies)
            self._players[address] = kind
        return self._players[address]

    def inputs(self, cell: "Cell", shape: tuple[int, int, int]) -> LaneInputs:
        """The inputs of a lane; leaves are NumPy arrays of the same shapes in a whole group."""
        cmdp = self.padded(cell.instance, cell.horizon, shape)
        comparators = self.comparators(cell.instance, cell.horizon)
        layers = self.cmdp(cell.instance, cell.horizon).layers
        moved = [np.asarray(cmdp.layers.moved(layers, q)) for q in comparators.occupancies]
        stacked = np.array(moved, comparators.occupancies.dtype)
        occupancies = jnp.asarray(stacked.reshape(len(moved), *cmdp.layers.triple_shape))
        comparators = dataclasses.replace(comparators, occupancies=occupancies)
        return jax.tree.map(np.asarray, LaneInputs(cmdp, self.learner(cell, cmdp), comparators))


def _begins(error: ValueError, word: str) -> bool:
    return str(error).startswith(f"{word} ")
