"""`pdgd solve`."""

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from pdgd_jax.cli.app import Command
from pdgd_jax.cli.options import AsJson, InstanceName, about, instance_of, whole
from pdgd_jax.cli.output import plain_table, print_json, print_table
from pdgd_jax.results import InstanceFacts, describe

__all__ = ["COMMAND"]


def solve(
    context: typer.Context,
    name: InstanceName,
    episodes: Annotated[
        float, typer.Option(help="T, for the paper's condition on rho and adversarial averages.")
    ] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Solve an instance offline: its optimum, its margin, and the condition of the theory.

    Options of the instance are options of the command: --sizes 1,4,4,1 --seed 3.
    """
    num_episodes = whole("--episodes", episodes)
    name, _, cmdp = instance_of(context, name, num_episodes)
    facts = describe(cmdp, num_episodes)
    if as_json:
        print_json({"name": name, **facts.as_dict()})
        return
    table = plain_table("what", "value")
    table.show_header = False
    for label, text in _sentences(facts):
        table.add_row(Text(label, style="bold"), text)
    console = Console()
    console.print(Text(f"{name}: {about(name).splitlines()[0]}", style="bold"), soft_wrap=True)
    print_table(console, table)


COMMAND = Command(
    solve,
    (
        "pdgd solve streaming",
        "pdgd solve grid --budget 1 --episodes 1e6",
        "pdgd solve random --sizes 1,10,10,1 --num-actions 5 --json",
    ),
    any_option=True,
)


def _sentences(facts: InstanceFacts) -> list[tuple[str, str]]:
    def several(values: list[float]) -> str:
        return ", ".join(f"{value:.6g}" for value in values)

    if facts.multipliers is not None:
        opt = f"{facts.opt:.6g}, with multipliers {several(facts.multipliers)}"
    else:
        opt = "infeasible: no policy satisfies the constraints"
    violation = several(facts.unconstrained_violation)
    free = f"{facts.unconstrained_opt:.6g}, violating by {violation} per episode"
    if facts.opt_is_of_one_draw:
        opt += " (of one draw against the uniform policy)"
    rho = facts.rho_reason
    if facts.rho is not None:
        number = f"{facts.rho:.6g}"
        rho = number if facts.rho_exact else f"at least {number} ({rho})"
    holds, needed = facts.condition_holds, facts.episodes_for_condition
    asked = f"at T = {facts.num_episodes:,}"
    condition = f"unknown {asked}: it asks for rho >= {facts.required_rho:.4g}"
    if holds is not None:
        sign, verb = (">=", "holds") if holds else ("<", "does not hold")
        known = "rho =" if facts.rho_exact else "rho is at least"
        number = f"{facts.rho:.4g} {sign} {facts.required_rho:.4g}"
        condition = f"{verb} {asked}: {known} {number}"
    if holds is False:
        condition += "; it never does" if needed is None else f"; it does from T = {needed:.3g}"
    own = facts.environment
    in_units = own and " and ".join(
        f"{label} {own[name]:.6g}"
        for label, name in (("OPT", "opt"), ("without constraints", "unconstrained_opt"))
        if own[name] is not None
    )
    return [
        ("sizes", f"{tuple(facts.sizes)}: L = {facts.layers}, |X| = {facts.states}"),
        ("actions", f"{facts.actions}"),
        ("triples", f"{facts.triples:,}; which can happen is {facts.support} to the learner"),
        ("constraints", f"{facts.constraints}, {facts.constraints_process}"),
        ("rewards", facts.rewards_process),
        ("OPT", opt),
        ("without constraints", free),
        *([("in the environment's units", in_units)] if in_units else []),
        ("rho", rho),
        ("condition on rho", condition),
    ]
