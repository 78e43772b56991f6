import io
import json
import os
import re
import socket
import tomllib
from types import SimpleNamespace

import pytest
from rich.console import Console

from pdgd_jax._internal.files import seal
from pdgd_jax.cli.progress import ProgressView
from pdgd_jax.sweeps import (
    Configuration,
    StoreError,
    SweepProgress,
    open_results,
    plan_of,
    sweep,
    sweep_status,
)
from tests.conftest import OF_TERMINALS

TINY = """name = "tiny"
seeds = 6
checkpoints = 4

[[instance]]
make = "random"
sizes = [1, 2, 1]
num_actions = 2

[settings]
horizon = 40
rates = "theory"

[learners]
names = ["most-feasible"]
"""


ALIKE = ("--width", 2, "--save-every", 10)  # what is alike is compiled once


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path


@pytest.fixture
def call(pdgd, monkeypatch):
    for name in OF_TERMINALS:  # as if nobody watched
        monkeypatch.delenv(name, raising=False)

    def call(*words, code=0):
        found, out, err = pdgd(*map(str, words))
        assert found == code, err
        return SimpleNamespace(out=out, err=err)

    return call


def test_a_dry_run_shows_the_plan_and_writes_nothing(tiny, call):
    said = call("sweep", "tiny.toml", "--dry-run").out
    assert re.search(r"g0 +most-feasible +random +2, 2, 2 +1 +6 +3 +240", said)
    assert "6 lanes in 2 blocks, 240 episodes, 1 compilation, saved 2 times" in " ".join(
        said.split()
    )
    plan = json.loads(call("sweep", "tiny.toml", "--dry-run", "--width", 2, "--json").out)
    assert len(plan["groups"][0]["blocks"]) == 3
    assert [path.name for path in tiny.iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize(
    ("name", "lanes"), [("quick", 96), pytest.param("paper", 1920, marks=pytest.mark.slow)]
)
def test_built_in_configurations_can_be_planned(call, name, lanes):
    assert json.loads(call("sweep", name, "--dry-run", "--json").out)["lanes"] == lanes


def test_a_sweep_is_saved_beside_and_resumed(tiny, call):
    shown = call("sweep", "tiny.toml", *ALIKE)
    assert "compiling" in shown.err
    assert "medians over seeds" in shown.out
    assert open_results(tiny / "tiny-sweep").regret.shape == (1, 1, 1, 1, 1, 1, 6, 4)
    facts = json.loads(call("sweep", "tiny.toml", *ALIKE, "--json").out)
    assert [cell["rates"] for cell in facts["cells"]] == ["theory"]
    assert facts["unconverged"] == 0


BOTH = TINY.replace('"theory"', '["theory", "tuned"]').replace(
    '["most-feasible"]', '["most-feasible", "pdgd-ops"]\nsolver = "quick"'
)


@pytest.fixture
def quick():
    from pdgd_jax.projection import SOLVERS
    from tests.quick import QUICK

    with SOLVERS.temporarily({"quick": QUICK}):
        yield


@pytest.mark.slow
def test_lanes_are_the_runs_that_are_played_everywhere(tiny, call, quick):
    (tiny / "tiny.toml").write_text(BOTH)
    planned = json.loads(call("sweep", "tiny.toml", "--dry-run", "--json").out)
    played = json.loads(call("sweep", "tiny.toml", "--json").out)
    status = json.loads(call("status", "tiny-sweep", "--json").out)
    assert planned["lanes"] == played["lanes"] == status["lanes"] == 6 + 2 * 6
    # A learner that ignores a setting is one cell, and no copies of one.
    assert [(cell["learner"], cell["rates"]) for cell in played["cells"]] == [
        ("most-feasible", None),
        ("pdgd-ops", "theory"),
        ("pdgd-ops", "tuned"),
    ]
    data = open_results(tiny / "tiny-sweep").isel(checkpoint=-1).median("seed").squeeze()
    for cell in played["cells"]:
        there = data.sel(learner=cell["learner"], rates=cell["rates"] or "tuned")
        # To the rounding of the mean of the two in the middle.
        assert cell["regret"] == pytest.approx(float(there.regret), rel=1e-14)
        assert cell["violation"] == pytest.approx(float(there.violation), rel=1e-14)
    shown = call("sweep", "tiny.toml").out
    assert [line.split()[:2] for line in shown.splitlines()[1:4]] == [
        ["most-feasible", "any"],
        ["pdgd-ops", "theory"],
        ["pdgd-ops", "tuned"],
    ]


def test_values_of_rounding_size_are_nothing(capsys):
    from pdgd_jax.cli.sweep import _print_results

    names = dict.fromkeys(("learner", "rates", "delta", "confidence_scale"), "x")
    cell = names | {"horizon": 4000, "regret": 5.457e-12, "violation": 1e-3}
    cells = [cell | {"instance": name} for name in "ab"]
    _print_results(Console(), {"cells": cells, "layers": 4, "out": "here", "learners": []})
    assert capsys.readouterr().out.splitlines()[1].split() == ["a", "0", "0.001"]


def test_a_dry_run_estimates_the_time(tiny, call):
    assert re.search(
        r"6 lanes on 2 devices: about .* in all", call("sweep", "tiny.toml", "--dry-run").out
    )
    cost = json.loads(call("sweep", "tiny.toml", "--dry-run", "--json").out)["cost"]
    assert cost["seconds"] == pytest.approx(cost["compile_seconds"] + cost["play_seconds"])
    one = call("sweep", "tiny.toml", "--dry-run", "--devices", 1, "--json").out
    assert json.loads(one)["cost"]["play_seconds"] > cost["play_seconds"]


class TestStatusOfASweepThatRuns:
    """What `pdgd status` says at each moment of a sweep, as another process would see it."""

    @pytest.fixture
    def seen(self, tiny, call):
        """Play the sweep, and look at it whenever it reports something."""
        seen = []

        def look(report):
            if report.state == "planned":
                return
            facts = json.loads(call("status", "tiny-sweep", "--json").out)
            seen.append((report.state, facts, call("status", "tiny-sweep").out))
            if report.state == "playing" and report.played:
                with pytest.raises(StoreError) as refused:
                    open_results("tiny-sweep")
                seen[-1] += (str(refused.value),)

        table = tomllib.loads(TINY)
        sweep(table, out="tiny-sweep", width=2, save_every=10, on_progress=look)
        return seen

    def test_it_says_what_is_going_on_and_how_fast(self, seen):
        (state, facts, said), *_ = seen
        assert (state, facts["state"], facts["episodes_done"]) == ("compiling", "running", 0)
        assert (facts["episodes_per_second"], facts["seconds_left"]) == (None, None)
        assert re.search(r"^compiling g0 for \d+ s$", said, re.MULTILINE)
        state, facts, said = seen[1]
        assert (state, facts["episodes_done"]) == ("playing", 0)
        assert re.search("playing g0, nothing is saved yet, after", said)
        later = [entry for entry in seen if len(entry) == 4]
        assert len(later) == 8  # 3 blocks of 4 chunks on 2 devices
        for _, facts, said, _ in later:
            assert facts["episodes_per_second"] > 0
            left = facts["episodes"] - facts["episodes_done"]
            expected = left / facts["episodes_per_second"]
            assert facts["seconds_left"] == pytest.approx(expected)
            assert re.search(r"^playing g0, saved last \d+ s ago$", said, re.MULTILINE)

    def test_results_are_promised_for_its_end(self, seen):
        said = [entry[3] for entry in seen if len(entry) == 4]
        shares = [int(re.search(r"the sweep is running, (\d+)% of its", s)[1]) for s in said]
        assert shares == [16, 33, 50, 66, 75, 83, 91, 100]
        assert all("again" not in sentence and "pdgd status" in sentence for sentence in said)


def test_a_killed_sweep_has_no_rate_and_no_time_left(tiny, call):
    """The saves of one round, milliseconds apart, are no measure of its speed."""

    def die(report):
        if report.played:
            raise SystemExit

    table = tomllib.loads(TINY)
    with pytest.raises(SystemExit):
        sweep(table, out="tiny-sweep", width=2, save_every=10, on_progress=die)
    # What a process leaves that had no time to tidy up.
    os.utime(tiny / "tiny-sweep" / "lock", (0, 0))
    (tiny / "tiny-sweep" / "now.json").write_bytes(seal({"played": 40, "seconds": 1e-6}))
    facts = json.loads(call("status", "tiny-sweep", "--json").out)
    assert (facts["state"], facts["episodes_done"]) == ("stopped", 40)
    assert (facts["episodes_per_second"], facts["seconds_left"]) == (None, None)
    said = call("status", "tiny-sweep").out
    assert "episodes/s" not in said
    assert "left" not in said
    assert "run the command that started it again to continue" in said
    # It goes on, and what the dead one said is gone.
    call("sweep", "tiny.toml", *ALIKE)
    assert not (tiny / "tiny-sweep" / "now.json").exists()


def test_status_reads_files_alone(tiny, call):
    call("sweep", "tiny.toml", *ALIKE)
    facts = json.loads(call("status", "tiny-sweep", "--json").out)
    assert (facts["state"], facts["episodes_done"], facts["lanes"]) == ("finished", 240, 6)
    found = sweep_status("tiny-sweep")
    facts["seconds_since_saved"] = found.seconds_since_saved  # it grows
    assert facts == found.as_dict()
    assert [group.episodes_done for group in found.groups] == [240]
    assert "240 of 240 episodes" in call("status", "tiny-sweep").out
    (tiny / "tiny-sweep" / "blocks" / "g0-b0001" / "chunk-00003.json").unlink()
    facts = json.loads(call("status", "tiny-sweep", "--json").out)
    assert (facts["state"], facts["episodes_done"]) == ("stopped", 220)
    assert "run the command" in call("status", "tiny-sweep").out


@pytest.mark.slow
def test_projections_that_fail_are_said_loudly(tiny, call):
    import jax.numpy as jnp

    from pdgd_jax.projection import SOLVERS
    from tests.quick import QUICK

    def hopeless(*given):
        result = QUICK.solve(*given)
        return result._replace(info=result.info._replace(converged=jnp.zeros((), bool)))

    text = TINY.replace('["most-feasible"]', '"pdgd-ops"\nsolver = "hopeless"')
    (tiny / "tiny.toml").write_text(text)
    with SOLVERS.temporarily({"hopeless": QUICK._replace(solve=hopeless)}):
        shown = call("sweep", "tiny.toml")
        assert "240 projections did not converge" in shown.err
        assert "240 projections did not converge" in call("status", "tiny-sweep").out


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "seeds = 6",
            "sedes = 3",
            r"tiny.toml, line 2: unknown key 'sedes' \(did you mean 'seeds'",
        ),
        ("seeds = 6", "seeds = 'x'", "tiny.toml, line 2: seeds must be a whole number"),
        ("seeds = 6", "seeds = ", "tiny.toml, line 2: .* this is not TOML"),
        ("checkpoints = 4", "checkpoints = 41", "tiny.toml, line 3: checkpoints are at most"),
        ('"random"', '"../../etc"', "tiny.toml, line 6: unknown instance '../../etc'"),
        ("[1, 2, 1]", "[2, 2, 1]", "tiny.toml, line 5: instance 'random': "),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(tiny, call, old, new, sentence):
    (tiny / "tiny.toml").write_text(TINY.replace(old, new))
    said = call("sweep", "tiny.toml", code=2).err
    assert re.match(sentence, said), said
    assert said.count("\n") == 1
    assert [path.name for path in tiny.iterdir()] == ["tiny.toml"]


def test_names_in_a_configuration_never_become_paths(tiny, call):
    text = TINY.replace('name = "tiny"', 'name = "../../escaped"')
    text = text.replace("[[instance]]", '[[instance]]\nlabel = "/tmp/escaped/../x"')
    (tiny / "tiny.toml").write_text(text)
    call("sweep", "tiny.toml", "--out", "inside", *ALIKE)
    assert sorted(path.name for path in tiny.iterdir()) == ["inside", "tiny.toml"]
    assert not any("escaped" in path.name for path in tiny.parent.rglob("*"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--coordinator", "host:1"], "--num-processes and --process-id must be given too"),
        (
            ["--coordinator", "host:1", "--num-processes", 2, "--process-id", 2],
            "--process-id is from 0 to 1 if there are 2 processes; got 2",
        ),
        (
            ["--coordinator", "host", "--num-processes", 2, "--process-id", 1],
            "--coordinator looks like host:1234; got 'host'",
        ),
        (["--devices", 99], "this process has 2 devices: choose from 1 to 2; got 99"),
    ],
)
def test_contradictory_options_are_refused(tiny, call, words, sentence):
    said = call("sweep", "tiny.toml", *words, code=2).err
    assert sentence in said
    assert "waiting" not in said


@pytest.mark.parametrize("number", [0, -1, 64])
def test_devices_that_are_not_there_are_refused_in_a_dry_run_too(tiny, call, number):
    said = call("sweep", "tiny.toml", "--dry-run", "--devices", number, code=2)
    assert said.out == ""
    assert f"choose from 1 to 2; got {number}" in said.err


def test_a_port_that_is_in_use_is_refused(tiny, call):
    with socket.create_server(("localhost", 0)) as other:
        port = other.getsockname()[1]
        words = ["--coordinator", f"localhost:{port}", "--num-processes", 2, "--process-id", 0]
        said = call("sweep", "tiny.toml", *words, code=2).err
    assert f"process 0 cannot listen on port {port} (Address already in use); choose" in said


def test_status_of_something_else_is_one_sentence(tmp_path, call):
    assert "there is no sweep in" in call("status", tmp_path, code=2).err


def report_of(text):
    table = tomllib.loads(text)
    plan = plan_of(Configuration.from_dict(table))
    return SweepProgress(plan, done={group.name: 0 for group in plan.groups})


def test_a_terminal_has_bars_for_all_and_for_each_group():
    report = report_of(TINY.replace('["most-feasible"]', '["most-feasible", "pdgd-ops"]'))
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with ProgressView(console) as shown:
        shown(report)
        report.state, report.group = "compiling", "g0"
        shown(report)
        first, second, together = shown._bars.tasks
        assert (first.total, second.total, together.total) == (240, 240, 480)
        assert first.fields["note"] == together.fields["note"] == "compiling"
        report.state, report.done["g0"] = "playing", 120
        report.played, report.seconds = 120, 2.0
        shown(report)
        assert (first.completed, second.completed, together.completed) == (120, 0, 120)
        assert together.fields["note"] == "120 of 480 episodes, 60 episodes/s, 6 s left"


def test_elsewhere_a_line_says_what_has_changed_and_others_only_now_and_then():
    report = report_of(TINY)
    file = io.StringIO()
    with ProgressView(Console(file=file, width=100, force_terminal=False), pause=1e9) as shown:
        shown(report)
        for state, done in (("compiling", 0), ("playing", 0), ("playing", 60), ("evaluating", 240)):
            report.state, report.group, report.done["g0"] = state, "g0", done
            shown(report)
    lines = file.getvalue().splitlines()[-3:]
    assert lines == ["g0: compiling", "  0%  g0: 0 of 240 episodes", "evaluating"]
