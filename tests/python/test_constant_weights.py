# SPDX-License-Identifier: Apache-2.0
"""Weights in Constant nodes train like initializers."""
import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from program import FIXTURES, losses, run, write_batch, write_random
from safetensors.numpy import load_file

MLP = FIXTURES / "mlp" / "d18.onnx"
CE = ["--loss", "cross_entropy"]


def spell(tensor, name):
    """A Constant node that holds these numbers, in one of its forms."""
    array = numpy_helper.to_array(tensor)
    if array.dtype == np.float32 and array.ndim == 1:
        return helper.make_node("Constant", [], [name], value_floats=array.tolist())
    return helper.make_node("Constant", [], [name], value=tensor)


def with_constants(path, out, in_function=False):
    """The model with all initializers as Constant nodes, in the graph or in one function that holds everything."""
    model = onnx.load(path)
    graph = model.graph
    nodes = [spell(tensor, tensor.name) for tensor in graph.initializer] + list(graph.node)
    del graph.initializer[:]
    del graph.node[:]
    graph.node.extend(nodes)
    if in_function:
        ends = [value.name for value in graph.input], [value.name for value in graph.output]
        model.functions.append(helper.make_function("local", "whole", *ends, nodes, model.opset_import))
        del graph.node[:]
        graph.node.append(helper.make_node("whole", *ends, domain="local"))
        model.opset_import.append(helper.make_opsetid("local", 1))
    onnx.save(model, out)
    return out


@pytest.mark.parametrize("case", ["mlp", "nanogpt"])
def test_gradients_are_those_of_initializers(case, tmp_path):
    data = write_batch(case, tmp_path / "d.npz")
    plain = FIXTURES / case / "d18.onnx"
    models = {"plain": plain, "constants": with_constants(plain, tmp_path / "m.onnx")}
    for name, model in models.items():
        run("grad", model, "--data", data, *CE, "-o", tmp_path / f"{name}.safetensors")
    plain, constants = (load_file(tmp_path / f"{name}.safetensors") for name in models)
    assert plain.keys() == constants.keys()
    for name, array in plain.items():
        np.testing.assert_array_equal(constants[name], array, err_msg=name)


@pytest.mark.parametrize("in_function", [False, True])
def test_training_and_export(in_function, tmp_path):
    data = write_random(tmp_path / "d.npz", 32)
    model = with_constants(MLP, tmp_path / "m.onnx", in_function)
    for name, path in {"plain": MLP, "constants": model}.items():
        run("train", path, "--data", data, *CE, "--steps", 4, "--batch-size", 8, "--out", tmp_path / name)
    assert losses(tmp_path / "plain") == losses(tmp_path / "constants")
    out = tmp_path / "trained.onnx"
    run("export", tmp_path / "constants", "-o", out)
    run("export", tmp_path / "plain", "-o", tmp_path / "plain.onnx")
    trained = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "plain.onnx").graph.initializer}
    held = onnx.load(out).graph
    constants = [helper.get_node_attr_value(node, "value") for node in held.node
                 if node.op_type == "Constant" and node.attribute[0].name == "value"]
    constants = [numpy_helper.to_array(tensor) for tensor in constants]
    for name, array in trained.items():
        if array.dtype == np.float32 and array.size > 1:
            assert any(np.array_equal(array, constant) for constant in constants), name
    result = [json.loads(run("eval", path, "--data", data, *CE, "--json").stdout) for path in (out, tmp_path / "plain.onnx")]
    assert result[0]["loss"] == result[1]["loss"]


def test_inspect_and_rewrite_know_them(tmp_path):
    model = with_constants(MLP, tmp_path / "m.onnx")
    for path in (MLP, model):
        assert "Initializers: 6 of" in run("inspect", path).stdout
    run("rewrite", model, "-o", tmp_path / "fp8.onnx", "--recipe", "tensorwise")
    rewritten = onnx.load(tmp_path / "fp8.onnx")
    onnx.checker.check_model(rewritten)
    plain = tmp_path / "plain.onnx"
    run("rewrite", MLP, "-o", plain, "--recipe", "tensorwise")
    count = [sum(node.domain == "onnx_fp8" for node in m.graph.node) for m in (rewritten, onnx.load(plain))]
    assert count[0] == count[1] > 0
