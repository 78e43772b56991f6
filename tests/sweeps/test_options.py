"""Options of learners in configurations: dimensions of one learner, which the others ignore."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from jax.tree_util import Partial

from pdgd_jax import Configuration, make, paired_difference, read_configuration, run, sweep
from pdgd_jax.learners import LEARNERS, Info, Learner, Setting, make_learner, register_learner
from pdgd_jax.results import cells_of, select
from pdgd_jax.sweeps import open_results, plan_of
from pdgd_jax.sweeps._lanes import LaneBuilder
from pdgd_jax.sweeps._plan import DIMS
from pdgd_jax.sweeps._streams import keys_of

SMALL = {"make": "random", "sizes": [1, 2, 1], "num_actions": 2}


def _policy(mask, weight, state):
    weights = jnp.where(mask, 1 + weight * jnp.arange(mask.shape[-1])[None, None], 0)
    total = weights.sum(-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def _gentle(size):
    return 1 / size


def _fierce(size):
    return size


def _update(size_of, state, trajectory, outcome):
    return state, Info()


def leaning(cmdp, num_episodes, *, weight=1.0, lean: str = "gentle"):
    """Prefers later actions: a number that is a leaf, and a word that is part of the program."""
    size = {"gentle": _gentle, "fierce": _fierce}.get(lean)
    if size is None:
        raise ValueError(f"lean must be gentle or fierce; got {lean!r}.")
    if not weight > 0:
        raise ValueError(f"weight must be positive; got {weight}.")
    mask, strength = cmdp.layers.action_mask, jnp.asarray(size(weight), float)
    play = Partial(_policy, mask, strength)
    return Learner(Partial(_init), play, Partial(_update, Partial(size)), Setting(cmdp.layers))


def _init(key):
    return ()


@pytest.fixture(autouse=True, scope="module")
def forgotten():
    """What these tests register is forgotten after them."""
    with LEARNERS.temporarily():
        register_learner("leaning", leaning, knows=[], feedback="none")
        yield


def table(*, names=("leaning", "uniform"), seeds=3, streams="paired", horizon=20, **options):
    return {
        "instance": [SMALL],
        "seeds": seeds,
        "checkpoints": 2,
        "streams": streams,
        "settings": {"horizon": horizon},
        "learners": {"names": list(names), **options},
    }


LISTED = table(leaning={"weight": [0.5, 4, 9], "lean": ["gentle", "fierce"]})


@pytest.fixture(scope="module")
def played():
    return sweep(LISTED, width=3)


# The configuration

GOOD = """\
[[instance]]
make = "two-phase"

[learners]
names = ["ucpd", "unifying"]

[learners.ucpd]
V = ["default", 10, 1e2]
mixing = 0

[learners.unifying]
mirror = "euclidean"
"""


@pytest.fixture
def read(tmp_path):
    """Reads a text as a file."""

    def reader(text):
        (tmp_path / "c.toml").write_text(text)
        return read_configuration(tmp_path / "c.toml")

    return reader


def test_a_table_of_options_is_read_and_comes_back(read):
    configuration = read(GOOD)
    found = [(option.dim, option.values) for option in configuration.options]
    assert found == [
        ("ucpd.V", ("default", 10.0, 100.0)),
        ("ucpd.mixing", (0.0,)),
        ("unifying.mirror", ("euclidean",)),
    ]
    assert configuration.options[0].coordinate.tolist() == ["default", "10", "100"]
    assert configuration.options[1].coordinate.tolist() == [0.0]
    again = json.loads(json.dumps(configuration.as_dict()))
    assert Configuration.from_dict(again) == configuration
    assert again["learners"] == {
        "names": ["ucpd", "unifying"],
        "solver": "newton",
        "ucpd": {"V": ["default", 10.0, 100.0], "mixing": [0.0]},
        "unifying": {"mirror": ["euclidean"]},
    }
    nested = GOOD.replace("[learners.ucpd]\nV", "ucpd.V").replace("\nmixing", "\nucpd.mixing")
    assert read(nested).options == configuration.options


def test_without_options_nothing_changes():
    """Folders of before can be resumed, and their results have the same axes."""
    plain = Configuration.from_dict(table(names=["uniform"]))
    assert plain.options == ()
    assert plain.as_dict()["learners"] == {"names": ["uniform"], "solver": "newton"}
    assert Configuration.from_dict(table(names=["uniform"], uniform={})) == plain
    cell = next(iter(plan_of(plain).blocks()))[1].lanes[0].cell
    assert (cell.repeats, cell.options) == (("rates", "delta", "confidence_scale"), ())


@pytest.mark.parametrize(
    ("good", "bad", "line", "start"),
    [
        (
            "mixing",
            "mixng",
            9,
            "learner 'ucpd' has no option 'mixng' (did you mean 'mixing'?); its options are V, ",
        ),
        ("mixing", "delta", 9, "delta is a setting that learners share, not an option of 'ucpd'"),
        ("= 0", '= "none"', 9, "mixing of learner 'ucpd' must be a finite number; got 'none'."),
        ("= 0", "= true", 9, "mixing of learner 'ucpd' must be a finite number; got True."),
        ("= 0", "= nan", 9, "mixing must be finite numbers, text, or true or false; got NaN."),
        ("= 0", "= []", 9, "mixing lists nothing; give at least one value."),
        ("= 0", "= [0, 0.0]", 9, "mixing lists 0.0 twice."),
        ("= 0", "= [[0, 1]]", 9, "mixing of learner 'ucpd' must be a finite number; got [0, 1]."),
        ('"euclidean"', "7", 12, "mirror of learner 'unifying' must be text, such as entropic; g"),
        (
            "[learners.unifying]",
            "[learners.unifing]",
            11,
            "unknown learner \"unifing\" (did you mean 'unifying'?); the learners are pdgd-ops, ",
        ),
        (
            "[learners.unifying]",
            "[learners.cold]",
            11,
            "learner 'cold' has options but is not played; add it to names, which are ucpd, ",
        ),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_line(read, good, bad, line, start):
    assert GOOD.count(good) >= 1
    sentence = re.escape(f"c.toml, line {line}: {start}")
    with pytest.raises(ValueError, match=f"^[^\n]*{sentence}[^\n]*$"):
        read(GOOD.replace(good, bad, 1))


def test_a_value_out_of_range_is_found_before_anything_compiles_with_its_line(read):
    wrong = read(GOOD.replace("1e2", "-3"))
    sentence = "c.toml, line 8: learner 'ucpd' on instance 'two-phase': V must be positive and fi"
    with pytest.raises(ValueError, match=sentence):
        plan_of(wrong)
    with pytest.raises(ValueError, match=r"line 12: .* mirror must be one of entropic, euclidean"):
        plan_of(read(GOOD.replace("euclidean", "flat")))


def test_options_that_would_multiply_without_end_are_refused():
    many = list(range(1, 41))
    options = {"ucpd": {"V": many}, "cold": {"V": many}}
    with pytest.raises(ValueError, match="here to 1,600 combinations, at most 1,000 are held"):
        Configuration.from_dict(table(names=["ucpd", "cold"], **options))
    alone = Configuration.from_dict(table(names=["ucpd"], ucpd={"V": many, "alpha": many}))
    assert len(alone.options) == 2


def test_options_of_a_learner_whose_name_cannot_be_that_of_a_file_are_refused():
    """Dimensions are folders of `results.zarr`."""
    register_learner("../mine", leaning)
    with pytest.raises(ValueError, match=r"letters, digits, dots, - and _ only; got '\.\./mine'"):
        Configuration.from_dict(table(names=["../mine"], **{"../mine": {"weight": 1}}))


# The plan


def test_numbers_share_a_program_and_words_do_not():
    numbers = plan_of(Configuration.from_dict(table(leaning={"weight": [0.5, 4, 9]})))
    assert sorted((group.learners, group.lanes) for group in numbers.groups) == [
        (("leaning",), 3 * 3),
        (("uniform",), 3),
    ]
    words = plan_of(Configuration.from_dict(LISTED))
    assert sorted((group.learners, group.lanes) for group in words.groups) == [
        (("leaning",), 9),
        (("leaning",), 9),
        (("uniform",), 3),
    ]


def test_constants_of_rivals_share_a_program():
    options = {
        "ucpd": {"V": ["default", 10, 100], "mixing": [0, 0.1]},
        "unifying": {"rho_scale": [0.5, 1, 10], "mirror": ["entropic", "euclidean"]},
        "cold": {"epsilon": [0.3, 0.5]},
    }
    asked = Configuration.from_dict(table(names=list(options), **options))
    found = sorted((group.learners, group.lanes // 3) for group in plan_of(asked).groups)
    assert found == [(("cold",), 2), (("ucpd",), 6), (("unifying",), 3), (("unifying",), 3)]


def test_each_cell_is_played_with_its_options():
    asked = Configuration.from_dict(
        table(names=["ucpd", "uniform"], ucpd={"V": ["default", 10], "mixing": [0, 0.1]})
    )
    builder = LaneBuilder(asked)
    cmdp = builder.cmdp(0, 0)
    found = {
        lane.cell.options: lane.cell
        for _, block in plan_of(asked).blocks()
        for lane in block.lanes
        if lane.cell.learner == 0
    }
    assert sorted(found) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for (V, mixing), cell in found.items():
        given = {"V": 10} if V else {}
        expected = make_learner("ucpd", cmdp, 20, mixing=[0, 0.1][mixing], **given)
        for leaf, wanted in zip(
            jax.tree.leaves(builder.learner(cell, cmdp)), jax.tree.leaves(expected), strict=True
        ):
            np.testing.assert_array_equal(leaf, wanted)


def test_the_margin_is_computed_once_for_all_options(monkeypatch):
    from pdgd_jax.sweeps import _lanes

    asked = []
    found = _lanes.margin_of
    monkeypatch.setattr(_lanes, "margin_of", lambda *x: asked.append(x) or found(*x))
    listed = table(names=["unifying"], unifying={"rho_scale": [0.5, 1, 2]})
    plan_of(Configuration.from_dict(listed))
    assert len(asked) == 1
    given = table(names=["unifying"], unifying={"rho": [0.1, 0.2]})
    plan_of(Configuration.from_dict(given))
    assert len(asked) == 1


def test_a_learner_that_needs_a_margin_is_refused_where_there_is_none():
    hopeless = table(names=["uniform", "unifying"]) | {"instance": [{"make": "no-slater"}]}
    sentence = "learner 'unifying' on instance 'no-slater': .* must know a margin rho > 0, .* is 0"
    with pytest.raises(ValueError, match=sentence):
        plan_of(Configuration.from_dict(hopeless))
    hopeless["learners"]["unifying"] = {"rho": 0.1}
    assert plan_of(Configuration.from_dict(hopeless)).lanes == 6


def test_independent_streams_follow_the_options_of_the_learner_alone():
    def keys(learner, places, **options):
        asked = Configuration.from_dict(table(streams="independent", **options))
        cells = [lane.cell for _, block in plan_of(asked).blocks() for lane in block.lanes]
        wanted = [c for c in cells if (c.learner, c.options) == (learner, places)]
        return np.asarray(jax.random.key_data(keys_of(asked, wanted[0]))).tolist()

    two = {"leaning": {"weight": [1, 2]}}
    assert keys(0, (0,), **two) != keys(0, (1,), **two)
    assert keys(0, (1,), **two) == keys(0, (0,), leaning={"weight": [2]})  # not the position
    assert keys(1, (0,), **two) == keys(1, ())  # nobody else moves


# The results


def test_options_are_dimensions_of_the_results(played):
    dims = (*DIMS[:-2], "leaning.weight", "leaning.lean", "horizon", "seed")
    assert played.regret.dims == (*dims, "checkpoint")
    assert played["leaning.weight"].values.tolist() == [0.5, 4.0, 9.0]
    assert played["leaning.lean"].values.tolist() == ["gentle", "fierce"]
    uses = played.uses_setting.sel(setting=["leaning.weight", "leaning.lean", "rates"])
    assert uses.values.tolist() == [[True, True, False], [False, False, False]]
    assert played.knows.values.tolist() == ["nothing", "nothing"]
    assert played.feedback.values.tolist() == ["none", "none"]


@pytest.mark.parametrize(("weight", "lean"), [(4.0, "fierce"), (0.5, "gentle")])
def test_a_lane_is_the_run_with_these_options(played, weight, lean):
    cmdp = make("random", sizes=(1, 2, 1), num_actions=2)
    learner = make_learner("leaning", cmdp, 20, weight=weight, lean=lean)
    key = jax.random.split(jax.random.key(0), 3)[2]
    history = run(key, cmdp, learner, 20, checkpoints=2)
    lane = played.sel({"learner": "leaning", "leaning.weight": weight, "leaning.lean": lean})
    np.testing.assert_allclose(lane.sel(seed=2).squeeze().reward, history.reward, rtol=1e-12)


def test_other_learners_are_played_once_and_repeated(played):
    others = played.reward.sel(learner="uniform")
    first = others.isel({"leaning.weight": 0, "leaning.lean": 0})
    assert (others == first).all()
    mine = played.reward.sel(learner="leaning").isel(seed=0, checkpoint=-1).squeeze()
    # A weight of 4 and its inverse are policies that differ; there are six of them.
    assert len(np.unique(mine.values.round(9))) == 6


def test_cells_name_the_options_of_their_learner_alone(played):
    labels = [cell.label for cell in cells_of(played)]
    assert labels == [
        *(
            f"leaning, weight = {weight}, lean = {lean}"
            for weight in ("0.5", "4", "9")
            for lean in ("gentle", "fierce")
        ),
        "uniform",
    ]


def test_results_are_selected_and_compared_by_options(played):
    part = select(played, ["leaning.weight=4,9", "leaning.lean=fierce"])
    assert [cell.label for cell in cells_of(part)] == [
        "leaning, weight = 4",
        "leaning, weight = 9",
        "uniform",
    ]
    with pytest.raises(ValueError, match="leaning.weight is one of 0.5, 4.0, 9.0"):
        select(played, ["leaning.weight=3"])
    with pytest.raises(ValueError, match=r"NAME=VALUE, .* \(did you mean 'leaning.weight'\?\)"):
        select(played, ["leaning.weigth=4"])
    found = paired_difference(played, "leaning.weight", 9.0, 0.5, "reward").sel(learner="uniform")
    assert (found["mean"] == 0).all()


def test_results_with_options_are_saved_and_resumed(played, tmp_path):
    data = sweep(LISTED, width=3, out=tmp_path / "sweep")
    again = sweep(LISTED, width=3, out=tmp_path / "sweep")
    saved = open_results(tmp_path / "sweep")
    for other in (data, again, saved):
        xarray.testing.assert_identical(
            other.drop_attrs(deep=False).load(), played.drop_attrs(deep=False)
        )


@pytest.mark.slow
def test_a_sweep_over_a_number_compiles_once():
    traces = []

    def policy(mask, weight, state):
        traces.append(1)
        return _policy(mask, weight, state)

    def counting(cmdp, num_episodes, *, weight=1.0):
        play = Partial(policy, cmdp.layers.action_mask, jnp.asarray(weight, float))
        return Learner(Partial(_init), play, Partial(_update, None), Setting(cmdp.layers))

    register_learner("counting", counting)

    def traced_for(weights):
        before = len(traces)
        listed = table(names=["counting"], counting={"weight": weights})
        sweep(listed, width=3, devices=1)
        return len(traces) - before

    assert traced_for([1.0]) > 0
    assert traced_for([2.0, 3.0, 5.0, 7.0]) == 0
