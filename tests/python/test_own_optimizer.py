# SPDX-License-Identifier: Apache-2.0
"""Runs with an optimizer in a file (`--optimizer FILE.onnx`)."""
import json

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from program import metrics, run
from safetensors.numpy import load_file


def write_case(folder):
    """y = x + b with a loss of y, and plain SGD with momentum 0.5 as a file."""
    value = helper.make_tensor_value_info
    opset = [helper.make_opsetid("", 18)]
    graph = helper.make_graph([helper.make_node("Add", ["x", "b"], ["y"])], "g",
                              [value("x", TensorProto.FLOAT, ["n", 3])], [value("y", TensorProto.FLOAT, ["n", 3])],
                              [numpy_helper.from_array(np.zeros(3, np.float32), "b")])
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "m.onnx")
    names = ["param", "grad", "lr", "m"]
    shapes = {"lr": []}
    nodes = [helper.make_node("Mul", ["m", "half"], ["decayed"]), helper.make_node("Add", ["decayed", "grad"], ["m_next"]),
             helper.make_node("Mul", ["m_next", "lr"], ["move"]), helper.make_node("Sub", ["param", "move"], ["next"])]
    rule = helper.make_graph(nodes, "sgd", [value(name, TensorProto.FLOAT, shapes.get(name, ["k"])) for name in names],
                             [value(name, TensorProto.FLOAT, ["k"]) for name in ("next", "m_next")],
                             [numpy_helper.from_array(np.array(0.5, np.float32), "half")])
    onnx.save(helper.make_model(rule, opset_imports=opset, ir_version=9), folder / "rule.onnx")
    rng = np.random.default_rng(0)
    np.savez(folder / "d.npz", **{name: rng.normal(size=(4, 3)).astype(np.float32) for name in ("x", "labels")})


def test_a_run_keeps_the_file(tmp_path):
    write_case(tmp_path)
    words = ["train", "m.onnx", "--data", "d.npz", "--loss", "mse", "--batch-size", 4, "--lr", 0.5]
    run(*words, "--steps", 3, "--optimizer", "sgd", "--momentum", 0.5, "--out", "known", cwd=tmp_path)
    run(*words, "--steps", 2, "--optimizer", "rule.onnx", "--out", "run", cwd=tmp_path)
    (tmp_path / "rule.onnx").unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    run("train", "--resume", "--out", "moved", "--steps", 3, cwd=tmp_path)
    got, wanted = ([line["loss"] for line in metrics(tmp_path / name)] for name in ("moved", "known"))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    json.loads(run("eval", "moved", "--data", "d.npz", "--json", cwd=tmp_path).stdout)
    rule = tmp_path / "moved" / "optimizer" / "rule.onnx"
    rule.write_bytes(rule.read_bytes() + b"\0")
    done = run("train", "--resume", "--out", "moved", "--steps", 4, cwd=tmp_path, code=1)
    assert "optimizer/rule.onnx] is not the file that the run was started with" in done.stderr


def test_states_go_with_their_optimizer(tmp_path):
    write_case(tmp_path)
    words = ["train", "m.onnx", "--data", "d.npz", "--loss", "mse", "--batch-size", 4, "--steps", 1, "--out", "run"]
    run(*words, "--optimizer", "rule.onnx", cwd=tmp_path)
    held = {"b", "optimizer.step", "optimizer.skipped"}
    for steps, optimizer, states in ((2, "rule.onnx", {"b.m"}), (3, "sgd", set()), (4, "adamw", {"b.exp_avg", "b.exp_avg_sq"}),
                                     (5, "rule.onnx", {"b.m"})):
        done = run("train", "--resume", "--out", "run", "--steps", steps, "--optimizer", optimizer, cwd=tmp_path)
        state = tmp_path / "run" / "checkpoints" / f"step_{steps:08}" / "state.safetensors"
        assert set(load_file(state)) == held | states, optimizer
        dropped = {3: 1, 5: 2}.get(steps)
        assert (f"{dropped} moments of the optimizer before are dropped" in done.stderr) == bool(dropped), optimizer
