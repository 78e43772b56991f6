"""The episode loop: what it records, that it batches, repeats and lowers, and what it refuses."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import (
    CMDP,
    ConfidenceSet,
    comparators_of,
    evaluate,
    learners,
    make,
    occupancy_of,
    oracle,
    pdgd_ops,
    processes,
    rollout,
    run,
    stack,
    uc_o_gdps,
    value_of,
)
from pdgd_jax.learners import Learner
from pdgd_jax.simulation import Comparators, checkpoint_episodes, start, sums_of
from pdgd_jax.simulation._loop import _run, advance
from pdgd_jax.simulation._worst import Worst
from tests.quick import QUICK

# Most tests are about the loop, not about the projection: they use a stand-in for it, which
# compiles in a moment. Those marked slow repeat the same with the real one.
SOLVERS = [
    pytest.param(QUICK, id="quick"),
    pytest.param("newton", id="newton", marks=pytest.mark.slow),
]
T = 60
OPTIONS = {"sizes": (1, 3, 3, 1), "num_actions": 2}
KEYS = jax.random.split(jax.random.key(7), 3)


@pytest.fixture(scope="module")
def cmdp():
    return make("random", **OPTIONS)


@pytest.fixture(scope="module", params=SOLVERS)
def player(request):
    """Makes PDGD-OPS with a quick and, in slow tests, with the real projection."""
    return partial(pdgd_ops, solver=request.param)


@pytest.fixture(scope="module")
def learner(cmdp, player):
    return player(cmdp.layers, cmdp.num_constraints, T, confidence_scale=0.5)


@pytest.fixture(scope="module")
def history(cmdp, learner):
    """One run that many tests look at, with every episode a checkpoint."""
    return run(KEYS[0], cmdp, learner, T)


@pytest.fixture(scope="module")
def batched():
    """Three lanes at once, compiled once for all tests with these shapes."""

    def lanes(keys, cmdps, players):
        def one(key, cmdp, player):
            return run(key, cmdp, player, T)

        return jax.vmap(one)(keys, cmdps, players)

    return jax.jit(lanes)


def copies(tree, number=3):
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *x.shape)), tree)


def lane(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


# What is recorded.


def test_metrics_equal_a_plain_loop(cmdp, learner, history):
    """Everything that is recorded, recomputed in NumPy from the episodes played one by one."""
    carry = start(KEYS[0], cmdp, learner)
    step = jax.jit(lambda carry, learner: advance(carry, cmdp, learner, carry.episode + 1))
    player = learner.as_pytree()

    @jax.jit
    def look(carry, learner):
        policy = learner.policy(carry.learner)
        draw_key, play_key = jax.random.split(jax.random.fold_in(carry.key, carry.episode))
        outcome, _ = cmdp.draw(draw_key, carry.processes, carry.episode, policy)
        path = rollout(play_key, cmdp.mdp, policy)
        return outcome, path, occupancy_of(cmdp.mdp, policy)

    P, mean = np.asarray(cmdp.mdp.transition), np.asarray(cmdp.constraints.mean())
    totals = np.zeros(5)
    largest_loss = largest = 0.0
    dual_terms = []
    for t in range(20):
        state = carry.learner
        outcome, path, q = look(carry, player)
        q = np.asarray(q)
        believed = np.asarray(state.primal.occupancy)
        r, G = np.asarray(outcome.reward), np.asarray(outcome.constraints)
        cost = (G[0] * q.sum(-1)).sum()
        sampled = sum(r[k, path.states[k], path.actions[k]] for k in range(3))
        totals += [
            (r * q.sum(-1)).sum(),
            sampled,
            np.abs(q - believed).sum(),
            cost,
            max((mean[0] * q.sum(-1)).sum(), 0),
        ]
        radii = np.asarray(state.primal.confidence.radius)[np.asarray(cmdp.layers.action_mask)]
        radius = np.minimum(radii, 2).mean()
        multiplier = float(state.dual.multipliers[0])
        loss = multiplier * G[0] - r
        largest_loss = max(largest_loss, np.abs(loss).max())
        dual_terms.append([(c - multiplier) * (G[0] * believed.sum(-1)).sum() for c in (0, 1)])
        carry = step(carry, player)
        after = carry.learner
        largest = max(largest, float(after.dual.multipliers.sum()))
        recorded = lane(history.metrics, t)
        sums = sums_of(recorded)
        names = ("reward", "sampled_reward", "model_error", "violation", "positive_violation")
        for name, total in zip(names, totals, strict=True):
            np.testing.assert_allclose(sums[name].value, total, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(recorded.multipliers, after.dual.multipliers, atol=1e-12)
        assert float(recorded.largest_loss) == pytest.approx(largest_loss, abs=1e-12)
        assert float(recorded.largest_multiplier) == pytest.approx(largest, abs=1e-12)
        assert int(recorded.epoch) == int(after.primal.visits.epoch)
        assert float(recorded.radius) == pytest.approx(radius, abs=1e-12)
        for i in (0, 1):
            sums = np.cumsum([0, *np.array(dual_terms)[:, i]])
            worst = max(sums[b] - sums[a] for a in range(t + 1) for b in range(a + 1, t + 2))
            assert float(recorded.dual.value[i]) == pytest.approx(worst, abs=1e-9)
    assert np.abs(np.asarray(state.primal.confidence.center) - P).max() > 0.01
    assert bool(history.all_converged)
    assert float(history.metrics.residual[-1]) <= 1e-9
    assert float(history.metrics.infeasibility[-1]) <= 1e-8


def test_the_worst_interval_is_the_largest_sum_of_any_interval():
    terms = np.random.default_rng(0).normal(size=(40, 3))
    worst = Worst.none(3, float)
    for t, row in enumerate(terms):
        worst = worst.add(jnp.asarray(row))
        sums = np.concatenate([np.zeros((1, 3)), np.cumsum(terms[: t + 1], 0)])
        slow = [
            max(sums[b, i] - sums[a, i] for a in range(t + 1) for b in range(a + 1, t + 2))
            for i in range(3)
        ]
        np.testing.assert_allclose(worst.value, slow, atol=1e-12)


def test_infeasibility_sees_what_a_projection_on_the_wrong_set_would_give(cmdp, learner):
    """Whatever the solver says of itself."""
    honest = learner

    def shifted(amount):
        def update(state, trajectory, outcome):
            state, info = honest.update(state, trajectory, outcome)
            occupancy = state.primal.occupancy.at[1, 0, 0, 0].add(amount)
            return state._replace(primal=state.primal._replace(occupancy=occupancy)), info

        return Learner(honest.init, honest.policy, update, honest.setting)

    history = run(KEYS[0], cmdp, shifted(1e-3), 4)
    assert float(history.metrics.infeasibility[-1]) > 1e-4


def test_prefix_sums_are_recorded_for_adversaries_alone(cmdp):
    table = np.random.default_rng(0).uniform(size=(T, *cmdp.layers.shape))
    table = table * np.asarray(cmdp.layers.action_mask)
    mixed = CMDP(cmdp.mdp, processes.Table(table), cmdp.constraints)
    history = run(KEYS[0], mixed, learners.uniform(cmdp.layers), T, checkpoints=[7, 33])
    assert history.metrics.constraint_sum is None
    assert history.episode.tolist() == [7, 33, T]
    for k, t in enumerate((7, 33, T)):
        np.testing.assert_allclose(
            history.metrics.reward_sum.value[k], table[:t].sum(0), atol=1e-12
        )


def test_checkpoints_change_nothing_but_when_one_looks(cmdp, learner, history):
    sparse = run(KEYS[0], cmdp, learner, T, checkpoints=7)
    episodes = [int(t) for t in sparse.episode]
    assert episodes == [8, 17, 25, 34, 42, 51, 60]
    chosen = jax.tree.map(lambda x: x[np.array(episodes) - 1], history.metrics)
    chex.assert_trees_all_equal(sparse.metrics, chosen)
    chex.assert_trees_all_equal(sparse.policy, history.policy)


@pytest.mark.optimised
def test_a_run_of_halves_is_the_whole_run(cmdp, learner, history):
    half = jax.jit(advance)  # of the CMDP too, as in `run`: constants are folded, and round apart
    carry, player = start(KEYS[0], cmdp, learner), learner.as_pytree()
    for until in (23, 23, T):
        carry = half(carry, cmdp, player, until)
    chex.assert_trees_all_equal(carry.metrics, lane(history.metrics, -1))


# Batches, repeatability, memory, lowering.


def test_the_same_key_gives_the_same_bits(cmdp, learner, history):
    chex.assert_trees_all_equal(run(KEYS[0], cmdp, learner, T), history)
    other = run(KEYS[1], cmdp, learner, T)
    assert float(jnp.abs(other.reward - history.reward).max()) > 1e-3


def test_vmap_over_keys_equals_a_loop(cmdp, learner, history, batched):
    many = batched(KEYS, copies(cmdp), copies(learner.as_pytree()))
    assert many.reward.shape == (3, T)
    chex.assert_trees_all_close(lane(many, 0), history, atol=1e-7)
    single = run(KEYS[2], cmdp, learner, T)
    chex.assert_trees_all_close(lane(many, 2), single, atol=1e-7)
    chex.assert_trees_all_equal(batched(KEYS, copies(cmdp), copies(learner.as_pytree())), many)


def test_vmap_over_settings_equals_a_loop(cmdp, player, batched):
    settings = [(0.5, 0.1, 0.1), (0.2, 0.3, 0.1), (1.0, 0.01, 0.9)]
    players = [
        player(cmdp.layers, 1, T, confidence_scale=scale, rates=(3.0, eta), delta=delta).as_pytree()
        for scale, eta, delta in settings
    ]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *players)
    many = batched(copies(KEYS[0]), copies(cmdp), together)
    for i, one in enumerate(players):
        chex.assert_trees_all_close(lane(many, i), run(KEYS[0], cmdp, one, T), atol=1e-7)
    traced = jax.jit(jax.vmap(lambda eta: pdgd_ops(cmdp.layers, 1, T, rates=(3.0, eta))))
    np.testing.assert_allclose(traced(jnp.asarray([0.1, 0.2])).setting.rates.dual, [0.1, 0.2])


@pytest.mark.slow
def test_vmap_over_stacked_instances_equals_a_loop(history, player, cmdp):
    """Instances of different sizes, padded to one shape: each runs as if alone."""
    instances = [cmdp, make("random", sizes=(1, 2, 1), num_actions=2, seed=1)]
    both = stack(instances)

    def one(cmdp, key):
        return run(key, cmdp, player(cmdp.layers, 1, T, confidence_scale=0.5), T)

    many = jax.jit(jax.vmap(one, in_axes=(0, None)))(both, KEYS[0])
    chex.assert_trees_all_close(lane(many.metrics, 0), history.metrics, atol=1e-7)
    small = instances[1]
    alone = run(KEYS[0], small, player(small.layers, 1, T, confidence_scale=0.5), T)
    chex.assert_trees_all_close(many.reward[1], alone.reward, atol=1e-7)
    chex.assert_trees_all_close(many.violation[1], alone.violation, atol=1e-7)
    chex.assert_trees_all_close(many.multipliers[1], alone.multipliers, atol=1e-7)
    np.testing.assert_array_equal(many.metrics.epoch[1], alone.metrics.epoch)


def test_another_setting_or_key_or_horizon_does_not_recompile(cmdp, player, history):
    before = _run._cache_size()
    run(KEYS[2], cmdp, player(cmdp.layers, 1, T, delta=0.3, rates=(9.0, 0.7)), T)
    longer = run(KEYS[2], cmdp, player(cmdp.layers, 1, 3 * T), 3 * T, checkpoints=T)
    assert longer.episode[-1] == 3 * T
    assert _run._cache_size() == before


@pytest.mark.slow
def test_memory_does_not_grow_with_the_run(cmdp, player):
    """The compiled program of a run a thousand times as long needs the same memory."""

    def program(num_episodes):
        learner = player(cmdp.layers, 1, num_episodes)
        compiled = jax.jit(lambda key: run(key, cmdp, learner, num_episodes, checkpoints=20))
        return compiled.lower(KEYS[0]).compile().memory_analysis()

    short, long = program(1000), program(1_000_000)
    assert long.temp_size_in_bytes == short.temp_size_in_bytes
    assert long.output_size_in_bytes == short.output_size_in_bytes


def test_lowers_for_every_platform(cmdp):
    learner = pdgd_ops(cmdp.layers, 1, T)  # with the real projection

    def seeds(keys):
        return jax.vmap(lambda key: run(key, cmdp, learner, T).reward)(
            jax.vmap(jax.random.wrap_key_data)(keys)
        )

    data = jax.vmap(jax.random.key_data)(KEYS)
    exported = jax.export.export(jax.jit(seeds), platforms=["cpu", "cuda", "tpu"])(data)
    assert exported.platforms == ("cpu", "cuda", "tpu")
    assert "callback" not in exported.mlir_module()


def test_float32_runs():
    """With the real projection, whose tolerance is another one."""
    with jax.enable_x64(False):
        cmdp = make("random", **OPTIONS)
        history = run(KEYS[0], cmdp, pdgd_ops(cmdp.layers, 1, T, confidence_scale=0.5), T)
        assert history.reward.dtype == jnp.float32
        assert bool(history.all_converged)
        assert float(history.metrics.residual[-1]) <= 1e-6
        chex.assert_tree_all_finite(history.reward)


@pytest.mark.slow
@pytest.mark.optimised
def test_float32_stays_close_over_many_episodes():
    """40,000 episodes; trajectories part after a while, as in any chaotic system, so averages."""

    def ends():
        cmdp = make("random", **OPTIONS)
        T = 40_000
        learner = pdgd_ops(cmdp.layers, 1, T, confidence_scale=0.3)
        keys = jax.random.split(jax.random.key(1), 4)
        many = jax.jit(jax.vmap(lambda key: run(key, cmdp, learner, T, checkpoints=5)))(keys)
        chex.assert_tree_all_finite((many.reward, many.violation, many.multipliers))
        assert bool(many.all_converged.all())
        return np.array([many.reward[:, -1].mean(), many.violation[:, -1].mean()]) / T

    exact = ends()
    with jax.enable_x64(False):
        single = ends()
    # Seeds differ from each other by about 1e-3 per episode at such lengths.
    np.testing.assert_allclose(single, exact, atol=5e-3)


# Loud and early.


@pytest.mark.slow
def test_a_process_that_leaves_its_range_is_not_a_plausible_number(cmdp):
    @processes.pytree
    class Growing(processes.AdversarialProcess):
        base: jax.Array

        def draw(self, key, state, episode, policy):
            return self.base + 0.1 * episode, state

    wild = CMDP(cmdp.mdp, Growing(jnp.zeros(cmdp.layers.shape)), cmdp.constraints)
    history = run(KEYS[0], wild, pdgd_ops(cmdp.layers, 1, 30), 30)  # the real projection
    assert np.isfinite(history.reward[8])
    assert np.isnan(history.reward[-1])
    assert not bool(history.all_converged)


def test_an_unconverged_projection_is_counted(cmdp):
    """A solver that gives up is recorded, episode by episode."""
    honest = pdgd_ops(cmdp.layers, 1, T, solver=QUICK)

    def update(state, trajectory, outcome):
        state, info = honest.update(state, trajectory, outcome)
        lazy = info.projection._replace(converged=jnp.zeros((), bool))
        return state, info._replace(projection=lazy)

    history = run(KEYS[0], cmdp, Learner(honest.init, honest.policy, update, honest.setting), 4)
    assert history.metrics.unconverged.tolist() == [1, 2, 3, 4]


def test_bad_input_is_refused_before_anything_compiles(unchecked, cmdp, learner):
    def refused(sentence, cmdp=cmdp, learner=learner, num_episodes=T, **options):
        with pytest.raises(ValueError, match=sentence):
            run(KEYS[0], cmdp, learner, num_episodes, **options)

    refused("num_episodes must be a whole number, at least 1; got 0", num_episodes=0)
    refused("num_episodes must be a whole number, at least 1; got 1.5", num_episodes=1.5)
    refused("built for 60 episodes, fewer than the 61 to run", num_episodes=61)
    refused("checkpoints must be at least 1; got 0", checkpoints=0)
    refused("increasing episodes between 1 and 60", checkpoints=[5, 5])
    refused("increasing episodes between 1 and 60", checkpoints=[5, 61])
    other = make("random", sizes=(1, 2, 2, 2, 1), num_actions=2)
    refused("built for layers of shape .*cmdp.layers", cmdp=other)
    masked = make("random", sizes=(1, 3, 2, 1), num_actions=2)
    refused(r"built for Layers\(sizes=\(1, 3, 3, 1\).*cmdp.layers", cmdp=masked)
    more = make("random", **OPTIONS, num_constraints=2)
    refused("built for 1 constraints, the CMDP has 2", cmdp=more)
    table = np.zeros((10, *cmdp.layers.shape))
    short = CMDP(cmdp.mdp, processes.Table(table), cmdp.constraints)
    refused("the table of rewards has 10 episodes, fewer than the 60 to run", cmdp=short)
    shapeless = Learner(lambda key: (), lambda state: jnp.zeros(3), learner.update)
    refused(r"policy must have the shape \[L, S, A\]", learner=shapeless)


def test_checkpoint_episodes_end_with_the_run():
    assert checkpoint_episodes(5, 200) == (1, 2, 3, 4, 5)
    assert checkpoint_episodes(1000, 3) == (333, 666, 1000)
    assert checkpoint_episodes(1000, np.array([10, 1000])) == (10, 1000)


# What the theory says of special cases.


@pytest.mark.slow
def test_with_constraints_that_always_hold_it_is_the_primal_player(cmdp):
    """All costs -1: the multipliers stay 0, and PDGD-OPS does what UC-O-GDPS does."""
    free = CMDP(cmdp.mdp, cmdp.rewards, -np.asarray(cmdp.layers.action_mask, float)[None])
    both = run(KEYS[0], free, pdgd_ops(cmdp.layers, 1, T, confidence_scale=0.5), T)
    alone = run(KEYS[0], free, uc_o_gdps(cmdp.layers, T, confidence_scale=0.5), T)
    assert float(jnp.abs(both.multipliers).max()) == 0
    np.testing.assert_allclose(both.reward, alone.reward, atol=1e-9)
    np.testing.assert_allclose(both.violation[:, 0], -3 * np.arange(1, T + 1), atol=1e-9)


@pytest.mark.slow
def test_with_known_transitions_it_finds_the_optimum():
    """Radius 0 around the true P: no estimation error is left but that of the first visits."""
    cmdp = make("random", **OPTIONS)
    T = 4000
    honest = pdgd_ops(cmdp.layers, 1, T)
    known = ConfidenceSet(cmdp.mdp.transition, jnp.zeros(cmdp.layers.shape))

    def init(key):
        state = honest.init(key)
        q = occupancy_of(cmdp.mdp, cmdp.layers.uniform_policy())
        return state._replace(primal=state.primal._replace(confidence=known, occupancy=q))

    def update(state, trajectory, outcome):
        # No pair doubles if none is counted, so that the set stays what it was.
        nowhere = trajectory._replace(actions=jnp.full_like(trajectory.actions, -1))
        return honest.update(state, nowhere, outcome)

    informed = Learner(init, honest.policy, update, honest.setting)
    history = run(KEYS[0], cmdp, informed, T, comparators=comparators_of(cmdp, T))
    result = evaluate(history, cmdp)
    assert float(history.model_error[-1]) < 1e-5 * T
    assert int(history.metrics.epoch[-1]) == 1
    # The sum of the two players' bounds, and what chance adds to rewards and costs.
    noise = 4 * 3 * np.sqrt(T)
    descent = result.certificate("primal descent regret")
    dual = result.certificate("dual interval regret")
    assert str(descent.status) == str(dual.status) == "holds"
    assert float(result.regret[-1]) <= float(descent.bound) + float(dual.bound) + noise
    best = float(result.opt[-1])
    assert float(history.reward[-1]) / T == pytest.approx(best, abs=0.1)


@pytest.mark.slow
@pytest.mark.optimised
def test_the_primal_player_alone_has_sublinear_regret_on_switching_losses():
    """Against the best fixed policy: at 16 times the horizon less than 8 times the regret."""

    cmdp = make("random", **OPTIONS, rewards="phases")
    keys = jax.random.split(jax.random.key(3), 4)

    def regret(T):
        learner = uc_o_gdps(cmdp.layers, T, confidence_scale=0.3)
        # Without a `jit` around it `run` takes the learner as an argument: one program for both.
        many = jax.vmap(lambda key: run(key, cmdp, learner, T, checkpoints=1))(keys)
        average = np.asarray(many.metrics.reward_sum.value[0, -1]) / T
        best = oracle.optimum(cmdp.mdp, average)
        return T * best.value - float(many.reward[:, -1].mean())

    short, long = regret(1000), regret(16_000)
    assert long < 8 * max(short, 1.0)
    assert long / 16_000 < 0.1


def test_values_of_policies_need_no_run(cmdp):
    reward = cmdp.rewards.mean()
    q = occupancy_of(cmdp.mdp, cmdp.layers.uniform_policy())
    history = run(
        KEYS[0],
        CMDP(cmdp.mdp, np.asarray(reward), np.asarray(cmdp.constraints.mean())),
        learners.uniform(cmdp.layers),
        T,
    )
    assert float(history.reward[-1]) == pytest.approx(T * float(value_of(reward, q)), rel=1e-12)
    assert Comparators.default(cmdp).multipliers.tolist() == [[0.0], [1.0]]
