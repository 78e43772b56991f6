"""The colours and dashes of curves, the same in figures and reports."""

import itertools
import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pdgd_jax.results._cells import Cell

if TYPE_CHECKING:
    import xarray

__all__ = ["Style", "colours_of", "makes_promises", "styles_of"]

# The number of colours and dashes in `plots` and in the page of a report.
NUM_COLOURS, NUM_DASHES = 7, 4
# Learners that look the same in every figure: those with rates, and those that do not learn. Names
# decide here, since readers compare figures of different results; other learners take what is free.
_LEARNS = {
    ("pdgd-ops", "tuned"): 0,
    ("pdgd-ops", "theory"): 1,
    ("uc-o-gdps", "tuned"): 2,
    ("uc-o-gdps", "theory"): 3,
}
_FIXED = {"best-feasible": 4, "most-feasible": 5, "uniform": 6}


class Style(NamedTuple):
    """The style of a curve: the index of its colour, and of its dashes or marker."""

    colour: int
    dash: int


def makes_promises(cell: Cell) -> bool:
    """Whether the growth rates of the paper apply to a cell: those of a learner with its rates."""
    data = cell.data
    if "learner" not in data.coords:
        return True
    if "uses_setting" not in data or "rates" not in data["setting"].values:
        return data["learner"].item() not in _FIXED
    return bool(data["uses_setting"].sel(setting="rates"))


def colours_of(dataset: "xarray.Dataset", cells: list[Cell]) -> list[int | None]:
    """The colour of each cell, by its learner and rates; None if there are no learners.

    It is the same in every figure, and in figures of a part of the results, whose configuration
    still lists all learners.
    """
    if "learner" not in dataset.coords:
        return [None] * len(cells)
    known = {who: colour for who in _everybody(dataset) if (colour := _known(who)) is not None}
    free = [colour for colour in range(NUM_COLOURS) if colour not in known.values()]
    palette = itertools.cycle(free or range(NUM_COLOURS))
    for who in _everybody(dataset):
        if who not in known:
            known[who] = next(palette)
    return [known[_who(cell)] for cell in cells]


def styles_of(dataset: "xarray.Dataset", owners: list[Cell]) -> list[Style]:
    """A style for each curve, given its cell; up to 28 curves are distinguishable.

    The colour shows the learner, and dashes distinguish the curves of one learner. If a learner has
    more curves than there are dashes, colours and dashes follow the order of the curves.
    """
    colours = colours_of(dataset, owners)
    counts = {colour: colours.count(colour) for colour in colours}
    if None in counts or max(counts.values(), default=0) > NUM_DASHES:
        return [_by_place(place) for place in range(len(owners))]
    seen: dict[int | None, int] = {}
    styles = []
    for colour in colours:
        number = seen[colour] = seen.get(colour, -1) + 1
        styles.append(Style(colour or 0, ((colour or 0) + number) % NUM_DASHES))
    return styles


def _by_place(place: int) -> Style:
    colour, round_ = place % NUM_COLOURS, place // NUM_COLOURS
    return Style(colour, (colour + round_) % NUM_DASHES)


def _who(cell: Cell) -> tuple[str, str]:
    learner = str(cell.data["learner"].item())
    rates = cell.data["rates"].item() if "rates" in cell.data.coords else ""
    return learner, "" if learner in _FIXED else str(rates)


def _known(who: tuple[str, str]) -> int | None:
    return _FIXED.get(who[0], _LEARNS.get(who))


def _everybody(dataset: "xarray.Dataset") -> list[tuple[str, str]]:
    """All learners and their rates in the order of the configuration, even for partial results."""
    configuration = json.loads(dataset.attrs.get("configuration", "{}"))
    learners = list(configuration.get("learners", {}).get("names", []))
    settings = configuration.get("settings", {})
    rates = [rate for rate in settings.get("rates", []) if isinstance(rate, str)]
    learners += np.atleast_1d(dataset["learner"].to_numpy()).tolist()
    rates += np.atleast_1d(dataset["rates"].to_numpy()).tolist() if "rates" in dataset else [""]
    return list(
        dict.fromkeys(
            (str(learner), "" if learner in _FIXED else str(rate))
            for rate in rates
            for learner in learners
        )
    )
