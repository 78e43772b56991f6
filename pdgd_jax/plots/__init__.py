"""Figures, ready for a column of a two-column paper. Needs Matplotlib: `pdgd_jax[plots]`.

Each function draws one figure and returns its Axes. Results are a Dataset (of `sweep`,
`open_results` or `dataset_of`) or an `Evaluation`, if that holds the numbers. Without `ax`, a
function makes a new pyplot figure in the style below, and a notebook shows it. With `ax`, it keeps
the caller's style. Lines are medians over seeds, bands lie between the `quantiles`, and legends
name only what differs between curves. A learner has the same colour in every figure. A `Look` sets
the width and the legend, `facets` draws a figure for each instance, and `save` writes a file with
embedded fonts.

Example:
  >>> from pdgd_jax import plots
  >>> sorted(plots.FIGURES)[:4]
  ['certificates', 'dynamic-regret', 'feasibility', 'grid']
"""

from pdgd_jax.plots._certificates import certificates
from pdgd_jax.plots._curves import (
    curve,
    multipliers,
    positive_violation,
    radius,
    regret,
    reward,
    solver,
    violation,
)
from pdgd_jax.plots._draw import Drawn, check_figure, draw_figure
from pdgd_jax.plots._figures import FIGURES, Figure
from pdgd_jax.plots._horizons import horizons
from pdgd_jax.plots._models import grid, occupancy, policy
from pdgd_jax.plots._panels import facets
from pdgd_jax.plots._style import COLUMN_WIDTH, PAGE_WIDTH, STYLE, Look, pyplot, save
from pdgd_jax.plots._tradeoff import tradeoff

__all__ = [
    "COLUMN_WIDTH",
    "FIGURES",
    "PAGE_WIDTH",
    "STYLE",
    "Drawn",
    "Figure",
    "Look",
    "certificates",
    "check_figure",
    "curve",
    "draw_figure",
    "facets",
    "grid",
    "horizons",
    "multipliers",
    "occupancy",
    "policy",
    "positive_violation",
    "pyplot",
    "radius",
    "regret",
    "reward",
    "save",
    "solver",
    "tradeoff",
    "violation",
]
