"""The handling of Ctrl-C. Loaded before everything else, so it imports nothing large."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["end_at_once", "end_at_once_on_interrupt", "finish_first", "leave", "quick_to_stop"]


def end_at_once(number: int, frame: Any) -> None:
    """End the process: a handler of SIGINT while there is nothing to finish.

    An exception is not enough: during an import it may turn into another one, and in a callback of
    the interpreter it is printed and ignored.
    """
    os._exit(130)


def end_at_once_on_interrupt() -> None:
    """Let Ctrl-C end the process while the application loads."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not a background job
        signal.signal(signal.SIGINT, end_at_once)


def leave() -> NoReturn:
    """Say that Ctrl-C was pressed, and end the process."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    console.show_cursor()
    console.print(Text("interrupted", style="red"))
    # Not an ordinary exit: Python might remember the interrupt and end by the signal instead.
    os._exit(130)


@contextlib.contextmanager
def quick_to_stop() -> Iterator[threading.Event]:
    """Let Ctrl-C end the process even where Python cannot react; nothing on disk is lost.

    Python handles a signal between two of its steps, but a compilation or a long part of a run is a
    single step, so a thread watches. Besides, the exception may be raised where it is swallowed.

    Yields:
      An event that is set once Ctrl-C was pressed.
    """
    noticed, finished = threading.Event(), threading.Event()
    before = signal.getsignal(signal.SIGINT)
    usual = before in (signal.default_int_handler, end_at_once)
    if not usual or threading.current_thread() is not threading.main_thread():
        yield noticed  # SIGINT is ignored, as in a background job, or has another handler
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def notice(number: int, frame: Any) -> None:
        noticed.set()
        signal.default_int_handler(number, frame)

    def watch() -> None:
        with reader:
            while (signals := reader.recv(1)) and signals[0] != signal.SIGINT:
                pass
            ours = signal.getsignal(signal.SIGINT) is notice  # otherwise a command handles it
            if signals and ours and not (noticed.wait(2) and finished.wait(10)):
                leave()

    def swallowed(event: Any) -> None:
        if issubclass(event.exc_type, KeyboardInterrupt):
            leave()
        report(event)

    report, sys.unraisablehook = sys.unraisablehook, swallowed
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, notice)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield noticed
    finally:
        signal.signal(signal.SIGINT, before)
        signal.set_wakeup_fd(wakeup)
        sys.unraisablehook = report
        writer.close()
        finished.set()


@contextlib.contextmanager
def finish_first(console: "Console") -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C finish the current chunk; a second one ends the process at once.

    Yields:
      A function that says whether Ctrl-C was pressed.
    """
    asked = False

    def handle(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            console.show_cursor()
            os._exit(130)  # nothing is lost: files are complete or missing
        asked = True
        console.print("stopping after this chunk; Ctrl-C again to stop at once")

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, handle)
    woken = signal.set_wakeup_fd(-1)  # otherwise `quick_to_stop` would end the process
    try:
        yield lambda: asked
    finally:
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGINT, before)
