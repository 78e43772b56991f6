"""How far a sweep is, for whoever shows it."""

import dataclasses
from enum import StrEnum
from typing import Any

from pdgd_jax.sweeps._plan import Plan

__all__ = ["SweepProgress", "SweepState"]


class SweepState(StrEnum):
    """What a process of a sweep does."""

    PLANNED = "planned"
    COMPILING = "compiling"
    PLAYING = "playing"
    WAITING = "waiting"  # for other processes
    EVALUATING = "evaluating"


@dataclasses.dataclass
class SweepProgress:
    """How far a sweep is; shown again whenever something has changed.

    Attributes:
      plan: what is played.
      state: what this process does.
      group: which group is compiled or played.
      done: finished episodes of each group, those of an earlier process included.
      played: those of this process alone.
      seconds: that this process spent playing them, compiling left out.
      unconverged: projections that did not converge, of each block.
      damage: what was found damaged and is played again, one sentence each.
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

    def facts(self) -> dict[str, Any]:
        """What `pdgd status` cannot see in the files that were saved."""
        keep = ("state", "group", "played", "seconds")
        return {name: getattr(self, name) for name in keep}
