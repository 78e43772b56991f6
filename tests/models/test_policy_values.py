"""Batch evaluation against one policy at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import evaluate_policies, make, occupancy_of, oracle, stack, value_of


def random_policies(layers, number, seed=0):
    mask = np.asarray(layers.action_mask)
    weights = np.random.default_rng(seed).uniform(0.1, 1, (number, *mask.shape)) * mask
    total = weights.sum(-1, keepdims=True)
    return jnp.asarray(weights / np.where(total > 0, total, 1))


INSTANCES = [
    make("random", sizes=(1, 2, 1), num_actions=2, num_constraints=2),
    make("random", sizes=(1, 3, 3, 1), num_actions=2, num_constraints=2, seed=1),
]


@pytest.mark.parametrize("max_bytes", [None, 20_000])
def test_a_stack_equals_one_at_a_time(max_bytes):
    """The small budget makes several turns, the last of which is not full."""
    both = stack(INSTANCES)
    L, S, A = both.layers.shape
    own = jnp.stack([random_policies(cmdp.pad_to((L, S, A)).layers, 25) for cmdp in INSTANCES])
    found = evaluate_policies(both, own, max_bytes=max_bytes)
    assert found.reward.shape == (2, 25)
    assert found.violation.shape == (2, 25, 2)
    for i, cmdp in enumerate(INSTANCES):
        k, x, a = cmdp.layers.shape
        for n in (0, 7, 24):
            q = occupancy_of(cmdp.mdp, own[i, n, :k, :x, :a])
            np.testing.assert_allclose(found.occupancy[i, n, :k, :x, :a, :x], q, atol=1e-14)
            assert float(found.occupancy[i, n].sum()) == pytest.approx(k)
            reward = value_of(cmdp.rewards.mean(), q)
            assert float(found.reward[i, n]) == pytest.approx(float(reward), abs=1e-13)
            cost = value_of(cmdp.constraints.mean(), q)
            np.testing.assert_allclose(found.violation[i, n], cost, atol=1e-13)


def test_shared_policies_are_played_on_every_instance():
    seeds = [make("random", sizes=(1, 3, 1), num_actions=2, seed=seed) for seed in (0, 1)]
    policies = random_policies(seeds[0].layers, 10)
    together = evaluate_policies(stack(seeds), policies)
    for i, cmdp in enumerate(seeds):
        alone = evaluate_policies(cmdp, policies)
        np.testing.assert_allclose(together.reward[i], alone.reward, atol=1e-14)
    assert float(jnp.abs(together.reward[0] - together.reward[1]).max()) > 1e-3


def test_an_adversary_is_evaluated_on_a_given_outcome():
    cmdp = make("random", sizes=(1, 3, 1), num_actions=2, constraints="phases")
    policies = random_policies(cmdp.layers, 3)
    with pytest.raises(ValueError, match="the constraints are adversarial and have no mean"):
        evaluate_policies(cmdp, policies)
    average = oracle.hindsight(cmdp, 100)
    found = evaluate_policies(cmdp, policies, outcome=average)
    q = occupancy_of(cmdp.mdp, policies[1])
    np.testing.assert_allclose(found.violation[1], value_of(average.constraints, q), atol=1e-13)


def test_no_policy_beats_the_optimum_without_violating():
    cmdp = INSTANCES[1]
    best = oracle.optimum(cmdp.mdp, cmdp.rewards.mean(), cmdp.constraints.mean())
    found = evaluate_policies(cmdp, random_policies(cmdp.layers, 2000))
    feasible = np.asarray(found.violation).max(-1) <= 0
    assert feasible.any()
    assert np.asarray(found.reward)[feasible].max() <= best.value + 1e-9


def test_wrong_shapes_are_refused_in_a_sentence():
    both, policies = stack(INSTANCES), random_policies(INSTANCES[0].layers, 2)
    with pytest.raises(ValueError, match=r"must have the shape \(N, 3, 3, 2\), or \(2, N, 3, 3"):
        evaluate_policies(both, policies)
    with pytest.raises(ValueError, match=r"must have the shape \(N, 2, 2, 2\) of the CMDP"):
        evaluate_policies(INSTANCES[0], policies[None])
    with pytest.raises(ValueError, match="must have the shape"):
        evaluate_policies(both, jnp.zeros((3, 4, 3, 3, 2)))


def test_it_is_one_program_under_jit():
    cmdp = INSTANCES[0]
    policies = random_policies(cmdp.layers, 4)
    inside = jax.jit(lambda policies: evaluate_policies(cmdp, policies).reward)(policies)
    np.testing.assert_allclose(inside, evaluate_policies(cmdp, policies).reward, atol=1e-14)
