"""The files of the chunks of a block: their names, and which carries are kept."""

import functools
from pathlib import Path

__all__ = [
    "carry_name",
    "drop_old_carries",
    "is_kept",
    "newest_chunk",
    "record_name",
    "rows_name",
]


def _name(kind: str, suffix: str, chunk: int) -> str:
    return f"{kind}-{chunk:05d}.{suffix}"


carry_name = functools.partial(_name, "carry", "npz")
rows_name = functools.partial(_name, "rows", "npz")
record_name = functools.partial(_name, "chunk", "json")


def is_kept(chunk: int, newest: int) -> bool:
    """Whether a carry is kept: the last two, and 0, 1, 3, 7, ... in case rows are damaged."""
    return chunk >= newest - 1 or chunk & (chunk + 1) == 0


def drop_old_carries(folder: Path) -> None:
    """Delete the carries of a block that need not be kept."""
    newest = newest_chunk(folder)
    for file in folder.glob("carry-*.npz"):
        if not is_kept(_number(file), newest):
            file.unlink()


def newest_chunk(folder: Path) -> int:
    """The number of the newest published chunk; -1 if there is none."""
    return max((_number(file) for file in folder.glob("chunk-*.json")), default=-1)


def _number(file: Path) -> int:
    return int(file.name.partition("-")[2].partition(".")[0])
