"""How `benchmarks/rates.py` judges growth: on numbers whose growth is known."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = str(Path(__file__).parent.parent / "benchmarks")
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


def test_a_median_that_seeds_do_not_agree_on_is_not_positive(rates):
    ends = seeds_around([-1, -2, -3, -4, 1])
    ends[-1] = 1 + np.linspace(-100, 100, 32)
    line = rates.judge_slope("regret", HORIZONS, ends, power(1), 0.6)
    assert line.measured == "never positive"


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
    assert "positive at the last horizon only, 50" in line.remark


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
