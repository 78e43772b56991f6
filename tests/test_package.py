"""What holds for the package as a whole: imports and public names."""

import ast
import importlib
import pathlib
import pkgutil
import re
import subprocess
import sys
import tomllib
import types

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


def test_no_name_is_both_a_function_and_a_module():
    rooms = {module.name for module in pkgutil.iter_modules(pdgd_jax.__path__)}
    for name in rooms & set(pdgd_jax.__all__):
        assert isinstance(getattr(pdgd_jax, name), types.ModuleType), name
    for room in rooms - {"__main__"}:
        door = importlib.import_module(f"pdgd_jax.{room}")
        inside = {module.name for module in pkgutil.iter_modules(getattr(door, "__path__", []))}
        for name in inside & set(getattr(door, "__all__", ())):
            assert isinstance(getattr(door, name), types.ModuleType), f"{room}.{name}"


def test_a_room_is_entered_by_its_door():
    """Nobody outside a room imports one of its files; imports inside functions count.

    A room within a room is a room: what lies around it is open to it, but not the other way round.
    """
    package = pathlib.Path(pdgd_jax.__file__).parent
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(package).with_suffix("").parts
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in [node.module, *names]:
                _, *parts = name.split(".")
                if not name.startswith("pdgd_jax.") or parts[0] in ("_internal", "_version"):
                    continue
                private = [at for at, part in enumerate(parts) if part.startswith("_")]
                around = parts[: private[0]] if private else []
                assert list(place[: len(around)]) == around, f"{file} imports {name}"


def test_few_lines_leave_a_type_open():
    """At most 15 lines of 1,000 say `Any`, other than to import it."""
    package = pathlib.Path(pdgd_jax.__file__).parent
    lines = [line for file in package.rglob("*.py") for line in file.read_text().splitlines()]
    open_ = [line for line in lines if re.search(r"\bAny\b", line) and "import" not in line]
    assert 1000 * len(open_) <= 15 * len(lines), f"{len(open_)} of {len(lines)} lines"


def test_there_are_few_rooms():
    entries = {file.name for file in pathlib.Path(pdgd_jax.__file__).parent.iterdir()}
    assert len(entries - {"__pycache__"}) <= 20


def test_an_unknown_name_is_refused_as_by_any_module():
    with pytest.raises(AttributeError, match="module 'pdgd_jax' has no attribute 'pgdg_ops'"):
        _ = pdgd_jax.pgdg_ops

    def misspelt():
        from pdgd_jax import pgdg_ops

        return pgdg_ops

    with pytest.raises(ImportError, match="cannot import name 'pgdg_ops'"):
        misspelt()
