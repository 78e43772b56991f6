"""`pdgd` and `python -m pdgd_jax`: the command line, which Ctrl-C ends from the first moment."""

import os
import sys

from pdgd_jax.cli.signals import end_at_once_on_interrupt

__all__ = ["main"]


def main() -> None:
    """Load the application, which takes a second or two, and run it."""
    end_at_once_on_interrupt()
    # Errors are exceptions, of which `pdgd` speaks itself; what else XLA logs as one is an alarm
    # about long compilations, for its authors. It has no switch but this, read before JAX is.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from pdgd_jax.cli.entry import main as run

    try:
        run()
    except KeyboardInterrupt:  # just before the application would have caught it, or after
        sys.exit(130)


if __name__ == "__main__":
    main()
