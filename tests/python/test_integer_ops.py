# SPDX-License-Identifier: Apache-2.0
"""Models that quantizers write: `onnx-fp8 run` compared with stock onnxruntime, code by code."""
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.loader import load_node_model_tests
from program import run

onnxruntime.set_default_logger_severity(4)
RNG = np.random.default_rng(0)
F32, U8, I8 = np.float32, np.uint8, np.int8


def node(op, inputs, outputs="y", **attributes):
    return helper.make_node(op, inputs.split(","), outputs.split(","), **attributes)


def codes(dtype, *shape):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def weights(*shape):
    """Weights of 7 bits: on CPUs without VNNI onnxruntime adds pairs of products in 16 bits, and saturates."""
    return RNG.integers(-64, 64, shape).astype(I8)


def floats(*shape):
    return RNG.normal(size=shape).astype(F32)


def scale(*shape):
    return RNG.uniform(.01, .03, shape).astype(F32)


def point(dtype, value):
    return np.array(value, dtype)


FACTORS = {"as": scale(), "az": point(U8, 131), "bs": scale(), "bz": point(I8, -3), "ys": F32(.9).reshape(()),
           "yz": point(U8, 119)}
# name: nodes, inputs, initializers
CASES = {
    "dynamic": ([node("DynamicQuantizeLinear", "x", "q,s,z"), node("MatMulInteger", "q,w,z,wz", "p"),
                 node("Cast", "p", "f", to=1), node("Mul", "f,s", "t"), node("Mul", "t,ws", "u"), node("Add", "u,b")],
                {"x": floats(3, 7, 16)},
                {"w": weights(16, 5), "wz": weights(5), "ws": scale(5), "b": floats(5)}),
    "quantize": ([node("QuantizeLinear", "x,s,z")], {"x": floats(40, 9)}, {"s": scale(), "z": point(U8, 120)}),
    "quantize_axis": ([node("QuantizeLinear", "x,s,z", axis=1)], {"x": floats(40, 9)}, {"s": scale(9), "z": codes(I8, 9)}),
    "dequantize": ([node("DequantizeLinear", "x,s,z", axis=0)], {"x": codes(I8, 9, 4)}, {"s": scale(9), "z": point(I8, [0] * 9)}),
    "dequantize_32": ([node("DequantizeLinear", "x,s")], {"x": np.array([2**31 - 1, -5, 16777217], np.int32)}, {"s": scale()}),
    "qdq": ([node("QuantizeLinear", "x,as,az", "q"), node("DequantizeLinear", "q,as,az", "d"),
             node("DequantizeLinear", "w,ws,wz", "e", axis=0), node("Conv", "d,e", pads=[1, 1, 1, 1])],
            {"x": floats(2, 3, 6, 5)},
            {**FACTORS, "w": weights( 4, 3, 3, 3), "ws": scale(4), "wz": point(I8, [0] * 4)}),
    "mat_mul_integer": ([node("MatMulInteger", "x,w,az,bz")], {"x": codes(U8, 6, 8)}, {**FACTORS, "w": weights( 8, 3)}),
    "mat_mul_integer_alone": ([node("MatMulInteger", "x,w")], {"x": codes(U8, 2, 6, 8)}, {"w": codes(U8, 8, 3)}),
    "conv_integer": ([node("ConvInteger", "x,w,az,wz", strides=[2, 1], pads=[1, 0, 1, 2], group=2)],
                     {"x": codes(U8, 2, 4, 7, 6)}, {**FACTORS, "w": codes(U8, 6, 2, 3, 3), "wz": point(U8, 7)}),
    "qlinear_mat_mul": ([node("QLinearMatMul", "x,as,az,w,bs,bz,ys,yz")], {"x": codes(U8, 6, 8)},
                        {**FACTORS, "w": weights( 8, 3)}),
    "qlinear_conv": ([node("QLinearConv", "x,as,az,w,ws,wz,ys,yz,b", auto_pad="SAME_UPPER", strides=[2, 2])],
                     {"x": codes(U8, 2, 4, 7, 6)},
                     {**FACTORS, "w": weights( 5, 4, 3, 3), "ws": scale(5), "wz": point(I8, [0] * 5),
                      "b": RNG.integers(-9000, 9000, 5).astype(np.int32)}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_code_is_that_of_onnxruntime(name, tmp_path):
    nodes, feeds, initializers = CASES[name]
    used = {i for n in nodes for i in n.input}
    infos = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for k, a in feeds.items()]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="y")],
                              [numpy_helper.from_array(np.asarray(a), k) for k, a in initializers.items() if k in used])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(proto, tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", **feeds)
    run("run", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "-o", tmp_path / "y.npz")
    options = onnxruntime.SessionOptions()
    # Otherwise onnxruntime replaces a Conv between Q and DQ nodes by another product.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected, = session.run(None, feeds)
    got = np.load(tmp_path / "y.npz")["y"]
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if got.dtype == F32:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("scales", ["float32", "float16"])
@pytest.mark.parametrize("form", ["2D", "3D"])
def test_codes_beyond_the_type_saturate(form, scales, tmp_path):
    """ONNX's own cases, whose expected results wrap around; tests/providers/onnx_node_cases.cc leaves them out."""
    name = f"test_qlinearmatmul_{form}_int8_{scales}"
    case, = (case for case in load_node_model_tests() if case.name == name)
    feeds = {info.name: array for info, array in zip(case.model.graph.input, case.data_sets[0][0])}
    onnx.save(case.model, tmp_path / "model.onnx")
    np.savez(tmp_path / "d.npz", **feeds)
    run("run", tmp_path / "model.onnx", "--data", tmp_path / "d.npz", "-o", tmp_path / "y.npz")
    expected, = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]).run(None, feeds)
    assert (expected == -128).any()
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], expected)
