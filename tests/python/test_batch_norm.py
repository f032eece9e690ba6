# SPDX-License-Identifier: Apache-2.0
"""--batch-norm: normalize by the batch, by the running statistics, or as the file says; and how the statistics move."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import run
from safetensors.numpy import load_file, save_file
from stock import stock_session

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


def write_dropping(path, opset, function):
    """x → product → BatchNormalization → Dropout, both in training mode; the next mean is an output of the model."""
    rng = np.random.default_rng(0)
    arrays = {"fc.weight": rng.normal(size=(5, CHANNELS)), "bn.weight": rng.uniform(0.5, 2, CHANNELS),
              "bn.bias": rng.normal(size=CHANNELS), "bn.running_mean": rng.normal(size=CHANNELS),
              "bn.running_var": rng.uniform(0.5, 2, CHANNELS)}
    norm, drop = ["h", *list(arrays)[1:]], ["z", "", "on"] if opset >= 12 else ["z"]
    outputs = ["z", "mean.new", "var.new", *([] if opset >= 14 else ["saved.mean", "saved.var"])]
    nodes = [helper.make_node("BatchNormalization", norm, outputs, epsilon=EPSILON, momentum=MOMENTUM,
                              **({"training_mode": 1} if opset >= 14 else {})),
             helper.make_node("Dropout", drop, ["y"])]
    on = [helper.make_node("Constant", [], ["on"], value=numpy_helper.from_array(np.array(True)))] if opset >= 12 else []
    imports, functions = [helper.make_opsetid("", opset)], []
    if function:
        functions = [helper.make_function("mine", "Block", norm, ["y", "mean.new"], on + nodes, imports)]
        nodes, on = [helper.make_node("Block", norm, ["y", "mean.new"], domain="mine")], []
        imports = [*imports, helper.make_opsetid("mine", 1)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "fc.weight"], ["h"]), *on, *nodes], "g",
                              [value("x", TensorProto.FLOAT, ["batch", 5])],
                              [value("y", TensorProto.FLOAT, ["batch", CHANNELS]),
                               value("mean.new", TensorProto.FLOAT, [CHANNELS])],
                              [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()])
    onnx.save(helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=8), path)


@pytest.mark.parametrize("opset, function", [(18, False), (18, True), (13, False), (11, False), (9, False)])
def test_a_model_is_exported_in_evaluation_mode(tmp_path, opset, function):
    write_dropping(tmp_path / "m.onnx", opset, function)
    write_data(tmp_path / "d.npz")
    run("train", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", SAMPLES, "--steps", 3,
        "--lr", 0.01, "--out", tmp_path / "run")
    run("export", tmp_path / "run", "-o", tmp_path / "t.onnx", tmp_path / "w.safetensors")
    weights = load_file(tmp_path / "w.safetensors")
    assert weights["bn.num_batches_tracked"] == 3 and weights["bn.num_batches_tracked"].dtype == np.int64
    onnx.checker.check_model(onnx.load(tmp_path / "t.onnx"), full_check=True)
    data = np.load(tmp_path / "d.npz")
    stock = stock_session(tmp_path / "t.onnx")
    y, mean = stock.run(None, {"x": data["x"]})
    loss = json.loads(run("eval", tmp_path / "run", "--data", tmp_path / "d.npz", "--json").stdout)["loss"]
    assert ((y - data["labels"]) ** 2).mean() == pytest.approx(loss, rel=1e-4)
    np.testing.assert_array_equal(mean, weights["bn.running_mean"])
    want = data["x"] @ weights["fc.weight"] - weights["bn.running_mean"]
    want = want / np.sqrt(weights["bn.running_var"] + EPSILON) * weights["bn.weight"] + weights["bn.bias"]
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


def test_a_step_is_exported_as_it_is(tmp_path):
    write_dropping(tmp_path / "m.onnx", 18, False)
    write_data(tmp_path / "d.npz")
    run("rewrite", tmp_path / "m.onnx", "-o", tmp_path / "step.onnx", "--shape", f"batch={SAMPLES}", "--loss", "mse")
    run("train", tmp_path / "step.onnx", "--data", tmp_path / "d.npz", "--steps", 2, "--out", tmp_path / "run")
    run("export", tmp_path / "run", "-o", tmp_path / "later.onnx", tmp_path / "w.safetensors")
    run("export", tmp_path / "run", "--model", tmp_path / "m.onnx", "-o", tmp_path / "t.onnx")
    modes = {name: [a.i for n in onnx.load(tmp_path / name).graph.node if n.op_type == "BatchNormalization"
                    for a in n.attribute if a.name == "training_mode"] for name in ("later.onnx", "t.onnx")}
    assert modes == {"later.onnx": [1], "t.onnx": []}
    weights = load_file(tmp_path / "w.safetensors")
    assert weights["bn.num_batches_tracked"] == 2 and "bn.running_var" in weights


def test_a_whole_state_dict_is_a_start(tmp_path):
    """Fixed statistics too take the file's values, and stay for the rest of the run."""
    rng = np.random.default_rng(3)
    write_model(tmp_path / "m.onnx", False)
    x, labels = write_data(tmp_path / "d.npz")
    given = {"fc.weight": rng.normal(size=(5, CHANNELS)), "net.bn.weight": rng.uniform(1, 2, CHANNELS),
             "net.bn.bias": rng.normal(size=CHANNELS), "net.bn.running_mean": rng.normal(size=CHANNELS),
             "net.bn.running_var": rng.uniform(1, 2, CHANNELS), "head.position": rng.normal(size=3)}
    given = {n: a.astype(np.float32) for n, a in given.items()}
    given |= {"net.bn.num_batches_tracked": np.array(7), "position_ids": np.arange(4)}
    save_file(given, tmp_path / "init.safetensors")
    train = ["train", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", SAMPLES, "--lr", 0]
    for mode, mean, count in (("eval", given["net.bn.running_mean"], 7),
                              ("train", 0.5625 * given["net.bn.running_mean"]
                               + 0.4375 * (x @ given["fc.weight"]).mean(0), 9)):
        out = tmp_path / mode
        done = run(*train, "--steps", 1, "--batch-norm", mode, "--init", tmp_path / "init.safetensors", "--out", out)
        [note] = [line for line in done.stderr.splitlines() if "init.safetensors" in line]
        assert "head.position (and 1 more: position_ids) is not in the model and is not read" in note
        (tmp_path / "init.safetensors").rename(tmp_path / "moved")
        run("train", "--resume", "--out", out, "--steps", 2)
        (tmp_path / "moved").rename(tmp_path / "init.safetensors")
        run("export", out, "-o", tmp_path / "t.onnx", tmp_path / "w.safetensors")
        weights = load_file(tmp_path / "w.safetensors")
        np.testing.assert_allclose(weights["net.bn.running_mean"], mean, rtol=1e-5, atol=1e-6)
        assert weights["net.bn.num_batches_tracked"] == count
        stats = [weights[f"net.bn.running_{kind}"].astype(float) for kind in ("mean", "var")]
        want = ((normalized(x @ given["fc.weight"], *stats, given) - labels) ** 2).mean()
        done = run("eval", out, "--data", tmp_path / "d.npz", "--json")
        assert json.loads(done.stdout)["loss"] == pytest.approx(want, rel=1e-4)
        [y] = stock_session(tmp_path / "t.onnx").run(
            None, {"x": np.load(tmp_path / "d.npz")["x"]})
        assert ((y - labels) ** 2).mean() == pytest.approx(want, rel=1e-4)
