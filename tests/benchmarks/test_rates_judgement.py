"""How `benchmarks/rates.py` judges growth: on numbers whose growth is known."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")
HORIZONS = [1000, 3162, 10_000, 31_623, 100_000]


@pytest.fixture(scope="module")
def rates():
    sys.path.append(BENCHMARKS)  # as the notebooks do
    import rates

    sys.path.remove(BENCHMARKS)
    return rates


def seeds_around(medians, spread=0.01):
    """32 seeds whose median is as given, and which differ by a share of it."""
    around = 1 + spread * np.linspace(-1, 1, 32)
    return [median * around for median in medians]


def power(exponent):
    return seeds_around([3 * T**exponent for T in HORIZONS])


@pytest.mark.parametrize(("exponent", "verdict"), [(0.5, "pass"), (0.59, "pass"), (0.61, "FAIL")])
def test_a_power_is_found_and_judged(rates, exponent, verdict):
    line = rates.judge_slope("violation", HORIZONS, power(exponent), power(1), 0.6)
    assert (line.what, line.verdict) == ("violation", verdict)
    assert line.measured.startswith(f"{exponent:.2f}")
    assert "horizons only" not in line.remark


def test_nothing_is_asked_of_what_is_not_positive_at_the_end(rates):
    below = seeds_around([-1, -2, -3, -4, -5])
    assert rates.judge_slope("regret", HORIZONS, below, power(1), 0.6).measured == "never positive"
    falling = seeds_around([5, 2, -3, -4, -5])
    line = rates.judge_slope("regret", HORIZONS, falling, power(1), 0.6)
    assert (line.verdict, line.measured) == ("pass", "not positive at the end")


def test_never_positive_is_said_only_where_no_median_is(rates):
    below = seeds_around([-1, -2, -3, -4, -5])
    ends = [*below[:-1], 1 + np.linspace(-100, 100, 32)]  # positive, though seeds do not agree
    line = rates.judge_slope("regret", HORIZONS, ends, power(0.5), 0.6)
    assert line.what == "regret, peak"
    assert "surely positive at 0 of 5 horizons, at the last 1" in line.remark
    # One key of three is positive at one horizon only: this is not "never".
    keys = [np.stack([x, x, x]) for x in below]
    keys[2][1] *= -1
    line = rates.judge_slope("regret", HORIZONS, keys, power(0.5), 0.6)
    assert line.measured == "not positive at the end"
    assert line.remark == "positive at 1 of 5 horizons"
    keys[2][1] *= -1
    assert rates.judge_slope("regret", HORIZONS, keys, keys, 0.6).measured == "never positive"


def test_an_interval_on_both_sides_of_what_is_asked_is_open(rates):
    rng = np.random.default_rng(0)
    ends = [3 * T**0.58 * rng.lognormal(0, 1, 32) for T in HORIZONS]
    line = rates.judge_slope("violation", HORIZONS, ends, power(1), 0.6)
    assert line.verdict == "open"
    low, high = map(float, line.measured.split("[")[1][:-1].split(","))
    assert low < 0.6 < high


def keys_that_differ(rng, spread):
    """Ten keys of four seeds, as they would be if a key moved all of its seeds by a factor."""
    moved = rng.lognormal(0, spread, (len(HORIZONS), 10, 1))
    noise = rng.lognormal(0, 0.01, (len(HORIZONS), 10, 4))
    return [3 * T**0.5 * x for T, x in zip(HORIZONS, moved * noise, strict=True)]


def test_intervals_are_over_keys_too(rates):
    ends = keys_that_differ(np.random.default_rng(0), spread=0.5)
    together = rates.slope_of(HORIZONS, ends)
    # As if all seeds were of one key, which forgets that four move together.
    pooled = rates.slope_of(HORIZONS, [x.reshape(1, -1) for x in ends])
    assert together.high - together.low > 1.5 * (pooled.high - pooled.low)
    assert together.of_keys[0] < together.low < together.fit < together.high < together.of_keys[1]
    line = rates.judge_slope("violation", HORIZONS, ends, ends, 0.6)
    assert f"single keys {together.of_keys[0]:.2f} to {together.of_keys[1]:.2f}" in line.remark


def test_an_interval_covers_the_true_slope_as_often_as_it_says(rates):
    """It would not if horizons shared their streams and were resampled by themselves."""
    rng = np.random.default_rng(1)
    slopes = [rates.slope_of(HORIZONS, keys_that_differ(rng, 0.3), 200) for _ in range(60)]
    covered = np.mean([slope.low <= 0.5 <= slope.high for slope in slopes])
    # 90% is meant, a bootstrap over ten keys gives somewhat less; 60 trials know it to 0.04.
    assert 0.75 <= covered <= 0.99


def test_every_horizon_and_key_has_streams_of_its_own(rates):
    import jax

    streams = [jax.random.key_data(rates.streams_of([0, 7], T, 3)) for T in HORIZONS]
    drawn = np.stack([np.asarray(data).reshape(6, -1) for data in streams]).reshape(30, -1)
    assert len(np.unique(drawn, axis=0)) == 30
    again = jax.random.key_data(rates.streams_of([7], HORIZONS[2], 3))
    np.testing.assert_array_equal(again[0], streams[2][1])  # whatever the other keys are


def test_where_the_theorem_speaks_from(rates):
    # rho <= L, so that (L sqrt(20 m) / rho)^8 is (20 m)^4 at the least.
    tight = rates.CASES["two-phase, tight"]
    assert rates.theorem_speaks_from(tight, 1.0) == pytest.approx(20**4)
    assert rates.theorem_speaks_from(tight, 0.25) == pytest.approx(20**4 * 4**8)
    assert rates.theorem_speaks_from(rates.CASES["random, m=2"], 3.0) == pytest.approx(40**4)
    assert rates.theorem_speaks_from(rates.CASES["no-slater"], 0.0) == 1


def test_a_median_near_zero_hardly_counts_and_a_sure_one_does(rates):
    ends = power(0.5)
    ends[0] = 5 + np.linspace(-15, 15, 32)  # 5, give or take 3, instead of 95
    line = rates.judge_slope("violation", HORIZONS, ends, power(1), 0.6)
    assert line.verdict == "pass"
    assert "4 of 5" not in line.remark  # it is fitted
    ends[0] = 5 + np.linspace(-0.5, 0.5, 32)
    line = rates.judge_slope("violation", HORIZONS, ends, power(1), 0.6)
    assert line.verdict == "FAIL"


@pytest.mark.parametrize(("exponent", "verdict"), [(0.5, "pass"), (0.7, "FAIL")])
def test_one_positive_horizon_has_no_slope_and_its_peak_is_judged(rates, exponent, verdict):
    ends = seeds_around([-1, -2, -3, -4, 50])
    line = rates.judge_slope("violation", HORIZONS, ends, power(exponent), 0.6)
    assert (line.what, line.verdict) == ("violation, peak", verdict)
    assert line.measured.startswith(f"{exponent:.2f}")
    assert "surely positive at 1 of 5 horizons, at the last 50" in line.remark


def test_what_has_no_slope_at_all_is_not_judged(rates):
    ends = seeds_around([-1, -2, -3, -4, 50])
    line = rates.judge_slope("violation", HORIZONS, ends, ends, 0.6)
    assert line.verdict == "not judged"


@pytest.mark.parametrize("name", ["random, G and r phases", "two-phase, tight"])
def test_every_horizon_is_the_same_game_of_its_adversary(rates, name):
    def played(horizon):
        """What the adversary plays at the same points of a run."""
        cmdp = rates.build(rates.CASES[name], horizon)
        at = [int(share * horizon) for share in (0.05, 0.2, 0.5, 0.9)]
        processes = cmdp.constraints, cmdp.rewards
        return [np.stack([p.draw(None, None, t, None)[0] for t in at]) for p in processes]

    for short, long in zip(played(1000), played(100_000), strict=True):
        np.testing.assert_array_equal(short, long)
    assert np.ptp(played(1000)[0], axis=0).any()  # it does change
