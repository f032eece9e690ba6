# SPDX-License-Identifier: Apache-2.0
"""The documentation site: it builds, a dead link is an error, and a browser needs no network to read and search it."""
import ast
import json
import os
import pathlib
import re
import subprocess

import program
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("ONNX_FP8_SITE_PYTHON")


@pytest.fixture(autouse=True)
def sphinx():
    if not PYTHON:
        program.leave_out("the documentation site: ONNX_FP8_SITE_PYTHON names no Python with Sphinx")
        pytest.skip("no Sphinx")


def build(out, source):
    return subprocess.run([PYTHON, ROOT / "scripts/site/build.py", out, source], capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    if PYTHON:
        done = build(out, ROOT)
        assert done.returncode == 0, done.stderr
    return out


def test_pages_load_nothing_from_a_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = re.findall(r"<(?:script|img|iframe)\b[^>]*\bsrc=\"([^\"]*)|<link\b[^>]*\bhref=\"([^\"]*)", page.read_text())
        assert not [url for pair in loaded for url in pair if re.match(r"(\w+:)?//", url)], page


def test_first_page(site):
    target = re.search(r"url=([^\"]+)", (site / "index.html").read_text())[1]
    assert "./dev demo" in (site / target).read_text()


def test_search_needs_no_server(site):
    """Browsers load scripts from disk, but refuse what a script fetches there."""
    page = (site / "search.html").read_text()
    assert '<script src="searchindex.js"' in page
    assert "SHOW_SEARCH_SUMMARY: false" in (site / "_static/documentation_options.js").read_text()
    index = json.loads((site / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")"))
    found = index["terms"]["blockwis"]
    assert index["docnames"].index("docs/fp8") in (found if isinstance(found, list) else [found])


def test_reference_of_python(site):
    page = (site / "docs/reference_python.html").read_text()
    package = ast.parse((ROOT / "python/onnx_fp8/__init__.py").read_text())
    names = next(ast.literal_eval(node.value) for node in package.body if isinstance(node, ast.Assign))
    for name in [*names, "TrainingSession.step", "torch.export", "ort.register"]:
        assert name == "__version__" or f'id="onnx_fp8.{name}"' in page, name
    assert "An array that does not fit is an error" in page


def test_reference_of_cpp(site):
    page = (site / "docs/reference_cpp.html").read_text()
    names = re.findall(r'class="sig-name descname"><span class="n"><span class="pre">(\w+)', page)
    for name in ("SessionOptions", "TrainingSession", "RunTraining", "Dataset", "ParseRecipe", "Schedule", "Tensor"):
        assert name in names
    assert "The training loop: steps over a data set" in page  # the comment of a file
    assert "The loss of a session" in page  # of a struct
    assert "Trains until spec.steps are done" in page  # of a function
    assert "private:" not in page


@pytest.fixture
def small(tmp_path):
    """The pages without which there is no site, and one that each test writes."""
    root = tmp_path / "source"
    for name in ("README", "CONTRIBUTING", "SECURITY", "docs/README", "docs/results/README", "docs/results/table"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.md").write_text("# Title\n\n[page](page.md)\n" if name == "docs/README" else "# Title\n")
    return root


def test_links_that_live(small, tmp_path):
    (small / "data.json").write_text("{}")
    (small / "docs/page.md").write_text("# Page\n\n[a title](README.md#title)\n\n[itself](#page)\n\n[a file](../data.json)\n")
    done = build(tmp_path / "out", small)
    assert done.returncode == 0, done.stderr


def test_dead_links_and_lost_pages_are_errors(small, tmp_path):
    """One build names each of them."""
    links = ["[page](gone.md)", "[file](../gone.json)", "[anchor](README.md#gone)", "[own anchor](#lost)", "![image](gone.svg)"]
    (small / "docs/page.md").write_text("# Page\n\n" + "\n\n".join(links) + "\n")
    (small / "docs/unlisted.md").write_text("# Page\n")
    done = build(tmp_path / "out", small)
    assert done.returncode != 0
    faults = [line for line in done.stderr.splitlines() if "WARNING" in line]
    for line in range(3, 3 + 2 * len(links), 2):
        assert any(f"page.md:{line}:" in fault for fault in faults), (line, done.stderr)
    assert any("unlisted.md" in fault for fault in faults), done.stderr
