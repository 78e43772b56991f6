import jax
import numpy as np
import pytest

from pdgd_jax import make, register
from pdgd_jax.processes import Table
from pdgd_jax.simulation import checkpoint_episodes
from pdgd_jax.sweeps import Configuration, plan_of
from pdgd_jax.sweeps._lanes import LaneBuilder
from pdgd_jax.sweeps._plan import stops_of

SMALL = {"make": "random", "sizes": [1, 2, 1], "num_actions": 2}


def plan(*instances, seeds=3, checkpoints=5, names="uniform", width=None, save_every=None, **more):
    settings = {"horizon": 100} | more
    table = {
        "instance": list(instances),
        "seeds": seeds,
        "checkpoints": checkpoints,
        "settings": settings,
        "learners": {"names": names},
    }
    return plan_of(Configuration.from_dict(table), width=width, save_every=save_every)


def lanes_of(plan):
    return [lane for _, block in plan.blocks() for lane in block.lanes]


def test_every_combination_is_one_lane_and_numbers_share_one_program():
    found = plan(
        SMALL,
        SMALL | {"label": "again", "seed": 5},
        names="pdgd-ops",
        horizon=[100, 300],
        rates=["tuned", "theory", [4.0, 0.01]],
        delta=[0.05, 0.1],
        confidence_scale=[1.0, 0.3],
    )
    assert len(found.groups) == 1
    assert found.lanes == 2 * 2 * 3 * 2 * 2 * 3 == len(set(lanes_of(found)))
    assert found.episodes == 2 * (100 + 300) * 3 * 2 * 2 * 3
    blocks = found.groups[0].blocks
    assert all({lane.cell.horizon for lane in b.lanes} == {b.horizon == 300} for b in blocks)
    assert [block.horizon for block in blocks] == sorted((b.horizon for b in blocks), reverse=True)


def test_a_learner_without_settings_is_played_once_for_all_of_them():
    found = plan(SMALL, names=["uniform", "pdgd-ops"], rates=["tuned", "theory"])
    by_learner = {group.learners: group for group in found.groups}
    assert by_learner[("uniform",)].lanes == 3
    assert by_learner[("pdgd-ops",)].lanes == 6
    repeats = {lane.cell.repeats for lane in lanes_of(found)}
    assert repeats == {(), ("rates", "delta", "confidence_scale")}


def test_learners_of_one_kind_share_a_program():
    found = plan(SMALL, names=["uniform", "best-feasible", "most-feasible"])
    assert [group.learners for group in found.groups] == [
        ("uniform", "best-feasible", "most-feasible")
    ]


def test_other_kinds_of_process_and_other_numbers_of_constraints_are_other_programs():
    found = plan(
        SMALL,
        SMALL | {"label": "phases", "constraints": "phases"},
        SMALL | {"label": "two", "num_constraints": 2},
    )
    assert sorted(group.num_constraints for group in found.groups) == [1, 1, 2]
    assert {group.processes for group in found.groups} == {
        ("Bernoulli", "Bernoulli"),
        ("Bernoulli", "Phases"),
    }


def test_sizes_are_padded_together_only_if_that_is_cheaper_than_compiling():
    large = {"make": "random", "label": "large", "sizes": [1, 12, 12, 1], "num_actions": 3}
    [short] = plan(SMALL, large, horizon=100).groups
    assert short.shape == (3, 12, 3)
    long = plan(SMALL, large, horizon=10**6).groups
    assert sorted(group.shape for group in long) == [(2, 2, 2), (3, 12, 3)]


def test_what_lanes_play_has_the_shape_of_their_group():
    other = {"make": "random", "label": "other", "sizes": [1, 3, 2, 1], "num_actions": 3}
    found = plan(SMALL, other, names="pdgd-ops", rates=["tuned", [2.0, 0.5]])
    [group] = found.groups
    builder = LaneBuilder(found.configuration)
    whats = [builder.inputs(lane.cell, group.shape) for lane in lanes_of(found)]
    shapes = {tuple(np.shape(leaf) for leaf in jax.tree.leaves(what)) for what in whats}
    assert len(shapes) == 1
    assert {jax.tree.structure(what) for what in whats} == {jax.tree.structure(whats[0])}
    # The constants are those of the true instance, whatever the padding.
    alone = plan(SMALL, names="pdgd-ops")
    cell = lanes_of(alone)[0].cell
    shape = alone.groups[0].shape
    rates = LaneBuilder(alone.configuration).inputs(cell, shape).learner.setting.rates
    padded = builder.inputs(lanes_of(found)[0].cell, group.shape).learner.setting.rates
    np.testing.assert_array_equal(padded, rates)


@pytest.mark.parametrize(
    ("lanes", "width", "blocks"),
    [
        (1, 1, 1),
        (8, 4, 2),
        (9, 5, 2),
        (20, 8, 3),
        (32, 8, 4),
        (64, 16, 4),
        (100, 16, 7),
        (200, 16, 13),
        (4096, 64, 64),
    ],
)
def test_blocks_are_equally_wide(lanes, width, blocks):
    [group] = plan(SMALL, seeds=lanes).groups
    assert (group.width, len(group.blocks)) == (width, blocks)


def test_blocks_are_narrower_if_memory_asks_for_it():
    def huge():
        """Rewards from a table of 60 megabytes."""
        cmdp = make("random", sizes=(1, 2, 1), num_actions=2)
        table = np.zeros((10**6, *cmdp.layers.shape))
        return type(cmdp)(cmdp.mdp, Table(table), cmdp.constraints)

    register("huge-table", huge)
    [group] = plan({"make": "huge-table"}, seeds=64).groups
    assert group.bytes_per_lane > 60e6
    assert group.bytes_per_device <= 2**30
    assert group.lanes == 64


def test_a_width_and_a_rhythm_can_be_asked_for():
    [group] = plan(SMALL, seeds=10, width=4, save_every=20).groups
    assert [len(block.lanes) for block in group.blocks] == [4, 4, 2]
    assert group.blocks[0].chunks == ((20,), (40,), (60,), (80,), (100,))
    [group] = plan(SMALL, width=4, save_every=47).groups
    assert group.blocks[0].chunks == ((20, 40), (60, 80), (100,))


@pytest.mark.parametrize("horizon", [7, 100, 12345])
@pytest.mark.parametrize("save_every", [1, 3, 50, 10**6])
def test_stops_hold_the_checkpoints_and_are_never_far_apart(horizon, save_every):
    stops = stops_of(horizon, 5, save_every)
    assert set(checkpoint_episodes(horizon, 5)) <= set(stops)
    assert max(np.diff([0, *stops])) <= max(save_every, 1)
    assert min(np.diff([0, *stops])) >= 1
    assert stops[-1] == horizon
    if save_every == 10**6:
        assert stops == checkpoint_episodes(horizon, 5)


def test_a_table_that_is_too_short_is_refused_with_its_instance():
    def short():
        """Rewards from a table of 10 rows."""
        cmdp = make("random", sizes=(1, 2, 1), num_actions=2)
        return type(cmdp)(cmdp.mdp, Table(np.zeros((10, *cmdp.layers.shape))), cmdp.constraints)

    register("short-table", short)
    with pytest.raises(ValueError, match="'short-table', horizon 100: the table of rewards has 10"):
        plan({"make": "short-table"})


def test_a_learner_that_cannot_be_built_is_named_with_its_instance():
    hopeless = SMALL | {"make": "no-slater", "constraints": "phases"}
    with pytest.raises(ValueError, match="'best-feasible' on instance 'no-slater': no policy"):
        plan(hopeless, names="best-feasible")


def test_facts_are_plain():
    import json

    facts = plan(SMALL, width=2, save_every=30).facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["compilations"] == 1
    assert facts["groups"][0]["blocks"]["g0-b0000"] == {"horizon": 100, "lanes": 2, "chunks": 5}
