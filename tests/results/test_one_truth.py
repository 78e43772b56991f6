"""One table of quantities, and one number wherever it is shown."""

import json
import re

import numpy as np
import pytest

from pdgd_jax import open_results, plots
from pdgd_jax._internal.text import number_in_words
from pdgd_jax.projection import SOLVERS
from pdgd_jax.report import report_of
from pdgd_jax.results import QUANTITIES, Column, Curve, Quantity, Row, summarise
from tests.quick import QUICK
from tests.report.test_report import Page


@pytest.fixture(autouse=True, scope="module")
def forgotten():
    """These tests know the solver "quick", which is forgotten after them."""
    with SOLVERS.temporarily({"quick": QUICK}):
        yield


INSTANCE = ("random", "--sizes", "1,2,1", "--num-actions", "2")
SMALL = (*INSTANCE, "--episodes", "60", "--seeds", "5", "--checkpoints", "6", "--key", "3")
SWEEP = """
key = 3
seeds = 5
checkpoints = 6
[[instance]]
make = "random"
sizes = [1, 2, 1]
num_actions = 2
[settings]
horizon = 60
[learners]
solver = "quick"
"""


def test_the_same_number_stands_everywhere(pdgd, tmp_path):
    """Of one configuration: in JSON, in the table, the Dataset, a figure, the report, a sweep."""
    out, file = tmp_path / "out", tmp_path / "same.toml"
    words = ("run", *SMALL, "--solver", "quick")
    code, table, _ = pdgd(*words, "--out", str(out))
    assert code == 0
    facts = json.loads(pdgd(*words, "--json")[1])
    file.write_text(SWEEP)
    code, text, _ = pdgd("sweep", str(file), "--out", str(tmp_path / "swept"), "--json")
    (swept,) = json.loads(text)["cells"]
    data = open_results(out)
    page = Page(report_of(data))
    rows = {
        "regret": "regret",
        "violation": "violation, worst constraint",
        "positive_violation": "violation, positive parts of the mean",
    }
    for name, label in rows.items():
        ends = data[name].isel(checkpoint=-1).max([d for d in data[name].dims if d == "constraint"])
        expected = float(np.sort(ends.values.ravel())[2])  # the median of five
        low, high = np.quantile(ends.values, (0.1, 0.9))
        assert expected != 0
        estimate = facts[name]
        assert estimate["median"] == expected
        assert (estimate["low"], estimate["high"]) == pytest.approx((low, high))
        drawn = plots.FIGURES[name.replace("_", "-")](data)
        line = next(n for n in drawn.get_lines() if len(n.get_xdata()) > 2)
        assert line.get_ydata()[-1] == expected
        corners = drawn.collections[0].get_paths()[0].vertices
        there = corners[corners[:, 0] == 60, 1]
        assert (there.min(), there.max()) == (estimate["low"], estimate["high"])
        place = page.data["measures"].index(QUANTITIES[name].column.name)
        end = page.data["cells"][0]["ends"][place]
        said, least, most = (number_in_words(estimate[k]) for k in ("median", "low", "high"))
        assert (end["value"], end["text"]) == (expected, said)
        assert end["band"] == f"{least} to {most}"
        band = re.escape(f"{said} ({least} to {most})")
        assert re.search(rf"^{label} +{band} ", table, re.MULTILINE), table
        assert swept.get(name, expected) == expected
    assert {"regret", "violation"} <= swept.keys()


def test_the_mean_is_shown_where_it_is_asked_for(pdgd):
    words = ("run", *SMALL, "--learner", "uniform")
    facts = json.loads(pdgd(*words, "--json")[1])["sampled_reward"]
    assert facts["mean_low"] < facts["mean"] < facts["mean_high"]
    code, text, _ = pdgd(*words, "--statistic", "mean")
    assert code == 0
    assert "mean (95% bootstrap interval)" in text
    assert "regret (mean over seeds)" in text


def test_a_metric_is_one_entry_of_the_table(pdgd, tmp_path, monkeypatch):
    luck = Quantity(
        "luck",
        ("checkpoint",),
        "cumulative luck of the sampled episodes",
        "reward",
        lambda history, _: history.sampled_reward - history.reward,
        key="luck",
        curve=Curve("luck", own_words=True, zero_line=True),
        column=Column("luck per episode", per_episode=True),
        row=Row("luck, of all episodes"),
    )
    monkeypatch.setitem(QUANTITIES, "luck", luck)
    out = tmp_path / "out"
    code, text, _ = pdgd("run", *SMALL, "--learner", "uniform", "--out", str(out))
    assert code == 0
    assert re.search(r"^luck, of all episodes +-?[0-9.]+ \(", text, re.MULTILINE)
    data = open_results(out)
    np.testing.assert_array_equal(data.luck, data.sampled_reward - data.reward)
    assert data.luck.attrs == {"long_name": luck.long_name, "units": "reward"}
    facts = json.loads(json.dumps(summarise(data)))  # what --json prints
    median = float(np.median(data.luck[..., -1]))
    assert facts["luck"]["median"] == median
    axes = plots.FIGURES["luck"](data)
    assert axes.get_ylabel().replace("\n", " ") == f"{luck.long_name} (reward)"
    assert axes.get_lines()[-1].get_ydata()[-1] == median
    target = tmp_path / "luck.svg"
    assert pdgd("plot", str(out), "--figure", "luck", "--out", str(target))[0] == 0
    assert target.exists()
    page = Page(report_of(data))
    assert page.data["quantities"]["luck"]["label"] == "Luck"
    place = page.data["measures"].index("luck per episode")
    assert page.data["cells"][0]["ends"][place]["value"] == pytest.approx(median / 60)
