"""`pdgd sweep`."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from pdgd_jax._internal.text import number_in_words
from pdgd_jax.cli.app import Command
from pdgd_jax.cli.options import AsJson, completing, configuration_names
from pdgd_jax.cli.output import plain_table, print_json, print_table, warn_unconverged
from pdgd_jax.cli.progress import ProgressView, cost_of, print_plan
from pdgd_jax.cli.signals import finish_first
from pdgd_jax.learners import FEEDBACK
from pdgd_jax.results import ENDS, summarise_sweep
from pdgd_jax.simulation import local_devices, use_cores
from pdgd_jax.sweeps import Cluster, Configuration, join, plan_of, read_configuration

if TYPE_CHECKING:
    import xarray

__all__ = ["COMMAND"]

_MOST_ROWS = 40


def sweep(
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
            help='Random streams: "paired" (seed i is the same in every cell) or "independent"; '
            "overrides CONFIG."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    devices: Annotated[int | None, typer.Option(help="How many; all by default.")] = None,
    width: Annotated[
        int | None, typer.Option(min=1, help="How many lanes a device plays at once.")
    ] = None,
    save_every: Annotated[
        int | None, typer.Option(min=1, help="The most episodes between two saves of a block.")
    ] = None,
    coordinator: Annotated[
        str | None, typer.Option(help="host:port of process 0, for several processes.")
    ] = None,
    num_processes: Annotated[int | None, typer.Option(min=1, help="How many processes.")] = None,
    process_id: Annotated[int | None, typer.Option(min=0, help="This process, from 0.")] = None,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed", help="Get these three from the cluster (SLURM, MPI, Kubernetes, TPU)."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Play every combination of instances, learners, settings and seeds, on every core.

    Results are saved during the sweep. Ctrl-C stops after the current chunk, Ctrl-C twice at once.
    However a sweep ended, the same command resumes it, with the same bits.
    """
    asked = read_configuration(configuration)
    if streams is not None:
        asked = asked.with_streams(streams)
    if devices is not None:
        use_cores(devices)
    cluster = None
    if distributed or any(x is not None for x in (coordinator, num_processes, process_id)):
        say = Console(stderr=True, quiet=as_json, soft_wrap=True).print
        cluster = _joined(coordinator, num_processes, process_id, say)
    if devices is not None:
        local_devices(devices)
    cut: dict[str, Any] = {"width": width, "save_every": save_every}
    if dry_run:
        plan = plan_of(asked, **cut)
        cost = cost_of(plan, devices)
        planned = {**plan.facts(), "cost": cost.facts()}
        print_json(planned) if as_json else print_plan(Console(), plan, cost)
        return
    out = out or Path(f"{Path(configuration).stem}-sweep")
    leads = cluster is None or cluster.process == 0
    console = Console(stderr=True, quiet=as_json or not leads)
    begin = time.perf_counter()
    data = _played(console, asked, out=out, devices=devices, cluster=cluster, **cut)
    if leads:
        seconds = time.perf_counter() - begin
        facts = {"out": str(out), "seconds": seconds, **summarise_sweep(data)}
        print_json(facts) if as_json else _print_results(Console(), facts)
        warn_unconverged(Console(stderr=True), facts["unconverged"], facts["residual"])


COMMAND = Command(
    sweep,
    (
        "pdgd sweep quick",
        "pdgd sweep my.toml --out results --dry-run",
        "pdgd sweep my.toml --out results   (again, to resume it)",
        "pdgd sweep my.toml --coordinator host0:1234 --num-processes 4 --process-id 2",
    ),
)


def _joined(
    coordinator: str | None,
    num_processes: int | None,
    process_id: int | None,
    say: Callable[[str], None],
) -> Cluster:
    """`join` with errors that name options of the command line."""
    try:
        return join(coordinator, num_processes, process_id, say)
    except ValueError as error:
        sentence = str(error)
        for name in ("coordinator", "num_processes", "process_id"):
            sentence = re.sub(rf"\b{name}\b", f"--{name.replace('_', '-')}", sentence)
        raise ValueError(sentence) from error


def _played(
    console: Console, asked: Configuration, *, out: Path, devices: int | None, **settings: Any
) -> "xarray.Dataset":
    """Play a sweep and show its progress; Ctrl-C finishes the chunk and ends with 130."""
    from pdgd_jax.sweeps import Interrupted, sweep

    shown = ProgressView(console, devices=devices)
    try:
        with finish_first(console) as should_stop, shown:
            return sweep(
                asked,
                out=out,
                devices=devices,
                on_progress=shown,
                should_stop=should_stop,
                **settings,
            )
    except Interrupted:
        Console(stderr=True).print(
            Text(f"stopped; everything is saved in {out}: run the same command again to continue."),
            soft_wrap=True,
        )
        raise typer.Exit(130) from None


def _print_results(console: Console, facts: dict[str, Any]) -> None:
    cells = facts["cells"]
    settings = [name for name in cells[0] if name not in ENDS]
    values = {name: {cell[name] for cell in cells} - {None} for name in settings}
    differ = [name for name in settings if len(values[name]) > 1] or ["instance"]
    table = plain_table(*differ, *(f">{name}" for name in ENDS))
    for cell in cells[:_MOST_ROWS]:
        names = ("any" if cell[name] is None else str(cell[name]) for name in differ)
        largest = facts["layers"] * cell["horizon"]
        numbers = (number_in_words(cell[key], scale=largest) for key in ENDS)
        table.add_row(*map(Text, names), *numbers)
    print_table(console, table)
    if len(cells) > _MOST_ROWS:
        console.print(f"... and {len(cells) - _MOST_ROWS:,} more")
    if facts["learners"]:
        console.print()
        learners = plain_table("learner", "knows", "sees")
        for one in facts["learners"]:
            learners.add_row(Text(one["name"]), one["knows"], FEEDBACK[one["feedback"]])
        print_table(console, learners)
        console.print()
    console.print(
        Text(
            f"medians over seeds at the end; everything is in {facts['out']}: "
            "pdgd_jax.open_results reads it",
        ),
        soft_wrap=True,
    )
