"""How much memory there is, asked before something large is made."""

import contextlib
import os
from pathlib import Path

__all__ = ["check_memory", "free_memory", "size_in_words"]


def free_memory() -> float | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    found: list[float] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":") for line in lines)
        found.append(1024.0 * int(fields["MemAvailable"].split()[0]))
    if not found:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            found.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    with contextlib.suppress(OSError, ValueError):  # what a container may use: "max" is no number
        group = Path("/sys/fs/cgroup")
        used = int((group / "memory.current").read_text())
        found.append(float(int((group / "memory.max").read_text()) - used))
    return max(min(found), 0.0) if found else None


def check_memory(what: str, needed: float) -> None:
    """Refuse, in a sentence, what needs more bytes than are free."""
    free = free_memory()
    if free is not None and needed > free:
        raise ValueError(
            f"{what} needs about {size_in_words(needed)} of memory, and "
            f"{size_in_words(free)} are free; choose something smaller."
        )


def size_in_words(number: float) -> str:
    """Bytes, as in 3.5 GiB."""
    number = min(number, 10**300)  # what else there is to count is beyond every float
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} PiB"
