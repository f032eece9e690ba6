# SPDX-License-Identifier: Apache-2.0
"""Chains of many nodes: no command may recurse over a graph's depth.

Chains run on a small stack, which stands for longer chains: 80 bytes for each node would overflow it."""
import resource

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference
from safetensors.numpy import load_file

from program import run

FLOAT = TensorProto.FLOAT
LENGTH, STACK = 2_000, 160 << 10
SHAPE = (3, 3)


def info(name, shape=SHAPE):
    return helper.make_tensor_value_info(name, FLOAT, shape)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def model(nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def link(op, before, after):
    attributes = {"to": FLOAT} if op == "Cast" else {}
    return helper.make_node(op, [before], [after], **attributes)


def chain(op, before, after, length):
    names = [before, *(f"{after}.{i}" for i in range(1, length)), after]
    return [link(op, a, b) for a, b in zip(names, names[1:])]


def keeps_the_type(op):
    """Whether the op's result may be its operand again."""
    made = model([link(op, "x", "y")], [info("x")], [info("y")])
    try:
        onnx.checker.check_model(made)
        shape_inference.infer_shapes(made, strict_mode=True)
    except (onnx.checker.ValidationError, shape_inference.InferenceError):
        return False
    return True


def one_input_ops():
    def takes_floats(schema):
        return (schema.domain == "" and not schema.deprecated and schema.min_input <= 1 <= schema.max_input
                and schema.min_output == 1 and "tensor(float)" in schema.inputs[0].types
                and "tensor(float)" in schema.outputs[0].types)

    names = {schema.name for schema in defs.get_all_schemas() if takes_floats(schema)}
    others = {"GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool",  # of images
              "OptionalGetElement"}  # of a type that training has not
    return sorted(name for name in names - others if keeps_the_type(name))


OPS = one_input_ops()


def test_the_list_of_ops():
    assert {"Transpose", "Identity", "Cast", "Relu", "Neg", "Flatten", "Softmax", "Dropout", "Sum"} <= set(OPS)
    assert len(OPS) >= 50


def small_stack():
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))


COMMANDS = {
    "inspect": ["inspect", "m.onnx", "--json"],
    "rewrite": ["rewrite", "m.onnx", "-o", "step.onnx", "--loss", "output:y", "--optimizer", "sgd"],
    "grad": ["grad", "m.onnx", "--data", "d.npz", "--loss", "output:y", "-o", "g.safetensors"],
}


@pytest.mark.parametrize("op", OPS)
def test_a_chain_of_an_op(op, tmp_path):
    nodes = [helper.make_node("Mul", ["x", "w"], ["h"]), *chain(op, "h", "deep", LENGTH),
             helper.make_node("Add", ["deep", "w"], ["sum"]),  # ops without a gradient leave one parameter
             helper.make_node("ReduceMean", ["sum"], ["y"], keepdims=0)]
    w = np.linspace(0.1, 0.9, 9, dtype=np.float32).reshape(SHAPE)
    onnx.save(model(nodes, [info("x")], [info("y", [])], [constant("w", w)]), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.full(SHAPE, 0.5, np.float32))
    for command in COMMANDS.values():
        run(*command, cwd=tmp_path, preexec_fn=small_stack)


def attention(folder, q_chain=0, p_chain=0, length=16):
    """softmax(q kᵀ) v, with chains of Transposes in front of q and in front of the second product."""
    shape = (1, 2, length, 4)
    nodes = [helper.make_node("Mul", ["x", "w"], ["h"])]
    turned = {"q": "h", "p": "weights"}
    for name, count in ("q", q_chain), ("p", p_chain):
        if name == "p":
            nodes += [helper.make_node("Transpose", ["h"], ["kt"], perm=[0, 1, 3, 2]),
                      helper.make_node("MatMul", [turned["q"], "kt"], ["scores"]),
                      helper.make_node("Softmax", ["scores"], ["weights"], axis=-1)]
        for i in range(count):
            nodes.append(helper.make_node("Transpose", [turned[name]], [f"{name}.{i}"], perm=[0, 1, 3, 2]))
            turned[name] = f"{name}.{i}"
    nodes += [helper.make_node("MatMul", [turned["p"], "h"], ["out"]),
              helper.make_node("ReduceMean", ["out"], ["y"], keepdims=0)]
    w = np.linspace(0.5, 1, 4, dtype=np.float32)
    onnx.save(model(nodes, [info("x", shape)], [info("y", [])], [constant("w", w)]), folder / "m.onnx")
    np.savez(folder / "d.npz", x=np.random.default_rng(0).normal(size=shape).astype(np.float32))


def gradient(folder):
    for command in COMMANDS.values():
        run(*command, cwd=folder, preexec_fn=small_stack)
    return load_file(folder / "g.safetensors")["grad.w"]


@pytest.mark.parametrize("place, count", [("q_chain", 30_000), ("p_chain", 10_000)])
def test_transposes_beside_attention(place, count, tmp_path):
    attention(tmp_path)
    want = gradient(tmp_path)
    attention(tmp_path, **{place: count})
    np.testing.assert_allclose(gradient(tmp_path), want, rtol=1e-5, atol=1e-7)
