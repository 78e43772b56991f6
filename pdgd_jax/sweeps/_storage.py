"""Stores for the chunks of a sweep: in memory, or in a folder that several processes may share."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from pdgd_jax._internal.typing import Arrays
from pdgd_jax.sweeps._cluster import agree
from pdgd_jax.sweeps._plan import Block, Group, Plan

if TYPE_CHECKING:
    import xarray

    from pdgd_jax.sweeps._folder import Store

__all__ = [
    "ChunkStore",
    "FolderStore",
    "LeftAloneError",
    "MemoryStore",
    "Slot",
    "blocks_of",
    "chunk_store",
]


class LeftAloneError(OSError):
    """Another process of a sweep ended before its work was done: one sentence."""


def blocks_of(group: Group, process: int) -> tuple[Block, ...]:
    """The blocks of a group that one of several processes plays."""
    return group.blocks[process :: jax.process_count()]


class Slot(NamedTuple):
    """A block and its next chunk.

    Attributes:
      block: the block.
      chunk: the number of the next chunk.
      carry: the state at its beginning; None for the first chunk.
    """

    block: Block
    chunk: int = 0
    carry: Arrays | None = None

    @property
    def episode(self) -> int:
        """The number of episodes played."""
        return self.block.chunks[self.chunk - 1][-1] if self.chunk else 0

    @property
    def ends(self) -> tuple[int, ...]:
        """The stops of the next chunk; empty if there is none."""
        return self.block.chunks[self.chunk] if self.chunk < len(self.block.chunks) else ()


@runtime_checkable
class ChunkStore(Protocol):
    """A store for the chunks and the results of a sweep.

    Attributes:
      damage: the damage that was found, one sentence each.
    """

    damage: list[str]

    def results(self) -> "xarray.Dataset | None":
        """The results, if the sweep was finished earlier and they are not damaged."""

    def say(self, facts: Mapping[str, Any]) -> None:
        """Record what this process is doing, for `pdgd status`."""

    def slot(self, block: Block) -> Slot:
        """Where to resume a block: after the last undamaged chunk."""

    def save_chunk(
        self, name: str, chunk: int, carry: Arrays, rows: Arrays, facts: Mapping[str, Any]
    ) -> None:
        """Keep a chunk of a block; see `Store.save_chunk`."""

    def rows(self, block: Block) -> Arrays:
        """All rows of a finished block."""

    def policy(self, block: Block) -> np.ndarray:
        """The last policies of a finished block."""

    def others(self, plan: Plan) -> Iterator[dict[str, int]]:
        """Wait for the other processes: yields the episodes of each group until all are played."""

    def keep_results(self, dataset: "xarray.Dataset") -> "xarray.Dataset":
        """Keep the results, and return them as they were kept."""


class MemoryStore:
    """Keeps the chunks of one process in memory."""

    def __init__(self) -> None:
        self.damage: list[str] = []
        self._policies: dict[str, np.ndarray] = {}
        self._rows: dict[str, list[Arrays]] = {}

    def results(self) -> "xarray.Dataset | None":
        """None, since there is no earlier sweep."""
        return None

    def say(self, facts: Mapping[str, Any]) -> None:
        """Do nothing."""
        del facts

    def slot(self, block: Block) -> Slot:
        """The beginning of the block."""
        return Slot(block)

    def save_chunk(
        self, name: str, chunk: int, carry: Arrays, rows: Arrays, facts: Mapping[str, Any]
    ) -> None:
        """Keep the rows, and the policies of the carry."""
        del chunk, facts
        self._policies[name] = carry["policy"]
        self._rows.setdefault(name, []).append(rows)

    def rows(self, block: Block) -> Arrays:
        """All rows of a finished block."""
        parts = self._rows[block.name]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def policy(self, block: Block) -> np.ndarray:
        """The last policies of a finished block."""
        return self._policies[block.name]

    def others(self, plan: Plan) -> Iterator[dict[str, int]]:
        """Yield nothing, since there are no other processes."""
        yield from ()

    def keep_results(self, dataset: "xarray.Dataset") -> "xarray.Dataset":
        """The results as they are."""
        return dataset


class FolderStore:
    """Keeps chunks in a folder, which several processes may share."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self.damage = store.damage

    def results(self) -> "xarray.Dataset | None":
        """The results, if the sweep was finished earlier and they are not damaged."""
        from pdgd_jax.sweeps._errors import StoreError
        from pdgd_jax.sweeps._folder import open_results

        try:
            return open_results(self._store.path)
        except StoreError:
            return None

    def say(self, facts: Mapping[str, Any]) -> None:
        """Record what this process is doing; see `Store.say`."""
        self._store.say(facts)

    def slot(self, block: Block) -> Slot:
        """Where to resume a block: after the last undamaged chunk."""
        found = self._store.last_good(block.name)
        return Slot(block) if found is None else Slot(block, found.number + 1, found.carry)

    def save_chunk(
        self, name: str, chunk: int, carry: Arrays, rows: Arrays, facts: Mapping[str, Any]
    ) -> None:
        """Save a chunk; see `Store.save_chunk`."""
        self._store.save_chunk(name, chunk, carry, rows, facts)

    def rows(self, block: Block) -> Arrays:
        """All rows of a finished block."""
        return self._store.rows(block.name)

    def policy(self, block: Block) -> np.ndarray:
        """The last policies of a finished block."""
        last = self._store.last_good(block.name)
        assert last is not None, block.name
        return last.carry["policy"]

    def others(self, plan: Plan, pause: float = 0.5) -> Iterator[dict[str, int]]:
        """Wait for the other processes by reading their files.

        Raises:
          LeftAloneError: if one of them ended before its work was done.
        """
        first = jax.process_index() == 0
        while True:
            # In this order: a process that is gone has saved all that it ever will.
            gone = [i for i in range(jax.process_count()) if not self._store.is_writing(i)]
            progress = self._store.progress()
            done = {
                block.name: found.facts[-1]["episode"] * len(block.lanes)
                for _, block in plan.blocks()
                if (found := progress.blocks.get(block.name)) is not None
            }
            yield {
                group.name: sum(done.get(block.name, 0) for block in group.blocks)
                for group in plan.groups
            }
            played = sum(done.values()) == plan.episodes
            if played and (first or progress.has_results):
                return
            for process in gone:
                theirs = [b for group in plan.groups for b in blocks_of(group, process)]
                owes_results = process == 0 and not progress.has_results
                if owes_results or any(done.get(b.name) != b.episodes for b in theirs):
                    raise LeftAloneError(
                        f"process {process} ended before its work was done; what was played is "
                        f"saved in {self._store.path}: run the same commands again to continue."
                    )
            time.sleep(pause)

    def keep_results(self, dataset: "xarray.Dataset") -> "xarray.Dataset":
        """Save the results, and read them back."""
        from pdgd_jax.sweeps._folder import open_results

        self._store.save_results(dataset)
        return open_results(self._store.path)


def _planned_alike(store: "Store", plan: Mapping[str, Any]) -> "Store":
    """Return the store if its blocks are those of the plan; otherwise lanes would be mixed up."""
    from pdgd_jax.sweeps._errors import StoreError

    if store.plan != plan:
        store.close()
        raise StoreError(
            f"{store.path} was cut into other blocks than this version of pdgd_jax plans; finish "
            "it with the version that began it, or begin again in a new folder."
        )
    return store


@contextlib.contextmanager
def chunk_store(
    out: str | Path | None, identity: Mapping[str, Any], plan: Mapping[str, Any]
) -> Iterator[ChunkStore]:
    """Open a store in a folder, which stays locked meanwhile, or in memory if `out` is None.

    Raises:
      StoreError: if the folder holds another sweep or blocks of another plan, or is in use.
      ValueError: if there are several processes but no common folder.
    """
    several = jax.process_count() > 1
    if out is None:
        if several:
            raise ValueError("several processes share their work through a folder; give one.")
        yield MemoryStore()
        return
    from pdgd_jax.sweeps._errors import StoreError
    from pdgd_jax.sweeps._folder import Store

    first = jax.process_index() == 0
    store = None
    try:
        if first and (Path(out) / "manifest.json").exists():
            store = _planned_alike(Store.open(out, identity, write=True), plan)
        elif first:
            store = Store.create(out, identity, plan)
    finally:
        opened = agree(store is not None)
    if not opened:
        raise StoreError(f"process 0 could not open {out}; its error says why.")
    try:
        if store is None:
            store = Store.open(out, identity, write=True, member=jax.process_index())
    finally:
        agree(True)  # from here on, a free lock means that a process has ended
    with store:
        yield FolderStore(store)
