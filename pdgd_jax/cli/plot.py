"""`pdgd plot`."""

import io
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from pdgd_jax._internal.files import publish, writing
from pdgd_jax._internal.names import nearest
from pdgd_jax.cli.app import app, examples
from pdgd_jax.cli.options import Force, check_target, completing, selected

if TYPE_CHECKING:
    import xarray

    from pdgd_jax.models import CMDP
    from pdgd_jax.plots import Look

__all__ = ["plot"]


class Format(StrEnum):
    """What a figure is written as."""

    PDF = "pdf"
    PNG = "png"
    SVG = "svg"


class Width(StrEnum):
    """How wide a figure is."""

    COLUMN = "column"
    PAGE = "page"


class Legend(StrEnum):
    """Where a legend stands."""

    AUTO = "auto"
    INSIDE = "inside"
    ABOVE = "above"
    RIGHT = "right"
    NONE = "none"


def _figure_names() -> tuple[str, ...]:
    from pdgd_jax.plots import FIGURES

    return tuple(FIGURES)


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a sweep.")]


@app.command(
    epilog=examples(
        "pdgd plot results --figure regret --format pdf",
        "pdgd plot results --figure horizons --guides --out slopes.svg",
        "pdgd plot results --figure violation --bounds --select learner=pdgd-ops,uniform",
        "pdgd plot results --figure tradeoff --width page --legend right --label pdgd-ops=ours",
        "pdgd plot results --figure policy --select instance=streaming --select seed=3",
    )
)
def plot(
    folder: Folder,
    figure: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(_figure_names()[:-1])} or {_figure_names()[-1]}.",
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
        typer.Option(metavar="NAME=VALUE,...", help="Draw these results alone; may be repeated."),
    ] = None,
    bounds: Annotated[bool, typer.Option("--bounds", help="Mark the paper's bounds.")] = False,
    guides: Annotated[
        bool,
        typer.Option(
            "--guides", help="Draw the rates 1/2 and 3/4, through the highest end of a learner."
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
            help="A panel for each value of this setting, or none; by default for each instance.",
        ),
    ] = None,
    width: Annotated[
        Width, typer.Option(help="Of a column, or of the whole page of a two-column paper.")
    ] = Width.COLUMN,
    legend: Annotated[Legend, typer.Option(help="Where it stands.")] = Legend.AUTO,
    title: Annotated[str, typer.Option(help="Above the figure.")] = "",
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=WORDS", help="Another name in the legend; may be repeated."),
    ] = None,
    force: Force = False,
) -> None:
    """Draw a figure of a sweep, for a column of a paper.

    Lines are medians over seeds, bands reach from the 10% to the 90% quantile. Of several horizons
    the longest is drawn, but for the figures that are about all of them. A learner has the same
    colour in every figure.
    """
    from pdgd_jax.plots import COLUMN_WIDTH, FIGURES, PAGE_WIDTH, Look, pyplot, save

    kind, target = _target(figure, format_, out)
    inches = COLUMN_WIDTH if width is Width.COLUMN else PAGE_WIDTH
    look = Look(inches, legend.value, title, _renamed(label or []))
    wanted = {"bounds": bounds, "guides": guides, "log": log}
    options = _checked(figure, [name for name, wish in wanted.items() if wish])
    check_target(target, force)
    dataset = selected(folder, select or [])
    if not FIGURES[figure].all_horizons:
        dataset = dataset.isel(horizon=[dataset["horizon"].to_numpy().argmax()])
    axes = _drawn(figure, dataset, look, _panels(figure, dataset, facet), options)

    content = io.BytesIO()
    save(axes, content, format=kind)
    pyplot().close("all")  # Matplotlib keeps them, and warns from the twentieth on
    with writing(target.parent):
        publish(target.parent, {target.name: content.getvalue()})
    what = figure
    if FIGURES[figure].of_an_instance:
        what += f" of {_first(dataset)}"
    elif not FIGURES[figure].all_horizons:
        what += f" of horizon {dataset['horizon'].item():,}"
    Console().print(Text(f"{what} drawn to {target}"), soft_wrap=True)


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
    return (ending if kind is None else kind.value), out


def _renamed(words: list[str]) -> dict[str, str]:
    """What names of the legend are to be called."""
    pairs = [word.partition("=") for word in words]
    for word, (name, equals, _) in zip(words, pairs, strict=True):
        if not equals or not name.strip():
            raise ValueError(f"--label {word}: write NAME=WORDS, such as pdgd-ops=ours.")
    return {name.strip(): words.strip() for name, _, words in pairs}


def _checked(figure: str, names: list[str]) -> dict[str, bool]:
    """The options of a figure, refused if it does not have them."""
    from pdgd_jax.plots import FIGURES

    for name in names:
        if name not in FIGURES[figure].options:
            raise ValueError(f"the figure {figure} has no {name}.")
    return dict.fromkeys(names, True)


def _panels(figure: str, dataset: "xarray.Dataset", facet: str | None) -> str:
    """By what a figure is divided into panels; empty if it is not."""
    from pdgd_jax.plots import FIGURES

    if facet == "none":
        return ""
    if facet is None:
        return "instance" if FIGURES[figure].in_panels and dataset.sizes["instance"] > 1 else ""
    if not FIGURES[figure].in_panels:
        divided = ", ".join(name for name, other in FIGURES.items() if other.in_panels)
        raise ValueError(f"the figure {figure} has no panels; those of {divided} do.")
    name = facet.strip().replace("-", "_")
    dims = [str(dim) for dim in dataset["rho"].dims if dim not in ("seed", "horizon")]
    if name not in dims:
        raise ValueError(f"--facet {facet}: panels are made by one of {', '.join(dims)}, or none.")
    return name


def _drawn(
    figure: str, dataset: "xarray.Dataset", look: "Look", panels: str, options: dict[str, bool]
) -> Any:
    from pdgd_jax.plots import FIGURES, facets, pyplot

    pyplot().switch_backend("Agg")  # a file needs no window, nor a display
    draw = FIGURES[figure]
    if panels:
        return facets(draw, dataset, by=panels, look=look, **options)
    if not draw.of_an_instance:
        return draw(dataset, look=look, **options)
    one = dataset.isel(dict.fromkeys(dataset["rho"].dims, 0))
    return draw(_instance(dataset, one), one["policy"].to_numpy(), look=look)


def _first(dataset: "xarray.Dataset") -> str:
    """Which run is drawn where only one can be."""
    one = dataset.isel(dict.fromkeys(dataset["rho"].dims, 0))
    return ", ".join(f"{dim} {one[dim].item()}" for dim in dataset["rho"].dims)


def _instance(dataset: "xarray.Dataset", one: "xarray.Dataset") -> "CMDP":
    """The instance that a run was played on, made again; the first one if there are several."""
    from pdgd_jax.sweeps import Configuration

    configuration = Configuration.from_dict(json.loads(dataset.attrs["configuration"]))
    label = str(one["instance"].item())
    entry = next(entry for entry in configuration.instances if entry.label == label)
    return entry.build(int(one["horizon"]))
