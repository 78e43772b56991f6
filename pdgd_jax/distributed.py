"""The machine: every core of a CPU as a device, and several processes as one sweep."""

import contextlib
import os
import socket
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

__all__ = ["agree", "join", "leave", "use_cores", "use_every_core"]


def use_every_core() -> None:
    """Make every core a device of its own, so that lanes are sharded over all of them.

    Must come before JAX computes anything. A number of devices that was chosen already, with
    `JAX_NUM_CPU_DEVICES` say, is kept.
    """
    if jax.config.values["jax_num_cpu_devices"] < 1:
        affinity = getattr(os, "sched_getaffinity", None)  # what a scheduler left us; not on macOS
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        jax.config.update("jax_num_cpu_devices", cores)
    # XLA reads from NPROC how many threads share the operations of one program. An episode is made
    # of operations that are far too small to share: handing them around takes half the speed.
    os.environ.setdefault("NPROC", "1")


def use_cores(number: int) -> None:
    """Make no more devices of a CPU than are used; does nothing once JAX has computed something.

    XLA has a thread for each device, and one without a program of its own takes operations of
    another's: a single program on one of two devices loses a third of its speed to that.
    """
    if 1 <= number < jax.config.values["jax_num_cpu_devices"]:
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", number)


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Become one of several processes; must come before JAX computes anything.

    Args:
      coordinator: `host:port` of process 0; None if a cluster (SLURM, MPI, Kubernetes, TPU) tells.
      num_processes: how many there are.
      process_id: from 0.
      say: is told what it waits for.

    Raises:
      ValueError: if only some of the three are given, or they make no sense.
    """
    given = {
        "--coordinator": coordinator,
        "--num-processes": num_processes,
        "--process-id": process_id,
    }
    missing = [name for name, value in given.items() if value is None]
    if 0 < len(missing) < 3:
        raise ValueError(
            f"{' and '.join(missing)} must be given too: {', '.join(given)} go together."
        )
    if num_processes is not None and process_id is not None:
        if not 0 <= process_id < num_processes:
            raise ValueError(
                f"--process-id is from 0 to {num_processes - 1} if there are {num_processes} "
                f"processes; got {process_id}."
            )
        assert coordinator is not None
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"--coordinator looks like host:1234; got {coordinator!r}.")
        if process_id == 0:
            _check_free(int(port))
        say(f"waiting until all {num_processes} processes are here, five minutes at most")
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id)
    except (RuntimeError, ValueError) as error:
        if coordinator is not None:
            raise
        raise ValueError(
            "no cluster was found that says which process this is; give --coordinator, "
            f"--num-processes and --process-id ({str(error).splitlines()[0]})"
        ) from None


def _check_free(port: int) -> None:
    """Look whether process 0 can listen there: JAX would crash."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=both).close()
    except (OSError, OverflowError) as error:  # in use; not allowed; above 65535
        reason = str(getattr(error, "strerror", error)).partition(" (")[0]
        raise ValueError(
            f"process 0 cannot listen on port {port} ({reason}); choose another for --coordinator."
        ) from None


def leave() -> None:
    """Go on alone, once all processes have asked to; from then on the death of one ends no other.

    JAX would kill all others for it, without a word that a user understands, since they might wait
    for each other's numbers; those of a sweep do not. On GPUs and TPUs that is left as it is: their
    clients need the connection as long as they live.
    """
    if jax.default_backend() == "cpu":
        jax.distributed.shutdown()


def agree(good: bool) -> bool:
    """What process 0 says, in all processes, once all have asked."""
    if jax.process_count() == 1:
        return good
    from jax.experimental import multihost_utils

    said: Any = multihost_utils.broadcast_one_to_all(np.int32(good))
    return bool(said)
