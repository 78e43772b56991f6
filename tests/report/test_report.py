import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.main import get_command

from pdgd_jax import make, oracle
from pdgd_jax.cli import entry
from pdgd_jax.cli.app import app
from pdgd_jax.cli.options import with_names
from pdgd_jax.plots import FIGURES
from pdgd_jax.report import report_of
from pdgd_jax.report._instances import _rho
from pdgd_jax.report._tables import _Judged, _together
from pdgd_jax.sweeps._folder import Store
from tests.plots.test_plots import vacuous
from tests.synthetic import results

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><!--",
    "\"double\" 'single' & ünïcødé {{data}}",
)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Plotly's five megabytes are not what these tests read."""
    monkeypatch.setattr("pdgd_jax.report._page._plotly", lambda: "var Plotly;")


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


def test_the_multipliers_are_called_what_they_are():
    data = results(constraints=2)
    data["multipliers"][..., -1, :] = np.array([0.25, 0.867])  # after a peak that was higher
    dims = data.regret.dims
    head, row = Page(report_of(data)).tables[1]
    assert not [name for name in head if "largest" in name]
    assert row[head.index("multiplier, last")] == "0.867"
    largest = (dims, np.full(data.regret.shape, 1.71), {"long_name": "largest sum so far"})
    head, row = Page(report_of(data.assign(largest_multiplier=largest))).tables[1]
    assert row[head.index("multiplier, last")] == "0.867"
    assert row[head.index("multipliers, largest so far")] == "1.71"


def test_names_stay_in_sight_and_the_solver_is_folded_away():
    page = Page(report_of(results(learner=("pdgd-ops", "uniform"), horizon=(100, 1000))))
    head, *rows = page.tables[1]
    assert head == [
        "learner", "horizon", "reward per episode", "OPT per episode", "regret", "violation",
        "violation per episode, last tenth", "positive violation", "multiplier, last", "guarantees",
    ]  # fmt: skip
    pinned = [a for t, a in page.tags if t in ("th", "td") and "pinned" in a.get("class", "")]
    assert len(pinned) == 2 * 2 * (1 + len(rows))  # two names, in two tables
    inner = page.tables[2][0]
    assert inner[2:] == [
        "confidence radius", "iterations per episode", "largest residual", "unconverged",
    ]  # fmt: skip
    folded = [tag for tag, _ in page.tags]
    assert folded.index("details") < folded.index("table", folded.index("details"))
    panels = Page(report_of(results())).data["quantities"]
    assert list(panels) == [
        "regret", "violation", "positive_violation", "multipliers", "reward", "radius",
        "iterations", "residual",
    ]  # fmt: skip
    assert panels["residual"]["inner"]


def test_constants_have_no_band_and_rounding_is_zero():
    data = results(learner=("pdgd-ops", "best-feasible"))
    for name, value in (("regret", 5.457e-12), ("violation", 1.81e-11)):
        data[name].loc[{"learner": "best-feasible"}] = value
    text = report_of(data)
    assert "1.5 to 1.5" not in text  # OPT
    assert "e-12" not in text
    head, _, exact = Page(text).tables[1]
    assert (exact[head.index("regret")], exact[head.index("violation")]) == ("0", "0")


def test_the_report_says_whether_violation_has_stopped():
    data = results(constraints=1, checkpoints=20)
    data["violations"][..., 0] = np.minimum(data.episode, 500).values[0]  # 1 each, and then none
    head, row = Page(report_of(data)).tables[1]
    assert row[head.index("violation per episode, last tenth")] == "0"
    data["violations"][..., 0] = data.episode.values[0]
    head, row = Page(report_of(data)).tables[1]
    assert row[head.index("violation per episode, last tenth")] == "1"


def test_the_results_say_what_the_columns_are():
    data = results()
    said = "cumulative positive part of the mean constraint"
    data["positive_violation"].attrs = {"long_name": said, "units": "cost"}
    page = Page(report_of(data))
    assert f"{said} (cost)" in page.text
    assert page.data["quantities"]["positive_violation"]["axis"] == f"{said} (cost)"


def test_the_table_of_guarantees_shows_the_run_closest_to_its_bound():
    data = results(learner=("pdgd-ops", "uniform"), seeds=2)
    data["certificate_measured"][..., 0, 1, 1] = 4.0  # of the second seed of pdgd-ops
    *_, every, each = Page(report_of(data)).tables  # all apply: nothing is folded away
    rows = {row[0]: row[1:] for row in every[1:]}
    assert rows["multipliers in their box"][:4] == ["4", "5.623", "0.7113", "2 of 4"]
    assert rows["violation, Theorem 6"][4] == "fails in 2 runs"
    assert rows["regret, Theorem 6"][4] == "holds"
    assert [row[-1] for row in each[1:3]] == ["holds", "does not apply"]


def test_guarantees_that_do_not_apply_are_folded_away():
    data = results(learner=("pdgd-ops",))
    name = "regret, by the largest multiplier"
    unfit = data.certificate == name
    data["certificate_status"] = data.certificate_status.where(~unfit, "does not apply")
    data["certificate_reason"] = data.certificate_reason.where(~unfit, "because")
    text = report_of(data)
    *_, applied, folded = Page(text).tables
    assert name not in [row[0] for row in applied]
    assert [row[0] for row in folded[1:]] == [name]
    assert folded[1][1] == "does not apply"
    assert "Not applicable to these runs: 1 guarantee<" in text
    order = [
        text.index(f'<section id="{name}">') for name in ("results", "figures", "certificates")
    ]
    assert order == sorted(order)
    # "regret, Theorem 6" needs no small print "Theorem 6, regret".
    assert "<small>Theorem 6, regret</small>" not in text
    assert "<small>Theorem 5, regret</small>" in text


def test_what_cannot_fail_does_not_hold():
    data = vacuous(results(learner=("pdgd-ops", "uniform")), "regret, Theorem 6")
    page = Page(report_of(data))  # the results of older versions have no trivial bound
    head, first, _ = page.tables[1]
    assert first[head.index("guarantees")] == "4 hold, 1 fail"
    assert "1 vacuous" in report_of(data)
    *_, every, _ = page.tables
    assert {row[0]: row[5] for row in every[1:]}["regret, Theorem 6"] == "vacuous"
    trivial = data.certificate_bound.copy(data=np.full(data.certificate_bound.shape, 24502.0))
    assert "trivial: 24,502" in report_of(data.assign(certificate_trivial=trivial))


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
    assert first[1][:3] == ["here", "random", "sizes = 1, 3, 3, 1, num_actions = 2"]
    assert first[0][3:] == ["rho", "optimal multiplier"]
    assert first[1][3] == "0.5"
    cmdp = make("random", sizes=(1, 3, 3, 1), num_actions=2)
    best = oracle.optimum(cmdp.mdp, cmdp.rewards.mean(), cmdp.constraints.mean())
    assert float(first[1][4]) == pytest.approx(best.multipliers[0], rel=1e-3)  # four digits
    assert "A random CMDP in the manner of Garnet" in text


OPTIONS = {"ucpd.V": ("default", "10", "100"), "ucpd.mixing": (0.0, 0.25)}


def test_what_learners_know_and_see_is_said_with_their_options():
    data = results(learner=("ucpd", "uniform"), options=OPTIONS)
    data = data.assign_coords(
        knows=("learner", ["horizon", "nothing"]), feedback=("learner", ["bandit", "none"])
    )
    assert Page(report_of(data)).tables[0] == [
        ["learner", "knows", "sees", "options"],
        ["ucpd", "horizon", "bandit feedback", "V = default, 10, 100; mixing = 0, 0.25"],
        ["uniform", "nothing", "nothing", ""],
    ]
    one = Page(report_of(data.isel(learner=[1]))).tables[0]  # a selection
    assert one[1:] == [["uniform", "nothing", "nothing", ""]]


def test_results_from_before_learners_declared_have_a_report():
    assert "knows" not in Page(report_of(results())).tables[0][0]


def test_options_of_a_learner_are_columns_that_others_ignore():
    page = Page(report_of(results(learner=("ucpd", "uniform"), options=OPTIONS)))
    labels = [cell["label"] for cell in page.data["cells"]]
    assert labels == [
        *(f"ucpd, V = {V}, mixing = {x}" for V in ("default", "10", "100") for x in ("0", "0.25")),
        "uniform",
    ]
    (table,) = [
        table for table in page.tables if table[0][:3] == ["learner", "ucpd.V", "ucpd.mixing"]
    ][:1]
    assert [row[:3] for row in (table[1], table[-1])] == [
        ["ucpd", "V = default", "mixing = 0"],
        ["uniform", "any", "any"],
    ]


def test_instances_of_other_modules_are_reported_without_a_description():
    data = results()
    configuration = json.loads(data.attrs["configuration"])
    configuration["instance"][0]["make"] = "somebody's own"
    page = Page(report_of(data.assign_attrs(configuration=json.dumps(configuration))))
    assert page.tables[0][1][1] == "somebody's own"
    assert page.tables[0][1][3:] == ["0.5", "-"]


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


def test_seeds_are_kept_for_paired_differences():
    data = results(seeds=4, learner=("pdgd-ops", "uniform"))
    page = Page(report_of(data)).data
    place = page["measures"].index("regret")
    for cell, name in zip(page["cells"], ("pdgd-ops", "uniform"), strict=True):
        expected = data.regret.sel(learner=name).isel(checkpoint=-1).squeeze().values
        np.testing.assert_allclose(cell["ends"][place]["seeds"], expected, rtol=1e-4)
        median, low, high = np.quantile(expected, (0.5, 0.1, 0.9))
        np.testing.assert_allclose(cell["tradeoff"]["regret"], (median, low, high), rtol=1e-4)
    assert [cell["colour"] for cell in page["cells"]] == [0, 6]


@pytest.mark.parametrize("streams", ["paired", "independent", None])
def test_seeds_are_compared_one_by_one_only_if_they_share_their_streams(streams):
    data = results(seeds=4, learner=("pdgd-ops", "uniform"))
    configuration = json.loads(data.attrs["configuration"]) | {"streams": streams}
    data.attrs["configuration"] = json.dumps(configuration)
    if streams is None:
        del data.attrs["configuration"]
    page = Page(report_of(data))
    assert page.data["paired"] == (streams == "paired")
    words = " ".join(page.text)
    assert ("differences seed by seed" in words) == (streams == "paired")
    assert ("cannot be compared one by one" in words) == (streams != "paired")


def test_many_cells_have_fewer_points_each(monkeypatch):
    monkeypatch.setattr("pdgd_jax.report._figures._MOST_POINTS", 100)
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
            entry.main()
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
        (["--log", "--guides", "--facet", "learner", "--width", "page"], "regret.pdf", b"%PDF"),
        (
            [
                "--figure",
                "tradeoff",
                "--legend",
                "right",
                "--label",
                "uniform=chance",
                "--title",
                "A",
            ],
            "tradeoff.pdf",
            b"%PDF",
        ),
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


def test_several_values_can_be_selected(pdgd, folder, tmp_path):
    for words in (
        ["--select", "learner=pdgd-ops,uniform", "--select", "horizon=1e2"],
        ["--select", "learner=uniform", "--select", "learner=pdgd-ops", "--select", "horizon=100"],
    ):
        code, _, err = pdgd("report", folder, "--out", "mine.html", "--force", *words)
        assert (code, err) == (0, "")
        page = Page((tmp_path / "mine.html").read_text())
        assert [cell["label"] for cell in page.data["cells"]] == ["pdgd-ops", "uniform"]


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "results"
    with Store.create(path, {"name": "made up"}) as store:
        store.save_results(results(instance=("a", "b"), learner=("pdgd-ops", "uniform")))
    return path


@pytest.mark.parametrize(
    ("words", "panels"),
    [([], 2), (["--facet", "instance"], 2), (["--facet", "none"], 1), (["--figure", "solver"], 2)],
)
def test_instances_are_drawn_in_panels(pdgd, instances, monkeypatch, words, panels):
    drawn = []
    monkeypatch.setattr("pdgd_jax.plots.save", lambda axes, *_, **__: drawn.append(axes))
    assert pdgd("plot", instances, *words)[0] == 0
    assert np.size(np.asarray(drawn[0], object)) == panels


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
        (["plot", "DIR", "--figure", "policy", "--log"], "the figure policy has no log"),
        (["plot", "DIR", "--figure", "solver", "--facet", "instance"], "solver has no panels"),
        (["plot", "DIR", "--facet", "colour"], "made by one of instance, learner, rates"),
        (["plot", "DIR", "--label", "pdgd-ops"], "--label pdgd-ops: write NAME=WORDS"),
        (["plot", "DIR", "--select", "learner=uniform,me"], "learner is one of pdgd-ops, uniform"),
        (["plot", "DIR", "--select", "learner=unifrom"], "(did you mean 'uniform'?)"),
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


@pytest.mark.parametrize(
    ("words", "file"),
    [(["plot", "--format", "svg"], "regret.svg"), (["report", "--out", "page.html"], "page.html")],
)
def test_a_file_is_replaced_only_by_force(pdgd, folder, tmp_path, words, file):
    """As `pdgd run` does."""
    (tmp_path / file).write_text("precious")
    command, *rest = words
    code, out, err = pdgd(command, folder, *rest)
    assert (code, out) == (2, "")
    assert f"{file} exists already; choose another name, remove it, or say --force" in err
    assert (tmp_path / file).read_text() == "precious"
    assert pdgd(command, folder, *rest, "--force")[0] == 0
    assert (tmp_path / file).read_text() != "precious"


def test_every_figure_is_named_in_the_help():
    (option,) = [p for p in get_command(app).commands["plot"].params if p.name == "figure"]
    shown = with_names(option.help)
    assert all(name in re.split(r" of |, | or |\.", shown) for name in FIGURES)


def test_instances_with_fewer_constraints_are_padded():
    data = results(instance=("two", "one"), constraints=2)
    for name in ("violations", "positive_violation", "multipliers"):
        data[name][1, ..., 1] = np.nan
    two, one = Page(report_of(data)).data["cells"]
    assert (len(two["bands"]["multipliers"]), len(one["bands"]["multipliers"])) == (2, 1)
    assert one["bands"]["positive_violation"] != two["bands"]["positive_violation"]
    data["positive_violation"][1] = np.nan  # of runs that are not finished
    assert "positive_violation" not in Page(report_of(data)).data["cells"][1]["bands"]


def test_a_verdict_stands_beside_the_numbers_of_a_run_that_has_it():
    """Vacuous runs have the larger share; and every reason is told with its runs."""
    one = _Judged(1.0, 2.0, 9.0, 0.5, holds=1, runs=2, reasons={"chance": 1})
    other = _Judged(0.9, 1.0, 0.5, 0.9, vacuous=3, runs=5, reasons={"luck": 2})
    both = _together([one, other])
    assert (both.bound, both.trivial, both.applied) == (2.0, 9.0, 4)
    assert both.reason == "chance (1), luck (2)"
    failing = _Judged(3.0, 2.5, 9.0, 0.1, fails=1, runs=1)
    assert _together([one, other, failing]).bound == 2.5


def test_bounds_of_rho_are_not_told_as_its_value():
    data = results()
    instance = str(data["instance"][0].values)
    data["rho"][:], data["rho_upper"] = -2.0, data["rho"] * 0 + 0.25
    assert _rho(data, instance) == "between -2 and 0.25"
    data["rho_upper"] = data["rho"]
    assert _rho(data, instance) == "-2"
