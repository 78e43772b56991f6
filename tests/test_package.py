"""What holds for the package as a whole: imports and public names."""

import subprocess
import sys

import pdgd_jax


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
