import json
import sys

import pytest

from pdgd_jax import cli, registered


@pytest.fixture
def pdgd(monkeypatch, capsys):
    """Run `pdgd` with the given words; returns exit code, output and errors."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["pdgd", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        output = capsys.readouterr()
        return stop.value.code or 0, output.out, output.err

    return run


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
    assert "budget: to be spent" in out


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
        (["solve", "random", "--sizes", "abc"], "sizes and num_actions are whole numbers"),
        (["solve", "random", "--num-actions", "x"], "num_actions must be a whole number"),
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
