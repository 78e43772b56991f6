"""The commands that show results: `pdgd plot` and `pdgd report`."""

import inspect
import io
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from pdgd_jax._files import publish, writing
from pdgd_jax._names import nearest
from pdgd_jax.console import app, check_parent, completing, examples

if TYPE_CHECKING:
    import xarray

    from pdgd_jax.cmdp import CMDP

__all__ = ["plot", "report"]

_OF_AN_INSTANCE = ("policy", "occupancy", "grid")
_OF_ALL_HORIZONS = ("horizons", "certificates")


class Format(StrEnum):
    """What a figure is written as."""

    PDF = "pdf"
    PNG = "png"
    SVG = "svg"


def _figure_names() -> tuple[str, ...]:
    from pdgd_jax.plots import FIGURES

    return tuple(FIGURES)


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a sweep.")]


@app.command(
    epilog=examples(
        "pdgd plot results --figure regret --format pdf",
        "pdgd plot results --figure horizons --guides --out slopes.svg",
        "pdgd plot results --figure violation --bounds --select learner=pdgd-ops",
        "pdgd plot results --figure policy --select instance=streaming --select seed=3",
    )
)
def plot(
    folder: Folder,
    figure: Annotated[
        str,
        typer.Option(
            help="regret, violation, positive-violation, multipliers, reward, horizons, radius, "
            "solver, certificates, policy, occupancy or grid.",
            autocompletion=completing(_figure_names),
        ),
    ] = "regret",
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="Of the file; by default what --out ends in, else pdf."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file; by default named after the figure, here.")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Draw these results alone; may be repeated."),
    ] = None,
    bounds: Annotated[bool, typer.Option("--bounds", help="Mark the paper's bounds.")] = False,
    guides: Annotated[
        bool, typer.Option("--guides", help="Draw the rates 1/2 and 3/4 as guides.")
    ] = False,
) -> None:
    """Draw a figure of a sweep, for a column of a paper.

    Lines are medians over seeds, bands reach from the 10% to the 90% quantile. Of several horizons
    the longest is drawn, but for the figures that are about all of them.
    """
    kind, target = _target(figure, format_, out)
    dataset = _results(folder, select or [])
    if figure not in _OF_ALL_HORIZONS:
        dataset = dataset.isel(horizon=[dataset["horizon"].to_numpy().argmax()])
    axes = _drawn(figure, dataset, bounds, guides)
    from pdgd_jax.plots import save

    content = io.BytesIO()
    save(axes, content, format=kind)
    with writing(target.parent):
        publish(target.parent, {target.name: content.getvalue()})
    what = figure
    if figure in _OF_AN_INSTANCE:
        what += f" of {_first(dataset)}"
    elif figure not in _OF_ALL_HORIZONS:
        what += f" of horizon {dataset['horizon'].item():,}"
    Console().print(Text(f"{what} drawn to {target}"), soft_wrap=True)


@app.command(
    epilog=examples("pdgd report results", "pdgd report results --out for-my-colleagues.html")
)
def report(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="The file; by default DIR/report.html.")] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Report these results alone; may be repeated."),
    ] = None,
) -> None:
    """Write a sweep as one HTML file: tables, guarantees, figures to play with; opens offline."""
    from pdgd_jax.report import write_report

    target = folder / "report.html" if out is None else out
    if target.suffix not in (".html", ".htm"):
        raise ValueError(f"--out must end in .html; got {target.name!r}.")
    check_parent(target)
    write_report(_results(folder, select or []), target)
    Console().print(Text(f"report written to {target}"), soft_wrap=True)


def _target(figure: str, kind: Format | None, out: Path | None) -> tuple[str, Path]:
    """The format and the file, refused before anything is read or drawn."""
    from pdgd_jax.plots import FIGURES

    if figure not in FIGURES:
        raise ValueError(
            f"unknown figure {figure!r}{nearest(figure, FIGURES)}; there are {', '.join(FIGURES)}."
        )
    if out is None:
        chosen = (kind or Format.PDF).value
        return chosen, Path(f"{figure}.{chosen}")
    ending = out.suffix.removeprefix(".").lower()
    if kind is None and ending not in list(Format):
        raise ValueError(f"--out must end in .pdf, .png or .svg, or --format name one; got {out}.")
    if kind is not None and ending in list(Format) and ending != kind:
        raise ValueError(f"--format {kind.value} and --out {out} disagree.")
    check_parent(out)
    return (ending if kind is None else kind.value), out


def _results(folder: Path, select: list[str]) -> "xarray.Dataset":
    """The results of a folder, or the part of them that was asked for."""
    from pdgd_jax.store import open_results

    dataset = open_results(folder)
    dims = [str(dim) for dim in dataset["regret"].dims if dim != "checkpoint"]
    for word in select:
        name, equals, value = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in dims:
            raise ValueError(
                f"--select {word}: write NAME=VALUE, NAME being one of {', '.join(dims)}."
            )
        known = [str(known) for known in dataset[name].to_numpy()]
        places = [i for i, other in enumerate(known) if _same(other, value.strip())]
        if not places:
            raise ValueError(f"--select {word}: {name} is one of {', '.join(known)}.")
        dataset = dataset.isel({name: places})
    return dataset


def _same(known: str, asked: str) -> bool:
    """Equal as words or as numbers: 1e4 is 10000."""
    try:
        return known == asked or float(known) == float(asked)
    except ValueError:
        return False


def _drawn(figure: str, dataset: "xarray.Dataset", bounds: bool, guides: bool) -> Any:
    from pdgd_jax.plots import FIGURES
    from pdgd_jax.plots.canvas import pyplot

    pyplot().switch_backend("Agg")  # a file needs no window, nor a display
    draw = FIGURES[figure]
    options = {name: True for name, wanted in (("bounds", bounds), ("guides", guides)) if wanted}
    for name in options:
        if name not in inspect.signature(draw).parameters:
            raise ValueError(f"the figure {figure} has no {name}.")
    if figure not in _OF_AN_INSTANCE:
        return draw(dataset, **options)
    one = dataset.isel(dict.fromkeys(dataset["rho"].dims, 0))
    return draw(_instance(dataset, one), one["policy"].to_numpy())


def _first(dataset: "xarray.Dataset") -> str:
    """Which run is drawn where only one can be."""
    one = dataset.isel(dict.fromkeys(dataset["rho"].dims, 0))
    return ", ".join(f"{dim} {one[dim].item()}" for dim in dataset["rho"].dims)


def _instance(dataset: "xarray.Dataset", one: "xarray.Dataset") -> "CMDP":
    """The instance that a run was played on, made again; the first one if there are several."""
    from pdgd_jax.configuration import Configuration

    configuration = Configuration.from_dict(json.loads(dataset.attrs["configuration"]))
    label = str(one["instance"].item())
    entry = next(entry for entry in configuration.instances if entry.label == label)
    return entry.build(int(one["horizon"]))
