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
from pdgd_jax._users import importing, place_of
from pdgd_jax._words import count_in_words
from pdgd_jax.cli_cost import DryRun, Yes, announce, show_cost
from pdgd_jax.cmdp import CMDP
from pdgd_jax.console import (
    ANY_OPTION,
    EXIT_CODES,
    LARGEST_KEY,
    AsJson,
    Force,
    app,
    completing,
    examples,
    instance_names,
    instance_options,
    learner_names,
    literal,
    plain_table,
    print_json,
    print_table,
    rates_names,
    run_app,
    solver_names,
    whole,
)
from pdgd_jax.costs import cost_of_run
from pdgd_jax.distributed import use_cores, use_every_core
from pdgd_jax.evaluation import comparators_of, evaluate
from pdgd_jax.instances import builder_of, make_for, options_of, registered
from pdgd_jax.instances.options import written
from pdgd_jax.lanes import run_seeds
from pdgd_jax.learners import make_learner
from pdgd_jax.processes import StochasticProcess, foresight
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
            with importing(module):
                importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in (module, module.partition(".")[0]):
                raise
            raise ValueError(
                f"--import {module}: there is no such module here ({os.getcwd()}) nor among the "
                "installed ones; give a module's name, as in an import statement."
            ) from None
        except (TypeError, ValueError) as error:
            if place_of(error):
                raise
            raise ValueError(
                f"--import {module!r}: give a module's name, as in an import statement."
            ) from None
    return modules


@app.callback(
    invoke_without_command=True,
    epilog=examples(
        "pdgd run",
        "pdgd run streaming --episodes 1e5 --seeds 16",
        "pdgd sweep quick --out results",
        "pdgd plot results --figure violation",
        "pdgd report results",
        "pdgd --install-completion",
    )
    + "\n\n"
    + EXIT_CODES,
)
def _options(
    context: typer.Context,
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
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


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
        description, meanings = _described(name)
        if as_json:
            shown = {option: _plain_default(default) for option, default in options.items()}
            print_json({"name": name, "about": _docstring(name), "options": shown})
            return
        console = Console()
        console.print(Text(name, style="bold"))
        console.print(Text(description), soft_wrap=True)
        if options:
            console.print()
            table = plain_table("option", "default", "what it is")
            for option, default in options.items():
                flag = Text(f"--{option.replace('_', '-')}", no_wrap=True)
                table.add_row(flag, _shown_default(default), meanings.get(option, ""))
            print_table(console, table)
        return
    rows = [{"name": name, **_facts_or_reason(name)} for name in registered()]
    if as_json:
        print_json(rows)
        return
    table = plain_table("instance", ">L", ">states", ">actions", ">m", ">OPT", ">rho", "what it is")
    for row in rows:
        label = Text(row["name"], no_wrap=True)
        if "unavailable" in row:
            table.add_row(label, *["-"] * 6, Text(row["unavailable"], style="yellow"))
            continue
        about = Text(_docstring(row["name"]).splitlines()[0])
        if row["rho"] is None:
            about.append(f" (rho: {row['rho_reason']})", style="yellow")
        counts = (str(row[key]) for key in ("layers", "states", "actions", "constraints"))
        opt, rho = ("?" if row[key] is None else f"{row[key]:.4g}" for key in ("opt", "rho"))
        bound = "" if row["rho"] is None or row["rho_exact"] else "≥ "
        table.add_row(label, *counts, opt, f"{bound}{rho}", about)
    console = Console()
    print_table(console, table)
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
    name, cmdp = _made(context, name, num_episodes)
    facts = _facts(cmdp, num_episodes)
    if as_json:
        print_json({"name": name, **facts})
        return
    table = plain_table("what", "value")
    table.show_header = False
    for label, text in _sentences(facts):
        table.add_row(Text(label, style="bold"), text)
    console = Console()
    console.print(Text(f"{name}: {_docstring(name).splitlines()[0]}", style="bold"), soft_wrap=True)
    print_table(console, table)


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
    facts["constraints_process"] = _process_name(cmdp.constraints)
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


def _facts(cmdp: CMDP, num_episodes: int) -> dict[str, Any]:
    average = oracle.hindsight(cmdp, num_episodes)
    best = oracle.optimum(cmdp.mdp, average.reward, average.constraints)
    free = oracle.optimum(cmdp.mdp, average.reward)
    rho, exact, reason = _rho_or_reason(cmdp, num_episodes)
    violation = np.tensordot(np.asarray(average.constraints), free.occupancy.sum(-1), axes=3)
    sizes = cmdp.layers.sizes
    L, m = len(sizes) - 1, cmdp.num_constraints
    units = cmdp.units
    environment = units and {
        "opt": units.to_environment(best.value) if best.feasible else None,
        "unconstrained_opt": units.to_environment(free.value),
    }
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
        "environment": environment,
        "opt_is_of_one_draw": not _foreseen(cmdp),
        "rho": rho,
        "rho_exact": exact,
        "rho_reason": reason,
        "num_episodes": num_episodes,
        "required_rho": theory.required_margin(L, m, num_episodes),
        "condition_holds": _condition(rho, exact, L, m, num_episodes),
        "episodes_for_condition": theory.episodes_for_margin(rho, L, m) if exact and rho else None,
    }


def _condition(
    rho: float | None, exact: bool, num_layers: int, num_constraints: int, num_episodes: int
) -> bool | None:
    """Whether the condition on rho holds; None where a lower bound of rho does not tell."""
    if rho is None:
        return None
    holds = theory.slater_condition_holds(rho, num_layers, num_constraints, num_episodes)
    return holds if holds or exact else None


def _foreseen(cmdp: CMDP) -> bool:
    """Whether what adversaries show is known beforehand, and with it the optimum of a run."""
    shape, dtype = cmdp.layers.shape, cmdp.mdp.transition.dtype
    adversaries = [
        process
        for process in (cmdp.rewards, cmdp.constraints)
        if not isinstance(process, StochasticProcess)
    ]
    return all(foresight(process, shape, dtype).known for process in adversaries)


def _rho_or_reason(cmdp: CMDP, num_episodes: int) -> tuple[float | None, bool, str]:
    """The margin, whether it is exact, and why it is not known or not exact."""
    try:
        margin = oracle.slater_margin(cmdp.mdp, cmdp.constraints, num_episodes)
    except NotImplementedError as error:
        return None, False, f"unknown, as {str(error).rstrip('.')}; give it a method extremes()"
    reason = "" if margin.exact else "a bound: what is shown depends on the run"
    return margin.rho, margin.exact, reason


def _facts_or_reason(name: str) -> dict[str, Any]:
    """One that needs an extra which is not installed, or is broken, leaves the others alone."""
    try:
        return _facts(make_for(name, 10_000), 10_000)
    except Exception as error:
        if not isinstance(error, ValueError) and not place_of(error):
            raise
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        return {"unavailable": f"{kind}{error}{place_of(error)}"}


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
    if facts["opt_is_of_one_draw"]:
        opt += " (of one draw against the uniform policy)"
    rho = facts["rho_reason"]
    if facts["rho"] is not None:
        number = f"{facts['rho']:.6g}"
        rho = number if facts["rho_exact"] else f"at least {number} ({rho})"
    holds, needed = facts["condition_holds"], facts["episodes_for_condition"]
    asked = f"at T = {facts['num_episodes']:,}"
    condition = f"unknown {asked}: it asks for rho >= {facts['required_rho']:.4g}"
    if holds is not None:
        sign, verb = (">=", "holds") if holds else ("<", "does not hold")
        known = "rho =" if facts["rho_exact"] else "rho is at least"
        number = f"{facts['rho']:.4g} {sign} {facts['required_rho']:.4g}"
        condition = f"{verb} {asked}: {known} {number}"
    if holds is False:
        condition += "; it never does" if needed is None else f"; it does from T = {needed:.3g}"
    own = facts["environment"]
    in_units = own and " and ".join(
        f"{label} {own[name]:.6g}"
        for label, name in (("OPT", "opt"), ("without constraints", "unconstrained_opt"))
        if own[name] is not None
    )
    return [
        ("sizes", f"{tuple(facts['sizes'])}: L = {facts['layers']}, |X| = {facts['states']}"),
        ("actions", f"{facts['actions']}"),
        ("constraints", f"{facts['constraints']}, {facts['constraints_process']}"),
        ("rewards", facts["rewards_process"]),
        ("OPT", opt),
        ("without constraints", free),
        *([("in the environment's units", in_units)] if in_units else []),
        ("rho", rho),
        ("condition on rho", condition),
    ]


def _docstring(name: str) -> str:
    return inspect.getdoc(builder_of(name)) or "(not described)"


def _described(name: str) -> tuple[str, dict[str, str]]:
    """The docstring without its section on options, and what that says of each of them."""
    description, _, section = _docstring(name).partition("\nArgs:\n")
    meanings: dict[str, str] = {}
    for line in inspect.cleandoc(section).splitlines():
        option, colon, meaning = line.partition(": ")
        if colon and option.isidentifier():
            meanings[option] = meaning
        elif meanings:
            meanings[[*meanings][-1]] += f" {line.strip()}"
    return description.rstrip(), meanings


def _shown_default(default: Any) -> str:
    return "(needed)" if default is inspect.Parameter.empty else written(default)


def _plain_default(default: Any) -> Any:
    return None if default is inspect.Parameter.empty else default
