"""The evaluation of runs: regret, certificates, one Dataset, and statistics over seeds."""

from pdgd_jax.results._cells import Cell, Results, as_dataset, cells_of
from pdgd_jax.results._certificates import Status, Subject
from pdgd_jax.results._dataset import PROBABILITY, dataset_of, versions
from pdgd_jax.results._describe import InstanceFacts, describe, process_name
from pdgd_jax.results._ends import ENDS, summarise_sweep
from pdgd_jax.results._evaluation import Certificate, Evaluation, comparators_of, evaluate
from pdgd_jax.results._pairs import is_paired, paired_difference
from pdgd_jax.results._quantities import QUANTITIES, last_tenth, quantity_of
from pdgd_jax.results._quantity import Column, Curve, Quantity, Row, axis_of
from pdgd_jax.results._select import select
from pdgd_jax.results._statistics import (
    QUANTILES,
    STATISTICS,
    Band,
    Estimate,
    Statistic,
    band_of,
    shares_of,
    slope_of,
    spread_in_words,
)
from pdgd_jax.results._styles import Style, colours_of, makes_promises, styles_of
from pdgd_jax.results._summary import summarise

__all__ = [
    "ENDS",
    "PROBABILITY",
    "QUANTILES",
    "QUANTITIES",
    "STATISTICS",
    "Band",
    "Cell",
    "Certificate",
    "Column",
    "Curve",
    "Estimate",
    "Evaluation",
    "InstanceFacts",
    "Quantity",
    "Results",
    "Row",
    "Statistic",
    "Status",
    "Style",
    "Subject",
    "as_dataset",
    "axis_of",
    "band_of",
    "cells_of",
    "colours_of",
    "comparators_of",
    "dataset_of",
    "describe",
    "evaluate",
    "is_paired",
    "last_tenth",
    "makes_promises",
    "paired_difference",
    "process_name",
    "quantity_of",
    "select",
    "shares_of",
    "slope_of",
    "spread_in_words",
    "styles_of",
    "summarise",
    "summarise_sweep",
    "versions",
]
