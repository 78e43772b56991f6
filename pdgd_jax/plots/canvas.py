"""How figures look: the size, the colours, the legend, the file."""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "COLUMN_WIDTH",
    "DASHES",
    "GREY",
    "MARKERS",
    "STYLE",
    "WARNING",
    "canvas",
    "draw_guides",
    "finish",
    "legend",
    "plain",
    "pyplot",
    "refuse_crowd",
    "save",
]

NDArray = np.ndarray[Any, np.dtype[Any]]

COLUMN_WIDTH = 3.3  # inches, of a two-column paper
STYLE: Mapping[str, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.limits": (-3, 5),
    "axes.formatter.use_mathtext": True,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "hatch.linewidth": 0.5,
}

# The colours of Okabe and Ito, which colour-blind people can tell apart; without their yellow,
# which a line on white paper loses. Line styles tell the same, for who prints in black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D")
_MOST_CURVES = len(COLOURS) * len(DASHES)
GREY = "#777777"
WARNING = "#D55E00"
_MATHEMATICS = re.compile(r"(?<!\\)\$.*?(?<!\\)\$")
# The rates of the paper, for guides: power, in words, dashes.
_GUIDES = ((0.5, "1/2", (0, (5, 2))), (0.75, "3/4", (0, (1, 1.5))))


def pyplot() -> Any:
    """Matplotlib's pyplot, imported when the first figure is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ValueError('figures need Matplotlib: pip install "pdgd_jax[plots]".') from error
    return plt


@contextmanager
def canvas(ax: Any, rows: int = 1, height: float = 2.2) -> Iterator[Any]:
    """The caller's Axes as they are, or new ones in our style."""
    plt = pyplot()
    if ax is not None:
        yield ax
        return
    # Loads the backend: a notebook's switches to interactive, which the context would undo.
    plt.draw_if_interactive()
    with plt.rc_context(dict(STYLE)):
        _, axes = plt.subplots(
            rows, figsize=(COLUMN_WIDTH, height), dpi=200, layout="constrained", sharex=True
        )
        yield axes


def save(
    axes: Any,
    path: str | Path | IO[bytes],
    *,
    format: str | None = None,  # noqa: A002, what Matplotlib's savefig calls it
) -> None:
    """Write the figure of these Axes, fonts embedded (Type 42), the same bytes every time.

    Args:
      axes: what a function of this module returned.
      path: the file, or a binary stream.
      format: "pdf", "png" or "svg"; by default what the name of the file ends in.
    """
    if format is None and not isinstance(path, str | Path):
        raise ValueError('a stream needs a format: "pdf", "png" or "svg".')
    kind = (format or Path(str(path)).suffix.removeprefix(".")).lower()
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    fonts = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.hashsalt": "pdgd_jax"}
    figure = np.ravel(np.asarray(axes, object))[0].figure
    with pyplot().rc_context(fonts):
        figure.savefig(path, format=kind, dpi=300, metadata=dates.get(kind))


def refuse_crowd(count: int) -> None:
    """Refuse more curves than can be told apart."""
    if count > _MOST_CURVES:
        raise ValueError(
            f"a figure of {count} curves tells nothing; choose at most {_MOST_CURVES}, "
            'such as dataset.sel(learner="pdgd-ops").'
        )


def plain(label: str) -> str | None:
    """A name as Matplotlib shows it letter by letter: no mathematics, and not hidden by a `_`."""
    label = label.replace("$", r"\$")
    return f" {label}" if label.startswith("_") else label or None


def draw_guides(axes: "Axes", t: NDArray, end: float, name: str) -> None:
    """The rates of the paper, through `end` at the last `t`."""
    for power, fraction, dashes in _GUIDES:
        line = end * (t / t[-1]) ** power
        label = rf"$\propto {name}^{{{fraction}}}$"
        axes.plot(t, line, color=GREY, ls=dashes, lw=0.8, label=label, zorder=1)


def finish(axes: "Axes", label: str, ours: bool, legended: bool = True) -> None:
    """Labels, ticks and the legend of an Axes over episodes."""
    from matplotlib.ticker import EngFormatter

    axes.set_ylabel(label)
    axes.set_xlabel("episodes")
    if axes.get_xscale() == "linear":
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if legended:
        legend(axes, ours)


def legend(
    axes: "Axes", ours: bool, handles: list[Any] | None = None, outside: bool = False
) -> None:
    """Inside if it is short, else above; our own figure grows by as much."""
    found: list[Any] = axes.get_legend_handles_labels()[0] if handles is None else handles
    if not found:
        return
    found = sorted(found, key=lambda handle: handle.get_label().startswith(r"$\propto"))
    widest = max(len(_MATHEMATICS.sub("mm", str(handle.get_label()))) for handle in found)
    if len(found) <= 3 and widest <= 28 and not outside:
        axes.legend(handles=found)
        return
    columns = max(1, min(len(found), 60 // (widest + 7)))
    layout: dict[str, Any] = {"ncols": columns, "handlelength": 1.8, "columnspacing": 1.0}
    if not ours:
        axes.legend(handles=found, loc="lower left", bbox_to_anchor=(0, 1), **layout)
        return
    figure: Any = axes.figure
    figure.legend(handles=found, loc="outside upper left", borderaxespad=0.1, **layout)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.05 + 0.14 * math.ceil(len(found) / columns))
