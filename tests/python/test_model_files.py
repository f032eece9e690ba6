# SPDX-License-Identifier: Apache-2.0
"""Odd files that stock onnxruntime reads: `onnx-fp8 run` gives the same results."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import run
from stock import stock_session

BYTES = bytes([0, 1, 2, 255])


def save(nodes, path, initializers=(), ir_version=8, **options):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "odd", [value("x", TensorProto.FLOAT, [4])], [value("y", TensorProto.FLOAT, None)],
                              list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=ir_version)
    onnx.save(model, path, **options)


def check(folder, twin="m.onnx"):
    """Compares with stock onnxruntime's result of `twin`."""
    x = np.array([1, -2, 3, -4], np.float32)
    np.savez(folder / "d.npz", x=x)
    run("run", folder / "m.onnx", "--data", folder / "d.npz", "-o", folder / "y.npz")
    session = stock_session(folder / twin)
    np.testing.assert_array_equal(np.load(folder / "y.npz")["y"], session.run(None, {"x": x})[0])


USES = {"Where": [helper.make_node("Where", ["b", "x", "zero"], ["y"])],
        "Cast": [helper.make_node("Cast", ["b"], ["c"], to=1), helper.make_node("Mul", ["c", "x"], ["y"])],
        "Equal": [helper.make_node("Equal", ["b", "yes"], ["e"]), helper.make_node("Where", ["e", "x", "zero"], ["y"])],
        "Not": [helper.make_node("Not", ["b"], ["n"]), helper.make_node("Where", ["n", "x", "zero"], ["y"])],
        "Compress": [helper.make_node("Compress", ["x", "b"], ["y"])]}


@pytest.mark.parametrize("form", ["raw", "fields", "external"])
@pytest.mark.parametrize("use", USES)
def test_bytes_of_bools(use, form, tmp_path):
    bools = TensorProto(name="b", data_type=TensorProto.BOOL, dims=[4])
    if form == "fields":
        bools.int32_data.extend([0, 1, 256, -1])
    else:
        bools.raw_data = BYTES
    initializers = [bools, numpy_helper.from_array(np.float32(0), "zero"), numpy_helper.from_array(np.array(True), "yes")]
    # onnxruntime takes such bytes of external data for numbers of elements, and reads past the end.
    save(USES[use], tmp_path / "twin.onnx", initializers)
    external = dict(save_as_external_data=True, location="m.data", size_threshold=0) if form == "external" else {}
    save(USES[use], tmp_path / "m.onnx", initializers, **external)
    check(tmp_path, "twin.onnx")


@pytest.mark.parametrize("ir_version", [1, 2, 3, 13])
def test_ir_versions(ir_version, tmp_path):
    two = numpy_helper.from_array(np.float32(2), "two")
    save([helper.make_node("Mul", ["x", "two"], ["y"])], tmp_path / "m.onnx", [two], ir_version)
    check(tmp_path)


def test_both_names_of_the_onnx_domain(tmp_path):
    save([helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")], tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    model.opset_import.append(helper.make_opsetid("ai.onnx", 18))
    onnx.save(model, tmp_path / "m.onnx")
    check(tmp_path)
