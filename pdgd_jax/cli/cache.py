"""Compiled programs that `pdgd` keeps between processes, in the user's cache folder.

JAX's persistent compilation cache does the work; here is where it lies and how large it grows. The
library never turns it on by itself: that is for the program that uses the library to decide.
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

# Small programs are kept too: a run has sixty beside the large one, 40 ms each to compile,
# 5 ms to read.
_LEAST_SECONDS = 0.0
_MOST_BYTES = 256 * 2**20  # a run takes about 1 MB; the least recently used go first


def keep_programs(wanted: bool) -> None:
    """Let JAX read compiled programs from the cache folder, and write new ones there.

    Whoever has told JAX where to keep programs (`JAX_COMPILATION_CACHE_DIR`) has decided. A folder
    that cannot be written is no error: everything is then compiled, as without a cache.

    Args:
      wanted: False to keep and read nothing, not even where JAX was told to.
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
    """Where programs are kept; None if they are not.

    Args:
      environment: the variables of the process.
      system: as in `sys.platform`.

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
    except RuntimeError:  # nobody knows where the home of this user is
        return None
    return folder / _machine()


def _users_folder(environment: Mapping[str, str], system: str) -> Path:
    if system == "win32" and (local := environment.get("LOCALAPPDATA")):
        return Path(local) / "pdgd_jax" / "cache"
    if system == "darwin":
        return Path.home() / "Library" / "Caches" / "pdgd_jax"
    given = Path(environment.get("XDG_CACHE_HOME", ""))
    # The specification of XDG has relative paths ignored.
    return (given if given.is_absolute() else Path.home() / ".cache") / "pdgd_jax"


def _machine() -> str:
    """A name for the kind of processor.

    Programs are compiled for the processor at hand, and a home may be shared by several kinds of
    machine: one must not run what was compiled for another.
    """
    facts = [platform.machine(), platform.processor()]
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts += [next(line for line in lines if line.lower().startswith(("flags", "features")))]
    except (OSError, StopIteration):  # another system than Linux
        pass
    return f"{platform.machine()}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:8]}"


def _is_writable(folder: Path) -> bool:
    """Whether a file can be written there: JAX would warn about every program otherwise."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
