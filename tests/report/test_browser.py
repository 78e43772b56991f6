"""The report in a real browser: Debian's `chromium`, driven by Playwright."""

import re
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
    write_report(_crowd(), folder / "crowd.html")
    return folder


def _crowd():
    """Fourteen lines of each of two learners, one of whom loses; the optimum moves."""
    deltas = tuple(np.linspace(0.01, 0.5, 14))
    crowd = results(learner=("pdgd-ops", "mine"), delta=deltas, checkpoints=10, seeds=2)
    crowd["regret"].loc[{"learner": "mine"}] *= -1
    crowd["regret"].loc[{"learner": "mine", "delta": deltas[0]}] = 1.8e-11
    crowd["opt"] = crowd.opt.copy(data=np.broadcast_to(np.linspace(1.5, 1, 10), crowd.opt.shape))
    return crowd


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
        "tradeoff": 2,
        "horizons": 4,
    }
    page.locator("#inner summary").click()  # the solver is folded away
    expect_lines(page, "iterations", 2)
    expect_lines(page, "residual", 2)
    shown = page.evaluate(
        "document.querySelector('figure[data-name=regret] > div').data.map(t => [...t.y])"
    )
    end = data.regret.isel(learner=1, horizon=1, checkpoint=-1).median().item()
    assert shown[-1][-1] == pytest.approx(end, rel=1e-4)


def test_what_is_not_drawn_is_named(visit):
    page = visit("usual")
    page.locator("#inner summary").click()
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


def test_nothing_can_be_uploaded(visit):
    page = visit("usual")
    buttons = page.locator(".modebar-btn")
    names = {button.get_attribute("data-title") for button in buttons.all()}
    assert "Zoom in" in names
    assert not [name for name in names if re.search("cloud|share|chart|edit", name or "", re.I)]
    context = page.evaluate("document.querySelector('figure[data-name=regret] > div')._context")
    assert (context["showSendToCloud"], context["plotlyServerURL"]) == (False, "")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_tool_bar_hides_nothing(visit, width, scheme):
    page = visit("crowd", width=width, scheme=scheme)
    for name in ("regret", "tradeoff"):
        figure = page.locator(f'figure[data-name="{name}"]')
        figure.scroll_into_view_if_needed()
        figure.hover()
        # The legend is measured once it is drawn, and then gets its room: now or in a moment.
        page.wait_for_function(
            "f => f.querySelector('.modebar').getBoundingClientRect().bottom"
            " <= f.querySelector('.legend .bg').getBoundingClientRect().top",
            arg=figure.element_handle(),
        )
        group = figure.locator(".modebar-group").first
        paint = group.evaluate("e => getComputedStyle(e).backgroundColor")
        assert paint in ("rgba(0, 0, 0, 0)", "transparent")


def test_twenty_eight_lines_can_be_told_apart(visit):
    page = visit("crowd")
    looks = page.evaluate(
        "document.querySelector('figure[data-name=regret] > div').data"
        ".filter(t => t.showlegend).map(t => t.line.color + t.line.dash)"
    )
    assert len(set(looks)) == len(looks) == 28


def test_logarithms_of_what_is_not_positive(visit):
    page = visit("crowd")
    page.check("#logarithmic")
    note = page.locator('figure[data-name="regret"] p.bent')
    playwright.expect(note).to_have_text(
        "Not all values are positive: the axis is linear in the grey.", timeout=PATIENCE
    )
    drawn = page.evaluate(
        "(f => [f._fullLayout.yaxis.ticktext, f.data.map(t => [[...t.y], [...t.customdata]])])"
        "(document.querySelector('figure[data-name=regret] > div'))"
    )
    ticks, curves = drawn
    assert ticks == [*("-1000", "-100", "-10", "-1"), "0", *("1", "10", "100", "1000")]
    for bent, true in curves:  # in order, on the same side of 0, and a tenfold is one step
        bent, true = np.array(bent, float), np.array(true, float)
        assert (np.sign(bent) == np.sign(true)).all()
        far = np.abs(true) >= 1
        np.testing.assert_allclose(np.abs(bent[far]), 1 + np.log10(np.abs(true[far])), atol=1e-9)
    assert page.locator('figure[data-name="violation"] p.bent').count() == 0
    moving = page.locator('figure[data-name="reward"] p.moving')
    assert "OPT is the optimum of the episodes so far" in moving.inner_text()


def test_a_learner_keeps_its_colour(visit):
    page = visit("usual")

    def colours(figure):
        return page.evaluate(
            f"Object.fromEntries(document.querySelector('figure[data-name={figure}] > div').data"
            ".filter(t => t.showlegend).map(t => [t.name, t.line.color]))"
        )

    both = colours("regret")
    assert both["pdgd-ops"] == "#0072B2"
    assert colours("violation") == both
    page.select_option("#pair select[aria-label=A]", label="uniform, T = 100")
    page.select_option("#pair select[aria-label=B]", label="pdgd-ops, T = 1,000")
    pair = colours("pair-regret")
    assert pair["A: uniform, T = 100"] == both["uniform"]
    assert pair["B: pdgd-ops, T = 1,000"] == both["pdgd-ops"]


@pytest.mark.parametrize("width", [1280, 390])
def test_names_stay_where_they_are_when_a_table_scrolls(visit, width):
    page = visit("usual", width=width)
    box = page.locator("#results .scroll").first
    box.evaluate("e => { e.style.width = '360px'; window.dispatchEvent(new Event('resize')); }")
    name = box.locator("tbody td").first
    before = name.bounding_box()["x"]
    box.evaluate("e => { e.scrollLeft = 250; }")
    assert box.evaluate("e => e.scrollLeft") == 250
    assert name.bounding_box()["x"] == pytest.approx(before, abs=1)  # a border
    number = box.locator("tbody td.number").first
    assert number.bounding_box()["x"] < before + 250


def test_tables_sort(visit):
    page = visit("usual")
    before = column(page, "#results", "regret")
    heading = page.locator("#results th button", has_text="regret")
    heading.click()
    assert column(page, "#results", "regret") == sorted(before) != before
    heading.click()
    assert column(page, "#results", "regret") == sorted(before, reverse=True)
    page.locator("#results th button", has_text="learner").first.click()
    table = page.locator("#results tbody").first
    first = table.locator("td:nth-child(1)").all_inner_texts()
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
    np.testing.assert_allclose([float(text) for text in shown[1:4]], [a, b, b - a], rtol=1e-3)
    seeds = data.regret.isel(checkpoint=-1).squeeze()
    one, two = (
        seeds.sel(learner=name, horizon=T).values
        for name, T in (("uniform", 100), ("pdgd-ops", 1000))
    )
    gap, band, count = cells.all_inner_texts()[4].split("\n")
    assert float(gap) == pytest.approx(np.median(two - one), rel=1e-3)
    ends = [float(word) for word in band.split(" to ")]
    np.testing.assert_allclose(ends, np.quantile(two - one, (0.1, 0.9)), rtol=1e-3)
    assert count == "B larger in 5, smaller in 0 of 5"
    expect_legend(page, "pair-regret", ["A: uniform, T = 100", "B: pdgd-ops, T = 1,000"])
    # However small, a difference is not written as 0.
    residual = page.locator('#difference tr[data-measure="largest residual"] td').all_inner_texts()
    gap = data.residual.isel(checkpoint=-1).median("seed").squeeze()
    gap = float(gap.sel(learner="pdgd-ops", horizon=1000) - gap.sel(learner="uniform", horizon=100))
    assert 0 < gap < 1e-6
    assert float(residual[3]) == pytest.approx(gap, rel=1e-3)


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
    cells = page.locator("#results tbody").first.locator("td:nth-child(1)").all_text_contents()
    assert cells == [HOSTILE[0]] * 2 + [HOSTILE[1]] * 2
    page.select_option("#choices select", label="all")
    every = [f"{instance}, {learner}" for instance in HOSTILE for learner in LEARNERS]
    expect_legend(page, "regret", every)
