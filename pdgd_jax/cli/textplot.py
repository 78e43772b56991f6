"""Curves in a terminal, drawn with Braille dots: 2 x 4 of them in each character."""

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["curve"]

# The bit of each dot in a Braille character, by its row (from the top) and column.
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_BLANK = 0x2800


def curve(
    x: Sequence[float] | Any,
    y: Sequence[float] | Any,
    *,
    width: int = 60,
    height: int = 8,
    label: str = "",
    only_ascii: bool = False,
) -> str:
    """Draw a curve, with its axes.

    Args:
      x: increasing values.
      y: as many values; those that are not finite are left out.
      width: the width of the drawing in characters.
      height: the height of the drawing in characters.
      label: a heading.
      only_ascii: whether to avoid Braille characters.

    Returns:
      Lines of text.

    Example:
      >>> print(curve([0, 1, 2, 3], [0, 1, 4, 9], width=8, height=2, label="squares"))
      squares
            9 ┤⠀⠀⠀⠀⠀⢀⠤⠊
            0 ┤⣀⣀⠤⠔⠊⠁⠀⠀
              └────────
               0      3
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    good = np.isfinite(x) & np.isfinite(y)
    if not good.any():
        return f"{label}\n(nothing to draw)"
    x, y = x[good], y[good]
    low, high = min(float(y.min()), 0.0), max(float(y.max()), 0.0)
    span = high - low or 1.0
    columns, rows = 2 * width, 4 * height
    across = np.linspace(x[0], x[-1], columns)
    level = (np.interp(across, x, y) - low) / span
    dots = np.rint(level * (rows - 1)).astype(int)
    canvas = np.zeros((rows, columns), bool)
    for column, dot in enumerate(dots):
        before = dots[column - 1] if column else dot
        bottom, top = sorted((int(before), int(dot)))
        # A steep part is drawn as a line, without the dot that the previous column drew already.
        canvas[bottom + (before < dot) : top + 1 - (before > dot), column] = True
        canvas[dot, column] = True
    cells = canvas[::-1].reshape(height, 4, width, 2)
    if only_ascii:
        inked: Any = cells.any(3)  # [height, 4, width]
        lines = ["".join(map(_letter, row.T)) for row in inked]
    else:
        codes = _BLANK + (cells * _BITS[None, :, None, :]).sum((1, 3))
        lines = ["".join(map(chr, row)) for row in codes]
    tick, side, corner, dash = "+|+-" if only_ascii else "┤│└─"
    ticks = {0: f"{high:.4g}", height - 1: f"{low:.4g}"}
    drawn = [
        f"{ticks.get(i, ''):>7} {tick if i in ticks else side}{line}"
        for i, line in enumerate(lines)
    ]
    first, last = f"{x[0]:,.0f}", f"{x[-1]:,.0f}"
    axis = " " * 8 + corner + dash * width
    below = " " * 9 + first + last.rjust(width - len(first))
    return "\n".join([*([label] if label else []), *drawn, axis, below])


def _letter(rows: Any) -> str:
    """An ASCII character that resembles dots in these of its four rows."""
    found = np.flatnonzero(rows)
    if len(found) == 0:
        return " "
    return "|" if len(found) > 2 else "'--."[int(found.mean())]
