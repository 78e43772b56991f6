"""What all commands share: help, completion, colours, exit codes, and Ctrl-C."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from pdgd_jax._internal import checks
from pdgd_jax.cli import entry, options, output
from pdgd_jax.instances import INSTANCES
from pdgd_jax.learners import LEARNERS

COMMANDS = [command.name or command.callback.__name__ for command in entry.app.registered_commands]


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
    code = f"import sys, pdgd_jax.cli.entry; print(sorted({slow!r} & set(sys.modules)))"
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
        (
            ("run", "--learner", "u"),
            ["uc-o-gdps", "uc-o-reps", "ucpd", "unifying", "uniform"],
        ),
        (
            ("run", "--solver", ""),
            ["newton", "osqp", "osqp-bare", "projected_gradient", "projected_gradient-bare"],
        ),
        (("run", "--rates", "t"), ["theory", "tuned"]),
        (("run", "--learner", "cold", "--option", ""), ["V=", "alpha=", "epsilon="]),
        (("learners", "wei"), ["wei-yu-neely"]),
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
    output.print_json({"a": [1.5, float("nan"), float("inf")], "b": {"c": (True, None, "x")}})
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed == {"a": [1.5, None, None], "b": {"c": [True, None, "x"]}}


def test_an_error_of_the_system_is_a_failure_in_one_sentence(pdgd, monkeypatch):
    def no_space(name):
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("pdgd_jax.cli.instances.options_of", no_space)
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
    "moment", ["numpy", "jaxlib._jax", "jax", "optax", "pdgd_jax.cli.run", "scipy.linalg"]
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


def test_help_lists_the_learners_of_ones_own_module(pdgd, tmp_path):
    text = "import pdgd_jax\npdgd_jax.register_learner('my-own', lambda cmdp, T: None)\n"
    (tmp_path / "own_learner.py").write_text(text)
    words = [sys.executable, "-m", "pdgd_jax", "--import", "own_learner", "run", "--help"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "my-own" in done.stdout
    code, out, _ = pdgd("run", "--help")
    assert (code, "{" in out) == (0, False)
    assert "uc-o-gdps" in out


def test_a_module_of_ones_own_is_imported_first(pdgd, tmp_path, monkeypatch):
    (tmp_path / "module_of_mine.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with INSTANCES.temporarily(alone=True):
        code, out, _ = pdgd("--import", "module_of_mine", "instances", "compiled")
    assert code == 0
    assert "Never comes back, and Python is not asked." in out
    code, out, err = pdgd("--import", "module_of_nobody", "instances")
    assert (code, out) == (2, "")
    assert "--import module_of_nobody: there is no such module" in err


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's, `own_module`, with this text; what it registers is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("pdgd_jax.cli.users._MODULES", set())
    monkeypatch.delenv("PDGD_DEBUG", raising=False)

    def write(text):
        (tmp_path / "own_module.py").write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        sys.modules.pop("own_module", None)
        return ("--import", "own_module")

    with INSTANCES.temporarily({"grid": INSTANCES["grid"]}, alone=True), LEARNERS.temporarily():
        yield write
    sys.modules.pop("own_module", None)


def test_an_error_of_ones_own_module_shows_its_line(pdgd, module):
    words = module("""
        def deep():
            raise ValueError("boom in my module")
        deep()
    """)
    code, out, err = pdgd(*words, "instances")
    assert (code, out) == (2, "")
    assert 'own_module.py", line 4, in <module>' in err
    assert 'own_module.py", line 3, in deep' in err
    assert "ValueError: boom in my module" in err
    assert "pdgd_jax/cli" not in err
    assert "typer" not in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_that_name\n", 'own_module.py", line 1, in <module>'),
        ("x = 1\ny = (\n", 'own_module.py", line 2'),
        ("raise KeyError('x')\n", "KeyError: 'x'"),
    ],
)
def test_every_error_of_ones_own_module_is_shown(pdgd, module, text, said):
    code, out, err = pdgd(*module(text), "instances")
    assert (code, out) == (1, "")
    assert said in err
    assert "pdgd_jax/cli" not in err


OWN = """
    import numpy as np
    from pdgd_jax import CMDP, make, register
    from pdgd_jax.processes import AdversarialProcess, pytree

    @pytree
    class Rush(AdversarialProcess):
        values: np.ndarray

        def draw(self, key, state, episode, policy):
            return self.values, state

    def rush(size: int = 2, weights=np.ones(2), needed=None):
        base = make("grid", rows=size, columns=size, horizon=2, hazards=())
        return CMDP(base.mdp, base.rewards, Rush(base.constraints.mean()))

    def broken(depth=3):
        "Never works."
        return depth.nothing

    register("rush", rush)
    register("broken", broken)
"""


def test_instances_of_ones_own_do_not_end_the_list(pdgd, module):
    """One does not say what it may show, so that rho is unknown, and one cannot be built."""
    words = module(OWN)
    code, out, _ = pdgd(*words, "instances")
    assert code == 0
    assert re.search(r"grid +9 +97 +4 +1 +1.87 +0.5 ", out)
    assert re.search(r"rush +2 +5 +4 +1 +[0-9.]+ +\? ", out)
    rows = {row["name"]: row for row in json.loads(pdgd(*words, "instances", "--json")[1])}
    assert (rows["rush"]["rho"], rows["rush"]["condition_holds"]) == (None, None)
    assert "Rush does not say which values it may take" in rows["rush"]["rho_reason"]
    why = rows["broken"]["unavailable"]
    assert why.startswith("AttributeError: 'int' object has no attribute 'nothing'")
    assert why.endswith("own_module.py, line 19, in broken)")


def test_an_unknown_margin_is_said_with_its_reason(pdgd, module):
    code, out, _ = pdgd(*module(OWN), "solve", "rush")
    assert code == 0
    text = " ".join(out.split())
    assert "rho unknown, as Rush does not say which values it may take; give it a method" in text
    assert "condition on rho unknown" in text
    assert re.search(r"OPT +[0-9.]+", out)


def test_options_of_ones_own_are_listed_with_defaults_and_without_words(pdgd, module):
    words = module(OWN)
    code, out, _ = pdgd(*words, "instances", "rush")
    assert code == 0
    assert "(not described)" in out
    assert re.search(r"--size +2", out)
    assert re.search(r"--weights +\[1. 1.\]", out)
    options = json.loads(pdgd(*words, "instances", "rush", "--json")[1])["options"]
    assert options == {"size": 2, "weights": "[1. 1.]", "needed": None}


def test_ones_own_builder_shows_its_line_and_debugging_shows_all(pdgd, module, monkeypatch):
    words = module(OWN)
    code, out, err = pdgd(*words, "solve", "broken")
    assert (code, out) == (1, "")
    assert 'own_module.py", line 19, in broken' in err
    assert "registry.py" not in err
    monkeypatch.setenv("PDGD_DEBUG", "1")
    code, _, err = pdgd(*words, "solve", "broken")
    assert code == 1
    assert "registry.py" in err
    code, _, err = pdgd("solve", "grid", "--budget", "abc")
    assert code == 2
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("budget of instance 'grid' must be")


def test_a_mistake_of_ours_is_not_blamed_on_the_user(pdgd, monkeypatch):
    def wrong(name):
        raise TypeError("who wrote this?")

    monkeypatch.setattr("pdgd_jax.cli.instances.options_of", wrong)
    code, out, err = pdgd("instances", "grid")
    assert (code, out) == (1, "")
    assert "TypeError: who wrote this?" in err
    assert err.splitlines()[-1].startswith("this is a mistake in pdgd_jax")


def test_pdgd_alone_shows_help(pdgd):
    code, out, err = pdgd()
    assert (code, err) == (0, "")
    assert "Usage: " in out
    assert "Examples" in out


@pytest.mark.parametrize("word", ["{[]}", "((((", "1if 1else 2", "9" * 5000, "(" * 500])
def test_words_that_are_no_literals_stay_words(word):
    assert options.literal(word) == word


def test_whole_numbers_may_be_large_or_written_as_floats():
    assert options.whole("--episodes", 1e5) == 100_000
    assert options.whole("--key", 2**32 - 1, 0, checks.LARGEST_KEY) == 2**32 - 1
    for number in (0, 1.5, 2**31, float("nan"), float("inf"), 10**400):
        with pytest.raises(ValueError, match="--episodes must be a whole number"):
            options.whole("--episodes", number)


def test_a_learner_of_ones_own_that_fails_in_a_sweep_shows_its_line(
    pdgd, module, tmp_path, monkeypatch
):
    words = module("""
        from pdgd_jax import register_learner
        def refuses(cmdp, num_episodes):
            raise ValueError("not on this instance")
        register_learner("refuses", refuses)
    """)
    table = '[[instance]]\nmake = "grid"\nrows = 1\ncolumns = 2\nhazards = []\nhorizon = 1\n'
    (tmp_path / "c.toml").write_text(table + '[learners]\nnames = "refuses"\n')
    code, out, err = pdgd(*words, "sweep", "c.toml", "--dry-run")
    assert (code, out) == (2, "")
    assert 'own_module.py", line 4, in refuses' in err
    assert err.splitlines()[-1] == "learner 'refuses' on instance 'grid': not on this instance"
