"""`pdgd plot`."""

import io
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from pdgd_jax._internal.files import publish, writing
from pdgd_jax.cli.app import Command
from pdgd_jax.cli.options import (
    Force,
    SweepFolder,
    check_target,
    completing,
    figure_names,
    selected,
)

__all__ = ["COMMAND"]


class Format(StrEnum):
    """The format of a file."""

    PDF = "pdf"
    PNG = "png"
    SVG = "svg"


class Width(StrEnum):
    """The width of a figure."""

    COLUMN = "column"
    PAGE = "page"


class Legend(StrEnum):
    """The position of a legend."""

    AUTO = "auto"
    INSIDE = "inside"
    ABOVE = "above"
    RIGHT = "right"
    NONE = "none"


def plot(
    folder: SweepFolder,
    figure: Annotated[
        str,
        typer.Option(help="One of {figures}.", autocompletion=completing(figure_names)),
    ] = "regret",
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="The format; by default the suffix of --out, or pdf."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file; by default named after the figure.")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE,...", help="Draw only these results; may be repeated."),
    ] = None,
    bounds: Annotated[bool, typer.Option("--bounds", help="Mark the paper's bounds.")] = False,
    guides: Annotated[
        bool,
        typer.Option(
            "--guides", help="Draw the rates 1/2 and 3/4 through the highest end of a learner."
        ),
    ] = False,
    log: Annotated[
        bool,
        typer.Option("--log", help="Logarithmic axes; linear around 0 if values are not positive."),
    ] = False,
    facet: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="One panel for each value of this setting, or none; by default for each instance.",
        ),
    ] = None,
    width: Annotated[
        Width, typer.Option(help="The width: a column or the page of a two-column paper.")
    ] = Width.COLUMN,
    legend: Annotated[Legend, typer.Option(help="The position of the legend.")] = Legend.AUTO,
    title: Annotated[str, typer.Option(help="A title above the figure.")] = "",
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=WORDS", help="Another name in the legend; may be repeated."),
    ] = None,
    force: Force = False,
) -> None:
    """Draw a figure of a sweep, for a column of a paper.

    Lines are medians over seeds, bands reach from the 10% to the 90% quantile. Of several horizons
    the longest is drawn, except in figures about all horizons. A learner has the same colour in
    every figure.
    """
    from pdgd_jax.plots import COLUMN_WIDTH, PAGE_WIDTH, Look, check_figure, draw_figure, pyplot

    wanted = {"bounds": bounds, "guides": guides, "log": log}
    options = {name: True for name, wish in wanted.items() if wish}
    check_figure(figure)
    kind, target = _target(figure, format_, out)
    inches = COLUMN_WIDTH if width is Width.COLUMN else PAGE_WIDTH
    look = Look(inches, legend.value, title, _renamed(label or []))
    check_figure(figure, options)
    check_target(target, force)
    dataset = selected(folder, select or [])
    pyplot().switch_backend("Agg")  # a file needs no display
    drawn = draw_figure(figure, dataset, look=look, facet=facet, options=options)
    _write(drawn.axes, target, kind)
    Console().print(Text(f"{drawn.what} drawn to {target}"), soft_wrap=True)


COMMAND = Command(
    plot,
    (
        "pdgd plot results --figure regret --format pdf",
        "pdgd plot results --figure horizons --guides --out slopes.svg",
        "pdgd plot results --figure violation --bounds --select learner=pdgd-ops,uniform",
        "pdgd plot results --figure tradeoff --width page --legend right --label pdgd-ops=ours",
        "pdgd plot results --figure policy --select instance=streaming --select seed=3",
    ),
)


def _write(axes: Any, target: Path, kind: str) -> None:
    """Write a figure and close it; a failure leaves no partial file."""
    from pdgd_jax.plots import pyplot, save

    content = io.BytesIO()
    save(axes, content, format=kind)
    pyplot().close("all")  # Matplotlib keeps figures, and warns from the twentieth on
    with writing(target.parent):
        publish(target.parent, {target.name: content.getvalue()})


def _target(figure: str, kind: Format | None, out: Path | None) -> tuple[str, Path]:
    """The format and the file; raises before anything is read or drawn."""
    if out is None:
        chosen = (kind or Format.PDF).value
        return chosen, Path(f"{figure}.{chosen}")
    ending = out.suffix.removeprefix(".").lower()
    if kind is None and ending not in list(Format):
        raise ValueError(f"--out must end in .pdf, .png or .svg, or --format name one; got {out}.")
    if kind is not None and ending in list(Format) and ending != kind:
        raise ValueError(f"--format {kind.value} and --out {out} disagree.")
    return (ending if kind is None else kind.value), out


def _renamed(words: list[str]) -> dict[str, str]:
    """The replacements for names in the legend."""
    pairs = [word.partition("=") for word in words]
    for word, (name, equals, _) in zip(words, pairs, strict=True):
        if not equals or not name.strip():
            raise ValueError(f"--label {word}: write NAME=WORDS, such as pdgd-ops=ours.")
    return {name.strip(): words.strip() for name, _, words in pairs}
