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
    assert set(listed) <= {case.op for case in rows.CASES}


def test_an_operand_that_is_missing_is_named(tmp_path):
    case = rows.Case("TanhGrad", [np.ones((2, 3), np.float32)])
    onnx.save(case.model(), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", **case.feeds())
    error = run("run", tmp_path / "m.onnx", "--data", tmp_path / "in.npz", "-o", tmp_path / "o.npz", code=1).stderr
    assert "TanhGrad n] lacks input 1" in error
