"""Which cells of a sweep share their random streams, and comparisons of those that do."""

import copy
import itertools
import json

import jax
import numpy as np
import pytest
import scipy.stats
import xarray
from typer.testing import CliRunner

from pdgd_jax import Configuration, open_results, paired_difference, sweep
from pdgd_jax.cli.entry import app
from pdgd_jax.sweeps import Cell
from pdgd_jax.sweeps._streams import keys_of

SMALL = {"make": "random", "sizes": [1, 2, 1], "num_actions": 2}
OTHER = {"make": "random", "label": "other", "sizes": [1, 2, 1], "num_actions": 2, "seed": 4}
TABLE = {
    "key": 5,
    "seeds": 3,
    "checkpoints": 2,
    "instance": [SMALL, OTHER],
    "settings": {"horizon": [20, 40], "rates": ["tuned", [4.0, 0.01]], "delta": [0.05, 0.1]},
    "learners": {"names": ["pdgd-ops", "uc-o-gdps"]},
}
CELLS = [
    Cell(instance, learner, rates, delta, 0, horizon)
    for instance, learner, rates, delta, horizon in itertools.product((0, 1), repeat=5)
]


def configured(streams, **changes):
    return Configuration.from_dict(copy.deepcopy(TABLE) | {"streams": streams} | changes)


def numbers(configuration, cell):
    return np.asarray(jax.random.key_data(keys_of(configuration, cell))).tolist()


def test_paired_streams_are_those_of_the_key_in_every_cell():
    plain = jax.random.key_data(jax.random.split(jax.random.key(5), 3)).tolist()
    assert all(numbers(configured("paired"), cell) == plain for cell in CELLS)
    assert Configuration.from_dict(TABLE) == configured("paired")  # the default


def test_independent_streams_differ_between_all_cells_and_seeds():
    apart = configured("independent")
    found = {tuple(key) for cell in CELLS for key in numbers(apart, cell)}
    assert len(found) == 3 * len(CELLS)
    assert not found & {tuple(key) for key in numbers(configured("paired"), CELLS[0])}
    assert not found & {
        tuple(key) for cell in CELLS for key in numbers(configured("independent", key=6), cell)
    }


def test_what_else_is_swept_changes_no_stream_of_a_cell():
    cell = Cell(1, 1, 1, 0, 0, 1)  # other, uc-o-gdps, the pair, 0.05, 1.0, 40
    more = configured(
        "independent",
        instance=[{"make": "two-phase"}, SMALL, OTHER | {"label": "renamed"}],
        settings={"horizon": [40, 60], "rates": [[4.0, 0.01], "theory"], "delta": [0.2, 0.05]},
        learners={"names": ["uniform", "pdgd-ops", "uc-o-gdps"]},
    )
    assert numbers(more, Cell(2, 2, 0, 1, 0, 0)) == numbers(configured("independent"), cell)


def test_what_a_learner_ignores_does_not_move_it():
    learners = {"names": ["uniform"]}
    ignored = ("rates", "delta", "confidence_scale")
    cell = Cell(0, 0, 0, 0, 0, 0, ignored)
    fewer = {"horizon": 20, "rates": "theory"}
    assert numbers(configured("independent", learners=learners), cell) == numbers(
        configured("independent", learners=learners, settings=fewer), cell
    )


TWINS = {
    "seeds": 3,
    "checkpoints": 2,
    "instance": [SMALL, SMALL | {"label": "twin"}],
    "settings": {"horizon": [20, 30]},
    "learners": {"names": ["uniform"]},
}


@pytest.fixture(scope="module")
def twins():
    return {streams: sweep(TWINS | {"streams": streams}) for streams in ("paired", "independent")}


def test_twins_play_alike_if_paired_and_apart_if_not(twins):
    def sampled(streams):
        return (
            twins[streams].sampled_reward.isel(checkpoint=-1).squeeze().transpose("instance", ...)
        )

    together, apart = sampled("paired"), sampled("independent")
    np.testing.assert_array_equal(together[0], together[1])
    assert (apart[0] != apart[1]).any()
    assert (apart != together).any()
    assert json.loads(twins["independent"].attrs["configuration"])["streams"] == "independent"


@pytest.mark.slow
def test_a_cell_alone_is_the_cell_among_others(twins):
    alone = TWINS | {"instance": [SMALL], "settings": {"horizon": 30}, "streams": "independent"}
    among = twins["independent"].sel(instance="random", horizon=30)
    np.testing.assert_array_equal(
        sweep(alone).sampled_reward.squeeze(), among.sampled_reward.squeeze()
    )


def test_the_command_line_takes_streams_and_refuses_others(tmp_path):
    file, out = tmp_path / "tiny.toml", tmp_path / "out"
    file.write_text(
        'seeds = 2\ncheckpoints = 1\nstreams = "paired"\n[[instance]]\nmake = "two-phase"\n'
        '[settings]\nhorizon = 5\n[learners]\nnames = "uniform"\n'
    )
    asked = ["sweep", str(file), "--out", str(out), "--streams"]
    assert CliRunner().invoke(app, [*asked, "independent", "--json"]).exit_code == 0
    assert json.loads(open_results(out).attrs["configuration"])["streams"] == "independent"
    wrong = CliRunner().invoke(app, [*asked, "pared"])
    assert isinstance(wrong.exception, ValueError)
    sentence = (
        "unknown stream \"pared\" (did you mean 'paired'?); the streams are paired, independent."
    )
    assert str(wrong.exception) == sentence
    file.write_text(file.read_text().replace('"paired"', '"pared"'))
    wrong = CliRunner().invoke(app, ["sweep", str(file), "--out", str(out)])
    assert str(wrong.exception) == f"{file}, line 3: {sentence}"


# Comparisons


def measured(a, b, **attributes):
    """Two learners, one instance; regret `[2, seeds, checkpoints]`, the last of them as given."""
    last = np.stack([a, b])
    values = np.stack([np.zeros_like(last), last], -1)
    return xarray.Dataset(
        {
            "regret": (("learner", "seed", "checkpoint"), values, {"units": "reward"}),
            "status": (("learner",), np.array(["fine", "fine"])),
        },
        {"learner": ["one", "other"]},
        attributes,
    )


def streams(kind):
    return {"configuration": json.dumps({"streams": kind})}


LUCK = np.random.default_rng(0).normal(0, 100, 12)
OWN = np.random.default_rng(1).normal(0, 1, 12)


def test_pairs_cancel_the_luck_that_both_share():
    data = measured(LUCK + OWN + 5, LUCK, **streams("paired"))
    found = paired_difference(data, "learner", "one", "other", "regret")
    interval = scipy.stats.ttest_rel(LUCK + OWN + 5, LUCK).confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high], interval)
    np.testing.assert_allclose(found.difference, OWN + 5)
    assert (found.attrs["paired"], found.attrs["units"]) == (1, "reward")
    assert found.high - found.low < 2  # luck alone would make it 170
    back = paired_difference(data, "learner", "other", "one", "regret", confidence=0.5)
    np.testing.assert_allclose(back["mean"], -found["mean"])
    assert back.high - back.low < found.high - found.low


def test_independent_streams_have_no_pairs():
    data = measured(LUCK + OWN + 5, 3 * LUCK[::-1], **streams("independent"))
    found = paired_difference(data, "learner", "one", "other", "regret")
    test = scipy.stats.ttest_ind(LUCK + OWN + 5, 3 * LUCK[::-1], equal_var=False)
    np.testing.assert_allclose([found.low, found.high], test.confidence_interval(0.95))
    assert "difference" not in found
    assert found.attrs["paired"] == 0
    same = measured(np.ones(4), np.zeros(4), **streams("independent"))  # nothing varies
    found = paired_difference(same, "learner", "one", "other", "regret")
    assert (found.low, found["mean"], found.high) == (1, 1, 1)


def test_a_single_seed_has_a_difference_and_no_interval():
    data = measured(np.ones(1), np.zeros(1), **streams("paired"))
    found = paired_difference(data, "learner", "one", "other", "regret")
    assert found["mean"] == 1
    assert np.isnan([found.low, found.high]).all()


def test_results_of_before_are_paired_and_others_must_say():
    old = measured(LUCK, LUCK, configuration=json.dumps({"seeds": 12}))
    assert paired_difference(old, "learner", "one", "other", "regret").attrs["paired"] == 1
    silent = measured(LUCK, LUCK)
    with pytest.raises(ValueError, match="does not say how its random streams were made"):
        paired_difference(silent, "learner", "one", "other", "regret")
    found = paired_difference(silent, "learner", "one", "other", "regret", paired=True)
    assert (found.low, found.high) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("learner", "one", "third", "regret"), "learner is one of one, other; got 'third'"),
        (("learner", "one", "othr", "regret"), r"got 'othr' \(did you mean 'other'\?\)"),
        (("seed", 0, 1, "regret"), "regret is compared along one of learner; got 'seed'"),
        (("rates", 0, 1, "regret"), "regret is compared along one of learner; got 'rates'"),
        (("learner", "one", "other", "status"), "'status' cannot be compared; regret can"),
        (("learner", "one", "other", "regrets"), "'regrets' cannot be compared; regret can"),
    ],
)
def test_what_cannot_be_compared_is_said(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        paired_difference(measured(LUCK, LUCK, **streams("paired")), *arguments)


def test_a_sweep_is_compared_over_all_its_other_dimensions(twins):
    found = paired_difference(twins["paired"], "instance", "twin", "random", "regret")
    assert found.difference.sizes["horizon"] == 2
    assert not found.difference.values.any()
    found = paired_difference(twins["paired"], "horizon", 30, 20, "violations")
    assert "constraint" in found["mean"].dims
    last = twins["paired"].violations.isel(checkpoint=-1).mean("seed")
    np.testing.assert_allclose(found["mean"], last.sel(horizon=30) - last.sel(horizon=20))
