import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.main import get_command

from pdgd_jax import cli
from pdgd_jax.console import app
from pdgd_jax.plots import FIGURES
from pdgd_jax.report import report_of
from pdgd_jax.store import Store
from tests.synthetic import results

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><!--",
    "\"double\" 'single' & ünïcødé {{data}}",
)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Plotly's five megabytes are not what these tests read."""
    monkeypatch.setattr("pdgd_jax.report.page._plotly", lambda: "var Plotly;")


class Page(HTMLParser):
    """The tags of a page, its tables row by row, and the data of its figures."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.tables, self.text, self.scripts = [], [], [], []
        self._into = None
        self.feed(text)
        self.data = json.loads(self.scripts[0])

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        self._into = tag if tag in ("td", "th", "script", "style", "small") else self._into
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._into = None

    def handle_data(self, text):
        if self._into in ("td", "th"):
            self.tables[-1][-1][-1] += text
        elif self._into == "script":
            self.scripts[-1] += text
        elif self._into is None:
            self.text.append(text)


def test_a_report_asks_for_nothing_from_anywhere():
    page = Page(report_of(results()))
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    (policy,) = [a["content"] for t, a in page.tags if a.get("http-equiv")]
    assert policy.startswith("default-src 'none';")
    assert "url(" not in report_of(results())
    assert "@import" not in report_of(results())


def test_names_of_a_configuration_are_text():
    text = report_of(results(instance=HOSTILE, learner=("pdgd-ops", "<img src=x onerror=a()>")))
    page = Page(text)
    assert not any(tag == "img" for tag, _ in page.tags)
    assert len(page.scripts) == 3  # the data, Plotly and our own
    assert page.data["choices"]["instance"] == list(HOSTILE)
    _, summary, *_ = page.tables
    assert [row[0] for row in summary[1::2]] == list(HOSTILE)
    # Nothing inside the data can end it, or begin a comment.
    block = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert "<" not in block


def test_the_table_of_results_holds_medians():
    data = results(learner=("pdgd-ops", "uniform"), rates=("tuned", "theory"), horizon=(100, 9999))
    _, table, *_ = Page(report_of(data)).tables
    head, *rows = table
    assert head[:3] == ["learner", "rates", "horizon"]
    assert [row[:3] for row in rows] == [
        ["pdgd-ops", "tuned", "T = 100"],
        ["pdgd-ops", "tuned", "T = 9,999"],
        ["pdgd-ops", "theory", "T = 100"],
        ["pdgd-ops", "theory", "T = 9,999"],
        ["uniform", "any", "T = 100"],
        ["uniform", "any", "T = 9,999"],
    ]
    ends = data.regret.isel(checkpoint=-1, instance=0, delta=0, confidence_scale=0).median("seed")
    found = [float(row[head.index("regret")].replace(",", "")) for row in rows]
    expected = [*ends.values.ravel()[:4], *ends.sel(learner="uniform", rates="tuned").values]
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert rows[0][head.index("guarantees")] == "5 hold, 1 fail"
    assert rows[4][head.index("guarantees")] == "0 hold"


def test_the_table_of_guarantees_shows_the_run_closest_to_its_bound():
    data = results(learner=("pdgd-ops", "uniform"), seeds=2)
    data["certificate_measured"][..., 0, 1, 1] = 4.0  # of the second seed of pdgd-ops
    *_, every, each = Page(report_of(data)).tables
    rows = {row[0]: row[1:] for row in every[1:]}
    assert rows["multipliers in their box"][:4] == ["4", "5.623", "0.7113", "2 of 4"]
    assert rows["violation, Theorem 6"][4] == "fails in 2 runs"
    assert rows["regret, Theorem 6"][4] == "holds"
    assert [row[-1] for row in each[1:3]] == ["holds", "does not apply"]


def test_unconverged_and_unfinished_runs_are_announced():
    assert "alarm" not in str(Page(report_of(results())).tags)
    data = results(unconverged=3, seeds=4, learner=("pdgd-ops", "uniform"))
    text = " ".join(Page(report_of(data)).text)
    assert "12 projections did not converge." in text
    assert "pdgd-ops: 12" in text
    data = results(seeds=4)
    for name in ("reward", "regret"):
        data[name][..., 3, :] = np.nan
    assert "1 run not finished." in " ".join(Page(report_of(data)).text)


def test_what_was_run_is_said():
    text = report_of(results(instance=("here", "there")))
    words = " ".join(Page(text).text)
    for word in ("made up", "key 7", "solver newton", "jax 0.10.0", "2026-01-01 00:00 UTC."):
        assert word in " ".join(words.split())
    first, *_ = Page(text).tables
    assert first[1] == ["here", "random", "sizes = 1, 3, 3, 1, num_actions = 2"]


def test_the_figures_hold_the_bands():
    data = results(seeds=7, constraints=2, horizon=(100, 1000))
    page = Page(report_of(data)).data
    cell = page["cells"][1]
    assert (cell["label"], cell["place"]["horizon"]) == ("T = 1,000", 1)
    values = data.regret.isel(horizon=1).squeeze().values
    bands = np.quantile(values, (0.5, 0.1, 0.9), axis=0)
    np.testing.assert_allclose(cell["bands"]["regret"][0], bands, rtol=1e-4)
    assert len(cell["bands"]["multipliers"]) == 2
    regret, violation = page["horizons"]
    assert (regret["slope"], violation["slope"]) == pytest.approx((0.5, 0.75))
    assert regret["horizon"] == [100, 1000]


def test_many_cells_have_fewer_points_each(monkeypatch):
    monkeypatch.setattr("pdgd_jax.report.drawn._MOST_POINTS", 100)
    data = results(delta=(0.01, 0.05, 0.1), seeds=2, checkpoints=150)
    page = Page(report_of(data)).data
    assert {len(cell["episode"]) for cell in page["cells"]} == {33}
    assert page["cells"][0]["episode"][-1] == 1000


def test_results_without_a_configuration_are_reported_too():
    data = results().squeeze(["instance", "learner", "rates", "delta", "confidence_scale"])
    data = data.squeeze("horizon").drop_vars("horizon").drop_attrs()
    page = Page(report_of(data))
    assert "Results" in page.text
    assert len(page.data["cells"]) == 1


def test_plotly_that_is_missing_is_named(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ValueError, match=r'need Plotly: pip install "pdgd_jax\[report\]"'):
        report_of(results())


# The commands.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "results"
    store = Store.create(path, {"name": "made up"})
    with store:
        store.save_results(
            results(learner=("pdgd-ops", "uniform"), horizon=(100, 1000), unconverged=1)
        )
    return path


@pytest.fixture
def pdgd(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["pdgd", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        output = capsys.readouterr()
        return stop.value.code or 0, output.out, output.err

    return run


def test_pdgd_report_writes_one_file(pdgd, folder, tmp_path):
    code, out, err = pdgd("report", folder)
    assert (code, err) == (0, "")
    assert str(folder / "report.html") in out
    page = Page((folder / "report.html").read_text())
    assert page.data["cells"][0]["label"] == "pdgd-ops, T = 100"
    code, out, _ = pdgd(
        "report", folder, "--out", "mine.html", "--select", "horizon=1e3", "--select",
        "learner=pdgd-ops",
    )  # fmt: skip
    assert code == 0
    assert len(Page((tmp_path / "mine.html").read_text()).data["cells"]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.html"]


@pytest.mark.parametrize(
    ("words", "file", "start"),
    [
        (["--format", "pdf", "--select", "horizon=100"], "regret.pdf", b"%PDF"),
        (["--figure", "horizons", "--guides", "--out", "x.svg"], "x.svg", b"<?xml"),
        (["--figure", "policy", "--format", "png"], "policy.png", b"\x89PNG"),
    ],
)
def test_pdgd_plot_writes_a_figure(pdgd, folder, tmp_path, words, file, start):
    code, out, err = pdgd("plot", folder, *words)
    assert (code, err) == (0, "")
    assert file in out
    assert (tmp_path / file).read_bytes().startswith(start)
    if "horizon=100" in words:
        assert "regret of horizon 100 drawn" in out
    if "policy" in words:
        assert "of instance random, learner pdgd-ops" in out
        assert "horizon 1000, seed 0 drawn" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["plot", "DIR", "--figure", "regert"], "unknown figure 'regert' (did you mean 'regret'?)"),
        (["plot", "DIR", "--out", "x.gif"], "--out must end in .pdf, .png or .svg"),
        (["plot", "DIR", "--out", "x.png", "--format", "pdf"], "--out x.png disagree"),
        (["plot", "DIR", "--out", "nowhere/x.png"], "the folder nowhere does not exist"),
        (["plot", "DIR", "--select", "colour=3"], "NAME being one of instance, learner"),
        (["plot", "DIR", "--select", "learner=me"], "learner is one of pdgd-ops, uniform"),
        (["plot", "DIR", "--figure", "radius", "--bounds"], "the figure radius has no bounds"),
        (["plot", "elsewhere"], "elsewhere"),
        (["report", "elsewhere"], "elsewhere"),
        (["report", "DIR", "--out", "x.pdf"], "--out must end in .html"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(pdgd, folder, words, sentence):
    code, out, err = pdgd(*(folder if word == "DIR" else word for word in words))
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())
    assert err.count("\n") == 1


def test_every_figure_is_named_in_the_help():
    (option,) = [p for p in get_command(app).commands["plot"].params if p.name == "figure"]
    assert all(name in re.split(r", | or |\.", option.help) for name in FIGURES)


def test_instances_with_fewer_constraints_are_padded():
    data = results(instance=("two", "one"), constraints=2)
    for name in ("violations", "positive_violation", "multipliers"):
        data[name][1, ..., 1] = np.nan
    two, one = Page(report_of(data)).data["cells"]
    assert (len(two["bands"]["multipliers"]), len(one["bands"]["multipliers"])) == (2, 1)
    assert one["bands"]["positive_violation"] != two["bands"]["positive_violation"]
    data["positive_violation"][1] = np.nan  # of runs that are not finished
    assert "positive_violation" not in Page(report_of(data)).data["cells"][1]["bands"]
