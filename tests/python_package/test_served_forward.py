# SPDX-License-Identifier: Apache-2.0
"""Forwards that a session writes for programs that serve them, in stock onnxruntime."""
import digits
import numpy as np
import onnxruntime
import pytest

import onnx_fp8

GPT = digits.ROOT / "samples/gpt_tiny/gpt_tiny.onnx"


def tokens(seed, samples=2, length=24):
    ids = np.random.default_rng(seed).integers(0, 256, (samples, length + 1))
    return ids[:, :-1], ids[:, 1:]


# Attention, norms, GELU and biases, each rounded to 16 bits as evaluations round it.
@pytest.mark.parametrize("dtype,recipe", [("bfloat16", "tensorwise"), ("bfloat16", "delayed"), ("float16", "rowwise")])
def test_a_forward_rounds_what_an_evaluation_rounds(dtype, recipe, tmp_path):
    session = onnx_fp8.TrainingSession(GPT, loss="cross_entropy", recipe=recipe, dtype=dtype, lr=1e-3)
    ids, labels = tokens(0)
    for _ in range(2):
        session.step({"input_ids": ids, "labels": labels})
    remarks = session.export(tmp_path / "served.onnx", format="onnx-fp8")
    assert not any("node by node" in remark for remark in remarks), remarks
    feeds = {"input_ids": tokens(1)[0]}
    expected, = session.predict(feeds).values()
    stock = onnxruntime.InferenceSession(tmp_path / "served.onnx", providers=["CPUExecutionProvider"])
    got, = stock.run(None, feeds)
    assert (got != expected).mean() < 0.02
