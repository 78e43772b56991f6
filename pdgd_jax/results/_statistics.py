"""Numbers of many seeds as a median and a band, and growth."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import xarray

__all__ = ["Band", "band_of", "shares_of", "slope_of"]

NDArray = np.ndarray[Any, np.dtype[Any]]


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


def band_of(
    values: "xarray.DataArray",
    episode: "xarray.DataArray",
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
