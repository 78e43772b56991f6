"""The documentation: it builds without a warning, needs no other host, and its code runs."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TRIED_ELSEWHERE = [(ROOT / name).read_text() for name in ("README.md", "docs/extending.md")]
BLOCKS = {
    f"{page.stem}-{i}": block
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    # Or test_readme.py or test_extending.py runs it.
    if not any(block in page for page in TRIED_ELSEWHERE)
}


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_the_code_of_the_documentation_runs(block, tmp_path):
    python = [sys.executable, "-W", "error::FutureWarning"]
    if 'open_results("results")' in block:  # which the reader has from a command above
        words = ["-m", "pdgd_jax", "sweep", "quick", "--out", "results"]
        subprocess.run([*python, *words], check=True, cwd=tmp_path)
    # A process of its own, since some of it must come before JAX starts.
    subprocess.run([*python, "-c", block], check=True, cwd=tmp_path)


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is in the extra dev")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {page: page.read_text() for page in tmp_path.rglob("*.html")}
    assert (tmp_path / "api" / "learners" / "index.html") in pages
    for script in (ROOT / "notebooks").glob("*.py"):
        assert "which you can run" in pages[tmp_path / "examples" / script.stem / "index.html"]
    adding = pages[tmp_path / "developer" / "adding" / "index.html"]
    assert "--8&lt;--" not in adding
    assert "my-learner" in adding
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]*src=\"?https?:|<link[^>]*href=\"?https?:[^>]*css"
    )
    for page, text in pages.items():
        assert not loaded.search(text), page
        assert 'class="arithmatex"' not in text, f"a formula of {page} was left as it was"
    assert "<math" in pages[tmp_path / "projection" / "index.html"]
