"""The status of a sweep, read from its files."""

import dataclasses
import time
from pathlib import Path
from typing import Any, cast

from pdgd_jax.sweeps._plan_facts import PlanFacts

__all__ = ["GroupStatus", "ProcessStatus", "SweepStatus", "sweep_status"]


@dataclasses.dataclass(frozen=True)
class GroupStatus:
    """The status of a group of lanes.

    Attributes:
      name: the name of the group.
      learners: the names of the learners.
      instances: the labels of the instances.
      lanes: the number of lanes.
      episodes: the episodes of all lanes together.
      episodes_done: the episodes that are saved.
    """

    name: str
    learners: list[str]
    instances: list[str]
    lanes: int
    episodes: int
    episodes_done: int


@dataclasses.dataclass(frozen=True)
class ProcessStatus:
    """The last report of a playing process.

    Attributes:
      state: a `SweepState`.
      group: the group that it compiles or plays.
      seconds: the age of the report.
    """

    state: str
    group: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class SweepStatus:
    """The status of a sweep.

    Attributes:
      name: the name of the sweep.
      state: "running", "stopped" or "finished".
      created: when it began, as text.
      lanes: the number of lanes.
      episodes: the episodes of all lanes together.
      episodes_done: the episodes that are saved.
      episodes_per_second: the speed that running processes measured; None if none has.
      seconds_left: the time until everything is played at that speed.
      seconds_since_saved: the time since the last save; None if nothing is saved yet.
      processes: the running processes that have reported something.
      unconverged: the number of projections that did not converge.
      groups: the groups; each compiles once.
    """

    name: str
    state: str
    created: str
    lanes: int
    episodes: int
    episodes_done: int
    episodes_per_second: float | None
    seconds_left: float | None
    seconds_since_saved: float | None
    processes: list[ProcessStatus]
    unconverged: int
    groups: list[GroupStatus]

    def as_dict(self) -> dict[str, Any]:
        """The status as a dictionary, ready for JSON."""
        return dataclasses.asdict(self)


def sweep_status(folder: str | Path) -> SweepStatus:
    """Read the status of the sweep in a folder from its files, even while it runs.

    Args:
      folder: the folder of the sweep.

    Raises:
      StoreError: if the folder holds no sweep.
    """
    from pdgd_jax.sweeps._folder import Store

    store = Store.open(folder)
    progress, plan, now = store.progress(), cast(PlanFacts, store.plan), time.time()
    groups, unconverged = [], 0
    for group in plan["groups"]:
        done = 0
        for name, block in group["blocks"].items():
            if name in progress.blocks:
                last = progress.blocks[name].facts[-1]
                done += last["episode"] * block["lanes"]
                unconverged += last["unconverged"]
        groups.append(
            GroupStatus(
                name=group["name"],
                learners=group["learners"],
                instances=group["instances"],
                lanes=group["lanes"],
                episodes=group["episodes"],
                episodes_done=done,
            )
        )
    done = sum(group.episodes_done for group in groups)
    # As the running processes measured it: the files do not tell compiling from playing.
    measured = [said.facts for said in progress.doing if said.facts["seconds"] > 0]
    speed = sum(facts["played"] / facts["seconds"] for facts in measured) or None
    saved = [block.times[-1] for block in progress.blocks.values()]
    finished = progress.has_results and done == plan["episodes"]
    running = "running" if progress.running else "stopped"
    return SweepStatus(
        name=store.identity["configuration"]["name"],
        state="finished" if finished else running,
        created=store.created,
        lanes=plan["lanes"],
        episodes=plan["episodes"],
        episodes_done=done,
        episodes_per_second=speed,
        seconds_left=(plan["episodes"] - done) / speed if speed else None,
        seconds_since_saved=max(0.0, now - max(saved)) if saved else None,
        processes=[
            ProcessStatus(said.facts["state"], said.facts["group"], max(0.0, now - said.time))
            for said in progress.doing
        ],
        unconverged=unconverged,
        groups=groups,
    )
