"""The README, tried as a new user would: every block of Python and every command is executed.

The section "Extending" is tried in `test_extending.py`, benchmarks in `test_readme_benchmarks.py`,
what sets up an environment in `test_readme_setup.py`.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.documents.test_extending import COMMANDS as TRIED_ELSEWHERE

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
REST = re.sub(r"\n## Extending\n.*?(?=\n## )", "", README, flags=re.DOTALL)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [block for language, block in FENCED.findall(REST) if language == "python"]
LINES = "".join(block for language, block in FENCED.findall(README) if language == "sh")
INLINE = [" ".join(words.split()) for words in re.findall(r"`([^`]+)`", FENCED.sub("", README))]
PROGRAMS = ("pdgd ", "python ", "python3 ", "pip ")
# In their order; one that stands in several places is tried once.
COMMANDS = list(dict.fromkeys(x for x in [*LINES.splitlines(), *INLINE] if x.startswith(PROGRAMS)))

SET_UP = [line for line in COMMANDS if line.startswith("python3 -m venv ")]
EXTRAS = [line for line in COMMANDS if line.startswith("pip install ")]
BENCHMARKS = [line for line in COMMANDS if line.startswith("python benchmarks/")]
COMPLETION = "pdgd --install-completion"
PDGD = [line for line in LINES.splitlines() if line.startswith("pdgd ")]
PDGD = [line for line in PDGD if line not in TRIED_ELSEWHERE]


def shell(line, folder, **environment):
    """Run a line there, as typed with the environment activated; returns what it prints."""
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", f"{line}\nexit $?"],  # with a second line the shell stays, as a user's does
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_every_command_is_one_of_those_tried():
    tried = [*SET_UP, *EXTRAS, *BENCHMARKS, *PDGD, *TRIED_ELSEWHERE, COMPLETION]
    # Prose may name a command by its first words.
    assert [
        line for line in COMMANDS if not any(f"{x} ".startswith(f"{line} ") for x in tried)
    ] == []
    assert all((SET_UP, EXTRAS, BENCHMARKS, PDGD, TRIED_ELSEWHERE))
    assert [line for line in LINES.splitlines() if not line.startswith(PROGRAMS)] == []


def test_every_block_is_one_of_those_tried():
    assert {language for language, _ in FENCED.findall(REST)} == {"sh", "python", "bibtex"}
    assert README.count("\n```") == 2 * len(FENCED.findall(README))


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_python_runs(block, tmp_path):
    subprocess.run([sys.executable, "-c", block], cwd=tmp_path, check=True)


@pytest.mark.slow
def test_commands_run_one_after_the_other(tmp_path):
    """In one folder, since later ones look at what earlier ones have made."""
    for command in PDGD:
        shell(command, tmp_path)


@pytest.mark.slow
def test_completion_is_installed(tmp_path):
    assert "bash completion installed" in shell(COMPLETION, tmp_path, HOME=str(tmp_path))
    assert "pdgd" in (tmp_path / ".bash_completions" / "pdgd.sh").read_text()


def test_figures_are_there():
    for figure in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / figure).is_file()
