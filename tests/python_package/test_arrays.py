# SPDX-License-Identifier: Apache-2.0
"""onnx_fp8.train with arrays in memory in place of files."""
import gc
import re
import subprocess
import sys
import weakref

import digits
import numpy as np
import program
import pytest

import onnx_fp8
from test_session import OverDLPack

RUN = {"loss": "cross_entropy", "recipe": "delayed", "optimizer": "adamw", "lr": 1e-3, "batch_size": 30,
       "val_every": 4, "progress": False}


def validation():
    return dict(np.load(digits.VAL))


def train(out, steps, data, val_data, **options):
    return onnx_fp8.train(digits.MODEL, data=data, val_data=val_data, out=out, steps=steps, **(RUN | options))


def same_run(a, b):
    assert program.metrics_without_speed(a) == program.metrics_without_speed(b)
    assert program.state_bytes(a) == program.state_bytes(b)


@pytest.mark.parametrize("kind", [lambda array: array, OverDLPack, lambda array: array.tolist(), np.asfortranarray],
                         ids=["numpy", "DLPack", "lists", "column-major"])
def test_a_run_is_that_of_files(kind, tmp_path):
    train(tmp_path / "files", 8, digits.TRAIN, digits.VAL)
    data, val_data = ({name: kind(array) for name, array in arrays.items()}
                      for arrays in (digits.arrays(), validation()))
    train(tmp_path / "arrays", 8, data, val_data)
    same_run(tmp_path / "files", tmp_path / "arrays")


def test_a_run_goes_on_with_arrays_or_files(tmp_path):
    train(tmp_path / "whole", 8, digits.TRAIN, digits.VAL)
    for first, second in [(digits.arrays(), str(digits.TRAIN)), (str(digits.TRAIN), digits.arrays()),
                          (digits.arrays(), digits.arrays())]:
        out = tmp_path / f"{type(first).__name__}_{type(second).__name__}"
        train(out, 4, first, validation())
        onnx_fp8.train(data=second, val_data=validation(), out=out, resume=True, steps=8, progress=False)
        same_run(tmp_path / "whole", out)
        if hasattr(second, "items"):  # a run does not keep arrays, nor files of before
            with pytest.raises(onnx_fp8.OptionError, match="`data` is missing"):
                onnx_fp8.train(out=out, resume=True, steps=9, progress=False)


SPARSE = """
import resource, sys
sys.path.insert(0, {tests!r})
import digits, numpy as np, onnx_fp8
n = 8 << 20  # 2 GiB of pages that nobody has touched
data = {{"x": np.zeros((n, 64), np.float32), "labels": np.zeros(n, np.int64)}}
onnx_fp8.train(digits.MODEL, data=data, out={out!r}, loss="cross_entropy", batch_size=32, steps=2, progress=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_arrays_are_not_copied(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "no folder"))  # nor written
    done = subprocess.run([sys.executable, "-c", SPARSE.format(tests=str(digits.ROOT / "tests/python_package"),
                                                                      out=str(tmp_path / "run"))],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 400 << 10


def test_arrays_are_released(tmp_path):
    class Mine(np.ndarray):
        pass

    data = {name: array.view(Mine) for name, array in digits.arrays().items()}
    held = [weakref.ref(array) for array in data.values()]
    train(tmp_path / "run", 2, data, None, val_every=None)
    del data
    gc.collect()
    assert [ref() for ref in held] == [None, None]


BAD = [
    ({}, None, '[data] expected an array "x", got none'),
    ({"labels": None}, None, '[data] expected an array "labels", got x; `label` names another one'),
    ({"labels": np.zeros(7, np.int64)}, None, '[data] array "x" has 1500 samples, "labels" has 7;'),
    ({"labels": np.full(1500, 0.5)}, None, '[data] expected array "labels" of int64, got double'),
    ({"x": np.zeros((1500, 63), np.float32)}, None, "[?,64], got [30,63]"),
    ({"x": np.array(["a"] * 1500)}, None, "[x] expected an array of numbers, got <U1"),
    ({"x": np.float32(1)}, None, '[data] expected array "x" with a sample axis, got a scalar'),
    ({"x": np.zeros((9, 64), np.float32), "labels": np.zeros(9, np.int64)}, None,
     "[data] expected at least one batch of 30 samples, got 9"),
    (digits.arrays(), {"x": np.zeros((5, 64), np.float32)}, '[val_data] expected an array "labels", got x'),
    (digits.arrays(), {}, '[val_data] expected an array "x", got none'),
]


@pytest.mark.parametrize("data, val_data, text", BAD)
def test_bad_arrays_are_named(data, val_data, text, tmp_path):
    given = {name: array for name, array in (digits.arrays() | data).items() if array is not None} if data else {}
    with pytest.raises(onnx_fp8.Error, match=re.escape(text)):
        train(tmp_path / "run", 2, given, val_data, val_every=None)
    assert not (tmp_path / "run/checkpoints").exists()
