import numpy as np
import pytest
import xarray

from pdgd_jax.results import Estimate, band_of, spread_in_words


def test_an_estimate_is_the_median_with_its_quantiles_and_leaves_out_what_is_missing():
    found = Estimate.of(np.array([3.0, 1.0, np.nan, 2.0]))
    assert (found.median, found.mean) == (2, 2)
    assert (found.low, found.high) == pytest.approx((1.2, 2.8))
    assert all(np.isnan(Estimate.of(np.array([np.nan, np.nan]))))


def test_estimates_in_words():
    assert Estimate.of(np.array([12345.6])).words() == "12,346"
    assert Estimate(0.12345, 0.11, 0.15, 2, 1, 3).words() == "0.1235 (0.11 to 0.15)"
    assert Estimate(0.12345, 0.11, 0.15, 2, 1, 3).words(statistic="mean") == "2 (1 to 3)"
    assert Estimate(5.457e-12, 3e-13, 6e-12, 0, 0, 0).words(scale=4000) == "0"
    assert Estimate(5.457e-12, 0, 0.3, 0, 0, 0).words(scale=4000) == "0 (0 to 0.3)"
    assert spread_in_words() == "10% to 90%"
    assert spread_in_words("mean") == "95% bootstrap interval"


def test_the_interval_of_a_mean_is_that_of_the_bootstrap():
    """Of 400 normal numbers it is nearly mean +- 1.96 s / sqrt(n); 2,000 resamples tell to 5%."""
    values = np.random.default_rng(1).normal(5, 3, 400)
    found = Estimate.of(values)
    half = 1.96 * values.std() / np.sqrt(400)
    assert found.mean == pytest.approx(values.mean())
    assert found.mean_high - found.mean == pytest.approx(half, rel=0.15)
    assert found.mean - found.mean_low == pytest.approx(half, rel=0.15)
    assert Estimate.of(values) == found  # the same numbers, the same interval
    constant = Estimate.of(np.full(7, 2.5))
    assert constant == pytest.approx((2.5,) * 6)


def test_a_band_may_be_that_of_the_mean():
    values = np.random.default_rng(0).normal(size=(9, 4))
    values[3, 1] = np.nan
    data = xarray.DataArray(values, dims=("seed", "checkpoint"))
    episode = xarray.DataArray(np.arange(4), dims="checkpoint")
    band = band_of(data, episode, statistic="mean")
    np.testing.assert_allclose(band.centre, np.nanmean(values, 0))
    for k in range(4):
        one = Estimate.of(values[:, k])
        assert (band.low[k], band.high[k]) == pytest.approx((one.mean_low, one.mean_high))


def test_an_unknown_statistic_is_refused(unchecked):
    data = xarray.DataArray(np.zeros((9, 4)), dims=("seed", "checkpoint"))
    episode = xarray.DataArray(np.arange(4), dims="checkpoint")
    with pytest.raises(ValueError, match="the statistic is one of median, mean; got 'mode'"):
        band_of(data, episode, statistic="mode")
