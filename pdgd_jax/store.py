"""A sweep on disk: what was asked, the chunks that are finished, and the results.

```
DIR/manifest.json                        what was asked: identity, plan, created; written once
DIR/lock                                 held (flock) by the process that writes
DIR/blocks/NAME/carry-00003.zarr.zip     how to go on after chunk 3
DIR/blocks/NAME/rows-00003.zarr.zip      the metric rows that chunk 3 added
DIR/blocks/NAME/chunk-00003.json         says that chunk 3 is complete, with sizes and checksums
DIR/results.zarr                         the Dataset, `xarray.open_zarr` reads it
```

Every file is written aside, flushed to the disk and renamed, so that it is there whole or not at
all. `chunk-N.json` is renamed last: a chunk without it does not exist, and one with it is complete.
The rows of a chunk are a Zarr store of their own, in one file (xarray opens it through
`zarr.storage.ZipStore`): appending is then one rename, where rows appended to shared arrays would
change many files that no rename can publish together. `results.zarr` is a folder, which a rename
cannot replace; it may therefore be missing for a moment, never half written, and is always made
from the chunks. Every file has a sha256 checksum,
JSON files in themselves, so that damage is found whenever something is read. Nothing is pickled,
and no file but `manifest.json` and `lock` holds a time or a host: equal runs give equal bytes.

The store knows nothing of learning. `identity` is whatever must be equal for a sweep to be resumed
(configuration, versions, key), `plan` whatever a reader needs to know beside it (blocks, how many
chunks each will have; kept as it was first planned: read `store.plan` when resuming), `facts` of a
chunk whatever the progress consists of (episodes played, projections that did not converge): all
three are JSON. The times in `progress()` are those of the files.
"""

import contextlib
import datetime
import errno
import fcntl
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import socket
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import xarray
import zarr

__all__ = ["BlockProgress", "Chunk", "Progress", "Store", "StoreError", "open_results"]

Arrays = dict[str, np.ndarray]

_FORMAT = 1
_ASIDE = ".aside"
_CHECKSUMS = ".checksums.json"  # in results.zarr, where readers of Zarr pass it over


class StoreError(ValueError):
    """Something about a store that its user has to decide: one sentence."""


class Chunk(NamedTuple):
    """A finished chunk of a block.

    Attributes:
      number: from 0.
      carry: how to go on after it.
      facts: as saved.
    """

    number: int
    carry: Arrays
    facts: dict[str, Any]


class BlockProgress(NamedTuple):
    """The finished chunks of a block.

    Attributes:
      name: of the block.
      facts: as saved, of every finished chunk in order.
      times: when each was saved, in seconds since 1970.
    """

    name: str
    facts: tuple[dict[str, Any], ...]
    times: tuple[float, ...]


class Progress(NamedTuple):
    """How far a sweep is.

    Attributes:
      blocks: those that have begun, by name.
      running: whether a process is writing.
      opened: when a process last opened the store to write, in seconds since 1970.
      finished: whether there are results.
    """

    blocks: dict[str, BlockProgress]
    running: bool
    opened: float
    finished: bool


class Store:
    """The folder of a sweep; made by `Store.create` or `Store.open`.

    Attributes:
      path: the folder.
      identity: what was asked.
      plan: how it is cut into blocks and chunks.
      created: when, as text.
      damage: what was found damaged so far, one sentence each, naming the file.

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
      pdgd_jax.store.StoreError: ... was made by another sweep: key: 0 there, 1 here.
    """

    def __init__(self, path: Path, manifest: dict[str, Any], lock: int | None) -> None:
        self.path = path
        self.identity: dict[str, Any] = manifest["identity"]
        self.plan: dict[str, Any] = manifest["plan"]
        self.created: str = manifest["created"]
        self.damage: list[str] = []
        self._lock = lock

    @classmethod
    def create(
        cls, path: str | Path, identity: Mapping[str, Any], plan: Mapping[str, Any] | None = None
    ) -> Self:
        """Begin a sweep in a folder that is new or empty, and lock it.

        Raises:
          StoreError: if the folder holds anything, or cannot be written.
        """
        path = Path(path)
        with _writing(path):
            try:
                path.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise StoreError(f"{path} is not a folder; a sweep needs one of its own.") from None
        lock = _take_lock(path)
        try:
            # A process that was killed at once leaves a lock, and what it wrote aside.
            others = [p for p in path.iterdir() if p.name != "lock" and p.suffix != _ASIDE]
            if (path / "manifest.json") in others:
                raise StoreError(f"{path} holds a sweep already.")
            if others:
                raise StoreError(
                    f"{path} holds {others[0].name}, which is no part of a sweep; choose a folder "
                    "that is new or empty."
                )
            manifest = {
                "format": _FORMAT,
                "identity": _plain(identity),
                "plan": _plain(plan or {}),
                "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            }
            with _writing(path):
                _publish(path, {"manifest.json": _sealed(manifest)})
                _sync(path.absolute().parent)
        except BaseException:
            os.close(lock)
            raise
        return cls(path, manifest, lock)

    @classmethod
    def open(
        cls, path: str | Path, identity: Mapping[str, Any] | None = None, *, write: bool = False
    ) -> Self:
        """Open the folder of a sweep, to read or to go on.

        Args:
          path: the folder.
          identity: what is asked now; None to take whatever is there.
          write: whether to lock it and go on; reading needs no lock and disturbs no writer.

        Raises:
          StoreError: if there is no sweep, its manifest is damaged, another was asked for, or
            another process is writing.
        """
        path = Path(path)
        manifest = _read_manifest(path)
        if identity is not None:
            differences = list(_differences("", manifest["identity"], _plain(identity)))
            if differences:
                raise StoreError(f"{path} was made by another sweep: {'; '.join(differences)}.")
        lock = None
        if write:
            lock = _take_lock(path)
            for left in list(path.rglob(f"*{_ASIDE}")):  # by a process that was killed
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        return cls(path, manifest, lock)

    def close(self) -> None:
        """Free the lock."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
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
        """Publish a chunk; when this returns it is on the disk, before it is as if never saved.

        Args:
          block: its name: letters, digits, `-` and `_`.
          chunk: its number, from 0.
          carry: what the next chunk needs: arrays of numbers or booleans.
          rows: what was measured, with the checkpoints along the first axis.
          facts: about the progress, for `progress()`.

        Raises:
          StoreError: if it could not be written, for example because the disk is full.
        """
        self._check_writable()
        folder = self._folder(block)
        files = {_carry(chunk): _packed(carry), _rows(chunk): _packed(rows, "checkpoint")}
        record = {
            "chunk": chunk,
            "facts": _plain(facts or {}),
            "files": {name: _fingerprint(content) for name, content in files.items()},
        }
        with _writing(self.path):
            if not folder.exists():
                folder.mkdir(parents=True)
                _sync(folder.parent)
                _sync(self.path)
            _publish(folder, {**files, _record(chunk): _sealed(record)})
            for number in range(chunk):
                if not _is_kept(number, chunk):
                    (folder / _carry(number)).unlink(missing_ok=True)

    def last_good(self, block: str) -> Chunk | None:
        """The newest chunk to go on from: it and all rows up to it are undamaged.

        Whatever is damaged is named in `damage`, and overwritten when its chunk is saved again.
        """
        for record in reversed(list(self._good_records(block))):
            number = record["chunk"]
            carry = self._folder(block) / _carry(number)
            newest = _count(self._folder(block)) - 1
            if carry.exists() or _is_kept(number, newest):
                content = self._checked(carry, record["files"][carry.name])
                if content is not None:
                    return Chunk(number, _unpacked(content), record["facts"])
        return None

    def rows(self, block: str) -> Arrays:
        """The rows of all chunks up to the first that is missing or damaged, one after another."""
        parts = [
            _unpacked((self._folder(block) / _rows(record["chunk"])).read_bytes())
            for record in self._good_records(block)
        ]
        if not parts:
            return {}
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def progress(self) -> Progress:
        """How far the sweep is: quick, from the files alone, while another process writes."""
        blocks = {}
        for folder in sorted(self.path.glob("blocks/*")):
            facts, times = [], []
            for chunk in itertools.count():
                try:
                    record = _unsealed((folder / _record(chunk)).read_bytes())
                    time_ = (folder / _record(chunk)).stat().st_mtime
                except FileNotFoundError:
                    break
                if record is None:
                    break
                facts.append(record["facts"])
                times.append(time_)
            blocks[folder.name] = BlockProgress(folder.name, tuple(facts), tuple(times))
        lock = self.path / "lock"
        opened = lock.stat().st_mtime if lock.exists() else 0.0
        finished = (self.path / "results.zarr").exists()
        return Progress(blocks, _is_locked(lock), opened, finished)

    def save_results(self, dataset: xarray.Dataset) -> None:
        """Publish a Dataset as `results.zarr`; what it replaces is gone only when it is complete.

        The attribute `created` is left to the manifest, so that equal results are equal bytes.
        """
        self._check_writable()
        aside = self.path / f"results.zarr{_ASIDE}"
        old = self.path / f"results.zarr.old{_ASIDE}"
        final = self.path / "results.zarr"
        plain = dataset.copy()
        plain.attrs.pop("created", None)
        with _writing(self.path):
            try:
                for left in (aside, old):
                    shutil.rmtree(left, ignore_errors=True)
                # The second format of Zarr: the third has no stable way to store strings.
                plain.to_zarr(aside, zarr_format=2, consolidated=True)
                files = sorted(path for path in aside.rglob("*") if path.is_file())
                fingerprints = {
                    path.relative_to(aside).as_posix(): _fingerprint(path.read_bytes())
                    for path in files
                }
                (aside / _CHECKSUMS).write_bytes(_sealed(fingerprints))
                for path in (*aside.rglob("*"), aside):
                    _sync(path)
                if final.exists():
                    final.rename(old)
                os.replace(aside, final)
                _sync(self.path)
            finally:
                for left in (aside, old):
                    shutil.rmtree(left, ignore_errors=True)

    def _check_writable(self) -> None:
        if self._lock is None:
            raise StoreError(f"{self.path} was opened to read; open it with write=True to save.")

    def _folder(self, block: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", block):
            raise ValueError(f"blocks are named with letters, digits, - and _; got {block!r}.")
        return self.path / "blocks" / block

    def _good_records(self, block: str) -> Iterator[dict[str, Any]]:
        """The records of chunks 0, 1, ... as long as they and their rows are undamaged."""
        folder = self._folder(block)
        for chunk in range(_count(folder)):
            record = self._read_record(folder / _record(chunk))
            if record is None:
                return
            name = _rows(chunk)
            if self._checked(folder / name, record["files"][name]) is None:
                return
            yield record

    def _read_record(self, path: Path) -> dict[str, Any] | None:
        try:
            record = _unsealed(path.read_bytes())
        except FileNotFoundError:
            self._found(f"{path} is missing.")
            return None
        if record is None:
            self._found(f"{path} is damaged: its checksum does not match.")
        return record

    def _checked(self, path: Path, expected: dict[str, Any]) -> bytes | None:
        try:
            return _read_checked(path, expected)
        except StoreError as error:
            self._found(str(error))
            return None

    def _found(self, damage: str) -> None:
        if damage not in self.damage:
            self.damage.append(damage)


def open_results(path: str | Path) -> xarray.Dataset:
    """The results of a sweep, from its folder; every byte is checked before it is used.

    Args:
      path: the folder of the sweep.

    Raises:
      StoreError: if there are no results yet, or a file of theirs is damaged.
    """
    store = Store.open(path)
    folder = store.path / "results.zarr"
    again = "run the sweep again to rebuild the results from its chunks"
    if not folder.exists():
        raise StoreError(f"{store.path} has no results yet; run the sweep again to finish it.")
    try:
        checksums = _unsealed((folder / _CHECKSUMS).read_bytes())
    except FileNotFoundError:
        raise StoreError(f"{folder / _CHECKSUMS} is missing; {again}.") from None
    if checksums is None:
        raise StoreError(f"{folder / _CHECKSUMS} is damaged: its checksum does not match; {again}.")
    # What was checked is what is read: the files may be replaced at any moment.
    content = {}
    for name, expected in checksums.items():
        try:
            content[name] = _read_checked(folder / name, expected)
        except StoreError as error:
            raise StoreError(f"{str(error).rstrip('.')}; {again}.") from None
    files: Any = {name: zarr.core.buffer.cpu.Buffer.from_bytes(b) for name, b in content.items()}
    memory = zarr.storage.MemoryStore(files)
    dataset = xarray.open_zarr(memory, consolidated=True, decode_times=False)
    return dataset.assign_attrs(created=store.created)


# Files


def _carry(chunk: int) -> str:
    return f"carry-{chunk:05d}.zarr.zip"


def _rows(chunk: int) -> str:
    return f"rows-{chunk:05d}.zarr.zip"


def _record(chunk: int) -> str:
    return f"chunk-{chunk:05d}.json"


def _is_kept(chunk: int, newest: int) -> bool:
    """Whether a carry is kept: the last two, and a few in case that old rows are damaged."""
    return chunk >= newest - 1 or chunk & (chunk + 1) == 0


def _count(folder: Path) -> int:
    """One more than the newest chunk that was published."""
    numbers = [int(path.stem.split("-")[1]) for path in folder.glob("chunk-*.json")]
    return max(numbers, default=-1) + 1


def _fingerprint(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _read_checked(path: Path, expected: dict[str, Any]) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise StoreError(f"{path} is missing.") from None
    if len(content) != expected["bytes"]:
        raise StoreError(f"{path} is damaged: {len(content)} bytes instead of {expected['bytes']}.")
    if _fingerprint(content) != expected:
        raise StoreError(f"{path} is damaged: its checksum does not match.")
    return content


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / "manifest.json"
    try:
        manifest = _unsealed(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"there is no sweep in {path}: it has no manifest.json.") from None
    if manifest is None:
        raise StoreError(
            f"{file} is damaged: its checksum does not match; without it nobody knows what the "
            "chunks belong to: put back a copy, or begin again in a new folder."
        )
    if manifest["format"] != _FORMAT:
        raise StoreError(
            f"{path} is in format {manifest['format']} of a store; this version reads {_FORMAT}."
        )
    return manifest


def _publish(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files aside, then rename them in order; on any failure nothing is left aside."""
    asides = {name: folder / (name + _ASIDE) for name in files}
    try:
        for name, content in files.items():
            with open(asides[name], "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for name, aside in asides.items():
            os.replace(aside, folder / name)
        _sync(folder)
    finally:
        for aside in asides.values():
            aside.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Failures of the file system in one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(
                f"no room is left on the disk of {path}: nothing that was saved is lost; make room "
                "and run the same command again to go on."
            ) from None
        raise StoreError(f"{path} cannot be written: {error.strerror or error}.") from error


# The lock


def _take_lock(path: Path) -> int:
    with _writing(path):
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        # `_is_locked` of a reader takes the lock for an instant: try for longer than that.
        for attempt in range(5):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == 4:
                    raise StoreError(
                        f"{path} is in use by {_holder(lock)}; wait for it, or stop it first."
                    ) from None
                time.sleep(0.02)
        with _writing(path):
            os.ftruncate(lock, 0)
            os.write(lock, f"process {os.getpid()} on {socket.gethostname()}".encode())
    except BaseException:
        os.close(lock)
        raise
    return lock


def _holder(lock: int) -> str:
    return os.pread(lock, 500, 0).decode(errors="replace") or "another process"


def _is_locked(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


# JSON that carries its own checksum


def _plain(value: Any) -> Any:
    """As it will be read back: tuples are lists."""
    return json.loads(json.dumps(value, allow_nan=False))


def _sealed(content: Any) -> bytes:
    checksum = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    text = json.dumps({"sha256": checksum, "content": content}, sort_keys=True, indent=1)
    return (text + "\n").encode()


def _unsealed(text: bytes) -> Any:
    """The content, or None if a single byte is not as it was written."""
    try:
        content = json.loads(text)["content"]
    except (ValueError, KeyError, TypeError):
        return None
    return content if text == _sealed(content) else None


def _differences(name: str, there: Any, here: Any) -> Iterator[str]:
    """What differs between two identities, key by key."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in [*there, *(key for key in here if key not in there)]:
            inner = f"{name}.{key}" if name else key
            if key not in here:
                yield f"{inner}: {json.dumps(there[key])} there, absent here"
            elif key not in there:
                yield f"{inner}: absent there, {json.dumps(here[key])} here"
            else:
                yield from _differences(inner, there[key], here[key])
    elif _is_table(there) and _is_table(here) and len(there) == len(here):
        for index, (old, new) in enumerate(zip(there, here, strict=True)):
            yield from _differences(f"{name}[{index}]", old, new)
    elif json.dumps(there) != json.dumps(here):
        yield f"{name}: {json.dumps(there)} there, {json.dumps(here)} here"


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


# Arrays: a Zarr store (second format, no compression) in a zip file


def _packed(arrays: Mapping[str, np.ndarray], first_axis: str = "") -> bytes:
    metadata: dict[str, Any] = {".zgroup": {"zarr_format": 2}}
    content: dict[str, bytes] = {}
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"{name!r} is of type {array.dtype}; numbers and booleans can be saved."
            )
        if not name or "/" in name or name.startswith("."):
            raise ValueError(
                f"{name!r} cannot name an array: it is empty, has a / or begins with ."
            )
        dims = [f"{name}_{axis}" for axis in range(array.ndim)]
        if first_axis and dims:
            dims[0] = first_axis
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
        metadata[f"{name}/.zattrs"] = {"_ARRAY_DIMENSIONS": dims}
        content[f"{name}/{_only_chunk(array.ndim)}"] = array.tobytes()
    texts = {name: json.dumps(value).encode() for name, value in metadata.items()}
    consolidated = {"zarr_consolidated_format": 1, "metadata": metadata}
    texts[".zmetadata"] = json.dumps(consolidated).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in (texts | content).items():
            file.writestr(zipfile.ZipInfo(name), data)  # dated 1980: equal arrays, equal bytes
    return buffer.getvalue()


def _unpacked(data: bytes) -> Arrays:
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        metadata = json.loads(file.read(".zmetadata"))["metadata"]
        for key, facts in metadata.items():
            name, _, kind = key.rpartition("/")
            if kind == ".zarray":
                content = file.read(f"{name}/{_only_chunk(len(facts['shape']))}")
                flat = np.frombuffer(content, facts["dtype"])
                arrays[name] = flat.reshape(facts["shape"]).copy()
    return arrays


def _only_chunk(ndim: int) -> str:
    return ".".join("0" * max(ndim, 1))
