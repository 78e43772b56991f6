"""`pdgd` and `python -m pdgd_jax`: the command line, which Ctrl-C ends from the first moment."""

import os
import signal
import sys

from pdgd_jax._interrupt import end_at_once

__all__ = ["main"]


def main() -> None:
    """Load the application, which takes a second or two, and run it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a background job, say
        signal.signal(signal.SIGINT, end_at_once)
    # Errors are exceptions, of which `pdgd` speaks itself; what else XLA logs as one is an alarm
    # about long compilations, for its authors. It has no switch but this, read before JAX is.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from pdgd_jax.cli import main as run

    try:
        run()
    except KeyboardInterrupt:  # just before the application would have caught it, or after
        sys.exit(130)


if __name__ == "__main__":
    main()
