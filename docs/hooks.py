"""What mkdocs does not do by itself: a page for each module, and mathematics without a script."""

import html
import logging
import pkgutil
import re

from latex2mathml.converter import convert
from mkdocs.structure.files import File

import pdgd_jax

log = logging.getLogger("mkdocs.hooks")

# An __init__ that only gathers names is documented where they are written.
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(pdgd_jax.__path__, "pdgd_jax.")
    if not module.ispkg and not any(part.startswith("_") for part in module.name.split("."))
)


def _page(module):
    return f"api/{module.removeprefix('pdgd_jax.').replace('.', '/')}.md"


def on_config(config):
    """Add the modules to the navigation, by package."""
    groups = {}
    for module in MODULES:
        package, _, name = module.removeprefix("pdgd_jax.").rpartition(".")
        groups.setdefault(package, []).append({name: _page(module)})
    single = groups.pop("", [])
    config.nav.append({"API": [*single, *({name: pages} for name, pages in groups.items())]})
    return config


def on_files(files, config):
    """Write the page of each module."""
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
