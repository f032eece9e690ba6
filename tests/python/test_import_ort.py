# SPDX-License-Identifier: Apache-2.0
"""Operators of ONNX Runtime and of its training graphs: each row of graph/onnx/import_ort.cc against the results of
onnxruntime-training 1.19.2 (tests/fixtures/ort_training/rows.npz)."""
import re
import sys

import numpy as np
import onnx
import pytest
from program import FIXTURES, run

sys.path.insert(0, str(FIXTURES / "ort_training"))
import rows  # noqa: E402

RESULTS = np.load(FIXTURES / "ort_training" / "rows.npz")
TABLE = FIXTURES.parent.parent / "graph/onnx/import_ort.cc"


@pytest.mark.parametrize("case", rows.CASES, ids=lambda case: case.name)
def test_results_are_onnxruntimes(case, tmp_path):
    onnx.save(case.model(), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", **case.feeds())
    run("run", tmp_path / "m.onnx", "--data", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    results = np.load(tmp_path / "out.npz")
    for i in range(case.outputs):
        expected, got = RESULTS[f"{case.name}.{i}"], results[f"out{i}"]
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


def test_each_row_has_a_case():
    listed = re.findall(r'^    \{"(\w+)", \d', TABLE.read_text(), re.M)
    assert len(listed) > 20
    elsewhere = {"DynamicQuantizeLSTM"}  # test_quantized_lstm.py: the newest onnxruntime runs it
    assert set(listed) <= {case.op for case in rows.CASES} | elsewhere


X = np.ones((1, 2, 4, 4), np.float32)
LSTM = [np.ones((2, 1, 4), np.float32), np.ones((1, 4, 12), np.int8), np.ones((1, 3, 12), np.int8), None]
SCALES = [np.ones(1, np.float32), np.zeros(1, np.int8)] * 2
BAD = [
    (rows.Case("DynamicQuantizeLSTM", [*LSTM, np.ones(1, np.int32), None, None, None, *SCALES], 1, {"hidden_size": 3}),
     "expected DynamicQuantizeLSTM without sequence_lens, got in4"),
    (rows.Case("DynamicQuantizeLSTM", [*LSTM, None, None, None, np.ones((1, 9), np.float32), *SCALES], 1,
               {"hidden_size": 3}), "expected DynamicQuantizeLSTM without peepholes, got in7"),
    (rows.Case("DynamicQuantizeLSTM", [*LSTM, None, None, None, None, *SCALES], 1,
               {"hidden_size": 3, "activations": ["Relu", "Tanh", "Tanh"]}), "with its default activations, got Relu"),
    (rows.Case("TanhGrad", [X]), "TanhGrad n] lacks input 1"),
    (rows.Case("ConcatTraining", [X, None, X], 1, {"axis": 1}), "lacks one of its inputs"),
    (rows.Case("ConvGrad", [X, X, X], 3, {"strides": [2**62, 1]}), "expected strides, dilations and taps of 1 to"),
    (rows.Case("ConvGrad", [X, X, X], 3, {"dilations": [2, 2]}), "expected a window within x, got 7 for a size of 4"),
    (rows.Case("ConvGrad", [X, X, X], 3, {"group": 2}), "expected channels that fit 2 groups, got x [1,2,4,4]"),
    (rows.Case("ConvGrad", [X, X, X[:, :1]], 3, {"group": -2}), "expected channels that fit -2 groups"),
    (rows.Case("ConvGrad", [X, X, X], 3, {"auto_pad": "SAME_UPPER"}), "expected auto_pad NOTSET, got SAME_UPPER"),
    (rows.Case("ConvGrad", [X, X, X], 3, {"pads": [1]}), "expected strides, dilations and pads for 2 axes"),
    (rows.Case("ConvGrad", [X, X[0, 0], X], 3), "expected operand 1 of rank 3 or more, got 2"),
    (rows.Case("FusedMatMul", [X, X], 1, {"transBatchA": 1}), "expected transBatchA 0, got 1"),
    (rows.Case("GeluGrad", [X, X], 2), "expected at most 1 outputs, got 2"),
    (rows.Case("SoftmaxGrad_13", [X, X], 1, {"axis": 7}), "axis"),
]


@pytest.mark.parametrize("case, message", BAD, ids=lambda x: x if isinstance(x, str) else x.name)
def test_what_does_not_fit_is_named(case, message, tmp_path):
    onnx.save(case.model(), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", **case.feeds())
    error = run("run", tmp_path / "m.onnx", "--data", tmp_path / "in.npz", "-o", tmp_path / "o.npz", code=1).stderr
    assert message in error and error.count("\n") == 1
