"""What holds for the package as a whole: imports, public names, the README."""

import pathlib
import re
import subprocess
import sys

import pytest

import pdgd_jax

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_importing_changes_no_setting_and_loads_no_extra():
    code = (
        "import sys, pdgd_jax, jax\n"
        "assert not jax.config.jax_enable_x64\n"
        "extras = {'jaxopt', 'gymnasium', 'matplotlib', 'typer', 'xarray', 'zarr'}\n"
        "assert not extras & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_exists_and_is_documented():
    for name in pdgd_jax.__all__:
        thing = getattr(pdgd_jax, name)
        assert name.startswith("__") or thing.__doc__, name


@pytest.mark.slow
@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_code_of_the_readme_runs(block):
    exec(compile(block, "README.md", "exec"), {})


def test_the_readme_shows_two_commands():
    commands = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert len(commands) == 2
    assert commands[1].endswith("-m pytest")
