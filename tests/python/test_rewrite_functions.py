# SPDX-License-Identifier: Apache-2.0
"""Forward rewrite of models with local functions: functions that hold a product of a weight are inlined, with the
functions that call them; the others stay."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from program import run
from stock import stock_session

WIDTH = 16


def node(op, inputs, output, domain=""):
    return helper.make_node(op, inputs, [output], f"node_{output}", domain=domain)


def function(name, inputs, *nodes):
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, inputs, ["y"], nodes, imports)


def write_model(path):
    functions = [
        function("Linear", ["x", "w"], node("MatMul", ["x", "w"], "y")),
        function("Block", ["x", "w"], node("Linear", ["x", "w"], "h", "local"), node("Relu", ["h"], "y")),
        function("Gram", ["x"], node("Transpose", ["x"], "t"), node("MatMul", ["x", "t"], "y")),
        function("Twice", ["x"], node("Add", ["x", "x"], "y"))]
    nodes = [node("Block", ["x", "w1"], "a", "local"), node("Gram", ["a"], "b", "local"),
             node("Twice", ["b"], "c", "local"), node("Relu", ["c"], "out")]
    # A mark like the rewriter's own, in a place where it has no meaning.
    nodes[-1].metadata_props.add(key="onnx_fp8.function", value="local/Gram")
    random = np.random.default_rng(0)
    weight = numpy_helper.from_array(random.normal(size=(WIDTH, WIDTH)).astype(np.float32), "w1")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [4, WIDTH])],
                              [info("out", TensorProto.FLOAT, [4, 4])], [weight])
    imports = [helper.make_opsetid("", 19), helper.make_opsetid("local", 1)]
    for f in functions:
        f.opset_import[0].version = 19
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions), path)


def output(path):
    session = stock_session(path)
    x = np.random.default_rng(1).normal(size=(4, WIDTH)).astype(np.float32)
    return session.run(None, {"x": x})[0]


def test_functions_with_a_weight_are_inlined_and_no_others(tmp_path):
    write_model(tmp_path / "m.onnx")
    done = run("rewrite", tmp_path / "m.onnx", "-o", tmp_path / "fp8.onnx", "--recipe", "tensorwise")
    assert "1 of 1 matrix products in FP8" in done.stdout
    model = onnx.load(tmp_path / "fp8.onnx")
    local = {f.name for f in model.functions if f.domain == "local"}
    assert {"Gram", "Twice"} <= local
    called = [n.op_type for n in model.graph.node if n.domain == "local"]
    assert called == ["Gram", "Twice"]
    assert not any(p.key == "onnx_fp8.function" for n in model.graph.node[:-1] for p in n.metadata_props)
    expected, got = output(tmp_path / "m.onnx"), output(tmp_path / "fp8.onnx")
    assert 0 < np.linalg.norm(expected - got) <= 0.2 * np.linalg.norm(expected)
