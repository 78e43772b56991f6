"""Results as one HTML file that opens offline. Needs Plotly: `pdgd_jax[report]`.

The page combines `page.html`, `page.css`, `page.js`, Plotly and the numbers in one file. Tables are
written here; the page draws the figures.
"""

import json
import re
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from pdgd_jax._internal.files import publish, writing
from pdgd_jax._version import __version__
from pdgd_jax.report import _tables as tables
from pdgd_jax.report._figures import data_of
from pdgd_jax.results import as_dataset, cells_of, is_paired

if TYPE_CHECKING:
    import xarray

__all__ = ["report_of", "write_report"]


def write_report(dataset: "xarray.Dataset", path: str | Path) -> None:
    """Write the report of these results; a failure leaves no partial file.

    Args:
      dataset: a Dataset of `sweep`, `open_results` or `dataset_of`.
      path: the file, which is replaced if it exists.
    """
    target = Path(path)
    content = report_of(dataset).encode()
    with writing(target.parent):
        publish(target.parent, {target.name: content})


def report_of(dataset: "xarray.Dataset") -> str:
    """The report of these results, as the text of an HTML file.

    Args:
      dataset: a Dataset of `sweep`, `open_results` or `dataset_of`.

    Returns:
      A self-contained page: it loads no script, style, font or image.
    """
    dataset = as_dataset(dataset)
    cells = cells_of(dataset)
    configuration = json.loads(dataset.attrs.get("configuration", "{}"))
    page = resources.files("pdgd_jax").joinpath("report")
    parts = {
        "title": escape(str(configuration.get("name") or "Results")),
        "summary": tables.summary(dataset, cells),
        "style": page.joinpath("page.css").read_text(encoding="utf-8"),
        "script": page.joinpath("page.js").read_text(encoding="utf-8"),
        "plotly": _plotly(),
        "version": escape(__version__),
        "warnings": tables.warnings(cells),
        "run": tables.what_was_run(dataset, configuration),
        "results": tables.results_table(dataset, cells),
        "pairs": (
            "Random streams are shared: the last column takes differences seed by seed, and then "
            "their median and band."
            if is_paired(dataset)
            else "Random streams are not known to be shared: seeds cannot be compared one by one."
        ),
        "certificates": tables.certificates_tables(dataset, cells),
        # A "<" could end the script or begin a comment in it.
        "data": json.dumps(data_of(dataset, cells), allow_nan=False).replace("<", "\\u003c"),
    }
    template = page.joinpath("page.html").read_text(encoding="utf-8")
    # In one pass, so that inserted text is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ValueError('reports need Plotly: pip install "pdgd_jax[report]".') from error
    return str(get_plotlyjs())
