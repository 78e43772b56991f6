"""The devices of this process: every core of a CPU is one."""

import contextlib
import os

import jax

__all__ = ["local_devices", "use_cores", "use_every_core"]


def local_devices(number: int | None = None) -> list[jax.Device]:
    """The devices of this process, or the first `number` of them.

    Raises:
      ValueError: if there are fewer.
    """
    found = jax.local_devices()
    if number is None:
        return found
    if not 1 <= number <= len(found):
        raise ValueError(
            f"this process has {len(found)} devices: choose from 1 to {len(found)}; got {number}. "
            "(On a CPU, jax_num_cpu_devices says how many, before JAX starts.)"
        )
    return found[:number]


def use_every_core() -> None:
    """Make every core a device, so that lanes are sharded over all cores.

    Call this before JAX computes anything. A number of devices chosen earlier, for example with
    `JAX_NUM_CPU_DEVICES`, is kept.
    """
    if jax.config.values["jax_num_cpu_devices"] < 1:
        affinity = getattr(os, "sched_getaffinity", None)  # respects a scheduler; not on macOS
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        jax.config.update("jax_num_cpu_devices", cores)
    # NPROC tells XLA how many threads share the operations of one program. The operations of an
    # episode are far too small to share: distributing them halves the speed.
    os.environ.setdefault("NPROC", "1")


def use_cores(number: int) -> None:
    """Limit the devices of a CPU to those in use; no effect once JAX has computed something.

    XLA has a thread for each device. An idle thread takes over operations of another device's
    program: a single program on one of two devices loses a third of its speed that way.
    """
    if 1 <= number < jax.config.values["jax_num_cpu_devices"]:
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", number)
