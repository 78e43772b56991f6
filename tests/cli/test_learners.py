"""`pdgd learners`, and options of learners on the command line."""

import json
import re

import numpy as np
import pytest

from pdgd_jax import Configuration, learners, open_results
from pdgd_jax.cli.docs import described
from pdgd_jax.learners import LEARNERS


@pytest.fixture(autouse=True)
def forgotten():
    """What a test registers is forgotten after it."""
    with LEARNERS.temporarily():
        yield


@pytest.fixture
def asked(monkeypatch):
    """The configurations that `pdgd run` would play; it comes no further."""
    found = []

    def stop(table, **_):
        found.append(Configuration.from_dict(table))
        raise SystemExit(0)

    monkeypatch.setattr("pdgd_jax.cli.run.sweep", stop)
    return found


SMALL = ("run", "random", "--sizes", "1,2,1", "--num-actions", "2", "--episodes", "20")


def test_learners_are_listed_with_what_they_know_and_see(pdgd):
    code, out, _ = pdgd("learners")
    assert code == 0
    assert all(name in out for name in learners.registered_learners())
    assert re.search(r"unifying +full +Castiglioni et al. \(2022\) +transitions, rho, horizon", out)
    assert re.search(r"o-reps +full +Zimin and Neu \(2013\) +transitions, horizon", out)
    assert re.search(r"uniform +nothing +nothing", out)
    narrow = pdgd("learners", columns=80)[1]
    assert max(map(len, narrow.splitlines())) <= 80
    rows = {row["name"]: row for row in json.loads(pdgd("learners", "--json")[1])}
    assert rows["ucpd"]["knows"] == ["horizon"]
    assert rows["ucpd"]["feedback"] == "full"
    assert rows["ucpd"]["options"] == {"V": None, "alpha": None, "mixing": None}
    assert rows["ucpd"]["settings"] == ["delta", "confidence_scale"]
    assert rows["uniform"]["knows"] == []


def test_one_learner_is_described_with_its_options(pdgd):
    code, out, _ = pdgd("learners", "ucpd")
    assert code == 0
    for word in ("upper confidence primal-dual", "knows: horizon", "sees: full information"):
        assert word in out
    assert "reference: Qiu, Wei, Yang, Ye and Wang (2020), Upper Confidence" in out
    assert re.search(r"V +the paper's +the weight of the loss against the queues", out)
    assert "Args:" not in out
    assert "--option V=VALUE" in out
    out = pdgd("learners", "unifying")[1]
    assert re.search(r"rho +the CMDP's +the margin", out)
    assert re.search(r"rho_scale +1.0 +a factor of rho", out)
    assert re.search(r"mirror +entropic", out)
    assert "option" not in pdgd("learners", "uniform")[1]
    code, _, err = pdgd("learners", "ucdp")
    assert code == 2
    assert "unknown learner 'ucdp' (did you mean 'ucpd'?)" in err


def test_a_learner_of_ones_own_is_listed_as_it_was_declared(pdgd):
    def mine(cmdp, num_episodes, *, patience: int = 3):
        """Waits and sees.

        Args:
          patience: how long it waits,
            in episodes.

        Reference:
          Me and Mine (2026), Waiting.
        """

    learners.register_learner("mine", mine, knows=["rho"], feedback="bandit")
    learners.register_learner("silent", lambda cmdp, num_episodes, *, pace=None: None)
    out = pdgd("learners")[1]
    assert re.search(r"mine +bandit +Me and Mine \(2026\) +rho", out)
    assert re.search(r"silent +full +not declared", out)
    out = pdgd("learners", "mine")[1]
    assert out.startswith("mine\nWaits and sees.\n\nknows: rho\nsees: bandit feedback\n")
    assert re.search(r"patience +3 +how long it waits, in episodes\.", out)
    assert re.search(r"pace +its own *\n", pdgd("learners", "silent")[1])
    silent = json.loads(pdgd("learners", "silent", "--json")[1])
    assert (silent["knows"], silent["feedback"]) == (None, "full")


def test_a_docstring_is_taken_apart():
    found = described(
        "One.\n\nTwo.\n\nArgs:\n  a: first,\n    more.\n  b: second.\n\nReturns:\n  Nothing.\n"
    )
    assert found.text == "One.\n\nTwo."
    assert found.meanings == {"a": "first, more.", "b": "second."}
    assert (found.reference, found.source) == ("", "")


def test_options_reach_the_learner_and_the_configuration(pdgd, asked):
    words = ("--learner", "unifying", "--option", "rho=0.3", "--option", "mirror=euclidean")
    assert pdgd(*SMALL, *words, "--option", "dual-step=1e-3")[0] == 0
    (configuration,) = asked
    assert {option.name: option.values for option in configuration.options} == {
        "rho": (0.3,),
        "mirror": ("euclidean",),
        "dual_step": (0.001,),
    }
    assert pdgd(*SMALL, "--learner", "ucpd")[0] == 0
    assert asked[1].as_dict()["learners"] == {"names": ["ucpd"], "solver": "newton"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ucpd", "--option", "W=1"], "learner 'ucpd' has no option 'W'"),
        (["ucpd", "--option", "mixng=1"], "(did you mean 'mixing'?); its options are V, alpha, m"),
        (["ucpd", "--option", "V"], "--option V: write NAME=VALUE, such as V=100."),
        (["ucpd", "--option", "=3"], "--option =3: write NAME=VALUE"),
        (["ucpd", "--option", "V="], "--option V=: write NAME=VALUE"),
        (["ucpd", "--option", "V=1", "--option", "V=2"], "--option V=2: V is given already."),
        (["ucpd", "--option", "V=much"], "V of learner 'ucpd' must be a finite number; got 'much'"),
        (["ucpd", "--option", "V=1,2"], "V of learner 'ucpd' must be a finite number; got (1, 2)."),
        (["ucpd", "--option", "V=-1"], "V must be positive and finite; got -1.0."),
        (["ucpd", "--option", "delta=0.1"], "and is --delta on the command line."),
        (["unifying", "--option", "mirror=flat"], "mirror must be one of entropic, euclidean"),
        (["uniform", "--option", "V=1"], "learner 'uniform' has no option 'V'; it has no options."),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(pdgd, asked, words, sentence):
    code, out, err = pdgd(*SMALL, "--learner", *words)
    assert (code, out, asked) == (2, "", [])
    assert sentence in err
    assert err.count("\n") == 1


def test_a_run_of_a_learner_that_needs_a_margin_is_refused_where_there_is_none(pdgd, asked):
    words = ("run", "no-slater", "--learner", "unifying", "--episodes", "20")
    code, out, err = pdgd(*words)
    assert (code, out, asked) == (2, "", [])
    assert err == (
        "the learner 'unifying' must know a margin rho > 0, and here no policy satisfies the "
        "constraints strictly: rho is 0. Give its option rho a value to play it anyway.\n"
    )
    assert pdgd(*words, "--option", "rho=0.1")[0] == 0


def test_a_run_says_what_its_learner_knows_and_sees(pdgd, tmp_path):
    @learners.declares(knows=["transitions", "horizon"], feedback="bandit")
    def mine(cmdp, num_episodes, *, weight=2.0):
        return learners.uniform(cmdp.layers)

    learners.register_learner("mine", mine)
    out = tmp_path / "run"
    words = (*SMALL, "--learner", "mine", "--option", "weight=3", "--seeds", "1")
    code, text, _ = pdgd(*words, "--out", str(out))
    assert code == 0
    said = "mine knows: transitions, horizon; sees: bandit feedback; weight = 3\n"
    assert said in text
    saved = open_results(out)
    assert saved.knows.values.tolist() == ["transitions, horizon"]
    assert saved.feedback.values.tolist() == ["bandit"]
    assert saved["mine.weight"].values.tolist() == [3]
    facts = json.loads(pdgd(*words, "--json")[1])
    assert facts["knows"] == ["transitions", "horizon"]
    assert (facts["feedback"], facts["options"]) == ("bandit", {"weight": 3})


SWEEP = """
seeds = 2
checkpoints = 2

[[instance]]
make = "two-phase"

[settings]
horizon = 8

[learners]
names = ["mine", "uniform"]

[learners.mine]
weight = [1, 30]
share = 0.5
"""


def test_a_sweep_shows_options_and_what_learners_know(pdgd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def mine(cmdp, num_episodes, *, weight=2.0, share=0.1):
        layers = cmdp.layers
        skewed = np.asarray(layers.uniform_policy()) * np.array([1, weight])[: layers.shape[2]]
        return learners.fixed_policy(layers, skewed / np.maximum(skewed.sum(-1), 1e-9)[..., None])

    learners.register_learner("mine", mine, knows=["horizon"])
    (tmp_path / "mine.toml").write_text(SWEEP)
    facts = json.loads(pdgd("sweep", "mine.toml", "--json")[1])
    found = [(cell["learner"], cell["mine.weight"], cell["mine.share"]) for cell in facts["cells"]]
    assert found == [("mine", 1, 0.5), ("mine", 30, 0.5), ("uniform", None, None)]
    assert facts["cells"][0]["regret"] != facts["cells"][1]["regret"]
    assert facts["learners"] == [
        {"name": "mine", "knows": "horizon", "feedback": "full"},
        {"name": "uniform", "knows": "nothing", "feedback": "none"},
    ]
    out = pdgd("sweep", "mine.toml")[1]
    assert re.search(r"learner +mine.weight +regret +violation", out)
    assert re.search(r"\nmine +30(\.0)? ", out)
    assert re.search(r"\nuniform +any ", out)
    assert re.search(r"learner +knows +sees *\nmine +horizon +full information", out)
    plan = json.loads(pdgd("sweep", "mine.toml", "--dry-run", "--json")[1])
    assert plan["lanes"] == 2 * 3
    assert json.loads(pdgd("status", "mine-sweep", "--json")[1])["lanes"] == 2 * 3
