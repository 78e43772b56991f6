import errno
import inspect
import io
import json
import re

import jax
import numpy as np
import pytest
from rich.console import Console

from pdgd_jax import (
    Configuration,
    dataset_of,
    describe,
    evaluate,
    learners,
    make,
    open_results,
    pdgd_ops,
    registered,
    run,
    sweep_status,
)
from pdgd_jax.cli import run as run_command
from pdgd_jax.cli import summary
from pdgd_jax.cli.textplot import curve
from pdgd_jax.instances import options_of
from pdgd_jax.learners import Learner
from pdgd_jax.results import summarise
from tests.quick import QUICK


def two_seeds(cmdp, learner, num_episodes):
    keys = jax.random.split(jax.random.key(0), 2)
    return jax.jit(jax.vmap(lambda key: run(key, cmdp, learner, num_episodes)))(keys)


def defaults_of(function):
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters}


def test_defaults_are_the_same_in_the_command_a_configuration_and_every_signature():
    """They are written in signatures, where readers and `help` look for them."""
    command = defaults_of(run_command.run)
    sweep = Configuration.from_dict({"instance": [{"make": command["name"]}]})
    assert (sweep.horizon, sweep.learners) == ((command["episodes"],), (command["learner"],))
    same = ("key", "seeds", "checkpoints", "solver")
    assert [getattr(sweep, name) for name in same] == [command[name] for name in same]
    swept = ("rates", "delta", "confidence_scale")
    assert [getattr(sweep, name) for name in swept] == [(command[name],) for name in swept]
    assert defaults_of(run)["checkpoints"] == command["checkpoints"]
    assert options_of("two-phase")["num_episodes"] == command["episodes"]
    own = (learners.pdgd_ops, learners.uc_o_gdps, learners.uc_o_reps, learners.ucpd)
    found = [learners.settings_of(name) for name in learners.registered_learners()]
    for settings in [*found, *map(defaults_of, own)]:
        common = {name: settings[name] for name in learners.SETTINGS if name in settings}
        assert common == {name: command[name] for name in common}


def test_instances_are_listed(pdgd):
    code, out, _ = pdgd("instances")
    assert code == 0
    assert all(name in out for name in registered())
    code, out, _ = pdgd("instances", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert set(registered()) <= set(rows)
    assert rows["no-slater"]["rho"] == 0
    assert rows["two-phase"]["opt"] == pytest.approx(0.625 / 1.625)


def test_one_instance_is_described_with_its_options(pdgd):
    code, out, _ = pdgd("instances", "bidding")
    assert code == 0
    assert "first-price auctions" in out
    assert re.search(r"--budget +0\.8 +to be spent on average in an episode", out)
    assert "Args:" not in out
    assert re.search(r"--sizes +1,4,4,4,1 +states of each layer", pdgd("instances", "random")[1])


def test_solve_says_everything(pdgd):
    code, out, _ = pdgd("solve", "random", "--episodes", "1e6", "--sizes", "1,3,1", "--seed=2")
    assert code == 0
    for word in ("(1, 3, 1): L = 2, |X| = 5", "OPT", "without constraints", "violating by", "rho"):
        assert word in out
    assert "does not hold at T = 1,000,000" in " ".join(out.split())


def test_solve_in_json(pdgd):
    code, out, _ = pdgd("solve", "streaming", "--json", "--fast-budget", "7")
    facts = json.loads(out)
    assert code == 0
    assert facts["opt"] == pytest.approx(facts["unconstrained_opt"])
    assert facts["rho"] == pytest.approx(7)
    assert facts["condition_holds"] is False


def test_solve_prints_what_describe_says(pdgd):
    _, out, _ = pdgd("solve", "two-phase", "--episodes", "100", "--json")
    facts = describe(make("two-phase", num_episodes=100), 100)
    assert json.loads(out) == {"name": "two-phase", **json.loads(json.dumps(facts.as_dict()))}
    assert (facts.layers, facts.num_episodes, facts.environment) == (1, 100, None)


def test_an_infeasible_instance_says_so(pdgd):
    # No delivery and nothing on the shelf, which is half full to begin with.
    words = ("solve", "inventory", "--holding-budget", "0", "--delivery-budget", "0")
    code, out, _ = pdgd(*words)
    assert code == 0
    assert "infeasible: no policy satisfies the constraints" in " ".join(out.split())
    facts = json.loads(pdgd(*words, "--json")[1])
    assert facts["feasible"] is False
    assert facts["opt"] is None
    assert facts["rho"] < 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["solve", "gird"], "unknown instance 'gird' (did you mean 'grid'?)"),
        (["instances", "gird"], "unknown instance 'gird' (did you mean 'grid'?)"),
        (["solve", "grid", "--colums", "3"], "has no option 'colums' (did you mean 'columns'?)"),
        (["solve", "grid", "--columns"], "--columns needs a value"),
        (["solve", "grid", "columns"], "'columns' is not an option"),
        (["solve", "grid", "--episodes", "0"], "--episodes must be a whole number, at least 1"),
        (["solve", "random", "--sizes", "2,2,1"], "layer 0 must be the single state 0"),
        (["solve", "random", "--sizes", "abc"], "sizes of instance 'random' must be whole numbers"),
        (
            ["solve", "random", "--num-actions", "x"],
            "num_actions of instance 'random' must be a whole",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(pdgd, words, sentence):
    code, out, err = pdgd(*words)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err
    assert err.count("\n") == 1


def test_unknown_commands_and_the_version(pdgd):
    code, _, err = pdgd("slove")
    assert code == 2
    assert "Traceback" not in err
    code, out, _ = pdgd("--version")
    assert (code, out.split()[0]) == (0, "pdgd_jax")


def test_run_learns_and_says_so(pdgd, tmp_path):
    """The main job, on the smallest instance; everything that it prints and saves."""
    out = tmp_path / "result"
    words = ["run", "two-phase", "--episodes", "200", "--seeds", "2", "--checkpoints", "10"]
    code, text, _ = pdgd(*words, "--certificates", "--out", str(out))
    assert code == 0
    for word in ("regret", "violation", "multiplier", "OPT", "median (10% to 90%)", "episodes/s"):
        assert word in text
    assert "guarantees:" in text
    assert "0 fail" in text
    assert "all converged" in text
    assert "⠤" in text  # the picture
    saved = open_results(out)
    assert saved.regret.squeeze().shape == (2, 10)
    assert saved.violations.squeeze("constraint").squeeze().shape == (2, 10)
    assert saved.reward.squeeze().shape == saved.epoch.squeeze().shape == (2, 10)
    assert json.loads(saved.attrs["configuration"])["name"] == "pdgd-ops on two-phase"
    assert sweep_status(out).state == "finished"
    code, text, _ = pdgd(*words, "--json")
    facts = json.loads(text)
    assert facts["episodes"] == 200
    assert facts["regret"]["mean"] == pytest.approx(saved.regret[..., -1].values.mean())
    again = summarise(saved)
    assert {name: facts[name] for name in again} == again
    code, _, err = pdgd(*words, "--out", str(out))
    assert code == 2
    assert "exists already" in err


def test_a_run_that_cannot_be_saved_says_so_and_leaves_nothing(pdgd, tmp_path, monkeypatch):
    def full(*names):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    words = ("run", "two-phase", "--episodes", "20", "--seeds", "1", "--learner", "uniform")
    code, out, err = pdgd(*words, "--out", str(tmp_path / "result"))
    assert (code, out) == (1, "")
    assert f"no room is left on the disk of {tmp_path}" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "learner",
    [
        "uniform",
        pytest.param("best-feasible", marks=pytest.mark.slow),
        pytest.param("most-feasible", marks=pytest.mark.slow),
    ],
)
def test_run_with_learners_to_compare_with(pdgd, learner):
    words = ("run", "random", "--episodes", "50", "--seeds", "1", "--learner", learner)
    code, text, _ = pdgd(*words, "--sizes", "1,2,1", "--num-actions", "2")
    assert code == 0
    assert f"{learner} on random: 50 episodes, 1 seed (" in text


def test_run_without_a_name_takes_options_of_the_usual_instance(pdgd):
    words = ("--sizes", "1,2,1", "--num-actions", "2", "--learner", "uniform")
    code, text, _ = pdgd("run", *words, "--episodes", "50", "--seeds", "1")
    assert code == 0
    assert "uniform on random: 50 episodes" in text
    code, _, err = pdgd("run", "--tightnes", "3")
    assert code == 2
    assert "has no option 'tightnes' (did you mean 'tightness'?)" in " ".join(err.split())


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["osqp", "projected_gradient"])
def test_run_with_other_solvers(pdgd, solver):
    words = ("run", "random", "--sizes", "1,2,1", "--num-actions", "2", "--seeds", "1")
    code, text, _ = pdgd(*words, "--episodes", "20", "--solver", solver)
    assert code == 0
    assert "all converged" in text


def test_an_unconverged_run_is_loud():
    """Whatever else is printed, the reader sees that the numbers are not the algorithm's."""
    cmdp = make("two-phase", num_episodes=20)
    honest = pdgd_ops(cmdp.layers, 1, 20, solver=QUICK)

    def update(state, trajectory, outcome):
        state, info = honest.update(state, trajectory, outcome)
        lazy = info.projection._replace(converged=info.projection.converged & False)
        return state, info._replace(projection=lazy)

    broken = Learner(honest.init, honest.policy, update, honest.setting)
    history = two_seeds(cmdp, broken, 20)
    result = evaluate(history, cmdp)
    data = dataset_of(history, result)
    console = Console(record=True, width=100, file=io.StringIO())
    summary.print_summary(console, summarise(data), data, all_=False)
    text = console.export_text()
    assert "40 projections did NOT converge" in text
    assert "1 fail" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--episodes", "0"], "--episodes must be a whole number, at least 1; got 0"),
        (["--episodes", "inf"], "--episodes must be a whole number, at least 1; got inf"),
        (["--episodes", "nan"], "--episodes must be a whole number, at least 1; got nan"),
        (["--seeds", "0"], "--seeds must be a whole number, at least 1; got 0"),
        (["--learner", "clever"], "unknown learner 'clever'; the learners are pdgd-ops"),
        (["--rates", "fast"], "unknown rates 'fast'"),
        (["--rates", "1,-1"], "the rate eta must be positive"),
        (["--solver", "magic"], "unknown solver 'magic'"),
        (["--delta", "2"], "delta must lie strictly between 0 and 1"),
        (["--out", "result.npz"], "--out is a folder now, which pdgd plot, pdgd report"),
        (["--out", "nowhere/result"], "the folder nowhere does not exist"),
    ],
)
def test_bad_runs_are_refused_in_a_sentence(pdgd, words, sentence):
    code, out, err = pdgd("run", "two-phase", *words)
    assert code == 2
    assert sentence in " ".join(err.split())
    assert out == ""


@pytest.fixture
def stopped(monkeypatch):
    """Let `pdgd run` come to where it would compile, and no further: what it would play."""
    played = []

    def stop(table, **_):
        (instance,), (horizon,) = (asked := Configuration.from_dict(table)).instances, asked.horizon
        played.append((instance.build(horizon), horizon))
        raise SystemExit(0)

    monkeypatch.setattr("pdgd_jax.cli.run.sweep", stop)
    return played


def test_an_instance_is_played_for_the_episodes_of_the_run(pdgd, stopped):
    """The second phase begins in the middle of the run, not at episode 5,000."""
    code, _, err = pdgd("run", "two-phase", "--episodes", "3000")
    assert (code, err.strip()) == (0, "")
    ((cmdp, episodes),) = stopped
    assert (episodes, int(cmdp.constraints.period)) == (3000, 1500)


def test_an_option_wins_over_the_episodes_of_the_run_and_that_is_said(pdgd, stopped):
    words = ("two-phase", "--episodes", "3000", "--num-episodes", "1e4")
    said = "made for 10,000 episodes (its option num_episodes) and is played for 3,000"
    for command in ("run", "solve"):
        code, _, err = pdgd(command, *words)
        assert code == 0
        assert said in err
        assert len(err.strip().splitlines()) == 1
    assert int(stopped[0][0].constraints.period) == 5000
    assert pdgd("solve", "two-phase", "--episodes", "1e4", "--num-episodes", "10000")[2] == ""


@pytest.mark.parametrize("episodes", ["3000", "100000"])
def test_solve_prints_opt_and_rho_of_the_same_game(pdgd, episodes):
    facts = json.loads(pdgd("solve", "two-phase", "--episodes", episodes, "--json")[1])
    assert facts["opt"] == pytest.approx(0.625 / 1.625)  # of two equal halves
    assert facts["rho"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--epsiodes", "100"], "no option '--epsiodes' (did you mean '--episodes'?)"),
        (["--episode", "100"], "no option '--episode' (did you mean '--episodes'?)"),
        (["--lerner", "uniform"], "no option '--lerner' (did you mean '--learner'?)"),
        (["--certificate"], "no option '--certificate' (did you mean '--certificates'?)"),
        (["--zzz"], "run has no option '--zzz', nor has instance 'random', whose options are"),
        (["--budget", "--seed", "3"], "no option '--budget', nor has instance 'random', whose"),
        (["--seed", "--branching", "3"], "--seed needs a value"),
        (["--sizes", "1,2,1", "gird"], "unknown instance 'gird' (did you mean 'grid'?)"),
        (["--import", "mine", "random"], "--import belongs before the command: pdgd --import"),
        (["--import=mine", "random"], "--import belongs before the command: pdgd --import"),
        (["--key", "4294967296"], "--key must be a whole number, from 0 to 4,294,967,295"),
        (["--episodes", "1e10"], "--episodes must be a whole number, from 1 to 2,147,483,647"),
        (["--seeds", "3000000000"], "--seeds must be a whole number, from 1 to 2,147,483,647"),
        (["--rates", "1,'a'"], "the rate eta must be positive and finite; got 'a'"),
    ],
)
def test_mistaken_options_are_answered_with_what_was_meant(unchecked, pdgd, words, sentence):
    code, out, err = pdgd("run", *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_options_may_come_before_the_name(pdgd, stopped):
    assert pdgd("run", "--horizon", "1e1", "streaming", "--capacity=2")[0] == 0
    assert stopped[0][0].layers.sizes == (1, 2, *[3] * 8, 1)


def test_import_belongs_before_every_command(pdgd):
    code, _, err = pdgd("sweep", "--import", "mine", "quick")
    assert code == 2
    assert "--import belongs before the command: pdgd --import MODULE sweep" in err


def test_a_place_that_cannot_be_written_is_refused_before_the_run(
    pdgd, stopped, monkeypatch, tmp_path
):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    out = tmp_path / "result"
    monkeypatch.setattr("pathlib.Path.touch", refuse)
    code, _, err = pdgd("run", "two-phase", "--out", str(out))
    assert code == 2
    assert err == f"{out} cannot be written: Permission denied.\n"
    monkeypatch.undo()
    file = tmp_path / "file"
    file.touch()
    _, _, err = pdgd("run", "two-phase", "--out", str(file / "result"))
    assert f"{file} is not a folder" in err
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").touch()
    words = ("run", "two-phase", "--out", str(tmp_path / "folder"))
    assert "exists already" in pdgd(*words)[2]
    assert "holds files that are not results; --force does not" in pdgd(*words, "--force")[2]
    assert stopped == []


def test_a_file_is_replaced_only_by_force(pdgd, stopped, tmp_path):
    out = tmp_path / "result"
    out.write_text("precious")
    code, _, err = pdgd("run", "two-phase", "--out", str(out))
    assert code == 2
    assert f"{out} exists already; choose another name, remove it, or say --force." in err
    assert stopped == []
    assert pdgd("run", "two-phase", "--out", str(out), "--force")[0] == 0
    assert len(stopped) == 1
    assert out.read_text() == "precious"  # until there is something to replace it
    assert list(tmp_path.iterdir()) == [out]


def test_results_are_replaced_only_by_force_and_only_by_results(pdgd, tmp_path, monkeypatch):
    out = tmp_path / "result"
    few = ("run", "two-phase", "--learner", "uniform", "--seeds", "1", "--episodes", "4")
    words = (*few, "--out", str(out))
    assert pdgd(*words)[0] == 0
    assert "exists already" in pdgd(*words)[2]
    assert pdgd(*words, "--key", "7", "--force")[0] == 0
    assert open_results(out).attrs["key"] == 7
    monkeypatch.setattr("pdgd_jax.sweeps._folder.Store.save_results", _fails)
    code, _, err = pdgd(*words, "--key", "8", "--force")
    assert (code, err.strip()) == (2, "in the midst.")
    assert open_results(out).attrs["key"] == 7  # as long as there is nothing better
    assert list(tmp_path.iterdir()) == [out]


def _fails(*_):
    raise ValueError("in the midst.")


@pytest.fixture(scope="module")
def uniform_run():
    """A learner that has neither multipliers nor epochs, against an adversary."""
    cmdp = make("two-phase", num_episodes=20)
    player = learners.uniform(cmdp.layers)
    history = two_seeds(cmdp, player, 20)
    result = evaluate(history, cmdp)
    data = dataset_of(history, result)
    return summarise(data) | {"constraints_process": "Phases (adversarial)"}, data


def printed(shown, width=100, encoding="utf-8"):
    content = io.BytesIO()
    with io.TextIOWrapper(content, encoding=encoding, write_through=True) as file:
        console = Console(file=file, width=width)
        summary.print_summary(console, *shown, all_=False)
        return content.getvalue().decode(encoding)


def test_rows_are_about_what_the_learner_has_and_the_paper_promises(uniform_run):
    text = printed(uniform_run)
    assert "multiplier" not in text
    assert "epochs" not in text
    # rho = 1/4 and L = 1, so that alpha = 1/5.
    earned, best = 20 * 0.5, 20 * 0.625 / 1.625
    assert re.search(rf"alpha-regret, alpha = 0.2 +{best / 5 - earned:.3f}", text)
    facts, data = uniform_run
    stochastic = {**facts, "constraints_process": "Bernoulli (stochastic)"}
    assert "alpha-regret" not in printed((stochastic, data))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_gets_ascii(uniform_run, encoding):
    text = printed(uniform_run, encoding=encoding)
    assert text.isascii()
    assert "median (10% to 90%)" in text
    assert re.search(r"^ +3\.75 \+ +[.'|-]+$", text, re.MULTILINE)  # the top of a picture
    assert "⠤" in printed(uniform_run)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_no_sign_ends_a_command(pdgd, monkeypatch, encoding, stopped):
    """Whatever is printed; what the encoding lacks is written as something else."""
    monkeypatch.setattr(
        "pdgd_jax.cli.instances.about", lambda name: "an instance of Möbius ± ∞ ⠤ │"
    )
    content = io.BytesIO()
    with io.TextIOWrapper(content, encoding=encoding, write_through=True) as file:
        monkeypatch.setattr("sys.stdout", file)
        code, _, err = pdgd("instances", "two-phase")
        assert (code, err) == (0, "")
        shown = content.getvalue().decode(encoding)
    assert ("Mobius +- inf ? |" if encoding == "ascii" else "Möbius ± inf ? |") in shown


@pytest.mark.parametrize("width", [30, 60])
def test_narrow_terminals_keep_names_and_numbers(uniform_run, width):
    text = printed(uniform_run, width=width)
    for name in ("reward", "OPT", "regret", "violation, worst constraint"):
        assert re.search(rf"^{name}( |$)", text, re.MULTILINE), name
    assert "-2.308" in text
    assert all(len(line) <= width for line in text.split("guarantees")[0].splitlines())


@pytest.mark.parametrize("width", [30, 60])
def test_instances_are_listed_on_narrow_terminals(pdgd, monkeypatch, width):
    facts = dict.fromkeys(("layers", "states", "actions", "constraints"), 3)
    facts |= {"opt": 1.5, "rho": 0.25, "rho_exact": True, "rho_reason": ""}
    monkeypatch.setattr("pdgd_jax.cli.instances._facts_or_reason", lambda name: facts)
    code, out, _ = pdgd("instances", columns=width)
    assert code == 0
    assert all(name in out.splitlines() for name in registered())
    numbers = " ".join(out.split())
    assert numbers.count("L 3, states 3, actions 3, m 3, OPT 1.5, rho 0.25") == len(registered())
    assert max(map(len, out.splitlines())) <= width
    assert len(out.splitlines()) <= 8 * len(registered())


def test_a_curve_of_nothing_says_so():
    assert "nothing to draw" in curve([1, 2], [np.nan, np.inf])
    assert "5" in curve([1, 2], [5.0, 5.0])


def test_a_lower_bound_of_rho_decides_nothing(pdgd):
    words = ["random", "--constraints", "corrupted", "--episodes", "300", "--sizes", "1,2,1"]
    _, out, _ = pdgd("solve", *words)
    assert re.search(r"rho +at least -", out)
    assert "unknown at T = 300: it asks for rho >= " in out
    assert "never" not in out
    facts = json.loads(pdgd("solve", *words, "--json")[1])
    assert (facts["rho_exact"], facts["condition_holds"]) == (False, None)


@pytest.mark.parametrize(("short", "episodes"), [(60.0, 50), (0.0, 5)])
def test_a_short_run_reports_at_every_tenth_checkpoint(pdgd, monkeypatch, short, episodes):
    """Each report interrupts the program; 1,000 episodes have 200 checkpoints."""

    def played(*words, save_every, **settings):
        raise ValueError(f"reported every {save_every} episodes")

    monkeypatch.setattr("pdgd_jax.cli.run.sweep", played)
    monkeypatch.setattr("pdgd_jax.cli.run._SHORT", short)
    code, _, err = pdgd("run", "two-phase", "--episodes", "1000", "--learner", "uniform")
    assert (code, f"reported every {episodes} episodes" in err) == (2, True)
