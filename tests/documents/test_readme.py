"""The README and the manual, tried as a new user would: every block and every command is executed.

The page "Extending" is tried in `test_extending.py`, benchmarks in `test_benchmarks.py`, what sets
up an environment in `test_setup.py`, and the Python of other pages in `test_docs.py`.
"""

import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

from pdgd_jax import Configuration
from pdgd_jax.sweeps import plan_of
from tests.documents.test_extending import COMMANDS as TRIED_ELSEWHERE

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MANUAL = ("command_line", "benchmarks", "extending")
PAGES = [README, *((ROOT / "docs" / f"{name}.md").read_text() for name in MANUAL)]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [block for language, block in FENCED.findall(README) if language == "python"]
PROGRAMS = ("pdgd ", "python ", "python3 ", "pip ")


def lines_of(text):
    """The lines of its shell blocks."""
    return "".join(block for lang, block in FENCED.findall(text) if lang == "sh").splitlines()


def inline_of(text):
    """What stands between backticks in its prose."""
    return [" ".join(words.split()) for words in re.findall(r"`([^`]+)`", FENCED.sub("", text))]


LINES = [line for page in PAGES for line in lines_of(page)]
INLINE = [words for page in PAGES for words in inline_of(page)]
# In their order; one that stands in several places is tried once.
COMMANDS = list(dict.fromkeys(x for x in [*LINES, *INLINE] if x.startswith(PROGRAMS)))

SET_UP = [line for line in COMMANDS if line.startswith("python3 -m venv ")]
EXTRAS = [line for line in COMMANDS if line.startswith("pip install ")]
BENCHMARKS = [line for line in COMMANDS if line.startswith("python benchmarks/")]
COMPLETION = "pdgd --install-completion"
PDGD = [line for line in dict.fromkeys(LINES) if line.startswith("pdgd ")]
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
    assert [line for line in LINES if not line.startswith(PROGRAMS)] == []


def test_every_block_is_one_of_those_tried():
    languages = [{language for language, _ in FENCED.findall(page)} for page in PAGES]
    assert languages == [
        {"sh", "python", "bibtex"},
        {"sh", "toml"},
        {"sh"},
        {"sh", "python", "toml"},
    ]
    for page in PAGES:
        assert page.count("\n```") == 2 * len(FENCED.findall(page))


def test_the_configuration_of_the_command_line_is_one():
    page = PAGES[1 + MANUAL.index("command_line")]
    (block,) = (block for language, block in FENCED.findall(page) if language == "toml")
    asked = Configuration.from_dict({**tomllib.loads(block), "instance": [{"make": "two-phase"}]})
    dims = [option.dim for option in asked.options]
    assert dims == ["ucpd.V", "unifying.mirror", "unifying.rho_scale"]
    assert {"ucpd.V", "unifying.mirror"} <= set(inline_of(page))
    assert plan_of(asked).lanes == 8 * (1 + 3 + 2)


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 160
    assert [line for line in lines_of(README) if line.startswith("python3 -m venv")] == SET_UP


def test_numbers_of_the_readme_are_those_of_the_benchmarks():
    """They stand in both; all else about them stands on the page alone."""
    measured = README[README.index("## What is guaranteed") : README.index("## Command line")]
    rows = [row for row in measured.splitlines() if row.startswith("|") and re.search(r"\d", row)]
    assert len(rows) == 8
    page = (ROOT / "docs" / "benchmarks.md").read_text().splitlines()
    assert [row for row in rows if row not in page] == []


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


def test_links_and_figures_are_there():
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", README):
        assert link.startswith("https://") or (ROOT / link).is_file(), link
