"""Several processes that play one sweep."""

import dataclasses
import socket
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

__all__ = ["Cluster", "agree", "join"]


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Several processes that play one sweep together; made by `join`.

    Attributes:
      processes: how many there are.
      process: which one this is, from 0.
    """

    processes: int
    process: int

    def leave(self) -> None:
        """Disconnect from the other processes, so that the death of one does not end the others.

        Returns once all processes have called it. JAX kills all processes if one dies, without a
        clear message, since they might wait for each other's numbers; those of a sweep do not. On
        GPUs and TPUs this does nothing, since their clients need the connection.
        """
        if jax.default_backend() == "cpu":
            jax.distributed.shutdown()


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    say: Callable[[str], None] = print,
) -> Cluster:
    """Join several processes; call this before JAX computes anything.

    Args:
      coordinator: `host:port` of process 0; None if a cluster (SLURM, MPI, Kubernetes, TPU)
        provides it.
      num_processes: the number of processes.
      process_id: the number of this process, from 0.
      say: called with a message about what it waits for.

    Returns:
      The processes, for `sweep`.

    Raises:
      ValueError: if only some of the three are given, or they are invalid.
    """
    given = {
        "coordinator": coordinator,
        "num_processes": num_processes,
        "process_id": process_id,
    }
    missing = [name for name, value in given.items() if value is None]
    if 0 < len(missing) < 3:
        raise ValueError(
            f"{' and '.join(missing)} must be given too: {', '.join(given)} go together."
        )
    if num_processes is not None and process_id is not None:
        if not 0 <= process_id < num_processes:
            raise ValueError(
                f"process_id is from 0 to {num_processes - 1} if there are {num_processes} "
                f"processes; got {process_id}."
            )
        assert coordinator is not None
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"coordinator looks like host:1234; got {coordinator!r}.")
        if process_id == 0:
            _check_free(int(port))
        say(f"waiting until all {num_processes} processes are here, five minutes at most")
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id)
    except (RuntimeError, ValueError) as error:
        if coordinator is not None:
            raise
        raise ValueError(
            "no cluster was found that says which process this is; give coordinator, "
            f"num_processes and process_id ({str(error).splitlines()[0]})"
        ) from None
    return Cluster(jax.process_count(), jax.process_index())


def _check_free(port: int) -> None:
    """Raise if process 0 cannot listen on this port; JAX would crash."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=both).close()
    except (OSError, OverflowError) as error:  # in use, forbidden, or above 65535
        reason = str(getattr(error, "strerror", error)).partition(" (")[0]
        raise ValueError(
            f"process 0 cannot listen on port {port} ({reason}); choose another for coordinator."
        ) from None


def agree(good: bool) -> bool:
    """Wait for all processes, and return the value of process 0 in each of them."""
    if jax.process_count() == 1:
        return good
    from jax.experimental import multihost_utils

    said: Any = multihost_utils.broadcast_one_to_all(np.int32(good))
    return bool(said)
