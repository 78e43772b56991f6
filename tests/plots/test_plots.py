import sys
from pathlib import Path

import jax
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from pdgd_jax import CMDP, dataset_of, evaluate, learners, make, plots, run
from pdgd_jax.plots._style import COLOURS, DASHES
from pdgd_jax.results import band_of, cells_of, last_tenth, shares_of, slope_of
from pdgd_jax.results._styles import NUM_COLOURS, NUM_DASHES
from tests.conftest import random_mdp, random_policy
from tests.synthetic import results

BASELINES = Path(__file__).parents[1] / "baselines"
LEARNERS = ("pdgd-ops", "uniform", "uc-o-gdps")


@pytest.fixture(autouse=True)
def _agg():
    """No window, no style of the machine, and no figure left behind."""
    with mpl.rc_context():
        mpl.rcdefaults()
        plt.switch_backend("Agg")
        yield
        plt.close("all")


def lines_of(axes):
    """The curves by label, without guides and axes."""
    return {line.get_label(): line for line in axes.get_lines() if line.get_label()[0] != "_"}


def legend_of(axes):
    legends = [axes.get_legend(), *axes.figure.legends]
    return [text.get_text() for legend in legends if legend for text in legend.get_texts()]


def vacuous(data, name):
    """The results, with a guarantee whose bound no run could have broken."""
    status = data["certificate_status"]
    applies = (status.certificate == name) & (status != "does not apply")
    return data.assign(certificate_status=status.where(~applies, "vacuous"))


# What is drawn.


@pytest.mark.parametrize("name", ["regret", "violation", "radius"])
def test_a_curve_is_the_median_over_seeds_and_the_band_its_quantiles(name):
    data = results(seeds=7)
    axes = plots.FIGURES[name](data, quantiles=(0.25, 0.75))
    values = data[name].squeeze().values
    line = axes.get_lines()[-1]
    np.testing.assert_array_equal(line.get_xdata(), data.episode.values[0])
    np.testing.assert_allclose(line.get_ydata(), np.median(values, 0))
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    for t, low, high in zip(
        data.episode.values[0], *np.quantile(values, (0.25, 0.75), axis=0), strict=True
    ):
        there = corners[corners[:, 0] == t, 1]
        assert there.min() == pytest.approx(low)
        assert there.max() == pytest.approx(high)


def test_positive_violation_is_that_of_the_worst_constraint():
    data = results(constraints=3)
    axes = plots.positive_violation(data)
    worst = data.positive_violation.squeeze().max("constraint").median("seed").values
    np.testing.assert_allclose(axes.get_lines()[-1].get_ydata(), worst)


def test_alpha_regret_is_another_curve():
    data = results()
    (line,) = [n for n in plots.regret(data, alpha=True).get_lines() if len(n.get_xdata()) > 2]
    np.testing.assert_allclose(line.get_ydata(), data.alpha_regret.squeeze().median("seed").values)


def test_multipliers_have_a_curve_for_each_constraint():
    data = results(constraints=2)
    curves = lines_of(plots.multipliers(data))
    assert list(curves) == [r"$\lambda_{1}$", r"$\lambda_{2}$"]
    for i, line in enumerate(curves.values()):
        expected = data.multipliers.squeeze().isel(constraint=i).median("seed").values
        np.testing.assert_allclose(line.get_ydata(), expected)
    one, two = curves.values()
    assert one.get_linestyle() != two.get_linestyle()
    assert one.get_color() == two.get_color()


def test_a_learner_without_multipliers_is_named_all_the_same():
    data = results(learner=("pdgd-ops", "uniform"), constraints=1)
    data["multipliers"].loc[{"learner": "uniform"}] = 0
    axes = plots.multipliers(data)
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert named == ["pdgd-ops", "uniform: none"]
    assert [line.get_label() for line in axes.get_lines() if len(line.get_xdata())] == ["pdgd-ops"]


def test_the_average_reward_is_drawn_with_one_optimum():
    data = results(learner=("pdgd-ops", "uc-o-gdps"))
    curves = lines_of(plots.reward(data))
    assert list(curves) == ["pdgd-ops", "uc-o-gdps", "OPT"]
    expected = (data.reward / data.episode).isel(learner=1).squeeze().median("seed").values
    np.testing.assert_allclose(curves["uc-o-gdps"].get_ydata(), expected)
    np.testing.assert_allclose(curves["OPT"].get_ydata(), 1.5)


def test_labels_name_what_differs_and_nothing_else():
    assert legend_of(plots.regret(results())) == []
    data = results(learner=("pdgd-ops", "uniform"), rates=("tuned", "theory"), horizon=(50, 2000))
    assert legend_of(plots.regret(data)) == [
        "pdgd-ops, tuned, T = 50",
        "pdgd-ops, tuned, T = 2,000",
        "pdgd-ops, theory, T = 50",
        "pdgd-ops, theory, T = 2,000",
        # It has no rates: it was played once, and is drawn once.
        "uniform, T = 50",
        "uniform, T = 2,000",
    ]
    # Results that do not say which settings were used are told apart by all of them.
    old = data.drop_vars("uses_setting").isel(horizon=0)
    assert [cell.label for cell in cells_of(old)][2:] == ["uniform, tuned", "uniform, theory"]
    one = data.isel(learner=1, horizon=0)
    assert [cell.label for cell in cells_of(one)] == [""]
    data = results(delta=(0.05, 0.01), confidence_scale=(1.0, 0.3), instance=("a", "b"))
    labels = [cell.label for cell in cells_of(data)]
    assert labels[0] == "a, δ = 0.05, radii scaled by 1"
    assert len(labels) == len(set(labels)) == 8


def test_curves_differ_in_colour_and_in_dash():
    curves = lines_of(plots.regret(results(learner=LEARNERS, rates=("tuned", "theory"))))
    looks = [(line.get_color(), line.get_linestyle()) for line in curves.values()]
    assert len({colour for colour, _ in looks}) == len(looks) == 5
    assert len({dash for _, dash in looks}) == 4


@pytest.mark.parametrize("learners", [("pdgd-ops",), ("mine", "yours"), ("pdgd-ops", "uniform")])
@pytest.mark.parametrize("count", [8, 14])
def test_as_many_curves_as_are_allowed_can_be_told_apart(learners, count):
    deltas = tuple(np.linspace(0.01, 0.5, 28 // len(learners) if count == 14 else count))
    axes = plots.regret(results(learner=learners, delta=deltas, seeds=1, checkpoints=2))
    looks = [(line.get_color(), line.get_linestyle()) for line in lines_of(axes).values()]
    assert len(looks) >= 8
    assert len(set(looks)) == len(looks)
    data = results(learner=learners, instance=("a", "b", "c"), horizon=(100, 1000), seeds=1)
    marks = plots.horizons(data).containers
    looks = [(mark[0].get_color(), mark[0].get_marker()) for mark in marks]
    assert len(set(looks)) == len(looks) == 6 * len(learners)


def test_a_learner_keeps_its_colour_in_every_figure():
    names = ("mine", "uniform", "pdgd-ops", "yours")
    data = results(learner=names, rates=("tuned", "theory"), instance=("a", "b"), constraints=1)

    def colours(axes):
        found = {}
        for label, line in lines_of(axes).items():
            found.setdefault(label.removeprefix("a, ").removeprefix("b, "), line.get_color())
        return found

    whole = colours(plots.regret(data))
    assert whole["pdgd-ops, tuned"] == COLOURS[0]
    assert whole["uniform"] == COLOURS[6]
    assert len(set(whole.values())) == 7  # every one has its own
    for part in (data.sel(instance=["b"]), data.sel(learner=["yours", "pdgd-ops"])):
        for draw in (plots.violation, plots.multipliers, lambda d: plots.solver(d)[0]):
            for label, colour in colours(draw(part)).items():
                assert whole[label] == colour
    alone = plots.regret(data.sel(learner=["pdgd-ops"], rates=["theory"], instance=["b"]))
    assert alone.get_lines()[-1].get_color() == whole["pdgd-ops, theory"]


def test_own_dimensions_are_labelled_with_four_digits():
    data = results(delta=(0.05, 0.1)).squeeze("learner").drop_vars("learner")
    data = data.rename(delta="eta")
    data = data.assign_coords(eta=[0.9682458365518543, 0.001141088661469096])
    assert [cell.label for cell in cells_of(data)] == ["eta 0.9682", "eta 0.001141"]
    data = data.assign_coords(eta=[0.968245, 0.968247])  # and more where four are not enough
    assert [cell.label for cell in cells_of(data)] == ["eta 0.968245", "eta 0.968247"]


def test_sums_of_rounding_are_zero():
    data = results(learner=("pdgd-ops", "best-feasible"))
    data["regret"].loc[{"learner": "best-feasible"}] = 5.457e-12
    data["violations"].loc[{"learner": "best-feasible"}] = 1.8e-11
    exact = lines_of(plots.regret(data))["best-feasible"]
    assert (exact.get_ydata() == 0).all()
    assert (last_tenth(cells_of(data)[1].data) == 0).all()
    data["regret"].loc[{"learner": "best-feasible"}] = 1e-5  # that is 1e-8 an episode, and not 0
    assert (lines_of(plots.regret(data))["best-feasible"].get_ydata() == 1e-5).all()


def test_the_last_tenth_is_that_of_the_constraint_violated_most_there():
    data = results(constraints=2, checkpoints=20)
    early, late = np.zeros(20), np.zeros(20)
    early[:] = 50.0  # violated at the start, and never again
    late[-2:] = 3.0, 7.0  # 950 and 1,000 episodes
    data["violations"][..., 0], data["violations"][..., 1] = early, late
    np.testing.assert_allclose(last_tenth(cells_of(data)[0].data), 0.07)


def test_the_colours_can_be_told_apart_without_one_kind_of_cone():
    # Brettel's projections need tables; what survives every deficiency is luminance and the
    # yellow-blue axis: no two colours may agree in both.
    colours = np.array([to_rgb(colour) for colour in COLOURS])
    luminance = colours @ [0.2126, 0.7152, 0.0722]
    blueness = colours[:, 2] - colours[:, :2].mean(1)
    apart = np.hypot(luminance[:, None] - luminance, blueness[:, None] - blueness)
    assert (apart + 10 * np.eye(len(colours))).min() > 0.08


def test_names_are_shown_letter_by_letter():
    names = ("_hidden", "costs $5$", r"$\nonsense{$")
    axes = plots.regret(results(learner=names))
    assert [label.strip().replace(r"\$", "$") for label in legend_of(axes)] == list(names)
    FigureCanvasAgg(axes.figure).draw()  # a dollar that opens mathematics would be an error here


def test_runs_that_are_not_finished_are_left_out():
    data = results(seeds=4)
    data["regret"][..., 3, :] = np.nan
    expected = data.regret.squeeze().isel(seed=slice(3)).median("seed").values
    (line,) = [n for n in plots.regret(data).get_lines() if len(n.get_xdata()) > 2]
    np.testing.assert_allclose(line.get_ydata(), expected)


def test_quantiles_are_those_of_numpy():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(9, 30))
    values[rng.uniform(size=values.shape) < 0.3] = np.nan
    values[:, 0] = 1.0
    values[:, 1] = np.nan
    data = xarray.DataArray(values, dims=("seed", "checkpoint"))
    band = band_of(data, xarray.DataArray(np.arange(30), dims="checkpoint"), (0.1, 0.8))
    found = np.stack([band.low, band.centre, band.high])
    expected = np.nanquantile(np.delete(values, 1, 1), (0.1, 0.5, 0.8), axis=0)
    np.testing.assert_allclose(np.delete(found, 1, 1), expected)
    assert np.isnan(found[:, 1]).all()


def test_guides_end_where_the_highest_curve_does():
    data = results(learner=("pdgd-ops", "uc-o-gdps"))
    curves = lines_of(plots.regret(data, guides=True))
    end = curves["uc-o-gdps"].get_ydata()[-1]
    for power, fraction in ((0.5, "1/2"), (0.75, "3/4")):
        line = curves[rf"$\propto t^{{{fraction}}}$"]
        np.testing.assert_allclose(
            line.get_ydata(), end * (line.get_xdata() / 1000) ** power, rtol=1e-12
        )


def test_guides_are_not_those_of_a_policy_that_does_not_learn():
    data = results(learner=("pdgd-ops", "uniform"))
    data["regret"].loc[{"learner": "uniform"}] *= 50
    guide = lines_of(plots.regret(data, guides=True))[r"$\propto t^{1/2}$"]
    end = data.regret.sel(learner="pdgd-ops").squeeze().median("seed").values[-1]
    assert guide.get_ydata()[-1] == pytest.approx(end)
    longer = results(learner=("pdgd-ops", "uniform"), horizon=(100, 1000))
    longer["regret"].loc[{"learner": "uniform"}] *= 50
    guide = lines_of(plots.horizons(longer, quantities=["regret"], guides=True))
    expected = longer.regret.sel(learner="pdgd-ops", horizon=1000).squeeze().median("seed")
    assert guide[r"$\propto T^{1/2}$"].get_ydata()[-1] == pytest.approx(expected.values[-1])
    fixed = plots.regret(results(learner=("uniform",)), guides=True)
    assert legend_of(fixed) == []  # nobody learns


def test_logarithms_of_what_is_not_positive():
    data = results(learner=("pdgd-ops", "best-feasible"))
    axes = plots.regret(data, log=True, guides=True)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "linear" not in axes.get_xlabel()
    data["regret"].loc[{"learner": "best-feasible"}] = 1.8e-11  # rounding stretches no axis
    data["regret"][..., :3, :] -= 20.0
    axes = plots.regret(data, log=True)
    assert axes.get_yscale() == "symlog"
    assert "vertical axis: linear in the grey" in axes.get_xlabel()
    drawn = axes.transData.transform(lines_of(axes)["best-feasible"].get_xydata())[:, 1]
    assert np.ptp(drawn) < 1e-6  # a level line, inside
    assert axes.bbox.y0 < drawn[0] < axes.bbox.y1
    shown = axes.get_yticks()
    assert np.abs(shown[shown != 0]).min() >= 0.1
    FigureCanvasAgg(axes.figure).draw()
    assert plots.radius(results(), log=True).get_yscale() == "log"


def test_bounds_stand_at_the_end_and_keep_the_curves_in_sight():
    data = results()
    axes = plots.violation(data, bounds=True)
    bounds = {"violation, by the last multiplier": 9 * 1000**0.5, "violation, Theorem 6": 106697}
    marks = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.get_lines()[2:4]]
    np.testing.assert_allclose(marks, [(1000, value) for value in bounds.values()], rtol=1e-5)
    assert legend_of(axes) == [f"bound at T: {name}" for name in bounds]
    # The curve takes a good part of the picture, though a bound is 500 times as high.
    highest = axes.transData.transform((0, data.violation.max()))[1]
    zero = axes.transData.transform((0, 0))[1]
    assert (highest - zero) / axes.bbox.height > 0.25


def test_bounds_that_do_not_apply_are_not_drawn():
    axes = plots.regret(results(learner=("uniform",)), bounds=True)
    assert legend_of(axes) == []
    assert len(axes.get_lines()) == 2  # zero, and the curve
    assert [text.get_text() for text in axes.texts] == ["no bound applies"]
    assert [text.get_text() for text in plots.regret(results(), bounds=True).texts] == []


def test_bounds_that_cannot_be_broken_are_called_vacuous():
    data = vacuous(results(), "violation, Theorem 6")
    assert legend_of(plots.violation(data, bounds=True)) == [
        "bound at T: violation, by the last multiplier",
        "bound at T: violation, Theorem 6 (vacuous)",
    ]


def test_iterations_are_those_since_the_last_checkpoint():
    data = results(checkpoints=4, horizon=(400,))
    data["iterations"][:] = np.array([300, 500, 900, 1000])
    iterations, residual = plots.solver(data)
    np.testing.assert_allclose(iterations.get_lines()[0].get_ydata(), [3, 2, 4, 1])
    np.testing.assert_allclose(
        residual.get_lines()[0].get_ydata(), data.residual.squeeze().isel(seed=0).values
    )


def test_unconverged_projections_are_announced():
    plain, _ = plots.solver(results())
    assert plain.get_title() == ""
    warned, _ = plots.solver(results(unconverged=3, learner=("pdgd-ops", "uniform")))
    assert warned.get_title() == "WARNING: 15 projections did not converge"
    assert legend_of(warned) == ["pdgd-ops"]  # uniform projects nothing, and is not drawn
    with pytest.raises(ValueError, match="no learner of these results projects anything"):
        plots.solver(results(learner=("uniform",)))


def test_horizons_show_where_runs_ended_and_the_slopes():
    data = results(horizon=(100, 1000, 10000), learner=("pdgd-ops", "uniform"))
    axes = plots.horizons(data)
    assert legend_of(axes) == [
        "pdgd-ops, regret, slope 0.50",
        "pdgd-ops, violation, slope 0.75",
        "uniform, regret, slope 0.50",
        "uniform, violation, slope 0.75",
    ]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    marks = axes.containers[0].lines[0]
    np.testing.assert_array_equal(marks.get_xdata(), [100, 1000, 10000])
    np.testing.assert_allclose(marks.get_ydata(), 2 * np.sqrt([100, 1000, 10000]))


def test_horizons_need_two_and_say_what_they_cannot_show():
    with pytest.raises(ValueError, match="at least two horizons"):
        plots.horizons(results())
    data = results(horizon=(100, 1000, 10000))
    data["regret"][..., 0, :, :] = -1.0
    axes = plots.horizons(data, quantities=["regret"])
    assert legend_of(axes) == ["slope 0.50 (1 not positive)"]
    assert np.isnan(slope_of(np.array([1, 10]), np.array([-1.0, 5.0])))


def test_certificates_show_the_share_of_each_bound_that_was_used():
    axes = plots.certificates(results(learner=("pdgd-ops", "uniform")))
    names = [label.get_text() for label in axes.get_yticklabels()]
    marks = {names[round(n.get_ydata()[0])]: n for n in axes.get_lines()[2:]}
    assert marks["multipliers in their box"].get_xdata()[0] == pytest.approx(0.3)
    assert marks["violation, Theorem 6"].get_marker() == "X"
    assert marks["violation, by the last multiplier"].get_marker() == "o"
    assert legend_of(axes) == ["pdgd-ops", "fails"]
    with pytest.raises(ValueError, match="no guarantee of the paper applies"):
        plots.certificates(results(learner=("uniform",)))


def test_certificates_mark_what_is_not_positive_vacuous_or_does_not_apply():
    data = vacuous(results(), "regret, Theorem 6")
    data["certificate_measured"].loc[{"certificate": "violation, by the last multiplier"}] = -4.0
    unfit = data.certificate == "regret, by the largest multiplier"
    data["certificate_status"] = data.certificate_status.where(~unfit, "does not apply")
    axes = plots.certificates(data)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert "regret, by the largest multiplier" not in names
    below = axes.figure.get_supxlabel()
    assert "does not apply to any run: regret, by the largest multiplier" in " ".join(below.split())
    marks = {names[round(n.get_ydata()[0])]: n for n in axes.get_lines()[2:]}
    for name in ("violation, by the last multiplier", "projections converged"):  # below 0; 0 of 0
        assert marks[name].get_marker() == "<"
        place = dict(zip(axes.get_xticks(), axes.get_xticklabels(), strict=True))
        assert place[marks[name].get_xdata()[0]].get_text() == "≤ 0"
    assert marks["regret, Theorem 6"].get_markerfacecolor() == "white"
    assert marks["multipliers in their box"].get_markerfacecolor() != "white"
    assert legend_of(axes) == ["vacuous: cannot fail", "fails"]


def test_regret_is_drawn_against_violation():
    data = results(learner=("pdgd-ops", "uniform"))
    axes = plots.tradeoff(data)
    assert legend_of(axes) == ["pdgd-ops", "uniform"]
    for name, mark in zip(("pdgd-ops", "uniform"), axes.containers, strict=True):
        end = data.sel(learner=name).isel(checkpoint=-1).squeeze()
        x, y = mark[0].get_xydata()[0]
        assert (x, y) == pytest.approx((float(end.violation.median()), float(end.regret.median())))
        (across,), (up,) = (bars.get_segments() for bars in mark[2])
        np.testing.assert_allclose(across[:, 0], np.quantile(end.violation, (0.1, 0.9)))
        np.testing.assert_allclose(up[:, 1], np.quantile(end.regret, (0.1, 0.9)))


def test_every_instance_can_have_a_panel_of_its_own():
    data = results(instance=("a", "$b$", "c"), learner=("pdgd-ops", "uniform"))
    axes = plots.facets(plots.regret, data, guides=True)
    assert [place.get_title() for place in axes] == ["a", r"\$b\$", "c"]
    for number, place in enumerate(axes):
        values = data.regret.isel(instance=number).sel(learner="uniform").squeeze()
        np.testing.assert_allclose(
            lines_of(place)["uniform"].get_ydata(), values.median("seed").values
        )
        assert place.get_legend() is None
    legends = [ax.get_legend() for ax in axes[0].figure.axes if ax.get_legend()]
    (legend,) = [*legends, *axes[0].figure.legends]
    named = [text.get_text() for text in legend.get_texts()]
    assert named[:2] == ["pdgd-ops", "uniform"]
    assert len(named) == 4  # and two guides, once
    assert axes[0].figure.get_supxlabel().startswith("episodes\nmedian of 5 seeds")
    FigureCanvasAgg(axes[0].figure).draw()
    assert len(plots.facets(plots.radius, data, by="learner")) == 2
    with pytest.raises(ValueError, match="one of instance, learner, .*; got 'colour'"):
        plots.facets(plots.regret, data, by="colour")


def test_options_of_a_learner_are_named_in_curves_panels_and_policies():
    options = {"ucpd.V": (10.0, 1e4), "unifying.mirror": ("entropic", "euclidean")}
    data = results(learner=("ucpd", "unifying", "uniform"), options=options)
    assert list(lines_of(plots.regret(data))) == [
        "ucpd, V = 10",
        "ucpd, V = 1e+04",
        "unifying, mirror = entropic",
        "unifying, mirror = euclidean",
        "uniform",
    ]
    drawn = plots.draw_figure("regret", data, facet="ucpd.V").axes
    assert [axes.get_title() for axes in drawn] == ["ucpd.V = 10", "ucpd.V = 10000"]
    assert "ucpd" in lines_of(drawn[1])
    what = plots.draw_figure("policy", data.isel(learner=[0])).what
    assert "ucpd.V 10.0" in what
    assert "mirror" not in what


def test_every_optimum_is_named():
    data = results(instance=("a", "b"), learner=("pdgd-ops", "uniform"))
    data["opt"] = data.opt.copy(data=np.array(data.opt))
    data["opt"][1] = np.linspace(0.5, 0.3, 20)  # an adversary: another optimum after each episode
    curves = lines_of(plots.reward(data))
    optima = {label: line for label, line in curves.items() if "OPT" in label}
    assert list(optima) == ["a, OPT", "b, OPT of the episodes so far"]
    assert len({line.get_linestyle() for line in optima.values()}) == 2


def test_learners_without_multipliers_are_named_once_for_all_instances():
    data = results(instance=("a", "b"), learner=("pdgd-ops", "uniform"), constraints=1)
    data["multipliers"].loc[{"learner": "uniform"}] = 0
    named = legend_of(plots.multipliers(data))
    assert named == ["a, pdgd-ops", "b, pdgd-ops", "uniform: none"]


# Instances.


@pytest.fixture(scope="module")
def world():
    """A grid of two rows, with a hazard on the short way."""
    return make("grid", rows=2, columns=3, hazards=[(0, 1)], horizon=3)


def test_a_policy_divides_the_bar_of_each_state():
    mdp = random_mdp(0, sizes=(1, 3, 2, 1), num_actions=2)
    policy = np.asarray(random_policy(1, mdp.layers))
    axes = plots.policy(mdp, policy)
    colours = {to_rgb(colour): action for action, colour in enumerate(COLOURS)}
    shares = {}
    for bar in axes.patches:
        action = colours.get(to_rgb(bar.get_facecolor()))
        if action is not None:
            middle = bar.get_y() + bar.get_height() / 2
            shares[round(bar.get_x()), round(middle, 3), action] = bar.get_width() / 0.56
    assert len(shares) == 2 * (1 + 3 + 2)
    for state, y in enumerate((1, 0, -1)):
        for action in range(2):
            # A bar that starts in the right half of its state is rounded to the same layer.
            assert shares[1, y, action] == pytest.approx(policy[1, state, action])
    assert legend_of(axes) == ["action 0", "action 1"]


def test_an_occupancy_shades_each_state_by_how_likely_it_is():
    mdp, policy = _graph()
    axes = plots.occupancy(CMDP(mdp, np.zeros((3, 3, 3)), np.zeros((1, 3, 3, 3))), policy)
    (marks,) = [c for c in axes.collections if c.get_array() is not None]
    mass, layer = np.asarray(marks.get_array()), marks.get_offsets()[:, 0]
    for k in range(len(mdp.layers.sizes)):
        assert mass[layer == k].sum() == pytest.approx(1)


def test_a_policy_on_the_grid(world):
    cmdp = world
    policy = cmdp.mdp.policy_from_flat(np.tile([0.0, 0.75, 0.25, 0.0], (6, 1)))
    axes = plots.grid(cmdp, policy, rows=2)
    (shades,) = axes.images
    assert shades.get_array().shape == (2, 3)
    assert shades.get_array().sum() == pytest.approx(3)
    right, down = [c for c in axes.collections if hasattr(c, "U")]
    np.testing.assert_allclose(right.U, 0.45 * 0.75)
    np.testing.assert_allclose(down.V, 0.45 * 0.25)
    (hazard,) = [patch for patch in axes.patches if patch.get_hatch()]
    assert hazard.get_xy() == (0.5, -0.5)
    (star,) = axes.get_lines()
    assert (round(star.get_xdata()[0]), round(star.get_ydata()[0])) == (2, 0)
    # FrozenLake counts its actions otherwise.
    other = plots.grid(cmdp, policy, columns=3, directions="ldru", step=0)
    assert other.images[0].get_array().sum() == pytest.approx(1)


def test_a_policy_may_be_padded_and_must_be_one():
    mdp = random_mdp(0, sizes=(1, 2, 1), num_actions=2)
    padded = np.full((4, 3, 3), np.nan)
    padded[:2, :2, :2] = mdp.layers.uniform_policy()
    words = plots.policy(mdp, padded).get_xlabel()
    assert words == "layer\nwidth of a line: probability of a step, once there"
    for wrong, sentence in (
        (padded[:1], r"\[L, S, A\] = \(2, 2, 2\); got \(1, 3, 3\)"),
        (np.zeros((2, 2, 2)), "layer 0, state 0 sums to 0; it must sum to 1"),
    ):
        with pytest.raises(ValueError, match=sentence):
            plots.occupancy(mdp, wrong)


def test_instances_that_cannot_be_drawn_are_refused_in_a_sentence(unchecked, world):
    mdp = random_mdp(0)
    uniform = mdp.layers.uniform_policy()
    flat = world.layers.uniform_policy()
    for draw, sentence in (
        (lambda: plots.grid(mdp, uniform), "no flat states behind its layers"),
        (lambda: plots.grid(world, flat), "6 states do not form a square grid"),
        (lambda: plots.grid(world, flat, rows=5, columns=5), "5 x 5 cells does not fit the 6"),
        (lambda: plots.grid(world, flat, rows=2, directions="abcd"), "got 'abcd'"),
        (lambda: plots.grid(world, flat, rows=2, step=9), r"step must lie in 0\.\.2; got 9"),
        (lambda: plots.policy("grid", uniform), "one CMDP or LayeredMDP; got a str"),
    ):
        with pytest.raises(ValueError, match=sentence):
            draw()
    many = random_mdp(0, num_actions=8)
    with pytest.raises(ValueError, match="8 actions cannot be told apart"):
        plots.policy(many, many.layers.uniform_policy())


# Where results come from.


@pytest.fixture(scope="module")
def played():
    cmdp = make("two-phase", num_episodes=40)
    one = run(jax.random.key(0), cmdp, learners.uniform(cmdp.layers), 40, checkpoints=5)
    # Three seeds without compiling for three: each earned a little more than the one before.
    three = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * 3), one)
    object.__setattr__(three, "reward", three.reward + np.arange(3.0)[:, None])
    return cmdp, three, evaluate(three, cmdp)


def test_an_evaluation_is_drawn_as_its_dataset(played):
    _, history, evaluation = played
    data = dataset_of(history, evaluation)
    for name in ("regret", "violation", "positive-violation"):
        draw = plots.FIGURES[name]
        ours, theirs = (draw(source).get_lines()[-1] for source in (evaluation, data))
        np.testing.assert_array_equal(ours.get_xydata(), theirs.get_xydata())
    np.testing.assert_allclose(
        plots.reward(data).get_lines()[0].get_ydata(),
        np.median(np.asarray(history.reward) / evaluation.episode, 0),
    )
    with pytest.raises(ValueError, match="do not hold 'radius'.*dataset_of"):
        plots.radius(evaluation)


def test_a_single_run_is_a_line_without_a_band(played):
    cmdp, history, _ = played
    one = jax.tree.map(lambda leaf: leaf[0], history)
    evaluation = evaluate(one, cmdp)
    for source in (evaluation, dataset_of(one, evaluation, dims=())):
        axes = plots.regret(source)
        np.testing.assert_array_equal(axes.get_lines()[-1].get_ydata(), evaluation.regret)
        assert len(axes.collections) == 0


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="a Dataset .* or an Evaluation; got a int"):
        plots.regret(3)
    with pytest.raises(ValueError, match="it has no 'regret'"):
        plots.regret(results().drop_vars("regret"))
    with pytest.raises(ValueError, match="0 <= low <= high <= 1"):
        plots.regret(results(), quantiles=(0.9, 0.1))
    crowd = results(delta=tuple(np.linspace(0.01, 0.5, 29)), seeds=1, checkpoints=2)
    with pytest.raises(ValueError, match="a figure of 29 curves is unreadable"):
        plots.regret(crowd)
    empty = results()
    empty["radius"][:] = np.nan
    with pytest.raises(ValueError, match="no value of confidence radius"):
        plots.radius(empty)


def test_matplotlib_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ValueError, match=r'need Matplotlib: pip install "pdgd_jax\[plots\]"'):
        plots.regret(results())


# How it looks.


def test_a_figure_fits_a_column_and_the_style_is_not_left_behind():
    before = dict(mpl.rcParams)
    axes = plots.regret(results(learner=LEARNERS, rates=("tuned", "theory")), bounds=True)
    assert axes.figure.get_size_inches()[0] == plots.COLUMN_WIDTH == 3.3
    assert dict(mpl.rcParams) == before
    for text in (axes.xaxis.label, axes.yaxis.label):
        assert text.get_fontsize() == 8
    assert axes.get_xlabel() == "episodes\nmedian of 5 seeds, band 10% to 90%"
    assert axes.get_ylabel() == "cumulative regret (reward)"


def test_the_width_the_legend_and_its_words_can_be_chosen():
    data = results(learner=LEARNERS, rates=("tuned", "theory"))
    page = plots.Look(width=plots.PAGE_WIDTH, legend="right", title="$ure", labels={"uniform": "?"})
    axes = plots.regret(data, look=page)
    assert axes.figure.get_size_inches()[0] == plots.PAGE_WIDTH == 6.8
    assert legend_of(axes)[2] == "?"
    assert axes.figure.get_suptitle() == r"\$ure"
    FigureCanvasAgg(axes.figure).draw()
    box = axes.figure.legends[0].get_window_extent()
    assert box.x0 >= axes.bbox.x1
    assert box.x1 <= axes.figure.bbox.x1
    inside = plots.regret(data, look=plots.Look(legend="inside"))
    assert inside.get_legend() is not None
    assert inside.figure.legends == []
    assert legend_of(plots.regret(data, look=plots.Look(legend="none"))) == []
    above = plots.regret(
        data, look=plots.Look(title="Here")
    )  # the legend is above: one box for both
    assert above.figure.get_suptitle() == ""
    assert above.figure.legends[0].get_title().get_text() == "Here"


def test_the_results_say_what_an_axis_shows():
    data = results()
    data["positive_violation"].attrs = {"long_name": "positive part of the mean", "units": "cost"}
    assert plots.positive_violation(data).get_ylabel() == "positive part of the mean\n(cost)"
    bare = results()
    bare["positive_violation"].attrs = {}
    assert plots.positive_violation(bare).get_ylabel() == "positive violation (cost)"
    assert plots.regret(results(seeds=1)).get_xlabel() == "episodes"  # one seed is no statistic
    half = plots.regret(data, quantiles=(0.25, 0.75)).get_xlabel()
    assert half.endswith("median of 5 seeds, band 25% to 75%")


def test_the_axes_of_the_caller_are_used():
    figure = Figure()
    axes = figure.subplots(3)
    assert plots.regret(results(), ax=axes[0]) is axes[0]
    assert list(plots.solver(results(), ax=axes[1:])) == list(axes[1:])
    with pytest.raises(ValueError, match="needs two Axes"):
        plots.solver(results(), ax=axes)
    assert plt.get_fignums() == []


@pytest.mark.parametrize("kind", ["pdf", "png", "svg"])
def test_files_are_the_same_every_time_and_embed_their_fonts(tmp_path, kind):
    for name in ("one", "two"):
        plots.save(plots.regret(results()), tmp_path / f"{name}.{kind}")
    one, two = ((tmp_path / f"{name}.{kind}").read_bytes() for name in ("one", "two"))
    assert one == two
    if kind == "pdf":
        assert b"/FontFile2" in one
        assert b"/Type3" not in one


def picture(draw, rows=1):
    """The figure without a word, 240 by 160 pixels for each row: fonts differ between machines."""
    figure = Figure(figsize=(2.4, 1.6 * rows), dpi=100)
    boxes = [figure.add_axes((0.05, (i + 0.05) / rows, 0.9, 0.9 / rows)) for i in range(rows)]
    draw(boxes[0] if rows == 1 else boxes[::-1])
    for axes in figure.axes:
        axes.set(xlabel="", ylabel="", title="")
        axes.tick_params(labelbottom=False, labelleft=False, labelright=False, which="both")
        if axes.get_legend():
            axes.get_legend().remove()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(np.uint8)


def _graph():
    mdp = random_mdp(3, sizes=(1, 3, 3, 1), num_actions=3)
    return mdp, random_policy(4, mdp.layers)


def _grid():
    cmdp = make("grid", rows=2, columns=3, hazards=[(0, 1)], horizon=3)
    flat = np.random.default_rng(0).dirichlet(np.ones(4), 6)
    return cmdp, cmdp.mdp.policy_from_flat(flat)


def _benchmarked(**changes):
    """Results with the regrets against other benchmarks, which most tests do without."""
    data = results(rates=("a", "b"), **changes)
    for name, share in (("strong_regret", 1.5), ("dynamic_regret", -0.5), ("k_regret", 0.7)):
        data[name] = share * data["regret"]
    data["feasibility"] = 1 / (1 + data["regret"] / 20)
    return data


def _of_quantity(name):
    return lambda ax: plots.FIGURES[name](_benchmarked(), ax=ax)


PICTURES = {
    "strong-regret": _of_quantity("strong-regret"),
    "dynamic-regret": _of_quantity("dynamic-regret"),
    "k-regret": _of_quantity("k-regret"),
    "feasibility": _of_quantity("feasibility"),
    "regret": lambda ax: plots.regret(results(learner=LEARNERS), guides=True, ax=ax),
    "violation": lambda ax: plots.violation(results(), bounds=True, ax=ax),
    "positive-violation": lambda ax: plots.positive_violation(results(rates=("a", "b")), ax=ax),
    "multipliers": lambda ax: plots.multipliers(results(), ax=ax),
    "reward": lambda ax: plots.reward(results(learner=LEARNERS), ax=ax),
    "tradeoff": lambda ax: plots.tradeoff(results(learner=LEARNERS), ax=ax),
    "radius": lambda ax: plots.radius(results(rates=("a", "b")), ax=ax),
    "solver": lambda ax: plots.solver(results(rates=("a", "b"), unconverged=2), ax=ax),
    "horizons": lambda ax: plots.horizons(results(horizon=(100, 1000, 9999)), guides=True, ax=ax),
    "certificates": lambda ax: plots.certificates(results(rates=("a", "b")), ax=ax),
    "policy": lambda ax: plots.policy(*_graph(), ax=ax),
    "occupancy": lambda ax: plots.occupancy(*_graph(), ax=ax),
    "grid": lambda ax: plots.grid(*_grid(), rows=2, ax=ax),
}


@pytest.mark.parametrize("name", plots.FIGURES)
def test_figures_look_as_they_did(name):
    """To accept a change, look at it, remove the picture in `baselines` and run this test twice."""
    drawn = picture(PICTURES[name], rows=2 if name == "solver" else 1)
    baseline = BASELINES / f"{name}.png"
    if not baseline.exists():
        mpl.image.imsave(baseline, drawn)
        pytest.fail(f"{baseline} did not exist and was written: look at it.")
    expected = (mpl.image.imread(baseline)[..., :3] * 255).round()
    assert drawn.shape == expected.shape
    difference = np.sqrt(np.mean((drawn - expected) ** 2))
    # Versions of Matplotlib smooth edges differently; a line that is missing or elsewhere costs
    # more, see below.
    assert difference < 8, f"root mean square of {difference:.1f} of 255"


def test_the_styles_are_those_that_are_counted():
    assert (len(COLOURS), len(DASHES)) == (NUM_COLOURS, NUM_DASHES)


def test_the_comparison_of_pictures_sees_a_line_that_is_missing():
    whole = picture(PICTURES["regret"]).astype(float)
    fewer = picture(lambda ax: plots.regret(results(learner=LEARNERS[::2]), ax=ax))
    assert np.sqrt(np.mean((whole - fewer) ** 2)) > 8


def test_a_guarantee_that_fails_is_crossed_out_even_if_it_is_nan():
    """NaN exceeds every bound, also one of 0: neither an arrow nor nothing at all."""
    nan, one = np.array([np.nan, 0.0]), np.array([1.0, 0.0])
    assert shares_of(nan, one).tolist() == [np.inf, 0]
    assert shares_of(nan, 0 * one).tolist() == [np.inf, 0]
    data = results()
    data["certificate_measured"][:] = np.nan
    data["certificate_bound"][:] = 0.0
    data["certificate_status"][:] = "fails"
    drawn = [line for line in plots.certificates(data).lines if line.get_linestyle() == "None"]
    assert drawn
    assert {line.get_marker() for line in drawn} == {"X"}
    assert all(np.isfinite(line.get_xdata()).all() for line in drawn)
