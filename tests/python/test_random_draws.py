# SPDX-License-Identifier: Apache-2.0
"""Each node that draws, and each of its iterations in a Loop or a Scan, draws numbers of its own."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from program import losses, run

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
TURNS, WIDTH = 6, 32
node, value = helper.make_node, helper.make_tensor_value_info


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


HALVES = constant("halves", np.full(WIDTH, 0.5, np.float32))
CONSTANTS = [constant("turns", np.int64(TURNS)), constant("yes", np.bool_(True)), HALVES,
             constant("half", np.float32(0.5)), constant("steps", np.zeros((TURNS, 1), np.float32))]
OPS = {
    "RandomNormal": ([], {"shape": [WIDTH]}),
    "RandomUniform": ([], {"shape": [WIDTH]}),
    "RandomNormalLike": (["halves"], {}),
    "RandomUniformLike": (["halves"], {}),
    "Bernoulli": (["halves"], {}),
    "Dropout": (["halves", "half", "yes"], {}),
}


def draw(op, result, name="draw", seed=None):
    inputs, attributes = OPS[op]
    if seed is not None:
        attributes = attributes | {"seed": seed if op == "Dropout" else float(seed)}
    return node(op, inputs, [result], name=name, **attributes)


def loop(inner, result="y", turns="turns", name="loop"):
    """Stacks the value `r` that the nodes make in each iteration."""
    body = helper.make_graph(
        [*inner, node("Identity", ["c"], ["going"])], "body", [value("i", INT64, []), value("c", BOOL, [])],
        [value("going", BOOL, []), value("r", FLOAT, None)])
    return node("Loop", [turns, "yes"], [result], name=name, body=body)


def scan(inner, result="y"):
    body = helper.make_graph(inner, "body", [value("step", FLOAT, [1])], [value("r", FLOAT, None)])
    return node("Scan", ["steps"], [result], body=body, num_scan_inputs=1)


def rows(nodes, folder, outputs=("y",), seed=None):
    graph = helper.make_graph(
        nodes, "g", [value("x", FLOAT, [1])], [value(name, FLOAT, None) for name in outputs], CONSTANTS)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "m.onnx")
    np.savez(folder / "x.npz", x=np.zeros(1, np.float32))
    run("run", folder / "m.onnx", "--data", folder / "x.npz", "-o", folder / "y.npz")
    made = np.load(folder / "y.npz")
    return np.concatenate([made[name].reshape(-1, WIDTH) for name in outputs])


def assert_distinct(table):
    assert len({row.tobytes() for row in table}) == len(table)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("around", [loop, scan])
@pytest.mark.parametrize("op", OPS)
def test_iterations_draw_different_numbers(op, around, seed, tmp_path):
    table = rows([around([draw(op, "r", seed=seed)])], tmp_path)
    assert len(table) == TURNS
    assert_distinct(table)
    again = rows([around([draw(op, "r", seed=seed)])], tmp_path)
    np.testing.assert_array_equal(again, table)


@pytest.mark.parametrize("seed", [None, 3])
def test_nested_loops(seed, tmp_path):
    inner = loop([draw("RandomNormal", "r", seed=seed)], result="r", name="inner")
    table = rows([loop([inner])], tmp_path)
    assert len(table) == TURNS * TURNS
    assert_distinct(table)


def test_nodes_of_one_name_draw_different_numbers(tmp_path):
    nodes = [draw("RandomNormal", "a"), draw("RandomNormal", "b"), draw("RandomNormal", "c", name="draw#1"),
             loop([draw("RandomNormal", "r")])]
    assert_distinct(rows(nodes, tmp_path, outputs=("a", "b", "c", "y")))


def test_nodes_of_one_seed_draw_the_same(tmp_path):
    nodes = [draw("RandomNormal", "a", name="p", seed=5), draw("RandomNormal", "b", name="q", seed=5)]
    a, b = rows(nodes, tmp_path, outputs=("a", "b"))
    np.testing.assert_array_equal(a, b)


# A name that only one node has gives the draws of earlier versions.
def test_the_first_node_keeps_its_draws(tmp_path):
    alone = rows([draw("RandomNormal", "a")], tmp_path, outputs=("a",))
    both = rows([draw("RandomNormal", "a"), draw("RandomNormal", "b")], tmp_path, outputs=("a", "b"))
    looped = rows([loop([draw("RandomNormal", "r")])], tmp_path)
    np.testing.assert_array_equal(both[0], alone[0])
    np.testing.assert_array_equal(looped[0], alone[0])


def test_a_resumed_run_draws_the_same(tmp_path):
    """Dropout in a Loop, trained in one go and in two."""
    rng = np.random.default_rng(0)
    inner = [node("MatMul", ["h", "w"], ["p"]), node("Dropout", ["p", "half", "yes"], ["d"], name="drop"),
             node("Identity", ["c"], ["going"])]
    body = helper.make_graph(inner, "body", [value("i", INT64, []), value("c", BOOL, []), value("h", FLOAT, None)],
                             [value("going", BOOL, []), value("d", FLOAT, None)])
    graph = helper.make_graph(
        [node("Loop", ["turns", "yes", "x"], ["y"], name="loop", body=body)], "g", [value("x", FLOAT, ["n", 8])],
        [value("y", FLOAT, ["n", 8])],
        [*CONSTANTS, constant("w", (np.eye(8) + 0.1 * rng.normal(size=(8, 8))).astype(np.float32))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    x = rng.normal(size=(16, 8)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, labels=2 * x)
    common = ["train", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mse", "--lr", "1e-3",
              "--batch-size", "8"]
    run(*common, "--steps", "6", "--out", tmp_path / "whole")
    run(*common, "--steps", "3", "--out", tmp_path / "parts")
    run("train", "--resume", "--out", tmp_path / "parts", "--steps", "6")
    whole = losses(tmp_path / "whole")
    assert whole == losses(tmp_path / "parts")
    assert len(whole) == 6
