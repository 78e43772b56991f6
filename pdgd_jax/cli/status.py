"""`pdgd status`."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pdgd_jax._internal.text import duration_in_words
from pdgd_jax.cli.app import Command
from pdgd_jax.cli.options import AsJson, SweepFolder
from pdgd_jax.cli.output import plain_table, print_json, print_table, warn_unconverged
from pdgd_jax.cli.progress import speed_in_words
from pdgd_jax.sweeps import SweepStatus, sweep_status

__all__ = ["COMMAND"]


def status(folder: SweepFolder, as_json: AsJson = False) -> None:
    """Show how far a sweep is, from its files, even while it runs."""
    found = sweep_status(folder)
    print_json(found.as_dict()) if as_json else _print_status(Console(), folder, found)


COMMAND = Command(status, ("pdgd status results", "pdgd status results --json"))


def _print_status(console: Console, folder: Path, found: SweepStatus) -> None:
    done, total = found.episodes_done, found.episodes
    title = Text(f"{folder}: {found.name}, {found.state}", style="bold")
    console.print(title, soft_wrap=True)
    table = plain_table("group", "learners", "instances", ">done", ">episodes")
    for group in found.groups:
        share = f"{100 * group.episodes_done / group.episodes:.0f}%"
        episodes = f"{group.episodes_done:,} of {group.episodes:,}"
        names = (", ".join(group.learners), ", ".join(group.instances))
        table.add_row(group.name, *map(Text, names), share, episodes)
    print_table(console, table)
    console.print(speed_in_words(done, total, found.episodes_per_second, found.seconds_left))
    if found.state == "running":
        for sentence in _doing(found):
            console.print(Text(sentence), soft_wrap=True)
    if found.state == "stopped":
        console.print("run the command that started it again to continue")
    warn_unconverged(console, found.unconverged, None)


def _doing(found: SweepStatus) -> Iterator[str]:
    """What the processes of a running sweep are doing, one sentence each."""
    for process in found.processes:
        words = " ".join(filter(None, (process.state, process.group)))
        words += f" for {duration_in_words(process.seconds)}"
        if process.state == "playing":
            # A process reports after every save, and has been playing the next chunk since.
            saved = found.seconds_since_saved
            words = f"playing {process.group}, " + (
                f"nothing is saved yet, after {duration_in_words(process.seconds)}"
                if saved is None
                else f"saved last {duration_in_words(saved)} ago"
            )
        yield words
    if not found.processes:
        yield "it has just begun"
