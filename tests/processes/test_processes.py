"""The contract of every process, its distribution, and its errors."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from pdgd_jax.processes import (
    KINDS,
    Adaptive,
    AdversarialProcess,
    Bernoulli,
    Beta,
    ClippedGaussian,
    Constant,
    Corrupted,
    Drift,
    Phases,
    StochasticProcess,
    Table,
    UniformNoise,
    around,
    foresight,
    pytree,
)

SHAPE = (2, 3, 2)  # L, S, A


def means(role, seed=0):
    """Means over the whole range, the bounds themselves among them."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(size=SHAPE) if role == "reward" else rng.uniform(-1, 1, (2, *SHAPE))
    values[..., 0, 0, 0], values[..., 0, 1, 0] = values.min().round(), 1.0
    return values


def table(role):
    rng = np.random.default_rng(5)
    if role == "reward":
        return Table(rng.uniform(size=(50, *SHAPE)))
    return Table(rng.uniform(-1, 1, size=(50, 2, *SHAPE)))


PROCESSES = {
    kind: functools.partial(lambda kind, role: around(means(role), kind), kind) for kind in KINDS
}
PROCESSES["table"] = table
PROCESSES["phases-periodic"] = lambda role: Phases(np.stack([means(role), means(role, 1)]), 3)
PROCESSES["phases-once"] = lambda role: Phases(
    np.stack([means(role), means(role, 1)]), 3, schedule="once"
)
each_process = pytest.mark.parametrize("name", PROCESSES)
each_role = pytest.mark.parametrize("role", ["reward", "constraint"])

POLICY = np.full(SHAPE, 0.5)


def policy_like(process):
    return jnp.asarray(POLICY, jax.tree.leaves(process)[0].dtype)


@jax.jit
def draw(process, key, state, episode, policy):
    """Shared by the tests, so that each kind of process is compiled once per shape and type."""
    return process.draw(key, state, episode, policy)


@each_process
def test_contract(name, precision):
    check_contract(name, precision, "reward" if precision == "float32" else "constraint")


@pytest.mark.slow
@each_process
def test_contract_in_the_other_role(name, precision):
    check_contract(name, precision, "constraint" if precision == "float32" else "reward")


def check_contract(name, precision, role):
    process = PROCESSES[name](role)
    policy = policy_like(process)
    low = 0 if role == "reward" else -1
    shape = SHAPE if role == "reward" else (2, *SHAPE)
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def run(process, keys):
        def episode(state, inputs):
            key, t = inputs
            values, state = process.draw(key, state, t, policy)
            return state, values

        state = process.init(jax.random.key(1))
        batch = jax.vmap(lambda key: process.draw(key, state, 4, policy)[0])(keys[:3])
        return state, *jax.lax.scan(episode, state, (keys, jnp.arange(20))), batch

    keys = jax.random.split(jax.random.key(0), 20)
    run(process, keys[::-1])  # other keys, same trace
    state, final, scanned, batch = run(process, keys)
    # The carry keeps its structure, shapes and types.
    chex.assert_trees_all_equal_shapes_and_dtypes(state, final)
    assert scanned.shape == (20, *shape)
    assert scanned.dtype == policy.dtype == jnp.dtype(precision)
    chex.assert_tree_all_finite(scanned)
    assert (scanned >= low).all()
    assert (scanned <= 1).all()
    # A step on its own says the same as the scan; the compiler may fuse a sine differently.
    rounding = 1e-6 if precision == "float32" else 1e-13
    alone, _ = draw(process, keys[0], state, 0, policy)
    np.testing.assert_allclose(alone, scanned[0], atol=rounding)
    # vmap over keys equals a loop.
    loop = [draw(process, key, state, 4, policy)[0] for key in keys[:3]]
    np.testing.assert_allclose(batch, np.stack(loop), atol=rounding)


@pytest.mark.slow
@each_process
def test_jit_equals_eager(name):
    process = PROCESSES[name]("reward")
    key, policy = jax.random.key(7), policy_like(process)
    state = process.init(key)
    eager, _ = process.draw(key, state, 5, policy)
    compiled, _ = draw(process, key, state, 5, policy)
    np.testing.assert_allclose(compiled, eager, atol=1e-13)


@each_process
def test_padding_changes_nothing(name):
    process = PROCESSES[name]("constraint")
    larger = (3, 5, 4)
    padded = process.pad(SHAPE, larger)
    grow = [(0, b - a) for a, b in zip(SHAPE, larger, strict=True)]
    key = jax.random.key(3)
    state = process.init(key)
    for t in (0, 7):
        plain, _ = draw(process, key, state, t, jnp.asarray(POLICY))
        wide, _ = draw(padded, key, state, t, jnp.asarray(np.pad(POLICY, grow)))
        assert wide.shape[-3:] == larger
        np.testing.assert_array_equal(wide[..., :2, :3, :2], plain)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constant", "bernoulli", "beta", "gaussian", "uniform"])
@each_role
def test_the_mean_is_that_of_what_is_drawn(kind, role):
    process = around(means(role), kind)
    assert isinstance(process, StochasticProcess)
    count = 20_000
    keys = jax.random.split(jax.random.key(0), count)
    batch = jax.vmap(draw, (None, 0, None, None, None))
    values = np.asarray(batch(process, keys, (), 0, jnp.asarray(POLICY))[0])
    # 5 standard errors of the sample mean, entry by entry: 24 entries fail once in 10^5.
    tolerance = 5 * values.std(0) / np.sqrt(count) + 1e-12
    assert (np.abs(values.mean(0) - np.asarray(process.mean())) <= tolerance).all()
    # What may be drawn at worst is above every draw, and nearly reached by 20,000 of them; only a
    # Beta variable or a Gaussian may stay far from it.
    (worst,), exact = process.extremes()
    assert (values <= np.asarray(worst) + 1e-12).all()
    assert exact == (kind == "constant")
    if kind in ("constant", "bernoulli", "uniform"):
        np.testing.assert_allclose(values.max(0), worst, atol=1e-3)
    if kind not in ("constant", "gaussian"):
        np.testing.assert_array_equal(process.mean(), means(role))
    # Entries are independent: no two columns of noise are the same.
    noisy = values.reshape(count, -1)[:, values.std(0).reshape(-1) > 0]
    if kind != "constant":
        correlation = np.abs(np.corrcoef(noisy.T) - np.eye(noisy.shape[1]))
        assert correlation.max() < 5 / np.sqrt(count)


@pytest.mark.slow
@pytest.mark.parametrize("concentration", [1.0, 50.0])
def test_beta_variables_are_beta_distributed(concentration):
    # Not closer to 0 and 1: there, with a small concentration, much of the mass rounds to them.
    process = Beta(np.linspace(0.2, 0.8, 12).reshape(SHAPE), concentration)
    keys = jax.random.split(jax.random.key(0), 20_000)
    values = np.asarray(jax.vmap(draw, (None, 0, None, None, None))(process, keys, (), 0, None)[0])
    for index in np.ndindex(SHAPE):
        p = float(process.means[index])
        theirs = scipy.stats.beta(concentration * p, concentration * (1 - p))
        # 24 Kolmogorov-Smirnov tests; a right sampler fails one of them once in 40,000.
        assert scipy.stats.kstest(values[(slice(None), *index)], theirs.cdf).pvalue > 1e-6


def test_bernoulli_shows_its_bounds_only():
    process = Bernoulli(np.full((1, *SHAPE), 0.1), bounds=(-0.5, 0.5))
    values, _ = process.draw(jax.random.key(0), (), 0, None)
    assert set(np.unique(values)) == {-0.5, 0.5}


def test_clipping_moves_the_mean():
    process = ClippedGaussian(np.full(SHAPE, 0.95), scale=0.3)
    assert (process.mean() < 0.9).all()


def test_table_rows_in_order_and_nothing_after_the_end():
    process = table("reward")
    assert process.num_episodes == 50
    for t in (0, 17, 49):
        values, _ = process.draw(jax.random.key(0), (), t, None)
        np.testing.assert_array_equal(values, process.values[t])
    assert jnp.isnan(process.draw(jax.random.key(0), (), 50, None)[0]).all()
    assert Corrupted(process, Constant(np.zeros(SHAPE))).num_episodes == 50
    assert around(means("reward"), "corrupted").num_episodes is None


@pytest.mark.parametrize(
    ("schedule", "turns"),
    [
        ("periodic", [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 0, 0, 1]),
        ("doubling", [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 0]),
        ("once", [0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]),
    ],
)
def test_phases_follow_their_schedule(schedule, turns):
    values = np.arange(3).reshape(3, 1, 1, 1) / 2 * np.ones((3, *SHAPE))
    process = Phases(values, period=2, schedule=schedule)
    shown = [float(draw(process, None, (), t, None)[0][0, 0, 0]) * 2 for t in range(15)]
    assert shown == turns


def test_doubling_phases_are_exact_far_out():
    process = Phases(np.stack([np.zeros(SHAPE), np.ones(SHAPE)]), period=1, schedule="doubling")
    # Turn j covers the episodes 2^j - 1 to 2^(j+1) - 2.
    for j in (20, 29):
        for t, turn in ((2**j - 2, j - 1), (2**j - 1, j)):
            assert float(draw(process, None, (), t, None)[0][0, 0, 0]) == turn % 2


def test_drift_is_a_sine():
    process = Drift(np.full(SHAPE, 0.5), 0.5, period=4)
    shown = [float(draw(process, None, (), t, None)[0][0, 0, 0]) for t in range(5)]
    np.testing.assert_allclose(shown, [0.5, 1.0, 0.5, 0.0, 0.5], atol=1e-15)
    # Also after 10^8 episodes, where a float32 has lost count.
    assert float(process.draw(None, (), 10**8 + 1, None)[0][0, 0, 0]) == 1.0


def test_corruption_takes_its_share_in_bursts():
    process = Corrupted(Constant(np.zeros(SHAPE)), Constant(np.ones(SHAPE)), share=0.3, period=10)
    state = process.init(jax.random.key(0))
    shown = [float(draw(process, jax.random.key(t), state, t, None)[0].mean()) for t in range(20)]
    assert shown == [1.0] * 3 + [0.0] * 7 + [1.0] * 3 + [0.0] * 7


def test_the_adaptive_adversary_punishes_the_favourite():
    policy = jnp.asarray(np.stack([np.full((2, 3), 0.9), np.full((2, 3), 0.1)], axis=-1))
    reward = Adaptive(np.full(SHAPE, 0.6), strength=0.5)
    values, _ = reward.draw(None, (), 0, policy)
    np.testing.assert_allclose(values[0, 0], [0.15, 0.55])
    costs = Adaptive(np.full((2, *SHAPE), 0.6), strength=0.5)
    values, _ = costs.draw(None, (), 0, policy)
    np.testing.assert_allclose(values[1, 0, 0], [1.0, 0.65])


@pytest.mark.parametrize("name", ["phases", "drift", "adaptive", "table", "phases-once"])
@each_role
def test_no_occupancy_pays_more_than_the_extremes(name, role):
    """Brute force: what every episode costs random occupancies, and the worst that was announced.

    Equal where it is exact, for each of several numbers of episodes; never less elsewhere.
    """
    process = PROCESSES[name](role)
    q = np.random.default_rng(3).uniform(size=(20, *SHAPE))
    state, policy = process.init(jax.random.key(0)), policy_like(process)
    shown = np.stack([draw(process, jax.random.key(t), state, t, policy)[0] for t in range(40)])
    for episodes in ([0], range(2), range(5), range(3, 40), None):
        chosen = None if episodes is None else np.array(episodes)
        worst, exact = process.extremes(chosen)
        announced = np.einsum("n...lsa,qlsa->n...q", worst, q).max(0)
        paid = np.einsum("t...lsa,qlsa->t...q", shown[0:40] if chosen is None else shown[chosen], q)
        assert (paid.max(0) <= announced + 1e-9).all()
        assert exact == (name != "adaptive")
        if exact and episodes is not None:
            np.testing.assert_allclose(paid.max(0), announced, atol=1e-9)


def test_a_corruption_shows_each_process_in_its_own_episodes():
    """Of every 4 episodes 2 are corrupted: a table's rows 0 and 1 are never shown, 2 and 3 are."""
    rows, corrupt = table("constraint"), means("constraint", 1)
    process = Corrupted(rows, Constant(corrupt), share=0.5, period=4)
    worst, exact = process.extremes(np.arange(6))
    np.testing.assert_array_equal(worst, [*rows.values[2:4], corrupt])
    assert exact
    worst, exact = process.extremes(np.arange(2))
    np.testing.assert_array_equal(worst, [corrupt])
    worst, _ = process.extremes()
    assert len(worst) == 24 + 1  # of 50 rows the 24 that no burst hides, and the corruption
    never = Corrupted(Constant(means("constraint")), Bernoulli(corrupt), share=0.0)
    worst, exact = never.extremes()
    np.testing.assert_array_equal(worst, [means("constraint")])
    assert exact
    chance = Corrupted(Bernoulli(means("constraint")), Constant(corrupt))
    worst, exact = chance.extremes(np.arange(2000))
    assert not exact
    np.testing.assert_array_equal(worst[0], np.where(means("constraint") > -1, 1, -1))


FORESIGHT = {
    "constant": (False, False),
    "bernoulli": (True, False),
    "beta": (True, False),
    "gaussian": (True, False),
    "uniform": (True, False),
    "phases": (False, False),
    "drift": (False, False),
    "corrupted": (True, False),
    "adaptive": (False, True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_foresight_knows_what_decides_a_process(kind):
    found = foresight(around(means("constraint"), kind), SHAPE)
    assert tuple(found) == FORESIGHT[kind]
    assert found.known == (FORESIGHT[kind] == (False, False))


def test_foresight_looks_through_states_and_unused_keys():
    @pytree
    class Grudge(AdversarialProcess):
        values: jax.Array

        def init(self, key):
            return jnp.zeros(SHAPE)

        def draw(self, key, state, episode, policy):
            return jnp.clip(self.values - state, 0, 1), state + policy

    assert tuple(foresight(Grudge(jnp.ones(SHAPE)), SHAPE)) == (False, True)
    # A corruption splits its key for both parts, none of which looks at it.
    quiet = Corrupted(Constant(means("reward")), Constant(means("reward", 1)))
    assert foresight(quiet, SHAPE).known
    assert foresight(Corrupted(quiet, Adaptive(means("reward"))), SHAPE).policy


def bad(change):
    values = means("constraint")
    values[change[0]] = change[1]
    return values


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda: Bernoulli(bad(((1, 0, 2, 1), 1.5))),
            "layer 0, state 2, action 1 .* is 1.5; a const",
        ),
        (
            lambda: Constant(-np.ones(SHAPE)),
            r"layer 0, state 0, action 0 is -1; a reward lies in \[0",
        ),
        (lambda: Constant(np.full(SHAPE, np.nan)), "is nan; a reward lies in"),
        (lambda: Table(np.full((3, *SHAPE), np.inf)), r"\(index \[0\]\) is inf; a reward"),
        (lambda: Constant(np.zeros((2, 3))), r"shape \[L, S, A\] of a reward or \[m, L, S, A\]"),
        (lambda: Table(np.zeros(SHAPE)), r"\[n, L, S, A\] of a reward"),
        (lambda: Constant(np.zeros((0, *SHAPE))), "at least one constraint"),
        (lambda: Bernoulli(np.zeros(SHAPE), bounds=(0, 2)), "bounds must be increasing and within"),
        (lambda: Beta(np.zeros(SHAPE), concentration=0.0), "concentration must be a positive"),
        (lambda: ClippedGaussian(np.zeros(SHAPE), scale=-1.0), "scale must be a positive number"),
        (lambda: UniformNoise(np.zeros(SHAPE), half_width=np.inf), "half_width must be a positive"),
        (lambda: Phases(np.zeros((2, *SHAPE)), period=0), "period must be a whole number"),
        (lambda: Phases(np.zeros((2, *SHAPE)), period=1.5), "period must be a whole number"),
        (lambda: Phases(np.zeros((2, *SHAPE)), schedule="weekly"), 'schedule must be "periodic"'),
        (lambda: Drift(np.full(SHAPE, 0.9), 0.2), r"center \+ amplitude of layer 0, .* is 1.1"),
        (lambda: Corrupted(table("reward"), table("reward"), share=2), "share must lie in"),
        (lambda: Adaptive(np.zeros(SHAPE), strength=-1), "strength must not be negative"),
        (lambda: around(np.zeros(SHAPE), "poisson"), "unknown kind of process 'poisson'"),
    ],
)
def test_bad_input_is_one_sentence(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()


def test_what_a_corruption_hides_is_not_known_without_the_episodes():
    """The first phase is always covered by the burst, so that its values are never shown."""
    first, second = np.full((1, 1, 1, 1), 0.4), np.full((1, 1, 1, 1), -0.3)
    phases = Phases(np.stack([first, second]), period=100, schedule="once")
    corrupted = Corrupted(phases, Constant(np.full((1, 1, 1, 1), -0.2)), share=0.1, period=1000)
    assert not corrupted.extremes().exact
    known = corrupted.extremes(np.arange(2000))
    assert known.exact
    assert float(np.max(known.values)) == pytest.approx(-0.2)
