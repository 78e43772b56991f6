"""PDGD-OPS against its NumPy twin, and the contract of every learner."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pdgd_jax import (
    Outcome,
    Trajectory,
    learners,
    make,
    occupancy_of,
    oracle,
    pdgd_ops,
    rollout,
    uc_o_gdps,
    value_of,
)
from pdgd_jax.learners.primal_dual import _dual as dual
from pdgd_jax.models import Layers
from pdgd_jax.projection.newton import NewtonOptions, make_solver
from tests.graphs import SHAPES, draw_graph
from tests.quick import QUICK
from tests.reference.pdgd_ops import Episode, PrimalTwin, Twin, pair_mask, random_transition


def biased_episode(rng, policy, transition, mask, m):
    """Rewards that go with costs which are mostly positive, so that the multipliers work."""
    L, S, A = policy.shape
    states, actions, following = np.zeros((3, L), int)
    for k in range(L):
        states[k] = following[k - 1] if k else 0
        actions[k] = rng.choice(A, p=policy[k, states[k]])
        following[k] = rng.choice(S, p=transition[k, states[k], actions[k]])
    rewards = rng.uniform(size=mask.shape) * mask
    costs = np.clip(rewards[None] - 0.3 + rng.normal(0, 0.3, (m, *mask.shape)), -1, 1) * mask
    return Episode(states, actions, following, rewards, costs)


def observed(episode):
    """What the package's learners see of an episode."""
    last = episode.next_states[-1:]
    states = np.concatenate([episode.states, last]).astype(np.int32)
    trajectory = Trajectory(jnp.asarray(states), jnp.asarray(episode.actions.astype(np.int32)))
    return trajectory, Outcome(jnp.asarray(episode.rewards), jnp.asarray(episode.constraints))


# A learner is an argument, so that tests with the same shapes share one compiled program.
STEP = jax.jit(lambda learner, *arguments: learner.update(*arguments))
POLICY = jax.jit(lambda learner, state: learner.policy(state))

TWINS = [
    pytest.param((1, 3, 3, 1), 2, 1, "tuned", 1.0, id="small"),
    pytest.param((1, 3, 3, 1), 2, 3, "tuned", 0.3, marks=pytest.mark.slow, id="three constraints"),
    pytest.param((1, 4, 4, 4, 1), 3, 3, "tuned", 0.3, marks=pytest.mark.slow, id="larger"),
    pytest.param((1, 2, 4, 1), 2, 3, "theory", 0.1, marks=pytest.mark.slow, id="theory rates"),
    pytest.param((1, 3, 3, 1), 2, 1, (0.7, 0.05), 0.2, marks=pytest.mark.slow, id="own rates"),
    pytest.param((1, 5, 2, 3, 1), 2, 1, "tuned", 0.5, marks=pytest.mark.slow, id="uneven"),
]


@pytest.mark.optimised
@pytest.mark.parametrize(("sizes", "num_actions", "m", "rates", "scale"), TWINS)
def test_pdgd_ops_equals_its_twin(sizes, num_actions, m, rates, scale):
    T, settings = 300, {"delta": 0.1, "rates": rates, "confidence_scale": scale}
    rng = np.random.default_rng(0)
    transition = random_transition(rng, sizes, num_actions)
    twin = Twin(sizes, num_actions, m, T, **settings)
    learner = pdgd_ops(Layers.from_sizes(sizes, num_actions), m, T, **settings)
    in_lock_step(rng, twin, [learner], transition, 0 if rates == "theory" else 0.1)


def frozen_lake():
    """Four steps on ice: FrozenLake 4 x 4, since the twin takes seconds for an episode of 8 x 8."""
    mdp = make("gymnasium", env="FrozenLake-v1", horizon=4, budget=0.05, support="known").mdp
    return mdp.layers, mdp.layers.to_dense(mdp.transition)


def sparse_graph():
    """Any number of next states, and pairs that do not exist."""
    rng = np.random.default_rng(1)
    sizes, _ = SHAPES["random"]
    layers = Layers.from_successors(sizes, draw_graph(rng, "random"))
    weights = jnp.asarray(rng.exponential(size=layers.triple_shape)) * layers.triple_mask
    return layers, layers.to_dense(weights / layers.to_triples(layers.to_pairs(weights)).clip(1e-9))


KNOWN = {"frozen lake": frozen_lake, "sparse graph": sparse_graph}
WAYS = {
    "lists alone": NewtonOptions(dense_variables=0),
    "dense with a mask": NewtonOptions(dense_variables=10**6),
}


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize("instance", KNOWN)
def test_pdgd_ops_with_a_known_support_equals_its_twin(instance):
    """Both ways beside one twin, which takes most of the time."""
    layers, transition = KNOWN[instance]()
    T, m, settings = 300, 2, {"delta": 0.1, "rates": "tuned", "confidence_scale": 0.3}
    support = np.asarray(layers.to_dense(layers.triple_mask))
    twin = Twin(layers.sizes, layers.shape[2], m, T, support=support, **settings)
    ways = [pdgd_ops(layers, m, T, solver=make_solver(way), **settings) for way in WAYS.values()]
    in_lock_step(np.random.default_rng(0), twin, ways, np.asarray(transition))


def in_lock_step(rng, twin, learners, transition, least=0.1):
    """300 episodes, fed the same: 1e-6 as the projections' 1e-9 are amplified by 40 at most."""
    m, T = len(twin.multipliers), twin.primal.num_episodes
    states = [learner.init(jax.random.key(0)) for learner in learners]
    largest = 0.0
    for _ in range(T):
        for learner, state in zip(learners, states, strict=True):
            same_before(twin, learner, state)
        episode = biased_episode(rng, twin.policy, transition, twin.primal.pairs, m)
        twin.update(episode)
        for i, learner in enumerate(learners):
            states[i], info = STEP(learner, states[i], *observed(episode))
            assert bool(info.projection.converged)
            same_after(twin, learner, states[i])
        largest = max(largest, float(twin.multipliers.max()))
    assert twin.epoch > 10
    assert largest > least  # else the dual player was not tested


def same_before(twin, learner, state):
    """What is about to be played."""
    occupancy = learner.setting.layers.to_dense(state.primal.occupancy)
    np.testing.assert_allclose(occupancy, twin.occupancy, atol=1e-6)
    np.testing.assert_allclose(state.dual.multipliers, twin.multipliers, atol=1e-6)
    likely = twin.occupancy.sum((2, 3)) > 1e-3  # elsewhere the quotient amplifies too much
    policy = np.asarray(POLICY(learner, state))
    np.testing.assert_allclose(policy[likely], twin.policy[likely], atol=1e-3)


def same_after(twin, learner, state):
    """What was counted, estimated and decided."""
    layers = learner.setting.layers
    visits, confidence = state.primal.visits, state.primal.confidence
    np.testing.assert_array_equal(visits.pairs, twin.pair_counts)
    np.testing.assert_array_equal(layers.to_dense(visits.triples), twin.triple_counts)
    assert int(visits.epoch) == twin.epoch
    # Above 2 a radius allows everything; its size is then of no consequence.
    np.testing.assert_allclose(
        np.minimum(confidence.radius, 2), np.minimum(twin.radius, 2), rtol=1e-12
    )
    np.testing.assert_allclose(layers.to_dense(confidence.center), twin.center, atol=1e-12)
    assert float(state.primal.largest_loss) == pytest.approx(twin.largest_loss, abs=1e-6)
    constants = learner.setting.rates
    size = 1 / (state.primal.largest_loss * constants.primal * np.sqrt(twin.primal.num_episodes))
    assert float(size) == pytest.approx(twin.primal_step_size, rel=1e-6)
    assert float(constants.dual) == pytest.approx(twin.dual_step_size, rel=1e-12)


@pytest.mark.slow
@pytest.mark.optimised
def test_the_primal_player_alone_equals_its_twin():
    """Losses that switch between two opposite ones, given from outside."""
    sizes, num_actions, T = (1, 3, 3, 1), 2, 120
    layers = Layers.from_sizes(sizes, num_actions)
    rng = np.random.default_rng(1)
    transition = random_transition(rng, sizes, num_actions)
    base = rng.uniform(-1, 1, layers.shape) * pair_mask(sizes, num_actions)
    twin = PrimalTwin(sizes, num_actions, T, delta=0.05, rates="tuned", confidence_scale=0.3)
    learner = uc_o_gdps(
        layers, T, confidence_scale=0.3, loss=lambda outcome: outcome.constraints[0]
    )
    learner, state = learner.as_pytree(), learner.init(jax.random.key(0))
    for t in range(T):
        loss = base if (t // 30) % 2 == 0 else -base
        played = biased_episode(rng, twin.policy, transition, twin.pairs, 1)
        twin.update(played.states, played.actions, played.next_states, loss)
        trajectory, outcome = observed(played)
        switched = outcome._replace(constraints=jnp.asarray(loss)[None])
        state, _ = STEP(learner, state, trajectory, switched)
        np.testing.assert_allclose(state.occupancy, twin.occupancy, atol=1e-6)


# The contract.

T = 50


def learner_named(name, cmdp):
    """By its registered name, or PDGD-OPS with another dual player."""
    if name == WITH_ADAM:
        return pdgd_ops(cmdp.layers, cmdp.num_constraints, T, dual_optimizer=optax.adam)
    return learners.make_learner(name, cmdp, T)


WITH_ADAM = "pdgd-ops with adam"
FAST = ("pdgd-ops", "ucpd", "uniform", "best-feasible", "most-feasible")
NAMES = [
    name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
    for name in (*learners.registered_learners(), WITH_ADAM)
]


def as_numbers(path, leaf):
    """Of a zero, the logarithm is minus infinity; of any other number it is finite."""
    return jnp.exp(leaf) if jax.tree_util.keystr(path).endswith(".log_occupancy") else leaf


@pytest.mark.parametrize("name", NAMES)
def test_contract(name):
    """State keeps its structure, policies are policies, nothing is traced twice."""
    cmdp = make("random", sizes=(1, 3, 3, 1), num_actions=2)
    learner = learner_named(name, cmdp).as_pytree()
    traces = STEP._cache_size()
    state = learner.init(jax.random.key(0))
    processes = cmdp.init(jax.random.key(1))
    mask = np.asarray(cmdp.layers.action_mask)
    for t in range(12):
        policy = POLICY(learner, state)
        assert policy.shape == cmdp.layers.shape
        assert np.all(np.asarray(policy)[~mask] == 0)
        np.testing.assert_allclose(policy.sum(-1), mask.any(-1), atol=1e-12)
        key = jax.random.fold_in(jax.random.key(2), t)
        outcome, processes = cmdp.draw(key, processes, t, policy)
        trajectory = rollout(key, cmdp.mdp, policy)
        following, info = STEP(learner, state, trajectory, outcome)
        chex.assert_trees_all_equal_shapes_and_dtypes(state, following)
        chex.assert_tree_all_finite(jax.tree.map_with_path(as_numbers, (following, info)))
        state = following
    assert STEP._cache_size() <= traces + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pdgd-ops", "uc-o-gdps", "uc-o-reps", "uniform"])
def test_jit_equals_eager(name):
    cmdp = make("random", sizes=(1, 3, 3, 1), num_actions=2)
    learner = learner_named(name, cmdp).as_pytree()
    state = learner.init(jax.random.key(0))
    policy = learner.policy(state)
    outcome, _ = cmdp.draw(jax.random.key(1), cmdp.init(jax.random.key(1)), 0, policy)
    arguments = (state, rollout(jax.random.key(2), cmdp.mdp, policy), outcome)
    chex.assert_trees_all_close(learner.update(*arguments), STEP(learner, *arguments), atol=1e-8)


def test_a_learner_is_a_pytree_of_its_settings():
    layers = Layers.from_sizes((1, 3, 1), 2)
    first = pdgd_ops(layers, 1, T, delta=0.1, rates=(2.0, 0.1)).as_pytree()
    second = pdgd_ops(layers, 1, T, delta=0.2, rates=(3.0, 0.2)).as_pytree()
    assert jax.tree.structure(first) == jax.tree.structure(second)
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), first, second)
    np.testing.assert_allclose(both.setting.rates.dual, [0.1, 0.2])


# What the numbers are.


def test_rates_are_those_of_the_design():
    layers = Layers.from_sizes((1, 4, 4, 4, 1), 3)
    L, m, T, delta = 4, 2, 1000, 0.05
    triples = 3 * 4 + 4 * 3 * 4 + 4 * 3 * 4 + 4 * 3
    theory = learners.rates_of("theory", layers, m, T, delta)
    assert float(theory.primal) == pytest.approx(5 * triples / L)
    logarithm = np.log(T**2 / delta)
    assert float(theory.dual) == pytest.approx(
        1 / (50 * m * max(2 * triples, L) * np.sqrt(T * logarithm))
    )
    tuned = learners.rates_of("tuned", layers, m, T, delta)
    assert float(tuned.primal) == pytest.approx(np.sqrt(triples / (2 * L)))
    assert float(tuned.dual) == pytest.approx(1 / (L * np.sqrt(m * T)))
    # Tuned constants minimise the bounds: to the left and the right of them both are larger.
    for factor in (0.9, 1.1):
        C, eta = factor * float(tuned.primal), factor * float(tuned.dual)
        assert L * C + triples / (2 * C) > 2 * np.sqrt(L * triples / 2)
        assert 1 / (2 * eta) + eta * m * L**2 * T / 2 > L * np.sqrt(m * T)


def test_rates_do_not_depend_on_padding():
    layers = Layers.from_sizes((1, 3, 2, 1), 2)
    for name in learners.RATES:
        plain = learners.rates_of(name, layers, 1, 100, 0.1)
        padded = learners.rates_of(name, layers.pad_to((6, 5, 4)), 1, 100, 0.1)
        np.testing.assert_allclose(plain, padded, rtol=1e-14)


def test_no_step_is_taken_while_every_loss_was_zero():
    layers = Layers.from_sizes((1, 3, 3, 1), 2)
    learner = pdgd_ops(layers, 1, 300)
    state = learner.init(jax.random.key(0))
    nothing = Outcome(jnp.zeros(layers.shape), jnp.zeros((1, *layers.shape)))
    trajectory = Trajectory(jnp.zeros(4, jnp.int32), jnp.zeros(3, jnp.int32))
    following, info = STEP(learner, state, trajectory, nothing)
    assert float(following.primal.largest_loss) == 0
    np.testing.assert_allclose(following.primal.occupancy, state.primal.occupancy, atol=1e-9)
    assert bool(info.projection.converged)


def test_multipliers_stop_at_their_ceiling_and_at_zero():
    layers = Layers.from_sizes((1, 3, 3, 1), 2)
    learner = pdgd_ops(layers, 3, 300, rates=(1.0, 100.0), solver=QUICK)
    state = learner.init(jax.random.key(0))
    costs = jnp.asarray([1.0, -1.0, 0.0])[:, None, None, None] * layers.action_mask[None]
    trajectory = Trajectory(jnp.zeros(4, jnp.int32), jnp.zeros(3, jnp.int32))
    state, _ = STEP(learner, state, trajectory, Outcome(jnp.zeros(layers.shape), costs))
    np.testing.assert_allclose(state.dual.multipliers, [300**0.25, 0, 0], atol=1e-12)


def test_multipliers_are_summed_right_in_float32():
    """A million steps of a few units in the last place: without what was lost, 0.7% off."""
    with jax.enable_x64(False):
        layers, T, step = Layers.from_sizes((1, 1), 1), 10**6, 1e-6
        outcome = Outcome(jnp.zeros(layers.shape), jnp.full((1, *layers.shape), 0.3))
        occupancy = jnp.ones((*layers.shape, 1))
        optimizer = optax.sgd(jnp.asarray(step, jnp.float32))

        @jax.jit
        def ascend(state):
            def body(_, state):
                return dual.update(
                    optimizer, state, outcome, occupancy, dual.Box(jnp.asarray(T, float))
                )

            return jax.lax.fori_loop(0, T, body, state)

        found = ascend(dual.init(optimizer, 1, jnp.float32))
        assert found.multipliers.dtype == jnp.float32
        each = float(np.float32(step) * np.float32(0.3))
        assert float(found.multipliers[0]) == pytest.approx(T * each, rel=1e-6)
        # At the ceiling nothing is lost that could be found again below it.
        at_top = dual.State(jnp.asarray([T**0.25]), found.lost, found.optimizer)
        assert float(ascend(at_top).lost[0]) == 0


def test_fixed_learners_play_what_they_say():
    cmdp = make("random")
    reward, costs = cmdp.rewards.mean(), cmdp.constraints.mean()

    def values(learner):
        q = occupancy_of(cmdp.mdp, learner.policy(()))
        return float(value_of(reward, q)), float(value_of(costs, q)[0])

    best = oracle.optimum(cmdp.mdp, reward, costs)
    earned, cost = values(learners.best_feasible(cmdp, T))
    assert earned == pytest.approx(best.value, abs=1e-8)
    assert cost <= 1e-8
    margin = oracle.slater_margin(cmdp.mdp, costs)
    assert values(learners.most_feasible(cmdp))[1] == pytest.approx(-margin.rho, abs=1e-8)
    np.testing.assert_allclose(
        learners.uniform(cmdp.layers).policy(()), cmdp.layers.uniform_policy()
    )


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_episodes": 0}, "num_episodes must be a whole number, at least 1; got 0"),
        ({"num_episodes": 10.5}, "num_episodes must be a whole number"),
        ({"num_constraints": 0}, "num_constraints must be a whole number, at least 1"),
        ({"delta": 0.0}, "delta must lie strictly between 0 and 1; got 0.0"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1"),
        ({"delta": float("nan")}, "delta must lie strictly between 0 and 1"),
        ({"confidence_scale": -1.0}, "confidence_scale must be finite and at least 0"),
        ({"rates": "fast"}, "unknown rates 'fast'; they are 'theory', 'tuned', or a pair"),
        ({"rates": 3.0}, "or a pair \\(C, eta\\) of positive numbers; got 3.0"),
        ({"rates": (1.0, -1.0)}, "the rate eta must be positive and finite; got -1.0"),
        ({"solver": "magic"}, "unknown solver 'magic'"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(unchecked, arguments, sentence):
    layers = Layers.from_sizes((1, 2, 1), 2)
    settings = {"num_constraints": 1, "num_episodes": 10, **arguments}
    with pytest.raises(ValueError, match=sentence):
        pdgd_ops(layers, **settings)


def test_there_is_no_best_feasible_policy_of_an_infeasible_cmdp():
    cmdp = make("random")
    impossible = type(cmdp)(cmdp.mdp, cmdp.rewards, np.ones((1, *cmdp.layers.shape)) * 0.5)
    with pytest.raises(ValueError, match="no policy satisfies the constraints"):
        learners.best_feasible(impossible, 10)
