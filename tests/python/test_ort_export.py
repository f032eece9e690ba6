# SPDX-License-Identifier: Apache-2.0
"""`export ARTIFACTS`: models for inference from the artifacts of onnxruntime-training with any loss, beside the model
from which the artifacts were made."""
import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest
from program import run
from safetensors.numpy import load_file
from test_ort_rewrite import in_their_environment, train

MAKER = pathlib.Path(__file__).with_name("ort_losses.py")
LOSSES = ["mse", "l1", "bce", "cross_entropy", "summed_cross_entropy", "ignoring_cross_entropy", "mse_of_probabilities",
          "reconstruction"]


def make(loss, folder):
    """Artifacts that were trained for three steps: their folder and checkpoint."""
    in_their_environment(MAKER, loss, folder)
    train(loss, folder, 3, feeds=str(folder / "feeds.npz"), save=str(folder / "c"))
    return folder, folder / "c"


def outputs(model, x):
    if isinstance(model, onnx.ModelProto):
        model = model.SerializeToString()
    session = onnxruntime.InferenceSession(model)
    assert [i.name for i in session.get_inputs()] == ["x"]
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x}), strict=True))


def original(folder, checkpoint, tmp_path, rewritten=None):
    """The model that the artifacts were made from, with the weights of the checkpoint, which may be of rewritten ones."""
    run("export", rewritten or folder, "--checkpoint", checkpoint, "-o", tmp_path / "w.safetensors")
    weights = load_file(tmp_path / "w.safetensors")
    model = onnx.load(folder / "model.onnx")
    for tensor in model.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(weights[tensor.name], tensor.name))
    return model


def same(got, truth):
    assert list(got) == list(truth)
    for name in truth:
        np.testing.assert_allclose(got[name], truth[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_model_computes_what_the_loss_reads(loss, tmp_path):
    folder, checkpoint = make(loss, tmp_path / "a")
    text = run("export", folder, "--checkpoint", checkpoint, "-o", tmp_path / "t.onnx").stdout
    x = np.load(folder / "feeds.npz")["x"]
    truth = outputs(original(folder, checkpoint, tmp_path), x)
    same(outputs(tmp_path / "t.onnx", x), truth)
    assert f"the model of {next(iter(truth))}, with the weights of the checkpoint" in text


def test_outputs_may_be_chosen(tmp_path):
    folder, checkpoint = make("two_losses", tmp_path / "a")
    export = ["export", folder, "--checkpoint", checkpoint, "-o", tmp_path / "t.onnx"]
    error = run(*export, code=1).stderr
    assert "got copy, scores; --outputs names those of the model" in error
    run(*export, "--outputs", "scores,copy")
    x = np.load(folder / "feeds.npz")["x"]
    same(outputs(tmp_path / "t.onnx", x), outputs(original(folder, checkpoint, tmp_path), x))
    run(*export, "--outputs", "hidden")
    assert list(outputs(tmp_path / "t.onnx", x)) == ["hidden"]
    for name, text in (("nothing", "got --outputs nothing"), ("x", "got --outputs x"), ("copy,copy", "copy twice")):
        assert text in run(*export, "--outputs", name, code=1).stderr


@pytest.mark.parametrize("recipe", ["tensorwise", "delayed"])
@pytest.mark.parametrize("loss", ["mse", "bce", "two_losses"])
def test_rewritten_artifacts_too(loss, recipe, tmp_path):
    folder, _ = make(loss, tmp_path / "a")
    run("rewrite", "--ort-training", folder, "-o", tmp_path / "fp8", "--recipe", recipe)
    feeds = np.load(folder / "feeds.npz")
    job = {"feeds": str(folder / "feeds.npz")}
    train(loss, tmp_path / "fp8", 3, save=str(tmp_path / "c"), **job)
    evaluated = train(loss, tmp_path / "fp8", 0, load=str(tmp_path / "c"), eval=True, **job)["eval"]
    chosen = ["--outputs", "scores,copy"] if loss == "two_losses" else []
    run("export", tmp_path / "fp8", "--checkpoint", tmp_path / "c", "-o", tmp_path / "t.onnx", *chosen)
    got = outputs(tmp_path / "t.onnx", feeds["x"])
    assert abs(loss_of(loss, got, feeds) - evaluated) < 1e-5 * evaluated
    exact = outputs(original(folder, tmp_path / "c", tmp_path, tmp_path / "fp8"), feeds["x"])
    for name in exact:
        assert 0 < np.abs(got[name] - exact[name]).max() < 0.2 * np.abs(exact[name]).max()


def loss_of(loss, got, feeds):
    z = got["scores"].astype(np.float64)
    if loss == "mse":
        return ((z - feeds["target"]) ** 2).mean()
    if loss == "bce":
        return (np.log1p(np.exp(z)) - feeds["target"] * z).mean()
    classes = np.log(np.exp(z).sum(-1)) - z[np.arange(len(z)), feeds["labels"]]
    return classes.mean() + np.abs(got["copy"].astype(np.float64) - feeds["target"]).mean()


def test_names_are_not_needed_where_a_label_tells(tmp_path):
    """All values of the graph get other names."""
    folder, checkpoint = make("l1", tmp_path / "a")
    model = onnx.load(folder / "training_model.onnx")
    kept = {v.name for v in [*model.graph.input, *model.graph.output]}
    names = {}
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [v if v in kept or not v else names.setdefault(v, f"v{len(names)}") for v in values]
    for item in [*model.graph.initializer, *model.graph.value_info]:
        item.name = names.get(item.name, item.name)
    onnx.save(model, folder / "training_model.onnx")
    run("export", folder, "--checkpoint", checkpoint, "-o", tmp_path / "t.onnx")
    x = np.load(folder / "feeds.npz")["x"]
    truth = outputs(original(folder, checkpoint, tmp_path), x)
    np.testing.assert_allclose(outputs(tmp_path / "t.onnx", x)[names["scores"]], truth["scores"], rtol=1e-5, atol=1e-6)


def test_outputs_are_for_artifacts(tmp_path):
    assert "--outputs is for a folder of artifacts" in run("export", tmp_path, "--outputs", "y", "-o",
                                                           tmp_path / "t.onnx", code=2).stderr
