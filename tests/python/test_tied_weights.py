# SPDX-License-Identifier: Apache-2.0
"""Weights that an exporter has written twice train as one tensor."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import losses, run
from safetensors.numpy import load_file, save_file

CE = ["--loss", "cross_entropy"]
VOCABULARY, WIDTH = 11, 6


def language_model(path, copy):
    """logits = tanh(E[ids]) Eᵀ + b; `copy`: Eᵀ is a tensor of its own, as folding leaves it."""
    rng = np.random.default_rng(1)
    table = rng.normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    bias = rng.normal(size=VOCABULARY).astype(np.float32)
    nodes = [helper.make_node("Gather", ["wte.weight", "ids"], ["e"]),
             helper.make_node("Tanh", ["e"], ["h"]),
             helper.make_node("MatMul", ["h", "val_7" if copy else "turned"], ["m"], name="/lm_head/MatMul"),
             helper.make_node("Add", ["m", "bias"], ["logits"])]
    held = [("wte.weight", table), ("bias", bias)]
    if copy:
        held.append(("val_7", table.T.copy()))
    else:
        nodes.insert(0, helper.make_node("Transpose", ["wte.weight"], ["turned"], perm=[1, 0]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "time"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "time", VOCABULARY])],
        [numpy_helper.from_array(array, name) for name, array in held])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path


def write_tokens(path, samples=12):
    rng = np.random.default_rng(2)
    ids, labels = rng.integers(0, VOCABULARY, (2, samples, 4))
    np.savez(path, ids=ids, labels=labels)
    return path


@pytest.fixture
def models(tmp_path):
    return {name: language_model(tmp_path / f"{name}.onnx", name == "copy") for name in ("tied", "copy")}


def test_gradients_are_summed_under_the_first_name(models, tmp_path):
    data = write_tokens(tmp_path / "d.npz")
    grads = {}
    for name, model in models.items():
        done = run("grad", model, "--data", data, *CE, "-o", tmp_path / f"{name}.safetensors")
        assert ("val_7 and wte.weight hold the same numbers, transposed, and are trained as one" in done.stderr) == (name == "copy")
        grads[name] = load_file(tmp_path / f"{name}.safetensors")
    assert grads["copy"].keys() == grads["tied"].keys()
    for name, array in grads["tied"].items():
        np.testing.assert_allclose(grads["copy"][name], array, rtol=1e-6, atol=1e-7, err_msg=name)
    done = run("grad", models["copy"], "--data", data, *CE, "--no-tie", "-o", tmp_path / "two.safetensors")
    assert "val_7" not in done.stderr
    two = load_file(tmp_path / "two.safetensors")
    np.testing.assert_allclose(two["grad.wte.weight"] + two["grad.val_7"].T, grads["tied"]["grad.wte.weight"], atol=1e-6)


def test_training_checkpoint_and_export(models, tmp_path):
    data = write_tokens(tmp_path / "d.npz")
    flags = ["--data", data, *CE, "--batch-size", 4, "--lr", 0.05]
    for name, model in models.items():
        run("train", model, *flags, "--steps", 6, "--out", tmp_path / name)
    tied, copy = (losses(tmp_path / name) for name in models)
    assert copy == pytest.approx(tied, rel=1e-5)
    # The same in two halves.
    run("train", models["copy"], *flags, "--steps", 3, "--out", tmp_path / "halves")
    run("train", "--resume", "--out", tmp_path / "halves", "--steps", 6)
    assert losses(tmp_path / "halves") == copy
    state = load_file(next((tmp_path / "copy" / "checkpoints").glob("*6/state.safetensors")))
    assert not any(name.startswith("val_7") for name in state)
    # The model has both copies, and the weights have both names.
    out = tmp_path / "trained.onnx"
    run("export", tmp_path / "copy", "-o", out, tmp_path / "w.safetensors")
    held = {t.name: numpy_helper.to_array(t) for t in onnx.load(out).graph.initializer}
    np.testing.assert_array_equal(held["val_7"], held["wte.weight"].T)
    np.testing.assert_array_equal(held["wte.weight"], state["wte.weight"])
    weights = load_file(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(weights["lm_head.weight"], weights["wte.weight"])
    evaluated = [json.loads(run("eval", *what, "--json").stdout)["loss"]
                 for what in ([tmp_path / "copy", "--data", data], [out, "--data", data, *CE])]
    assert evaluated[0] == evaluated[1]
    # Another run starts from them, by either name.
    run("train", models["copy"], *flags, "--steps", 1, "--init", tmp_path / "w.safetensors", "--out", tmp_path / "warm")
    save_file({"lm_head.weight": weights["lm_head.weight"], "bias": weights["bias"]}, tmp_path / "one.safetensors")
    run("train", models["copy"], *flags, "--steps", 1, "--init", tmp_path / "one.safetensors", "--out", tmp_path / "one")
    assert losses(tmp_path / "warm") == losses(tmp_path / "one")
    weights["lm_head.weight"] = weights["lm_head.weight"] + 1
    save_file(weights, tmp_path / "apart.safetensors")
    done = run("grad", models["copy"], "--data", data, *CE, "--init", tmp_path / "apart.safetensors", "-o",
               tmp_path / "g.npz", code=1)
    assert "expected the same numbers for wte.weight and val_7, which are one tensor" in done.stderr


def test_a_run_that_has_lost_its_flags(models, tmp_path):
    data = write_tokens(tmp_path / "d.npz")
    run("train", models["copy"], "--data", data, *CE, "--batch-size", 4, "--no-tie", "--steps", 1, "--out", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config.pop("crc32")
    del config["flags"]["--no-tie"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    done = run("export", tmp_path / "run", "-o", tmp_path / "t.onnx", code=1)
    assert "a run that did not tie val_7 to wte.weight goes on with --no-tie" in done.stderr


def test_patterns_and_inspect_know_both_names(models, tmp_path):
    data = write_tokens(tmp_path / "d.npz")
    model = models["copy"]
    rows = {row["name"]: row for row in json.loads(run("inspect", model, "--json").stdout)["initializers"]}
    assert rows["val_7"]["role"] == "tied" and rows["wte.weight"]["role"] == "trained"
    for pattern in ("wte.weight", "val_7", "lm_head*"):
        run("grad", model, "--data", data, *CE, "--freeze", pattern, "-o", tmp_path / "g.safetensors")
        assert {name for name in load_file(tmp_path / "g.safetensors") if name.startswith("grad.")} == {"grad.bias"}


def test_named_pairs(tmp_path):
    """Two layers that begin alike become one only if the user says so."""
    rng = np.random.default_rng(3)
    w = rng.normal(size=(4, 4)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("Tanh", ["h"], ["t"]),
             helper.make_node("MatMul", ["t", "b"], ["y"])]
    held = {"a": w, "b": w}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
                              [numpy_helper.from_array(array, name) for name, array in held.items()])
    model = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), model)
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(3, 4)).astype(np.float32), labels=rng.normal(size=(3, 4)).astype(np.float32))
    grad = ["grad", model, "--data", tmp_path / "d.npz", "--loss", "mse", "-o", tmp_path / "g.safetensors"]
    run(*grad)
    apart = load_file(tmp_path / "g.safetensors")
    run(*grad, "--tie", "a=b")
    one = load_file(tmp_path / "g.safetensors")
    assert "grad.b" in apart and "grad.b" not in one
    np.testing.assert_allclose(one["grad.a"], apart["grad.a"] + apart["grad.b"], atol=1e-6)
    assert "--tie: expected A=B" in run(*grad, "--tie", "a", code=2).stderr
    assert "--tie c is no float initializer" in run(*grad, "--tie", "a=c", code=1).stderr
    graph.initializer[1].CopyFrom(numpy_helper.from_array(w + 1, "b"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), model)
    assert "--tie a=b: expected the same numbers in both" in run(*grad, "--tie", "a=b", code=1).stderr
