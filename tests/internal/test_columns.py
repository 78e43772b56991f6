"""Column generation against one linear program over all pairs."""

import numpy as np
import pytest

from pdgd_jax import make, oracle, registered
from pdgd_jax.oracle import _programs
from tests.conftest import random_mdp


def both(monkeypatch, solve, *problem):
    """The answer of one linear program, and that of column generation."""
    answers = []
    for most in (10**9, 0):
        monkeypatch.setattr(_programs, "MOST_PAIRS", most)
        answers.append(solve(*problem))
    return answers


@pytest.mark.parametrize("name", registered())
def test_the_numbers_of_the_instances_are_the_same(name, monkeypatch):
    cmdp = make(name)
    average = oracle.hindsight(cmdp, 1000)
    program, columns = both(
        monkeypatch, oracle.optimum, cmdp.mdp, average.reward, average.constraints
    )
    assert columns.status == program.status == "optimal"
    assert columns.value == pytest.approx(program.value, abs=1e-8)
    # The occupancy is that of a policy which earns as much, and meets the constraints.
    marginal = cmdp.layers.rows_on_host(columns.occupancy).sum(-1)
    assert (np.asarray(average.reward) * marginal).sum() == pytest.approx(columns.value, abs=1e-8)
    assert (np.tensordot(np.asarray(average.constraints), marginal, axes=3) <= 1e-8).all()
    flow = _programs.Flow(cmdp.mdp)
    np.testing.assert_allclose(flow.matrix @ marginal[flow.mask], flow.source, atol=1e-12)
    # Weak duality: at the multipliers no policy earns more.
    prices = np.tensordot(columns.multipliers, np.asarray(average.constraints), axes=1)
    bound, _ = flow.layered().best_policy((np.asarray(average.reward) - prices)[flow.mask])
    assert bound == pytest.approx(columns.value, abs=1e-8)

    free = both(monkeypatch, oracle.optimum, cmdp.mdp, average.reward)
    assert free[1].value == pytest.approx(free[0].value, abs=1e-8)
    assert free[1].multipliers.shape == (0,)
    margins = both(monkeypatch, oracle.slater_margin, cmdp.mdp, cmdp.constraints, 1000)
    assert margins[1].rho == pytest.approx(margins[0].rho, abs=1e-8)
    assert margins[1].exact == margins[0].exact


def test_many_constraints_some_of_which_no_policy_meets(monkeypatch):
    found = set()
    for seed in range(12):
        mdp, rng = (
            random_mdp(seed, sizes=(1, 4, 5, 4, 1), num_actions=3),
            np.random.default_rng(seed),
        )
        mask = np.asarray(mdp.layers.action_mask)
        reward = rng.random(mask.shape) * mask
        costs = rng.uniform(-1, 1, (4, *mask.shape)) * mask
        costs = np.clip(costs + 0.02 * seed * mask, -1, 1)
        program, columns = both(monkeypatch, oracle.optimum, mdp, reward, costs)
        assert columns.status == program.status
        found.add(columns.status)
        if columns.feasible:
            assert columns.value == pytest.approx(program.value, abs=1e-8)
            np.testing.assert_allclose(columns.multipliers, program.multipliers, atol=1e-6)
        margins = both(monkeypatch, oracle.slater_margin, mdp, costs)
        assert margins[1].rho == pytest.approx(margins[0].rho, abs=1e-8)
    assert found == {"optimal", "infeasible"}


def test_padding_changes_nothing(monkeypatch):
    monkeypatch.setattr(_programs, "MOST_PAIRS", 0)
    cmdp = make("riverswim")
    L, S, A = cmdp.layers.shape
    wide = cmdp.pad_to((L + 2, S + 1, A + 1))
    values = [
        oracle.optimum(case.mdp, case.rewards.mean(), case.constraints.mean()).value
        for case in (cmdp, wide)
    ]
    assert values[1] == pytest.approx(values[0], abs=1e-12)
