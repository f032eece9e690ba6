# SPDX-License-Identifier: Apache-2.0
"""The optimizer in a file that docs/optimizers.md makes, beside its formulas in numpy."""
import pathlib
import re

import numpy as np
import onnx
from onnx import numpy_helper
from program import run, write_random
from test_moments import MLP, floats_of, tensors_of

PAGE = pathlib.Path(__file__).parents[2] / "docs/optimizers.md"
LR = 2.0**-7


def make_lion(folder, monkeypatch):
    monkeypatch.chdir(folder)
    [code] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    exec(compile(code, PAGE, "exec"), {})
    onnx.checker.check_model(onnx.load("lion.onnx"), full_check=True)
    return folder / "lion.onnx"


def numbers(folder):
    """Of all float tensors of the newest checkpoint."""
    return {name: floats_of(entry) for name, entry in tensors_of(folder).items() if entry[0] == "F32"}


def test_lion(tmp_path, monkeypatch):
    lion = make_lion(tmp_path, monkeypatch)
    data = write_random(tmp_path / "d.npz", 16)
    flags = ["--data", data, "--loss", "cross_entropy", "--batch-size", 16, "--no-shuffle", "--steps", 1]
    run("train", MLP, *flags, "--optimizer", "sgd", "--lr", 1, "--out", tmp_path / "sgd")
    run("train", MLP, *flags, "--optimizer", lion, "--lr", LR, "--out", tmp_path / "lion")
    start = {i.name: numpy_helper.to_array(i).reshape(-1) for i in onnx.load(MLP).graph.initializer}
    after, moved = numbers(tmp_path / "lion"), numbers(tmp_path / "sgd")
    weights = [name for name in start if name + ".m" in after]
    assert len(weights) == 6
    for name in weights:
        gradient = start[name] - moved[name]
        assert np.abs(after[name + ".m"] - 0.01 * gradient).max() < 1e-7
        wanted = start[name] - LR * (np.sign(gradient) + 0.1 * start[name])
        clear = np.abs(gradient) > 1e-5
        assert clear.any()
        assert np.abs(after[name] - wanted)[clear].max() < 1e-6
