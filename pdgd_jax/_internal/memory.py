"""How much memory is free, to check before something large is built."""

import contextlib
import os
from pathlib import Path

import jax

from pdgd_jax._internal.text import size_in_words

__all__ = ["check_memory", "free_memory", "spare_bytes"]


def free_memory() -> int | None:
    """Bytes available without swapping; None if the system does not say."""
    found: list[int] = []
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        found.append(1024 * int(line.split()[1]))
    with contextlib.suppress(OSError, ValueError):  # a container's limit; "max" is not a number
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        lines = (group / "memory.stat").read_text().splitlines()
        cached = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
        found.append(limit - used + cached)
    if not found and hasattr(os, "sysconf"):
        with contextlib.suppress(OSError, ValueError):
            found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return max(0, min(found)) if found else None


def check_memory(what: str, needed: float) -> None:
    """Raise if `what` needs more bytes than are free."""
    free = free_memory()
    if free is not None and needed > free:
        raise ValueError(
            f"{what} needs about {size_in_words(needed)} of memory, and "
            f"{size_in_words(free)} are free; choose something smaller."
        )


def spare_bytes() -> int:
    """How many bytes a batch may use: a quarter of the device's memory, or 1 GiB if unknown."""
    statistics = jax.devices()[0].memory_stats() or {}
    return statistics.get("bytes_limit", 4 * 2**30) // 4
