"""Small multiples: one figure for each instance, side by side, with one legend."""

import math
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pdgd_jax._internal.options import brief
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.plots._style import COLUMN, COLUMN_WIDTH, STYLE, Look, entitle, legend, plain, pyplot
from pdgd_jax.results import Evaluation, as_dataset

if TYPE_CHECKING:
    import xarray

__all__ = ["facets"]


def facets(
    draw: Callable[..., Any],
    source: "xarray.Dataset | Evaluation",
    *,
    by: str = "instance",
    look: Look = COLUMN,
    **options: Any,
) -> NDArray:
    """The same figure for each instance, with separate scales and common colours.

    Args:
      draw: a function of `plots` that draws on one Axes, such as `plots.regret`.
      source: the results.
      by: the dimension with one panel per value.
      look: width, legend, title.
      **options: options of `draw`.

    Returns:
      The Axes, one for each value.

    Example:
      >>> from pdgd_jax import plots
      >>> panels = plots.facets(plots.regret, results, guides=True)  # doctest: +SKIP
    """
    dataset = as_dataset(source)
    if by not in dataset["regret"].dims or by in ("seed", "checkpoint"):
        dims = [str(dim) for dim in dataset["regret"].dims if dim not in ("seed", "checkpoint")]
        raise ValueError(f"panels are made by one of {', '.join(dims)}; got {by!r}.")
    names = dataset[by].to_numpy()
    columns = min(len(names), 2 if look.width <= COLUMN_WIDTH else 3)
    rows = math.ceil(len(names) / columns)
    plt = pyplot()
    plt.draw_if_interactive()  # loads the backend, see `canvas`
    with plt.rc_context(dict(STYLE)):
        size = (look.width, 0.35 + (1.4 if look.width <= COLUMN_WIDTH else 1.9) * rows)
        figure, grid = plt.subplots(
            rows, columns, figsize=size, dpi=200, layout="constrained", squeeze=False
        )
        axes, spare = np.split(grid.ravel(), [len(names)])
        for number, (place, name) in enumerate(zip(axes, names, strict=True)):
            part = dataset.isel({by: [number]})
            draw(part, ax=place, look=look._replace(legend="none", title=""), **options)
            is_option = "." in by  # of a learner
            words = f"{by} = {brief(name.item())}" if is_option else str(name)
            place.set_title(plain(words), fontsize=7)
        _share_labels(figure, axes, rows)
        handles = {
            str(handle.get_label()): handle
            for place in axes
            for handle in place.get_legend_handles_labels()[0]
        }
        for place in spare:
            place.axis("off")
        if len(spare) and look.legend == "auto" and max(map(len, handles), default=0) <= 28:
            legend(spare[0], look._replace(legend="inside"), True, list(handles.values()))
        else:
            legend(axes[0], look, True, list(handles.values()), outside=True)
        entitle(figure, look)
    return axes


def _share_labels(figure: Any, axes: NDArray, rows: int) -> None:
    """Show the labels, which all panels share, only once."""
    upright = axes[0].get_ylabel().replace("\n", " ")
    figure.supxlabel(axes[0].get_xlabel(), fontsize=8)
    figure.supylabel(textwrap.fill(upright, 22 * rows), fontsize=8)
    for place in axes:
        place.set(xlabel="", ylabel="")
