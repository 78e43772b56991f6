"""What a run will cost: the model against figures that were measured, and its use before a run.

No clock decides here: measured figures are written down with the command that gave them.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from pdgd_jax import make
from pdgd_jax.cli.cost import announce, cost_in_words
from pdgd_jax.learners import make_learner
from pdgd_jax.sweeps import Configuration, Cost, cost_of_plan, plan_of
from pdgd_jax.sweeps import _costs as costs
from pdgd_jax.sweeps._costs import FIXED, NEWTON, compile_seconds, episode_seconds

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")


@pytest.fixture(scope="module")
def scaling():
    return benchmark("scaling")


def benchmark(name):
    sys.path.append(BENCHMARKS)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(BENCHMARKS)


MEASURED = [
    pytest.param(row, getattr(costs, name), id=f"{name}, {what}, {machine.partition(' ')[0]}")
    for machine, tables in benchmark("machines").MACHINES.items()
    for name, rows in tables.items()
    for what, *row in rows
]


@pytest.mark.parametrize(("row", "constants"), MEASURED)
def test_estimates_are_within_a_factor_of_three_of_what_was_measured(row, constants):
    shape, lanes, m, seconds, compiling = row
    found = episode_seconds(shape, lanes, num_constraints=m, constants=constants)
    assert 1 / 3 < found / seconds < 3
    if compiling is not None:
        assert 1 / 3 < compile_seconds(shape, constants) / compiling < 3


def test_the_constants_are_those_of_the_machines(scaling):
    """To the two digits that are kept."""
    rows = benchmark("machines").rows_of
    assert scaling.fitted(rows("NEWTON"), NEWTON) == pytest.approx(NEWTON, rel=0.05)
    assert scaling.fitted(rows("FIXED"), FIXED) == pytest.approx(FIXED, rel=0.05)


def test_the_constants_are_those_that_the_benchmark_fits(scaling):
    """Found again, to 1%, from times that follow the model; two digits are what it prints."""
    shapes = [(4, 4, 3), (5, 10, 5), (20, 38, 4), (10, 64, 4), (10, 100, 4), (4, 8, 16)]
    rows = [
        (shape, w, m, episode_seconds(shape, w, num_constraints=m), compile_seconds(shape))
        for shape in shapes
        for w, m in ((1, 1), (16, 8))
    ]
    guess = NEWTON._replace(step=1e-4, triple=1e-7, matrix=1e-9, matrix_out=1e-8, draw=1e-8)
    assert scaling.fitted(rows, guess) == pytest.approx(NEWTON, rel=0.01)


def test_single_precision_keeps_matrices_in_the_cache_for_longer():
    assert episode_seconds((10, 80, 4), itemsize=4) < 0.5 * episode_seconds((10, 80, 4))
    assert episode_seconds((10, 60, 4), itemsize=4) == episode_seconds((10, 60, 4))


def cost(name="random", T=1000, seeds=8, learner="pdgd-ops", solver="newton", devices=2, **options):
    cmdp = make(name, **options)
    player = make_learner(learner, cmdp, T, solver=solver)
    return costs.cost_of_run(cmdp, player, T, seeds, name=learner, solver=solver, devices=devices)


def test_the_cost_of_a_run_counts_what_is_played():
    found = cost(sizes=(1, 3, 2, 1), num_actions=2)
    assert found.variables == 6 + 12 + 4
    assert (found.lanes, found.devices, found.episodes) == (8, 2, 8000)
    assert found.play_seconds == pytest.approx(1000 * episode_seconds((3, 3, 2), 4))
    alone = cost(seeds=1)
    assert (alone.devices, alone.lanes) == (1, 1)
    assert cost(T=2000).play_seconds == pytest.approx(2 * cost(T=1000).play_seconds)


# Milliseconds of CPU time of an episode (AMD EPYC, one core, episodes 2,000 to 2,100, the grid from
# and Taxi from 300 on), as `python benchmarks/instances.py` measures them.
LISTED = [
    ("gymnasium", {"env": "CliffWalking-v1", "horizon": 20}, 0.35),
    ("gymnasium", {"env": "FrozenLake8x8-v1", "horizon": 30}, 7.9),
    ("gymnasium", {"env": "Taxi-v4", "horizon": 10}, 18.5),
    ("grid", {"rows": 20, "columns": 20, "hazard_density": 0.1, "horizon": 40}, 125),
]


@pytest.mark.parametrize(("name", "options", "milliseconds"), LISTED)
def test_lists_alone_cost_what_their_triples_do(name, options, milliseconds):
    found = cost(name, T=1, seeds=1, support="known", **options)
    assert 1 / 3 < 1e3 * found.play_seconds / milliseconds < 3
    layers = make(name, support="known", **options).layers
    assert found.variables == int(layers.num_triples)
    # Neither the memory nor the compilation grow with the dense array.
    L, S, A = layers.shape
    assert found.memory < 2**31 or found.memory < 8 * L * S * A * S
    assert found.compile_seconds < compile_seconds(layers.shape)


def test_small_lists_cost_what_dense_arrays_do():
    known, unknown = (
        cost("grid", rows=2, columns=2, hazards=[], horizon=2, support=support)
        for support in ("known", "unknown")
    )
    assert known.seconds == unknown.seconds


def test_memory_grows_by_what_a_lane_holds():
    few, many = cost(seeds=2), cost(seeds=202)
    cmdp = make("random")
    learner = make_learner("pdgd-ops", cmdp, 1000)
    state = costs.bytes_of(jax.eval_shape(learner.init, jax.random.key(0)))
    # More than the state itself, which is there before and after, and no hundred times as much.
    assert 2 * state < (many.memory - few.memory) / 200 < 100 * state
    assert cost(T=10**7).memory == cost(T=10).memory


def test_what_was_not_measured_is_not_estimated():
    from pdgd_jax.projection import SOLVERS
    from tests.quick import QUICK

    with SOLVERS.temporarily({"quick": QUICK}):
        found = cost(solver="quick")
    assert found.seconds is None
    assert "of memory, time not measured for solver 'quick'" in cost_in_words(found)
    assert costs.constants_of("my-own", "newton") is None
    assert cost(learner="uniform").seconds < cost().seconds


def test_the_cost_of_a_sweep_is_that_of_its_rounds():
    table = {
        "instance": [{"make": "random", "sizes": [1, 2, 1], "num_actions": 2}],
        "seeds": 3,
        "checkpoints": 5,
        "settings": {"horizon": [100, 300]},
        "learners": {"names": "pdgd-ops"},
    }
    plan = plan_of(Configuration.from_dict(table), width=2)
    [group] = plan.groups
    assert [block.horizon for block in group.blocks] == [300, 300, 100, 100]
    once = episode_seconds(group.shape, 2)
    assert cost_of_plan(plan, devices=2).play_seconds == pytest.approx(400 * once)
    assert cost_of_plan(plan, devices=1).play_seconds == pytest.approx(800 * once)
    assert cost_of_plan(plan, devices=2, processes=2).play_seconds == pytest.approx(300 * once)
    # What a store compares when a sweep goes on, must not change with the constants.
    assert "cost" not in plan.facts()


# Before a run


SHORT = Cost(120, 8, 2, 8000, 2**29, compile_seconds=10.0, play_seconds=1.0)
NOTABLE = SHORT._replace(play_seconds=100.0)
LONG = SHORT._replace(play_seconds=1000.0)
HUGE = SHORT._replace(memory=2**50)


@pytest.fixture
def terminal(monkeypatch):
    """Whether someone watches, and what they answer."""

    def terminal(watched, answer=None):
        asked = []
        monkeypatch.setattr("sys.stdin.isatty", lambda: watched, raising=False)
        monkeypatch.setattr("sys.stderr.isatty", lambda: watched, raising=False)

        def confirm(*words, **options):
            asked.append(words)
            assert answer is not None, "asked, where nobody may be"
            return answer

        monkeypatch.setattr("pdgd_jax.cli.cost.typer.confirm", confirm)
        return asked

    return terminal


@pytest.mark.parametrize("watched", [False, True])
def test_little_is_not_worth_a_word_and_more_is_worth_a_line(terminal, capsys, watched):
    asked = terminal(watched)
    announce(SHORT, yes=False)
    assert capsys.readouterr().err == ""
    announce(NOTABLE, yes=False)
    said = capsys.readouterr().err
    for words in ("120 variables", "512 MiB", "10 s to compile", "0.013 s an ep", "1 min 50 s in"):
        assert words in said
    announce(NOTABLE, yes=False, quiet=True)
    assert capsys.readouterr().err == ""
    assert asked == []


@pytest.mark.parametrize("much", [LONG, HUGE])
def test_a_terminal_is_asked_about_ten_minutes_or_too_much_memory(terminal, capsys, much):
    import typer

    asked = terminal(True, answer=False)
    with pytest.raises(typer.Exit) as stop:
        announce(much, yes=False)
    assert stop.value.exit_code == 1
    assert len(asked) == 1
    terminal(True, answer=True)
    announce(much, yes=False)
    assert terminal(True) == []
    announce(much, yes=True)
    assert capsys.readouterr().err.count("in all (estimated)") == 3


def test_without_a_terminal_a_long_run_goes_on_and_a_huge_one_is_refused(terminal, capsys):
    terminal(False)
    announce(LONG, yes=False)
    assert "16 min 50 s in all" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"about 1 PiB of memory.* that are free.*--yes"):
        announce(HUGE, yes=False)
    announce(HUGE, yes=True)
    assert "more than the" in capsys.readouterr().err


def test_a_dry_run_says_what_it_would_cost_and_compiles_nothing(pdgd, monkeypatch):
    def never(*given, **options):
        raise AssertionError("played")

    monkeypatch.setattr("pdgd_jax.cli.run.sweep", never)
    words = ("run", "random", "--sizes", "1,64,64,1", "--num-actions", "4", "--episodes", "1e6")
    code, out, _ = pdgd(*words, "--dry-run")
    assert code == 0
    assert out.startswith("16,896 variables, 8 lanes on 2 devices: about ")
    assert "in all (estimated)" in out
    code, out, _ = pdgd(*words, "--dry-run", "--json")
    facts = json.loads(out)
    assert (code, facts["variables"], facts["episodes"]) == (0, 16_896, 8_000_000)
    assert facts["seconds"] == pytest.approx(facts["compile_seconds"] + facts["play_seconds"])


def test_a_run_that_needs_more_memory_than_is_free_is_refused(pdgd, monkeypatch):
    monkeypatch.setattr("pdgd_jax.cli.cost.free_bytes", lambda: 2**20)
    code, out, err = pdgd("run", "two-phase", "--episodes", "10", "--learner", "uniform")
    assert (code, out) == (2, "")
    assert "more than the 1 MiB that are free" in err
    assert err.count("\n") == 1


def test_what_is_free_is_known_on_linux():
    if not Path("/proc/meminfo").exists():
        pytest.skip("only Linux says so there")
    assert 2**20 < costs.free_bytes() < 2**50


# XLA folds this constant for seconds, and says so as it says that compiling takes long: by an alarm
# after one second.
ALARM = """if True:
    import sys
    sys.argv = ["pdgd", "--import", "alarm", "--version"]
    from pdgd_jax.__main__ import main
    main()
"""
SLOW = """if True:
    import jax, numpy as np
    from jax import lax
    constant = np.random.default_rng(0).random((40, 40)).astype(np.float32)
    window = ((40, 40), (1, 1), "SAME")
    jax.jit(lambda: lax.reduce_window(jax.numpy.asarray(constant), 0.0, lax.add, *window))()
"""


@pytest.mark.slow
def test_alarms_for_the_authors_of_the_compiler_do_not_reach_the_user(tmp_path):
    (tmp_path / "alarm.py").write_text(SLOW)
    environment = {key: os.environ[key] for key in os.environ if key != "TF_CPP_MIN_LOG_LEVEL"}

    def said(code):
        words = [sys.executable, "-c", code]
        options = {"capture_output": True, "text": True, "cwd": tmp_path, "env": environment}
        return subprocess.run(words, **options, check=True).stderr

    assert "slow_operation_alarm" in said(SLOW)
    assert said(ALARM) == ""
