"""Instances, learners, settings and seeds crossed, on every device, saved as it goes.

`plan.py` decides what is played, `lanes.py` plays it, `keeping.py` keeps it and `gather.py` makes
one Dataset of it; here is the order in which that happens.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pdgd_jax.configuration import Configuration, read_configuration
from pdgd_jax.dataset import versions
from pdgd_jax.gather import gather
from pdgd_jax.keeping import Keeper, Slot, keeper_of
from pdgd_jax.lanes import Program, as_arrays, from_arrays, local_devices, stacked, wait
from pdgd_jax.plan import Block, Group, Plan, plan_of
from pdgd_jax.simulate import Carry, checkpoint_episodes

if TYPE_CHECKING:
    import xarray

__all__ = ["Interrupted", "Report", "identity_of", "sweep"]

Arrays = dict[str, np.ndarray]


class Interrupted(Exception):  # noqa: N818
    """The sweep was asked to stop, and did, after saving what was played."""


@dataclasses.dataclass
class Report:
    """How far a sweep is; shown again whenever something has changed.

    Attributes:
      plan: what is played.
      state: "planned", "compiling", "playing", "waiting" for other processes or "evaluating".
      group: which group is compiled or played.
      done: finished episodes of each group, those of an earlier process included.
      played: those of this process alone.
      seconds: that this process spent playing them, compiling left out.
      unconverged: projections that did not converge, of each block.
      damage: what was found damaged and is played again, one sentence each.
    """

    plan: Plan
    state: str = "planned"
    group: str = ""
    done: dict[str, int] = dataclasses.field(default_factory=dict)
    played: int = 0
    seconds: float = 0.0
    unconverged: dict[str, int] = dataclasses.field(default_factory=dict)
    damage: list[str] = dataclasses.field(default_factory=list)

    @property
    def episodes(self) -> int:
        """Finished ones of all groups."""
        return sum(self.done.values())

    @property
    def speed(self) -> float:
        """Episodes per second."""
        return self.played / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float:
        """Until everything is played, at the speed so far; compiling left out."""
        left = self.plan.episodes - self.episodes
        return left / self.speed if self.speed else float("nan")


def sweep(
    configuration: Configuration | Mapping[str, Any] | str | Path,
    *,
    out: str | Path | None = None,
    devices: int | None = None,
    width: int | None = None,
    save_every: int | None = None,
    on_progress: Callable[[Report], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> "xarray.Dataset":
    r"""Cross instances, learners, settings and seeds, and play them all.

    Numbers are lanes of one compiled program, instances of different sizes are padded together, and
    blocks of lanes are sharded over the devices of this process. If `jax.distributed` was
    initialised, the processes share the blocks, through a folder that all of them see.

    Args:
      configuration: a `Configuration`, a dictionary of the shape of its file, the path of a file,
        or the name of a built-in one.
      out: a folder. What is played is saved there chunk by chunk, and a sweep that was cut short
        goes on from there, to the same bits as if nothing had happened. By default nothing is
        saved.
      devices: how many of this process; all by default.
      width: how many lanes a device plays at once, see `plan_of`.
      save_every: after how many episodes a block is saved at the latest, see `plan_of`.
      on_progress: called with a `Report` before anything compiles, and after every chunk.
      should_stop: asked after every chunk; if it says so, `Interrupted` is raised.

    Returns:
      A Dataset with the axes `instance, learner, rates, delta, confidence_scale, horizon, seed`,
      and behind them those of `dataset_of`.

    Raises:
      ValueError: before anything compiles, if something cannot be played, or the folder holds
        another sweep (`StoreError`).
      Interrupted: if `should_stop` said so; the same call goes on.

    Example:
      >>> from pdgd_jax import sweep
      >>> two = [{"make": "two-phase"}, {"make": "random", "sizes": [1, 2, 1]}]
      >>> data = sweep({"instance": two, "seeds": 3, "settings": {"horizon": [50, 100]},
      ...               "learners": {"names": "uniform"}, "checkpoints": 5})
      >>> data.regret.dims[-3:], data.regret.shape
      (('horizon', 'seed', 'checkpoint'), (2, 1, 1, 1, 1, 2, 3, 5))
    """
    from pdgd_jax.store import open_results  # half a second, with xarray, if one asks for a sweep

    asked = _configuration(configuration)
    used = local_devices(devices)
    plan = plan_of(asked, width=width, save_every=save_every)
    report = Report(plan, done={group.name: 0 for group in plan.groups})
    tell = on_progress or (lambda report: None)
    tell(report)
    identity = identity_of(asked, width, save_every)

    def stop_if_asked() -> None:
        if should_stop is not None and should_stop():
            raise Interrupted

    with keeper_of(out, identity, plan.facts()) as keeper:
        if (finished := keeper.results()) is not None:
            report.done = {group.name: group.episodes for group in plan.groups}
            tell(report)
            return finished
        process, processes = jax.process_index(), jax.process_count()
        for group in plan.groups:
            mine = group.blocks[process::processes]
            for _ in _play_group(plan, group, mine, used, keeper, report, tell):
                stop_if_asked()
        if processes > 1:
            report.state = "waiting"
            for report.done in keeper.others(plan):
                tell(report)
                stop_if_asked()
            if process > 0 and out is not None:
                return open_results(out)
        report.state = "evaluating"
        tell(report)
        return keeper.keep_results(gather(plan, keeper.rows, keeper.policy))


def _configuration(given: Any) -> Configuration:
    if isinstance(given, Configuration):
        return given
    if isinstance(given, Mapping):
        return Configuration.from_dict(given)
    return read_configuration(given)


def identity_of(
    configuration: Configuration, width: int | None, save_every: int | None
) -> dict[str, Any]:
    """Everything that decides the bits of a sweep: a store of another one is refused."""
    return {
        "configuration": configuration.as_dict(),
        "versions": versions(),
        "precision": str(jnp.result_type(float)),
        "platform": jax.default_backend(),
        "width": width,
        "save_every": save_every,
    }


# Playing


def _play_group(
    plan: Plan,
    group: Group,
    blocks: tuple[Block, ...],
    devices: list[jax.Device],
    keeper: Keeper,
    report: Report,
    tell: Callable[[Report], None],
) -> Iterator[None]:
    """Play blocks, as many at once as there are devices; yields after every chunk."""
    slots = []
    for block in blocks:
        slot = keeper.slot(block)
        report.done[group.name] += slot.episode * len(block.lanes)
        if slot.ends:
            slots.append(slot)
    report.damage = keeper.damage
    program = Program(devices[: len(slots)]) if slots else None
    while program and slots:
        together, slots = slots[: program.blocks], slots[program.blocks :]
        yield from _play_blocks(plan, group, together, program, keeper, report, tell)


def _play_blocks(
    plan: Plan,
    group: Group,
    slots: list[Slot],
    program: Program,
    keeper: Keeper,
    report: Report,
    tell: Callable[[Report], None],
) -> Iterator[None]:
    idle = program.blocks - len(slots)  # devices for which there is no block left
    filled = [*slots, *[slots[-1]] * idle]
    width = group.width
    keys = jax.random.split(jax.random.key(plan.configuration.key), plan.configuration.seeds)
    lanes = [_wide(slot.block, width) for slot in filled]
    seeds = np.array([lane.seed for block in lanes for lane in block])
    cells = {lane.cell for block in lanes for lane in block}
    whats = {cell: plan.what(group, cell) for cell in cells}
    what = program.place(stacked([whats[lane.cell] for block in lanes for lane in block]))
    carry = _resumed(program, program.begin(program.place(keys[seeds]), what), filled, width)

    def play(stops: list[tuple[int, ...]]) -> Any:
        padded = [ends + ends[-1:] * (group.stops - len(ends)) for ends in stops]
        played = program.play(carry, what, np.array(padded))
        wait(played)
        return played

    if report.group != group.name:
        report.state, report.group = "compiling", group.name
        tell(report)
        play([(slot.episode,) for slot in filled])  # compiles, and plays nothing
        report.state = "playing"
        tell(report)
    while any(slot.ends for slot in filled[: len(slots)]):
        begin = time.perf_counter()
        ends = [slot.ends for slot in filled[: len(slots)]] + [()] * idle
        stops = [end or (slot.episode,) for end, slot in zip(ends, filled, strict=True)]
        carry, rows, policy = play(stops)
        host = as_arrays(carry) | {"policy": np.asarray(policy)}
        measured = as_arrays(rows)
        report.seconds += time.perf_counter() - begin
        for index, (slot, end) in enumerate(zip(filled, ends, strict=True)):
            if not end:
                continue
            mine = slice(index * width, (index + 1) * width)
            real = slice(index * width, index * width + len(slot.block.lanes))
            looked = _is_checkpoint(plan, slot.block, end)
            unconverged = int(host["metrics.unconverged"][real].sum())
            keeper.save_chunk(
                slot.block.name,
                slot.chunk,
                {name: array[mine] for name, array in host.items()},
                {name: array[: len(end)][looked, real] for name, array in measured.items()},
                {"episode": end[-1], "unconverged": unconverged},
            )
            episodes = (end[-1] - slot.episode) * len(slot.block.lanes)
            report.done[group.name] += episodes
            report.played += episodes
            report.unconverged[slot.block.name] = unconverged
            filled[index] = slot._replace(chunk=slot.chunk + 1)
        tell(report)
        yield


def _wide(block: Block, width: int) -> list[Any]:
    """The lanes of a block, filled up with copies of the last."""
    return [*block.lanes, *[block.lanes[-1]] * (width - len(block.lanes))]


def _resumed(program: Program, fresh: Carry, slots: list[Slot], width: int) -> Carry:
    """The beginning of all lanes, with those blocks that are further put in its place."""
    if all(slot.carry is None for slot in slots):
        return fresh
    arrays = {name: array.copy() for name, array in as_arrays(fresh).items()}
    for index, slot in enumerate(slots):
        mine = slice(index * width, (index + 1) * width)
        for name, array in (slot.carry or {}).items():
            if name != "policy":
                arrays[name][mine] = array
        assert (arrays["episode"][mine] == slot.episode).all(), slot.block.name
    return program.place(from_arrays(fresh, arrays))


def _is_checkpoint(plan: Plan, block: Block, ends: tuple[int, ...]) -> np.ndarray:
    checkpoints = checkpoint_episodes(block.horizon, plan.configuration.checkpoints)
    return np.isin(ends, checkpoints)
