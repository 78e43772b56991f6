"""The folder of a sweep on disk: its manifest, the finished chunks, and the results.

```
DIR/manifest.json                        the question: identity, plan, created; written once
DIR/lock                                 held (flock) by the process that writes; lock-1, lock-2,
                                         ... by those that help it
DIR/now.json                             what the writing process is doing, for `pdgd status`;
                                         now-1.json, ... of its helpers; deleted when they end
DIR/blocks/NAME/carry-00003.npz          the state after chunk 3, to resume from
DIR/blocks/NAME/rows-00003.npz           the metric rows that chunk 3 added
DIR/blocks/NAME/chunk-00003.json         marks chunk 3 as complete, with sizes and checksums
DIR/results.zarr                         the Dataset; `xarray.open_zarr` reads it
```

Every file is written under a temporary name, flushed to the disk and renamed, so that it is either
complete or missing. `chunk-N.json` is renamed last: a chunk without it does not exist, and one with
it is complete. The rows of a chunk are one file (`numpy.load` opens it), so that appending is one
rename. Appending to shared arrays would change many files, which no rename can publish together.
`results.zarr` is a folder, which a rename cannot replace. It may therefore be missing for a moment,
but is never half written, and can always be rebuilt from the chunks. Every file has a sha256
checksum (JSON files contain theirs), so that damage is detected on reading. Nothing is pickled.
Only `manifest.json`, `lock` and `now.json` hold a time or a host: equal runs give equal bytes.

The store knows nothing about learning. `identity` is what must be equal to resume a sweep
(configuration, versions, key). `plan` is what else a reader needs (blocks and the number of their
chunks); it stays as first planned, so read `store.plan` when resuming. `facts` of a chunk describe
the progress (episodes played, projections that did not converge). All three are JSON. The times in
`progress()` are those of the files.

A `StoreError` is for the user to resolve (another sweep, in use, damaged). A `WriteError`, which is
an `OSError`, says that the disk is full or broken. Both are one sentence.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pdgd_jax._internal.files import (
    ASIDE,
    DamagedError,
    fingerprint,
    pack,
    plain,
    publish,
    read_checked,
    read_sealed,
    seal,
    sync,
    unpack,
    writing,
)
from pdgd_jax._internal.typing import Arrays
from pdgd_jax.sweeps._chunk_files import (
    carry_name,
    drop_old_carries,
    is_kept,
    newest_chunk,
    record_name,
    rows_name,
)
from pdgd_jax.sweeps._errors import StoreError
from pdgd_jax.sweeps._lock import is_locked, lock_name, now_name, take_lock
from pdgd_jax.sweeps._manifest import new_manifest, read_manifest
from pdgd_jax.sweeps._results_files import read_results, write_results
from pdgd_jax.sweeps._saved_progress import Progress, read_progress

if TYPE_CHECKING:  # takes a second to import
    import xarray

__all__ = ["Chunk", "Store", "open_results"]


class Chunk(NamedTuple):
    """A finished chunk of a block.

    Attributes:
      number: its number, from 0.
      carry: the state after it, to resume from.
      facts: its facts, as saved.
    """

    number: int
    carry: Arrays
    facts: dict[str, Any]


class Store:
    """The folder of a sweep; made by `Store.create` or `Store.open`.

    Attributes:
      path: the folder.
      identity: the question, as saved.
      plan: how it is divided into blocks and chunks.
      created: when the sweep began, as text.
      damage: the damage found so far, one sentence each, naming the file.

    Example:
      >>> import tempfile, numpy as np
      >>> folder = tempfile.mkdtemp() + "/sweep"
      >>> with Store.create(folder, {"key": 0}) as store:
      ...     store.save_chunk("b0", 0, {"state": np.arange(3)}, {"reward": np.ones((2, 1))})
      >>> with Store.open(folder, {"key": 0}, write=True) as store:
      ...     store.last_good("b0").carry, store.rows("b0")["reward"].shape
      ({'state': array([0, 1, 2])}, (2, 1))
      >>> Store.open(folder, {"key": 1})
      Traceback (most recent call last):
      pdgd_jax.sweeps._errors.StoreError: ... was made by another sweep: key: 0 there, 1 here.
    """

    def __init__(
        self, path: Path, manifest: Mapping[str, Any], lock: int | None, member: int = 0
    ) -> None:
        self.path = path
        self.identity: dict[str, Any] = manifest["identity"]
        self.plan: dict[str, Any] = manifest["plan"]
        self.created: str = manifest["created"]
        self.damage: list[str] = []
        self._lock = lock
        self._now = path / now_name(member)

    @classmethod
    def create(
        cls, path: str | Path, identity: Mapping[str, Any], plan: Mapping[str, Any] | None = None
    ) -> "Store":
        """Begin a sweep in a folder that is new or empty, and lock it.

        Raises:
          StoreError: if the folder holds anything, or another process uses it.
          WriteError: if it cannot be written.
        """
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise StoreError(f"{path} is not a folder; a sweep needs a folder.")
        manifest = new_manifest(identity, plan or {})
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        lock = take_lock(path)
        try:
            # A process that was killed early leaves a lock and temporary files.
            others = [p.name for p in path.iterdir() if p.name != "lock" and p.suffix != ASIDE]
            if "manifest.json" in others:
                raise StoreError(f"{path} holds a sweep already.")
            if others:
                raise StoreError(
                    f"{path} holds {min(others)}, which is not part of a sweep; choose a folder "
                    "that is new or empty."
                )
            with writing(path):
                publish(path, {"manifest.json": seal(manifest)})
                sync(path.absolute().parent)
        except BaseException:
            os.close(lock)
            raise
        return cls(path, manifest, lock)

    @classmethod
    def open(
        cls,
        path: str | Path,
        identity: Mapping[str, Any] | None = None,
        *,
        write: bool = False,
        member: int = 0,
    ) -> "Store":
        """Open the folder of a sweep, to read or to resume it.

        Args:
          path: the folder.
          identity: the identity of the sweep; None to accept any sweep.
          write: whether to lock the folder and resume; reading needs no lock and disturbs no
            writer.
          member: the number of this process among several that write together, each other blocks.
            Member 0 opens first and keeps other sweeps away; members 1, 2, ... follow.

        Raises:
          StoreError: if there is no sweep, its manifest is damaged, its identity differs, or
            another process is writing.
          WriteError: if the lock cannot be written.
        """
        path = Path(path)
        manifest = read_manifest(path, identity)
        lock = None
        if write:
            lock = take_lock(path, member)
            for left in [] if member else list(path.rglob(f"*{ASIDE}")):  # of a killed process
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            for folder in [] if member else path.glob("blocks/*"):
                drop_old_carries(folder)
            _forget(path / now_name(member))  # of a killed process
        return cls(path, manifest, lock, member)

    def close(self) -> None:
        """Release the lock; nothing can be saved afterwards."""
        if self._lock is not None:
            _forget(self._now)
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save_chunk(
        self,
        block: str,
        chunk: int,
        carry: Mapping[str, np.ndarray],
        rows: Mapping[str, np.ndarray],
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish a chunk: it is on the disk once this returns, and does not exist if this fails.

        Args:
          block: the name of the block: letters, digits, `-` and `_`.
          chunk: the number of the chunk, from 0.
          carry: the state for the next chunk: arrays of numbers or booleans.
          rows: the measurements, with the checkpoints along the first axis.
          facts: facts about the progress, for `progress()`.

        Raises:
          WriteError: if it could not be written, for example because the disk is full.
        """
        self._check_writable()
        folder = self._folder(block)
        files = {carry_name(chunk): pack(carry), rows_name(chunk): pack(rows)}
        record = {
            "chunk": chunk,
            "facts": plain(facts or {}),
            "files": {name: fingerprint(content) for name, content in files.items()},
        }
        with writing(self.path):
            if not folder.exists():
                folder.mkdir(parents=True)
                sync(folder.parent)
                sync(self.path)
            publish(folder, {**files, record_name(chunk): seal(record)})
            drop_old_carries(folder)

    def say(self, facts: Mapping[str, Any]) -> None:
        """Record what this process is doing, for `pdgd status`; errors are ignored."""
        self._check_writable()
        aside = self._now.with_name(f"{self._now.name}.{os.getpid()}{ASIDE}")
        with contextlib.suppress(OSError):
            aside.write_bytes(seal(plain(facts)))
            os.replace(aside, self._now)

    def last_good(self, block: str) -> Chunk | None:
        """The newest chunk to resume from: it and all rows up to it are undamaged.

        Damaged files are listed in `damage`, and overwritten when their chunk is saved again.
        """
        folder = self._folder(block)
        newest = newest_chunk(folder)
        for record in reversed([record for record, _ in self._good(block)]):
            number = record["chunk"]
            file = folder / carry_name(number)
            if not file.exists() and not is_kept(number, newest):
                continue  # deleted on purpose
            with self._noting_damage():
                carry = unpack(read_checked(file, record["files"][file.name]))
                return Chunk(number, carry, record["facts"])
        return None

    def rows(self, block: str) -> Arrays:
        """The rows of all chunks up to the first missing or damaged one, concatenated."""
        parts = [rows for _, rows in self._good(block)]
        names = parts[0] if parts else {}
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    def progress(self) -> Progress:
        """How far the sweep is, read quickly from its files, even while another process writes."""
        return read_progress(self.path)

    def is_writing(self, member: int) -> bool:
        """Whether this member of several writing processes is still alive."""
        return is_locked(self.path / lock_name(member))

    def save_results(self, dataset: "xarray.Dataset") -> None:
        """Publish a Dataset as `results.zarr`; it replaces an older one once it is complete.

        The attribute `created` stays in the manifest, so that equal results are equal bytes.

        Raises:
          WriteError: if it could not be written; older results are then kept.
        """
        self._check_writable()
        write_results(self.path, dataset)

    def _check_writable(self) -> None:
        if self._lock is None:
            raise StoreError(f"{self.path} was opened to read; open it with write=True to save.")

    def _folder(self, block: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", block):
            raise ValueError(f"blocks are named with letters, digits, - and _; got {block!r}.")
        return self.path / "blocks" / block

    def _good(self, block: str) -> Iterator[tuple[dict[str, Any], Arrays]]:
        """Records and rows of chunks 0, 1, ... up to the first missing or damaged one."""
        folder = self._folder(block)
        with self._noting_damage():
            for chunk in range(newest_chunk(folder) + 1):
                record = read_sealed(folder / record_name(chunk))
                name = rows_name(chunk)
                yield record, unpack(read_checked(folder / name, record["files"][name]))

    @contextlib.contextmanager
    def _noting_damage(self) -> Iterator[None]:
        try:
            yield
        except DamagedError as error:
            if str(error) not in self.damage:
                self.damage.append(str(error))


def open_results(path: str | Path) -> "xarray.Dataset":
    """Read the results of a sweep from its folder; every byte is checked before use.

    Args:
      path: the folder of the sweep.

    Raises:
      StoreError: if there are no results yet, or one of their files is damaged.
    """
    store = Store.open(path)
    progress = store.progress()
    if not progress.has_results:
        if progress.running:
            raise StoreError(
                f"{store.path} has no results yet: the sweep is running{_share(store, progress)}; "
                f"`pdgd status {store.path}` shows how far it is, and results come at the end."
            )
        raise StoreError(f"{store.path} has no results yet; run the sweep again to finish it.")
    return read_results(store.path).assign_attrs(created=store.created)


def _share(store: Store, progress: Progress) -> str:
    """The share of chunks that are saved, as text; empty if the plan does not say how many."""
    blocks = [b for group in store.plan.get("groups", []) for b in group.get("blocks", {}).values()]
    total = sum(block.get("chunks", 0) for block in blocks)
    saved = sum(len(block.facts) for block in progress.blocks.values())
    return f", {100 * saved // total}% of its chunks are saved" if total else ""


def _forget(file: Path) -> None:
    with contextlib.suppress(OSError):
        if file.exists():
            file.unlink()
