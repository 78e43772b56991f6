"""The slow twins of the rivals do what can be said about them without any solver."""

import itertools

import numpy as np
import pytest

from tests.reference import mirror, rivals
from tests.reference.entropic import project_clarabel
from tests.reference.mirror import Ball, KnownTransitions, onto_l1_ball
from tests.reference.pdgd_ops import (
    Episode,
    PrimalTwin,
    pair_mask,
    random_episode,
    random_transition,
)

SIZES, A, M, T = (1, 3, 2, 1), 2, 2, 40
EXACT = 1e-9  # what projections are certified to


def play(learner, transition, sizes=SIZES, seed=0, num_episodes=T, constraints=None):
    """Plays a learner; yields the episode and the occupancy over pairs that was played in it."""
    rng = np.random.default_rng(seed)
    for _ in range(num_episodes):
        m = len(learner.multipliers)
        episode = random_episode(rng, learner.policy(), transition, sizes, m)
        if constraints is not None:
            episode.constraints = constraints * (episode.constraints != 0)
        before = learner.occupancy
        learner.update(episode)
        yield episode, before


def policies(sizes, num_actions):
    """All deterministic policies, [L, S, A]."""
    pairs = pair_mask(sizes, num_actions)
    states = np.argwhere(pairs.any(2))
    for actions in itertools.product(range(num_actions), repeat=len(states)):
        policy = np.zeros(pairs.shape)
        policy[(*states.T, actions)] = 1
        yield policy


def test_constants():
    transition = random_transition(np.random.default_rng(12), SIZES, A)
    ucpd = rivals.UCPD(SIZES, A, M, 16)
    assert (ucpd.V, ucpd.alpha, ucpd.mixing) == (3 * 4, 3 * 16, 1 / 16)
    drift = rivals.WeiYuNeely(SIZES, A, M, 16, transition=transition)
    assert (drift.V, drift.alpha) == (4, 16)
    cold = rivals.COLD(SIZES, A, M, 16, transition=transition)
    assert (cold.V, cold.alpha) == (8, 32)
    pdgd = rivals.KnownPDGDOPS(SIZES, A, M, 16, transition=transition)
    assert pdgd.step_constant == pytest.approx(np.sqrt(12 / 6))  # 12 pairs, 3 layers


def test_starts():
    rng = np.random.default_rng(13)
    transition = random_transition(rng, SIZES, A)
    transition[1, 0] = transition[1, 0, 0]  # so that the two starts differ
    drift = rivals.WeiYuNeely(SIZES, A, M, T, transition=transition)
    np.testing.assert_allclose(drift.policy()[drift.pairs], 0.5)

    def entropy(q):
        return -np.sum(q[drift.pairs] * np.log(q[drift.pairs]))

    reps = rivals.OREPS(SIZES, A, M, T, transition=transition)
    assert entropy(reps.occupancy) > entropy(drift.occupancy) + 1e-4
    for _ in range(100):  # near and far
        policy = reps.policy() ** rng.exponential() * rng.uniform(0.5, 1, reps.pairs.shape)
        policy /= np.maximum(policy.sum(2, keepdims=True), 1e-300)
        assert entropy(reps.polytope.of_policy(policy)) < entropy(reps.occupancy)
    for learner in (rivals.UCOREPS(SIZES, A, M, T), rivals.UCPD(SIZES, A, M, T)):
        np.testing.assert_allclose(learner.occupancy[1, :3, :, :2], 1 / 12)


@pytest.mark.parametrize("of", ["unknown", "known"])
def test_with_one_state_they_are_hedge(of):
    sizes = (1, 1)
    transition = np.ones((1, 1, 3, 1))
    learner = {
        "unknown": lambda: rivals.UCOREPS(sizes, 3, 1, T, confidence_scale=0.01),
        "known": lambda: rivals.OREPS(sizes, 3, 1, T, transition=transition),
    }[of]()
    total = np.zeros(3)
    for episode, _ in play(learner, transition, sizes):
        total += episode.rewards[0, 0]
        weights = np.exp(learner.eta * total)
        np.testing.assert_allclose(learner.policy()[0, 0], weights / weights.sum(), rtol=EXACT)
    # |X| = 2 counts the last state.
    squared = {"unknown": np.log(4 * 3), "known": np.log(2 * 3)}[of] / T
    np.testing.assert_allclose(learner.eta, np.sqrt(squared))


def test_where_actions_lead_nowhere_each_state_is_hedge():
    transition = random_transition(np.random.default_rng(1), SIZES, 1).repeat(A, 2)
    learner = rivals.OREPS(SIZES, A, M, T, transition=transition)
    pairs = pair_mask(SIZES, A)
    total = np.zeros(pairs.shape)
    for episode, _ in play(learner, transition):
        total += episode.rewards
        weights = np.exp(learner.eta * total) * pairs
        hedge = weights[pairs] / np.broadcast_to(weights.sum(2, keepdims=True), pairs.shape)[pairs]
        np.testing.assert_allclose(learner.policy()[pairs], hedge, rtol=EXACT)


def test_ucpd_without_mixing_or_violation_is_uc_o_reps():
    transition = random_transition(np.random.default_rng(2), SIZES, A)
    settings = {"confidence_scale": 0.2, "confidence_log": 7.0}
    ucpd = rivals.UCPD(SIZES, A, M, T, mixing=0.0, V=3.0, alpha=10.0, **settings)
    reps = rivals.UCOREPS(SIZES, A, M, T, eta=0.3, **settings)
    for episode, _ in play(ucpd, transition, constraints=-1.0):
        reps.update(episode)
        np.testing.assert_allclose(ucpd.occupancy, reps.occupancy, rtol=EXACT, atol=0)
    assert not ucpd.queues.any()


def test_mixing_is_before_the_step():
    """With one state: q_2 is proportional to mixed q_1 times e^{-step}, mixed again in q_3."""
    sizes, mixing = (1, 1), 0.3
    learner = rivals.UCPD(sizes, 2, 1, T, mixing=mixing, V=1.0, alpha=1.0)
    expected = np.full(2, 0.5)
    for episode, _ in play(learner, np.ones((1, 1, 2, 1)), sizes, constraints=-1.0):
        expected = (1 - mixing) * expected + mixing / 2
        expected = expected * np.exp(episode.rewards[0, 0])
        expected /= expected.sum()
        np.testing.assert_allclose(learner.policy()[0, 0], expected, rtol=EXACT)


@pytest.mark.parametrize("name", ["drift", "drift without violation", "framework", "PDGD-OPS"])
def test_euclidean_steps_are_projected_gradient_descent(name):
    """Against every vertex of the polytope, which no projection code has seen."""
    transition = random_transition(np.random.default_rng(3), SIZES, A)
    known = {"transition": transition}
    learner = {
        "framework": lambda: rivals.Unifying(SIZES, A, M, T, rho=2, entropic=False, **known),
        "PDGD-OPS": lambda: rivals.KnownPDGDOPS(SIZES, A, M, T, rates=(2.0, 0.1), **known),
    }.get(name, lambda: rivals.WeiYuNeely(SIZES, A, M, T, **known))()
    vertices = [learner.polytope.of_policy(policy) for policy in policies(SIZES, A)]
    multipliers, largest, weighed = np.zeros(M), 0.0, False
    constraints = -1.0 if "without" in name else None
    for episode, before in play(learner, transition, constraints=constraints):
        loss = np.einsum("mksa,m->ksa", episode.constraints, multipliers) - episode.rewards
        largest = max(largest, np.abs(loss).max())
        step_size = {
            "framework": np.sqrt(6 / (12 * T)) / (1 + 1.5),  # 12 pairs; 3 layers over rho
            "PDGD-OPS": 1 / (largest * 2 * np.sqrt(T)),
        }.get(name, 1 / (2 * np.sqrt(T)))
        outward = before - step_size * loss - learner.occupancy
        gaps = [np.sum(outward * (vertex - learner.occupancy)) for vertex in vertices]
        assert max(gaps) <= EXACT
        multipliers = learner.multipliers
        weighed |= multipliers.any()
    assert weighed == ("without" not in name)


@pytest.mark.parametrize("make", [rivals.UCPD, rivals.WeiYuNeely, rivals.COLD])
def test_queues_pay_for_what_was_violated(make):
    """They add up the old constraints at the new point."""
    transition = random_transition(np.random.default_rng(4), SIZES, A)
    known = {} if make is rivals.UCPD else {"transition": transition}
    learner = make(SIZES, A, M, T, **known)
    violated, queues, largest = np.zeros(M), np.zeros(M), 0.0
    for episode, _ in play(learner, transition):
        q = learner.occupancy
        q = q.sum(3) if q.ndim == 4 else q
        change = np.einsum("mksa,ksa->m", episode.constraints, q)
        violated += change
        queues = np.maximum(queues + change, 0)
        largest = max(largest, queues.max())
    np.testing.assert_allclose(learner.queues, queues, atol=1e-12)
    np.testing.assert_allclose(learner.multipliers, queues / learner.V, atol=1e-12)
    assert (violated <= learner.queues + 1e-12).all()
    assert largest > 0.1


def test_multipliers_weigh_the_constraints():
    """An action that always violates is given up, one that never does is not."""
    sizes, transition = (1, 1), np.ones((1, 1, 2, 1))
    zero = np.zeros(1, int)
    episode = Episode(zero, zero, zero, np.array([[[1.0, 0.5]]]), np.array([[[[1.0, -0.5]]]]))
    known = {"transition": transition}
    for learner in (
        rivals.UCPD(sizes, 2, 1, 400),
        rivals.WeiYuNeely(sizes, 2, 1, 400, **known),
        rivals.Unifying(sizes, 2, 1, 400, rho=0.5, **known),
        rivals.Unifying(sizes, 2, 1, 400, rho=0.5, entropic=False, **known),
        rivals.KnownPDGDOPS(sizes, 2, 1, 400, **known),
    ):
        played = np.zeros(2)
        for _ in range(400):
            played += learner.policy()[0, 0] / 400
            learner.update(episode)
        # The best is (1/3, 2/3), with multiplier 1/3; sqrt(1/T) is 0.05.
        np.testing.assert_allclose(played, [1 / 3, 2 / 3], atol=0.1)


@pytest.mark.parametrize("rho", [1.5, 0.1, 0.0])
def test_the_framework_keeps_its_dual_set(rho):
    transition = random_transition(np.random.default_rng(5), SIZES, A)
    learner = rivals.Unifying(SIZES, A, M, T, transition=transition, rho=rho)
    radius = 2.0 if rho == 1.5 else T**0.25  # L/rho, where it is not too large
    np.testing.assert_allclose(learner.eta, np.sqrt(np.log(7 * A / 3) / T) / (1 + radius))
    np.testing.assert_allclose(learner.dual_eta, radius / (3 * np.sqrt(M * T)))
    for _ in play(learner, transition, constraints=1.0):
        assert learner.multipliers.sum() <= radius + 1e-12
    assert learner.multipliers.sum() == pytest.approx(radius)


@pytest.mark.parametrize("name", ["framework", "PDGD-OPS"])
def test_dual_players_that_see_the_old_point(name):
    transition = random_transition(np.random.default_rng(6), SIZES, A)
    learner, largest = {
        "framework": lambda: (rivals.Unifying(SIZES, A, 1, T, transition=transition, rho=6), 0.5),
        "PDGD-OPS": lambda: (
            rivals.KnownPDGDOPS(SIZES, A, 1, T, transition=transition, rates=(1.0, 2.0)),
            T**0.25,
        ),
    }[name]()
    learner.dual_eta = 2.0
    multiplier, reached = 0.0, set()
    for episode, before in play(learner, transition):
        change = 2.0 * np.sum(episode.constraints[0] * before)
        multiplier = np.clip(multiplier + change, 0, largest)
        np.testing.assert_allclose(learner.multipliers, [multiplier], atol=1e-12)
        reached.add(float(multiplier))
    assert {0.0, largest} < reached


def test_epochs_and_sets_are_those_of_pdgd_ops():
    transition = random_transition(np.random.default_rng(7), SIZES, A)
    settings = {"delta": 0.1, "confidence_scale": 0.3}
    learner, other = rivals.UCOREPS(SIZES, A, M, T, **settings), PrimalTwin(SIZES, A, T, **settings)
    # The only difference: T + 1 episodes.
    upper = rivals.UCPD(SIZES, A, M, T - 1, **settings)
    for episode, _ in play(learner, transition):
        other.update(episode.states, episode.actions, episode.next_states, episode.rewards)
        upper.update(episode)
        for name in ("pair_counts", "triple_counts", "epoch", "center", "radius"):
            np.testing.assert_array_equal(getattr(learner, name), getattr(other, name))
            np.testing.assert_array_equal(getattr(learner, name), getattr(upper, name))
        mass = learner.occupancy.sum(3)
        away = np.abs(learner.occupancy - other.center * mass[..., None]).sum(3)
        assert (away <= (other.radius + EXACT) * mass).all()
    assert learner.epoch > 5


def test_entropic_projection_by_hand():
    """Two states behind the root, one action: the ball lets the mass of 0.9 fall to 0.6 at most."""
    ball = Ball((1, 2, 1), 1)
    log_target, center = np.full((2, 2, 1, 2), -np.inf), np.zeros((2, 2, 1, 2))
    log_target[0, 0, 0] = np.log([0.9, 0.1])
    log_target[1, :, 0, 0] = np.log(0.5)
    center[0, 0, 0] = 0.5
    center[1, :, 0, 0] = 1
    radius = np.array([[[0.2], [0.0]], [[0.2], [0.2]]])
    q = np.exp(ball.entropic(log_target, center, radius))
    np.testing.assert_allclose(q[0, 0, 0], [0.6, 0.4], atol=EXACT)
    np.testing.assert_allclose(q[1, :, 0, 0], [0.6, 0.4], atol=EXACT)


def test_entropic_projections_against_clarabel():
    """To what Clarabel's exponential cones give; radius 0 is the case of known transitions."""
    rng, solved = np.random.default_rng(8), 0
    for radius in (0.0, 0.05, 0.2, 0.5, 1.2, 2.0):
        center = random_transition(rng, SIZES, A)
        ball = Ball(SIZES, A)
        log_target = rng.normal(size=center.shape) * (radius > 0)
        on_pairs = rng.normal(size=center.shape[:3])
        log_target += on_pairs[..., None]
        if radius == 0:
            log_target[ball.triples] += np.log(center[ball.triples])
        radii = radius * ball.pairs
        q = np.exp(ball.entropic(log_target, center, radii))
        near = project_clarabel(
            ball.state_mask, ball.pairs, np.where(ball.triples, log_target, 0), center, radii
        )
        if near is not None:
            solved += 1
            np.testing.assert_allclose(q, near, atol=1e-5)
        if radius == 0:
            known = KnownTransitions(SIZES, A, center).entropic(on_pairs)
            np.testing.assert_allclose(q.sum(3), np.exp(known), rtol=EXACT)
    assert solved >= 3


def test_states_that_cannot_be_reached():
    transition = random_transition(np.random.default_rng(9), SIZES, A)
    transition[0] = 0
    transition[0, 0, :, :2] = [[0.5, 0.5], [0.0, 1.0]]  # never to the last of the three states
    for make, settings in (
        (rivals.OREPS, {}),
        (rivals.Unifying, {"rho": 1.0}),
        (rivals.WeiYuNeely, {}),
    ):
        learner = make(SIZES, A, M, T, transition=transition, **settings)
        for _ in play(learner, transition):
            assert not learner.occupancy[1, 2].any()
            np.testing.assert_array_equal(learner.policy()[1, 2], [0.5, 0.5])
            np.testing.assert_allclose(learner.occupancy.sum((1, 2)), 1, rtol=EXACT)


def test_a_wrong_projection_is_not_returned(monkeypatch):
    transition = random_transition(np.random.default_rng(10), SIZES, A)
    learners = [
        rivals.UCOREPS(SIZES, A, M, T),
        rivals.OREPS(SIZES, A, M, T, transition=transition),
        rivals.WeiYuNeely(SIZES, A, M, T, transition=transition),
    ]
    monkeypatch.setattr(mirror, "STEPS", 1)
    monkeypatch.setattr(mirror, "potentials", lambda solution, supply: 0.0 * supply)
    for learner in learners:
        with pytest.raises(AssertionError, match="not the projection"):
            next(play(learner, transition))


def test_onto_l1_ball_against_all_faces():
    """The nearest of the feasible points among the projections on the hulls of all faces."""
    rng = np.random.default_rng(11)
    for _ in range(200):
        n, radius = rng.integers(1, 5), rng.uniform(0.1, 3)
        point = rng.normal(size=n) * 2
        candidates = [np.zeros(n)]
        for face in itertools.product((False, True), repeat=n):
            for shift in (0.0, (point[list(face)].sum() - radius) / max(1, sum(face))):
                z = np.where(face, point - shift, 0)
                if (z >= 0).all() and z.sum() <= radius + 1e-12:
                    candidates.append(z)
        nearest = min(candidates, key=lambda z: np.sum((z - point) ** 2))
        np.testing.assert_allclose(onto_l1_ball(point, radius), nearest, atol=1e-12)
