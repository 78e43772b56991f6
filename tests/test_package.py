"""What holds for the package as a whole: imports and public names."""

import ast
import importlib
import pathlib
import subprocess
import sys
import tomllib

import pytest

import pdgd_jax

ROOT = pathlib.Path(__file__).parent.parent


def in_a_new_process(code):
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_changes_no_setting_and_loads_no_extra():
    in_a_new_process(
        "import sys\n"
        "from pdgd_jax import *\n"
        "import jax\n"
        "assert not jax.config.jax_enable_x64\n"
        "extras = {'jaxopt', 'gymnasium', 'matplotlib', 'typer', 'xarray', 'zarr'}\n"
        "assert not extras & set(sys.modules)\n"
    )


def test_what_the_command_line_loads_first_is_small():
    """While it is loaded, Ctrl-C still prints a traceback."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["pdgd"].partition(":")
    in_a_new_process(
        f"import sys\nfrom {module} import {function}\n"
        "assert not {'jax', 'numpy', 'typer', 'rich'} & set(sys.modules)\n"
    )


def test_every_public_name_exists_and_is_documented():
    for name in pdgd_jax.__all__:
        thing = getattr(pdgd_jax, name)
        assert name.startswith("__") or thing.__doc__, name
    assert set(pdgd_jax.__all__) <= set(dir(pdgd_jax))


def test_names_are_the_same_for_those_who_run_and_those_who_read():
    body = ast.parse(pathlib.Path(pdgd_jax.__file__).read_text()).body
    block = next(
        part for part in body if isinstance(part, ast.If) and part.test.id == "TYPE_CHECKING"
    )
    read = {
        part.module.removeprefix("pdgd_jax").removeprefix("."): sorted(x.name for x in part.names)
        for part in block.body
    }
    modules = read.pop("")
    assert read == {home: sorted(names) for home, names in pdgd_jax._HOMES.items()}
    assert {*modules, *pdgd_jax._HOME, "__version__"} == set(pdgd_jax.__all__)
    assert all(importlib.import_module(f"pdgd_jax.{name}") for name in modules)


@pytest.mark.parametrize("first", ["import pdgd_jax.sweep", "from pdgd_jax.unroll import unroll"])
def test_a_function_keeps_its_name_whatever_was_imported_first(first):
    in_a_new_process(
        f"{first}\n"
        "import pdgd_jax\n"
        "from pdgd_jax import sweep\n"
        "assert callable(sweep) and callable(pdgd_jax.sweep) and callable(pdgd_jax.unroll)\n"
        "assert pdgd_jax.oracle.optimum and pdgd_jax.plots.regret\n"
    )


def test_an_unknown_name_is_refused_as_by_any_module():
    with pytest.raises(AttributeError, match="module 'pdgd_jax' has no attribute 'pgdg_ops'"):
        _ = pdgd_jax.pgdg_ops

    def misspelt():
        from pdgd_jax import pgdg_ops

        return pgdg_ops

    with pytest.raises(ImportError, match="cannot import name 'pgdg_ops'"):
        misspelt()
