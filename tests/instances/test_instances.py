"""The contract of every registered instance, and the numbers its documentation states."""

import inspect
import re
import tracemalloc
from typing import Literal

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import learners, make, make_for, oracle, register, registered, rollout, run
from pdgd_jax._internal.memory import free_memory
from pdgd_jax._internal.options import value_of
from pdgd_jax.instances import builder_of, options_of
from pdgd_jax.models import EpisodesWarning
from pdgd_jax.processes import KINDS
from pdgd_jax.sweeps import Configuration, plan_of

NAMES = registered()


@pytest.mark.parametrize("name", NAMES)
def test_contract(name, precision):
    cmdp = make(name)
    leaves = [x for x in jax.tree.leaves(cmdp) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert {x.dtype for x in leaves} == {jnp.dtype(precision)}
    policy = cmdp.layers.uniform_policy(precision)
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def play(cmdp, key):
        def episode(state, t):
            key_t = jax.random.fold_in(key, t)
            outcome, state = cmdp.draw(key_t, state, t, policy)
            return state, (outcome, rollout(key_t, cmdp.mdp, policy))

        state = cmdp.init(key)
        return state, *jax.lax.scan(episode, state, jnp.arange(500))

    play(cmdp, jax.random.key(1))
    state, final, (outcomes, paths) = play(cmdp, jax.random.key(0))
    chex.assert_trees_all_equal_shapes_and_dtypes(state, final)
    chex.assert_tree_all_finite(outcomes)
    assert outcomes.reward.shape == (500, *cmdp.layers.shape)
    assert outcomes.constraints.shape == (500, cmdp.num_constraints, *cmdp.layers.shape)
    assert (outcomes.reward >= 0).all()
    assert (outcomes.reward <= 1).all()
    assert (jnp.abs(outcomes.constraints) <= 1).all()
    mask = np.asarray(cmdp.layers.action_mask)
    assert not np.asarray(outcomes.reward)[:, ~mask].any()
    assert not np.asarray(outcomes.constraints)[:, :, ~mask].any()
    states = np.asarray(cmdp.layers.state_mask)
    assert states[np.arange(states.shape[0]), np.asarray(paths.states)].all()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_vmap_over_keys_equals_a_loop(name, precision):
    cmdp = make(name)
    policy = cmdp.layers.uniform_policy(precision)

    @jax.jit
    def play(key):
        def episode(state, t):
            key_t = jax.random.fold_in(key, t)
            outcome, state = cmdp.draw(key_t, state, t, policy)
            return state, (outcome, rollout(key_t, cmdp.mdp, policy))

        return jax.lax.scan(episode, cmdp.init(key), jnp.arange(500))[1]

    keys = jax.random.split(jax.random.key(0), 2)
    batch = jax.vmap(play)(keys)
    rounding = 1e-6 if precision == "float32" else 1e-13  # a sine may be fused differently
    for i, key in enumerate(keys):
        lane = jax.tree.map(lambda x, i=i: x[i], batch)
        chex.assert_trees_all_close(lane, play(key), atol=rounding)


@pytest.mark.parametrize("name", NAMES)
def test_documentation_states_the_truth(name):
    documentation = " ".join(inspect.getdoc(builder_of(name)).split())
    stated = re.search(
        r"Default: sizes \((?P<sizes>[\d, ]+)\), A = (?P<A>\d+), m = (?P<m>\d+); "
        r"OPT = (?P<opt>[\d.]+), without constraints (?P<free>[\d.]+), rho = (?P<rho>[\d.]+)\.",
        documentation,
    )
    assert stated, f"{name} does not state its sizes, OPT and rho"
    cmdp = make(name)
    average = oracle.hindsight(cmdp, 10_000)
    best = oracle.optimum(cmdp.mdp, average.reward, average.constraints)
    free = oracle.optimum(cmdp.mdp, average.reward)
    rho = oracle.slater_margin(cmdp.mdp, cmdp.constraints).rho
    assert tuple(int(n) for n in stated["sizes"].split(",")) == cmdp.layers.sizes
    assert int(stated["A"]) == int(cmdp.layers.num_actions)
    assert int(stated["m"]) == cmdp.num_constraints
    # Four digits are stated.
    assert float(stated["opt"]) == pytest.approx(best.value, abs=6e-5)
    assert float(stated["free"]) == pytest.approx(free.value, abs=6e-5)
    assert float(stated["rho"]) == pytest.approx(rho, abs=6e-5)
    # What makes it a constrained problem: the constraints cost something.
    assert best.value < free.value - 1e-3
    for option in options_of(name):
        assert f" {option}: " in documentation, f"option {option} of {name} is not described"


@pytest.mark.parametrize("kind", KINDS)
def test_any_pairing_of_processes(kind):
    for other in ("constant", "phases"):
        cmdp = make("random", rewards=kind, constraints=other, num_constraints=3)
        policy = cmdp.layers.uniform_policy()
        state = jax.eval_shape(cmdp.init, jax.random.key(0))
        outcome, _ = jax.eval_shape(cmdp.draw, jax.random.key(0), state, 0, policy)
        assert outcome.constraints.shape[0] == 3
        make("random", rewards=other, constraints=kind)


@pytest.mark.parametrize(
    ("kind", "num_actions", "sign"),
    [
        ("phases", 3, -1),
        ("phases", 4, 0),
        ("drift", 4, 0),
        ("adaptive", 4, -1),
        ("corrupted", 3, -1),
    ],
)
def test_margins_of_no_slater_are_as_documented(kind, num_actions, sign):
    cmdp = make("no-slater", num_actions=num_actions, constraints=kind)
    rho = oracle.slater_margin(cmdp.mdp, cmdp.constraints, 1000).rho
    assert np.sign(np.round(rho, 9)) == sign


def test_margins_are_as_designed():
    assert oracle.slater_margin(*parts(make("no-slater"))).rho == 0.0
    # tightness 0 leaves no margin in m = 1, tightness 1 lets the greedy policy pass.
    tight, loose = make("random", tightness=0.0), make("random", tightness=1.0)
    assert oracle.slater_margin(*parts(tight)).rho == pytest.approx(0, abs=1e-9)
    reward, G = loose.rewards.mean(), loose.constraints.mean()
    free = oracle.optimum(loose.mdp, reward).value
    assert oracle.optimum(loose.mdp, reward, G).value == pytest.approx(free)
    many = make("random", num_constraints=5, seed=3)
    assert oracle.slater_margin(*parts(many)).rho > 0


def parts(cmdp):
    return cmdp.mdp, cmdp.constraints


def test_branching_limits_the_successors():
    P = np.asarray(make("random", sizes=(1, 6, 6, 1), branching=2).mdp.transition)
    assert ((P > 0).sum(-1).max((1, 2)) == [2, 2, 1]).all()


def test_the_two_endings_cannot_both_be_met():
    """No first half is right for both: the argument of Mannor et al., in numbers."""
    relaxed, tight = make("two-phase", ending="relaxed"), make("two-phase")
    opts = []
    for cmdp in (relaxed, tight):
        average = oracle.hindsight(cmdp, 10_000)
        opts.append(oracle.optimum(cmdp.mdp, average.reward, average.constraints).value)
    np.testing.assert_allclose(opts, [1.0, 0.625 / 1.625])
    losses = []
    for risky in np.linspace(0, 1, 101):  # share of risky in the first half
        regret_if_relaxed = 0.5 * (1 - risky)  # everything is allowed and earned afterwards
        violation_if_tight = 0.5 * (2 * risky - 1) - 0.5 * 0.25  # at best, all safe afterwards
        losses.append(max(regret_if_relaxed, violation_if_tight))
    assert min(losses) > 0.1


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ValueError, match="unknown instance 'riverswin' .did you mean 'riverswim'"):
        make("riverswin")
    with pytest.raises(ValueError, match="no option 'num_state' .did you mean 'num_states'"):
        make("riverswim", num_state=3)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("random", {"num_constraints": 0}, "num_constraints must be a whole number, at least 1"),
        ("random", {"tightness": 2}, "tightness must lie in"),
        ("random", {"seed": -1}, "seed must be a whole number"),
        ("random", {"rewards": "gauss"}, "unknown kind of process 'gauss'"),
        ("grid", {"hazards": ((9, 9),)}, r"hazard \(9, 9\) lies outside the 4 x 4 grid"),
        ("grid", {"hazards": (3, 4)}, r"must be a sequence of 2 whole numbers each.* got 3 in"),
        ("grid", {"hazard_density": 1.2}, r"hazard_density must lie in \[0, 1\]; got 1.2"),
        ("grid", {"hazard_density": 0.2, "seed": -1}, "seed must be a whole number, at least 0"),
        ("grid", {"budget": 10}, r"budget of an episode of 9 steps lies in \[0, 9\]"),
        ("grid", {"horizon": 2.5}, "horizon of instance 'grid' must be a whole number, .*got 2.5"),
        ("queueing", {"service": (0.1,)}, "name the same stations, at least one; got 2 and 1"),
        ("queueing", {"buffers": (), "service": ()}, "at least one; got 0 and 0"),
        ("queueing", {"buffers": (2, 0)}, "each of buffers must be a whole number, at least 1"),
        ("queueing", {"arrival": 0.9}, "arrival and service must sum to 1 at most; got 1.4"),
        ("queueing", {"onward": 1.5}, "onward must lie in"),
        ("queueing", {"rejection_budget": 9}, "the rejection_budget of an episode of 8 steps lies"),
        ("inventory-lead-time", {"lead_time": 0}, "lead_time must be a whole number, from 1 to 20"),
        ("inventory-lead-time", {"most_ordered": 0}, "most_ordered must be a whole number"),
        ("inventory-lead-time", {"lead_time": 20}, "needs about .* of memory"),
        ("recommender", {"education_target": 9}, "education_target lies in"),
        ("two-phase", {"ending": "open"}, 'ending must be "tight" or "relaxed"'),
        ("no-slater", {"num_actions": 1}, "num_actions must be a whole number, at least 2"),
    ],
)
def test_bad_options(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(name, **options)


def test_names_are_registered_once():
    with pytest.raises(ValueError, match="registered already"):
        register("grid", lambda: None)


def test_the_same_seed_makes_the_same_instance():
    for leaf, other in zip(*[jax.tree.leaves(make("random", seed=4)) for _ in "ab"], strict=True):
        np.testing.assert_array_equal(leaf, other)
    assert (make("random", seed=5).mdp.transition != make("random", seed=4).mdp.transition).any()


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("grid", {"budget": "abc"}, "budget of instance 'grid' must be a finite number, such as 0"),
        ("random", {"sizes": "1,a,1"}, "must be whole numbers with commas .* got 'a' in '1,a,1'"),
        ("random", {"sizes": 1}, "sizes must name at least two layers"),
        ("random", {"tightness": float("nan")}, "tightness .* must be a finite number, .* got nan"),
        ("random", {"tightness": True}, "must be a finite number"),
        ("grid", {"hazards": 5}, "hazards of instance 'grid' must be a sequence .* got 5"),
        ("grid", {"hazards": (("a", "b"),)}, "got 'a' in"),
        ("grid", {"rewards": 3}, "rewards of instance 'grid' must be text, such as bernoulli"),
        ("two-phase", {"num_episodes": 1e30}, "num_episodes must be a whole number, from 1 to"),
        ("inventory", {"delivery_budget": 9}, "the delivery_budget of an episode of 5 steps lies"),
    ],
)
def test_options_of_the_wrong_kind_are_refused_in_a_sentence(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(name, **options)


def test_options_are_taken_as_they_are_meant():
    assert make("two-phase", num_episodes=1e4).constraints.period == 5000
    assert make("streaming", horizon=np.int64(3), fast_budget=np.float32(1)).layers.shape[0] == 3
    assert make("random", sizes=np.array([1, 2, 1])).layers.sizes == (1, 2, 1)
    assert make("random", sizes=[1.0, 2.0, 1.0]).layers.sizes == (1, 2, 1)
    assert make("grid", hazards=[[0, 1]]).num_constraints == 1


def test_options_of_ones_own_are_checked_by_their_annotations():
    def mine(
        speed: float | None = None,
        mode: Literal["fast", "slow"] = "fast",
        quiet: bool = False,
        pair: tuple[int, str] = (1, "a"),
        many: tuple[float, ...] = (),
        free=3,
        odd: "not_defined_anywhere" = 1,
        **rest,
    ): ...

    def plain(free=3, level: int | str = 1): ...

    def taken(builder, option, value):
        return value_of(builder, "instance 'mine'", option, value)

    # An annotation that cannot be read leaves all of them alone.
    assert taken(mine, "speed", "x") == "x"
    mine.__annotations__.pop("odd")
    assert taken(mine, "speed", None) is None
    assert taken(mine, "speed", 2) == 2.0
    assert taken(mine, "many", 2) == (2.0,)
    assert taken(mine, "pair", [2, "b"]) == (2, "b")
    assert taken(mine, "free", "x") == taken(plain, "free", "x") == "x"
    assert taken(plain, "level", "high") == "high"
    for option, value, words in (
        ("speed", "x", "a finite number or None; got 'x'"),
        ("mode", "medium", "fast or slow, such as fast; got 'medium'"),
        ("quiet", 1, "True or False, such as False; got 1"),
        ("pair", (1, 2, 3), "2 values .a whole number, text., such as 1,a; got .1, 2, 3."),
        ("pair", (1, 2), "got 2 in .1, 2."),
    ):
        with pytest.raises(
            ValueError, match=f"{option} of instance 'mine' must be {words}|{words}"
        ):
            taken(mine, option, value)


def test_sizes_beyond_the_memory_are_refused_before_anything_is_made(monkeypatch):
    asked = r"3 layers with up to 100,000 states and 3 actions needs about 2.62 TiB of memory"
    with pytest.raises(ValueError, match=asked):
        make("random", sizes=(1, 100_000, 100_000, 1))
    monkeypatch.setattr("pdgd_jax._internal.memory.free_memory", lambda: 2.0**20)
    make("random", sizes=(1, 10, 1))
    for name, options in (
        ("random", {"sizes": (1, 200, 1)}),
        ("random", {"num_constraints": 10_000}),
        ("no-slater", {"sizes": (1, 200, 1)}),
        ("grid", {"rows": 20, "columns": 20}),
        ("inventory", {"capacity": 100}),
        ("inventory-lead-time", {"lead_time": 4}),
        ("queueing", {"buffers": (20, 20)}),
        ("streaming", {"capacity": 200}),
        ("riverswim", {"num_states": 200}),
        ("bidding", {"horizon": 10_000}),
        ("recommender", {"horizon": 10_000}),
        ("gymnasium", {"horizon": 1000}),
    ):
        with pytest.raises(ValueError, match=r"needs about .* of memory, and 1 MiB are free"):
            make(name, **options)


def test_the_free_memory_is_known_here():
    free = free_memory()
    assert free is None or 2**20 < free < 2**60


def test_an_instance_is_made_for_the_episodes_that_are_played():
    assert make_for("two-phase", 300).constraints.period == 150
    assert make_for("two-phase", 300, num_episodes=50).constraints.period == 25
    assert make_for("two-phase", 1).constraints.period == 1
    assert (
        make_for("streaming", 300, capacity=2).layers.sizes
        == make("streaming", capacity=2).layers.sizes
    )


def test_episodes_that_contradict_the_instance_are_noticed_in_python():
    """On the host, and in no compiled program: the trees are the same whatever it was made for."""
    cmdp = make("two-phase")
    learner = learners.uniform(cmdp.layers)
    with pytest.warns(EpisodesWarning, match="made for 10,000 episodes .* is played for 40"):
        jax.eval_shape(lambda key: run(key, cmdp, learner, 40), jax.random.key(0))
    fitting = make_for("two-phase", 40)
    jax.eval_shape(lambda key: run(key, fitting, learner, 40), jax.random.key(0))
    assert jax.tree.structure(cmdp) == jax.tree.structure(fitting)


def test_a_sweep_says_when_its_horizons_contradict_an_instance():
    table = {"instance": [{"make": "two-phase", "num_episodes": 50}], "seeds": 1}
    table |= {"settings": {"horizon": [50, 70]}, "learners": {"names": "uniform"}}
    with pytest.warns(EpisodesWarning, match="made for 50 episodes .* is played for 70"):
        plan_of(Configuration.from_dict(table))
    del table["instance"][0]["num_episodes"]
    plan_of(Configuration.from_dict(table))


def danger_of(cmdp, budget):
    """The cells of a grid that are hazards."""
    cost = np.asarray(cmdp.constraints.mean())[0] + budget / cmdp.mdp.horizon
    cost = np.where(cmdp.layers.action_mask, cost, 0)
    return np.flatnonzero(np.asarray(cmdp.mdp.to_flat(jnp.asarray(cost))).max((0, 2)) > 0.5)


def test_hazards_may_be_drawn():
    options = {"rows": 6, "columns": 5, "horizon": 12, "hazard_density": 0.3, "support": "known"}
    drawn = [danger_of(make("grid", seed=seed, **options), 0.5) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert set(drawn[0]) != set(drawn[2])
    for cells in drawn:
        assert len(cells) == 9
        assert not {0, 4} & set(cells.tolist())  # the start and the goal
    np.testing.assert_array_equal(danger_of(make("grid"), 0.5), [1, 2, 5, 6])
    full = danger_of(make("grid", hazard_density=1.0, rows=2, columns=3, hazards=()), 0.5)
    np.testing.assert_array_equal(full, [1, 3, 4, 5])


@pytest.mark.slow
def test_a_large_grid_needs_little_memory(monkeypatch):
    """30 x 30 cells over 60 steps: 6 GB as dense arrays, which nothing on the way may make."""
    monkeypatch.setattr("pdgd_jax._internal.memory.free_memory", lambda: 2.0**27)
    size = {"rows": 30, "columns": 30, "horizon": 60}
    with pytest.raises(ValueError, match=r"60 layers with up to 900 states .* 128 MiB are free"):
        make("grid", **size)
    tracemalloc.start()
    cmdp = make("grid", support="known", **size)
    best = oracle.optimum(cmdp.mdp, cmdp.rewards.mean(), cmdp.constraints.mean())
    rho = oracle.slater_margin(cmdp.mdp, cmdp.constraints).rho
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**27
    assert int(cmdp.layers.num_triples) == 327_360
    assert best.value == pytest.approx(22.4404, abs=1e-4)
    assert rho == pytest.approx(0.5, abs=1e-8)
