"""What all commands share: help, completion, colours, exit codes, and Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from pdgd_jax import cli, console

COMMANDS = [command.name or command.callback.__name__ for command in cli.app.registered_commands]


def test_help_shows_examples_and_exit_codes(pdgd):
    code, out, _ = pdgd("--help")
    assert code == 0
    places = [out.index(f"│ {command} ") for command in ("run", "sweep", "plot", "report")]
    assert places == sorted(places)
    assert all(f"│ {command} " in out for command in COMMANDS)
    for word in ("Examples", "pdgd run", "--install-completion", "--version", "--import"):
        assert word in out
    text = " ".join(out.split())
    assert "0 success, 1 failure, 2 bad input, 130 interrupted" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples(pdgd, command):
    code, out, _ = pdgd(command, "--help")
    assert code == 0
    shown = out.split("Examples", 1)[1]
    assert re.search(rf"pdgd (--import \S+ )?{command}\b", shown)


def test_help_does_not_wait_for_what_it_does_not_need():
    slow = {"scipy.optimize", "scipy.stats", "xarray", "zarr", "matplotlib", "plotly", "jaxopt"}
    code = f"import sys, pdgd_jax.cli; print(sorted({slow!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def completions(*words):
    """What the shell would offer after these words, the last of them not finished."""
    environment = {
        **os.environ,
        "_PDGD_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["pdgd", *words]),
        "COMP_CWORD": str(len(words)),
    }
    code = "from pdgd_jax.__main__ import main; import sys; sys.argv[0] = 'pdgd'; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    return done.stdout.split()


def test_the_shell_completes_names():
    assert completions("solve", "r") == ["random", "recommender", "riverswim"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("run", "two"), ["two-phase"]),
        # Other tests register more in this process, but not in the one that completes.
        (("run", "--learner", "u"), ["uc-o-gdps", "uniform"]),
        (("run", "--solver", ""), ["newton", "osqp", "projected_gradient"]),
        (("run", "--rates", "t"), ["theory", "tuned"]),
        (("run", "--conf"), ["--confidence-scale"]),
        (("sweep", "qu"), ["quick"]),
    ],
)
def test_the_shell_completes_options_and_their_values(words, offered):
    assert sorted(completions(*words)) == sorted(offered)


def test_colours_are_for_terminals_that_want_them(pdgd, monkeypatch):
    red = "\x1b[31m"
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b" not in pdgd("solve", "gird")[2]  # no terminal
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert red in pdgd("solve", "gird")[2]
    monkeypatch.setenv("NO_COLOR", "1")
    code, _, err = pdgd("solve", "gird")
    assert (code, red in err) == (2, False)


def test_json_is_strict(capsys):
    console.print_json({"a": [1.5, float("nan"), float("inf")], "b": {"c": (True, None, "x")}})
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed == {"a": [1.5, None, None], "b": {"c": [True, None, "x"]}}


def test_an_error_of_the_system_is_a_failure_in_one_sentence(pdgd, monkeypatch):
    def no_space(name):
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("pdgd_jax.cli.options_of", no_space)
    code, out, err = pdgd("instances", "grid")
    assert (code, out) == (1, "")
    assert "No space left on device" in err
    assert err.count("\n") == 1


MODULE = """
import pathlib, time
import jax
from pdgd_jax import register

def waits_in_python():
    '''Never comes back.'''
    pathlib.Path("started").touch()
    time.sleep(1000)

def waits_in_compiled_code():
    '''Never comes back, and Python is not asked.'''
    pathlib.Path("started").touch()
    jax.lax.while_loop(lambda x: x >= 0, lambda x: (x + 1) % 7, 0).block_until_ready()

register("python", waits_in_python)
register("compiled", waits_in_compiled_code)
"""


# A parent that ignores the signal, as a background job does, must not decide the outcome.
PDGD = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("pdgd_jax", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["python", "compiled"])
def test_ctrl_c_is_one_line_and_exit_code_130(tmp_path, where):
    (tmp_path / "slow_module.py").write_text(textwrap.dedent(MODULE))
    words = ["--import", "slow_module", "solve", where]
    with subprocess.Popen(
        [sys.executable, "-c", PDGD, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            while not (tmp_path / "started").exists():
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130
    # Before it, JAX may have something to say about the machine.
    assert err.splitlines()[-1] == "interrupted"
    assert err.count("interrupted") == 1
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("words", [("instances",), ("run", "two-phase", "--episodes", "20")])
@pytest.mark.parametrize(
    "moment", ["numpy", "jaxlib._jax", "jax", "optax", "pdgd_jax.cli", "scipy.linalg"]
)
def test_ctrl_c_is_clean_from_the_start(words, moment):
    """Python names every module that it has imported; the pipe is so short that it cannot run on.

    The last two are imported by the application, the others before it.
    """
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-c", PDGD, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        pipesize=4096,
    ) as process:
        try:
            assert any(line.endswith(f" {moment}\n") for line in process.stderr)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "Exception" not in err


def test_a_module_of_ones_own_is_imported_first(pdgd, tmp_path, monkeypatch):
    (tmp_path / "module_of_mine.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("pdgd_jax.instances.registry._BUILDERS", {})
    code, out, _ = pdgd("--import", "module_of_mine", "instances", "compiled")
    assert code == 0
    assert "Never comes back, and Python is not asked." in out
    code, out, err = pdgd("--import", "module_of_nobody", "instances")
    assert (code, out) == (2, "")
    assert "--import module_of_nobody: there is no such module" in err
