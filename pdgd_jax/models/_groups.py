"""Rows of a few static widths, for lists of different lengths.

Lists of similar length stand in rows of one width, a group, so that a few long lists do not widen
all other rows. An array over the entries of all rows of a layer is `[..., M]`, one group after the
other, by width.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pdgd_jax._internal.typing import NDArray

__all__ = ["Group", "Groups", "choose_groups"]

# The most groups of one instance, since each adds a part to every program. For the same reason
# another group is made only if it saves this share of the entries.
MOST_GROUPS = 4
WORTH_A_GROUP = 1 / 8


class Group(NamedTuple):
    """Rows of the same width in every layer."""

    rows: int
    width: int


class Groups(tuple[Group, ...]):
    """The groups of rows of each layer, by width."""

    __slots__ = ()

    @property
    def num_rows(self) -> int:
        """The rows of a layer."""
        return sum(group.rows for group in self)

    @property
    def num_entries(self) -> int:
        """The entries of a layer, `M`."""
        return sum(group.rows * group.width for group in self)

    def split(self, entries: Array) -> list[Array]:
        """The entries of each group, `[..., M] -> [..., rows, width]`."""
        parts, start = [], 0
        for rows, width in self:
            stop = start + rows * width
            parts.append(entries[..., start:stop].reshape(*entries.shape[:-1], rows, width))
            start = stop
        return parts

    def join(self, parts: Sequence[Array]) -> Array:
        """The entries of all groups, `[..., rows, width] -> [..., M]`."""
        return jnp.concatenate([x.reshape(*x.shape[:-2], -1) for x in parts], -1)

    def sum(self, entries: Array) -> Array:
        """The sum of each row, `[..., M] -> [..., rows]`."""
        return jnp.concatenate([x.sum(-1) for x in self.split(entries)], -1)

    def spread(self, rows: Array) -> Array:
        """The number of each row at all of its entries, `[..., rows] -> [..., M]`."""
        # A lookup, not a concatenation of broadcasts: XLA's CPU backend (jaxlib 0.10.2) fuses two
        # of those wrongly, and the sum of two such arrays pairs entries of different rows.
        return jnp.take(rows, self.spread_on_host(np.arange(self.num_rows)), axis=-1, mode="clip")

    def spread_on_host(self, rows: NDArray) -> NDArray:
        """The same with NumPy."""
        widths = np.repeat([width for _, width in self], [count for count, _ in self])
        return np.repeat(rows, widths, axis=-1)

    def united(self, other: "Groups") -> "Groups":
        """The smallest groups that have room for the rows of both."""
        widths = sorted({width for _, width in (*self, *other)})
        # For each width, how many rows are at least as wide.
        rows = [max(sum(r for r, w in x if w >= width) for x in (self, other)) for width in widths]
        groups = map(Group, (np.array(rows) - [*rows[1:], 0]).tolist(), widths)
        return Groups(group for group in groups if group.rows)

    def fewer(self) -> "Groups":
        """At most `MOST_GROUPS`, with room for all of these."""
        widths = [width for rows, width in self for _ in range(rows)]
        return choose_groups(np.array([widths], int))

    def first_entries(self) -> NDArray:
        """Where each row begins, `[rows]`."""
        widths = [width for rows, width in self for _ in range(rows)]
        return np.cumsum([0, *widths])[:-1].astype(np.int32)


def choose_groups(lengths: NDArray, most: int = MOST_GROUPS) -> Groups:
    """A few groups of rows with few entries in all that have room for the lists of each layer.

    A short list may stand in a wide row. So there are enough rows if, for each width, as many are
    wider as any layer has longer lists.

    Args:
      lengths: `[L, n]`, the lengths of the lists of each layer; 0 where there is none.
      most: the largest number of groups.

    Returns:
      The groups, by width.
    """
    widths = [0, *(int(width) for width in np.unique(lengths[lengths > 0]))]
    longer = [int((lengths > width).sum(1).max(initial=0)) for width in widths]
    # The fewest entries of the columns up to each width, with so many groups, and their widths. The
    # columns between two widths belong to all rows that are wider than the smaller one.
    impossible: tuple[int, tuple[int, ...]] = (2**62, ())
    best = [(0, impossible[1]), *[impossible] * (len(widths) - 1)]
    whole = [best[-1]]
    for _ in range(min(most, len(widths) - 1)):
        best = [
            min(
                (entries + longer[i] * (widths[j] - widths[i]), (*chosen, j))
                for i, (entries, chosen) in enumerate(best[:j])
            )
            if j
            else impossible
            for j in range(len(widths))
        ]
        whole.append(best[-1])
    fewest, chosen = whole[0]
    for entries, more in whole[1:]:
        if entries < (1 - WORTH_A_GROUP) * fewest:
            fewest, chosen = entries, more
    cuts = [0, *chosen]
    rows = [longer[i] for i in cuts]  # at least so wide; the last is 0
    groups = (Group(rows[i] - rows[i + 1], widths[cuts[i + 1]]) for i in range(len(chosen)))
    return Groups(group for group in groups if group.rows)
