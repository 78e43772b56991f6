"""Plays a sweep over instances, learners, settings and seeds on every device, and saves it.

`_plan` decides what is played, `_lanes` builds it, `_storage` keeps it and `_collect` combines it
into one Dataset. This module calls them in order.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pdgd_jax._internal.pytree import as_array
from pdgd_jax._internal.typing import Arrays
from pdgd_jax.results import versions
from pdgd_jax.simulation import (
    BatchProgram,
    Carry,
    LaneInputs,
    Metrics,
    as_arrays,
    checkpoint_episodes,
    from_arrays,
    local_devices,
    stacked,
    wait,
)
from pdgd_jax.sweeps._cluster import Cluster
from pdgd_jax.sweeps._collect import gather
from pdgd_jax.sweeps._configuration import Configuration, read_configuration
from pdgd_jax.sweeps._lanes import LaneBuilder
from pdgd_jax.sweeps._plan import Block, Group, Lane, Plan, plan_of
from pdgd_jax.sweeps._progress import SweepProgress, SweepState
from pdgd_jax.sweeps._storage import ChunkStore, Slot, blocks_of, chunk_store
from pdgd_jax.sweeps._streams import keys_of

if TYPE_CHECKING:
    import xarray

__all__ = ["Interrupted", "identity_of", "sweep"]


class Interrupted(Exception):  # noqa: N818, no error, as KeyboardInterrupt is none
    """The sweep stopped on request, after saving what was played."""


def sweep(
    configuration: Configuration | Mapping[str, Any] | str | Path,
    *,
    out: str | Path | None = None,
    devices: int | None = None,
    width: int | None = None,
    save_every: int | None = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    cluster: Cluster | None = None,
) -> "xarray.Dataset":
    r"""Play every combination of instances, learners, settings and seeds.

    Combinations that differ only in numbers are lanes of one compiled program. Instances of
    different sizes are padded together, and blocks of lanes are sharded over the devices of this
    process. If `jax.distributed` is initialised, the processes share the blocks through a common
    folder.

    By default seed i of every cell and horizon plays with the same random streams. Cells are
    therefore not independent: compare them seed by seed with `paired_difference`. With
    `streams = "independent"` in the configuration they are.

    Args:
      configuration: a `Configuration`, a dictionary of the shape of its file, the path of a file,
        or the name of a built-in one.
      out: a folder. The sweep is saved there chunk by chunk. If it is interrupted, the same call
        resumes it, with the same bits as without the interruption. By default nothing is saved.
      devices: the number of devices of this process; all by default.
      width: how many lanes a device plays at once, see `plan_of`.
      save_every: the most episodes between two saves of a block, see `plan_of`.
      on_progress: called with a `SweepProgress` before anything compiles, and after every chunk.
      should_stop: called after every chunk; if it returns true, `Interrupted` is raised.
      cluster: the processes of `join`. They disconnect as soon as all have opened the folder, so
        that the death of one does not end the others.

    Returns:
      A Dataset with the axes `instance, learner, rates, delta, confidence_scale, horizon, seed`,
      followed by those of `dataset_of`. Options of learners are axes before the horizon, such as
      `ucpd.V`. The coordinates `knows` and `feedback` say what each learner was told.

    Raises:
      ValueError: before anything compiles, if something cannot be played, or the folder holds
        another sweep (`StoreError`).
      Interrupted: if `should_stop` returned true; the same call resumes.
      LeftAloneError: if another process ended before its work was done; the same calls resume.

    Example:
      >>> from pdgd_jax import sweep
      >>> two = [{"make": "two-phase"}, {"make": "random", "sizes": [1, 2, 1]}]
      >>> data = sweep({"instance": two, "seeds": 3, "settings": {"horizon": [50, 100]},
      ...               "learners": {"names": "uniform"}, "checkpoints": 5})
      >>> data.regret.dims[-3:], data.regret.shape
      (('horizon', 'seed', 'checkpoint'), (2, 1, 1, 1, 1, 2, 3, 5))
    """
    from pdgd_jax.sweeps._folder import (
        open_results,  # takes half a second, with xarray
    )

    asked = _configuration(configuration)
    used = local_devices(devices)
    builder = LaneBuilder(asked)
    plan = plan_of(asked, width=width, save_every=save_every, builder=builder)
    progress = SweepProgress(plan, done={group.name: 0 for group in plan.groups})
    show = on_progress or (lambda progress: None)
    show(progress)
    identity = identity_of(asked, width, save_every)

    def stop_if_asked() -> None:
        if should_stop is not None and should_stop():
            raise Interrupted

    with chunk_store(out, identity, plan.facts()) as store:
        if cluster is not None:
            cluster.leave()  # all have opened the folder and no longer need each other

        def tell(progress: SweepProgress) -> None:
            store.say(progress.facts())
            show(progress)

        if (finished := store.results()) is not None:
            progress.done = {group.name: group.episodes for group in plan.groups}
            tell(progress)
            return finished
        process, processes = jax.process_index(), jax.process_count()
        for group in plan.groups:
            mine = blocks_of(group, process)
            for _ in _Player(plan, builder, group, used, store, progress, tell).play(mine):
                stop_if_asked()
        if processes > 1:
            progress.state = SweepState.WAITING
            tell(progress)
            for done in store.others(plan):
                progress.done = done
                tell(progress)
                stop_if_asked()
            if process > 0 and out is not None:
                return open_results(out)
        progress.state = SweepState.EVALUATING
        tell(progress)
        return store.keep_results(gather(plan, builder, store.rows, store.policy))


def _configuration(given: Any) -> Configuration:
    if isinstance(given, Configuration):
        return given
    if isinstance(given, Mapping):
        return Configuration.from_dict(given)
    return read_configuration(given)


def identity_of(
    configuration: Configuration, width: int | None, save_every: int | None
) -> dict[str, Any]:
    """Everything that determines the bits of a sweep; other folders are rejected."""
    return {
        "configuration": configuration.as_dict(),
        "versions": versions(),
        "precision": str(jnp.result_type(float)),
        "platform": jax.default_backend(),
        "width": width,
        "save_every": save_every,
    }


# Playing


class _Player:
    """Plays the blocks of a group, one on each device at a time, and keeps every chunk."""

    def __init__(
        self,
        plan: Plan,
        builder: LaneBuilder,
        group: Group,
        devices: list[jax.Device],
        store: ChunkStore,
        progress: SweepProgress,
        tell: Callable[[SweepProgress], None],
    ) -> None:
        self.plan, self.builder, self.group, self.devices = plan, builder, group, devices
        self.store, self.progress, self.tell = store, progress, tell
        self.keys = functools.cache(
            lambda cell: np.asarray(jax.random.key_data(keys_of(plan.configuration, cell)))
        )

    def play(self, blocks: tuple[Block, ...]) -> Iterator[None]:
        """Play the rest of these blocks, and yield after every chunk."""
        slots = [self.store.slot(block) for block in blocks]
        for slot in slots:
            self.progress.done[self.group.name] += slot.episode * len(slot.block.lanes)
        self.progress.damage = self.store.damage
        slots = [slot for slot in slots if slot.ends]
        if not slots:
            return
        program = BatchProgram(self.devices[: len(slots)])
        for first in range(0, len(slots), program.blocks):
            yield from self._play_together(program, slots[first : first + program.blocks])

    def _play_together(self, program: BatchProgram, slots: list[Slot]) -> Iterator[None]:
        group, progress = self.group, self.progress
        first_of_group = progress.group != group.name
        if first_of_group:
            self._say(SweepState.COMPILING)
        # A device without a block gets a copy, and plays nothing.
        filled = [*slots, *[slots[-1]] * (program.blocks - len(slots))]
        inputs, carry = self._begin(program, filled)

        def play(ends: list[tuple[int, ...]]) -> tuple[Carry, Metrics, Any]:
            stops = [end or (slot.episode,) for end, slot in zip(ends, filled, strict=True)]
            padded = [stop + stop[-1:] * (group.stops - len(stop)) for stop in stops]
            played = program.play(carry, inputs, np.array(padded))
            wait(played)
            return played

        if first_of_group:
            play([()] * len(filled))  # compiles, and plays nothing
            self._say(SweepState.PLAYING)
            self.since = time.perf_counter()
        while any(ends := [slot.ends for slot in filled[: len(slots)]]):
            carry, rows, policy = play(ends + [()] * (len(filled) - len(slots)))
            after = as_arrays(carry) | {"policy": np.asarray(policy)}
            measured = as_arrays(rows)
            for index, end in enumerate(ends):
                if end:
                    mine = slice(index * group.width, (index + 1) * group.width)
                    self._keep(
                        filled[index],
                        {name: array[mine] for name, array in after.items()},
                        {name: array[: len(end), mine] for name, array in measured.items()},
                    )
                    filled[index] = filled[index]._replace(chunk=filled[index].chunk + 1)
            now = time.perf_counter()
            progress.seconds, self.since = progress.seconds + now - self.since, now
            self.tell(progress)
            yield

    def _say(self, state: SweepState) -> None:
        self.progress.state, self.progress.group = state, self.group.name
        self.tell(self.progress)

    def _begin(self, program: BatchProgram, slots: list[Slot]) -> tuple[LaneInputs, Carry]:
        """The inputs of the blocks, and their state: at the beginning, or as saved."""
        width = self.group.width
        lanes: list[Lane] = []
        for slot in slots:  # copies of the last lane fill up a block
            mine = slot.block.lanes
            lanes += [*mine, *[mine[-1]] * (width - len(mine))]
        cells = {lane.cell for lane in lanes}
        of = {cell: self.builder.inputs(cell, self.group.shape) for cell in cells}
        inputs = program.place(stacked([of[lane.cell] for lane in lanes]))
        keys = np.stack([self.keys(lane.cell)[lane.seed] for lane in lanes])
        placed = program.place(jax.random.wrap_key_data(as_array(keys)))
        carry = program.begin(placed, inputs)
        if all(slot.carry is None for slot in slots):
            return inputs, carry
        arrays = {name: array.copy() for name, array in as_arrays(carry).items()}
        for index, slot in enumerate(slots):
            here = slice(index * width, (index + 1) * width)
            for name in arrays if slot.carry else ():
                arrays[name][here] = (slot.carry or {})[name]
            assert (arrays["episode"][here] == slot.episode).all(), slot.block.name
        return inputs, program.place(from_arrays(carry, arrays))

    def _keep(self, slot: Slot, carry: Arrays, rows: Arrays) -> None:
        """Keep the chunk that a block has just played."""
        name, end, count = slot.block.name, slot.ends, len(slot.block.lanes)
        looked = _is_checkpoint(self.plan, slot.block, end)
        unconverged = int(carry["metrics.unconverged"][:count].sum())
        self.store.save_chunk(
            name,
            slot.chunk,
            carry,
            {name: array[looked, :count] for name, array in rows.items()},
            {"episode": end[-1], "unconverged": unconverged},
        )
        episodes = (end[-1] - slot.episode) * count
        self.progress.done[self.group.name] += episodes
        self.progress.played += episodes
        self.progress.unconverged[name] = unconverged


def _is_checkpoint(plan: Plan, block: Block, ends: tuple[int, ...]) -> np.ndarray:
    checkpoints = checkpoint_episodes(block.horizon, plan.configuration.checkpoints)
    return np.isin(ends, checkpoints)
