"""The matrix: the fast tests on every Python, with the newest and the oldest dependencies.

    nox                      every interpreter that is found, with the newest dependencies
    nox -s fast-3.13         one of them
    nox -s oldest            the oldest dependencies that pyproject.toml allows, on Python 3.11

Python 3.11 gets JAX 0.10, and 3.12 and newer the newest JAX.
"""

import nox

nox.options.sessions = ["fast"]
nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


@nox.session(python=PYTHONS)
def fast(session: nox.Session) -> None:
    """The fast tests with the newest dependencies."""
    session.install("-q", ".[test]")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(python=PYTHONS[0], venv_backend="uv")
def oldest(session: nox.Session) -> None:
    """The fast tests with the oldest direct dependencies."""
    session.install("-q", "--resolution", "lowest-direct", ".[test]")
    session.run("python", "-m", "pytest", *session.posargs)
