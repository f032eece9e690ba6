# SPDX-License-Identifier: Apache-2.0
"""The system can't look up a path with a long name. The error names the path, as for other paths."""
import pytest
from program import FIXTURES, run, write_random

MLP = FIXTURES / "mlp" / "d18.onnx"
LONG = "x" * 300
CE = ["--loss", "cross_entropy"]
TRAIN = ["train", MLP, "--data", "DATA", *CE, "--steps", 1, "--batch-size", 8]


@pytest.mark.parametrize("words", [
    [*TRAIN, "--out", LONG],
    ["train", LONG, "--data", "DATA", *CE, "--steps", 1, "--out", "run"],
    ["train", MLP, "--data", LONG + ".npz", *CE, "--steps", 1, "--out", "run"],
    [*TRAIN, "--out", "run", "--init", LONG],
    [*TRAIN, "--out", "run", "--profile", LONG],
    [*TRAIN, "--out", "run", "--recipe", LONG + ".json"],
    [*TRAIN, "--out", "run", "--recipe", "static", "--scales", LONG],
    [*TRAIN, "--out", "run", "--class-weights", LONG + ".npy"],
    [*TRAIN, "--out", "run", "--recipe", "tensorwise", "--auto-filter", LONG],
    ["train", MLP, "--data", "DATA", "--loss", LONG + ".onnx", "--steps", 1, "--out", "run"],
    ["eval", LONG, "--data", "DATA"],
    ["export", LONG, "--out", "x.onnx"],
    ["inspect", LONG],
    ["rewrite", MLP, "--out", LONG + ".onnx", "--recipe", "tensorwise"],
    ["rewrite", MLP, "--out", LONG + "/x.onnx", "--recipe", "tensorwise"],
    ["calibrate", MLP, "--data", "DATA", *CE, "--recipe", "static", "--steps", 1, "-o", LONG],
    ["grad", MLP, "--data", "DATA", *CE, "--out", LONG + ".npz"],
], ids=lambda words: " ".join(str(w)[:12] for w in words if w != MLP))
def test_a_name_that_is_too_long(tmp_path, words):
    data = write_random(tmp_path / "d.npz", 8)
    done = run(*(data if word == "DATA" else word for word in words), cwd=tmp_path, code=1)
    error = done.stderr.splitlines()[-1]
    assert "filesystem error" not in error and "[" in error and LONG in error, error
    assert "File name too long" in error or "is no folder" in error, error
