"""What Ctrl-C does while there is nothing to finish: before the command line runs, and after."""

import os
from typing import Any

__all__ = ["end_at_once"]


def end_at_once(number: int, frame: Any) -> None:
    """End the process, as a handler of SIGINT.

    An exception would not do: in the midst of an import it may come out as another one, and in a
    callback of the interpreter it is printed and forgotten.
    """
    os._exit(130)
