"""What a newcomer relies on beside the code: citation, changelog, hooks, the map of rooms."""

import ast
import pathlib
import re

import pytest

from pdgd_jax import __version__

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_citation_names_this_version_and_the_authors_of_the_readme():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {__version__}\n" in citation
    authors = re.search(r"author  = \{(.*?)\}", README, re.DOTALL)[1]
    for author in " ".join(authors.split()).split(" and "):
        family, given = author.split(", ")
        assert f"{{family-names: {family}, given-names: {given}}}" in citation


def test_the_changelog_begins_with_this_version():
    headings = re.findall(r"^##+ (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0].split()[0] == __version__
    assert headings[1:4] == ["Added", "Changed", "Fixed"]


def test_the_hooks_need_no_other_host():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert set(re.findall(r"repo: (.*)", hooks)) == {"local"}
    assert set(re.findall(r"language: (.*)", hooks)) == {"system"}


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda x: x.stem)
def test_a_benchmark_says_shortly_what_it_measures(file):
    """What was found stands in the documentation, as tables."""
    text = ast.get_docstring(ast.parse(file.read_text()))
    assert len(text.splitlines()) <= 15
    assert f"`{file.name}`" in (ROOT / "benchmarks" / "README.md").read_text()


def test_the_map_of_rooms_names_every_room_and_in_their_order():
    design = (ROOT / "docs" / "developer" / "design.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \|", design.split("## Rooms")[1].split("## The way")[0], re.M)
    contract = (ROOT / "pyproject.toml").read_text().split("layers = [")[1].split("]")[0]
    layers = re.findall(r'"(.*)"', contract)
    named = [" : ".join(f"pdgd_jax.{room}" for room in re.findall(r"`(\w+)`", row)) for row in rows]
    assert named == [x for x in layers if not x.endswith(("__main__", "_version"))]


def test_the_design_names_every_file_of_a_sweep():
    design = (ROOT / "docs" / "developer" / "design.md").read_text()
    named = re.findall(r"`(_\w+)`", design.split("## The way of a sweep")[1].split("## ")[0])
    files = (ROOT / "pdgd_jax" / "sweeps").glob("_[a-z]*.py")
    assert {file.stem for file in files} == set(named)


def test_the_glossary_is_in_alphabetical_order():
    design = (ROOT / "docs" / "developer" / "design.md").read_text()
    words = re.findall(r"^\| ([^|]+) \|", design.split("## Glossary")[1], re.MULTILINE)[1:]
    assert words == sorted(words, key=str.lower)
    assert len(words) > 30
