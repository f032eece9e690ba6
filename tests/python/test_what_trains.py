# SPDX-License-Identifier: Apache-2.0
"""What trains is what the author trains, and the program says it."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import losses, run
from safetensors.numpy import load_file

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"


def save(path, nodes, held, inputs, outputs, *, opset=18, kinds=None, record=None, producer="pytorch"):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value(name, dtype, shape) for name, dtype, shape in inputs],
        [value(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()])
    for name, kind in (kinds or {}).items():
        info = graph.value_info.add(name=name)
        info.type.tensor_type.elem_type = TensorProto.FLOAT
        info.metadata_props.add(key=KIND, value=kind)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10,
                              producer_name=producer)
    if record:
        model.metadata_props.add(key="onnx_fp8.parameters", value=json.dumps(record))
    onnx.save(model, path)
    return path


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def gradients(model, tmp_path, *flags, **arrays):
    np.savez(tmp_path / "d.npz", **arrays)
    size = len(next(iter(arrays.values())))
    done = run("grad", model, "--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", size, *flags,
               "-o", tmp_path / "g.safetensors")
    found = load_file(tmp_path / "g.safetensors")
    return {key.removeprefix("grad."): a for key, a in found.items() if key.startswith("grad.")}, done.stderr


def linear(path, **options):
    """y = (x W + b) g, without a bias that the loss would not reach."""
    held = {"W": normal(4, 3), "b": normal(3), "g": normal(3), "idle": normal(3)}
    nodes = [helper.make_node("MatMul", ["x", "W"], ["m"]), helper.make_node("Add", ["m", "b"], ["a"]),
             helper.make_node("Mul", ["a", "g"], ["y"]), helper.make_node("Mul", ["a", "idle"], ["z"])]
    return save(path, nodes, held, [("x", TensorProto.FLOAT, ["n", 4])], [("y", ["n", 3]), ("z", ["n", 3])], **options)


def test_the_line_says_who_says_what_is_trained(tmp_path):
    batch = {"x": normal(5, 4), "labels": normal(5, 3)}
    model = linear(tmp_path / "guess.onnx")
    found, said = gradients(model, tmp_path, **batch)
    assert ("trains 3 of 4 parameters, 18 numbers (guessed from the graph: --train and --freeze choose others); "
            "not trained: 1 parameter that the loss does not reach (idle)") in said
    model = linear(tmp_path / "kinds.onnx", kinds={"W": "PARAMETER", "b": "BUFFER", "g": "CONSTANT_TENSOR",
                                                   "idle": "PARAMETER"})
    found, said = gradients(model, tmp_path, **batch)
    assert found.keys() == {"W"}
    assert ("trains 1 of 2 parameters, 12 numbers (from the file's own list); not trained: 1 buffer (b), "
            "1 constant (g), 1 parameter that the loss does not reach (idle)") in said
    record = {"version": 1, "separate": True, "tensors": {
        "W": {"key": "w", "kind": "parameter", "requires_grad": False, "shape": [4, 3]},
        "b": {"key": "bias", "kind": "parameter", "requires_grad": True, "shape": [3]},
        "g": {"kind": "constant", "shape": [3]}, "idle": {"kind": "buffer", "key": "i", "shape": [3]}}}
    model = linear(tmp_path / "record.onnx", kinds={"W": "PARAMETER"}, record=record)
    found, said = gradients(model, tmp_path, **batch)
    assert found.keys() == {"b"}
    assert ("trains 1 of 2 parameters, 3 numbers (from the record of the export); not trained: 1 buffer (idle), "
            "1 constant (g), 1 frozen parameter (W)") in said
    np.savez(tmp_path / "d.npz", **batch)
    done = run("train", model, "--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", 5, "--steps", 1,
               "--out", tmp_path / "run", "--json", "--train", "w")
    assert json.loads(done.stdout)["trains"].startswith("trains 2 of 2 parameters, 15 numbers (1 from the record of the "
                                                        "export, 1 by --train)")


def test_a_flag_without_effect_is_an_error(tmp_path):
    model = linear(tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=normal(5, 4), labels=normal(5, 3))
    done = run("grad", model, "--data", tmp_path / "d.npz", "--loss", "mse", "--train", "idle", "-o", tmp_path / "g.npz",
               code=1)
    assert "--train names idle, on which the loss does not depend" in done.stderr


def test_a_frozen_or_unused_parameter_does_not_decay(tmp_path):
    record = {"version": 1, "tensors": {
        name: {"key": name, "kind": "parameter", "requires_grad": name != "W", "shape": shape}
        for name, shape in {"W": [4, 3], "b": [3], "g": [3], "idle": [3]}.items()}}
    model = linear(tmp_path / "m.onnx", record=record)
    np.savez(tmp_path / "d.npz", x=normal(5, 4), labels=normal(5, 3))
    run("train", model, "--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", 5, "--steps", 3, "--weight-decay", 0.5,
        "--lr", 0.1, "--out", tmp_path / "run")
    run("export", tmp_path / "run", "-o", tmp_path / "w.safetensors")
    after = load_file(tmp_path / "w.safetensors")
    for name, array in {"W": normal(4, 3), "b": normal(3), "g": normal(3), "idle": normal(3)}.items():
        assert np.array_equal(after[name], array) == (name in ("W", "idle")), name


def test_rows_that_pad_get_no_gradient(tmp_path):
    """torch.nn.Embedding(5, 3, padding_idx=1): the table is the weight of a layer, too, which has the row's gradient."""
    record = {"version": 1, "tensors": {"e": {"key": "e", "kind": "parameter", "shape": [5, 3], "padding_idx": 1}}}
    table, x = normal(5, 3), np.array([[1, 2], [4, 1]])
    rows = [helper.make_node("Gather", ["e", "x"], ["y"])]
    model = save(tmp_path / "lookup.onnx", rows, {"e": table}, [("x", TensorProto.INT64, ["n", 2])], [("y", ["n", 2, 3])],
                 record=record)
    labels = normal(2, 2, 3, seed=1)
    found, _ = gradients(model, tmp_path, x=x, labels=labels)
    want = np.zeros_like(table)
    for i, j in [(0, 1), (1, 0)]:
        want[x[i, j]] += 2 / 12 * (table[x[i, j]] - labels[i, j])
    np.testing.assert_allclose(found["e"], want, rtol=1e-5, atol=1e-7)
    tied = rows + [helper.make_node("Transpose", ["e"], ["t"], perm=[1, 0]),
                   helper.make_node("MatMul", ["y", "t"], ["scores"])]
    model = save(tmp_path / "tied.onnx", tied, {"e": table}, [("x", TensorProto.INT64, ["n", 2])], [("scores", ["n", 2, 5])],
                 record=record)
    labels = normal(2, 2, 5, seed=1)
    found, _ = gradients(model, tmp_path, x=x, labels=labels)
    dy = 2 / 20 * (table[x] @ table.T - labels)
    want = np.einsum("abv,abd->vd", dy, table[x])
    for i, j in [(0, 1), (1, 0)]:
        want[x[i, j]] += dy[i, j] @ table
    np.testing.assert_allclose(found["e"], want, rtol=1e-4, atol=1e-6)


# ---- numbers

def test_a_number_of_a_torchscript_file_is_trained(tmp_path):
    """y = x W exp(t): what CLIP's logit_scale is."""
    nodes = [helper.make_node("MatMul", ["x", "W"], ["m"]), helper.make_node("Exp", ["t"], ["e"]),
             helper.make_node("Mul", ["m", "e"], ["y"])]
    held = {"W": normal(4, 3), "t": np.float32(0.3)}
    arguments = nodes, held, [("x", TensorProto.FLOAT, ["n", 4])], [("y", ["n", 3])]
    x, labels = normal(5, 4, seed=1), normal(5, 3, seed=2)
    found, _ = gradients(save(tmp_path / "m.onnx", *arguments), tmp_path, x=x, labels=labels)
    y = x @ held["W"] * np.exp(held["t"])
    np.testing.assert_allclose(found["t"], (2 / 15 * (y - labels) * y).sum(), rtol=1e-5)
    found, said = gradients(save(tmp_path / "o.onnx", *arguments, producer="other"), tmp_path, x=x, labels=labels)
    assert "t" not in found and "1 single number (t)" in said


def test_falling_weights_of_integers_are_trained(tmp_path):
    nodes = [helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
             helper.make_node("Gemm", ["f", "l.weight", "l.bias"], ["y"], transB=1)]
    held = {"l.weight": np.float32([[0.9, 0.4]]), "l.bias": np.float32([-0.5])}
    model = save(tmp_path / "m.onnx", nodes, held, [("x", TensorProto.INT64, ["n", 2])], [("y", ["n", 1])])
    x = np.random.default_rng(0).integers(0, 5, (6, 2))
    found, _ = gradients(model, tmp_path, x=x, labels=normal(6, 1))
    assert found.keys() == {"l.weight", "l.bias"}


# ---- tensors that a file holds once

def new_batch_norm(path):
    """A new BatchNorm in evaluation mode as the TorchScript exporter writes it: equal tensors are one."""
    nodes = [helper.make_node("Identity", ["bn.weight"], ["bn.running_var"]),
             helper.make_node("Identity", ["bn.bias"], ["bn.running_mean"]),
             helper.make_node("BatchNormalization", ["x", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"], ["h"]),
             helper.make_node("Gemm", ["h", "l.weight", "l.bias"], ["y"], transB=1)]
    held = {"bn.weight": np.ones(8, np.float32), "bn.bias": np.zeros(8, np.float32), "l.weight": normal(3, 8),
            "l.bias": normal(3)}
    return save(path, nodes, held, [("x", TensorProto.FLOAT, [6, 8])], [("y", [6, 3])], opset=17)


def test_statistics_are_no_scales(tmp_path):
    model = new_batch_norm(tmp_path / "m.onnx")
    x = (3 * normal(6, 8) + 5).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, labels=normal(6, 3, seed=3))
    flags = ["--data", tmp_path / "d.npz", "--loss", "mse"]
    done = run("train", model, *flags, "--batch-norm", "train", "--steps", 300, "--lr", 0.03, "--out", tmp_path / "run")
    assert "bn.running_mean, bn.running_var are taken apart" in done.stderr
    assert "not trained: 2 statistics" in done.stderr
    loss = json.loads(run("eval", tmp_path / "run", "--data", tmp_path / "d.npz", "--json").stdout)["loss"]
    assert loss < 0.2
    weights = load_file(_weights(tmp_path))
    assert abs(weights["bn.weight"] - 1).max() > 1e-3


def _weights(tmp_path):
    run("export", tmp_path / "run", "-o", tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.mark.parametrize("matrix", [True, False])
def test_identities_between_parameters(tmp_path, matrix):
    """Two layers whose weights the file holds once."""
    shape = (4, 4) if matrix else (4,)
    held = {"a.weight": np.ones(shape, np.float32), "c.weight": normal(4, 4)}
    op = "MatMul" if matrix else "Mul"
    nodes = [helper.make_node("Identity", ["a.weight"], ["b.weight"]), helper.make_node(op, ["x", "a.weight"], ["p"]),
             helper.make_node("MatMul", ["p", "c.weight"], ["q"]), helper.make_node(op, ["q", "b.weight"], ["y"])]
    model = save(tmp_path / "m.onnx", nodes, held, [("x", TensorProto.FLOAT, ["n", 4])], [("y", ["n", 4])])
    batch = {"x": normal(5, 4, seed=1), "labels": normal(5, 4, seed=2)}
    found, said = gradients(model, tmp_path, **batch)
    apart, _ = gradients(model, tmp_path, "--no-tie", **batch)
    assert apart.keys() == {"a.weight", "b.weight", "c.weight"}
    if matrix:
        assert found.keys() == {"a.weight", "c.weight"}
        assert "one tensor in the file, and trained as one: a.weight = b.weight (--no-tie trains them apart)" in said
        np.testing.assert_allclose(found["a.weight"], apart["a.weight"] + apart["b.weight"], rtol=1e-5, atol=1e-6)
    else:
        assert found.keys() == apart.keys()
        assert "b.weight is taken apart" in said
        tied, _ = gradients(model, tmp_path, "--tie", "a.weight=b.weight", **batch)
        assert tied.keys() == {"a.weight", "c.weight"}


def test_equal_tensors_with_names_are_trained_apart(tmp_path):
    table = normal(7, 4)
    nodes = [helper.make_node("Gather", ["wte", "ids"], ["e"]), helper.make_node("Tanh", ["e"], ["h"]),
             helper.make_node("MatMul", ["h", "head"], ["y"])]
    model = save(tmp_path / "m.onnx", nodes, {"wte": table, "head": table.T.copy()}, [("ids", TensorProto.INT64, ["n", 2])],
                 [("y", ["n", 2, 7])])
    ids = np.random.default_rng(0).integers(0, 7, (3, 2))
    found, said = gradients(model, tmp_path, ids=ids, labels=normal(3, 2, 7))
    assert found.keys() == {"wte", "head"}
    assert "wte and head hold the same numbers and are trained apart (--tie wte=head makes them one)" in said


# ---- quantization-aware models

def rounded(path, weight, scale, zero, *, axis=1, dtype=np.int8, opset=19, **options):
    """y = x DequantizeLinear(QuantizeLinear(W)) v."""
    zero = np.asarray(zero, dtype)
    nodes = [helper.make_node("QuantizeLinear", ["W", "s", "z"], ["q"], axis=axis, **options),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis, **options),
             helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Mul", ["h", "v"], ["y"])]
    held = {"W": weight, "s": np.asarray(scale, np.float32), "z": zero, "v": normal(weight.shape[1], seed=5)}
    return save(path, nodes, held, [("x", TensorProto.FLOAT, ["n", weight.shape[0]])], [("y", ["n", weight.shape[1]])],
                opset=opset)


@pytest.mark.parametrize("dtype, low, high", [(np.int8, -128, 127), (np.uint8, 0, 255), (np.int16, -32768, 32767)])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_rounded_weights_train_straight_through(tmp_path, dtype, low, high, axis):
    """As torch.fake_quantize_per_channel_affine: no gradient where the code is cut off."""
    weight = normal(6, 8)
    size = 1 if axis is None else weight.shape[axis]
    scale = np.float32(np.linspace(0.7, 1, size)) * np.float32(2.0 / (high - low))
    zero = np.full(size, (low + high) // 2 + 1, dtype)
    if axis is None:
        scale, zero = scale[0], zero[0]
    model = rounded(tmp_path / "m.onnx", weight, scale, zero, axis=axis or 0, dtype=dtype, opset=21)
    x, labels = normal(5, 6, seed=1), normal(5, 8, seed=2)
    found, said = gradients(model, tmp_path, x=x, labels=labels)
    assert found.keys() == {"W", "v"}
    assert "trains 2 of 2 parameters" in said
    spread = (lambda a: a) if axis is None else lambda a: np.expand_dims(a, 1 - axis)
    codes = np.round(weight / spread(scale)) + spread(zero).astype(np.float64)
    inside = (codes >= low) & (codes <= high)
    assert 0 < inside.mean() < 1
    w = (np.clip(codes, low, high) - spread(zero)) * spread(scale)
    dy = 2 / labels.size * (x @ w * normal(8, seed=5) - labels) * normal(8, seed=5)
    np.testing.assert_allclose(found["W"], np.where(inside, x.T @ dy, 0), rtol=2e-4, atol=1e-6)


def test_rounded_activations_pass_gradients(tmp_path):
    """The layer before a rounded activation trains; an output that is rounded keeps its name."""
    scale = np.float32(0.02)
    nodes = [helper.make_node("MatMul", ["x", "W"], ["h"]), helper.make_node("QuantizeLinear", ["h", "s", "z"], ["q"]),
             helper.make_node("Clip", ["q", "low", "high"], ["c"]), helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"])]
    held = {"W": normal(4, 3), "s": scale, "z": np.int8(0), "low": np.int8(-100), "high": np.int8(90)}
    model = save(tmp_path / "m.onnx", nodes, held, [("x", TensorProto.FLOAT, ["n", 4])], [("y", ["n", 3])])
    x, labels = normal(9, 4, seed=1), normal(9, 3, seed=2)
    found, _ = gradients(model, tmp_path, x=x, labels=labels)
    codes = np.round(x @ held["W"] / scale)
    inside = (codes >= -100) & (codes <= 90)
    assert 0 < inside.mean() < 1
    dy = 2 / labels.size * (np.clip(codes, -100, 90) * scale - labels)
    np.testing.assert_allclose(found["W"], x.T @ np.where(inside, dy, 0), rtol=2e-4, atol=1e-6)


def test_a_rounded_model_learns_and_is_written_as_a_step(tmp_path):
    model = rounded(tmp_path / "m.onnx", normal(6, 8), np.full(8, 0.03, np.float32), np.zeros(8), opset=19)
    x = normal(64, 6, seed=1)
    np.savez(tmp_path / "d.npz", x=x, labels=x @ normal(6, 8, seed=3))
    flags = ["--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", 16, "--lr", 0.02]
    run("train", model, *flags, "--steps", 60, "--out", tmp_path / "run")
    curve = [loss for _, loss in sorted(losses(tmp_path / "run").items())]
    assert curve[-1] < 0.5 * curve[0]
    run("rewrite", model, "-o", tmp_path / "step.onnx", "--loss", "mse", "--lr", 0.02, "--shape", "n=16", "--recipe", "off",
        "--optimizer", "adamw")
    run("train", tmp_path / "step.onnx", "--data", tmp_path / "d.npz", "--steps", 5, "--out", tmp_path / "again")
    again = [loss for _, loss in sorted(losses(tmp_path / "again").items())]
    np.testing.assert_allclose(again, curve[:5], rtol=1e-5)


def test_integer_weights_cannot_be_trained(tmp_path):
    nodes = [helper.make_node("DequantizeLinear", ["W", "s"], ["w"]), helper.make_node("MatMul", ["x", "w"], ["h"]),
             helper.make_node("Mul", ["h", "v"], ["y"])]
    held = {"W": np.int8([[1, 2], [3, 4]]), "s": np.float32(0.1), "v": normal(2)}
    model = save(tmp_path / "m.onnx", nodes, held, [("x", TensorProto.FLOAT, ["n", 2])], [("y", ["n", 2])])
    batch = {"x": normal(3, 2), "labels": normal(3, 2)}
    found, said = gradients(model, tmp_path, **batch)
    assert found.keys() == {"v"}
    assert "codes behind a DequantizeLinear can't be trained: W" in said
    done = run("grad", model, "--data", tmp_path / "d.npz", "--loss", "mse", "--train", "W", "-o", tmp_path / "g.npz", code=1)
    assert "--train W" in done.stderr and "int8" in done.stderr


def test_codes_that_stay_codes_are_said(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "W"], ["h"]), helper.make_node("QuantizeLinear", ["h", "s", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "t", "z"], ["d"]), helper.make_node("Mul", ["d", "v"], ["y"])]
    held = {"W": normal(4, 3), "s": np.float32(0.02), "t": np.float32(0.04), "z": np.int8(0), "v": normal(3)}
    model = save(tmp_path / "m.onnx", nodes, held, [("x", TensorProto.FLOAT, ["n", 4])], [("y", ["n", 3])])
    _, said = gradients(model, tmp_path, x=normal(5, 4), labels=normal(5, 3))
    assert "no gradient passes QuantizeLinear" in said
