"""The progress of a sweep, for display."""

import dataclasses
from enum import StrEnum
from typing import Any

from pdgd_jax.sweeps._plan import Plan

__all__ = ["SweepProgress", "SweepState"]


class SweepState(StrEnum):
    """What a process of a sweep is doing."""

    PLANNED = "planned"
    COMPILING = "compiling"
    PLAYING = "playing"
    WAITING = "waiting"  # for other processes
    EVALUATING = "evaluating"


@dataclasses.dataclass
class SweepProgress:
    """The progress of a sweep, updated whenever something changes.

    Attributes:
      plan: the plan of the sweep.
      state: what this process is doing.
      group: the group that is being compiled or played.
      done: finished episodes of each group, including those of earlier processes.
      played: episodes played by this process.
      seconds: the time this process spent playing them, without compilation.
      unconverged: the number of projections that did not converge, by block.
      damage: damage that was found and is being repaired, one sentence each.
    """

    plan: Plan
    state: SweepState = SweepState.PLANNED
    group: str = ""
    done: dict[str, int] = dataclasses.field(default_factory=dict)
    played: int = 0
    seconds: float = 0.0
    unconverged: dict[str, int] = dataclasses.field(default_factory=dict)
    damage: list[str] = dataclasses.field(default_factory=list)

    @property
    def episodes(self) -> int:
        """Finished episodes of all groups."""
        return sum(self.done.values())

    @property
    def speed(self) -> float:
        """Episodes per second."""
        return self.played / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float:
        """The time until everything is played at the current speed, without compilation."""
        left = self.plan.episodes - self.episodes
        return left / self.speed if self.speed else float("nan")

    def facts(self) -> dict[str, Any]:
        """What `pdgd status` cannot see in the saved files."""
        keep = ("state", "group", "played", "seconds")
        return {name: getattr(self, name) for name in keep}
