"""A plan in plain numbers and texts, as JSON and the manifest of a sweep hold it."""

from typing import TypedDict

__all__ = ["BlockFacts", "GroupFacts", "PlanFacts"]


class BlockFacts(TypedDict):
    """A block, as the manifest of a sweep keeps it."""

    horizon: int
    lanes: int
    chunks: int


class GroupFacts(TypedDict):
    """A group, as the manifest of a sweep keeps it; see `Group`."""

    name: str
    learners: list[str]
    instances: list[str]
    shape: list[int]
    constraints: int
    processes: list[str]
    lanes: int
    width: int
    episodes: int
    bytes_per_device: int
    blocks: dict[str, BlockFacts]


class PlanFacts(TypedDict):
    """A plan, as the manifest of a sweep keeps it."""

    lanes: int
    episodes: int
    compilations: int
    groups: list[GroupFacts]
