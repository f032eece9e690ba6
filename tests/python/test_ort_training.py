# SPDX-License-Identifier: Apache-2.0
"""`train --ort-training`: artifacts of onnxruntime-training 1.19.2, trained without it. The losses that it computes lie
beside the artifacts (tests/fixtures/ort_training)."""
import json
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from program import FIXTURES, losses, run, state_bytes

ARTIFACTS = FIXTURES / "ort_training"
CASES = ["mlp", "gpt2", "bert", "vit", "llama"]
STEPS = 20


def feeds(case):
    return np.load(ARTIFACTS / case / "feeds.npz")


def flags(case, out, *more, folder=None):
    batch = len(next(iter(feeds(case).values())))
    return ["train", "--ort-training", folder or ARTIFACTS / case, "--data", ARTIFACTS / case / "feeds.npz",
            "--batch-size", batch, "--no-shuffle", "--out", out, *more]


def curve(out):
    return np.array([losses(out)[step + 1] for step in range(STEPS)])


@pytest.mark.parametrize("case", [*CASES, "cnn", "mlp_mse", "mlp_bce"])
def test_losses_are_those_of_onnxruntime_training(case, tmp_path):
    run(*flags(case, tmp_path / "run", "--steps", STEPS))
    truth = np.load(ARTIFACTS / case / "losses.npy")
    np.testing.assert_allclose(curve(tmp_path / "run"), truth, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("recipe", ["tensorwise", "delayed"])
def test_fp8_follows_these_losses(case, recipe, tmp_path):
    run(*flags(case, tmp_path / "run", "--steps", STEPS, "--recipe", recipe))
    truth = np.load(ARTIFACTS / case / "losses.npy")
    got = curve(tmp_path / "run")
    assert 0 < np.abs(got - truth).max() < 0.05 * truth[0]


def test_a_run_goes_on_without_the_artifacts(tmp_path):
    copy = shutil.copytree(ARTIFACTS / "gpt2", tmp_path / "artifacts")
    run(*flags("gpt2", tmp_path / "whole", "--steps", 6, "--recipe", "delayed"))
    run(*flags("gpt2", tmp_path / "half", "--steps", 3, "--recipe", "delayed", folder=copy))
    shutil.rmtree(copy)
    run("train", "--resume", "--out", tmp_path / "half", "--steps", 6)
    assert state_bytes(tmp_path / "half") == state_bytes(tmp_path / "whole")


def test_onnxruntime_runs_the_exported_model(tmp_path):
    run(*flags("llama", tmp_path / "run", "--steps", 2, "--recipe", "tensorwise"))
    run("export", tmp_path / "run", "-o", tmp_path / "trained.onnx")
    evaluated = run("eval", tmp_path / "run", "--data", ARTIFACTS / "llama" / "feeds.npz", "--recipe", "off",
                    "--json").stdout
    session = onnxruntime.InferenceSession(tmp_path / "trained.onnx")
    batch = dict(feeds("llama"))
    labels = batch.pop("labels")
    scores, = session.run(None, batch)
    assert scores.shape == (4, 8, 48)
    exact = scores.astype(np.float64)
    right = np.take_along_axis(exact, labels[..., None], -1)[..., 0]
    loss = (np.log(np.exp(exact).sum(-1)) - right).mean()
    assert abs(json.loads(evaluated)["loss"] - loss) < 1e-5


@pytest.mark.parametrize("case", ["mlp", "mlp_mse", "mlp_bce"])
def test_their_loss_follows_from_the_exported_scores(case, tmp_path):
    run("export", ARTIFACTS / case, "-o", tmp_path / "t.onnx")
    batch = dict(feeds(case))
    scores, = onnxruntime.InferenceSession(tmp_path / "t.onnx").run(None, {"x": batch.pop("x")})
    z, target = scores.astype(np.float64), next(iter(batch.values()))
    loss = {"mlp": lambda: np.log(np.exp(z).sum(-1)) - z[np.arange(len(z)), target],
            "mlp_mse": lambda: (z - target) ** 2,
            "mlp_bce": lambda: np.log1p(np.exp(z)) - target * z}[case]().mean()
    assert loss == pytest.approx(np.load(ARTIFACTS / case / "losses.npy")[0], rel=1e-5)


def test_frozen_parameters_stay(tmp_path):
    run(*flags("llama", tmp_path / "run", "--steps", 2))
    run("export", tmp_path / "run", "-o", tmp_path / "t.onnx")
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "t.onnx").graph.initializer}
    stored = (ARTIFACTS / "llama" / "checkpoint").read_bytes()
    assert tensors["frequency"].tobytes() in stored
    assert tensors["head.weight"].tobytes() not in stored


def test_the_optimizer_may_be_another(tmp_path):
    run(*flags("mlp", tmp_path / "a", "--steps", STEPS))
    run(*flags("mlp", tmp_path / "b", "--steps", STEPS, "--optimizer", "sgd"))
    assert curve(tmp_path / "a")[0] == curve(tmp_path / "b")[0]
    assert curve(tmp_path / "a")[-1] != curve(tmp_path / "b")[-1]


def test_evaluation_and_optimizer_may_be_missing(tmp_path):
    copy = shutil.copytree(ARTIFACTS / "mlp", tmp_path / "a")
    (copy / "eval_model.onnx").unlink()
    (copy / "optimizer_model.onnx").unlink()
    run(*flags("mlp", tmp_path / "run", "--steps", 1, folder=copy))
    assert losses(tmp_path / "run")[1] == pytest.approx(np.load(ARTIFACTS / "mlp" / "losses.npy")[0], rel=1e-5)
    run("rewrite", "--ort-training", copy, "-o", tmp_path / "fp8", "--recipe", "tensorwise")
    assert sorted(p.name for p in (tmp_path / "fp8").iterdir()) == ["checkpoint", "training_model.onnx"]


# ---- bad input


def refused(tmp_path, folder, *more):
    return run(*flags("mlp", tmp_path / "run", "--steps", 1, *more, folder=folder), code=1).stderr


def test_half_a_folder_is_named(tmp_path):
    assert "got no folder" in refused(tmp_path, tmp_path / "missing")
    for name in ("training_model.onnx", "checkpoint"):
        copy = shutil.copytree(ARTIFACTS / "mlp", tmp_path / name.split(".")[0])
        (copy / name).unlink()
        error = refused(tmp_path, copy)
        assert f"got none named {name}" in error and str(copy) in error


def test_a_checkpoint_of_another_model_is_named(tmp_path):
    copy = shutil.copytree(ARTIFACTS / "mlp", tmp_path / "a")
    shutil.copy(ARTIFACTS / "vit" / "checkpoint", copy)
    error = refused(tmp_path, copy)
    assert "which the checkpoint lacks: it is of another model" in error
    # The same names with other shapes.
    copy = shutil.copytree(ARTIFACTS / "gpt2", tmp_path / "b")
    shutil.copy(ARTIFACTS / "llama" / "checkpoint", copy)
    assert "of another model" in refused(tmp_path, copy)


def test_a_model_that_is_no_training_model_is_named(tmp_path):
    copy = shutil.copytree(ARTIFACTS / "mlp", tmp_path / "a")
    shutil.copy(copy / "eval_model.onnx", copy / "training_model.onnx")
    assert "expected a training model of onnxruntime.training.artifacts" in refused(tmp_path, copy)


def test_an_optimizer_that_is_not_known_is_named(tmp_path):
    copy = shutil.copytree(ARTIFACTS / "mlp", tmp_path / "a")
    shutil.copy(copy / "eval_model.onnx", copy / "optimizer_model.onnx")
    assert "expected an AdamWOptimizer or an SGDOptimizerV2, got Gemm" in refused(tmp_path, copy)


def test_a_damaged_checkpoint_is_named(tmp_path):
    copy = shutil.copytree(ARTIFACTS / "mlp", tmp_path / "a")
    data = (copy / "checkpoint").read_bytes()
    (copy / "checkpoint").write_bytes(data[:len(data) // 2])
    error = refused(tmp_path, copy)
    assert "truncated or damaged" in error and "checkpoint" in error


def test_one_model_at_a_time(tmp_path):
    error = run(*flags("mlp", tmp_path / "run", "--steps", 1), FIXTURES / "mlp" / "d18.onnx", code=2).stderr
    assert "expected one of MODEL and --ort-training" in error


def test_a_training_model_by_itself_is_named(tmp_path):
    error = run("train", ARTIFACTS / "mlp" / "training_model.onnx", "--data", ARTIFACTS / "mlp" / "feeds.npz", "--loss",
                "mse", "--steps", 1, "--out", tmp_path / "run", code=1).stderr
    assert "expected the folder of its artifacts, as --ort-training" in error


def test_rewritten_artifacts_are_for_onnxruntime_training(tmp_path):
    run("rewrite", "--ort-training", ARTIFACTS / "mlp", "-o", tmp_path / "fp8", "--recipe", "delayed")
    error = refused(tmp_path, tmp_path / "fp8")
    assert "model that it was made from" in error or "rewritten" in error
