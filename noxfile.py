"""The matrix: the fast tests on every Python, with the newest and the oldest dependencies.

    nox                      every interpreter that is found, with the newest dependencies
    nox -s fast-3.13         one of them
    nox -s others            every one but that which runs nox
    nox -s oldest            the oldest dependencies that pyproject.toml allows, on Python 3.11

Python 3.11 gets JAX 0.10, and 3.12 and newer the newest JAX.
"""

import os
import shutil
import subprocess
import sys

import nox

nox.options.sessions = ["fast"]
nox.options.default_venv_backend = "uv|venv"  # uv installs in seconds
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
HERE = "{}.{}".format(*sys.version_info)


def show_all_of_pyenv() -> None:
    """Let the commands of pyenv answer for every version installed, the newest first.

    They are on the path for all versions, but only those that are active do not fail.
    """
    if shutil.which("pyenv") is None:
        return
    listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True)
    if versions := listed.stdout.split():
        os.environ["PYENV_VERSION"] = ":".join(reversed(versions))


show_all_of_pyenv()


def run_tests(session: nox.Session, *how: str) -> None:
    """Install what the fast tests need, and run them."""
    session.install("-q", *how, ".[test]")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(python=PYTHONS)
def fast(session: nox.Session) -> None:
    """The fast tests with the newest dependencies."""
    run_tests(session)


@nox.session(python=[version for version in PYTHONS if version != HERE])
def others(session: nox.Session) -> None:
    """The same on every Python but this one."""
    run_tests(session)


@nox.session(python=PYTHONS[0], venv_backend="uv")
def oldest(session: nox.Session) -> None:
    """The fast tests with the oldest direct dependencies."""
    run_tests(session, "--resolution", "lowest-direct")
