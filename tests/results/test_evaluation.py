"""What a history means, by hand; every certificate in every setting; broken learners are caught."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import (
    CMDP,
    comparators_of,
    evaluate,
    learners,
    make,
    make_for,
    occupancy_of,
    oracle,
    pdgd_ops,
    processes,
    run,
    stack,
    uc_o_gdps,
)
from pdgd_jax.learners import Learner
from pdgd_jax.processes import Constant
from pdgd_jax.results import Certificate
from pdgd_jax.simulation import start
from tests.quick import QUICK

OPTIONS = {"sizes": (1, 3, 3, 1), "num_actions": 2}
KEYS = jax.random.split(jax.random.key(11), 3)
T = 300


def play(cmdp, learner, num_episodes=T, keys=KEYS, **options):
    options.setdefault("comparators", comparators_of(cmdp, num_episodes))
    options.setdefault("checkpoints", 5)
    player = learner.as_pytree()
    return jax.vmap(lambda key: run(key, cmdp, player, num_episodes, **options))(keys)


@pytest.fixture(scope="module")
def cmdp():
    return make("random", **OPTIONS)


# By hand.


def test_regret_and_violation_of_a_fixed_policy_are_known(cmdp):
    """Constant rewards and costs: every episode loses and violates the same."""
    r, G = np.asarray(cmdp.rewards.mean()), np.asarray(cmdp.constraints.mean())
    still = CMDP(cmdp.mdp, r, G)
    history = run(KEYS[0], still, learners.uniform(cmdp.layers), T, checkpoints=[10, 100])
    q = np.asarray(occupancy_of(cmdp.mdp, cmdp.layers.uniform_policy())).sum(-1)
    best = oracle.optimum(cmdp.mdp, r, G)
    loss, cost = best.value - (r * q).sum(), (G[0] * q).sum()
    result = evaluate(history, still)
    t = np.array([10, 100, T])
    np.testing.assert_array_equal(result.episode, t)
    np.testing.assert_allclose(result.opt, best.value)
    np.testing.assert_allclose(result.regret, t * loss, atol=1e-9)
    np.testing.assert_allclose(result.violation, t * cost, atol=1e-9)
    np.testing.assert_allclose(result.positive_violation[:, 0], t * max(cost, 0), atol=1e-9)
    rho = oracle.slater_margin(cmdp.mdp, G).rho
    assert float(result.rho) == pytest.approx(rho)
    assert float(result.alpha) == pytest.approx(rho / (3 + rho))
    np.testing.assert_allclose(
        result.alpha_regret, t * (float(result.alpha) * best.value - (r * q).sum()), atol=1e-9
    )


def test_regret_of_an_adversary_is_against_the_best_of_each_prefix(cmdp):
    """Rewards and costs from tables: OPT of every prefix is solved again here."""
    rng, mask = np.random.default_rng(0), np.asarray(cmdp.layers.action_mask)
    rewards = rng.uniform(size=(T, *mask.shape)) * mask
    costs = (rng.uniform(-1, 0.5, (T, 2, *mask.shape))) * mask
    table = CMDP(cmdp.mdp, processes.Table(rewards), processes.Table(costs))
    history = run(KEYS[0], table, learners.uniform(cmdp.layers), T, checkpoints=[3, 50])
    result = evaluate(history, table)
    q = np.asarray(occupancy_of(cmdp.mdp, cmdp.layers.uniform_policy())).sum(-1)
    for k, t in enumerate((3, 50, T)):
        best = oracle.optimum(cmdp.mdp, rewards[:t].mean(0), costs[:t].mean(0))
        assert best.feasible
        earned = (rewards[:t] * q).sum()
        assert result.regret[k] == pytest.approx(t * best.value - earned, abs=1e-8)
        each = (costs[:t] * q).sum((0, 2, 3, 4))
        np.testing.assert_allclose(result.violations[k], each, atol=1e-9)
        assert result.violation[k] == pytest.approx(each.max())
    positive = np.maximum((costs * q).sum((2, 3, 4)), 0).sum(0)
    np.testing.assert_allclose(result.positive_violation[-1], positive, atol=1e-9)


@pytest.mark.slow
def test_an_infeasible_prefix_has_no_regret(cmdp):
    costs = np.where(np.arange(T)[:, None, None, None, None] < 20, 0.5, -1.0)
    costs = costs * np.asarray(cmdp.layers.action_mask)[None]
    table = CMDP(cmdp.mdp, cmdp.rewards, processes.Table(costs))
    history = run(KEYS[0], table, learners.uniform(cmdp.layers), T, checkpoints=[10])
    result = evaluate(history, table)
    assert np.isnan(result.regret[0])
    assert np.isfinite(result.regret[1])


def test_interval_regrets_are_against_the_comparators(cmdp):
    """Known rewards: the primal regret of a fixed policy grows by the same in every episode."""
    r, G = np.asarray(cmdp.rewards.mean()), np.asarray(cmdp.constraints.mean())
    still = CMDP(cmdp.mdp, r, G)
    comparators = comparators_of(still, T)
    history = run(KEYS[0], still, learners.uniform(cmdp.layers), T, comparators=comparators)
    result = evaluate(history, still)
    q = np.asarray(occupancy_of(cmdp.mdp, cmdp.layers.uniform_policy())).sum(-1)
    for found, comparator in zip(
        result.primal_interval_regret, np.asarray(comparators.occupancies), strict=True
    ):
        each = (r * (comparator.sum(-1) - q)).sum()
        assert found == pytest.approx(T * each if each > 0 else each, abs=1e-8)
    cost = (G[0] * q).sum()
    np.testing.assert_allclose(
        result.dual_interval_regret, [0, T * cost if cost > 0 else cost], atol=1e-8
    )


@pytest.mark.slow
def test_batches_and_stacks_keep_their_axes(cmdp):
    other = make("random", sizes=(1, 2, 1), num_actions=2, seed=1)
    both = stack([cmdp, other])

    def one(cmdp, key):
        return run(key, cmdp, learners.uniform(cmdp.layers), 20, checkpoints=4)

    over_keys = jax.vmap(one, in_axes=(None, 0))
    many = jax.vmap(over_keys, in_axes=(0, None))(both, KEYS)
    result = evaluate(many, both)
    assert result.regret.shape == (2, 3, 4)
    assert result.certificates[0].status.shape == (2, 3)
    alone = evaluate(over_keys(other, KEYS), other)
    np.testing.assert_allclose(result.regret[1], alone.regret, atol=1e-9)
    np.testing.assert_allclose(result.rho[1], alone.rho)
    with pytest.raises(ValueError, match="the first axis of the history must be the instance"):
        evaluate(jax.tree.map(lambda x: x[0, 0], many), both)


# Certificates.


def never_fails(result):
    for certificate in result.certificates:
        assert not certificate.fails.any(), (
            f"{certificate.name}: measured {certificate.measured}, bound {certificate.bound}"
        )


def test_runs_of_different_horizons_are_not_mixed(cmdp):
    learner = learners.uniform(cmdp.layers)
    short, long = (run(jax.random.key(0), cmdp, learner, T, checkpoints=5) for T in (10, 20))
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), short, long)
    with pytest.raises(ValueError, match="one horizon at a time"):
        evaluate(both, cmdp)


@pytest.mark.slow
def test_certificates_say_what_does_not_apply(cmdp):
    scaled = evaluate(
        play(cmdp, pdgd_ops(cmdp.layers, 1, T, confidence_scale=0.3, solver=QUICK)), cmdp
    )
    covered = scaled.certificate("transitions covered")
    assert set(covered.status) == {"does not apply"}
    assert set(covered.reason) == {"radii were scaled by 0.3"}
    tuned = scaled.certificate("violation, Theorem 6")
    assert set(tuned.status) == {"does not apply"}
    uniform = evaluate(play(cmdp, learners.uniform(cmdp.layers)), cmdp)
    assert {s for c in uniform.certificates for s in c.status} == {"does not apply"}
    primal = evaluate(play(cmdp, uc_o_gdps(cmdp.layers, T, solver=QUICK)), cmdp)
    assert set(primal.certificate("dual interval regret").reason) == {
        "the learner has no multipliers"
    }
    # In 300 episodes every radius is still 2 or more: nothing could be outside.
    assert set(primal.certificate("transitions covered").status) <= {"holds", "vacuous"}
    short = evaluate(play(cmdp, pdgd_ops(cmdp.layers, 1, T, solver=QUICK), T // 2), cmdp)
    assert set(short.certificate("regret, Theorem 6").reason) == {
        f"the run stopped before its {T} episodes"
    }
    with pytest.raises(
        ValueError, match=r"'regret, Theorem 66' \(did you mean 'regret, Theorem 6'\?\)"
    ):
        short.certificate("regret, Theorem 66")
    with pytest.raises(ValueError, match="there is no certificate 'luck'"):
        short.certificate("luck")


SETTINGS = [
    pytest.param(
        rewards, constraints, tightness, rates, id=f"{rewards}-{constraints}-{tightness}-{rates}"
    )
    for rewards in ("bernoulli", "phases")
    for constraints in ("bernoulli", "phases")
    for tightness in (0.9, 0.0)
    for rates in ("tuned", "theory")
]


@pytest.mark.slow
@pytest.mark.parametrize(("rewards", "constraints", "tightness", "rates"), SETTINGS)
def test_every_certificate_holds_in_every_setting(rewards, constraints, tightness, rates):
    """{stochastic, adversarial}^2 x {rho large, rho = 0} x rates, three seeds each."""
    cmdp = make("random", **OPTIONS, rewards=rewards, constraints=constraints, tightness=tightness)
    num_episodes = 1500
    history = play(cmdp, pdgd_ops(cmdp.layers, 1, num_episodes, rates=rates), num_episodes)
    result = evaluate(history, cmdp)
    if constraints == "bernoulli":
        assert (
            float(result.rho[0]) == pytest.approx(0, abs=1e-9)
            if tightness == 0
            else (float(result.rho[0]) > 0.5)
        )
    never_fails(result)
    always = [
        "projections converged",
        "occupancies feasible",
        "transitions covered",
        "step of the multipliers",
        "dual interval regret",
        "primal descent regret",
    ]
    if rewards == "bernoulli":
        always.append("rewards near their mean")
    if constraints == "bernoulli":
        always.append("constraints near their mean")
    if rates == "tuned":
        always.append("multipliers in their box")
    for name in always:
        assert set(result.certificate(name).status) == {"holds"}, name
    # Their bounds are above what is possible at all at such horizons, and that is what they say.
    vacuous = ["transitions estimated", "primal interval regret"]
    if rates == "theory":  # whose steps are too small for the multipliers to reach their ceiling
        vacuous.append("multipliers in their box")
    if constraints == "bernoulli":
        vacuous += ["regret, Theorem 6"] + ["violation, Theorem 6"] * (rates == "theory")
    if rates == "theory" and (constraints == "bernoulli" or result.rho[0] >= 0):
        vacuous += ["violation, as believed"]
    for name in vacuous:
        assert set(result.certificate(name).status) == {"vacuous"}, name


def test_the_theorems_apply_when_their_conditions_hold():
    """One state, two actions, rho = L = 1: from T = 20^4 on the condition holds, with m = 1.

    The run is pretended to have been that long, which is all that the certificates look at.
    """
    mdp = make("two-phase").mdp
    safe = CMDP(mdp, np.full((1, 1, 2), 0.5), np.full((1, 1, 1, 2), -1.0))
    horizon = 20**4
    learner = pdgd_ops(mdp.layers, 1, horizon, rates="theory", solver=QUICK)
    history = run(KEYS[0], safe, learner, 50, checkpoints=[50])
    aged = jax.tree.map(lambda x: x, history)
    object.__setattr__(aged, "episode", jnp.asarray([horizon]))
    result = evaluate(aged, safe)
    assert float(result.rho) == pytest.approx(1)
    for name in ("multipliers bounded", "regret, Theorem 5", "violation, Theorem 5"):
        assert str(result.certificate(name).status) != "does not apply", name
    bounded = result.certificate("multipliers bounded")
    assert float(bounded.bound) == float(bounded.trivial) == pytest.approx(20)
    assert str(bounded.status) == "vacuous"  # T^(1/4) is the ceiling of the multipliers
    assert str(result.certificate("regret, Theorem 6").reason) == "the condition on rho holds"


# Learners that are broken on purpose.


def broken(honest, update=None, init=None):
    return Learner(init or honest.init, honest.policy, update or honest.update, honest.setting)


@pytest.fixture(scope="module")
def greedy():
    """Constraints that are violated by whoever does not look at them."""
    return make("random", **OPTIONS, tightness=0.1)


def test_an_honest_learner_fails_nothing(greedy):
    result = evaluate(play(greedy, pdgd_ops(greedy.layers, 1, T, solver=QUICK)), greedy)
    for name in ("dual interval regret", "occupancies feasible", "step of the multipliers"):
        assert set(result.certificate(name).status) == {"holds"}
    assert not result.certificate("transitions covered").fails.any()


def test_a_dual_player_with_the_wrong_sign_fails_the_dual_certificate(greedy):
    honest = pdgd_ops(greedy.layers, 1, T, solver=QUICK)

    def update(state, trajectory, outcome):
        flipped = outcome._replace(constraints=-outcome.constraints)
        wrong, _ = honest.update(state, trajectory, flipped)
        right, info = honest.update(state, trajectory, outcome)
        return right._replace(dual=wrong.dual), info._replace(
            next_multipliers=wrong.dual.multipliers
        )

    history = play(greedy, broken(honest, update), comparators=dual_of(3.0, greedy))
    result = evaluate(history, greedy)
    assert set(result.certificate("dual interval regret").status) == {"fails"}


def dual_of(size, cmdp):
    comparators = comparators_of(cmdp, T)
    return type(comparators)(comparators.occupancies, size * comparators.multipliers)


@pytest.mark.slow
def test_a_projection_on_the_wrong_set_fails_the_feasibility_certificate(greedy):
    """Onto the flows of the center of another set: uniform transitions, never updated."""

    def elsewhere(layers, target, confidence, warm_start, tolerance):
        uniform = layers.triple_mask / jnp.maximum(layers.layer_sizes[1:], 1)[:, None, None, None]
        wrong = type(confidence)(uniform.astype(target.dtype), confidence.radius)
        return QUICK.solve(layers, target, wrong, warm_start, tolerance)

    wrong = QUICK._replace(solve=elsewhere)
    # A small radius, so that the right set does not hold everything.
    honest = pdgd_ops(greedy.layers, 1, T, solver=wrong, confidence_scale=0.1)
    result = evaluate(play(greedy, honest), greedy)
    assert set(result.certificate("occupancies feasible").status) == {"fails"}


def test_no_confidence_set_fails_the_coverage_certificate(greedy):
    """Trusting the empirical transitions, while claiming the paper's radii."""
    claimed = pdgd_ops(greedy.layers, 1, T, solver=QUICK)
    trusting = pdgd_ops(greedy.layers, 1, T, solver=QUICK, confidence_scale=0.0)
    result = evaluate(play(greedy, trusting._replace(setting=claimed.setting)), greedy)
    assert set(result.certificate("transitions covered").status) == {"fails"}


@pytest.mark.slow
def test_unconverged_projections_are_loud(greedy):
    honest = pdgd_ops(greedy.layers, 1, T, solver=QUICK)

    def update(state, trajectory, outcome):
        state, info = honest.update(state, trajectory, outcome)
        lazy = info.projection._replace(converged=jnp.zeros((), bool))
        return state, info._replace(projection=lazy)

    result = evaluate(play(greedy, broken(honest, update)), greedy)
    assert result.unconverged.tolist() == [T] * 3
    assert set(result.certificate("projections converged").status) == {"fails"}


def test_a_certificate_of_nan_does_not_hold():
    empty = np.array("")
    nan = Certificate("n", "t", np.array(np.nan), np.array(1.0), 1.0, empty)
    assert str(nan.status) == "fails"
    below = Certificate("n", "t", np.array(0.5), np.array(1.0), 1.0, empty)
    assert str(below.status) == "holds"
    assert float(below.distance) == 0.5
    idle = Certificate("n", "t", np.array(2.0), np.array(1.0), 1.0, np.array("no"))
    assert str(idle.status) == "does not apply"
    assert not bool(idle.fails)


def test_a_certificate_holds_only_where_it_could_have_failed():
    """One guarantee in four runs: below a bound that says something, and one that does not."""
    certificate = Certificate(
        name="n",
        theorem="t",
        measured=np.array([0.5, 0.5, 2.0, 0.5]),
        bound=np.ones(4),
        probability=1.0,
        reason=np.array(["", "", "", "no"]),
        trivial=np.array([3.0, 1.0, 3.0, 1.0]),
    )
    assert certificate.status.tolist() == ["holds", "vacuous", "fails", "does not apply"]
    assert certificate.vacuous.tolist() == [False, True, False, False]
    assert certificate.fails.tolist() == [False, False, True, False]


def test_bounds_above_what_is_possible_are_called_vacuous(cmdp):
    """The trivial bounds by hand: 2 L T for the error, T OPT for regret, L T for violation."""
    result = evaluate(play(cmdp, pdgd_ops(cmdp.layers, 1, T, solver=QUICK)), cmdp)
    for name, trivial in (
        ("transitions estimated", 2 * 3 * T),
        ("regret, Theorem 6", T * result.opt[0, -1]),
        ("regret, by the largest multiplier", T * result.opt[0, -1]),
    ):
        certificate = result.certificate(name)
        np.testing.assert_allclose(certificate.trivial, trivial)
        assert set(certificate.status) == {"vacuous"}, name
    np.testing.assert_allclose(result.certificate("violation, Theorem 6").trivial, 3 * T)
    # Constant rewards are their mean, whoever plays.
    still = CMDP(cmdp.mdp, np.asarray(cmdp.rewards.mean()), cmdp.constraints)
    result = evaluate(play(still, pdgd_ops(cmdp.layers, 1, T, solver=QUICK)), still)
    assert set(result.certificate("rewards near their mean").status) == {"vacuous"}


# The margin of what a run was shown.


def test_the_margin_of_a_random_adversary_is_that_of_the_run(cmdp):
    """Between bounds that hold the margin of all realised constraints, by brute force.

    The means alone say +0.3 and more; every run was shown constraints that no policy satisfies.
    """
    mean = np.asarray(cmdp.constraints.mean())
    random = processes.Corrupted(cmdp.constraints, processes.Constant(mean))
    hidden = CMDP(cmdp.mdp, cmdp.rewards, random)
    history = play(hidden, learners.uniform(cmdp.layers))
    result = evaluate(history, hidden)
    assert oracle.slater_margin(cmdp.mdp, mean).rho > 0.3
    for i, key in enumerate(KEYS):
        rows = replay(hidden, key)
        realised = oracle.slater_margin(cmdp.mdp, rows).rho
        assert result.rho[i] - 1e-9 <= realised <= result.rho_upper[i] + 1e-9
        assert realised < 0
        assert result.rho[i] < 0
    assert np.isfinite(result.rho).all()


def replay(cmdp, key):
    """All constraints `[T, m, L, S, A]` that a run with this key was shown."""
    carry = start(key, cmdp, learners.uniform(cmdp.layers))
    policy = cmdp.layers.uniform_policy()

    def draw(t):
        draw_key, _ = jax.random.split(jax.random.fold_in(carry.key, t))
        return cmdp.draw(draw_key, carry.processes, t, policy)[0].constraints

    return np.asarray(jax.jit(jax.vmap(draw))(jnp.arange(T)))


@pytest.mark.slow
def test_the_margin_of_one_s_own_adversary_is_found_in_the_run(cmdp):
    """It does not say what it may show; a constant one is known exactly afterwards."""

    @processes.pytree
    class Stubborn(processes.AdversarialProcess):
        values: jax.Array

        def draw(self, key, state, episode, policy):
            return self.values, state

    mean = jnp.asarray(cmdp.constraints.mean())
    own = CMDP(cmdp.mdp, cmdp.rewards, Stubborn(mean))
    with pytest.raises(NotImplementedError, match="does not say which values"):
        oracle.slater_margin(own.mdp, own.constraints)
    result = evaluate(play(own, learners.uniform(cmdp.layers)), own)
    rho = oracle.slater_margin(cmdp.mdp, mean).rho
    np.testing.assert_allclose(result.rho, rho, atol=1e-9)
    np.testing.assert_allclose(result.rho_upper, rho, atol=1e-9)


@pytest.mark.slow
def test_a_comparator_that_nobody_can_play_proves_no_margin(cmdp):
    """No mass anywhere costs nothing, but is no policy's."""
    mean = np.asarray(cmdp.constraints.mean())
    random = processes.Corrupted(cmdp.constraints, processes.Constant(mean))
    hidden = CMDP(cmdp.mdp, cmdp.rewards, random)
    real = comparators_of(hidden, T)
    empty = type(real)(0 * real.occupancies, real.multipliers)
    result = evaluate(play(hidden, learners.uniform(cmdp.layers), comparators=empty), hidden)
    assert (result.rho < -0.1).all()


def test_the_theorems_ask_for_the_margin_that_is_known():
    """rho between bounds: the condition holds for the upper one alone, and that is not enough."""
    mdp = make("two-phase").mdp
    safe = np.array([[[[-1.0, -1.0]]]])
    horizon = 20**4
    random = processes.Corrupted(processes.Bernoulli(np.array([[[[-0.99, 0.0]]]])), Constant(safe))
    cmdp = CMDP(mdp, np.full((1, 1, 2), 0.5), random)
    learner = pdgd_ops(mdp.layers, 1, horizon, rates="theory", solver=QUICK)
    history = run(KEYS[0], cmdp, learner, 50, checkpoints=[50])
    aged = jax.tree.map(lambda x: x, history)
    object.__setattr__(aged, "episode", jnp.asarray([horizon]))
    scaled = aged.metrics.constraint_sum.value * (horizon / 50)
    total = aged.metrics.constraint_sum._replace(value=scaled)
    worst = jnp.asarray(np.array([[[[[0.5, 0.5]]]]]))
    object.__setattr__(
        aged, "metrics", aged.metrics._replace(constraint_sum=total, constraint_max=worst)
    )
    result = evaluate(aged, cmdp)
    assert float(result.rho) == pytest.approx(-0.5)
    assert float(result.rho_upper) == pytest.approx(1.0)
    reason = str(result.certificate("regret, Theorem 7").reason)
    assert reason.startswith("rho is only known to lie between -0.5 and 1, too little")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rewards", "constraints", "theorem", "who"),
    [
        ("adaptive", "bernoulli", "Theorem 6", "rewards"),
        ("bernoulli", "adaptive", "Theorem 7", "constraints"),
    ],
)
def test_theorems_do_not_apply_where_hindsight_depends_on_the_past(
    rewards, constraints, theorem, who
):
    cmdp = make("random", sizes=(1, 2, 1), num_actions=2, rewards=rewards, constraints=constraints)
    result = evaluate(play(cmdp, pdgd_ops(cmdp.layers, 1, T, solver=QUICK)), cmdp)
    sentence = f"the {who} depend on the policies, and so does q* in hindsight"
    if theorem == "Theorem 6":
        assert set(result.certificate("regret, Theorem 6").reason) == {sentence}
        assert set(result.certificate("regret, by the largest multiplier").reason) == {sentence}
    else:  # it does not apply for want of a margin, either; the violation has no such reason
        assert not result.certificate("regret, Theorem 7").applies.any()
        assert sentence not in set(result.certificate("violation, Theorem 7").reason)


def test_the_margin_of_another_cmdp_than_was_played_is_not_believed():
    """Made for 10,000 episodes it has one phase in 300, and rho = 1; the run was shown both."""
    played, other = make_for("two-phase", 300), make("two-phase")
    history = play(played, learners.uniform(played.layers), 300)
    np.testing.assert_allclose(evaluate(history, played).rho, 0.25)
    result = evaluate(history, other)
    assert (result.rho <= 0.25 + 1e-9).all()
    assert (result.rho_upper < 1).all()


def test_what_cannot_be_wrong_is_vacuous():
    """One state to go to: nothing to estimate. Multipliers that cannot reach their ceiling."""
    cmdp = make_for("two-phase", T)
    learner = pdgd_ops(cmdp.layers, 1, T, rates="theory", solver=QUICK)
    result = evaluate(play(cmdp, learner), cmdp)
    for name, trivial in (
        ("transitions covered", 0),
        ("transitions estimated", 0),
        ("multipliers in their box", T * float(learner.setting.rates.dual)),
    ):
        certificate = result.certificate(name)
        np.testing.assert_allclose(certificate.trivial, trivial)
        assert set(certificate.status) == {"vacuous"}, name
