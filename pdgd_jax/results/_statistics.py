"""Statistics over seeds, the same everywhere, and growth rates.

The default is the median over seeds with the band between the 10% and the 90% quantile. The mean
comes with a 95% bootstrap interval. Runs without a value (NaN) are left out.
"""

import functools
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from pdgd_jax._internal.text import number_in_words
from pdgd_jax._internal.typing import NDArray

if TYPE_CHECKING:
    import xarray

__all__ = [
    "QUANTILES",
    "STATISTICS",
    "Band",
    "Estimate",
    "Statistic",
    "band_of",
    "shares_of",
    "slope_of",
    "spread_in_words",
]

Statistic: TypeAlias = Literal["median", "mean"]
STATISTICS: tuple[Statistic, ...] = ("median", "mean")

QUANTILES = (0.1, 0.9)
_CONFIDENCE = 0.95
_RESAMPLES = 2_000


class Band(NamedTuple):
    """A median over seeds between two quantiles, or a mean with its interval.

    Attributes:
      episode: `[K]`.
      centre: `[K]`, the median or the mean.
      low: `[K]`, the lower quantile, or the lower end of the interval.
      high: `[K]`, the upper quantile, or the upper end of the interval.
    """

    episode: NDArray
    centre: NDArray
    low: NDArray
    high: NDArray


class Estimate(NamedTuple):
    """Statistics of one number per seed.

    Attributes:
      median: the median over seeds.
      low: the 10% quantile.
      high: the 90% quantile.
      mean: the mean over seeds.
      mean_low: the lower end of the 95% bootstrap interval of the mean.
      mean_high: the upper end of that interval.

    Example:
      >>> import numpy as np
      >>> found = Estimate.of(np.array([1.0, 2.0, 3.0, 4.0, 90.0]))
      >>> found.words(), found.words(statistic="mean")
      ('3 (1.4 to 55.6)', '20 (1.8 to 55.2)')
    """

    median: float
    low: float
    high: float
    mean: float
    mean_low: float
    mean_high: float

    @classmethod
    def of(cls, values: NDArray) -> "Estimate":
        """The estimate from values `[seed]`."""
        column = np.asarray(values, float)[:, None]
        low, median, high = _quantiles(column, (QUANTILES[0], 0.5, QUANTILES[1]))
        mean, mean_low, mean_high = _means(column)
        return cls(*(float(x[0]) for x in (median, low, high, mean, mean_low, mean_high)))

    def map(self, change: Any) -> "Estimate":
        """The estimate in another unit: `change` is increasing and affine."""
        return Estimate(*(float(change(value)) for value in self))

    def shown(self, statistic: Statistic = "median") -> tuple[float, float, float]:
        """The centre, and the two ends of the band or interval."""
        return self[:3] if statistic == "median" else self[3:]

    def words(self, scale: float = 0.0, statistic: Statistic = "median") -> str:
        """The estimate as text: 0 if negligible relative to the scale, no band if constant."""
        centre, low, high = (number_in_words(x, scale=scale) for x in self.shown(statistic))
        return centre if low == high else f"{centre} ({low} to {high})"


def spread_in_words(
    statistic: Statistic = "median", quantiles: tuple[float, float] = QUANTILES
) -> str:
    """The extent of a band as text, such as `10% to 90%`."""
    if statistic == "mean":
        return f"{_CONFIDENCE:.0%} bootstrap interval"
    return f"{quantiles[0]:.0%} to {quantiles[1]:.0%}"


def band_of(
    values: "xarray.DataArray",
    episode: "xarray.DataArray",
    quantiles: tuple[float, float] = QUANTILES,
    statistic: Statistic = "median",
) -> Band:
    """The median over seeds and the band between two quantiles; runs without a value are left out.

    Args:
      values: values with the dimensions `seed` and `checkpoint`.
      episode: episodes with the dimension `checkpoint`.
      quantiles: the lower and the upper quantile around a median.
      statistic: "mean" for the mean and its bootstrap interval instead.
    """
    low, high = quantiles
    if not 0 <= low <= high <= 1:
        raise ValueError(f"quantiles are two numbers 0 <= low <= high <= 1; got {quantiles}.")
    if statistic not in STATISTICS:
        raise ValueError(f"the statistic is one of {', '.join(STATISTICS)}; got {statistic!r}.")
    numbers = values.transpose("seed", "checkpoint").to_numpy().astype(float)
    if statistic == "mean":
        return Band(episode.to_numpy(), *_means(numbers))
    lower, median, upper = _quantiles(numbers, (low, 0.5, high))
    return Band(episode.to_numpy(), median, lower, upper)


def _quantiles(values: NDArray, shares: tuple[float, ...]) -> list[NDArray]:
    """Quantiles of each column of `[n, K]` without NaN; faster than `np.nanquantile`."""
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


def _means(values: NDArray) -> list[NDArray]:
    """The mean of each column of `[n, K]` without NaN, and the ends of its interval.

    The interval is a percentile bootstrap with a fixed random key, so that equal numbers have equal
    intervals.
    """
    known = ~np.isnan(values)
    numbers = np.where(known, values, 0.0)
    counts = _resamples(len(values))
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN for a column or resample without a value
        mean = numbers.sum(0) / known.sum(0)
        resampled = (counts @ numbers) / (counts @ known.astype(float))
    tail = (1 - _CONFIDENCE) / 2
    return [mean, *_quantiles(resampled, (tail, 1 - tail))]


@functools.lru_cache(maxsize=4)  # every cell has the same number of seeds
def _resamples(count: int) -> NDArray:
    """`[resample, seed]`, how often each seed is drawn; one matrix product then gives all means."""
    chance = np.full(count, 1 / count)
    return np.random.default_rng(0).multinomial(count, chance, size=_RESAMPLES).astype(float)


def slope_of(horizons: NDArray, medians: NDArray, errors: NDArray | None = None) -> float:
    """The log-log slope over the horizons with a positive median; NaN if fewer than two.

    It is a least-squares fit, weighted if the relative errors of the medians are given.
    """
    drawn = np.isfinite(medians) & (medians > 0)
    if drawn.sum() < 2:
        return float("nan")
    weights = None if errors is None else 1 / errors[drawn]
    return float(np.polyfit(np.log(horizons[drawn]), np.log(medians[drawn]), 1, w=weights)[0])


def shares_of(measured: NDArray, bound: NDArray) -> NDArray:
    """Measured / bound; for a bound of 0 it is 0 or infinite, and for NaN it is infinite."""
    nothing = np.where(measured <= bound, 0.0, np.inf)
    shares = np.where(bound > 0, measured / np.where(bound > 0, bound, 1), nothing)
    return np.where(np.isnan(shares), np.inf, shares)
