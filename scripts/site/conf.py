# SPDX-License-Identifier: Apache-2.0
"""Sphinx's settings. The pages are the Markdown files of the repository as they stand.

The order of the pages is the order of the links in docs/README.md, and a page that is not there is an error. The two
pages of the reference get their entries here: from docstrings, which are read without importing the package, and from the
comments of the public headers.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import reference  # noqa: E402

project = "onnx_fp8"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**.md", "samples/*/README.md"]
exclude_patterns = ["build", "tests", ".*"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
highlight_language = "none"  # of code that names none
smartquotes = False  # prose has flags, as --help
html_theme = "furo"
html_title = "onnx_fp8"
html_copy_source = False
html_show_search_summary = False  # it would be fetched, which browsers refuse to pages on disk
html_show_copyright = False
nitpick_ignore_regex = [(r"(py|cpp):.*", ".*")]  # types of signatures, as numpy's; links of Markdown have no domain

REFERENCES = {"docs/reference_python": reference.python, "docs/reference_cpp": reference.cpp}


def pages_of(index):
    """The pages that an index links, in order, by their names from the root."""
    links = re.findall(r"\]\(([^)#:]+)\.md\)", index.read_text())
    return [(index.parent / link).resolve() for link in dict.fromkeys(links)]


def contents(root):
    """The table of contents, which the theme shows beside each page."""
    guide = root / "docs/README"
    results = root / "docs/results/README"
    pages = [page for page in pages_of(guide.with_suffix(".md")) if page != results]
    for caption, names in (("Guide", [guide, *pages]), ("Results", [results, results.parent / "*"]),
                           ("Project", [root / "CONTRIBUTING", root / "SECURITY"])):
        names = "\n".join(f"/{name.relative_to(root)}" for name in names)
        yield f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{names}\n```\n"


def complete(app, name, source):
    root = pathlib.Path(app.srcdir)
    if name == root_doc:
        source[0] += "".join(contents(root))
    elif name in REFERENCES:
        source[0] += "\n" + REFERENCES[name](root)


def add_first_page(app, exception):
    if not exception:
        (pathlib.Path(app.outdir) / "index.html").write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html"><title>{project}</title>\n')


def setup(app):
    app.connect("source-read", complete)
    app.connect("build-finished", add_first_page)
