"""Settings of the whole test session, and small instances that many tests share."""

import contextlib
import itertools
import os
import pkgutil
import shutil
import subprocess
import sys

import jax
import jaxtyping
import numpy as np
import pytest

import pdgd_jax

# Annotations are executed, shapes included. Commands are not checked: typer passes them a context
# whose class differs from the annotation. An option of pytest would not reach the workers of
# pytest-xdist. As in PEP 484, an int is a float.
CHECKED = [room.name for room in pkgutil.iter_modules(pdgd_jax.__path__, "pdgd_jax.")]
CHECKED.remove("pdgd_jax.cli")
jaxtyping.install_import_hook(
    CHECKED, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
)

from pdgd_jax import LayeredMDP, Layers  # noqa: E402, only now, so that the hook sees it

# Processes that tests start leave the user's cache alone; those that want a cache say where.
os.environ["PDGD_CACHE"] = "off"

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)  # for what is sharded; the rest uses the first
# A silent broadcast between ranks is a bug that has not been noticed yet.
jax.config.update("jax_numpy_rank_promotion", "raise")


# Variables that make a program believe that it runs in a terminal.
OF_TERMINALS = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def pytest_addoption(parser):
    parser.addoption(
        "--optimise", action="store_true", help="compile as a user does, which takes twice as long"
    )


def pytest_configure(config):
    """Nearly all the time of the tests is compilation: they do without most optimisations."""
    if config.option.optimise:
        return
    jax.config.update("jax_disable_most_optimizations", True)
    if jax.__version__.startswith("0.10."):
        # How kernels were made before: half the time to compile. Later versions have no such flag.
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_use_fusion_emitters=false".strip()


def pytest_collection_modifyitems(config, items):
    """What takes long to run, or depends on how it is compiled, is not compiled in a hurry."""
    if config.option.optimise:
        return
    hurried = pytest.mark.skip(reason="the program is compiled in a hurry; --optimise runs it")
    for item in items:
        if item.get_closest_marker("slow") and item.get_closest_marker("optimised"):
            item.add_marker(hurried)


def pytest_xdist_auto_num_workers(config):
    """Whoever names a single test waits for no workers, and may debug it."""
    few = all("::" in argument for argument in config.args)
    return 0 if few or config.option.usepdb else None


@pytest.fixture(params=[pytest.param("float32", marks=pytest.mark.slow), "float64"])
def precision(request):
    """Run a test in both precisions, as a user who has or has not enabled x64."""
    context = jax.enable_x64(False) if request.param == "float32" else contextlib.nullcontext()
    with context:
        yield request.param


@pytest.fixture
def unchecked():
    """No annotation is executed: for tests of what the package itself says to a mistake."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def pdgd(monkeypatch, capsys):
    """Run `pdgd` with the given words; returns exit code, output and errors."""

    def run(*words, columns=100):
        from pdgd_jax.cli import entry

        monkeypatch.setattr(sys, "argv", ["pdgd", *words])
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as stop:
            entry.main()
        output = capsys.readouterr()
        return stop.value.code or 0, output.out, output.err

    return run


@pytest.fixture
def disk_of(tmp_path):
    """Make a small disk, of so many bytes; the test is skipped where one may not mount."""
    disk = tmp_path / "disk"

    def mount(size):
        program = shutil.which("mount")
        if program is None:
            pytest.skip("there is no program to mount a small tmpfs with")
        disk.mkdir()
        words = [program, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"a small tmpfs cannot be mounted, as root could: {done.stderr.strip()}")
        return disk

    yield mount
    if disk.is_mount():
        subprocess.run(["umount", "-l", str(disk)], check=True)


def random_mdp(seed, sizes=(1, 3, 2, 1), num_actions=2, sparsity=0.3):
    """A random MDP, some of whose transitions are exactly zero."""
    rng = np.random.default_rng(seed)
    layers = Layers.from_sizes(sizes, num_actions)
    L, S, A = layers.shape
    P = np.zeros((L, S, A, S))
    for k, (size, following) in enumerate(itertools.pairwise(sizes)):
        rows = rng.uniform(0.05, 1, size=(size, num_actions, following))
        rows *= rng.uniform(size=rows.shape) > sparsity
        rows[..., rng.integers(following)] += 0.1
        P[k, :size, :, :following] = rows / rows.sum(-1, keepdims=True)
    return LayeredMDP(layers, P)


def random_policy(seed, layers):
    """A random policy with full support on the actions that exist."""
    mask = np.asarray(layers.action_mask)
    weights = np.random.default_rng(seed).uniform(0.1, 1, size=mask.shape) * mask
    total = weights.sum(-1, keepdims=True)
    return jax.numpy.asarray(weights / np.where(total > 0, total, 1))
