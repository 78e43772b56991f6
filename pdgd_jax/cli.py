"""The command line: `pdgd`."""

import importlib
import inspect
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

import pdgd_jax
import pdgd_jax.cli_figures  # their commands join the application
import pdgd_jax.cli_sweep
from pdgd_jax import oracle, theory
from pdgd_jax._words import count_in_words
from pdgd_jax.cmdp import CMDP
from pdgd_jax.console import (
    ANY_OPTION,
    EXIT_CODES,
    AsJson,
    app,
    completing,
    examples,
    instance_names,
    instance_options,
    learner_names,
    literal,
    plain_table,
    print_json,
    rates_names,
    run_app,
    solver_names,
    whole,
)
from pdgd_jax.distributed import use_cores, use_every_core
from pdgd_jax.evaluation import comparators_of, evaluate
from pdgd_jax.instances import builder_of, make, options_of, registered
from pdgd_jax.lanes import run_seeds
from pdgd_jax.learners import make_learner
from pdgd_jax.processes import StochasticProcess
from pdgd_jax.summary import check_out, print_summary, save, summarise

__all__ = ["main"]

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


def main() -> None:
    """Run `pdgd`, in float64, on all cores."""
    jax.config.update("jax_enable_x64", True)
    use_every_core()
    run_app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pdgd_jax {pdgd_jax.__version__}")
        raise typer.Exit


def _import(modules: list[str] | None) -> list[str]:
    modules = modules or []
    # As `python -m` does: what stands in the current folder can be imported.
    sys.path[:0] = [os.getcwd()] if modules else []
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in (module, module.partition(".")[0]):
                raise
            raise ValueError(
                f"--import {module}: there is no such module here ({os.getcwd()}) nor among the "
                "installed ones; give a module's name, as in an import statement."
            ) from None
    return modules


@app.callback(
    epilog=examples(
        "pdgd run",
        "pdgd run streaming --episodes 1e5 --seeds 16",
        "pdgd sweep quick --out results",
        "pdgd plot results --figure violation",
        "pdgd report results",
        "pdgd --install-completion",
    )
    + "\n\n"
    + EXIT_CODES
)
def _options(
    import_: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            envvar="PDGD_IMPORT",
            callback=_import,
            is_eager=True,
            help="Import this module first: one of yours that registers instances or learners.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    del import_, version  # handled by their callbacks


@app.command(epilog=examples("pdgd instances", "pdgd instances grid", "pdgd instances --json"))
def instances(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Describe this one in full.", autocompletion=completing(instance_names)
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the built-in instances, or describe one with its options."""
    if name is not None:
        options = options_of(name)
        description = _docstring(name)
        if as_json:
            print_json({"name": name, "about": description, "options": options})
            return
        console = Console()
        console.print(Text(name, style="bold"))
        console.print(Text(description), soft_wrap=True)
        return
    rows = [{"name": name, **_facts_or_reason(name)} for name in registered()]
    if as_json:
        print_json(rows)
        return
    table = plain_table("instance", ">L", ">states", ">actions", ">m", ">OPT", ">rho", "what it is")
    for row in rows:
        about = Text(_docstring(row["name"]).splitlines()[0])
        if "unavailable" in row:
            table.add_row(row["name"], *["-"] * 6, Text(row["unavailable"], style="yellow"))
            continue
        counts = (str(row[key]) for key in ("layers", "states", "actions", "constraints"))
        table.add_row(row["name"], *counts, f"{row['opt']:.4g}", f"{row['rho']:.4g}", about)
    console = Console()
    console.print(table)
    console.print("\nSolve one with [bold]pdgd solve NAME[/]; its options: pdgd instances NAME.")


@app.command(
    context_settings=ANY_OPTION,
    epilog=examples(
        "pdgd solve streaming",
        "pdgd solve grid --budget 1 --episodes 1e6",
        "pdgd solve random --sizes 1,10,10,1 --num-actions 5 --json",
    ),
)
def solve(
    context: typer.Context,
    name: InstanceName,
    episodes: Annotated[
        float, typer.Option(help="T, for the paper's condition on rho and adversarial averages.")
    ] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Solve an instance offline: its optimum, its margin, and what the theory asks for.

    Options of the instance are given as they are named there: --sizes 1,4,4,1 --seed 3.
    """
    num_episodes = whole("--episodes", episodes)
    facts = _facts(make(name, **instance_options(context.args)), num_episodes)
    if as_json:
        print_json({"name": name, **facts})
        return
    table = plain_table("what", "value")
    table.show_header = False
    for label, text in _sentences(facts):
        table.add_row(Text(label, style="bold"), text)
    console = Console()
    console.print(Text(f"{name}: {_docstring(name).splitlines()[0]}", style="bold"), soft_wrap=True)
    console.print(table)


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
def run_(
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
    as_json: AsJson = False,
) -> None:
    """Learn on an instance: regret, violation, multipliers, and a picture.

    Options of the instance are given as they are named there: --sizes 1,4,4,1 --seed 3.
    """
    if out is not None:
        check_out(out)
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1; got {seeds}.")
    use_cores(seeds)
    T = whole("--episodes", episodes)
    words = context.args
    if name.startswith("--"):  # an option of the instance, where its name was left out
        name, words = "random", [name, *words]
    cmdp = make(name, **instance_options(words))
    player = make_learner(
        learner,
        cmdp,
        T,
        delta=delta,
        rates=literal(rates) if "," in rates else rates,
        confidence_scale=confidence_scale,
        solver=solver,
    )
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
    facts |= summarise(history, result)
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


def _facts(cmdp: CMDP, num_episodes: int) -> dict[str, Any]:
    average = oracle.hindsight(cmdp, num_episodes)
    best = oracle.optimum(cmdp.mdp, average.reward, average.constraints)
    free = oracle.optimum(cmdp.mdp, average.reward)
    margin = oracle.slater_margin(cmdp.mdp, cmdp.constraints, num_episodes)
    violation = np.tensordot(np.asarray(average.constraints), free.occupancy.sum(-1), axes=3)
    sizes = cmdp.layers.sizes
    L, m = len(sizes) - 1, cmdp.num_constraints
    return {
        "layers": L,
        "sizes": sizes,
        "states": sum(sizes),
        "actions": int(np.asarray(cmdp.layers.action_mask).sum(-1).max()),
        "constraints": m,
        "rewards_process": _process_name(cmdp.rewards),
        "constraints_process": _process_name(cmdp.constraints),
        "feasible": best.feasible,
        "opt": best.value if best.feasible else None,
        "multipliers": best.multipliers.tolist() if best.feasible else None,
        "unconstrained_opt": free.value,
        "unconstrained_violation": violation.tolist(),
        "rho": margin.rho,
        "num_episodes": num_episodes,
        "required_rho": theory.required_margin(L, m, num_episodes),
        "condition_holds": theory.slater_condition_holds(margin.rho, L, m, num_episodes),
        "episodes_for_condition": theory.episodes_for_margin(margin.rho, L, m),
    }


def _facts_or_reason(name: str) -> dict[str, Any]:
    try:
        return _facts(make(name), 10_000)
    except ValueError as error:  # an instance that needs an extra which is not installed
        return {"unavailable": str(error)}


def _process_name(process: Any) -> str:
    kind = "stochastic" if isinstance(process, StochasticProcess) else "adversarial"
    return f"{type(process).__name__} ({kind})"


def _sentences(facts: dict[str, Any]) -> list[tuple[str, str]]:
    def several(values: list[float]) -> str:
        return ", ".join(f"{value:.6g}" for value in values)

    if facts["feasible"]:
        opt = f"{facts['opt']:.6g}, with multipliers {several(facts['multipliers'])}"
    else:
        opt = "infeasible: no policy satisfies the constraints"
    violation = several(facts["unconstrained_violation"])
    free = f"{facts['unconstrained_opt']:.6g}, violating by {violation} per episode"
    verb = "holds" if facts["condition_holds"] else "does not hold"
    condition = (
        f"{verb} at T = {facts['num_episodes']:,}: rho = {facts['rho']:.4g} "
        f"{'>=' if facts['condition_holds'] else '<'} {facts['required_rho']:.4g}"
    )
    if not facts["condition_holds"]:
        needed = facts["episodes_for_condition"]
        condition += "; it never does" if needed is None else f"; it does from T = {needed:.3g}"
    return [
        ("sizes", f"{tuple(facts['sizes'])}: L = {facts['layers']}, |X| = {facts['states']}"),
        ("actions", f"{facts['actions']}"),
        ("constraints", f"{facts['constraints']}, {facts['constraints_process']}"),
        ("rewards", facts["rewards_process"]),
        ("OPT", opt),
        ("without constraints", free),
        ("rho", f"{facts['rho']:.6g}"),
        ("condition on rho", condition),
    ]


def _docstring(name: str) -> str:
    return inspect.getdoc(builder_of(name)) or "(not described)"
