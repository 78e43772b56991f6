"""Results as one HTML file that opens offline."""

from pdgd_jax.report._page import report_of, write_report

__all__ = [
    "report_of",
    "write_report",
]
