"""The plan of a sweep, made before anything compiles: plain data, to print and to follow.

A *lane* is one run: a cell (instance, learner, settings, horizon) and a seed. Lanes with the same
program form a *group*. Numbers are leaves of the program, and sizes are padded together. Another
kind of process, learner or solver, another number of constraints, or a very different size needs
another group. Lanes of a group with one horizon are divided into *blocks* of equal width, which a
device plays at once. A block is played in *chunks*, and saved after each.

The plan follows from the configuration, never from the machine. The number of devices or processes
changes when a block is played, but not one bit of the results.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from pdgd_jax.learners import settings_of
from pdgd_jax.models import CMDP
from pdgd_jax.simulation import checkpoint_episodes, start
from pdgd_jax.sweeps._configuration import Configuration
from pdgd_jax.sweeps._costs import (
    bytes_of,
    compile_seconds,
    episode_seconds,
    lane_bytes,
    listed_triples,
)
from pdgd_jax.sweeps._lanes import SETTINGS, LaneBuilder
from pdgd_jax.sweeps._plan_facts import GroupFacts, PlanFacts

__all__ = [
    "DIMS",
    "Block",
    "Cell",
    "Group",
    "Lane",
    "Plan",
    "dims_of",
    "plan_of",
    "stops_of",
    "width_of",
]

# The leading axes of the results without options; all but the last make a cell.
DIMS = ("instance", "learner", "rates", "delta", "confidence_scale", "horizon", "seed")

# How often to save.
_SAVE_SECONDS = 5.0

# A block wider than this gains nothing.
_MOST_LANES_CPU = 64
_MOST_LANES = 4096
_MEMORY_OF_BLOCK = 2**30


class Cell(NamedTuple):
    """A lane without its seed, as positions in the lists of the configuration.

    A learner that ignores a setting, or an option of another learner, is played once. `repeats`
    names their dimensions; the results are the same at all their values.
    """

    instance: int
    learner: int
    rates: int
    delta: int
    confidence_scale: int
    horizon: int
    repeats: tuple[str, ...] = ()
    options: tuple[int, ...] = ()


class Lane(NamedTuple):
    """One run."""

    cell: Cell
    seed: int


class Block(NamedTuple):
    """Lanes that one device plays at once.

    Attributes:
      name: the name of its folder; never taken from a configuration.
      horizon: the number of episodes of each lane.
      lanes: at most as many as the width of the group; copies of the last lane fill up the rest.
      chunks: the episodes at which each chunk stops.
    """

    name: str
    horizon: int
    lanes: tuple[Lane, ...]
    chunks: tuple[tuple[int, ...], ...]

    @property
    def episodes(self) -> int:
        """Those of all lanes together."""
        return self.horizon * len(self.lanes)


@dataclasses.dataclass(frozen=True)
class Group:
    """Lanes that share one compiled program.

    Attributes:
      name: the name of the group.
      shape: the padded (L, S, A).
      num_constraints: m.
      processes: the kinds of the rewards and of the constraints.
      instances: the labels of the instances.
      learners: the names of the learners.
      width: how many lanes a device plays at once.
      stops: how many times a chunk stops to measure.
      bytes_per_lane: the estimated memory of a lane.
      listed: the triples of successor lists that are held alone; None if the projection is dense.
      blocks: the blocks in the order in which they are played.
    """

    name: str
    shape: tuple[int, int, int]
    num_constraints: int
    processes: tuple[str, str]
    instances: tuple[str, ...]
    learners: tuple[str, ...]
    width: int
    stops: int
    bytes_per_lane: int
    listed: int | None
    blocks: tuple[Block, ...]

    @property
    def lanes(self) -> int:
        """The number of lanes."""
        return sum(len(block.lanes) for block in self.blocks)

    @property
    def episodes(self) -> int:
        """Those of all lanes together."""
        return sum(block.episodes for block in self.blocks)

    @property
    def bytes_per_device(self) -> int:
        """The estimated memory of a device."""
        return self.width * self.bytes_per_lane

    def facts(self) -> GroupFacts:
        """The group in plain numbers and texts, for people and for JSON."""
        return {
            "name": self.name,
            "learners": list(self.learners),
            "instances": list(self.instances),
            "shape": list(self.shape),
            "constraints": self.num_constraints,
            "processes": list(self.processes),
            "lanes": self.lanes,
            "width": self.width,
            "episodes": self.episodes,
            "bytes_per_device": self.bytes_per_device,
            "blocks": {
                block.name: {
                    "horizon": block.horizon,
                    "lanes": len(block.lanes),
                    "chunks": len(block.chunks),
                }
                for block in self.blocks
            },
        }


@dataclasses.dataclass(frozen=True)
class Plan:
    """The groups of a sweep.

    Attributes:
      configuration: the configuration of the sweep.
      groups: the groups; each compiles once.
    """

    configuration: Configuration
    groups: tuple[Group, ...]

    @property
    def lanes(self) -> int:
        """The number of runs."""
        return sum(group.lanes for group in self.groups)

    @property
    def episodes(self) -> int:
        """Those of all lanes together."""
        return sum(group.episodes for group in self.groups)

    def blocks(self) -> Iterator[tuple[Group, Block]]:
        """All blocks, with their groups."""
        return ((group, block) for group in self.groups for block in group.blocks)

    def facts(self) -> PlanFacts:
        """The plan in plain numbers and texts, for people and for JSON."""
        return {
            "lanes": self.lanes,
            "episodes": self.episodes,
            "compilations": len(self.groups),
            "groups": [group.facts() for group in self.groups],
        }


def plan_of(
    configuration: Configuration,
    *,
    width: int | None = None,
    save_every: int | None = None,
    builder: LaneBuilder | None = None,
) -> Plan:
    """Decide how a sweep is played.

    Args:
      configuration: what to sweep over.
      width: how many lanes a device plays at once; by default at most 64 on a CPU, see `width_of`,
        and fewer if a block would take more than a gibibyte.
      save_every: the most episodes between two saves of a block; by default about as many as take
        five seconds.
      builder: builds instances and learners, and keeps them for later use.

    Raises:
      ValueError: if an instance or a learner cannot be built, or a table is too short.
    """
    builder = LaneBuilder(configuration) if builder is None else builder
    kinds: dict[Any, dict[tuple[int, int, int], list[Cell]]] = {}
    for cell in _cells(configuration):
        cmdp = builder.cmdp(cell.instance, cell.horizon)
        kind = (_kind_of(cmdp), builder.kind_of_player(cell, cmdp))
        kinds.setdefault(kind, {}).setdefault(cmdp.layers.shape, []).append(cell)
    groups: list[Group] = []
    for by_shape in kinds.values():
        for shape, cells in _together(configuration, by_shape).items():
            groups.append(_group(builder, f"g{len(groups)}", shape, cells, width, save_every))
    return Plan(configuration, tuple(groups))


def _cells(configuration: Configuration) -> Iterator[Cell]:
    for instance, (learner, name) in itertools.product(
        range(len(configuration.instances)), enumerate(configuration.learners)
    ):
        useful = settings_of(name)
        counts = [len(getattr(configuration, s)) if s in useful else 1 for s in SETTINGS]
        options = configuration.options
        own = [len(option.values) if option.learner == name else 1 for option in options]
        ignored = [s for s in SETTINGS if s not in useful]
        repeats = (*ignored, *(option.dim for option in options if option.learner != name))
        horizons = range(len(configuration.horizon))
        for rates, delta, scale, *places, horizon in itertools.product(
            *map(range, counts), *map(range, own), horizons
        ):
            yield Cell(
                instance, learner, rates, delta, scale, horizon, repeats, options=tuple(places)
            )


def dims_of(configuration: Configuration) -> tuple[str, ...]:
    """The leading axes of the results: `DIMS`, and options of learners before the horizon."""
    return (*DIMS[:-2], *(option.dim for option in configuration.options), *DIMS[-2:])


def _kind_of(cmdp: CMDP) -> Any:
    """What must be equal for `stack` to pad and stack CMDPs."""
    shape = cmdp.layers.shape

    def leaf(array: Any) -> Any:
        padded = array.shape[-3:] == shape
        return array.dtype, padded, array.shape[:-3] if padded else array.shape

    processes = (cmdp.rewards, cmdp.constraints)
    leaves = tuple(leaf(array) for array in jax.tree.leaves(processes))
    return (
        cmdp.num_constraints,
        cmdp.mdp.transition.dtype,
        jax.tree.structure((cmdp.layers, processes)),  # with the sizes of successor lists
        leaves,
    )


def _together(
    configuration: Configuration, by_shape: dict[tuple[int, int, int], list[Cell]]
) -> dict[tuple[int, int, int], list[Cell]]:
    """Pad shapes together as long as this saves more compilation time than it adds work.

    The estimate is that of PDGD-OPS for every learner; others do less work and compile faster.
    """

    def work(cells: list[Cell], shape: tuple[int, int, int]) -> float:
        episodes = sum(configuration.horizon[cell.horizon] for cell in cells)
        # As if all lanes were in one block: the number of blocks does not depend on the shape.
        return compile_seconds(shape) + episode_seconds(shape, configuration.seeds * episodes)

    groups = dict(by_shape)
    while True:
        best: Any = (0.0, None)
        for a, b in itertools.combinations(groups, 2):
            both = (max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]))
            apart = work(groups[a], a) + work(groups[b], b)
            saving = apart - work(groups[a] + groups[b], both)
            best = max(best, (saving, (a, b, both)), key=lambda found: found[0])
        if best[1] is None:
            return groups
        a, b, both = best[1]
        cells = groups.pop(a) + groups.pop(b)
        groups[both] = groups.get(both, []) + cells


def _group(
    builder: LaneBuilder,
    name: str,
    shape: tuple[int, int, int],
    cells: list[Cell],
    width: int | None,
    save_every: int | None,
) -> Group:
    asked = builder.configuration
    by_horizon: dict[int, list[Cell]] = {}
    for cell in cells:
        by_horizon.setdefault(cell.horizon, []).append(cell)
    inputs = builder.inputs(cells[0], shape)
    first: Any = jax.eval_shape(lambda lane: start(jax.random.key(0), *lane), inputs)
    lane, row = lane_bytes(bytes_of(first), bytes_of(inputs)), bytes_of(first.metrics)
    most = max(map(len, by_horizon.values())) * asked.seeds
    if width is None:
        width = width_of(most, lane)
    seconds = episode_seconds(shape, width)
    every = max(1, round(_SAVE_SECONDS / seconds)) if save_every is None else save_every
    longest = max(asked.horizon[horizon] for horizon in by_horizon)
    stops = min(max(1, every * asked.checkpoints // longest), asked.checkpoints)
    blocks: list[Block] = []
    for horizon in sorted(by_horizon, key=lambda h: -asked.horizon[h]):  # the longest first
        T = asked.horizon[horizon]
        lanes = [Lane(cell, seed) for cell in by_horizon[horizon] for seed in range(asked.seeds)]
        ends = stops_of(T, asked.checkpoints, every)
        chunks = tuple(ends[i : i + stops] for i in range(0, len(ends), stops))
        for begin in range(0, len(lanes), width):
            mine = tuple(lanes[begin : begin + width])
            blocks.append(Block(f"{name}-b{len(blocks):04d}", T, mine, chunks))
    return Group(
        name=name,
        shape=shape,
        num_constraints=inputs.cmdp.num_constraints,
        processes=(type(inputs.cmdp.rewards).__name__, type(inputs.cmdp.constraints).__name__),
        instances=tuple(dict.fromkeys(asked.instances[cell.instance].label for cell in cells)),
        learners=tuple(dict.fromkeys(asked.learners[cell.learner] for cell in cells)),
        width=width,
        stops=stops,
        bytes_per_lane=lane + stops * row,
        listed=listed_triples(inputs.cmdp.layers),
        blocks=tuple(blocks),
    )


def width_of(lanes: int, bytes_per_lane: int) -> int:
    """How many of `lanes` lanes a device plays at once.

    On a CPU narrow blocks use more cores, but cost more per lane, above all between powers of two
    (see `benchmarks/scaling.py`). So there are at least two blocks, more as soon as they are 8
    wide, four of 16 rather than eight of 8, and eight of up to 64.
    """
    most = max(1, _MEMORY_OF_BLOCK // bytes_per_lane)
    if jax.default_backend() == "cpu":
        aim = max(min(math.ceil(lanes / 2), 8), min(lanes // 4, 16), lanes // 8)
        aim = min(aim, most, _MOST_LANES_CPU)
        if aim >= 8:
            return 1 << (aim.bit_length() - 1)
    else:
        aim = min(most, _MOST_LANES)
    return math.ceil(lanes / math.ceil(lanes / aim))  # blocks of equal size, if possible


def stops_of(horizon: int, checkpoints: int, save_every: int) -> tuple[int, ...]:
    """The episodes at which a run stops: its checkpoints, and more between distant ones.

    Example:
      >>> stops_of(horizon=100, checkpoints=2, save_every=20)
      (16, 33, 50, 66, 83, 100)
    """
    stops: list[int] = []
    before = 0
    for end in checkpoint_episodes(horizon, checkpoints):
        parts = math.ceil((end - before) / save_every)
        stops += [before + (i + 1) * (end - before) // parts for i in range(parts)]
        before = end
    return tuple(stops)
