"""The commands that run a sweep and say how far it is: `pdgd sweep` and `pdgd status`."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from pdgd_jax._words import (
    count_in_words,
    duration_in_words,
    number_in_words,
    size_in_words,
)
from pdgd_jax.cli_cost import cost_in_words
from pdgd_jax.configuration import read_configuration
from pdgd_jax.console import (
    AsJson,
    app,
    completing,
    configuration_names,
    examples,
    plain_table,
    print_json,
    print_table,
)
from pdgd_jax.costs import Cost, cost_of_plan
from pdgd_jax.distributed import join, leave, use_cores
from pdgd_jax.lanes import local_devices
from pdgd_jax.plan import Plan, plan_of

if TYPE_CHECKING:
    import xarray

    from pdgd_jax.sweep import Report

__all__ = ["status", "sweep_"]

_MOST_ROWS = 40


@app.command(
    "sweep",
    epilog=examples(
        "pdgd sweep quick",
        "pdgd sweep my.toml --out results --dry-run",
        "pdgd sweep my.toml --out results   (again, to go on where it stopped)",
        "pdgd sweep my.toml --out /shared/results --coordinator host0:1234 --num-processes 4 "
        "--process-id 2",
    ),
)
def sweep_(
    configuration: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="A TOML file, or the name of a built-in configuration.",
            autocompletion=completing(configuration_names),
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the results; CONFIG-sweep by default."),
    ] = None,
    streams: Annotated[
        str | None,
        typer.Option(
            help='Random streams: "paired", seed i the same in every cell, or "independent"; '
            "instead of what CONFIG says."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    devices: Annotated[int | None, typer.Option(help="How many; all by default.")] = None,
    width: Annotated[
        int | None, typer.Option(min=1, help="How many lanes a device plays at once.")
    ] = None,
    save_every: Annotated[
        int | None, typer.Option(min=1, help="Save a block after at most so many episodes.")
    ] = None,
    coordinator: Annotated[
        str | None, typer.Option(help="host:port of process 0, if there are several.")
    ] = None,
    num_processes: Annotated[int | None, typer.Option(min=1, help="How many there are.")] = None,
    process_id: Annotated[int | None, typer.Option(min=0, help="Which one this is.")] = None,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed", help="Ask the cluster (SLURM, MPI, Kubernetes, TPU) for these three."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Cross instances, learners, settings and seeds, and play them on every core.

    Everything is saved as it goes. Ctrl-C stops after the current chunk; whatever ended a sweep,
    the same command goes on where it was, to the same bits. Ctrl-C twice stops at once.
    """
    asked = read_configuration(configuration)
    if streams is not None:
        asked = asked.with_streams(streams)
    if devices is not None:
        use_cores(devices)
    several = (coordinator, num_processes, process_id)
    if distributed or any(given is not None for given in several):
        say = Console(stderr=True, quiet=as_json, soft_wrap=True).print
        join(coordinator, num_processes, process_id, say)
    if devices is not None:
        local_devices(devices)
    if dry_run:
        plan = plan_of(asked, width=width, save_every=save_every)
        cost = _cost(plan, devices)
        facts = plan.facts() | {"cost": cost.facts()}
        print_json(facts) if as_json else _print_plan(Console(), facts, cost)
        return
    import jax

    from pdgd_jax.sweep import Interrupted, sweep

    out = out or Path(f"{Path(configuration).stem}-sweep")
    leads = jax.process_index() == 0
    console = Console(stderr=True, quiet=as_json or not leads)
    shown = _Shown(console, devices=devices)
    begin = time.perf_counter()
    plans: list[Plan] = []

    def on_progress(report: "Report") -> None:
        plans[:] = [report.plan]
        if report.state != "planned":  # all have opened the folder, and need each other no longer
            leave()
        shown(report)

    try:
        with _finish_first(console) as should_stop, shown:
            data = sweep(
                asked,
                out=out,
                devices=devices,
                width=width,
                save_every=save_every,
                on_progress=on_progress,
                should_stop=should_stop,
            )
    except Interrupted:
        Console(stderr=True).print(
            Text(f"stopped; everything is saved in {out}: run the same command again to go on."),
            soft_wrap=True,
        )
        raise typer.Exit(130) from None
    if not leads:
        return
    facts = _facts(data, plans[0], out, time.perf_counter() - begin)
    print_json(facts) if as_json else _print_results(Console(), facts)
    _warn(Console(stderr=True), facts["unconverged"], facts["residual"])


@app.command(epilog=examples("pdgd status results", "pdgd status results --json"))
def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a sweep.")],
    as_json: AsJson = False,
) -> None:
    """Show how far a sweep is, from its files alone: also while it runs."""
    facts = _status(folder)
    if as_json:
        print_json(facts)
        return
    console = Console()
    done, total = facts["episodes_done"], facts["episodes"]
    title = Text(f"{folder}: {facts['name']}, {facts['state']}", style="bold")
    console.print(title, soft_wrap=True)
    table = plain_table("group", "learners", "instances", ">done", ">episodes")
    for group in facts["groups"]:
        share = f"{100 * group['episodes_done'] / group['episodes']:.0f}%"
        episodes = f"{group['episodes_done']:,} of {group['episodes']:,}"
        names = (", ".join(group["learners"]), ", ".join(group["instances"]))
        table.add_row(group["name"], *map(Text, names), share, episodes)
    print_table(console, table)
    console.print(_sentence(done, total, facts["episodes_per_second"], facts["seconds_left"]))
    if facts["state"] == "running":
        for sentence in _doing(facts):
            console.print(Text(sentence), soft_wrap=True)
    if facts["state"] == "stopped":
        console.print("run the command that began it again to go on")
    _warn(console, facts["unconverged"], None)


def _status(folder: Path) -> dict[str, Any]:
    from pdgd_jax.store import Store

    store = Store.open(folder)
    progress, plan, now = store.progress(), store.plan, time.time()
    groups, unconverged = [], 0
    for group in plan["groups"]:
        done = 0
        for name, block in group["blocks"].items():
            if name in progress.blocks:
                last = progress.blocks[name].facts[-1]
                done += last["episode"] * block["lanes"]
                unconverged += last["unconverged"]
        keep = ("name", "learners", "instances", "lanes", "episodes")
        groups.append({key: group[key] for key in keep} | {"episodes_done": done})
    done = sum(group["episodes_done"] for group in groups)
    # As the processes that run have measured it themselves: files do not tell what time went into.
    measured = [said.facts for said in progress.doing if said.facts["seconds"] > 0]
    speed = sum(facts["played"] / facts["seconds"] for facts in measured) or None
    saved = [block.times[-1] for block in progress.blocks.values()]
    finished = progress.has_results and done == plan["episodes"]
    running = "running" if progress.running else "stopped"
    return {
        "name": store.identity["configuration"]["name"],
        "state": "finished" if finished else running,
        "created": store.created,
        "lanes": plan["lanes"],
        "episodes": plan["episodes"],
        "episodes_done": done,
        "episodes_per_second": speed,
        "seconds_left": (plan["episodes"] - done) / speed if speed else None,
        "seconds_since_saved": max(0.0, now - max(saved)) if saved else None,
        "processes": [
            {
                "state": said.facts["state"],
                "group": said.facts["group"],
                "seconds": max(0.0, now - said.time),
            }
            for said in progress.doing
        ],
        "unconverged": unconverged,
        "groups": groups,
    }


def _doing(facts: dict[str, Any]) -> Iterator[str]:
    """What the processes of a running sweep do, a sentence each."""
    for process in facts["processes"]:
        words = " ".join(filter(None, (process["state"], process["group"])))
        words += f" for {duration_in_words(process['seconds'])}"
        if process["state"] == "playing":
            # A process speaks whenever it has saved: since then it plays the next chunk.
            saved = facts["seconds_since_saved"]
            words = f"playing {process['group']}, " + (
                f"nothing is saved yet, after {duration_in_words(process['seconds'])}"
                if saved is None
                else f"saved last {duration_in_words(saved)} ago"
            )
        yield words
    if not facts["processes"]:
        yield "it has just begun"


# Showing


def _cost(plan: Plan, devices: int | None) -> Cost:
    import jax

    return cost_of_plan(plan, len(local_devices(devices)), jax.process_count())


def _print_plan(console: Console, facts: dict[str, Any], cost: Cost) -> None:
    table = plain_table(
        "group", "learners", "instances", ">L, S, A", ">m", ">lanes", ">at once", ">episodes",
        ">memory",
    )  # fmt: skip
    for group in facts["groups"]:
        table.add_row(
            group["name"],
            Text(", ".join(group["learners"])),
            Text(", ".join(group["instances"])),
            ", ".join(map(str, group["shape"])),
            str(group["constraints"]),
            f"{group['lanes']:,}",
            f"{group['width']:,}",
            f"{group['episodes']:,}",
            size_in_words(group["bytes_per_device"]),
        )
    print_table(console, table)
    blocks = [block for group in facts["groups"] for block in group["blocks"].values()]
    times_saved = sum(block["chunks"] for block in blocks)
    console.print(
        f"{count_in_words(facts['lanes'], 'lane')} in {count_in_words(len(blocks), 'block')}, "
        f"{count_in_words(facts['episodes'], 'episode')}, "
        f"{count_in_words(facts['compilations'], 'compilation')}, "
        f"saved {count_in_words(times_saved, 'time')}; lanes at once and memory are of one device"
    )
    console.print(Text(cost_in_words(cost)), soft_wrap=True)


def _sentence(done: int, total: int, speed: float | None, left: float | None) -> str:
    words = f"{done:,} of {total:,} episodes"
    if speed:
        words += f", {speed:,.0f} episodes/s"
    if speed and left is not None and done < total:
        words += f", {duration_in_words(left)} left"
    return words


def _warn(console: Console, unconverged: int, residual: float | None) -> None:
    if unconverged:
        worst = "" if residual is None else f" (largest residual {residual:.2g})"
        console.print(
            Text(
                f"{unconverged:,} projections did not converge{worst}: do not trust the lanes "
                "where `unconverged` is not 0.",
                style="bold red",
            ),
            soft_wrap=True,
        )


class _Shown:
    """Progress: bars on a terminal, otherwise a line now and then."""

    def __init__(self, console: Console, pause: float = 10.0, devices: int | None = None) -> None:
        self._console, self._devices = console, devices
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._pause, self._last = pause, -pause
        self._state = ""
        self._told: set[str] = set()

    def __enter__(self) -> "_Shown":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, report: "Report") -> None:
        if not self._state:
            cost = _cost(report.plan, self._devices)
            _print_plan(self._console, report.plan.facts(), cost)
            if self._console.is_terminal and not self._console.quiet:
                self._begin_bars(report)
        for sentence in report.damage:
            if sentence not in self._told:
                self._told.add(sentence)
                again = Text(f"{sentence} It is played again.", style="yellow")
                self._console.print(again, soft_wrap=True)
        changed = f"{report.state} {report.group}" != self._state
        self._state = f"{report.state} {report.group}"
        if self._bars is not None:
            self._move_bars(self._bars, report)
        elif report.state != "planned":
            now = time.monotonic()
            if changed or now >= self._last + self._pause:
                self._last = now
                self._console.print(_line(report), soft_wrap=True)

    def _begin_bars(self, report: "Report") -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
        )
        for group in report.plan.groups:
            name = f"{group.name} {', '.join(group.learners)}"
            self._tasks[group.name] = self._bars.add_task(name, total=group.episodes, note="")
        if len(report.plan.groups) > 1:
            self._tasks[""] = self._bars.add_task("all", total=report.plan.episodes, note="")
        self._bars.start()

    def _move_bars(self, bars: Progress, report: "Report") -> None:
        for name, task in self._tasks.items():
            if name:
                note = report.state if report.group == name else ""
                done = report.done[name]
            if not name or len(self._tasks) == 1:
                done = report.episodes
                note = _sentence(done, report.plan.episodes, report.speed, report.seconds_left)
                note = report.state if report.state == "compiling" else note
            bars.update(task, completed=done, note=note)


def _line(report: "Report") -> str:
    if report.state == "compiling":
        return f"{report.group}: compiling"
    if report.state in ("evaluating", "waiting"):
        return "evaluating" if report.state == "evaluating" else "waiting for other processes"
    total = report.plan.episodes
    words = _sentence(report.episodes, total, report.speed, report.seconds_left)
    return f"{100 * report.episodes / total:3.0f}%  {report.group}: {words}"


_CELL = ("instance", "learner", "rates", "delta", "confidence_scale", "horizon")


def _facts(data: "xarray.Dataset", plan: Plan, out: Path, seconds: float) -> dict[str, Any]:
    """The end of every cell that was played; None stands for a setting that its learner ignores."""
    names = [[_plain(value) for value in data[name].values] for name in _CELL]
    last = data.isel(checkpoint=-1).transpose(*_CELL, "seed", ...)
    means = last[["regret", "violation"]].mean("seed")
    regret, violation = means.regret.values, means.violation.values
    unconverged, rows = last.unconverged.sum("seed").values, []
    failed = 0
    for cell in sorted({lane.cell for _, block in plan.blocks() for lane in block.lanes}):
        at = tuple(int(getattr(cell, name)) for name in _CELL)
        row = {
            name: None if name in cell.repeats and len(values) > 1 else values[i]
            for name, values, i in zip(_CELL, names, at, strict=True)
        }
        rows.append(row | {"regret": float(regret[at]), "violation": float(violation[at])})
        failed += int(unconverged[at])
    return {
        "out": str(out),
        "seconds": seconds,
        "lanes": plan.lanes,
        "layers": data.sizes["layer"],
        "unconverged": failed,
        "residual": float(last.residual.max()),
        "cells": rows,
    }


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _print_results(console: Console, facts: dict[str, Any]) -> None:
    cells = facts["cells"]
    differ = [name for name in _CELL if len({cell[name] for cell in cells}) > 1] or ["instance"]
    table = plain_table(*differ, ">regret", ">violation")
    for cell in cells[:_MOST_ROWS]:
        names = ("any" if cell[name] is None else str(cell[name]) for name in differ)
        largest = facts["layers"] * cell["horizon"]
        numbers = (number_in_words(cell[key], scale=largest) for key in ("regret", "violation"))
        table.add_row(*map(Text, names), *numbers)
    print_table(console, table)
    if len(cells) > _MOST_ROWS:
        console.print(f"... and {len(cells) - _MOST_ROWS:,} more")
    console.print(
        Text(
            f"means over seeds at the end; everything is in {facts['out']}: "
            "pdgd_jax.open_results reads it",
        ),
        soft_wrap=True,
    )


# Stopping


@contextlib.contextmanager
def _finish_first(console: Console) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C finish the current chunk; a second one ends the process at once."""
    asked = False

    def handle(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            console.show_cursor()
            os._exit(130)  # nothing is lost: files are there whole or not at all
        asked = True
        console.print("stopping after this chunk; Ctrl-C again to stop at once")

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, handle)
    woken = signal.set_wakeup_fd(-1)  # or the command line would end the process, see console.py
    try:
        yield lambda: asked
    finally:
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGINT, before)
