"""The notebooks: pairs of a script and a notebook without outputs, which run from top to bottom."""

import json
import pathlib
import tomllib

import pytest

jupytext = pytest.importorskip("jupytext", reason="jupytext is in the extra notebooks")

FOLDER = pathlib.Path(__file__).parents[2] / "notebooks"
SCRIPTS = sorted(FOLDER.glob("*.py"))
NAMES = [script.stem for script in SCRIPTS]


def cells(path):
    """Kind and text of every cell."""
    return [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]


def test_there_are_seven():
    assert [name[:3] for name in NAMES] == ["01_", "02_", "03_", "04_", "05_", "06_", "07_"]
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_pairs_say_the_same(script):
    notebook = script.with_suffix(".ipynb")
    assert cells(notebook) == cells(script), f"jupytext --sync {script}"
    for cell in jupytext.read(notebook).cells:
        assert not cell.get("outputs"), "notebooks are committed without outputs"
        assert cell.get("execution_count") is None


def test_the_curves_are_those_of_the_sweeps_beside_them():
    folder = FOLDER / "support"
    curves = json.loads((folder / "curves.json").read_text())
    assert sorted(curves) == sorted(path.stem for path in folder.glob("*.toml"))
    for name, curve in curves.items():
        asked = tomllib.loads((folder / f"{name}.toml").read_text())
        assert curve["seeds"] == asked["seeds"], name
        assert curve["episode"][-1] == asked["settings"]["horizon"], name
        assert curve["unconverged"] == 0, name


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_notebooks_run(script):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is in the extra notebooks")
    notebook = jupytext.read(script.with_suffix(".ipynb"))
    client = nbclient.NotebookClient(notebook, timeout=1200, kernel_name="python3")
    client.execute(cwd=str(FOLDER))
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown), "no figure was shown"
