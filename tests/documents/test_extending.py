"""A person who has read only the page "Extending" adds a process, a learner and a solver.

What `docs/extending.md` shows is written, block by block, to a module outside the repository,
and its commands are run there with the installed package.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "extending.md").read_text()
COMMANDS = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).splitlines()
CONFIGURATION, ENTRY_POINTS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with the module that the page tells to write."""
    folder = tmp_path_factory.mktemp("project")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    (folder / "my_module.py").write_text("\n".join(blocks))
    (folder / "my.toml").write_text(CONFIGURATION)
    return folder


@pytest.fixture(scope="module")
def shell(project):
    """Run a line there, as typed with the environment activated."""
    scripts = pathlib.Path(sys.executable).parent
    path = os.pathsep.join([str(scripts), os.environ["PATH"]])

    def run(line):
        environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
        done = subprocess.run(
            line, shell=True, cwd=project, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_module_registers_its_instance(shell):
    assert "A machine that wears out" in shell("pdgd --import my_module instances machine")


def test_the_entry_points_name_what_the_module_holds(project):
    """As a package would offer them, to be found by the names of the blocks above."""
    groups = tomllib.loads(ENTRY_POINTS)["project"]["entry-points"]
    assert list(groups) == ["pdgd_jax.instances", "pdgd_jax.learners", "pdgd_jax.solvers"]
    module = (project / "my_module.py").read_text()
    for group, points in groups.items():
        kind = {"instances": "register", "learners": "register_learner"}
        register = kind.get(group.removeprefix("pdgd_jax."), "register_solver")
        for name, target in points.items():
            home, _, attribute = target.partition(":")
            assert home == "my_module"
            assert f'\n{register}("{name}", {attribute})' in module


@pytest.mark.slow
def test_the_process_makes_an_instance_whose_budget_binds(shell):
    facts = json.loads(shell(f"{COMMANDS[0]} --json"))
    assert facts["rewards_process"] == "Seasons (adversarial)"
    assert facts["sizes"] == [1, 2, 3, 3, 3, 3, 1]
    assert facts["multipliers"][0] > 0.5  # or the example would show nothing
    assert facts["opt"] < 0.95 * facts["unconstrained_opt"]


@pytest.mark.slow
def test_the_learner_learns_something_and_not_too_much(shell):
    text = shell(COMMANDS[1])
    assert "myopic on machine: 2,000 episodes, 8 seeds" in text
    # Playing at random earns 1.98 an episode, the best policy 3.27; one that never repairs 2.5.
    earned = float(re.search(r"^reward +([\d,]+)", text, re.MULTILINE)[1].replace(",", ""))
    assert 2.3 < earned / 2000 < 3
    assert "guarantees:" in text
    assert "myopic knows: nothing; sees: full information\n" in text


@pytest.mark.slow
def test_the_solver_solves_but_takes_longer(shell):
    text = shell(COMMANDS[2])
    assert "projections: all converged" in text
    # From the last episode's solution it takes 2.2.
    assert float(re.search(r"([\d.]+) iterations each", text)[1]) > 4


@pytest.mark.slow
def test_configurations_take_them_too(shell):
    facts = json.loads(shell(f"{COMMANDS[3]} --json"))
    rows = [(row["learner"], row["horizon"], row["myopic.step"]) for row in facts["cells"]]
    assert rows == [("myopic", 1000, 0.05), ("myopic", 1000, 0.2)]
    assert all(row["violation"] < 0 for row in facts["cells"])
