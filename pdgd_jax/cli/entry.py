"""The entry of `pdgd`."""

import importlib
import os
import sys
from typing import Annotated

import jax
import typer

from pdgd_jax._version import __version__
from pdgd_jax.cli import instances, learners, plot, report, run, solve, status, sweep
from pdgd_jax.cli.app import EXIT_CODES, app, examples, register, run_app
from pdgd_jax.cli.cache import VARIABLE, keep_programs
from pdgd_jax.cli.users import importing, place_of
from pdgd_jax.simulation import use_every_core

__all__ = ["main"]


# In the order of use, which is that of the help.
register(
    run.COMMAND,
    sweep.COMMAND,
    status.COMMAND,
    plot.COMMAND,
    report.COMMAND,
    instances.COMMAND,
    learners.COMMAND,
    solve.COMMAND,
)


def main() -> None:
    """Run `pdgd`, in float64, on all cores."""
    jax.config.update("jax_enable_x64", True)
    use_every_core()
    run_app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pdgd_jax {__version__}")
        raise typer.Exit


def _import(modules: list[str] | None) -> list[str]:
    modules = modules or []
    # Like `python -m`, make modules in the current folder importable.
    sys.path[:0] = [os.getcwd()] if modules else []
    for module in modules:
        try:
            with importing(module):
                importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in (module, module.partition(".")[0]):
                raise
            raise ValueError(
                f"--import {module}: there is no such module here ({os.getcwd()}) nor among the "
                "installed ones; give a module's name, as in an import statement."
            ) from None
        except (TypeError, ValueError) as error:
            if place_of(error):
                raise
            raise ValueError(
                f"--import {module!r}: give a module's name, as in an import statement."
            ) from None
    return modules


@app.callback(
    invoke_without_command=True,
    epilog=examples(
        "pdgd run",
        "pdgd run streaming --episodes 1e5 --seeds 16",
        "pdgd sweep quick --out results",
        "pdgd plot results --figure violation",
        "pdgd report results",
        "pdgd --install-completion",
    )
    + "\n\n"
    + EXIT_CODES,
)
def _options(
    context: typer.Context,
    import_: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            envvar="PDGD_IMPORT",
            callback=_import,
            is_eager=True,
            help="Import this module first; it registers your instances or learners.",
        ),
    ] = None,
    no_cache: Annotated[
        bool,
        typer.Option(
            "--no-cache",
            help="Do not keep or use compiled programs of other runs. The variable "
            f"{VARIABLE} is the folder to keep them in, or off.",
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    del import_, version  # handled by their callbacks
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        return
    keep_programs(not no_cache)
