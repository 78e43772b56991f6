"""The rivals with full information against their twins, and what their papers reduce to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import Outcome, Trajectory, learners, make, oracle, pdgd_ops
from pdgd_jax.models import LayeredMDP, Layers
from tests.learners.test_learners import POLICY, STEP, biased_episode, observed
from tests.reference import rivals
from tests.reference.pdgd_ops import pair_mask, random_transition

SIZES, A = (1, 3, 3, 1), 2
DELTA, SCALE, RHO = 0.1, 0.3, 0.4


def mdp_of(transition, sizes=SIZES, num_actions=A):
    return LayeredMDP(Layers.from_sizes(sizes, num_actions), jnp.asarray(transition))


def unknown(learner, twin, *, constrained):
    """A learner that estimates transitions, and its twin."""

    def build(P, m, T):
        sizes = (m, T) if constrained else (T,)
        settings = {"delta": DELTA, "confidence_scale": SCALE}
        return learner(mdp_of(P).layers, *sizes, **settings), twin(SIZES, A, m, T, **settings)

    return build


def known(learner, twin, *, constrained=True, settings=None, **of_twin):
    """A learner that knows them, and its twin."""

    def build(P, m, T):
        sizes = (m, T) if constrained else (T,)
        theirs = twin(SIZES, A, m, T, transition=P, **of_twin)
        return learner(mdp_of(P), *sizes, **(settings or {})), theirs

    return build


def pdgd_ops_known(P, m, T):
    rates = (0.7, 0.05)
    twin = rivals.KnownPDGDOPS(SIZES, A, m, T, transition=P)
    twin.step_constant, twin.dual_eta = rates
    return pdgd_ops(mdp_of(P).layers, m, T, rates=rates, transition=jnp.asarray(P)), twin


PAIRS = {
    "uc-o-reps": unknown(learners.uc_o_reps, rivals.UCOREPS, constrained=False),
    "ucpd": unknown(learners.ucpd, rivals.UCPD, constrained=True),
    "o-reps": known(learners.o_reps, rivals.OREPS, constrained=False),
    "wei-yu-neely": known(learners.wei_yu_neely, rivals.WeiYuNeely),
    "cold": known(learners.cold, rivals.COLD),
    "pdgd-ops-known": pdgd_ops_known,
    "unifying": known(learners.unifying, rivals.Unifying, settings={"rho": RHO}, rho=RHO),
    "unifying, euclidean": known(
        learners.unifying,
        rivals.Unifying,
        settings={"rho": RHO, "mirror": "euclidean"},
        rho=RHO,
        entropic=False,
    ),
}
QUICK = {("ucpd", 1), ("wei-yu-neely", 1)}


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("name", "m", "T"),
    [pytest.param(name, m, 300, marks=pytest.mark.slow) for name in PAIRS for m in (1, 3)]
    + [(name, m, 30) for name, m in sorted(QUICK)],
)
def test_it_equals_its_twin(name, m, T):
    """Fed the same: 1e-6, as projections' 1e-9 are amplified by at most 100 in 300 episodes."""
    rng = np.random.default_rng(m)
    P = random_transition(rng, SIZES, A)
    learner, twin = PAIRS[name](P, m, T)
    mask = pair_mask(SIZES, A)
    state, largest, furthest = learner.init(jax.random.key(0)), 0.0, 0.0
    for _ in range(T):
        occupancy = getattr(state, "primal", state).occupancy
        theirs = twin.occupancy.sum(3) if twin.occupancy.ndim == 4 else twin.occupancy
        np.testing.assert_allclose(occupancy.sum(3), theirs, atol=1e-6)
        likely = theirs.sum(2) > 1e-3  # elsewhere the quotient amplifies too much
        policy, of_twin = np.asarray(POLICY(learner, state)), twin.policy()
        np.testing.assert_allclose(policy[likely], of_twin[likely], atol=1e-3)
        furthest = max(furthest, np.abs(of_twin - mask / A).max())
        episode = biased_episode(rng, twin.policy(), P, mask, m)
        state, info = STEP(learner, state, *observed(episode))
        twin.update(episode)
        assert bool(info.projection.converged)
        if info.multipliers is not None:
            np.testing.assert_allclose(info.next_multipliers, twin.multipliers, atol=1e-6)
            largest = max(largest, float(info.next_multipliers.max()))
    assert furthest > 0.02  # else it did not learn
    assert info.multipliers is None or largest > 0.02  # else the dual player was not tested


# What the updates reduce to.

HEDGE = {
    "uc-o-reps": lambda layers, P, T, eta: learners.uc_o_reps(layers, T, eta=eta),
    "uc-o-reps, small radius": lambda layers, P, T, eta: learners.uc_o_reps(
        layers, T, eta=eta, confidence_scale=0.01
    ),
    "o-reps": lambda layers, P, T, eta: learners.o_reps(LayeredMDP(layers, P), T, eta=eta),
}


@pytest.mark.parametrize("name", HEDGE)
def test_with_one_layer_it_is_hedge(name):
    """Whatever the radius: nothing is unknown. Padded, as the other tests have this program."""
    layers = Layers.from_sizes((1, 1), A).pad_to((3, 3, 2))
    T, eta, rng = 20, 0.7, np.random.default_rng(0)
    learner = HEDGE[name](layers, layers.triple_mask.astype(float), T, eta)
    state, total = learner.init(jax.random.key(0)), np.zeros(A)
    trajectory = Trajectory(jnp.zeros(4, jnp.int32), jnp.zeros(3, jnp.int32))
    for _ in range(T):
        expected = np.exp(eta * total) / np.exp(eta * total).sum()
        np.testing.assert_allclose(POLICY(learner, state)[0, 0], expected, atol=1e-8)
        reward = np.zeros(layers.shape)
        reward[0, 0] = rng.uniform(size=A)
        total += reward[0, 0]
        outcome = Outcome(jnp.asarray(reward), jnp.zeros((1, *layers.shape)))
        state, _ = STEP(learner, state, trajectory, outcome)


def test_where_actions_do_not_matter_every_state_is_its_own_hedge():
    rng, T, eta = np.random.default_rng(1), 20, 0.4
    P = random_transition(rng, SIZES, A)
    P = np.repeat(P[:, :, :1], A, 2)
    learner, mask = learners.o_reps(mdp_of(P), T, eta=eta), pair_mask(SIZES, A)
    state, total = learner.init(jax.random.key(0)), np.zeros(mask.shape)
    for _ in range(T):
        weights = np.exp(eta * total) * mask
        expected = weights / np.maximum(weights.sum(2, keepdims=True), 1e-300)
        np.testing.assert_allclose(POLICY(learner, state)[mask], expected[mask], atol=1e-8)
        episode = biased_episode(rng, mask / A, P, mask, 1)
        total += episode.rewards
        state, _ = STEP(learner, state, *observed(episode))


def test_ucpd_without_mixing_and_costs_is_uc_o_reps():
    """With a horizon of one less, its radius has the same logarithm."""
    rng, T, layers = np.random.default_rng(2), 40, Layers.from_sizes(SIZES, A)
    P, mask = random_transition(rng, SIZES, A), pair_mask(SIZES, A)
    first = learners.uc_o_reps(layers, T, eta=0.2, confidence_scale=SCALE)
    second = learners.ucpd(layers, 1, T - 1, V=1, alpha=5, mixing=0, confidence_scale=SCALE)
    states = [learner.init(jax.random.key(0)) for learner in (first, second)]
    for _ in range(T):
        episode = biased_episode(rng, mask / A, P, mask, 1)
        episode.constraints[:] = -1.0 * mask
        episode.rewards[..., 1] *= 0.2
        states = [
            STEP(learner, state, *observed(episode))[0]
            for learner, state in zip((first, second), states, strict=True)
        ]
    np.testing.assert_allclose(states[0].occupancy, states[1].primal.occupancy, atol=1e-8)
    assert float(states[1].dual.multipliers[0]) == 0
    assert np.abs(np.asarray(states[0].occupancy.sum(3))[0, 0] - 0.5).max() > 0.02


def test_policies_come_from_logarithms():
    """A state with the mass e^-300, which single precision does not have, keeps its policy."""
    with jax.enable_x64(False):
        layers = Layers.from_sizes((1, 2, 1), 2)
        P = np.zeros((2, 2, 2, 2), np.float32)
        P[0, 0] = np.eye(2)  # the action chooses the state
        P[1, :, :, 0] = 1
        learner = learners.o_reps(LayeredMDP(layers, jnp.asarray(P)), 10, eta=1.0)
        state = learner.init(jax.random.key(0))
        reward = np.zeros((2, 2, 2), np.float32)
        reward[0, 0, 0], reward[1, 1, 0] = 300, 1
        trajectory = Trajectory(jnp.zeros(3, jnp.int32), jnp.zeros(2, jnp.int32))
        outcome = Outcome(jnp.asarray(reward), jnp.zeros((1, 2, 2, 2)))
        state, info = STEP(learner, state, trajectory, outcome)
        assert bool(info.projection.converged)
        assert float(state.occupancy[1, 1].sum()) == 0
        expected = 1 / (1 + np.exp(-1))
        np.testing.assert_allclose(POLICY(learner, state)[1, 1, 0], expected, rtol=1e-4)


# What a learner must know.


@pytest.mark.slow
@pytest.mark.optimised  # to share the program of its twin's test
def test_the_multipliers_of_unifying_stay_below_the_ceiling():
    rng, T, R = np.random.default_rng(3), 30, 0.5
    P, mask = random_transition(rng, SIZES, A), pair_mask(SIZES, A)
    learner = learners.unifying(mdp_of(P), 3, T, rho=RHO, ceiling=R, dual_step=0.2)
    state = learner.init(jax.random.key(0))
    sums = []
    for _ in range(T):
        episode = biased_episode(rng, mask / A, P, mask, 3)
        state, _ = STEP(learner, state, *observed(episode))
        assert float(state.dual.multipliers.min()) >= 0
        sums.append(float(state.dual.multipliers.sum()))
    assert max(sums) == pytest.approx(R, rel=1e-12)


def test_the_margin_is_that_of_the_cmdp_and_its_factor():
    cmdp = make("random", sizes=SIZES, num_actions=A)
    L, T = 3, 50
    rho = oracle.slater_margin(cmdp.mdp, cmdp.constraints).rho
    for factor in (1, 0.5, 10):
        learner = learners.make_learner("unifying", cmdp, T, rho_scale=factor)
        region = learner.update.args[0].region
        expected = min(L / (factor * rho), T**0.25)
        assert float(region.radius) == pytest.approx(expected, rel=1e-6)


def test_a_learner_that_needs_a_margin_is_refused_where_there_is_none():
    cmdp = make("random", sizes=SIZES, num_actions=A)
    strict = type(cmdp)(cmdp.mdp, cmdp.rewards, np.ones((1, *cmdp.layers.shape)) * 0.1)
    with pytest.raises(ValueError, match=r"must know a margin rho > 0, .* rho is -0\.3"):
        learners.make_learner("unifying", strict, 50)


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("uc-o-reps", {"eta": 0.0}, r"eta must be positive and finite; got 0\.0"),
        ("o-reps", {"eta": float("inf")}, "eta must be positive and finite"),
        ("ucpd", {"V": -1}, "V must be positive and finite; got -1"),
        ("ucpd", {"mixing": -0.1}, r"mixing must be at least 0 and below 1; got -0\.1"),
        ("ucpd", {"delta": 2.0}, "delta must lie strictly between 0 and 1"),
        ("unifying", {"rho": 0.0}, "rho must be positive and finite"),
        ("unifying", {"rho": 1.0, "mirror": "flat"}, "mirror must be one of entropic, euclidean"),
        ("unifying", {"rho": 1.0, "mirror": "euclid"}, "did you mean 'euclidean'"),
        ("cold", {"epsilon": 1.0}, "epsilon must lie strictly between 0 and 1; got 1.0"),
        ("wei-yu-neely", {"alpha": float("nan")}, "alpha must be positive and finite"),
    ],
)
def test_bad_constants_are_refused_in_a_sentence(unchecked, name, settings, sentence):
    cmdp = make("random", sizes=SIZES, num_actions=A)
    with pytest.raises(ValueError, match=sentence):
        learners.make_learner(name, cmdp, 10, **settings)
