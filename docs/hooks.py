"""Extensions of mkdocs: a page for each room, and mathematics without a script."""

import html
import logging
import pkgutil
import re

from latex2mathml.converter import convert
from mkdocs.structure.files import File

import pdgd_jax

log = logging.getLogger("mkdocs.hooks")

# The doors of the rooms; private files have no page.
MODULES = sorted(
    module.name
    for module in pkgutil.iter_modules(pdgd_jax.__path__, "pdgd_jax.")
    if module.name not in ("pdgd_jax.cli", "pdgd_jax.__main__") and "._" not in module.name
)


def _page(module):
    return f"api/{module.removeprefix('pdgd_jax.')}.md"


def on_config(config):
    """Add the rooms to the navigation."""
    pages = [{module.removeprefix("pdgd_jax."): _page(module)} for module in MODULES]
    config.nav.append({"API": pages})
    return config


def on_files(files, config):
    """Write the page of each room."""
    for module in MODULES:
        text = f"# `{module}`\n\n::: {module}\n"
        files.append(File.generated(config, _page(module), content=text))
    return files


def on_page_content(content, page, **kwargs):
    """Turn the formulas that arithmatex has set apart into MathML."""

    def formula(found):
        # The converter knows nearly all of LaTeX.
        latex = re.sub(r"\\arg\b", r"\\operatorname{arg}", html.unescape(found["latex"]))
        display = "block" if found["open"] == "[" else "inline"
        try:
            mathml = convert(latex, display=display)
        except Exception as error:
            log.warning("%s: cannot read the formula %s: %r", page.file.src_path, latex, error)
            return found[0]
        if unknown := re.search(r">\\[a-zA-Z]+<", html.unescape(mathml)):
            log.warning("%s: unknown %s in the formula %s", page.file.src_path, unknown[0], latex)
        return mathml

    opened = r'<(?P<tag>span|div) class="arithmatex">\s*\\(?P<open>[(\[])'
    closed = r"\\[)\]]\s*</(?P=tag)>"
    return re.sub(opened + "(?P<latex>.*?)" + closed, formula, content, flags=re.DOTALL)
