"""The notebooks of `notebooks/` as pages: their text and code, and their figures if asked for.

With `PDGD_EXECUTE_NOTEBOOKS=1` they are executed, which takes minutes, and pages show what they
print and draw. Nothing is loaded from another host.
"""

import base64
import os
import pathlib

import jupytext
from mkdocs.structure.files import File

FOLDER = pathlib.Path(__file__).parents[1] / "notebooks"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def _page(script):
    return f"examples/{script.stem}.md"


def on_config(config):
    """Put the examples before the pages for developers."""
    titles = [jupytext.read(script).cells[0].source.splitlines()[0][2:] for script in SCRIPTS]
    pages = [{title: _page(script)} for title, script in zip(titles, SCRIPTS, strict=True)]
    sections = [next(iter(entry)) if isinstance(entry, dict) else "" for entry in config.nav]
    config.nav.insert(sections.index("Developer"), {"Examples": pages})
    return config


def on_files(files, config):
    """Write the page of each notebook."""
    for script in SCRIPTS:
        cells = _executed(script) if os.environ.get("PDGD_EXECUTE_NOTEBOOKS") else _read(script)
        text, figures = _markdown(script.stem, cells)
        files.append(File.generated(config, _page(script), content=text))
        for name, picture in figures.items():
            files.append(File.generated(config, f"examples/{name}", content=picture))
    return files


def _read(script):
    return jupytext.read(script).cells


def _executed(script):
    from nbclient import NotebookClient

    notebook = jupytext.read(script)
    NotebookClient(notebook, timeout=1200, kernel_name="python3").execute(cwd=str(FOLDER))
    return notebook.cells


def _markdown(stem, cells):
    """The cells as one page, and the pictures that it shows, by name."""
    parts, figures = [], {}
    for cell in cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{stem}-{len(figures)}.png"
                figures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![]({name})")
            elif text := output.get("text") or data.get("text/plain"):
                parts.append(f"```text\n{text.rstrip()}\n```")
    parts.insert(1, f"From `notebooks/{stem}.ipynb`, which you can run.")  # under the title
    return "\n\n".join(parts) + "\n", figures
