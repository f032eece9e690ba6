# SPDX-License-Identifier: Apache-2.0
"""Inputs of one integer or bool that decide a branch, a trip count or a size: their values are part of a plan's key."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import losses, run
from safetensors.numpy import load_file
from stock import stock_session

RATES = [8000, 16000]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
value = helper.make_tensor_value_info


def branch(rate, width, hidden):
    """x (batch, width) → (batch, 2) by weights of its own."""
    rng = np.random.default_rng(rate)
    weights = {f"w{rate}.in": rng.normal(size=(width, hidden)), f"w{rate}.out": rng.normal(size=(hidden, 2))}
    nodes = [helper.make_node("MatMul", ["x", f"w{rate}.in"], [f"h{rate}"]),
             helper.make_node("Tanh", [f"h{rate}"], [f"t{rate}"]),
             helper.make_node("MatMul", [f"t{rate}", f"w{rate}.out"], [f"y{rate}"])]
    graph = helper.make_graph(nodes, f"at_{rate}", [], [value(f"y{rate}", FLOAT, None)])
    return graph, [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]


def write_model(path):
    """Twice a network for its sampling rate, `times` times, of the first `keep` samples if `some`."""
    narrow, first = branch(8000, 6, 5)
    wide, second = branch(16000, 6, 9)
    constants = [numpy_helper.from_array(np.array(16000), "rate"), numpy_helper.from_array(np.array([0]), "zero")]
    again = helper.make_graph(
        [helper.make_node("Add", ["v", "y"], ["next"]), helper.make_node("Identity", ["go"], ["goes"])], "again",
        [value("i", INT64, []), value("go", BOOL, []), value("v", FLOAT, None)],
        [value("goes", BOOL, []), value("next", FLOAT, None)])
    cut = helper.make_graph([helper.make_node("Slice", ["z", "zero", "keep"], ["part"])], "cut", [],
                            [value("part", FLOAT, None)])
    whole = helper.make_graph([helper.make_node("Identity", ["z"], ["all"])], "whole", [],
                              [value("all", FLOAT, None)])
    nodes = [helper.make_node("Equal", ["sr", "rate"], ["is_wide"]),
             helper.make_node("If", ["is_wide"], ["y"], then_branch=wide, else_branch=narrow),
             helper.make_node("Loop", ["times", "", "y"], ["z"], body=again),
             helper.make_node("If", ["some"], ["out"], then_branch=cut, else_branch=whole)]
    inputs = [value("x", FLOAT, ["batch", 6]), value("sr", INT64, []), value("times", INT64, [1]),
              value("some", BOOL, [1]), value("keep", INT64, [1])]
    graph = helper.make_graph(nodes, "rates", inputs, [value("out", FLOAT, None)], first + second + constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def feeds(rate, some=False):
    rng = np.random.default_rng(1)
    return {"x": rng.normal(size=(8, 6)).astype(np.float32), "sr": np.array(rate), "times": np.array([2]),
            "some": np.array([some]), "keep": np.array([3])}


def write_data(path, rate, **more):
    np.savez(path, **feeds(rate), labels=np.zeros((8, 2), np.float32), **more)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "m.onnx")


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("some", [False, True])
def test_run_is_stock_onnxruntime(model, tmp_path, rate, some):
    np.savez(tmp_path / "d.npz", **feeds(rate, some))
    run("run", model, "--data", tmp_path / "d.npz", "-o", tmp_path / "o.npz")
    session = stock_session(model)
    want = session.run(None, feeds(rate, some))[0]
    np.testing.assert_allclose(np.load(tmp_path / "o.npz")["out"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rate", RATES)
def test_grad_is_of_the_branch_that_the_value_takes(model, tmp_path, rate):
    data = write_data(tmp_path / "d.npz", rate)
    run("grad", model, "--data", data, "--loss", "mse", "-o", tmp_path / "g.safetensors")
    got = load_file(tmp_path / "g.safetensors")
    assert {name for name in got if name.startswith("grad.")} == {f"grad.w{rate}.in", f"grad.w{rate}.out"}
    weights = {t.name: numpy_helper.to_array(t).astype(float) for t in onnx.load(model).graph.initializer}
    x = feeds(rate)["x"].astype(float)
    h = np.tanh(x @ weights[f"w{rate}.in"])
    y = 3 * h @ weights[f"w{rate}.out"]
    want = h.T @ (3 * 2 * y / y.size)
    np.testing.assert_allclose(got[f"grad.w{rate}.out"], want, rtol=1e-4, atol=1e-5)


def test_train_and_written_step_take_the_value(model, tmp_path):
    flags = ["--loss", "mse", "--optimizer", "sgd", "--lr", 0.001]
    for rate in RATES:
        out = tmp_path / f"run{rate}"
        run("train", model, "--data", write_data(tmp_path / f"{rate}.npz", rate), *flags, "--steps", 3, "--batch-size", 8,
            "--no-shuffle", "--out", out)
        step = tmp_path / f"step{rate}.onnx"
        run("rewrite", model, "-o", step, *flags, "--shape", "batch=8", "--value", f"sr={rate},times=2", "--value",
            "some=false")
        session = stock_session(step)
        assert {i.name for i in session.get_inputs()}.isdisjoint({"sr", "times", "some"})
        state = {"x": feeds(rate)["x"], "labels": np.zeros((8, 2), np.float32)}
        state |= {i.name: feeds(rate)[i.name] for i in session.get_inputs() if i.name == "keep"}
        binding = onnx.load(step).training_info[0].update_binding
        names = [o.name for o in session.get_outputs()]
        ours = []
        for _ in range(3):
            got = dict(zip(names, session.run(None, state)))
            ours.append(float(got["loss"]))
            state |= {b.key: got[b.value] for b in binding}
        np.testing.assert_allclose(ours, [losses(out)[i] for i in (1, 2, 3)], rtol=1e-5)
        trained = {b.key for b in binding if b.key.startswith("w")}
        assert trained == {f"w{rate}.in", f"w{rate}.out"}


def test_inspect_asks_for_the_value_that_it_needs(model):
    done = run("inspect", model, "--shape", "batch=8", code=1)
    assert 'input "sr"' in done.stderr and "--value sr=N" in done.stderr
    given = ["--value", "sr=16000", "--value", "times=1,some=true,keep=3"]
    done = run("inspect", model, "--shape", "batch=8", *given, "--loss", "mse", "--json")
    products = json.loads(done.stdout)["gemms"]
    assert {p["n"] for p in products} == {9, 2}
    for words, message in [("sr", "INPUT=N"), ("sr=1.5", "INPUT=N"), ("nothing=1", '"nothing"'), ("x=1", "one integer"),
                           ("some=2", "fit bool")]:
        assert message in run("inspect", model, "--value", words, code=2 if words != "some=2" else 1).stderr
