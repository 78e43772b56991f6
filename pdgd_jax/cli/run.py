"""`pdgd run`."""

import time
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from pdgd_jax._internal.text import count_in_words
from pdgd_jax.cli.app import app, examples
from pdgd_jax.cli.cost import DryRun, Yes, announce, show_cost
from pdgd_jax.cli.options import (
    ANY_OPTION,
    LARGEST_KEY,
    AsJson,
    Force,
    completing,
    instance_names,
    instance_options,
    learner_names,
    literal,
    rates_names,
    solver_names,
    whole,
)
from pdgd_jax.cli.output import print_json
from pdgd_jax.cli.summary import check_out, print_summary, save
from pdgd_jax.instances import make_for
from pdgd_jax.learners import make_learner
from pdgd_jax.models import CMDP
from pdgd_jax.results import comparators_of, evaluate, process_name, summarise
from pdgd_jax.simulation import run_seeds, use_cores
from pdgd_jax.sweeps import cost_of_run

_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    TextColumn("{task.percentage:>3.0f}%"),
    TextColumn("{task.fields[rate]}"),
    TimeRemainingColumn(),
)

InstanceName = Annotated[
    str,
    typer.Argument(
        help="An instance, see [bold]pdgd instances[/].", autocompletion=completing(instance_names)
    ),
]


@app.command(
    "run",
    context_settings=ANY_OPTION,
    epilog=examples(
        "pdgd run",
        "pdgd run streaming --episodes 1e5 --seeds 16",
        "pdgd run random --constraints phases --confidence-scale 0.3 --out phases.npz",
        "pdgd --import my_module run my-instance --learner my-learner",
    ),
)
def run(
    context: typer.Context,
    name: InstanceName = "random",
    episodes: Annotated[float, typer.Option(help="T, how many episodes to play.")] = 10_000,
    seeds: Annotated[int, typer.Option(help="How many independent runs.")] = 8,
    key: Annotated[int, typer.Option(help="Decides everything random, but the instance.")] = 0,
    learner: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(learner_names())}.", autocompletion=completing(learner_names)
        ),
    ] = "pdgd-ops",
    rates: Annotated[
        str,
        typer.Option(
            help='"tuned", "theory", or the two constants C,eta.',
            autocompletion=completing(rates_names),
        ),
    ] = "tuned",
    delta: Annotated[float, typer.Option(help="The confidence parameter.")] = 0.05,
    confidence_scale: Annotated[
        float, typer.Option(help="What the paper's confidence radius is multiplied by.")
    ] = 1.0,
    solver: Annotated[
        str,
        typer.Option(
            help=f"Of the projection: {', '.join(solver_names())}.",
            autocompletion=completing(solver_names),
        ),
    ] = "newton",
    checkpoints: Annotated[int, typer.Option(help="How often to look.")] = 200,
    certificates: Annotated[
        bool, typer.Option("--certificates", help="List every guarantee.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Save everything to this .npz file.")] = None,
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Learn on an instance: regret, violation, multipliers, and a picture.

    Options of the instance are given as they are named there: --sizes 1,4,4,1 --seed 3.
    """
    if out is not None:
        check_out(out, force)
    whole("--key", key, 0, LARGEST_KEY)
    whole("--checkpoints", checkpoints)
    use_cores(whole("--seeds", seeds))
    T = whole("--episodes", episodes)
    name, cmdp = _made(context, name, T)
    player = make_learner(
        learner,
        cmdp,
        T,
        delta=delta,
        rates=literal(rates) if "," in rates else rates,
        confidence_scale=confidence_scale,
        solver=solver,
    )
    devices = len(jax.local_devices())
    cost = cost_of_run(cmdp, player, T, seeds, name=learner, solver=solver, devices=devices)
    if dry_run:
        show_cost(cost, as_json)
        return
    announce(cost, yes=yes, quiet=as_json)
    keys = jax.random.split(jax.random.key(key), seeds)
    comparators = comparators_of(cmdp, T)
    console = Console(stderr=True)
    with Progress(*_COLUMNS, console=console, transient=True, disable=as_json) as progress:
        task = progress.add_task("compiling", total=T * seeds, rate="")
        begin = 0.0

        def on_checkpoint(done: int) -> None:
            nonlocal begin
            if done == 0:
                begin = time.perf_counter()
                progress.update(task, description=f"{name}, {count_in_words(seeds, 'seed')}")
                return
            speed = done * seeds / (time.perf_counter() - begin)
            progress.update(task, completed=done * seeds, rate=f"{speed:,.0f} episodes/s")

        history = run_seeds(
            keys,
            cmdp,
            player,
            T,
            checkpoints=checkpoints,
            comparators=comparators,
            on_checkpoint=on_checkpoint,
        )
        seconds = time.perf_counter() - begin
    result = evaluate(history, cmdp)
    facts = {"instance": name, "learner": learner, "rates": rates, "seconds": seconds}
    facts["constraints_process"] = process_name(cmdp.constraints)
    facts |= summarise(history, result, cmdp.units)
    if out is not None:
        save(out, facts, history, result)
    if as_json:
        print_json(facts)
        return
    console = Console()
    speed = f"{seconds:.1f} s, {T * seeds / seconds:,.0f} episodes/s"
    played = f"{count_in_words(T, 'episode')}, {count_in_words(seeds, 'seed')}"
    title = f"{learner} on {name}: {played} ({speed})"
    console.print(Text(title, style="bold"), soft_wrap=True)
    print_summary(console, facts, history, result, all_=certificates)
    if learner == "pdgd-ops" and rates == "theory":
        console.print(
            "rates of the proofs barely move the multipliers at such horizons; use "
            "[bold]--rates tuned[/] to see the algorithm at work"
        )
    if out is not None:
        console.print(f"saved to {out}")


def _made(context: typer.Context, name: str, num_episodes: int) -> tuple[str, CMDP]:
    """The instance that the words ask for, as it is if so many episodes are played."""
    name, options = instance_options(context, name)
    cmdp = make_for(name, num_episodes, **options)
    cmdp.check_episodes(num_episodes)
    return name, cmdp
