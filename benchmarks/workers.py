"""One process on each core, all of them measuring the same at the same time."""

import multiprocessing
import os

import jax


class Workers:
    """Processes that build each contestant once, and measure it when they are told.

    Args:
      build: a function of a benchmark's file, `(core, kind, settings, *shared) -> contestant`; the
        contestant's `measure()` returns what is sent back.
      shared: what all processes are given.
      cores: how many; all by default.
    """

    def __init__(self, build, *shared, cores=None):
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for core in range(cores or os.cpu_count() or 1):
            here, there = context.Pipe()
            arguments = there, core, build, shared
            process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def measure(self, kind, **settings):
        """What each process measured, all at the same time."""
        for pipe in self.pipes:
            pipe.send((kind, settings))
        return [pipe.recv() for pipe in self.pipes]

    def stop(self):
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


def _work(connection, core, build, shared):
    os.sched_setaffinity(0, {core % os.cpu_count()})
    jax.config.update("jax_enable_x64", True)
    built = {}
    while (request := connection.recv()) is not None:
        kind, settings = request
        which = kind, tuple(sorted(settings.items()))
        if which not in built:
            built[which] = build(core, kind, settings, *shared)
        connection.send(built[which].measure())
