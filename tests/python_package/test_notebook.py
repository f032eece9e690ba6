# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows, in a kernel of its own: progress of a run, and results."""
import html.parser
import re

import digits
import nbclient
import nbformat
import pytest

import onnx_fp8
from onnx_fp8._notebook import Result, _Curve

CELLS = ["""
import onnx_fp8
result = onnx_fp8.train({model!r}, data={data!r}, val_data={val!r}, loss="cross_entropy", batch_size=30, steps=30, val_every=10,
                        recipe="tensorwise", out="run")
""", "result", "onnx_fp8.inspect({model!r}, recipe='tensorwise', shape={{'batch': 8}})",
         """
onnx_fp8.train(out="run", resume=True, steps=31, progress="line")
onnx_fp8.train(out="run", resume=True, steps=32, progress=False)
None
"""]


class Tags(html.parser.HTMLParser):
    """Fails if a tag does not end where it should."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.append((tag, dict(attributes)))

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_kernel(tmp_path):
    words = {"model": str(digits.MODEL), "data": str(digits.TRAIN), "val": str(digits.VAL)}
    cells = [nbformat.v4.new_code_cell(text.format(**words)) for text in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    trained, summary, inspected, lines = (cell.outputs for cell in notebook.cells)
    [shown] = [o for o in trained if o.output_type == "display_data"]  # one output, which changed
    page = shown.data["text/html"]
    tags = Tags(page).seen
    assert dict(tags)["progress"]["value"] == "1.0000"
    assert [tag for tag, _ in tags].count("circle") == 3 and "step 30/30  loss " in page
    assert "trains 8 of 8 parameters" in page and "step 30/30  validation loss " in page
    assert not [o for o in trained if o.output_type == "stream"]
    [result] = summary
    assert "<th>steps</th><td>30</td>" in result.data["text/html"]
    Tags(inspected[0].data["text/html"])
    assert "<th>fqn</th>" in inspected[0].data["text/html"]
    assert {o.output_type for o in lines} == {"stream"}
    told = "".join(o.text for o in lines)
    assert "step 31/31  loss " in told and "step 32/32" not in told


def test_a_curve_keeps_extremes():
    curve = _Curve()
    losses = [10.0] + [1 + (step % 7) / 10 for step in range(2, 100_001)]
    losses[50_000] = 99.0
    for step, loss in enumerate(losses, 1):
        curve.add(step, len(losses), loss)
    text = curve.svg()
    assert len(text) < 10_000 and 'aria-label="loss from 99 to 1"' in text
    points = [tuple(map(float, pair.split(","))) for pair in re.search('points="([^"]*)"', text)[1].split(" ")]
    assert points == sorted(points, key=lambda point: point[0]) and {min(y for _, y in points), max(y for _, y in points)} == {8, 132}


def test_results_are_dicts_that_escape_names():
    result = Result({"a<b": 1, "rows": [{"x": 0.5, "y": "<script>"}] * 60, "more": {"z": 1 / 3}})
    assert result == {"a<b": 1, "rows": [{"x": 0.5, "y": "<script>"}] * 60, "more": {"z": 1 / 3}}
    page = result._repr_html_()
    Tags(page)
    assert "<script>" not in page and "a&lt;b" in page and "… and 10 more" in page and "0.333333" in page


def test_progress_is_one_of_four(tmp_path):
    with pytest.raises(onnx_fp8.OptionError, match="`progress`: expected auto, line, True or False, got 'bar'"):
        onnx_fp8.train(digits.MODEL, data=digits.TRAIN, loss="cross_entropy", steps=1, out=tmp_path / "run", progress="bar")
