"""How a run ended, in words and pictures."""

import io
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.text import Text

from pdgd_jax._internal.files import publish, writing
from pdgd_jax._internal.pytree import on_host
from pdgd_jax._internal.text import number_in_words
from pdgd_jax.cli.options import check_target
from pdgd_jax.cli.output import plain_table, print_table
from pdgd_jax.cli.signs import only_ascii
from pdgd_jax.cli.textplot import curve
from pdgd_jax.results import Estimate, Evaluation
from pdgd_jax.simulation import History

__all__ = ["check_out", "print_summary", "save"]

NDArray = np.ndarray[Any, np.dtype[Any]]


def print_summary(
    console: Console, facts: dict[str, Any], history: History, result: Evaluation, *, all_: bool
) -> None:
    """Print the summary, the picture, and what a reader must not miss."""
    episodes, seeds = facts["episodes"], facts["seeds"]
    ascii_ = only_ascii(console)
    plus_minus = "+-" if ascii_ else "±"
    band = f"mean {plus_minus} 95% interval" if seeds > 1 else "value"
    table = plain_table("after the last episode", f">{band}", ">per episode")
    layers = history.policy.shape[-3]  # what an episode may be worth

    def text(estimate: Estimate, scale: float = 1.0) -> str:
        return estimate.words(scale).replace("±", plus_minus)

    def row(label: str, name: str) -> None:
        estimate = Estimate(**facts[name])
        each = Estimate(estimate.mean / episodes, estimate.half_width / episodes)
        table.add_row(label, text(estimate, episodes * layers), text(each, layers))

    row("reward", "reward")
    table.add_row("OPT", number_in_words(episodes * facts["opt"]), number_in_words(facts["opt"]))
    if own := facts.get("environment"):
        earned, best = Estimate(**own["reward"]), own["opt"]
        each = Estimate(*(value / episodes for value in earned))
        table.add_row("reward, in the environment's units", text(earned), text(each))
        whole, per_episode = number_in_words(best), number_in_words(best / episodes)
        table.add_row("OPT, in the environment's units", whole, per_episode)
    row("regret", "regret")
    # What the paper promises if constraints are adversarial; without a margin, it is nothing.
    if "adversarial" in facts.get("constraints_process", "") and facts["alpha"] > 0:
        row(f"alpha-regret, alpha = {facts['alpha']:.3g}", "alpha_regret")
    row("violation, worst constraint", "violation")
    drawn = history.metrics.constraint_sum is not None
    row(
        f"violation, positive parts{' as shown' if drawn else ' of the mean'}", "positive_violation"
    )
    setting = history.setting  # a learner without multipliers or epochs has zeros there
    has_multipliers = setting is not None and setting.num_constraints is not None
    if has_multipliers or on_host(history.metrics.largest_multiplier).any():
        for i, multiplier in enumerate(facts["multipliers"]):
            label = "multiplier" if len(facts["multipliers"]) == 1 else f"multiplier {i + 1}"
            table.add_row(label, text(Estimate(**multiplier)), "")
    if on_host(history.metrics.epoch).any():
        table.add_row("epochs", text(Estimate(**facts["epochs"])), "")
    print_table(console, table)
    console.print()
    width = max(20, min(60, console.width - 12))
    for label, values in (("regret", result.regret), ("violation", result.violation)):
        average = " (mean over seeds)" if seeds > 1 else ""
        picture = curve(
            result.episode,
            values.mean(0),
            width=width,
            label=f"{label}{average}",
            only_ascii=ascii_,
        )
        console.print(Text(picture), soft_wrap=True)
        console.print()
    _print_certificates(console, facts, all_)
    _print_projections(console, facts)


def _print_certificates(console: Console, facts: dict[str, Any], all_: bool) -> None:
    found, seeds = facts["certificates"], facts["seeds"]
    if all_:
        columns = ("guarantee", ">measured", ">bound", ">trivially", ">probability", "status")
        table = plain_table(*columns)
        for c in found:
            if c["fails"]:
                status = Text(f"fails in {c['fails']} of {seeds}", style="red")
            elif c["holds"]:
                rest = f", vacuous in {c['vacuous']} of {seeds}" if c["vacuous"] else ""
                status = Text(f"holds{rest}", style="green")
            elif c["vacuous"]:
                status = Text("vacuous: no learner could exceed it", style="yellow")
            else:
                status = Text(f"does not apply: {c['reason']}", style="dim")
            trivial = "" if c["trivial"] is None else f"{c['trivial']:.4g}"
            numbers = (f"{c['measured']:.4g}", f"{c['bound']:.4g}", trivial)
            probability = f"{c['probability']:.3g}"
            place = c["theorem"].partition(",")[0]
            name = c["name"] if place in c["name"] else f"{c['name']} ({place})"
            table.add_row(name, *numbers, probability, status)
        print_table(console, table)
    fails = sum(c["fails"] > 0 for c in found)
    holds = sum(c["holds"] > 0 and not c["fails"] for c in found)
    vacuous = sum(c["vacuous"] > 0 and not c["fails"] and not c["holds"] for c in found)
    idle = len(found) - holds - fails - vacuous
    more = "" if all_ else "; --certificates lists them"
    line = (
        f"guarantees: {holds} hold, {fails} fail, {vacuous} are vacuous, {idle} do not apply{more}"
    )
    console.print(Text(line, style="red" if fails else ""), soft_wrap=True)


def _print_projections(console: Console, facts: dict[str, Any]) -> None:
    if facts["unconverged"]:
        text = (
            f"{facts['unconverged']} projections did NOT converge: the numbers above are not those "
            "of the algorithm. Choose another solver or tolerance, and report the instance."
        )
        console.print(Text(text, style="bold red"), soft_wrap=True)
    elif facts["residual"] > 0:
        steps = f"{facts['iterations_per_episode']:.2f} iterations each"
        text = f"projections: all converged, largest residual {facts['residual']:.2g}, {steps}"
        console.print(Text(text), soft_wrap=True)


def check_out(path: Path, force: bool = False) -> None:
    """Refuse, before anything runs, a place where the result could not be saved."""
    if path.suffix != ".npz":
        raise ValueError(f"--out must end in .npz; got {path.name!r}.")
    check_target(path, force)


def save(path: Path, facts: dict[str, Any], history: History, result: Evaluation) -> None:
    """Write histories, evaluation and summary as one `.npz`, whole or not at all.

    What was recorded is under `history.`, what it means under the names of `Evaluation`.
    """
    arrays = {name: getattr(result, name) for name in Evaluation._fields if name != "certificates"}
    for where, leaf in jax.tree.leaves_with_path(history):
        name = jax.tree_util.keystr(where, simple=True, separator=".")
        arrays[f"history.{name}"] = on_host(leaf)
    arrays["summary"] = np.array(json.dumps(facts))
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    with writing(path.parent):
        publish(path.parent, {path.name: content.getvalue()})
