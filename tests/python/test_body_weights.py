# SPDX-License-Identifier: Apache-2.0
"""Weights inside the bodies of Ifs, as Constant nodes or initializers, train like weights of the graph."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import metrics, run
from safetensors.numpy import load_file
from stock import stock_session

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
value = helper.make_tensor_value_info
WIDTHS = {8000: 5, 16000: 9}
FLAGS = ["--loss", "mse", "--batch-size", 8]
# The two deciders of a branch: the value of an input, or data.
FORMS = {"value": [helper.make_node("Equal", ["sr", "rate"], ["c"])],
         "data": [helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
                  helper.make_node("Greater", ["top", "limit"], ["c"])]}


def weights(rate):
    rng, hidden = np.random.default_rng(rate), WIDTHS[rate]
    shapes = {"in": (6, hidden), "deep": (hidden, hidden), "out": (hidden, 2)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def constant(array, name):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))


def branch(rate, mark):
    """tanh(x · in) · deep · out: a Constant node, one in the body of another If, and an initializer of the body."""
    held = weights(rate)
    names = {name: name + mark.format(rate) for name in held}
    deep = helper.make_graph([constant(held["deep"], names["deep"]), helper.make_node("MatMul", ["t", names["deep"]], ["d"])],
                             "deep", [], [value("d", FLOAT, None)])
    flat = helper.make_graph([helper.make_node("Identity", ["t"], ["same"])], "flat", [], [value("same", FLOAT, None)])
    nodes = [constant(held["in"], names["in"]), helper.make_node("MatMul", ["x", names["in"]], ["h"]),
             helper.make_node("Tanh", ["h"], ["t"]), constant(np.array(True), "yes"),
             helper.make_node("If", ["yes"], ["u"], then_branch=deep, else_branch=flat),
             helper.make_node("MatMul", ["u", names["out"]], ["y"])]
    return helper.make_graph(nodes, f"at_{rate}", [], [value("y", FLOAT, None)],
                             [numpy_helper.from_array(held["out"], names["out"])])


def write_model(path, form, mark, in_function=False):
    """`mark` ends the names of weights; without it both branches use the same names."""
    nodes = [constant(np.array(16000), "rate"), constant(np.float32(0), "limit"), *FORMS[form],
             helper.make_node("If", ["c"], ["z"], then_branch=branch(16000, mark), else_branch=branch(8000, mark))]
    opset = helper.make_opsetid("", 18)
    model = helper.make_model(
        helper.make_graph(nodes, "rates", [value("x", FLOAT, [8, 6]), value("sr", INT64, [])], [value("z", FLOAT, [8, 2])]),
        opset_imports=[opset], ir_version=9)
    if in_function:
        model.functions.append(helper.make_function("local", "whole", ["x", "sr"], ["z"], nodes, [opset]))
        del model.graph.node[:]
        model.graph.node.append(helper.make_node("whole", ["x", "sr"], ["z"], domain="local"))
        model.opset_import.append(helper.make_opsetid("local", 1))
    onnx.save(model, path)
    return path


def batch(rate):
    rng = np.random.default_rng(1)
    x = rng.uniform(0.1, 1, (8, 6)) * (1 if rate == 16000 else -1)
    return {"x": x.astype(np.float32), "sr": np.array(rate), "labels": rng.normal(size=(8, 2)).astype(np.float32)}


def expected_gradients(rate):
    data = {name: array.astype(float) for name, array in batch(rate).items()}
    w = {name: array.astype(float) for name, array in weights(rate).items()}
    t = np.tanh(data["x"] @ w["in"])
    u = t @ w["deep"]
    dy = 2 * (u @ w["out"] - data["labels"]) / data["labels"].size
    du = dy @ w["out"].T
    dh = du @ w["deep"].T * (1 - t * t)
    return {"out": u.T @ dy, "deep": t.T @ du, "in": data["x"].T @ dh}


def held_tensors(graph):
    """Each tensor of two axes in the graph and its bodies, by its place."""
    found = {f"{graph.name}/{t.name}": numpy_helper.to_array(t) for t in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= {f"{graph.name}/{k}": v for k, v in held_tensors(attribute.g).items()}
            elif node.op_type == "Constant":
                found[f"{graph.name}/{node.output[0]}"] = numpy_helper.to_array(attribute.t)
    return {name: array for name, array in found.items() if array.ndim == 2}


@pytest.mark.parametrize("mark", ["{}", ""], ids=["own_names", "same_names"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rate", WIDTHS)
def test_gradients_are_those_of_the_mathematics(form, rate, mark, tmp_path):
    np.savez(tmp_path / "d.npz", **batch(rate))
    model = write_model(tmp_path / "m.onnx", form, mark)
    run("grad", model, "--data", tmp_path / "d.npz", *FLAGS, "-o", tmp_path / "g.safetensors")
    got = {name: array for name, array in load_file(tmp_path / "g.safetensors").items() if name.startswith("grad.")}
    taken = {name: array for name, array in got.items() if WIDTHS[rate] in array.shape}
    assert len(got) == (3 if form == "value" else 6) and len(taken) == 3
    for name, want in expected_gradients(rate).items():
        array, = (array for full, array in taken.items() if full.startswith(f"grad.{name}"))
        np.testing.assert_allclose(array, want, rtol=1e-4, atol=1e-5, err_msg=name)
    for name in got.keys() - taken.keys():
        np.testing.assert_array_equal(got[name], 0, err_msg=name)


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("mark", ["{}", ""], ids=["own_names", "same_names"])
@pytest.mark.parametrize("form", FORMS)
def test_export_puts_them_back(form, mark, in_function, tmp_path):
    rate = 16000
    data = batch(rate)
    np.savez(tmp_path / "d.npz", **data)
    model = write_model(tmp_path / "m.onnx", form, mark, in_function)
    # Other optimizers move weights without a gradient too.
    run("train", model, "--data", tmp_path / "d.npz", *FLAGS, "--steps", 3, "--lr", 0.01, "--optimizer", "sgd", "--out",
        tmp_path / "run")
    exported = tmp_path / "trained.onnx"
    run("export", tmp_path / "run", "-o", exported)
    onnx.checker.check_model(onnx.load(exported))
    evaluate = ["--data", tmp_path / "d.npz", "--json"]
    losses = [json.loads(run("eval", path, *flags, *evaluate).stdout)["loss"]
              for path, flags in [(tmp_path / "run", []), (exported, FLAGS), (model, FLAGS)]]
    assert losses[0] == losses[1] < losses[2]
    session = stock_session(exported)
    feeds = {i.name: data[i.name] for i in session.get_inputs()}
    np.testing.assert_allclose(np.mean((session.run(None, feeds)[0] - data["labels"]) ** 2), losses[0], rtol=1e-5)
    if in_function:
        return  # it is inlined, and the names are different
    before, after = (held_tensors(onnx.load(path).graph) for path in (model, exported))
    assert len(before) == len(after) == 6
    # The weights of the other branch stay the same bit for bit.
    moved = [x.shape for x in after.values() if not any(np.array_equal(x, y) for y in before.values())]
    assert sorted(moved) == sorted(w.shape for w in weights(rate).values())
    if mark:
        assert before.keys() == after.keys()


def test_the_other_branch_is_said_to_be_unused(tmp_path):
    model = write_model(tmp_path / "m.onnx", "value", "{}")
    rows = json.loads(run("inspect", model, "--value", "sr=8000", "--loss", "mse", "--json").stdout)["initializers"]
    assert {row["name"]: row["role"] for row in rows if row["role"] != "constant"} == {
        f"{name}{rate}": "trained" if rate == 8000 else "unused" for name in weights(8000) for rate in WIDTHS}
    assert {row["reason"] for row in rows if row["role"] == "unused"} == {
        "unused: in a branch that is not taken where sr=8000"}
    np.savez(tmp_path / "d.npz", **batch(8000))
    done = run("train", model, "--data", tmp_path / "d.npz", *FLAGS, "--steps", 2, "--out", tmp_path / "run")
    note, = (line for line in done.stderr.splitlines() if "not trained" in line)
    assert "3 of the parameters" in note and "16000 is one" in note and "sr=8000" in note
    state = load_file(next((tmp_path / "run/checkpoints").glob("*/state.safetensors")))
    for rate in WIDTHS:
        for name, array in weights(rate).items():
            assert np.array_equal(state[f"{name}{rate}"], array) == (rate == 16000), name
    assert metrics(tmp_path / "run")


@pytest.mark.parametrize("form, product", [("value", True), ("data", True), ("data", False)])
@pytest.mark.parametrize("rate", WIDTHS)
def test_a_weight_that_an_if_chooses(form, product, rate, tmp_path):
    """The branches compute nothing: they return weights. A product follows, or nothing that meets data."""
    shape = [6, 2] if product else [8, 2]
    held = {rate: np.random.default_rng(rate).normal(size=shape).astype(np.float32) for rate in WIDTHS}
    bodies = {f"{key}_branch": helper.make_graph([constant(held[rate], f"w{rate}")], key, [], [value(f"w{rate}", FLOAT, shape)])
              for key, rate in [("then", 16000), ("else", 8000)]}
    nodes = [constant(np.array(16000), "rate"), constant(np.float32(0), "limit"), *FORMS[form],
             helper.make_node("If", ["c"], ["w"], **bodies),
             helper.make_node("MatMul", ["x", "w"], ["z"]) if product else helper.make_node("Neg", ["w"], ["z"])]
    graph = helper.make_graph(nodes, "g", [value("x", FLOAT, [8, 6]), value("sr", INT64, [])], [value("z", FLOAT, [8, 2])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    data = batch(rate)
    np.savez(tmp_path / "d.npz", **data)
    run("grad", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", *FLAGS, "-o", tmp_path / "g.safetensors")
    got = load_file(tmp_path / "g.safetensors")
    x = data["x"].astype(float) if product else -np.eye(8)
    want = x.T @ (2 * (x @ held[rate] - data["labels"]) / data["labels"].size)
    np.testing.assert_allclose(got[f"grad.w{rate}"], want, rtol=1e-4, atol=1e-5)
    other = f"grad.w{24000 - rate}"
    assert other not in got if form == "value" else not got[other].any()
