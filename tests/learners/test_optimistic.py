"""The optimistic learners with bandit feedback, in lock step with their twins for 300 episodes."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import (
    Outcome,
    Trajectory,
    learners,
    make,
    make_learner,
    oracle,
    pdgd_ops,
    rollout,
    run,
)
from pdgd_jax._internal.sums import Compensated
from pdgd_jax.learners.optimistic import _opt_cmdp
from pdgd_jax.learners.optimistic._estimates import no_estimates, observe
from pdgd_jax.models import observed
from pdgd_jax.planning import first_prices
from pdgd_jax.projection import contains
from tests.reference import optimistic as twins

EPISODES, DELTA = 300, 0.05
CMDP = make("random", sizes=(1, 3, 2, 1), num_actions=2, num_constraints=2)
LAYERS, M = CMDP.layers, CMDP.num_constraints
TRIPLES = np.asarray(LAYERS.triple_mask)
RHO = 0.4
BANDITS = {
    "opt-cmdp": {},
    "opt-cmdp-bonus": {},
    "opt-dual": {"rho": RHO},
    "opt-primal-dual": {"rho": RHO},
}


# The others take the same code; each program takes seconds to compile.
SOME = ["opt-cmdp", "opt-primal-dual"]
EACH = [x if x in SOME else pytest.param(x, marks=pytest.mark.slow) for x in BANDITS]


def build(name, scale=0.05, **settings):
    settings = {"confidence_scale": scale, "delta": DELTA, **BANDITS[name], **settings}
    return make_learner(name, CMDP, EPISODES, **settings)


@functools.partial(jax.jit, static_argnames="episodes")
def play(learner, key, episodes=EPISODES):
    """The states before each episode, what was played and revealed, and what was reported."""

    def episode(carry, t):
        state, processes = carry
        policy = learner.policy(state)
        draw, walk = jax.random.split(jax.random.fold_in(key, t))
        outcome, processes = CMDP.draw(draw, processes, t, policy)
        trajectory = rollout(walk, CMDP.mdp, policy)
        shown = observed(LAYERS, trajectory, outcome)
        new, info = learner.update(state, trajectory, shown)
        return (new, processes), (state, policy, trajectory, outcome, info)

    first = learner.init(key), CMDP.init(key)
    return jax.lax.scan(episode, first, jnp.arange(episodes))[1]


def recorded(name, **settings):
    found = play(build(name, **settings), jax.random.key(1))
    return [jax.tree.map(lambda leaf, t=t: leaf[t], found) for t in range(EPISODES)]


def see(twin, trajectory, outcome):
    twin.see(*map(np.asarray, (*trajectory, *outcome)))


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("opt-cmdp", twins.OptCmdp),
        pytest.param("opt-cmdp-bonus", twins.OptCmdpBonus, marks=pytest.mark.slow),
    ],
)
def test_the_linear_program_of_every_episode_is_that_of_the_twin(name, twin):
    scale = 0.002 if twin.bonuses else 0.05
    twin = twin(TRIPLES, M, EPISODES, DELTA, scale)
    binding = 0
    for state, _, trajectory, outcome, info in recorded(name, scale=scale):
        expected = twin.value()
        assert bool(state.feasible) == (expected is not None)
        if expected is not None:
            assert float(state.value) == pytest.approx(expected, abs=1e-9)
        binding += float(info.multipliers.max()) > 1e-6
        see(twin, trajectory, outcome)
    assert binding > 100


def test_opt_dual_in_lock_step():
    dual_step = 2 * 3 / RHO / math.sqrt(3**2 * M * EPISODES)
    twin = twins.OptDual(TRIPLES, M, EPISODES, DELTA, 0.05, dual_step=dual_step)
    positive = 0
    for state, policy, trajectory, outcome, info in recorded("opt-dual"):
        chosen, value, excess = twin.plan()
        assert float(state.value) == pytest.approx(value, abs=1e-10)
        np.testing.assert_allclose(state.multipliers, twin.multipliers, atol=1e-10)
        np.testing.assert_allclose(info.multipliers, twin.multipliers / 2, atol=1e-10)
        decides = np.asarray(LAYERS.decision_mask)
        np.testing.assert_array_equal(np.argmax(policy, -1)[decides], chosen[decides])
        np.testing.assert_allclose(state.excess, excess, atol=1e-10)
        positive += twin.multipliers.max() > 0
        twin.dual(excess)
        see(twin, trajectory, outcome)
    assert positive > 100


@pytest.mark.parametrize(
    ("step", "ceiling", "reached"),
    [(None, None, 0.0), (0.5, None, 0.15), (0.5, 0.1, 0.1)],
    ids=["the paper's", "faster", "ceiling"],
)
def test_opt_primal_dual_in_lock_step(step, ceiling, reached):
    bound, scale = 2 * 3 / RHO, 1e-4
    papers = math.sqrt(2 * math.log(2) / (3**2 * (1 + M * bound) ** 2 * EPISODES))
    twin = twins.OptPrimalDual(
        TRIPLES,
        M,
        EPISODES,
        DELTA,
        scale,
        step=papers if step is None else step,
        dual_step=bound / math.sqrt(3**2 * M * EPISODES),
        ceiling=bound if ceiling is None else ceiling,
    )
    most = 0.0
    found = recorded("opt-primal-dual", scale=scale, step=step, ceiling=ceiling)
    for state, policy, trajectory, outcome, _ in found:
        np.testing.assert_allclose(policy, twin.policy, atol=1e-11)
        np.testing.assert_allclose(state.multipliers, twin.multipliers, atol=1e-11)
        most = max(most, twin.multipliers.max())
        twin.improve()
        see(twin, trajectory, outcome)
    assert most >= reached


def test_opt_cmdp_is_optimistic_while_the_truth_is_in_its_sets():
    best = oracle.optimum(CMDP.mdp, CMDP.rewards.mean(), CMDP.constraints.mean())
    least = 3 - best.value
    config = build("opt-cmdp", scale=0.3).update.args[0]
    covered = 0
    means = np.asarray(
        jnp.concatenate([1 - CMDP.rewards.mean()[None], (1 + CMDP.constraints.mean()) / 2])
    )
    for state, *_ in recorded("opt-cmdp", scale=0.3)[::10]:
        box = config.optimism.box(state.estimates)
        away = np.abs(config.optimism.means(state.estimates) - means)
        inside = away <= np.asarray(config.optimism.of_losses(state.estimates))[None] + 1e-12
        known = bool(contains(box, CMDP.mdp.transition)) and inside[:, LAYERS.action_mask].all()
        covered += known
        if known:
            assert float(state.value) <= least + 1e-9
    assert covered > 10


def test_with_many_visits_opt_cmdp_finds_the_optimum():
    count = 2**30
    P = np.asarray(CMDP.mdp.transition)
    triples = np.floor(P * count).astype(np.int32)
    pairs = triples.sum(-1).astype(np.int32)
    means = jnp.concatenate([1 - CMDP.rewards.mean()[None], (1 + CMDP.constraints.mean()) / 2])
    losses = Compensated(means * pairs[None], jnp.zeros_like(means))
    estimates = _opt_cmdp.Estimates(jnp.asarray(pairs), jnp.asarray(triples), losses)
    best = oracle.optimum(CMDP.mdp, CMDP.rewards.mean(), CMDP.constraints.mean())
    for name in ("opt-cmdp", "opt-cmdp-bonus"):
        config = build(name, scale=1e-9).update.args[0]
        state = _opt_cmdp._plan(config, estimates, first_prices(M))
        assert 3 - float(state.value) == pytest.approx(best.value, abs=1e-6)
        np.testing.assert_allclose(state.multipliers, best.multipliers, atol=1e-5)


# Feedback


@pytest.mark.parametrize("name", BANDITS)
def test_what_was_not_visited_changes_no_bit(name):
    learner = build(name)
    assert learner.setting.feedback == "bandit"
    state, _, trajectory, outcome, _ = recorded(name)[50]
    states = []
    for other in (jnp.nan, 0.25, 7.0):
        shown = observed(LAYERS, trajectory, outcome)
        shown = Outcome(*(jnp.where(jnp.isnan(x), other, x) for x in shown))
        states.append(jax.jit(learner.update)(state, trajectory, shown))
    for other in states[1:]:
        jax.tree.map(np.testing.assert_array_equal, states[0], other)
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(states[0]))


def test_a_learner_that_looks_elsewhere_is_poisoned():
    honest = pdgd_ops(LAYERS, M, 20)
    claims = honest._replace(setting=learners.Setting(LAYERS, num_constraints=M, feedback="bandit"))
    history = run(jax.random.key(0), CMDP, claims, 20, checkpoints=1)
    assert np.isnan(history.multipliers).any()
    history = run(jax.random.key(0), CMDP, honest, 20, checkpoints=1)
    assert np.isfinite(history.multipliers).all()


@pytest.mark.parametrize("name", EACH)
def test_bandits_play_runs(name):
    keys = jax.random.split(jax.random.key(0), 2)
    learner = build(name)
    histories = jax.vmap(lambda key: run(key, CMDP, learner, EPISODES, checkpoints=3))(keys)
    assert np.isfinite(histories.reward).all()
    assert np.isfinite(histories.multipliers).all()
    assert (histories.multipliers >= 0).all()


@pytest.mark.parametrize("name", EACH)
def test_padding_changes_nothing(name):
    wider = CMDP.pad_to((5, 4, 3))
    # The same problem with the same rows: a policy may differ where actions are equally good.
    settings = {"confidence_scale": 0.05, "delta": DELTA, **BANDITS[name]}
    learner = make_learner(name, wider, EPISODES, **settings)
    update, state = jax.jit(learner.update), learner.init(jax.random.key(0))
    L, S, A = LAYERS.shape
    for known, policy, trajectory, outcome, _ in recorded(name)[:25]:
        if name != "opt-primal-dual":
            assert float(state.value) == pytest.approx(float(known.value), abs=1e-9)
        else:
            np.testing.assert_allclose(learner.policy(state)[:L, :S, :A], policy, atol=1e-12)
        if name != "opt-cmdp-bonus":
            np.testing.assert_allclose(state.multipliers, known.multipliers, atol=1e-7)
        padded = Trajectory(jnp.pad(trajectory.states, (0, 2)), jnp.pad(trajectory.actions, (0, 2)))
        room = [(0, 2), (0, 1), (0, 1)]
        seen = Outcome(jnp.pad(outcome.reward, room), jnp.pad(outcome.constraints, [(0, 0), *room]))
        state, _ = update(state, padded, observed(wider.layers, padded, seen))


@pytest.mark.parametrize("name", EACH)
def test_single_precision(name):
    with jax.enable_x64(False):
        cmdp = make("random", sizes=(1, 3, 2, 1), num_actions=2, num_constraints=2)
        settings = {"confidence_scale": 0.05, **BANDITS[name]}
        learner = make_learner(name, cmdp, EPISODES, **settings)
        history = run(jax.random.key(0), cmdp, learner, EPISODES, checkpoints=3)
        assert history.reward.dtype == jnp.float32
        assert np.isfinite(history.reward).all()
        assert np.isfinite(history.multipliers).all()


def test_the_margin_is_that_of_the_cmdp_unless_it_is_given():
    rho = oracle.slater_margin(CMDP.mdp, CMDP.constraints).rho
    own = make_learner("opt-dual", CMDP, EPISODES).update.args[0].dual_step
    same = make_learner("opt-dual", CMDP, EPISODES, rho=rho).update.args[0].dual_step
    assert float(own) == float(same)
    with pytest.raises(ValueError, match="must know a margin rho > 0"):
        make_learner("opt-primal-dual", make("no-slater"), EPISODES)


def test_sums_of_losses_go_on_growing_in_single_precision():
    """A float32 of 2^24 plus a half is 2^24: without compensation nothing more is learnt."""
    before = no_estimates(LAYERS, M, jnp.dtype("float32"))
    full = Compensated(jnp.full_like(before.losses.value, 2.0**24), before.losses.lost)
    estimates = before._replace(losses=full)
    outcome = Outcome(jnp.full(LAYERS.shape, 0.5), jnp.zeros((M, *LAYERS.shape)))
    trajectory = Trajectory(jnp.zeros(len(LAYERS.sizes), jnp.int32), jnp.zeros(3, jnp.int32))
    for _ in range(8):
        estimates = observe(LAYERS, estimates, trajectory, outcome)
    assert (estimates.losses.value[:, 0, 0, 0] == 2.0**24 + 4).all()
