"""`pdgd` and `python -m pdgd_jax`: the command line. Ctrl-C works from the first moment."""

import os
import sys

from pdgd_jax.cli.signals import end_at_once_on_interrupt

__all__ = ["main"]


def main() -> None:
    """Load the application (a second or two) and run it."""
    end_at_once_on_interrupt()
    # `pdgd` reports errors as exceptions. The other messages that XLA logs as errors are alarms
    # about long compilations. Only this variable silences them, and JAX reads it on import.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from pdgd_jax.cli.entry import main as run

    try:
        run()
    except KeyboardInterrupt:  # just before or after the application catches it itself
        sys.exit(130)


if __name__ == "__main__":
    main()
