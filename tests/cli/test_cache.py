"""Compiled programs that the command line keeps between processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pdgd_jax.cli.cache import cache_folder

OF_CACHES = ("PDGD_CACHE", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR")
OF_CACHES += ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",)


def python(*words, **variables):
    """The standard output of a process, which says nothing else."""
    environment = {name: x for name, x in os.environ.items() if name not in OF_CACHES}
    done = subprocess.run(
        [sys.executable, *words],
        env=environment | {name: str(value) for name, value in variables.items()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("system", "variables", "folder"),
    [
        ("linux", {}, "{home}/.cache/pdgd_jax"),
        ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/pdgd_jax"),
        ("linux", {"XDG_CACHE_HOME": "not/absolute"}, "{home}/.cache/pdgd_jax"),
        ("darwin", {"XDG_CACHE_HOME": "/caches"}, "{home}/Library/Caches/pdgd_jax"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/pdgd_jax/cache"),
        ("linux", {"PDGD_CACHE": "/mine", "XDG_CACHE_HOME": "/caches"}, "/mine"),
        ("darwin", {"PDGD_CACHE": "~/mine"}, "{home}/mine"),
    ],
)
def test_the_folder_is_that_of_the_system_or_of_the_user(system, variables, folder):
    found = cache_folder(variables, system)
    # Of a folder that several kinds of machine share, each has a part.
    assert found.parent == Path(folder.format(home=Path.home()))


@pytest.mark.parametrize("word", ["off", "OFF", "0", " no ", "false"])
def test_a_variable_turns_it_off(word):
    assert cache_folder({"PDGD_CACHE": word, "XDG_CACHE_HOME": "/caches"}) is None


def settings(wanted, **variables):
    code = f"""
import jax
import pdgd_jax.cli.entry as entry
before = jax.config.jax_compilation_cache_dir
entry.keep_programs({wanted})
config = jax.config
print(before, config.jax_compilation_cache_dir, config.jax_compilation_cache_max_size > 0,
      config.jax_enable_compilation_cache, sep="|")
"""
    return python("-c", code, **variables).strip().split("|")


def test_importing_the_library_sets_nothing_and_the_command_line_does(tmp_path):
    before, after, limited, used = settings(True, XDG_CACHE_HOME=tmp_path)
    assert (before, limited, used) == ("None", "True", "True")
    assert Path(after).parent == tmp_path / "pdgd_jax"


def test_who_has_told_jax_has_decided(tmp_path):
    own = str(tmp_path / "own")
    variables = {"JAX_COMPILATION_CACHE_DIR": own, "PDGD_CACHE": tmp_path / "other"}
    assert settings(True, **variables) == [own, own, "False", "True"]
    assert settings(False, **variables)[-1] == "False"


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    assert settings(True, PDGD_CACHE=tmp_path / "file")[1] == "None"


RUN = ["run", "two-phase", "--episodes", "20", "--seeds", "2", "--checkpoints", "2", "--json"]


@pytest.mark.slow  # six processes, without the Newton solver, which would be most of their time
@pytest.mark.parametrize("learner", ["uniform", "pdgd-ops"])
def test_results_are_the_same_bits_with_and_without(tmp_path, learner):
    kept = tmp_path / "kept"

    def run(*before, folder=kept):
        words = ["-m", "pdgd_jax", "--import", "tests.quick_solver", *before, *RUN]
        words += ["--learner", learner, "--solver", "quick"]
        facts = json.loads(python(*words, PDGD_CACHE=folder))
        facts.pop("seconds")
        return facts

    def programs():
        return {file.name: file.read_bytes() for file in kept.glob("*/*-cache")}

    first = run()
    written = programs()
    assert any("_play" in name for name in written)
    assert run() == first
    assert programs() == written  # the second compiled nothing
    assert run("--no-cache", folder=tmp_path / "unused") == first
    assert not (tmp_path / "unused").exists()
