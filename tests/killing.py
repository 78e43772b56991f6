"""Kills its own process at the moment that `KILL` names, for `pdgd --import tests.killing`.

`KILL` is JSON: the name of an audit event of Python, a part of a path or of a name in its
arguments, and how often it must have come. The event is raised just before the file is opened, the
rename is done, or the module is imported. With a `delay` the clock decides, but three more of the
events are too many: so the process dies on any machine before it is done.
"""

import json
import os
import signal
import sys
import threading

SPARED = 3


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def watch(event, part, count=1, delay=0.0):
    seen = 0

    def hook(name, arguments):
        nonlocal seen
        if name != event or not any(part in a for a in arguments if isinstance(a, str)):
            return
        seen += 1
        if delay and seen == count:
            threading.Timer(delay, die).start()
        elif seen >= count + SPARED * bool(delay):
            die()

    sys.addaudithook(hook)


if "KILL" in os.environ:
    watch(**json.loads(os.environ["KILL"]))
