"""Results as curves: what `plots` and `report` draw. No drawing here, and no mathematics.

The seeds become a median with a band; every combination of what else was swept is one cell, named
by what tells it from the others.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray

from pdgd_jax.evaluation import Evaluation

__all__ = [
    "QUANTITIES",
    "Band",
    "Cell",
    "Quantity",
    "Style",
    "as_dataset",
    "axis_of",
    "band_of",
    "cells_of",
    "colours_of",
    "last_tenth",
    "makes_promises",
    "quantity_of",
    "shares_of",
    "slope_of",
    "styles_of",
    "without_rounding",
]

NDArray = np.ndarray[Any, np.dtype[Any]]

# What a learner may ignore; see `_heeds`.
_SETTINGS = ("rates", "delta", "confidence_scale")
_LABELS: Mapping[str, Callable[[Any], str]] = {
    "delta": lambda value: f"δ = {value:g}",
    "confidence_scale": lambda value: f"radii scaled by {value:g}",
    "horizon": lambda value: f"T = {value:,}",
}

# So many colours and dashes there are, in `plots.canvas` and in the page of a report.
NUM_COLOURS, NUM_DASHES = 7, 4
# What is drawn alike in every figure: those who learn by their rates, and those who do not learn.
_LEARNS = {
    ("pdgd-ops", "tuned"): 0,
    ("pdgd-ops", "theory"): 1,
    ("uc-o-gdps", "tuned"): 2,
    ("uc-o-gdps", "theory"): 3,
}
_FIXED = {"best-feasible": 4, "most-feasible": 5, "uniform": 6}
# Below this in every episode a sum is rounding: of the numbers, and of the program that found OPT.
_ROUNDING = {"float32": 1e-6, "float64": 1e-9}


class Cell(NamedTuple):
    """The runs of one combination of settings.

    Attributes:
      names: what tells it from the other cells, in words, by dimension.
      values: its coordinates, by dimension.
      data: its part of the Dataset; the leading dimension is `seed`.
    """

    names: dict[str, str]
    values: dict[str, Any]
    data: xarray.Dataset

    @property
    def label(self) -> str:
        """What tells it from the other cells; empty if it is the only one."""
        return self.label_without()

    def label_without(self, *dims: str) -> str:
        """The label among cells that share these dimensions."""
        return ", ".join(name for dim, name in self.names.items() if dim not in dims)


class Band(NamedTuple):
    """A median over seeds, between two quantiles.

    Attributes:
      episode: `[K]`.
      median: `[K]`.
      low: `[K]`, the lower quantile.
      high: `[K]`, the upper one.
    """

    episode: NDArray
    median: NDArray
    low: NDArray
    high: NDArray


class Quantity(NamedTuple):
    """Something that is drawn against episodes.

    Attributes:
      label: what it is.
      units: its units, empty if it has none.
      needs: the variables of the Dataset that it is computed from.
      of: from a cell's data to `[seed, checkpoint]`, or `[seed, checkpoint, constraint]`.
      named_by: the variable whose `long_name` says what it is, if it is one.
    """

    label: str
    units: str
    needs: tuple[str, ...]
    of: Callable[[xarray.Dataset], xarray.DataArray]
    named_by: str = ""


class Style(NamedTuple):
    """How a curve is drawn: which of the colours, which of the dashes or markers."""

    colour: int
    dash: int


def without_rounding(values: xarray.DataArray, episode: xarray.DataArray) -> xarray.DataArray:
    """Sums over episodes, exactly 0 where they are nothing but rounding."""
    limit = _ROUNDING.get(str(values.dtype), 0.0) * episode
    return values.where((abs(values) > limit) | values.isnull(), 0)


def last_tenth(data: xarray.Dataset) -> NDArray:
    """`[seed]`, the violation per episode in the last tenth of the episodes: has it stopped?

    Of the constraint that is violated most there; between checkpoints sums are taken as straight.
    """
    episode = data["episode"].to_numpy().astype(float)
    sums = data["violations"].transpose("seed", "constraint", "checkpoint").to_numpy()
    begin = 0.9 * episode[-1]
    before = [[np.interp(begin, episode, one, left=0) for one in seed] for seed in sums]
    each = (sums[..., -1] - np.array(before)) / (episode[-1] - begin)
    each[np.abs(each) < _ROUNDING.get(str(sums.dtype), 0.0)] = 0
    worst = np.where(np.isnan(each), -np.inf, each).max(-1)
    return np.where(np.isinf(worst), np.nan, worst)


def _variable(name: str) -> Callable[[xarray.Dataset], xarray.DataArray]:
    return lambda data: data[name]


def _sum(name: str) -> Callable[[xarray.Dataset], xarray.DataArray]:
    return lambda data: without_rounding(data[name], data["episode"])


def _worst_positive(data: xarray.Dataset) -> xarray.DataArray:
    return without_rounding(data["positive_violation"].max("constraint"), data["episode"])


def _average_reward(data: xarray.Dataset) -> xarray.DataArray:
    return data["reward"] / data["episode"]


def _iterations_per_episode(data: xarray.Dataset) -> xarray.DataArray:
    """Of the episodes since the last checkpoint, and not since the start: a change shows."""
    total = data["iterations"].transpose(..., "checkpoint")
    new = np.diff(total.to_numpy().astype(float), prepend=0)
    return total.copy(data=new / np.diff(data["episode"].to_numpy(), prepend=0))


def _positive_residual(data: xarray.Dataset) -> xarray.DataArray:
    return data["residual"].where(data["residual"] > 0)  # nothing was projected: no point to draw


QUANTITIES: Mapping[str, Quantity] = {
    "regret": Quantity("regret", "reward", ("regret",), _sum("regret"), "regret"),
    "alpha_regret": Quantity(
        "alpha-regret", "reward", ("alpha_regret",), _sum("alpha_regret"), "alpha_regret"
    ),
    "violation": Quantity("violation", "cost", ("violation",), _sum("violation"), "violation"),
    "positive_violation": Quantity(
        "positive violation",
        "cost",
        ("positive_violation",),
        _worst_positive,
        "positive_violation",
    ),
    "multipliers": Quantity(
        "multipliers λ", "reward per cost", ("multipliers",), _variable("multipliers")
    ),
    "reward": Quantity("average reward", "per episode", ("reward", "opt"), _average_reward),
    "radius": Quantity("confidence radius", "L1, mean", ("radius",), _variable("radius")),
    "iterations": Quantity("iterations", "per episode", ("iterations",), _iterations_per_episode),
    "residual": Quantity("residual", "largest so far", ("residual",), _positive_residual),
}


def axis_of(quantity: Quantity, dataset: xarray.Dataset) -> str:
    """The label of an axis, in the words of the results themselves where they have some."""
    told = dataset[quantity.named_by].attrs if quantity.named_by in dataset else {}
    label, units = told.get("long_name", quantity.label), told.get("units", quantity.units)
    return f"{label} ({units})" if units else str(label)


def quantity_of(name: str, dataset: xarray.Dataset) -> Quantity:
    """The quantity of that name, refused in a sentence if the results do not hold it."""
    quantity = QUANTITIES[name]
    missing = [variable for variable in quantity.needs if variable not in dataset]
    if missing:
        raise ValueError(
            f"these results do not hold {missing[0]!r}, which this figure draws: give it the "
            "Dataset of sweep(...), open_results(...) or dataset_of(history, evaluation)."
        )
    return quantity


def as_dataset(source: xarray.Dataset | Evaluation) -> xarray.Dataset:
    """The results as a Dataset with a dimension `seed`.

    Args:
      source: a Dataset of `sweep`, `open_results` or `dataset_of`, or an `Evaluation`, whose last
        leading axis is taken for the seed.
    """
    if isinstance(source, Evaluation):
        dataset = _from_evaluation(source)
    elif isinstance(source, xarray.Dataset):
        dataset = source
    else:
        raise ValueError(
            "results to draw are a Dataset (of sweep, open_results or dataset_of) or an "
            f"Evaluation; got a {type(source).__name__}."
        )
    if "regret" not in dataset or "episode" not in dataset:
        raise ValueError("the Dataset holds no 'regret' and 'episode': it is not one of results.")
    return dataset if "seed" in dataset["regret"].dims else _with_seed(dataset)


def cells_of(dataset: xarray.Dataset) -> list[Cell]:
    """Every combination of what was swept, but for the seeds.

    A learner that ignores a setting was played once and its values repeated: it makes one cell,
    whose label does not name that setting.
    """
    dims = [dim for dim in dataset["regret"].dims if dim not in ("checkpoint", "seed")]
    swept = [str(dim) for dim in dims if dataset.sizes[dim] > 1]
    cells: dict[Any, Cell] = {}
    heeded: dict[Any, list[str]] = {}
    for place in itertools.product(*(range(dataset.sizes[dim]) for dim in dims)):
        where = dict(zip(map(str, dims), place, strict=True))
        player = where.get("learner")
        if player not in heeded:
            one = dataset if player is None else dataset.isel(learner=player)
            heeded[player] = [dim for dim in swept if _heeds(one, dim)]
        distinct = tuple(where[dim] for dim in heeded[player])
        if (player, distinct) not in cells:
            names = {dim: _label(dataset, dim, where[dim]) for dim in heeded[player]}
            values = {dim: _value(dataset, dim, index) for dim, index in where.items()}
            cells[player, distinct] = Cell(names, values, dataset.isel(where))
    return list(cells.values())


def makes_promises(cell: Cell) -> bool:
    """Whether the rates of the paper are about it: a policy that is fixed learns at no rate."""
    return "learner" not in cell.data.coords or cell.data["learner"].item() not in _FIXED


def colours_of(dataset: xarray.Dataset, cells: list[Cell]) -> list[int | None]:
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


def styles_of(dataset: xarray.Dataset, owners: list[Cell]) -> list[Style]:
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


def _everybody(dataset: xarray.Dataset) -> list[tuple[str, str]]:
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


def band_of(
    values: xarray.DataArray,
    episode: xarray.DataArray,
    quantiles: tuple[float, float] = (0.1, 0.9),
) -> Band:
    """The median over seeds and the band between two quantiles; runs without a value are left out.

    Args:
      values: with the dimensions `seed` and `checkpoint`.
      episode: with the dimension `checkpoint`.
      quantiles: the lower and the upper one.
    """
    low, high = quantiles
    if not 0 <= low <= high <= 1:
        raise ValueError(f"quantiles are two numbers 0 <= low <= high <= 1; got {quantiles}.")
    numbers = values.transpose("seed", "checkpoint").to_numpy().astype(float)
    lower, median, upper = _quantiles(numbers, (low, 0.5, high))
    return Band(episode.to_numpy(), median, lower, upper)


def _quantiles(values: NDArray, shares: tuple[float, ...]) -> list[NDArray]:
    """Of each column of `[n, K]`, NaN left out; what `np.nanquantile` does column by column."""
    ordered = np.sort(values, axis=0)  # NaN comes last
    known = (~np.isnan(ordered)).sum(0)
    found = []
    for share in shares:
        place = share * np.maximum(known - 1, 0)
        below = np.floor(place).astype(int)
        above = np.minimum(below + 1, np.maximum(known - 1, 0))
        low, high = (np.take_along_axis(ordered, i[None], 0)[0] for i in (below, above))
        found.append(low + (high - low) * (place - below))
    return found


def slope_of(horizons: NDArray, medians: NDArray, errors: NDArray | None = None) -> float:
    """The slope in logarithms over the horizons with a positive median; NaN if fewer than two.

    By least squares, weighted if the relative errors of the medians are given.
    """
    drawn = np.isfinite(medians) & (medians > 0)
    if drawn.sum() < 2:
        return float("nan")
    weights = None if errors is None else 1 / errors[drawn]
    return float(np.polyfit(np.log(horizons[drawn]), np.log(medians[drawn]), 1, w=weights)[0])


def shares_of(measured: NDArray, bound: NDArray) -> NDArray:
    """Measured / bound; a bound of 0 is used not at all, or beyond measure, and so NaN uses any."""
    nothing = np.where(measured <= bound, 0.0, np.inf)
    shares = np.where(bound > 0, measured / np.where(bound > 0, bound, 1), nothing)
    return np.where(np.isnan(shares), np.inf, shares)


def _heeds(dataset: xarray.Dataset, dim: str) -> bool:
    """Whether results differ along `dim`; only settings can be ignored."""
    if dim not in _SETTINGS:
        return True
    for name, variable in dataset.data_vars.items():
        if dim not in variable.dims or name == "policy" or variable.dtype.kind not in "fiub":
            continue
        numbers = variable.transpose(dim, ...).to_numpy()
        if not np.array_equal(
            numbers,
            np.broadcast_to(numbers[:1], numbers.shape),
            equal_nan=numbers.dtype.kind == "f",
        ):
            return True
    return False


def _value(dataset: xarray.Dataset, dim: str, index: int) -> Any:
    return dataset[dim].to_numpy()[index].item() if dim in dataset.coords else index


def _label(dataset: xarray.Dataset, dim: str, index: int) -> str:
    value = _value(dataset, dim, index)
    if dim in _LABELS:
        return _LABELS[dim](value)
    if isinstance(value, float):
        return f"{dim} {_short(value, dataset[dim].to_numpy())}"
    return value if isinstance(value, str) else f"{dim} {value}"


def _short(value: float, among: NDArray) -> str:
    """With four digits, or as many as tell it from the others."""
    for digits in range(4, 17):
        if len({f"{other:.{digits}g}" for other in among}) == len(set(among.tolist())):
            break
    return f"{value:.{digits}g}"


def _with_seed(dataset: xarray.Dataset) -> xarray.Dataset:
    """A single run is a band of one seed."""
    return dataset.assign(
        {
            name: variable.expand_dims("seed")
            for name, variable in dataset.data_vars.items()
            if name != "episode"
        }
    )


def _from_evaluation(evaluation: Evaluation) -> xarray.Dataset:
    axes = evaluation.regret.ndim - 1
    lead = ["run", *(f"run_{i}" for i in range(2, axes))][: max(axes - 1, 0)]
    lead += ["seed"] if axes else []

    def variables() -> Iterator[tuple[str, tuple[list[str], NDArray]]]:
        for name in ("opt", "regret", "alpha_regret", "violation"):
            yield name, ([*lead, "checkpoint"], getattr(evaluation, name))
        for name in ("violations", "positive_violation"):
            yield name, ([*lead, "checkpoint", "constraint"], getattr(evaluation, name))
        for name in ("measured", "bound", "status", "reason"):
            found = [getattr(certificate, name) for certificate in evaluation.certificates]
            yield f"certificate_{name}", ([*lead, "certificate"], np.stack(found, -1))
        yield "episode", (["checkpoint"], evaluation.episode)

    names = [certificate.name for certificate in evaluation.certificates]
    theorems = [certificate.theorem for certificate in evaluation.certificates]
    coordinates = {"certificate": names, "theorem": ("certificate", theorems)}
    return xarray.Dataset(dict(variables()), coordinates)
