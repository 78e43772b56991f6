"""The commands of the README that set up an environment, in a clean copy of the repository."""

import shutil

import pytest

from tests.documents.test_readme import EXTRAS, ROOT, SET_UP, shell


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The repository as it is cloned, with an environment that can reach an index of packages."""
    folder = tmp_path_factory.mktemp("clone")
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "site")
    shutil.copytree(ROOT, folder, ignore=unwanted, dirs_exist_ok=True)
    shell("python3 -m venv .venv", folder)
    try:
        shell(".venv/bin/pip download --no-deps -d probe typer", folder)
    except AssertionError as error:
        if "(from versions: none)" not in str(error):
            raise  # only where there is no index at all, these commands cannot be tried
        pytest.skip(f"pip finds no index of packages: {str(error).splitlines()[-1]}")
    return folder


@pytest.mark.slow
def test_an_environment_is_set_up(clone):
    """The two commands word for word, but that the tests are only collected here."""
    assert len(SET_UP) == 2
    assert SET_UP[1].endswith(" -m pytest")
    assert "guarantees:" in shell(SET_UP[0], clone)
    collected = shell(SET_UP[1], clone, PYTEST_ADDOPTS="--collect-only -q -n0")
    assert "tests/documents/test_readme.py::test_every_command_is_one_of_those_tried" in collected
    for line in EXTRAS:
        shell(f". .venv/bin/activate && {line} --dry-run", clone)
