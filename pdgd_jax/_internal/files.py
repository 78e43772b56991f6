"""Atomic files with checksums: a file is complete or missing, and damage is detected."""

import contextlib
import errno
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "ASIDE",
    "DamagedError",
    "WriteError",
    "fingerprint",
    "pack",
    "plain",
    "publish",
    "read_checked",
    "read_sealed",
    "seal",
    "sync",
    "unpack",
    "writing",
]

ASIDE = ".aside"  # the suffix of files that are still being written


class DamagedError(Exception):
    """A file is missing, or differs from what was written: one sentence that names the file."""


class WriteError(OSError):
    """A file could not be written, for example because the disk is full: one sentence."""


def publish(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files under temporary names, flush them to the disk, then rename them in this order.

    Temporary files are removed even after a failure, so that a full disk gets its space back.
    """
    asides = {name: folder / f"{name}.{os.getpid()}{ASIDE}" for name in files}
    try:
        for name, content in files.items():
            with open(asides[name], "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for name, aside in asides.items():
            os.replace(aside, folder / name)
        sync(folder)
    finally:
        for aside in asides.values():
            aside.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file to the disk. For a folder, flush the names in it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a `WriteError` that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WriteError(
                f"no room is left on the disk of {path}; nothing that was saved is lost: make room "
                "and run the same command again to continue."
            ) from error
        raise WriteError(f"{path} cannot be written: {error.strerror or error}.") from error


# Checksums


def fingerprint(content: bytes) -> dict[str, Any]:
    """Size and checksum."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_checked(path: Path, expected: Mapping[str, Any]) -> bytes:
    """The content of a file whose fingerprint is known.

    Raises:
      DamagedError: if it is missing, truncated, or a single bit has changed.
    """
    content = _read(path)
    if len(content) != expected["bytes"]:
        raise DamagedError(
            f"{path} is damaged: it has {len(content)} bytes instead of {expected['bytes']}."
        )
    if fingerprint(content) != expected:
        raise DamagedError(f"{path} is damaged: its checksum does not match.")
    return content


def seal(content: Any) -> bytes:
    """JSON that carries its own checksum."""
    checksum = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    text = json.dumps({"sha256": checksum, "content": content}, sort_keys=True, indent=1)
    return (text + "\n").encode()


def read_sealed(path: Path) -> Any:
    """Read what `seal` wrote.

    Raises:
      DamagedError: if the file is missing, or a single byte is not as it was written.
    """
    text = _read(path)
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        content = json.loads(text)["content"]
        if text == seal(content):
            return content
    raise DamagedError(f"{path} is damaged: its checksum does not match.")


def plain(value: Any) -> Any:
    """A value after a round trip through JSON: tuples become lists."""
    return json.loads(json.dumps(value, allow_nan=False))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise DamagedError(f"{path} is missing.") from None


# Arrays


def pack(arrays: Mapping[str, np.ndarray | np.generic]) -> bytes:
    """Pack arrays as NumPy's `.npz`, which `numpy.load` reads. Equal arrays give equal bytes.

    Args:
      arrays: arrays of numbers or booleans, by name.

    Raises:
      ValueError: if an array holds something else, or its name cannot be used in a file.

    Example:
      >>> import numpy as np
      >>> unpack(pack({"x": np.arange(3)}))
      {'x': array([0, 1, 2])}
    """
    plain_arrays: dict[str, Any] = {}
    for name, value in arrays.items():
        array = np.asarray(value, order="C")  # the bytes must not depend on the memory layout
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"{name!r} is of type {array.dtype}; only numbers and booleans can be saved."
            )
        if not name or "/" in name or name.startswith(".") or name in _ARGUMENTS:
            raise ValueError(
                f"an array cannot be named {name!r}: empty, with a slash, with a dot in front, or "
                f"{' or '.join(_ARGUMENTS)}."
            )
        plain_arrays[name] = array
    buffer = io.BytesIO()
    np.savez(buffer, **plain_arrays)  # dates every entry 1980
    return buffer.getvalue()


_ARGUMENTS = ("file", "allow_pickle")  # parameters of `numpy.savez`


def unpack(data: bytes) -> dict[str, np.ndarray]:
    """Unpack the arrays that `pack` packed."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
