"""The manifest of a sweep: its identity, its plan, and when it began."""

import datetime
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pdgd_jax._internal.files import DamagedError, plain, read_sealed
from pdgd_jax.sweeps._errors import StoreError

__all__ = ["new_manifest", "read_manifest"]

# Format 1 kept chunks as Zarr stores in zip files; the chunks of format 2 hold fewer sums, but its
# results can be read.
_FORMAT = 3
_READABLE = (2, 3)


def new_manifest(identity: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a sweep that begins now."""
    return {
        "format": _FORMAT,
        "identity": plain(identity),
        "plan": plain(plan),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def read_manifest(path: Path, identity: Mapping[str, Any] | None) -> dict[str, Any]:
    """The manifest of the sweep in a folder.

    Args:
      path: the folder.
      identity: the identity of the sweep; None to accept any sweep.

    Raises:
      StoreError: if there is no sweep, its manifest is damaged, or its identity differs.
    """
    file = path / "manifest.json"
    if not file.exists():
        raise StoreError(f"there is no sweep in {path}: it has no manifest.json.")
    try:
        manifest: dict[str, Any] = read_sealed(file)
    except DamagedError as error:
        raise StoreError(
            f"{str(error).removesuffix('.')}, and without it the chunks cannot be identified; "
            "restore a copy, or begin again in a new folder."
        ) from None
    known = _READABLE if identity is None else (_FORMAT,)
    if manifest["format"] not in known:
        raise StoreError(
            f"{path} is in format {manifest['format']} of a store; this version reads {_FORMAT}: "
            "use the version that began it, or begin again in a new folder."
        )
    if identity is not None:
        differences = list(_differences("", manifest["identity"], plain(identity)))
        if differences:
            raise StoreError(f"{path} was made by another sweep: {'; '.join(differences)}.")
    return manifest


def _differences(name: str, there: Any, here: Any) -> Iterator[str]:
    """The differences between two identities, key by key."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in {**there, **here}:
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
    elif there != here:
        yield f"{name}: {json.dumps(there)} there, {json.dumps(here)} here"


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)
