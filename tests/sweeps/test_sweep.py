import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from jax.tree_util import Partial

from pdgd_jax import Configuration, evaluate, make, register_learner, run, sweep
from pdgd_jax.learners import LEARNERS, Info, Learner, Setting, make_learner
from pdgd_jax.projection import SOLVERS
from pdgd_jax.results import QUANTITIES
from pdgd_jax.simulation import as_arrays, from_arrays, local_devices
from pdgd_jax.sweeps import Interrupted, StoreError, open_results, plan_of
from pdgd_jax.sweeps._folder import Store
from pdgd_jax.sweeps._plan import DIMS
from tests.quick import QUICK


@pytest.fixture(autouse=True, scope="module")
def forgotten():
    """These tests know the solver "quick"; what they register is forgotten after them."""
    with SOLVERS.temporarily({"quick": QUICK}), LEARNERS.temporarily():
        yield


SMALL = {"make": "random", "sizes": [1, 2, 1], "num_actions": 2}
OTHER = {"make": "random", "label": "other", "sizes": [1, 3, 2, 1], "num_actions": 3, "seed": 4}


def configuration(*instances, seeds=3, checkpoints=4, names="uniform", **settings):
    return {
        "instance": list(instances or [SMALL]),
        "seeds": seeds,
        "checkpoints": checkpoints,
        "settings": {"horizon": 40} | settings,
        "learners": {"names": names, "solver": "quick"},
    }


FULL = configuration(
    SMALL,
    OTHER,
    names=["pdgd-ops", "uniform"],
    horizon=[24, 40],
    rates=["tuned", [4.0, 0.01]],
)


@pytest.fixture(scope="module")
def whole():
    return sweep(FULL, width=4, save_every=10)


ALIKE = {"width": 3, "save_every": 10}  # what is alike is compiled once


def assert_same_bits(a, b):
    xarray.testing.assert_identical(
        a.drop_attrs(deep=False).load(), b.drop_attrs(deep=False).load()
    )


def stop_after(chunks):
    """Says stop once so many chunks are played."""
    left = iter(range(chunks - 1))
    return lambda: next(left, None) is None


def test_instances_with_successor_lists_are_played_beside_others():
    river = {"make": "riverswim", "num_states": 3, "horizon": 4}
    lists = {**river, "label": "lists", "support": "known"}
    data = sweep(configuration(lists, river, names=["uniform", "pdgd-ops"]), **ALIKE)
    assert np.isfinite(data.regret.values).all()
    # Streams are paired, and whoever does not learn plays the same episodes.
    for name in ("regret", "violation", "sampled_reward"):
        values = data[name].sel(learner="uniform")
        np.testing.assert_allclose(
            values.sel(instance="lists"), values.sel(instance="riverswim"), atol=1e-12
        )
    # Where the support is known, the confidence sets are smaller.
    radius = data.radius.sel(learner="pdgd-ops").isel(checkpoint=-1)
    assert (radius.sel(instance="lists") < radius.sel(instance="riverswim")).all()


def test_the_dataset_is_as_promised(whole):
    assert tuple(whole.regret.dims) == (*DIMS, "checkpoint")
    assert whole.regret.shape == (2, 2, 2, 1, 1, 2, 3, 4)
    assert whole.instance.values.tolist() == ["random", "other"]
    assert whole.learner.values.tolist() == ["pdgd-ops", "uniform"]
    assert whole.rates.values.tolist() == ["tuned", "C=4,eta=0.01"]
    assert whole.episode.values.tolist() == [[6, 12, 18, 24], [10, 20, 30, 40]]
    for name, quantity in QUANTITIES.items():
        assert whole[name].dims == (*DIMS, *quantity.axes)
        assert {"long_name", "units"} <= whole[name].attrs.keys()
    assert json.loads(whole.attrs["configuration"])["instance"][1]["label"] == "other"
    assert set(json.loads(whole.attrs["versions"])) >= {"pdgd_jax", "jax", "numpy"}
    assert whole.attrs["key"] == 0
    assert np.isfinite(whole.regret).all()


def test_every_lane_is_the_run_that_it_stands_for(whole):
    T = 40
    keys = jax.random.split(jax.random.key(0), 3)
    cases = [("random", SMALL, "uniform", 0), ("other", OTHER, "pdgd-ops", 1)]
    for label, options, name, rates in cases:
        named = {k: v for k, v in options.items() if k not in ("make", "label")}
        cmdp = make("random", **named)
        learner = make_learner(name, cmdp, T, rates=["tuned", (4.0, 0.01)][rates], solver="quick")
        history = run(keys[2], cmdp, learner, T, checkpoints=4)
        lane = whole.sel(instance=label, learner=name, horizon=T, seed=2)
        lane = lane.isel(rates=rates, delta=0, confidence_scale=0)
        np.testing.assert_allclose(lane.reward, history.reward, rtol=1e-12)
        np.testing.assert_allclose(lane.sampled_reward, history.sampled_reward, rtol=1e-12)
        np.testing.assert_allclose(lane.multipliers, history.multipliers, rtol=1e-12)
        np.testing.assert_allclose(lane.regret, evaluate(history, cmdp).regret, rtol=1e-9)
        L, S, A = cmdp.layers.shape
        policy = lane.policy.values
        mask = np.asarray(cmdp.layers.action_mask)
        np.testing.assert_allclose(policy[:L, :S, :A][mask], history.policy[mask], rtol=1e-12)
        assert np.isfinite(policy).sum() == mask.sum()


def test_a_learner_that_ignores_a_setting_has_the_same_values_along_it(whole):
    idle = whole.sel(learner="uniform")
    np.testing.assert_array_equal(idle.reward.isel(rates=0), idle.reward.isel(rates=1))
    busy = whole.sel(learner="pdgd-ops")
    assert (busy.reward.isel(rates=0) != busy.reward.isel(rates=1)).any()
    assert whole.uses_setting.dims == ("learner", "setting")
    assert whole.setting.values.tolist() == ["rates", "delta", "confidence_scale"]
    assert whole.uses_setting.values.tolist() == [[True] * 3, [False] * 3]


@pytest.mark.slow
def test_placement_changes_no_bit(whole):
    assert len(jax.local_devices()) == 2
    assert_same_bits(sweep(FULL, width=4, save_every=10, devices=1), whole)


@pytest.mark.slow
@pytest.mark.optimised
def test_where_chunks_are_cut_changes_no_bit(whole):
    assert_same_bits(sweep(FULL, width=4, save_every=7), whole)
    assert_same_bits(sweep(FULL, width=4), whole)


@pytest.mark.slow
@pytest.mark.optimised
def test_placement_and_chunks_change_no_bit_of_newton_either():
    # As a user compiles it: the fast tests leave optimisations out.
    asked = configuration(SMALL, OTHER, names="pdgd-ops", horizon=[60, 100], confidence_scale=0.3)
    asked["learners"]["solver"] = "newton"
    one = sweep(asked, width=3, devices=1)
    two = sweep(asked, width=3, devices=2, save_every=10)
    assert_same_bits(one, two)
    assert (one.unconverged == 0).all()


def test_stopped_and_resumed_on_other_devices_gives_the_same_bits(whole, tmp_path):
    out = tmp_path / "sweep"
    options = {"width": 4, "save_every": 10, "out": out}
    for devices in (2, 1, 2):
        with pytest.raises(Interrupted):
            sweep(FULL, **options, devices=devices, should_stop=stop_after(2))
    with pytest.raises(StoreError, match="no results yet"):
        open_results(out)
    reports = []
    data = sweep(FULL, **options, on_progress=lambda r: reports.append((r.state, r.episodes)))
    assert_same_bits(data, whole)
    assert_same_bits(open_results(out), whole)
    done = [episodes for _, episodes in reports]
    assert done == sorted(done)
    total = 3 * (2 * 2 + 2) * (24 + 40)
    assert done[-1] == total
    first = next(episodes for state, episodes in reports if state == "compiling")
    assert 0 < first < total


@pytest.mark.slow
def test_a_finished_sweep_is_not_played_again(tmp_path):
    asked = configuration()
    first = sweep(asked, **ALIKE, out=tmp_path / "sweep")
    states = []
    again = sweep(
        asked, **ALIKE, out=tmp_path / "sweep", on_progress=lambda r: states.append(r.state)
    )
    assert states == ["planned", "planned"]
    assert_same_bits(first, again)


def test_a_damaged_carry_is_named_and_played_again(tmp_path):
    asked, options = configuration(), ALIKE
    whole = sweep(asked, **options)
    out = tmp_path / "sweep"
    with pytest.raises(Interrupted):
        sweep(asked, **options, out=out, should_stop=stop_after(3))
    newest = out / "blocks" / "g0-b0000" / "carry-00002.npz"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    found = []
    data = sweep(asked, **options, out=out, on_progress=lambda r: found.extend(r.damage))
    assert any("carry-00002.npz is damaged" in sentence for sentence in found)
    assert_same_bits(data, whole)


def test_a_folder_of_another_sweep_is_refused_with_the_difference(tmp_path):
    sweep(configuration(), **ALIKE, out=tmp_path / "sweep")
    with pytest.raises(StoreError, match=r"configuration.seeds: 3 there, 4 here"):
        sweep(configuration(seeds=4), **ALIKE, out=tmp_path / "sweep")
    with pytest.raises(StoreError, match=r"width: 3 there, 2 here"):
        sweep(configuration(), width=2, save_every=10, out=tmp_path / "sweep")


@pytest.mark.slow
def test_unrolled_and_plain_instances_share_a_program():
    """An unrolled MDP remembers the states that it came from, which must not keep them apart."""
    unrolled = {"make": "streaming", "capacity": 2, "horizon": 3}
    plain = {"make": "random", "sizes": [1, 2, 2, 1], "num_actions": 2}
    asked = Configuration.from_dict(configuration(unrolled, plain, horizon=20))
    assert len(plan_of(asked).groups) == 1
    regret = sweep(asked).regret.squeeze()
    assert np.isfinite(regret).all()
    assert (regret[0] != regret[1]).any()


def test_a_process_that_is_left_of_an_earlier_sweep_keeps_others_away(tmp_path):
    first = Store.create(tmp_path / "sweep", {"key": 0})
    member = Store.open(tmp_path / "sweep", {"key": 0}, write=True, member=1)
    with pytest.raises(StoreError, match="in use by process"):
        Store.open(tmp_path / "sweep", write=True, member=1)
    first.close()
    with pytest.raises(StoreError, match="a remnant of an earlier sweep"):
        Store.open(tmp_path / "sweep", write=True)
    member.close()
    Store.open(tmp_path / "sweep", write=True).close()


@pytest.mark.slow
def test_a_folder_that_was_cut_into_other_blocks_is_refused(tmp_path, monkeypatch):
    asked = configuration(names="uniform")
    sweep(asked, out=tmp_path / "sweep")
    monkeypatch.setattr("pdgd_jax.sweeps._plan.width_of", lambda lanes, bytes_per_lane: 1)
    for _ in range(2):  # and leaves no lock
        with pytest.raises(StoreError, match="was cut into other blocks than this version"):
            sweep(asked, out=tmp_path / "sweep")


@pytest.mark.slow
def test_what_an_instance_does_not_have_is_marked():
    other = SMALL | {"label": "adversarial", "constraints": "phases", "num_constraints": 2}
    data = sweep(configuration(SMALL, other, seeds=1)).squeeze()
    assert np.isnan(data.violations.sel(instance="random").isel(constraint=1)).all()
    assert np.isfinite(data.violations.sel(instance="adversarial")).all()
    theorem5 = data.sel(certificate="regret, Theorem 5")
    assert theorem5.sel(instance="adversarial").certificate_status == "does not apply"
    assert "another kind" in str(theorem5.sel(instance="adversarial").certificate_reason.values)
    assert "another kind" not in str(theorem5.sel(instance="random").certificate_reason.values)
    assert data.theorem.sel(certificate="regret, Theorem 7") == "Theorem 7, regret"


@pytest.mark.slow
def test_numbers_and_sizes_do_not_trace_again():
    traces = []

    def policy(mask, strength, state):
        traces.append(1)
        weights = jnp.where(mask, 1 + strength * jnp.arange(mask.shape[-1])[None, None], 0)
        return weights / jnp.where(mask, weights, 1e-9).sum(-1, keepdims=True)

    def update(state, trajectory, outcome):
        return state, Info()

    def counting(cmdp, num_episodes, *, confidence_scale=1.0):
        mask = cmdp.layers.action_mask
        play = Partial(policy, mask, jnp.asarray(confidence_scale, float))
        return Learner(lambda_, play, Partial(update), Setting(cmdp.layers))

    lambda_ = Partial(lambda key: ())
    register_learner("counting", counting)
    sweep(configuration(seeds=1, names="counting"), devices=1, width=2)
    once = len(traces)
    many = configuration(
        SMALL | {"seed": 7},
        names="counting",
        horizon=[40, 80],
        confidence_scale=[0.5, 1.0],
        checkpoints=4,
    )
    sweep(many, devices=1, width=2, save_every=10**6)
    assert len(traces) <= 2 * once  # the shape of a chunk's rows may be another, once
    before = len(traces)
    sweep(many | {"key": 5, "seeds": 5}, devices=1, width=2, save_every=10**6)
    # Planning looks at the policy of a learner; nothing else may trace it again.
    assert len(traces) == before


def test_no_more_cores_become_devices_than_are_used():
    code = """if True:
        import jax
        from pdgd_jax.simulation import use_cores, use_every_core
        use_every_core()
        use_cores(4)
        assert jax.config.values["jax_num_cpu_devices"] == 3
        use_cores(2)
        assert len(jax.devices()) == 2
        use_cores(1)  # too late
        assert len(jax.devices()) == 2
    """
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "3"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_too_many_devices_are_refused():
    with pytest.raises(ValueError, match="this process has 2 devices.* got 3"):
        sweep(configuration(), devices=3)
    assert len(local_devices(1)) == 1


def test_trees_come_back_from_their_arrays():
    tree = {"a": jax.random.key(3), "b": (jnp.arange(2), jnp.zeros((1, 2)))}
    arrays = as_arrays(tree)
    assert set(arrays) == {"a", "b.0", "b.1"}
    back = from_arrays(tree, arrays)
    assert jax.random.key_data(back["a"]).tolist() == jax.random.key_data(tree["a"]).tolist()
    with pytest.raises(ValueError, match=r"'b.0' should be int\d\d\[2\]; there is nothing"):
        from_arrays(tree, {k: v for k, v in arrays.items() if k != "b.0"})
