# SPDX-License-Identifier: Apache-2.0
"""The page of the command report: what it holds is computed again from the files of the runs, and a browser draws it."""
import html.parser
import json
import math
import re
import shutil
import subprocess

import pytest
from program import FIXTURES, leave_out, metrics, run, write_random

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
HOSTILE = "</script><script>alert(1)</script>"


class Page(html.parser.HTMLParser):
    """Tags, the text of each script, and the JSON of the page."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.scripts = [], []
        self.feed(path.read_text(encoding="utf-8"))
        [data] = [text for attributes, text in self.scripts if attributes.get("id") == "data"]
        self.data = json.loads(data)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append((dict(attributes), ""))

    def handle_data(self, text):
        if self.cdata_elem == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + text)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """a: 30 steps that are measured; b: 20 steps without statistics."""
    folder = tmp_path_factory.mktemp("report")
    data = write_random(folder / "data.npz", 64)
    common = [FIXTURES / "mlp" / "d18.onnx", "--data", data, "--val-data", data, "--loss", "cross_entropy", "--batch-size", 8,
              "--val-every", 10]
    run("train", *common, "--steps", 30, "--recipe", "delayed", "--stats", "every=2", "--out", folder / "a")
    run("train", *common, "--steps", 20, "--recipe", "off", "--out", folder / "b")
    return folder


def statistics(folder):
    return [json.loads(line) for line in (folder / "statistics.jsonl").read_text().splitlines()]


def decoded(text):
    return [64 * LETTERS.index(a) + LETTERS.index(b) for a, b in zip(text[::2], text[1::2])]


def test_the_page_has_the_curves(runs):
    done = run("report", "a", "b", "-o", "report.html", cwd=runs)
    assert re.fullmatch(r"report\.html: 2 runs, heat maps of \d+ tensors, .* KiB\n", done.stdout)
    page = Page(runs / "report.html")
    for told, name in zip(page.data["runs"], "ab"):
        lines = metrics(runs / name)
        assert told["folder"] == name
        for key in ("loss", "grad_norm", "val_loss"):
            points = [(line["step"], float(f"{line[key]:.4g}")) for line in lines if key in line]
            assert list(zip(told[key]["steps"], told[key]["values"])) == points
        settings = dict(told["settings"])
        assert settings["--batch-size"] == "8" and settings["--recipe"] == {"a": "delayed", "b": "off"}[name]
        assert dict(told["facts"])["program"].startswith("onnx-fp8 ")
    assert page.data["runs"][1]["casts"] is None


def test_the_page_has_the_worst_number_of_each_cell(runs):
    run("report", "a", "-o", "worst.html", cwd=runs)
    casts = Page(runs / "worst.html").data["runs"][0]["casts"]
    lines = statistics(runs / "a")
    assert casts["first"] == casts["last"] == sorted({line["step"] for line in lines})
    columns = len(casts["first"])
    numbers = {key: decoded(casts[key]) for key in ("sqnr", "saturated", "flushed")}
    seen = {}
    for row, (fqn, gemm, operand, use, _) in enumerate(casts["rows"]):
        for column, step in enumerate(casts["first"]):
            seen[fqn, gemm, operand, use, step] = {key: codes[row * columns + column] for key, codes in numbers.items()}
    for line in lines:
        codes = seen.pop((line["fqn"], line["gemm"], line["operand"], line["use"], line["step"]))
        if "sqnr" in line:
            assert (codes["sqnr"] - 1) / 10 - 150 == pytest.approx(line["sqnr"], abs=0.051)
        else:
            assert codes["sqnr"] == 4095
        for key in ("saturated", "flushed"):
            if key not in line:
                assert codes[key] == 0
            elif line[key] == 0:
                assert codes[key] == 1
            else:
                assert (codes[key] - 2) / 400 - 10 == pytest.approx(math.log10(line[key]), abs=0.00126)
    assert all(codes == dict.fromkeys(numbers, 0) for codes in seen.values())


def test_the_page_loads_nothing(runs):
    run("report", "a", "-o", "offline.html", cwd=runs)
    page = Page(runs / "offline.html")
    assert len(page.scripts) == 3
    for tag, attributes in page.tags:
        assert "src" not in attributes, tag
        assert attributes.get("href", "#").startswith(("#", "data:"))
    [policy] = [a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv")]
    assert policy.startswith("default-src 'none';")


@pytest.fixture
def hostile(runs, tmp_path):
    """A run of somebody else: texts that would be scripts, torn lines, steps that were skipped."""
    folder = tmp_path / "run"
    shutil.copytree(runs / "a", folder)
    config = json.loads((folder / "config.json").read_text())
    config["flags"][HOSTILE] = [HOSTILE]
    (folder / "config.json").write_text(json.dumps(config))
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        for step in (31, 32, 34):
            file.write(json.dumps({"step": step, "loss": None, "nonfinite": True, "skipped": True}) + "\n")
        file.write("[" * 100_000 + "\n" + '{"step": 35, "lo')
    with open(folder / "statistics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(statistics(folder)[0] | {"fqn": HOSTILE, "step": 30}) + "\n")
    return folder


def test_texts_of_a_run_are_no_scripts(hostile, tmp_path):
    done = run("report", hostile, "-o", tmp_path / "page.html")
    assert "2 lines of metrics.jsonl are left out" in done.stderr
    page = Page(tmp_path / "page.html")
    assert len(page.scripts) == 3
    [told] = page.data["runs"]
    assert [HOSTILE, HOSTILE] in told["settings"]
    assert HOSTILE in [row[0] for row in told["casts"]["rows"]]
    assert told["skipped"] == {"count": 3, "ranges": [[31, 32], [34, 34]], "told": 3}
    assert told["not_finite"]["count"] == 3 and told["last_step"] == 34


def test_a_page_replaces_a_page_and_nothing_else(runs, tmp_path):
    page, other = tmp_path / "page.html", tmp_path / "other.html"
    run("report", runs / "b", "-o", page)
    run("report", runs / "a", "-o", page)
    assert Page(page).data["runs"][0]["folder"].endswith("a")
    other.write_text("<!doctype html>\nprecious")
    assert "is no page of" in run("report", runs / "a", "-o", other, code=1).stderr
    assert other.read_text() == "<!doctype html>\nprecious"


def in_browser(page, *flags):
    """The page's elements as a browser has them after its scripts, and what they told its console."""
    browser = shutil.which("chromium")
    profile = page.parent / "profile"
    done = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                           f"--user-data-dir={profile}", "--enable-logging=stderr", *flags, "--dump-dom", page.as_uri()],
                          capture_output=True, text=True, timeout=300)
    return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


@pytest.mark.parametrize("flags", [["--window-size=1200,900"], ["--window-size=400,800", "--force-dark-mode"]],
                         ids=["light", "dark-phone"])
def test_a_browser_draws_the_page(runs, hostile, tmp_path, flags):
    if not shutil.which("chromium"):
        leave_out("the page of the command report in a browser: chromium is missing")
        pytest.skip("no chromium")
    run("report", hostile, runs / "a", runs / "b", "-o", tmp_path / "page.html")
    elements, console = in_browser(tmp_path / "page.html", *flags)
    assert not console
    assert re.search(r'<html [^>]*data-drawn="\d+"', elements)
    assert "<script>alert" not in elements
    assert re.search(r'id="map"[^>]*aria-label="SQNR of \d+ tensors by step. Worst: ', elements)
    assert "3 skipped: steps 31–32, 34" in elements
