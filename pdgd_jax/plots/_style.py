"""The style of figures: size, colours, legend and file."""

import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pdgd_jax._internal.typing import NDArray
from pdgd_jax.results import spread_in_words

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

    from pdgd_jax.results import Band

__all__ = [
    "COLOURS",
    "COLUMN",
    "COLUMN_WIDTH",
    "DASHES",
    "GREY",
    "MARKERS",
    "PAGE_WIDTH",
    "STYLE",
    "WARNING",
    "Look",
    "canvas",
    "draw_guides",
    "entitle",
    "finish",
    "legend",
    "logarithmic",
    "plain",
    "pyplot",
    "refuse_crowd",
    "save",
    "statistic",
]

COLUMN_WIDTH = 3.3  # inches, of a two-column paper
PAGE_WIDTH = 6.8  # both columns
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

# The colours of Okabe and Ito, which colour-blind people can distinguish, without their yellow,
# which is invisible on white paper. Line styles carry the same information in black and white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D")
_MOST_CURVES = len(COLOURS) * len(DASHES)
_LETTERS = 28  # that fit an axis label in a figure of our height
GREY = "#777777"
WARNING = "#D55E00"
_MATHEMATICS = re.compile(r"(?<!\\)\$.*?(?<!\\)\$")
# The growth rates of the paper, for guides: power, text, dashes.
_GUIDES = ((0.5, "1/2", (0, (5, 2))), (0.75, "3/4", (0, (1, 1.5))))


class Look(NamedTuple):
    """The layout of a figure.

    Attributes:
      width: the width in inches: `COLUMN_WIDTH` or `PAGE_WIDTH`.
      legend: the position of the legend, or "none". "auto" puts a short legend inside and a long
        one above.
      title: the title above the figure.
      labels: replacements for names in the legend, such as `{"pdgd-ops": "ours"}`.
    """

    width: float = COLUMN_WIDTH
    legend: Literal["auto", "inside", "above", "right", "none"] = "auto"
    title: str = ""
    labels: Mapping[str, str] = MappingProxyType({})

    def word(self, label: str) -> str:
        """The label of a curve, with the caller's replacements."""
        return ", ".join(self.labels.get(part.strip(), part) for part in label.split(", "))


COLUMN = Look()


def pyplot() -> Any:
    """Import Matplotlib's pyplot on first use."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ValueError('figures need Matplotlib: pip install "pdgd_jax[plots]".') from error
    return plt


@contextmanager
def canvas(ax: Any, look: Look, rows: int = 1, height: float = 2.2) -> Iterator[Any]:
    """The caller's Axes unchanged, or new ones in our style."""
    plt = pyplot()
    if ax is not None:
        yield ax
        return
    # Load the backend first: in a notebook it switches to interactive, which the context would
    # undo.
    plt.draw_if_interactive()
    with plt.rc_context(dict(STYLE)):
        figure, axes = plt.subplots(
            rows, figsize=(look.width, height), dpi=200, layout="constrained", sharex=True
        )
        yield axes
        entitle(figure, look)


def save(
    axes: Any,
    path: str | Path | IO[bytes] | BytesIO,  # the last has no mode, so it is no IO
    *,
    format: str | None = None,  # noqa: A002, what Matplotlib's savefig calls it
) -> None:
    """Write the figure of these Axes with embedded fonts (Type 42); equal figures give equal bytes.

    Args:
      axes: the Axes that a function of this module returned.
      path: the file, or a binary stream.
      format: "pdf", "png" or "svg"; by default the suffix of the file.
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
    """Raise if there are more curves than can be distinguished."""
    if count > _MOST_CURVES:
        raise ValueError(
            f"a figure of {count} curves is unreadable; choose at most {_MOST_CURVES}, "
            'such as dataset.sel(learner="pdgd-ops").'
        )


def plain(label: str) -> str | None:
    """A name that Matplotlib shows literally: no mathematics, and not hidden by a leading `_`."""
    label = label.replace("$", r"\$")
    return f" {label}" if label.startswith("_") else label or None


def draw_guides(axes: "Axes", t: NDArray, end: float, name: str) -> None:
    """Draw the growth rates of the paper through `end` at the last `t`."""
    if axes.get_xscale() == "log":
        t = np.geomspace(t[0] or axes.get_xlim()[0], t[-1], 50)
    for power, fraction, dashes in _GUIDES:
        line = end * (t / t[-1]) ** power
        label = rf"$\propto {name}^{{{fraction}}}$"
        axes.plot(t, line, color=GREY, ls=dashes, lw=0.8, label=label, zorder=1)


def finish(
    axes: "Axes",
    label: str,
    look: Look,
    ours: bool,
    *,
    across: str,
    legended: bool = True,
) -> None:
    """Add labels, ticks and the legend; the horizontal axis starts at 0."""
    from matplotlib.ticker import EngFormatter

    axes.set_ylabel(textwrap.fill(label, _LETTERS))
    axes.set_xlabel("\n".join(textwrap.fill(line, 46) for line in across.splitlines()))
    if axes.get_xscale() == "linear":
        if across.startswith("episodes"):
            axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if legended:
        legend(axes, look, ours)


def statistic(dataset: "xarray.Dataset", quantiles: tuple[float, float], drawn: str) -> str:
    """The name of the statistic, on a separate line; empty for a single seed."""
    seeds, spread = dataset.sizes["seed"], spread_in_words("median", quantiles)
    return f"\nmedian of {seeds} seeds, {drawn} {spread}" if seeds > 1 else ""


def logarithmic(axes: "Axes", bands: "list[Band]") -> str:
    """Make axes logarithmic, the vertical one linear around 0 if needed, and describe this."""
    from matplotlib.ticker import NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(min(band.episode[0] for band in bands), max(band.episode[-1] for band in bands))
    values = np.concatenate([np.concatenate([band.low, band.high]) for band in bands])
    values = values[np.isfinite(values)]
    largest = float(np.abs(values).max(initial=0))
    if values.min(initial=math.inf) > 0:
        axes.set_yscale("log")
    elif largest > 0:
        linear = 10.0 ** (math.floor(math.log10(largest)) - 2)
        axes.set_yscale("symlog", linthresh=linear, linscale=0.6)
        axes.axhspan(-linear, linear, color=GREY, alpha=0.12, lw=0, zorder=0)
        return "\nvertical axis: linear in the grey"
    return ""


def legend(
    axes: "Axes",
    look: Look,
    ours: bool,
    handles: list[Any] | None = None,
    outside: bool = False,
) -> None:
    """Draw the legend, inside if it is short and above if not, or as asked; our figure grows."""
    found: list[Any] = axes.get_legend_handles_labels()[0] if handles is None else handles
    if not found or look.legend == "none":
        return
    found = sorted(found, key=lambda handle: handle.get_label().startswith(r"$\propto"))
    labels = [look.word(str(handle.get_label())) for handle in found]
    widest = max(len(_MATHEMATICS.sub("mm", label)) for label in labels)
    short = len(found) <= 3 and widest <= 28 and not outside
    if look.legend == "inside" or (look.legend == "auto" and short):
        axes.legend(found, labels)
        return
    columns = max(1, min(len(found), int(60 * look.width / COLUMN_WIDTH) // (widest + 7)))
    layout: dict[str, Any] = {"ncols": columns, "handlelength": 1.8, "columnspacing": 1.0}
    if not ours:
        axes.legend(found, labels, loc="lower left", bbox_to_anchor=(0, 1), **layout)
        return
    figure: Any = axes.figure
    if look.legend == "right":
        figure.legend(found, labels, loc="outside right upper", handlelength=1.8)
        return
    layout |= {"title": plain(look.title), "title_fontsize": 8, "alignment": "left"}
    figure.legend(found, labels, loc="outside upper left", borderaxespad=0.1, **layout)
    width, height = figure.get_size_inches()
    lines = math.ceil(len(found) / columns) + bool(look.title)
    figure.set_size_inches(width, height + 0.05 + 0.14 * lines)


def entitle(figure: Any, look: Look) -> None:
    """Add the title, unless a legend above the figure contains it."""
    if look.title and not any(legend.get_title().get_text() for legend in figure.legends):
        figure.suptitle(plain(look.title), fontsize=8)
