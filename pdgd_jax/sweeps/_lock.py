"""The lock on the folder of a sweep.

One process writes, and holds `lock`. The processes that help it hold `lock-1`, `lock-2`, ...
"""

import os
import socket
import time
from pathlib import Path

from pdgd_jax._internal.files import writing
from pdgd_jax.sweeps._errors import StoreError

__all__ = ["is_locked", "lock_name", "now_name", "take_lock"]


def lock_name(member: int) -> str:
    """The file that a process locks."""
    return f"lock-{member}" if member else "lock"


def now_name(member: int) -> str:
    """The file in which a process says what it is doing."""
    return f"{lock_name(member).replace('lock', 'now')}.json"


def take_lock(path: Path, member: int = 0) -> int:
    """Lock a folder for writing, and return the handle that holds the lock.

    Raises:
      StoreError: if another process holds it, or the system has no such locks.
      WriteError: if the lock cannot be written.
    """
    try:
        import fcntl
    except ImportError:
        raise StoreError(
            f"a sweep locks its folder as only Linux and macOS can: {path} cannot be written here; "
            "play there, or without a folder (`sweep` in Python)."
        ) from None
    with writing(path):
        lock = os.open(path / lock_name(member), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        # `is_locked` in a reader holds the lock for an instant, so try for longer than that.
        for last in (False, False, False, False, True):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if last:
                    holder = os.pread(lock, 500, 0).decode(errors="replace") or "another process"
                    raise StoreError(
                        f"{path} is in use by {holder}; wait for it, or stop it first."
                    ) from None
                time.sleep(0.02)
        for other in [] if member else path.glob("lock-*"):
            if is_locked(other):
                raise StoreError(
                    f"{path} is in use by {other.read_text()}, a remnant of an earlier sweep; "
                    "wait for it, or stop it first."
                )
        with writing(path):
            os.ftruncate(lock, 0)
            os.write(lock, f"process {os.getpid()} on {socket.gethostname()}".encode())
    except BaseException:
        os.close(lock)
        raise
    return lock


def is_locked(file: Path) -> bool:
    """Whether a process holds this lock."""
    try:
        import fcntl
    except ImportError:  # Windows, where folders can be read but not written
        return False
    try:
        lock = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
