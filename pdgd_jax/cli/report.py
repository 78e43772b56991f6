"""`pdgd report`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from pdgd_jax.cli.app import Command
from pdgd_jax.cli.options import Force, SweepFolder, check_target, selected

__all__ = ["COMMAND"]


def report(
    folder: SweepFolder,
    out: Annotated[Path | None, typer.Option(help="The file; by default DIR/report.html.")] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE,...", help="Report only these results; may be repeated."),
    ] = None,
    force: Force = False,
) -> None:
    """Write a sweep as one HTML file with tables, guarantees and interactive figures."""
    from pdgd_jax.report import write_report

    target = folder / "report.html" if out is None else out
    if target.suffix not in (".html", ".htm"):
        raise ValueError(f"--out must end in .html; got {target.name!r}.")
    check_target(target, force)
    write_report(selected(folder, select or []), target)
    Console().print(Text(f"report written to {target}"), soft_wrap=True)


COMMAND = Command(
    report, ("pdgd report results", "pdgd report results --out for-my-colleagues.html")
)
