"""The README, tried as a new user would: every block of Python and every command is executed.

The section "Extending" is tried in `test_extending.py`. The two commands that set up an environment
are run by `.ci/run`; benchmarks take minutes, so that here they only have to start.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
REST = re.sub(r"\n## Extending\n.*?(?=\n## )", "", README, flags=re.DOTALL)
BLOCKS = re.findall(r"```python\n(.*?)```", REST, re.DOTALL)
LINES = "".join(re.findall(r"```sh\n(.*?)```", REST, re.DOTALL)).splitlines()
COMMANDS = [line for line in LINES if line.startswith("pdgd ")]
BENCHMARKS = sorted(set(re.findall(r"python (benchmarks/\w+\.py)", README)))


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_python_runs(block, tmp_path):
    subprocess.run([sys.executable, "-c", block], cwd=tmp_path, check=True)


@pytest.mark.slow
def test_commands_run_one_after_the_other(tmp_path):
    """In one folder, since later ones look at what earlier ones have made."""
    scripts = str(pathlib.Path(sys.executable).parent)
    environment = {**os.environ, "PATH": os.pathsep.join([scripts, os.environ["PATH"]])}
    for command in COMMANDS:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"


def test_every_line_is_one_of_those_tried():
    kinds = ("pdgd ", "python3 -m venv ", "python benchmarks/", "pip install ")
    assert [line for line in LINES if not line.startswith(kinds)] == []
    assert len(COMMANDS) > 5


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_benchmarks_that_numbers_are_quoted_from_start(benchmark):
    words = [sys.executable, str(ROOT / benchmark), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for option in re.findall(rf"python {re.escape(benchmark)}([^`\n]*)", README):
        for word in option.split():
            assert not word.startswith("--") or word in done.stdout


def test_the_two_commands_that_set_up_an_environment():
    commands = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert len(commands) == 2
    assert commands[1].endswith("-m pytest")


def test_figures_are_there():
    for figure in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / figure).is_file()
