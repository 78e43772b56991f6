"""The results of a sweep as `results.zarr` in its folder, with a checksum of every file."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdgd_jax._internal.files import (
    ASIDE,
    DamagedError,
    fingerprint,
    read_checked,
    read_sealed,
    seal,
    sync,
    writing,
)
from pdgd_jax.sweeps._errors import StoreError

if TYPE_CHECKING:  # takes a second to import
    import xarray

__all__ = ["NAME", "read_results", "write_results"]

NAME = "results.zarr"
_CHECKSUMS = ".checksums.json"  # in results.zarr; readers of Zarr ignore it


def write_results(folder: Path, dataset: "xarray.Dataset") -> None:
    """Publish a Dataset as `results.zarr`; see `Store.save_results`."""
    final = folder / NAME
    aside, old = (folder / f"{name}{ASIDE}" for name in (NAME, f"{NAME}.old"))
    undated = dataset.copy()
    undated.attrs.pop("created", None)
    with writing(folder):
        try:
            # Zarr's format 2, since format 3 has no stable way to store strings.
            undated.to_zarr(aside, zarr_format=2, consolidated=True)
            files = sorted(path for path in aside.rglob("*") if path.is_file())
            checksums = {
                path.relative_to(aside).as_posix(): fingerprint(path.read_bytes()) for path in files
            }
            (aside / _CHECKSUMS).write_bytes(seal(checksums))
            for path in (*aside.rglob("*"), aside):
                sync(path)
            if final.exists():
                os.replace(final, old)
            os.replace(aside, final)
            sync(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)


def read_results(folder: Path) -> "xarray.Dataset":
    """Read the Dataset that `write_results` wrote; every byte is checked before use.

    Raises:
      StoreError: if a file is damaged.
    """
    import xarray
    import zarr

    store = folder / NAME
    try:
        checksums = read_sealed(store / _CHECKSUMS)
        # Read the bytes that were checked: the files may be replaced at any moment.
        files: Any = {
            name: zarr.core.buffer.cpu.Buffer.from_bytes(read_checked(store / name, expected))
            for name, expected in checksums.items()
        }
    except DamagedError as error:
        raise StoreError(
            f"{str(error).removesuffix('.')}; run the sweep again to rebuild the results from its "
            "chunks."
        ) from None
    memory = zarr.storage.MemoryStore(files)
    return xarray.open_zarr(memory, consolidated=True, decode_times=False)
