"""The progress of the sweep in a folder, from the names and records of its files."""

import contextlib
import itertools
from pathlib import Path
from typing import Any, NamedTuple

from pdgd_jax._internal.files import DamagedError, read_sealed
from pdgd_jax.sweeps._chunk_files import record_name
from pdgd_jax.sweeps._lock import is_locked
from pdgd_jax.sweeps._results_files import NAME

__all__ = ["BlockProgress", "Doing", "Progress", "read_progress"]


class BlockProgress(NamedTuple):
    """The finished chunks of a block, in order.

    Attributes:
      facts: the facts of each, as saved.
      times: when each was saved, in seconds since 1970.
    """

    facts: tuple[dict[str, Any], ...]
    times: tuple[float, ...]


class Doing(NamedTuple):
    """The last report of a writing process.

    Attributes:
      facts: the report.
      time: when it was written, in seconds since 1970.
    """

    facts: dict[str, Any]
    time: float


class Progress(NamedTuple):
    """The progress of a sweep.

    Attributes:
      blocks: the blocks with a finished chunk, by name.
      running: whether a process is writing.
      opened: when a process last began to write, in seconds since 1970.
      has_results: whether there is a `results.zarr`.
      doing: the last reports of the writing processes.
    """

    blocks: dict[str, BlockProgress]
    running: bool
    opened: float
    has_results: bool
    doing: tuple[Doing, ...] = ()


def read_progress(path: Path) -> Progress:
    """Read the progress of the sweep in a folder; see `Store.progress`."""
    blocks = {}
    for folder in sorted(path.glob("blocks/*")):
        facts, times = [], []
        with contextlib.suppress(DamagedError):  # damaged or missing: the chunks end here
            for chunk in itertools.count():
                file = folder / record_name(chunk)
                facts.append(read_sealed(file)["facts"])
                times.append(file.stat().st_mtime)
        if facts:
            blocks[folder.name] = BlockProgress(tuple(facts), tuple(times))
    lock = path / "lock"
    opened = lock.stat().st_mtime if lock.exists() else 0.0
    writing = [file.name for file in sorted(path.glob("lock*")) if is_locked(file)]
    doing = []
    for name in writing:
        file = path / f"{name.replace('lock', 'now')}.json"
        with contextlib.suppress(DamagedError, OSError):
            doing.append(Doing(read_sealed(file), file.stat().st_mtime))
    return Progress(blocks, bool(writing), opened, (path / NAME).exists(), tuple(doing))
