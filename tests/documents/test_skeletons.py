"""The skeletons that `docs/developer/adding.md` offers to copy: each is imported and played."""

import importlib.util
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pdgd_jax
from pdgd_jax import CMDP, ConfidenceSet, make, occupancy_of, project, run
from pdgd_jax.learners import check_fits
from pdgd_jax.oracle import slater_margin

FOLDER = pathlib.Path(__file__).parents[2] / "docs" / "developer" / "skeletons"


@pytest.fixture
def skeleton(monkeypatch):
    """Import one by name; what it registers is noted, and not left behind in the registries."""
    registered = {}
    for register in ("register", "register_learner", "register_solver"):
        monkeypatch.setattr(pdgd_jax, register, registered.__setitem__)

    def load(name):
        spec = importlib.util.spec_from_file_location(f"skeleton_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.registered = registered
        return module

    return load


@pytest.fixture(scope="module")
def cmdp():
    return make("random", sizes=(1, 2, 2, 1), num_actions=2, seed=3)


def test_every_skeleton_is_played_here_and_shown_on_the_page():
    names = sorted(file.stem for file in FOLDER.glob("*.py"))
    assert names == ["command", "instance", "learner", "process", "solver"]
    page = (FOLDER.parent / "adding.md").read_text()
    for name in names:
        assert f'--8<-- "developer/skeletons/{name}.py"' in page


def test_the_learner_learns(skeleton, cmdp):
    module = skeleton("learner")
    assert module.registered == {"my-learner": module.my_learner}
    learner = module.my_learner(cmdp, 300, step_size=0.1)
    check_fits(learner, cmdp, 300)
    history = run(jax.random.key(0), cmdp, learner, num_episodes=300, checkpoints=10)
    assert np.isfinite(history.reward).all()
    early, late = history.reward[0], history.reward[-1] - history.reward[-2]
    assert late > early  # in an equal number of episodes
    padded = make("random", sizes=(1, 3, 1), num_actions=2)  # with states that do not exist
    played = learner_policy(module, padded)
    assert np.array_equal(played.sum(-1), padded.layers.decision_mask)


def learner_policy(module, cmdp):
    learner = module.my_learner(cmdp, 10)
    return np.asarray(learner.policy(learner.init(jax.random.key(0))))


def test_the_process_shows_both_tables(skeleton, cmdp):
    shape = cmdp.layers.shape
    first, second = jnp.full((1, *shape), -0.5), jnp.full((1, *shape), 0.1)
    process = skeleton("process").Fickle(first, second, jnp.asarray(0.5))
    played = CMDP(cmdp.mdp, cmdp.rewards, process)
    policy, state, seen = cmdp.layers.uniform_policy(), process.init(jax.random.key(0)), set()
    for episode, key in enumerate(jax.random.split(jax.random.key(1), 20)):
        values, state = process.draw(key, state, jnp.asarray(episode), policy)
        seen.add(round(float(values.max()), 6))
    assert seen == {-0.5, 0.1}
    # The worst table violates by 0.1 in each of the three layers, whatever is played.
    assert slater_margin(played.mdp, process).rho == pytest.approx(-0.3, abs=1e-6)


def test_the_instance_is_made_and_its_budget_binds(skeleton):
    module = skeleton("instance")
    assert module.registered == {"my-instance": module.my_instance}
    tight, loose = (module.my_instance(budget=budget) for budget in (0.2, 2.0))
    assert (tight.layers.sizes, tight.num_constraints) == ((1, 2, 2, 1), 1)
    best = [
        pdgd_jax.oracle.optimum(x.mdp, x.rewards.mean(), x.constraints.mean())
        for x in (tight, loose)
    ]
    assert best[0].value < best[1].value
    with pytest.raises(ValueError, match="horizon must be at least 1"):
        module.my_instance(horizon=0)


def test_the_solver_projects(skeleton, cmdp):
    module = skeleton("solver")
    assert module.registered == {"my-solver": module.my_solver}
    mdp = cmdp.mdp
    inside = occupancy_of(mdp, mdp.layers.uniform_policy())
    confidence = ConfidenceSet(mdp.transition, jnp.full(mdp.layers.shape, 0.2))
    away = inside + jnp.where(mdp.layers.triple_mask, 0.1, 0)  # moves every target alike
    results = jax.jit(
        jax.vmap(lambda v: project(mdp.layers, v, confidence, solver=module.my_solver))
    )(jnp.stack([inside, away]))
    assert results.info.converged.all()
    assert np.abs(results.occupancy[0] - inside).max() < 1e-3  # it is an occupancy already
    assert float(results.info.iterations[1]) > 0
    flow = results.occupancy[1].sum((1, 2))
    assert flow.sum(-1) == pytest.approx(np.ones(3), abs=5e-3)


def test_the_command_lists_what_a_learner_takes(skeleton, capsys):
    command = skeleton("command").COMMAND
    command.function("pdgd-ops")
    assert "confidence_scale" in capsys.readouterr().out
    command.function("uniform", as_json=True)
    assert json.loads(capsys.readouterr().out) == {"learner": "uniform", "settings": []}
    with pytest.raises(ValueError, match="pdgd-ops"):
        command.function("pdgd-op")
