# SPDX-License-Identifier: Apache-2.0
"""Operators of onnxruntime-training that newer runtimes lack, as custom ops of libonnx_fp8_ort.so in a stock
onnxruntime: each against the results of onnxruntime-training 1.19.2, and whole training models against its losses."""
import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from program import leave_out, run
from safetensors.numpy import load_file
from sessions import FLOAT, INT64, LIBRARY, ROOT, model, stock

ARTIFACTS = ROOT / "tests/fixtures/ort_training"
sys.path.append(str(ARTIFACTS))
import rows  # noqa: E402

RESULTS = np.load(ARTIFACTS / "rows.npz")
IN_STOCK = {"FastGelu", "FusedMatMul", "Gelu", "BiasGelu", "QuickGelu", "LayerNormalization",
            "SimplifiedLayerNormalization"}
CASES = [case for case in rows.CASES if case.op not in IN_STOCK]
MODELS = ["mlp", "gpt2", "bert", "vit", "llama", "cnn"]
STEPS = 20


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_are_those_of_onnxruntime_training(case):
    session = stock(case.model(), LIBRARY)
    for repeat in range(2):
        feeds = {name: x.copy() for name, x in case.feeds().items()}
        for i, got in enumerate(session.run(None, feeds)):
            expected = RESULTS[f"{case.name}.{i}"]
            assert got.dtype == expected.dtype and got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


def test_a_session_takes_other_shapes():
    d = rows.Draw("other shapes")
    case = rows.Case("GatherGrad", [np.array([6, 4]), np.array([1, 3, 1]), d(3, 4)], 1, {"axis": 0})
    model = case.model()
    for value in model.graph.input:
        for i, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}{i}"
    session = stock(model, LIBRARY)
    for rows_of, table in ((3, 6), (5, 7), (3, 6), (3, 9)):
        ids = d.rng.integers(table, size=rows_of)
        dy = d(rows_of, 4)
        expected = np.zeros((table, 4), np.float32)
        np.add.at(expected, ids, dy)
        got, = session.run(None, {"in0": np.array([table, 4]), "in1": ids, "in2": dy})
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def weights_of(folder, tmp):
    run("export", folder, "-o", tmp / "w.safetensors")
    return load_file(tmp / "w.safetensors")


class AdamW:
    """The artifacts': Hugging Face's, with the defaults of onnxruntime.training.artifacts."""

    def __init__(self, weights):
        self.m = {k: np.zeros_like(w) for k, w in weights.items()}
        self.v = {k: np.zeros_like(w) for k, w in weights.items()}

    def update(self, weights, gradients, t, lr=1e-3):
        rate = lr * np.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)
        for name, g in gradients.items():
            m, v = self.m[name], self.v[name]
            m += np.float32(0.1) * (g - m)
            v += np.float32(0.001) * (g * g - v)
            weights[name] -= np.float32(rate) * m / (np.sqrt(v) + np.float32(1e-6))


@pytest.mark.parametrize("name", MODELS)
def test_stock_onnxruntime_trains(name, tmp_path):
    folder = ARTIFACTS / name
    session = stock(folder / "training_model.onnx", LIBRARY)
    weights = {k: w.copy() for k, w in weights_of(folder, tmp_path).items()}
    shapes = {i.name: i.shape for i in session.get_inputs()}
    buffers = {i: np.zeros(shapes[i], np.float32) for i in shapes if i.endswith(".accumulation.buffer")}
    batch = dict(np.load(folder / "feeds.npz"))
    batch["labels"] = batch["labels"].reshape(-1)
    optimizer = AdamW(weights)
    losses = []
    for t in range(1, STEPS + 1):
        feeds = batch | weights | buffers | {"lazy_reset_grad": np.array([True])}
        results = session.run(None, feeds)
        losses.append(results[0])
        assert all(flag.item() for flag in results[1:])
        optimizer.update(weights, {k.removesuffix("_grad.accumulation.buffer"): g for k, g in buffers.items()}, t)
    np.testing.assert_allclose(losses, np.load(folder / "losses.npy"), rtol=1e-5)


def test_an_operator_without_its_operand_is_named():
    case = rows.Case("ConvGrad", [np.ones((1, 2, 4, 4), np.float32), np.ones((1, 2, 4, 4), np.float32),
                                  np.ones((2, 2, 1, 1), np.float32)], 3, {"group": 2})
    with pytest.raises(Exception, match="expected channels that fit 2 groups, got x"):
        stock(case.model(), LIBRARY).run(None, case.feeds())


def pool_model(shape, opset=14):
    """MaxPool of overlapping windows and its gradient, whose shape is `shape`."""
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 0, 1]}
    node = onnx.helper.make_node
    proto = model([node("MaxPool", ["x"], ["y", "at"], **window), node("Mul", ["y", "y"], ["dy"]),
                   node("MaxPoolGrad", ["dy", "at"], ["dx"], name="pool", **window)],
                  {"x": (FLOAT, ["n", 3, 8, 7])}, {"y": (FLOAT, None), "at": (INT64, None), "dx": (FLOAT, shape)},
                  opset=opset)
    return proto


@pytest.mark.parametrize("opset", [8, 14, 20])
@pytest.mark.parametrize("shape", [["n", 3, 8, 7], ["m", "c", 8, 7]])
def test_gradient_of_max_pool(shape, opset):
    session = stock(pool_model(shape, opset), LIBRARY)
    for n in (2, 1, 3):
        x = np.random.default_rng(n).standard_normal((n, 3, 8, 7), np.float32)
        y, at, dx = session.run(None, {"x": x})
        expected = np.zeros(x.size, np.float32)
        np.add.at(expected, at.reshape(-1), (y * y).reshape(-1))
        np.testing.assert_allclose(dx, expected.reshape(x.shape), rtol=1e-6)
        assert (np.unique(at, return_counts=True)[1] > 1).any()


def test_gradient_of_max_pool_needs_the_shape():
    session = stock(pool_model(["n", 3, "h", "w"]), LIBRARY)
    with pytest.raises(Exception, match=r"MaxPoolGrad pool\] expected a model that says the spatial sizes"):
        session.run(None, {"x": np.ones((1, 3, 8, 7), np.float32)})


def test_indices_of_max_pool_are_checked():
    proto = model([onnx.helper.make_node("MaxPoolGrad", ["dy", "at"], ["dx"], name="pool")],
                  {"dy": (FLOAT, [1, 1, 2]), "at": (INT64, [1, 1, 2])}, {"dx": (FLOAT, [1, 1, 4])}, opset=14)
    session = stock(proto, LIBRARY)
    dy = np.array([[[2, 3]]], np.float32)
    dx, = session.run(None, {"dy": dy, "at": np.array([[[3, 3]]])})
    np.testing.assert_array_equal(dx, [[[0, 0, 0, 5]]])
    for bad in (-1, 4):
        with pytest.raises(Exception, match=f"expected indices of MaxPool below 4, got {bad}"):
            session.run(None, {"dy": dy, "at": np.array([[[0, bad]]])})


def test_gradients_add_up():
    case = next(case for case in rows.CASES if case.op == "InPlaceAccumulatorV2")
    session = stock(case.model(), LIBRARY)
    buffer = np.ones((3, 4), np.float32)
    feeds = {"in0": buffer, "in1": np.full((3, 4), 2, np.float32), "in2": np.array([False])}
    for _ in range(3):
        session.run(["out0"], feeds)
    assert (buffer == 7).all()


def recipes():
    """All that need no given scales if ONNX_FP8_ORT_RECIPES says so."""
    if os.environ.get("ONNX_FP8_ORT_RECIPES") != "all":
        return ["tensorwise", "delayed", "rowwise"]
    named = [r["name"] for r in json.loads(run("recipes", "--json").stdout)]
    return [name for name in named if name not in ("off", "static")]


@pytest.mark.parametrize("recipe", recipes())
def test_onnxruntime_training_takes_our_kernels(recipe, tmp_path):
    """The ops of our domain in onnxruntime-training 1.19.2, which computes their bodies without the library."""
    if "ONNX_FP8_ORT_PYTHON" not in os.environ:
        return leave_out("onnxruntime-training with libonnx_fp8_ort.so")
    run("rewrite", "--ort-training", ARTIFACTS / "gpt2", "-o", tmp_path / "fp8", "--recipe", recipe)
    job = {"folder": str(tmp_path / "fp8"), "feeds": str(ARTIFACTS / "gpt2" / "feeds.npz"), "steps": STEPS, "eval": True}
    results = []
    for more in ({}, {"library": LIBRARY}):
        profile = tmp_path / f"profile{len(results)}"
        profile.mkdir()
        more["profile"] = str(profile)
        done = subprocess.run([os.environ["ONNX_FP8_ORT_PYTHON"], ROOT / "tests/python/ort_driver.py"],
                              input=json.dumps(job | more), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        results.append(json.loads(done.stdout.splitlines()[-1]))
    np.testing.assert_allclose(results[1]["losses"], results[0]["losses"], rtol=1e-6)
    np.testing.assert_allclose(results[1]["eval"], results[0]["eval"], rtol=1e-6)
    nodes = onnx.load(tmp_path / "fp8" / "training_model.onnx").graph.node
    ours = {node.op_type for node in nodes if node.domain == "onnx_fp8"}
    assert ours and ours <= set(results[1]["ops"]) and not ours & set(results[0]["ops"])
