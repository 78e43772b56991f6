"""Which colour and which dashes a curve has, in figures and reports alike."""

import itertools
import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pdgd_jax.results._cells import Cell

if TYPE_CHECKING:
    import xarray

__all__ = ["Style", "colours_of", "makes_promises", "styles_of"]

# So many colours and dashes there are, in `plots` and in the page of a report.
NUM_COLOURS, NUM_DASHES = 7, 4
# What is drawn alike in every figure: those who learn by their rates, and those who do not learn.
_LEARNS = {
    ("pdgd-ops", "tuned"): 0,
    ("pdgd-ops", "theory"): 1,
    ("uc-o-gdps", "tuned"): 2,
    ("uc-o-gdps", "theory"): 3,
}
_FIXED = {"best-feasible": 4, "most-feasible": 5, "uniform": 6}


class Style(NamedTuple):
    """How a curve is drawn: which of the colours, which of the dashes or markers."""

    colour: int
    dash: int


def makes_promises(cell: Cell) -> bool:
    """Whether the rates of the paper are about it: a policy that is fixed learns at no rate."""
    return "learner" not in cell.data.coords or cell.data["learner"].item() not in _FIXED


def colours_of(dataset: "xarray.Dataset", cells: list[Cell]) -> list[int | None]:
    """The colour of each cell, by its learner and rates; None where there are no learners.

    It does not depend on what else is drawn: it is the same in every figure, and in figures of a
    part of the results, whose configuration still names everybody.
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
    """A style for each curve, given whose it is: up to 28 curves are told apart.

    The colour says who learns, and dashes tell the curves of one learner from each other; if there
    are more of them than dashes, both go by their places.
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
    """Learners and their rates, in the order of the configuration: a part of it has the same."""
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
