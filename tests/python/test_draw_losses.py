# SPDX-License-Identifier: Apache-2.0
"""scripts/draw_losses.py, which draws the picture of the README."""
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def draw(folder, runs):
    words = []
    for name, losses in runs.items():
        file = folder / f"{name.strip('<>')}.jsonl"
        file.write_text("".join(json.dumps({"step": step, "val_loss": loss} if loss else {"step": step}) + "\n"
                                for step, loss in losses))
        words.append(f"{name}={file}")
    return subprocess.run([sys.executable, ROOT / "scripts/draw_losses.py", folder / "out.svg", *words],
                          capture_output=True, text=True)


def test_curves(tmp_path):
    done = draw(tmp_path, {"fp32": [(50, None), (100, 2.0), (200, 1.0)], "<fp8>": [(100, 2.0), (200, 1.5)]})
    assert done.returncode == 0, done.stderr
    root = ElementTree.parse(tmp_path / "out.svg").getroot()
    lines = [[tuple(map(float, point.split(","))) for point in line.get("points").split()]
             for line in root.iter(f"{SVG}polyline")]
    (first, last), (other_first, other_last) = lines
    assert first == other_first and last[0] == other_last[0]
    # y points down: a loss that is half as far from the top's lies in the middle.
    assert other_last[1] - first[1] > 50 and abs((first[1] + last[1]) / 2 - other_last[1]) < 0.2
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"fp32", "<fp8>", "steps", "1", "1.2", "2", "0", "200"} <= set(texts), texts


def test_equal_losses_and_none(tmp_path):
    assert draw(tmp_path, {"flat": [(1, 1.0), (2, 1.0)]}).returncode == 0
    done = draw(tmp_path, {"empty": [(1, None)]})
    assert done.returncode == 1 and "has no val_loss" in done.stderr
