"""Files that are there whole or not at all, and that tell when they are damaged."""

import contextlib
import errno
import hashlib
import io
import json
import os
import zipfile
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

ASIDE = ".aside"  # ends the name of what is still being written


class DamagedError(Exception):
    """A file that is missing, or not as it was written: a sentence that names it."""


class WriteError(OSError):
    """A file could not be written, for example because the disk is full: one sentence."""


def publish(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files aside, flush them to the disk, then rename them, one by one in this order.

    Whatever goes wrong, nothing is left aside, so that a full disk has its room back.
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
    """Flush a file to the disk, or a folder: the names in it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn failures of the file system into one sentence that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WriteError(
                f"no room is left on the disk of {path}; nothing that was saved is lost: make room "
                "and run the same command again to go on."
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
    """What was sealed.

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
    """A value as JSON gives it back: tuples are lists."""
    return json.loads(json.dumps(value, allow_nan=False))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise DamagedError(f"{path} is missing.") from None


# Arrays


def pack(arrays: Mapping[str, np.ndarray], first_axis: str | None = None) -> bytes:
    """Arrays as a Zarr store (its second format, not compressed) in a zip file.

    Written by hand since Zarr dates the entries: equal arrays must be equal bytes.

    Args:
      arrays: of numbers or booleans, by name.
      first_axis: what xarray is to call the first axis of all of them.
    """
    metadata: dict[str, Any] = {".zgroup": {"zarr_format": 2}}
    content: dict[str, bytes] = {}
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"{name!r} is of type {array.dtype}; only numbers and booleans can be saved."
            )
        if not name or "/" in name or name.startswith("."):
            raise ValueError(
                f"an array cannot be named {name!r}: empty, with a slash, or with a dot in front."
            )
        axes = [f"{name}_{axis}" for axis in range(array.ndim)]
        if first_axis and axes:
            axes[0] = first_axis
        metadata[f"{name}/.zarray"] = {
            "zarr_format": 2,
            "shape": array.shape,
            "chunks": [max(size, 1) for size in array.shape],
            "dtype": array.dtype.str,
            "order": "C",
            "compressor": None,
            "filters": None,
            "fill_value": None,
        }
        metadata[f"{name}/.zattrs"] = {"_ARRAY_DIMENSIONS": axes}
        content[f"{name}/{_only_chunk(array.ndim)}"] = array.tobytes()
    consolidated = {"zarr_consolidated_format": 1, "metadata": metadata}
    texts = {
        name: json.dumps(value).encode()
        for name, value in {**metadata, ".zmetadata": consolidated}.items()
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in {**texts, **content}.items():
            file.writestr(zipfile.ZipInfo(name), data)  # dated 1980, as all of them
    return buffer.getvalue()


def unpack(data: bytes) -> dict[str, np.ndarray]:
    """The arrays that were packed."""
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        for key, facts in json.loads(file.read(".zmetadata"))["metadata"].items():
            name, _, kind = key.rpartition("/")
            if kind == ".zarray":
                content = file.read(f"{name}/{_only_chunk(len(facts['shape']))}")
                flat = np.frombuffer(content, facts["dtype"])
                arrays[name] = flat.reshape(facts["shape"]).copy()
    return arrays


def _only_chunk(ndim: int) -> str:
    return ".".join("0" * max(ndim, 1))
