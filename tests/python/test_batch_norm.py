# SPDX-License-Identifier: Apache-2.0
"""--batch-norm: normalize by the batch, by the running statistics, or as the file says; and how the statistics move."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import run
from safetensors.numpy import load_file

EPSILON, MOMENTUM = 1e-5, 0.75
SAMPLES, CHANNELS = 6, 4


def write_model(path, training):
    rng = np.random.default_rng(0)
    arrays = {"fc.weight": rng.normal(size=(5, CHANNELS)), "net.bn.weight": rng.uniform(0.5, 2, CHANNELS),
              "net.bn.bias": rng.normal(size=CHANNELS), "net.bn.running_mean": rng.normal(size=CHANNELS),
              "net.bn.running_var": rng.uniform(0.5, 2, CHANNELS)}
    names = ["h", *list(arrays)[1:]]
    outputs = ["y", "mean.new", "var.new"] if training else ["y"]
    nodes = [helper.make_node("MatMul", ["x", "fc.weight"], ["h"]),
             helper.make_node("BatchNormalization", names, outputs, epsilon=EPSILON, momentum=MOMENTUM,
                              training_mode=int(training))]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, ["batch", 5])],
                              [value("y", TensorProto.FLOAT, ["batch", CHANNELS])],
                              [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return {n: a.astype(np.float32).astype(float) for n, a in arrays.items()}


def write_data(path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(SAMPLES, 5)).astype(np.float32)
    labels = rng.normal(size=(SAMPLES, CHANNELS)).astype(np.float32)
    np.savez(path, x=x, labels=labels)
    return x.astype(float), labels.astype(float)


def normalized(h, mean, var, weights):
    return (h - mean) / np.sqrt(var + EPSILON) * weights["net.bn.weight"] + weights["net.bn.bias"]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mode", [None, "train", "eval"])
def test_loss_is_that_of_the_mode(tmp_path, training, mode):
    weights = write_model(tmp_path / "m.onnx", training)
    x, labels = write_data(tmp_path / "d.npz")
    flags = [] if mode is None else ["--batch-norm", mode]
    done = run("grad", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", SAMPLES, *flags,
               "-o", tmp_path / "g.npz")
    by_batch = training if mode is None else mode == "train"
    h = x @ weights["fc.weight"]
    mean, var = (h.mean(0), h.var(0)) if by_batch else (weights["net.bn.running_mean"], weights["net.bn.running_var"])
    want = ((normalized(h, mean, var, weights) - labels) ** 2).mean()
    np.testing.assert_allclose(np.load(tmp_path / "g.npz")["loss"], want, rtol=1e-5)
    said = "net.bn, as exported" in done.stderr and "--batch-norm train" in done.stderr
    assert said == (mode is None and not training), done.stderr


@pytest.mark.parametrize("training", [True, False])
def test_a_run_keeps_its_mode_and_moves_statistics_as_pytorch_does(tmp_path, training):
    weights = write_model(tmp_path / "m.onnx", training)
    x, labels = write_data(tmp_path / "d.npz")
    run("train", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", SAMPLES, "--steps", 1,
        "--lr", 0, "--batch-norm", "train", "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run/config.json").read_text())["flags"]["--batch-norm"] == ["train"]
    h = x @ weights["fc.weight"]
    mean = MOMENTUM * weights["net.bn.running_mean"] + (1 - MOMENTUM) * h.mean(0)
    var = MOMENTUM * weights["net.bn.running_var"] + (1 - MOMENTUM) * h.var(0, ddof=1)
    state = load_file(next((tmp_path / "run/checkpoints").glob("*/state.safetensors")))
    np.testing.assert_allclose(state["net.bn.running_mean"], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state["net.bn.running_var"], var, rtol=1e-5)
    run("export", tmp_path / "run", "-o", tmp_path / "trained.onnx")
    trained = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "trained.onnx").graph.initializer}
    np.testing.assert_array_equal(trained["net.bn.running_var"], state["net.bn.running_var"])
    done = run("eval", tmp_path / "run", "--data", tmp_path / "d.npz", "--json")
    want = ((normalized(h, mean, var, weights) - labels) ** 2).mean()
    assert json.loads(done.stdout)["loss"] == pytest.approx(want, rel=1e-4)
    run("train", "--resume", "--out", tmp_path / "run", "--steps", 2)
    again = load_file(tmp_path / "run/checkpoints" / (tmp_path / "run/latest").read_text().strip() / "state.safetensors")
    assert not np.array_equal(again["net.bn.running_var"], state["net.bn.running_var"])


def test_the_mode_is_said_where_a_step_is_made(tmp_path):
    write_model(tmp_path / "m.onnx", False)
    step = ["rewrite", tmp_path / "m.onnx", "-o", tmp_path / "step.onnx", "--shape", "batch=6"]
    assert "net.bn, as exported" in run(*step, "--loss", "mse").stderr
    assert "note" not in run(*step, "--loss", "mse", "--batch-norm", "train").stderr
    bound = {b.key for b in onnx.load(tmp_path / "step.onnx").training_info[0].update_binding}
    assert {"net.bn.running_mean", "net.bn.running_var"} <= bound
    assert "needs --loss" in run(*step[:4], "--batch-norm", "train", code=2).stderr
    inspected = ["inspect", tmp_path / "m.onnx", "--shape", "batch=6"]
    assert "net.bn, as exported" in run(*inspected).stdout
    rows = json.loads(run(*inspected, "--batch-norm", "train", "--json").stdout)["initializers"]
    assert {r["name"] for r in rows if r["role"] == "state"} == {"net.bn.running_mean", "net.bn.running_var"}
