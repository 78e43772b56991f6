"""Compiled programs that `pdgd` keeps between processes, in the user's cache folder.

JAX's persistent compilation cache does the work; this module sets its folder and its size. The
library itself never turns it on: that is a decision of the program that uses the library.
"""

import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

__all__ = ["VARIABLE", "cache_folder", "keep_programs"]

VARIABLE = "PDGD_CACHE"  # "off", or a folder

_OFF = ("off", "0", "no", "false")

# Small programs are kept too: besides the large one a run has a few, which take 40 ms each to
# compile and 5 ms to read.
_LEAST_SECONDS = 0.0
_MOST_BYTES = 256 * 2**20  # a run takes about 1 MB; the least recently used go first


def keep_programs(wanted: bool) -> None:
    """Let JAX read compiled programs from the cache folder, and write new ones there.

    A folder that the user gave to JAX (`JAX_COMPILATION_CACHE_DIR`) takes precedence. A folder that
    cannot be written is not an error: everything is then compiled, as without a cache.

    Args:
      wanted: False to disable the cache, even if the user gave a folder to JAX.
    """
    if not wanted:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    config: Any = jax.config  # its settings are added at run time
    if config.jax_compilation_cache_dir is not None:
        return
    folder = cache_folder(os.environ)
    if folder is None or not _is_writable(folder):
        return
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_compilation_cache_max_size": _MOST_BYTES,
        "jax_persistent_cache_min_compile_time_secs": _LEAST_SECONDS,
    }
    for name, value in settings.items():
        if name.upper() not in os.environ:
            jax.config.update(name, value)


def cache_folder(environment: Mapping[str, str], system: str = sys.platform) -> Path | None:
    """The folder of compiled programs; None if the cache is off.

    Args:
      environment: the environment variables.
      system: `sys.platform`.

    Example:
      >>> cache_folder({"PDGD_CACHE": "off"}) is None
      True
      >>> cache_folder({"XDG_CACHE_HOME": "/home/me/cache"}, "linux").parent.as_posix()
      '/home/me/cache/pdgd_jax'
    """
    asked = environment.get(VARIABLE, "").strip()
    if asked.lower() in _OFF:
        return None
    try:
        folder = Path(asked).expanduser() if asked else _users_folder(environment, system)
    except RuntimeError:  # the user has no home folder
        return None
    return folder / _machine()


def _users_folder(environment: Mapping[str, str], system: str) -> Path:
    if system == "win32" and (local := environment.get("LOCALAPPDATA")):
        return Path(local) / "pdgd_jax" / "cache"
    if system == "darwin":
        return Path.home() / "Library" / "Caches" / "pdgd_jax"
    given = Path(environment.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore relative paths.
    return (given if given.is_absolute() else Path.home() / ".cache") / "pdgd_jax"


def _machine() -> str:
    """A name for the kind of processor.

    Programs are compiled for one kind of processor, and several kinds of machine may share a home
    folder: none may run a program that was compiled for another.
    """
    facts = [platform.machine(), platform.processor()]
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts += [next(line for line in lines if line.lower().startswith(("flags", "features")))]
    except (OSError, StopIteration):  # not Linux
        pass
    return f"{platform.machine()}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:8]}"


def _is_writable(folder: Path) -> bool:
    """Whether a file can be written there; otherwise JAX would warn about every program."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
