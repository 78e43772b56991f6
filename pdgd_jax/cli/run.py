"""`pdgd run`."""

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import jax
import typer
from rich.console import Console
from rich.text import Text

from pdgd_jax._internal.checks import LARGEST_KEY
from pdgd_jax._internal.options import brief
from pdgd_jax._internal.text import count_in_words
from pdgd_jax.cli.app import Command
from pdgd_jax.cli.cost import DryRun, Yes, announce, show_cost
from pdgd_jax.cli.options import (
    AsJson,
    InstanceName,
    completing,
    instance_of,
    learner_names,
    learner_options,
    learner_options_so_far,
    literal,
    rates_names,
    solver_names,
    whole,
)
from pdgd_jax.cli.output import print_json
from pdgd_jax.cli.progress import RunView
from pdgd_jax.cli.summary import check_out, print_summary, saving
from pdgd_jax.learners import BY_DEFAULT, declaration_of, make_learner, settings_of
from pdgd_jax.results import QUANTITIES, process_name, summarise
from pdgd_jax.simulation import use_cores
from pdgd_jax.sweeps import cost_of_run, sweep

if TYPE_CHECKING:
    import xarray

# Without files to write, a run reports its progress at every checkpoint, or at every tenth if it is
# short (estimated seconds): each report takes 15 ms.
_CHECKPOINTS_AT_ONCE = 10
_SHORT = 60.0


class Shown(StrEnum):
    """The statistic over seeds."""

    MEDIAN = "median"
    MEAN = "mean"


# The defaults are those of a configuration and of the learners: a test compares them.
Episodes = Annotated[float, typer.Option(help="T, the number of episodes.")]
Seeds = Annotated[int, typer.Option(help="The number of independent runs.")]
RandomKey = Annotated[int, typer.Option(help="Determines everything random, except the instance.")]
LearnerName = Annotated[
    str,
    typer.Option(help="One of {learners}.", autocompletion=completing(learner_names)),
]
LearnerOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the learner, see [bold]pdgd learners[/]; may be repeated.",
        autocompletion=learner_options_so_far,
    ),
]
RatesName = Annotated[
    str,
    typer.Option(
        help='"tuned", "theory", or the two constants C,eta.',
        autocompletion=completing(rates_names),
    ),
]
Delta = Annotated[float, typer.Option(help="The confidence parameter.")]
ConfidenceScale = Annotated[
    float, typer.Option(help="The factor of the paper's confidence radius.")
]
SolverName = Annotated[
    str,
    typer.Option(
        help="The solver of the projection: {solvers}.",
        autocompletion=completing(solver_names),
    ),
]
Checkpoints = Annotated[int, typer.Option(help="The number of checkpoints.")]
Certificates = Annotated[bool, typer.Option("--certificates", help="List every guarantee.")]
StatisticName = Annotated[
    Shown, typer.Option(help="Over seeds: the median with a band, or the mean.")
]
Out = Annotated[
    Path | None,
    typer.Option(help="Save everything to this folder, as pdgd sweep does.", metavar="DIR"),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace the results in the folder, if there are any.")
]


def run(
    context: typer.Context,
    name: InstanceName = "random",
    episodes: Episodes = 10_000,
    seeds: Seeds = 8,
    key: RandomKey = 0,
    learner: LearnerName = "pdgd-ops",
    option: LearnerOptions = None,
    rates: RatesName = "tuned",
    delta: Delta = 0.05,
    confidence_scale: ConfidenceScale = 1.0,
    solver: SolverName = "newton",
    checkpoints: Checkpoints = 200,
    certificates: Certificates = False,
    statistic: StatisticName = Shown.MEDIAN,
    out: Out = None,
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Learn on an instance: regret, violation, multipliers, and two pictures.

    Options of the instance are options of the command: --sizes 1,4,4,1 --seed 3.
    """
    if out is not None:
        check_out(out, force)
    whole("--key", key, 0, LARGEST_KEY)
    whole("--checkpoints", checkpoints)
    use_cores(whole("--seeds", seeds))
    T = whole("--episodes", episodes)
    name, options, cmdp = instance_of(context, name, T)
    settings = {
        "rates": literal(rates) if "," in rates else rates,
        "delta": delta,
        "confidence_scale": confidence_scale,
    }
    own = learner_options(learner, option or [])
    given = {name: value for name, value in own.items() if value != BY_DEFAULT}
    player = make_learner(learner, cmdp, T, solver=solver, **settings, **given)
    devices = len(jax.local_devices())
    cost = cost_of_run(cmdp, player, T, seeds, name=learner, solver=solver, devices=devices)
    if dry_run:
        show_cost(cost, as_json)
        return
    announce(cost, yes=yes, quiet=as_json)
    configuration = {
        "name": f"{learner} on {name}",
        "key": key,
        "seeds": seeds,
        "checkpoints": min(checkpoints, T),
        "instance": [{"make": name, **options}],
        "settings": {"horizon": T, **settings},
        "learners": {"names": learner, "solver": solver, **({learner: own} if own else {})},
    }
    at_once = _CHECKPOINTS_AT_ONCE if (cost.play_seconds or math.inf) < _SHORT else 1
    every = None if out else -(-T // min(checkpoints, T)) * at_once
    data, seconds = _played(configuration, -(-seeds // devices), every, out, quiet=as_json)
    says = declaration_of(learner)
    facts = {"instance": name, "learner": learner, "rates": rates, "seconds": seconds}
    facts |= {"options": own, "knows": says.knows, "feedback": says.feedback}
    facts["constraints_process"] = process_name(cmdp.constraints)
    facts |= summarise(data, cmdp.units)
    if as_json:
        print_json(facts)
        return
    console = Console()
    speed = f"{seconds:.1f} s, {T * seeds / seconds:,.0f} episodes/s"
    played = f"{count_in_words(T, 'episode')}, {count_in_words(seeds, 'seed')}"
    title = f"{learner} on {name}: {played} ({speed})"
    console.print(Text(title, style="bold"), soft_wrap=True)
    chosen = "".join(f"; {name} = {brief(value)}" for name, value in own.items())
    console.print(Text(f"{learner} {says.in_words}{chosen}"), soft_wrap=True)
    print_summary(console, facts, data, all_=certificates, statistic=statistic.value)
    if rates == "theory" and "rates" in settings_of(learner) and _has_multipliers(facts):
        console.print(
            "rates of the proofs barely move the multipliers at such horizons; use "
            "[bold]--rates tuned[/] to see the algorithm at work"
        )
    if out is not None:
        console.print(f"saved to {out}")


COMMAND = Command(
    run,
    (
        "pdgd run",
        "pdgd run streaming --episodes 1e5 --seeds 16",
        "pdgd run random --constraints phases --confidence-scale 0.3 --out phases",
        "pdgd run random --learner ucpd --option V=100 --option mixing=0",
        "pdgd --import my_module run my-instance --learner my-learner",
    ),
    any_option=True,
)


def _has_multipliers(facts: dict[str, Any]) -> bool:
    row = QUANTITIES["multipliers"].row
    return row is not None and row.when(facts)


def _played(
    configuration: dict[str, Any], width: int, every: int | None, out: Path | None, *, quiet: bool
) -> tuple["xarray.Dataset", float]:
    """Play a sweep of one cell, save it if asked, and measure the time."""
    seeds = count_in_words(configuration["seeds"], "seed")
    title = f"{configuration['name']}, {seeds}"
    with RunView(Console(stderr=True), title, quiet=quiet) as shown, saving(out) as folder:
        data = sweep(configuration, out=folder, width=width, save_every=every, on_progress=shown)
        return data.load(), shown.seconds
