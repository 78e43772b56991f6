"""How far a sweep is, from its files alone."""

import dataclasses
import time
from pathlib import Path
from typing import Any, cast

from pdgd_jax.sweeps._plan import PlanFacts

__all__ = ["GroupStatus", "ProcessStatus", "SweepStatus", "sweep_status"]


@dataclasses.dataclass(frozen=True)
class GroupStatus:
    """How far a group of lanes is.

    Attributes:
      name: of the group.
      learners: names.
      instances: labels.
      lanes: how many.
      episodes: those of all lanes together.
      episodes_done: those that are saved.
    """

    name: str
    learners: list[str]
    instances: list[str]
    lanes: int
    episodes: int
    episodes_done: int


@dataclasses.dataclass(frozen=True)
class ProcessStatus:
    """What a process that plays said last.

    Attributes:
      state: as in `SweepState`.
      group: which one it compiles or plays.
      seconds: since it said so.
    """

    state: str
    group: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class SweepStatus:
    """How far a sweep is.

    Attributes:
      name: of the sweep.
      state: "running", "stopped" or "finished".
      created: when it began, as text.
      lanes: how many there are.
      episodes: those of all lanes together.
      episodes_done: those that are saved.
      episodes_per_second: as the processes that run have measured it; None if none has.
      seconds_left: until everything is played, at that speed.
      seconds_since_saved: None if nothing is saved yet.
      processes: those that run, and have said something.
      unconverged: how many projections did not converge.
      groups: one compilation each.
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
        """By name, ready for JSON."""
        return dataclasses.asdict(self)


def sweep_status(folder: str | Path) -> SweepStatus:
    """How far the sweep in a folder is, from its files alone: also while it runs.

    Args:
      folder: of the sweep.

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
    # As the processes that run have measured it themselves: files do not tell what time went into.
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
