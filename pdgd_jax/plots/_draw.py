"""A figure by its name: what it can show, its panels, and which run where only one can be drawn."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pdgd_jax.plots._figures import FIGURES
from pdgd_jax.plots._panels import facets
from pdgd_jax.plots._style import COLUMN, Look

if TYPE_CHECKING:
    import xarray

    from pdgd_jax.models import CMDP

__all__ = ["Drawn", "check_figure", "draw_figure"]


class Drawn(NamedTuple):
    """A figure that was drawn.

    Attributes:
      axes: Matplotlib's Axes, one or several.
      what: it shows, in words.
    """

    axes: Any
    what: str


def check_figure(figure: str, options: Iterable[str] = ()) -> None:
    """Refuse a figure that does not exist, or an option that it does not have.

    Args:
      figure: its name in `FIGURES`.
      options: of `bounds`, `guides` and `log` those that are wanted.

    Raises:
      ValueError: in one sentence.
    """
    known = FIGURES.get(figure).options
    for name in options:
        if name not in known:
            raise ValueError(f"the figure {figure} has no {name}.")


def draw_figure(
    figure: str,
    dataset: "xarray.Dataset",
    *,
    look: Look = COLUMN,
    facet: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Drawn:
    """Draw a figure of a sweep by its name, as `pdgd plot` does.

    Of several horizons the longest is drawn, but for the figures that are about all of them; where
    only one run can be drawn it is the first.

    Args:
      figure: its name in `FIGURES`.
      dataset: the results of a sweep.
      look: width and legend.
      facet: the setting by which it is divided into panels, or "none"; the instance by default.
      options: of the figure.

    Raises:
      ValueError: if there is no such figure, option or setting.
    """
    options = dict(options or {})
    check_figure(figure, options)
    draw = FIGURES[figure]
    if not draw.all_horizons:
        dataset = dataset.isel(horizon=[dataset["horizon"].to_numpy().argmax()])
    if draw.of_an_instance:
        _panels(figure, dataset, facet)  # refuses a facet
        dims = dataset["rho"].dims
        one = dataset.isel(dict.fromkeys(dims, 0))
        axes = draw(_instance(dataset, one), one["policy"].to_numpy(), look=look)
        which = ", ".join(f"{dim} {one[dim].item()}" for dim in dims)
        return Drawn(axes, f"{figure} of {which}")
    if panels := _panels(figure, dataset, facet):
        axes = facets(draw, dataset, by=panels, look=look, **options)
    else:
        axes = draw(dataset, look=look, **options)
    if draw.all_horizons:
        return Drawn(axes, figure)
    return Drawn(axes, f"{figure} of horizon {dataset['horizon'].item():,}")


def _panels(figure: str, dataset: "xarray.Dataset", facet: str | None) -> str:
    """By what a figure is divided into panels; empty if it is not."""
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
        raise ValueError(f"panels are made by one of {', '.join(dims)}, or none; got {facet}.")
    return name


def _instance(dataset: "xarray.Dataset", one: "xarray.Dataset") -> "CMDP":
    """The instance that a run was played on, made again; the first one if there are several."""
    from pdgd_jax.sweeps import Configuration

    configuration = Configuration.from_dict(json.loads(dataset.attrs["configuration"]))
    label = str(one["instance"].item())
    entry = next(entry for entry in configuration.instances if entry.label == label)
    return entry.build(int(one["horizon"]))
