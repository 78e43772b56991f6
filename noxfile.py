"""The matrix: the fast tests on every Python, with the newest and the oldest dependencies.

    nox                      every interpreter that is found, with the newest dependencies
    nox -s fast-3.13         one of them
    nox -s others            every one but that which runs nox
    nox -s oldest            the oldest dependencies that pyproject.toml allows, on Python 3.11

Python 3.11 gets JAX 0.10, and 3.12 and newer the newest JAX.
"""

import sys

import nox

nox.options.sessions = ["fast"]
nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
HERE = "{}.{}".format(*sys.version_info)


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
