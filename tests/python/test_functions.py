# SPDX-License-Identifier: Apache-2.0
"""Local functions have the meaning of their own opset and of their attributes' defaults, whatever opset the model has."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import run
from stock import stock_session

ROWS, WIDTH = 4, 6


def node(op, inputs, outputs, domain="", **attributes):
    return helper.make_node(op, inputs, outputs, f"node_{outputs[0]}", domain=domain, **attributes)


def mean_of_rows(opset):
    """x minus its rows' mean, through a branch, in the form of the opset: 13 has axes as attribute, 20 as input."""
    if opset < 18:
        mean = [node("ReduceMean", ["x"], ["mean"], axes=[1])]
    else:
        mean = [node("Constant", [], ["one"], value_ints=[1]), node("ReduceMean", ["x", "one"], ["mean"])]
    branch = helper.make_graph([*mean, node("Sub", ["x", "mean"], ["r"])], "branch", [],
                               [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)])
    nodes = [node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))),
             node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)]
    return helper.make_function("local", "LessMean", ["x"], ["y"], nodes, [helper.make_opsetid("", opset)])


def leaky(opset):
    """LeakyRelu with slope 0.5 unless the call gives another."""
    relu = node("LeakyRelu", ["x"], ["y"])
    relu.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    return helper.make_function("local", "Leaky", ["x"], ["y"], [relu], [helper.make_opsetid("", opset)],
                                attribute_protos=[helper.make_attribute("slope", 0.5)])


def write_model(path, model_opset, function_opset):
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("LessMean", ["a"], ["b"], "local"),
             node("Leaky", ["b"], ["c"], "local"), node("Leaky", ["c"], ["y"], "local", slope=0.25)]
    weight = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [ROWS, WIDTH])],
                              [info("y", TensorProto.FLOAT, [ROWS, WIDTH])], [numpy_helper.from_array(weight, "w")])
    imports = [helper.make_opsetid("", model_opset), helper.make_opsetid("local", 1)]
    functions = [mean_of_rows(function_opset), leaky(function_opset)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions), path)
    return weight


def expected(x, weight):
    a = x @ weight
    b = a - a.mean(axis=1, keepdims=True)
    c = np.where(b < 0, 0.5 * b, b)
    return np.where(c < 0, 0.25 * c, c)


@pytest.mark.parametrize("model_opset, function_opset", [(18, 18), (18, 13), (13, 20)])
def test_functions_mean_what_their_opset_says(tmp_path, model_opset, function_opset):
    weight = write_model(tmp_path / "m.onnx", model_opset, function_opset)
    x = np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x)
    run("run", "m.onnx", "--data", "d.npz", "-o", "out.npz", cwd=tmp_path)
    want = expected(x, weight)
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model_opset, function_opset", [(18, 13), (13, 20)])
def test_a_rewritten_model_keeps_them(tmp_path, model_opset, function_opset):
    """The opset rises to our bodies' opset: functions are inlined then, each node in its new form."""
    weight = write_model(tmp_path / "m.onnx", model_opset, function_opset)
    run("rewrite", "m.onnx", "-o", "fp8.onnx", "--recipe", "tensorwise", cwd=tmp_path)
    written = onnx.load(tmp_path / "fp8.onnx")
    assert not any(p.key == "onnx_fp8.opset" for n in written.graph.node for p in n.metadata_props)
    x = np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32)
    session = stock_session(tmp_path / "fp8.onnx")
    got, want = session.run(None, {"x": x})[0], expected(x, weight)
    assert 0 < np.linalg.norm(got - want) <= 0.1 * np.linalg.norm(want)
