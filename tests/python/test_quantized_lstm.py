# SPDX-License-Identifier: Apache-2.0
"""com.microsoft.DynamicQuantizeLSTM: `onnx-fp8 run` compared with stock onnxruntime."""
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import run

onnxruntime.set_default_logger_severity(4)
INPUT, HIDDEN = 4, 3


def arrays(directions, batch, dtype, columns):
    rng = np.random.default_rng(0)
    # On a CPU without VNNI onnxruntime adds two products of int8 in 16 bits: 7 bits of a weight are exact everywhere.
    low, high = (0, 255) if dtype == np.uint8 else (-64, 63)
    made = {name: rng.integers(low, high + 1, (directions, rows, 4 * HIDDEN)).astype(dtype)
            for name, rows in (("w", INPUT), ("r", HIDDEN))}
    scales = (directions, 4 * HIDDEN) if columns else (directions,)
    for name in "wr":
        made[name + "_scale"] = rng.uniform(0.003, 0.02, scales).astype(np.float32)
        made[name + "_zero"] = np.full(scales, 128 if dtype == np.uint8 else 0, dtype)
    made["b"] = rng.normal(size=(directions, 8 * HIDDEN)).astype(np.float32)
    for name in "hc":
        made[name] = rng.normal(size=(directions, batch, HIDDEN)).astype(np.float32)
    return made


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("form", ["int8", "uint8", "columns", "no_states", "no_bias"])
def test_as_onnxruntime(form, direction, tmp_path):
    dtype = np.uint8 if form == "uint8" else np.int8
    made = arrays(2 if direction == "bidirectional" else 1, 2, dtype, form == "columns")
    left_out = {"no_states": "hc", "no_bias": "b"}.get(form, "")
    names = ["x", "w", "r", "b", "", "h", "c", "", "w_scale", "w_zero", "r_scale", "r_zero"]
    names = ["" if name and name in left_out else name for name in names]
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y", "last_h", "last_c"], "lstm", domain="com.microsoft",
                            hidden_size=HIDDEN, direction=direction)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "lstm", [value("x", TensorProto.FLOAT, ["time", 2, INPUT])],
        [value(name, TensorProto.FLOAT, None) for name in node.output],
        [numpy_helper.from_array(array, name) for name, array in made.items() if name in names])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    x = np.random.default_rng(1).normal(size=(5, 2, INPUT)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x)
    run("run", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "-o", tmp_path / "y.npz")
    # With one thread the rows of a step are rounded together, as the operator's text says.
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    with np.load(tmp_path / "y.npz") as got:
        for name, expected in zip(node.output, session.run(None, {"x": x})):
            np.testing.assert_allclose(got[name], expected, rtol=0, atol=1e-6)
