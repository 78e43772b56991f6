"""Draws a figure by its name: checks its options, divides it into panels, chooses a run."""

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
      what: a description of what it shows.
    """

    axes: Any
    what: str


def check_figure(figure: str, options: Iterable[str] = ()) -> None:
    """Raise if a figure does not exist or does not have an option.

    Args:
      figure: its name in `FIGURES`.
      options: the requested options among `bounds`, `guides` and `log`.

    Raises:
      ValueError: if there is no such figure or option.
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

    Of several horizons it draws the longest, except for figures about all horizons. If only one run
    can be drawn, it is the first.

    Args:
      figure: its name in `FIGURES`.
      dataset: the results of a sweep.
      look: width and legend.
      facet: the setting that divides it into panels, or "none"; the instance by default.
      options: options of the figure.

    Raises:
      ValueError: if there is no such figure, option or setting.
    """
    options = dict(options or {})
    check_figure(figure, options)
    draw = FIGURES[figure]
    if not draw.all_horizons:
        dataset = dataset.isel(horizon=[dataset["horizon"].to_numpy().argmax()])
    if draw.of_an_instance:
        _panels(figure, dataset, facet)  # raises if a facet is given
        dims = dataset["rho"].dims
        one = dataset.isel(dict.fromkeys(dims, 0))
        axes = draw(_instance(dataset, one), one["policy"].to_numpy(), look=look)
        learner = one["learner"].item()
        mine = [
            str(dim) for dim in dims if "." not in str(dim) or str(dim).startswith(f"{learner}.")
        ]
        which = ", ".join(f"{dim} {one[dim].item()}" for dim in mine)
        return Drawn(axes, f"{figure} of {which}")
    if panels := _panels(figure, dataset, facet):
        axes = facets(draw, dataset, by=panels, look=look, **options)
    else:
        axes = draw(dataset, look=look, **options)
    if draw.all_horizons:
        return Drawn(axes, figure)
    return Drawn(axes, f"{figure} of horizon {dataset['horizon'].item():,}")


def _panels(figure: str, dataset: "xarray.Dataset", facet: str | None) -> str:
    """The setting that divides a figure into panels; empty for none."""
    if facet == "none":
        return ""
    if facet is None:
        return "instance" if FIGURES[figure].in_panels and dataset.sizes["instance"] > 1 else ""
    if not FIGURES[figure].in_panels:
        divided = ", ".join(name for name, other in FIGURES.items() if other.in_panels)
        raise ValueError(f"the figure {figure} has no panels; those of {divided} do.")
    dims = [str(dim) for dim in dataset["rho"].dims if dim not in ("seed", "horizon")]
    name = facet.strip()
    name = name if name in dims else name.replace("-", "_")
    if name not in dims:
        raise ValueError(f"panels are made by one of {', '.join(dims)}, or none; got {facet}.")
    return name


def _instance(dataset: "xarray.Dataset", one: "xarray.Dataset") -> "CMDP":
    """Rebuild the instance of a run; the first one if there are several."""
    from pdgd_jax.sweeps import Configuration

    configuration = Configuration.from_dict(json.loads(dataset.attrs["configuration"]))
    label = str(one["instance"].item())
    entry = next(entry for entry in configuration.instances if entry.label == label)
    return entry.build(int(one["horizon"]))
