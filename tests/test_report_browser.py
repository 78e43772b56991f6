"""The report in a real browser: Debian's `chromium`, driven by Playwright."""

import shutil

import numpy as np
import pytest

from pdgd_jax.report import write_report
from tests.synthetic import results

CHROMIUM = shutil.which("chromium")
HOSTILE = ("<script>alert(1)</script>", "</script><!-- \"double\" 'single' ünïcødé")
LEARNERS = ("pdgd-ops", "<img src=x onerror=alert(2)> <a href='javascript:alert(3)'>link</a>")
# Nothing that a test asserts: only when to give up on a machine that is busy with other things.
PATIENCE = 60_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


@pytest.fixture(scope="module")
def data():
    return results(
        learner=("pdgd-ops", "uniform"), horizon=(100, 1000), checkpoints=10, unconverged=2
    )


@pytest.fixture(scope="module")
def reports(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write_report(data, folder / "usual.html")
    hostile = results(instance=HOSTILE, learner=LEARNERS)
    write_report(hostile, folder / "hostile.html")
    return folder


@pytest.fixture(scope="module")
def browser():
    words = (
        "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --disable-dev-shm-usage"
    )
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, args=words.split(), timeout=PATIENCE
        )
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser, reports):
    """Open a report; whatever it asks for, complains about or pops up fails the test."""
    contexts = []

    def open_(name, width=1280, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 844}, color_scheme=scheme, offline=True
        )
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        surprises = []
        page.on("console", lambda message: surprises.append(message.text))
        page.on("pageerror", lambda error: surprises.append(str(error)))
        page.on("dialog", lambda dialog: (surprises.append(dialog.message), dialog.dismiss()))
        address = (reports / f"{name}.html").as_uri()
        page.on("request", lambda ask: ask.url != address and surprises.append(ask.url))
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        contexts.append((context, surprises))
        return page

    yield open_
    for context, surprises in contexts:
        context.close()
        assert surprises == []


def expect_lines(page, figure, count):
    """So many medians and bands are drawn in a figure, now or in a moment."""
    traces = page.locator(f'figure[data-name="{figure}"] .scatterlayer .trace')
    playwright.expect(traces).to_have_count(count, timeout=PATIENCE)


def expect_legend(page, figure, names):
    """The legend of a figure reads so, now or in a moment."""
    words = page.locator(f'figure[data-name="{figure}"] .legendtext')
    playwright.expect(words).to_have_text(names, timeout=PATIENCE)


def column(page, table, heading):
    """The numbers of a column as they are shown."""
    names = page.locator(f"{table} thead").first.locator("th").all_inner_texts()
    place = [name.split("\xa0")[0].strip() for name in names].index(heading) + 1
    cells = page.locator(f"{table} tbody").first.locator(f"td:nth-child({place})")
    return [float(cell.get_attribute("data-value")) for cell in cells.all()]


def test_it_opens_offline_with_every_figure(visit, data):
    page = visit("usual")
    assert page.locator("h1").inner_text() == "made up"
    assert "did not converge" in page.locator(".alarm").inner_text()
    drawn = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#plots figure')].map(f =>"
        " [f.dataset.name, f.querySelectorAll('.scatterlayer .trace').length]))"
    )
    # Two learners, each a line and a band; uniform projects nothing; two constraints.
    assert drawn == {
        "regret": 4,
        "violation": 4,
        "positive_violation": 4,
        "multipliers": 8,
        "reward": 5,
        "radius": 4,
        "iterations": 2,
        "residual": 2,
        "horizons": 4,
    }
    shown = page.evaluate(
        "document.querySelector('figure[data-name=regret] > div').data.map(t => [...t.y])"
    )
    end = data.regret.isel(learner=1, horizon=1, checkpoint=-1).median().item()
    assert shown[-1][-1] == pytest.approx(end, rel=1e-4)


def test_what_is_not_drawn_is_named(visit):
    page = visit("usual")
    note = page.locator('figure[data-name="iterations"] p')
    assert note.inner_text() == "Zero or unknown throughout, so not drawn: uniform."
    assert page.locator('figure[data-name="regret"] p').count() == 0
    page.select_option("#choices select[aria-label=horizon]", label="all")
    playwright.expect(note).to_have_count(1)
    playwright.expect(note).to_contain_text("uniform, T = 100; uniform, T = 1,000.")


def test_a_click_in_the_legend_hides_a_line_with_its_band(visit):
    page = visit("usual")
    legend = page.locator('figure[data-name="regret"] .legendtoggle')
    expect_lines(page, "regret", 4)
    legend.first.click()
    expect_lines(page, "regret", 2)
    expect_lines(page, "violation", 4)
    legend.first.click()
    expect_lines(page, "regret", 4)


def test_another_horizon_and_logarithms_can_be_chosen(visit):
    page = visit("usual")
    end = "document.querySelector('figure[data-name=regret] > div').data.at(-1).x.at(-1)"
    assert page.evaluate(end) == 1000
    page.select_option("#choices select[aria-label=horizon]", label="T = 100")
    assert page.evaluate(end) == 100
    expect_legend(page, "regret", ["pdgd-ops", "uniform"])
    page.select_option("#choices select[aria-label=horizon]", label="all")
    expect_lines(page, "regret", 8)
    page.check("#logarithmic")
    kind = "document.querySelector('figure[data-name=regret] > div')._fullLayout.yaxis.type"
    assert page.evaluate(kind) == "log"


def test_tables_sort(visit):
    page = visit("usual")
    before = column(page, "#results", "regret")
    heading = page.locator("#results th button", has_text="regret")
    heading.click()
    assert column(page, "#results", "regret") == sorted(before) != before
    heading.click()
    assert column(page, "#results", "regret") == sorted(before, reverse=True)
    page.locator("#results th button", has_text="learner").click()
    first = page.locator("#results tbody td:nth-child(1)").all_inner_texts()
    assert first == sorted(first)


def test_two_cells_are_compared(visit, data):
    page = visit("usual")
    page.select_option("#pair select[aria-label=A]", label="uniform, T = 100")
    page.select_option("#pair select[aria-label=B]", label="pdgd-ops, T = 1,000")
    ends = data.regret.isel(checkpoint=-1).median("seed").squeeze()
    a, b = (
        float(ends.sel(learner=name, horizon=T))
        for name, T in (("uniform", 100), ("pdgd-ops", 1000))
    )
    cells = page.locator('#difference tr[data-measure="regret"] td')
    shown = [text.split("\n")[0] for text in cells.all_inner_texts()]
    assert shown[0] == "regret"
    np.testing.assert_allclose([float(text) for text in shown[1:]], [a, b, b - a], rtol=1e-3)
    expect_legend(page, "pair-regret", ["A: uniform, T = 100", "B: pdgd-ops, T = 1,000"])
    # However small, a difference is not written as 0.
    residual = page.locator('#difference tr[data-measure="largest residual"] td').all_inner_texts()
    gap = data.residual.isel(checkpoint=-1).median("seed").squeeze()
    gap = float(gap.sel(learner="pdgd-ops", horizon=1000) - gap.sel(learner="uniform", horizon=100))
    assert 0 < gap < 1e-6
    assert float(residual[-1]) == pytest.approx(gap, rel=1e-3)


@pytest.mark.parametrize("name", ["usual", "hostile"])
def test_it_reads_well_on_a_phone(visit, name):
    page = visit(name, width=390, scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    # Only tables may be wider, each inside a box of its own that scrolls.
    wide = page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre, svg')"
        " && e.getBoundingClientRect().right > 390).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []
    assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16
    # The names of the lines do not cover the lines.
    legend, plot = (
        page.locator(f'figure[data-name="regret"] {what}').first.bounding_box()
        for what in (".legend .bg", ".scatterlayer")
    )
    assert legend["y"] + legend["height"] <= plot["y"] + 1
    ink, paper = page.evaluate(
        "(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))"
    )
    assert (ink, paper) == ("rgb(232, 232, 232)", "rgb(22, 24, 27)")  # dark was asked for


def test_hostile_names_are_shown_letter_by_letter(visit):
    page = visit("hostile")
    assert page.locator("script").count() == 3
    assert page.locator("img").count() == 0
    options = page.locator("#choices select option").all_text_contents()
    assert options == [*HOSTILE, "all"]
    for figure in ("regret", "radius"):
        expect_legend(page, figure, list(LEARNERS))
    cells = page.locator("#results tbody td:nth-child(1)").all_text_contents()
    assert cells == [HOSTILE[0]] * 2 + [HOSTILE[1]] * 2
    page.select_option("#choices select", label="all")
    every = [f"{instance}, {learner}" for instance in HOSTILE for learner in LEARNERS]
    expect_legend(page, "regret", every)
