# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of onnxruntime-training 1.19.2 with the state of its optimizer: runs that go on here, or there."""
import shutil

import numpy as np
import pytest
from program import losses, run, state_bytes
from rank_jobs import job_of
from safetensors.numpy import load_file
from test_ort_rewrite import train
from test_ort_training import ARTIFACTS, STEPS, curve, flags

CASES = ["mlp", "gpt2", "bert", "vit", "llama", "cnn", "mlp_mse"]


def saved(case, folder, steps):
    """A checkpoint with the optimizer's state after some steps of theirs, and the losses of 20 more."""
    kept = shutil.copytree(ARTIFACTS / case, folder)
    (kept / "eval_model.onnx").unlink()  # onnxruntime refuses cnn's
    train(case, kept, steps, save=str(folder / "c"))
    more = train(case, kept, STEPS, load=str(folder / "c"))["losses"]
    return folder / "c", np.array(more)


@pytest.mark.parametrize("case", CASES)
def test_a_run_goes_on_as_theirs_does(case, tmp_path):
    checkpoint, truth = saved(case, tmp_path / "theirs", 7)
    run(*flags(case, tmp_path / "run", "--steps", STEPS, "--checkpoint", checkpoint))
    np.testing.assert_allclose(curve(tmp_path / "run"), truth, rtol=1e-5)
    # It matters that the optimizer is not new.
    if case != "mlp_mse":
        assert moments(tmp_path / "run")["optimizer.step"] == 7 + STEPS


def moments(folder):
    latest = (folder / "latest").read_text().strip()
    return load_file(folder / "checkpoints" / latest / "state.safetensors")


def test_the_checkpoint_may_lie_in_the_folder(tmp_path):
    checkpoint, truth = saved("mlp", tmp_path / "theirs", 4)
    shutil.copy(checkpoint, tmp_path / "theirs" / "checkpoint")
    run(*flags("mlp", tmp_path / "run", "--steps", STEPS, folder=tmp_path / "theirs"))
    np.testing.assert_allclose(curve(tmp_path / "run"), truth, rtol=1e-5)


def test_a_run_that_ends_before_it_saves_keeps_the_moments(tmp_path):
    checkpoint, _ = saved("mlp", tmp_path / "theirs", 4)
    arguments = flags("mlp", tmp_path / "run", "--steps", 3, "--recipe", "delayed", "--checkpoint", checkpoint)
    done = run(*arguments)
    assert "start anew" not in done.stderr
    whole = state_bytes(tmp_path / "run")
    # As it was after its start.
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_00000003")
    (tmp_path / "run" / "latest").write_text("step_00000000")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    run("train", "--resume", "--out", tmp_path / "run")
    assert state_bytes(tmp_path / "run") == whole


def test_another_optimizer_starts_anew(tmp_path):
    checkpoint, _ = saved("mlp_mse", tmp_path / "theirs", 4)
    run(*flags("mlp_mse", tmp_path / "run", "--steps", 2, "--optimizer", "adamw", "--checkpoint", checkpoint))
    assert moments(tmp_path / "run")["optimizer.step"] == 2
    checkpoint, _ = saved("mlp", tmp_path / "adam", 4)
    run(*flags("mlp", tmp_path / "sgd", "--steps", 2, "--optimizer", "sgd", "--checkpoint", checkpoint))
    assert not [name for name in moments(tmp_path / "sgd") if "exp_avg" in name]


@pytest.mark.parametrize("case", CASES)
def test_they_go_on_with_a_run_of_ours(case, tmp_path):
    """Seven steps here and thirteen there are their twenty."""
    kept = shutil.copytree(ARTIFACTS / case, tmp_path / "artifacts")
    (kept / "eval_model.onnx").unlink()
    run(*flags(case, tmp_path / "run", "--steps", 7, folder=kept))
    run("export", tmp_path / "run", "--checkpoint", kept / "checkpoint", "-o", tmp_path / "c.ckpt")
    theirs = train(case, kept, STEPS - 7, load=str(tmp_path / "c.ckpt"))["losses"]
    truth = np.load(ARTIFACTS / case / "losses.npy")
    np.testing.assert_allclose(theirs, truth[7:], rtol=1e-5)


def test_there_and_back(tmp_path):
    checkpoint, truth = saved("llama", tmp_path / "theirs", 7)
    run(*flags("llama", tmp_path / "here", "--steps", 5, "--checkpoint", checkpoint))
    run("export", tmp_path / "here", "--checkpoint", checkpoint, "-o", tmp_path / "c.ckpt")
    np.testing.assert_allclose(train("llama", tmp_path / "theirs", 15, load=str(tmp_path / "c.ckpt"))["losses"],
                               truth[5:], rtol=1e-5)


# ---- bad input


def test_a_flag_without_artifacts_is_named(tmp_path):
    error = run("train", ARTIFACTS / "mlp" / "eval_model.onnx", "--data", ARTIFACTS / "mlp" / "feeds.npz", "--loss",
                "mse", "--steps", 1, "--checkpoint", ARTIFACTS / "mlp" / "checkpoint", "--out", tmp_path / "run",
                code=2).stderr
    assert "--checkpoint needs --ort-training" in error


def test_a_checkpoint_of_another_model_is_named(tmp_path):
    run(*flags("mlp", tmp_path / "run", "--steps", 1))
    other = ARTIFACTS / "vit" / "checkpoint"
    error = run("export", tmp_path / "run", "--checkpoint", other, "-o", tmp_path / "c.ckpt", code=1).stderr
    assert str(other) in error and "it is of another model" in error
    assert not (tmp_path / "c.ckpt").exists()


def test_a_checkpoint_needs_one_to_follow(tmp_path):
    run(*flags("mlp", tmp_path / "run", "--steps", 1))
    error = run("export", tmp_path / "run", "-o", tmp_path / "c.ckpt", code=2).stderr
    assert "a .ckpt needs --checkpoint" in error
    error = run("export", tmp_path / "run", "--checkpoint", ARTIFACTS / "mlp" / "checkpoint", "-o", tmp_path / "t.onnx",
                code=2).stderr
    assert "--checkpoint is for a folder of artifacts, or for an --out that ends in .ckpt" in error
    error = run("export", ARTIFACTS / "mlp", "-o", tmp_path / "c.ckpt", code=2).stderr
    assert "a .ckpt is for a run" in error


def test_ranks_take_moments_over_unless_they_divide_them(tmp_path):
    run(*flags("mlp", tmp_path / "run", "--steps", 7))
    run("export", tmp_path / "run", "--checkpoint", ARTIFACTS / "mlp" / "checkpoint", "-o", tmp_path / "c.ckpt")
    run("train", "--resume", "--out", tmp_path / "run", "--steps", 10)

    def ranks(out, *more):
        return job_of(2, *flags("mlp", out, "--steps", 3, "--checkpoint", tmp_path / "c.ckpt", *more),
                      launcher="variables").end(120)

    codes, text = ranks(tmp_path / "ranks")
    assert codes == [0, 0], text
    np.testing.assert_allclose(list(losses(tmp_path / "ranks").values()), list(losses(tmp_path / "run").values())[7:],
                               rtol=1e-5)
    codes, text = ranks(tmp_path / "parts", "--shard", "optimizer")
    assert 2 in codes and 0 not in codes and "expected whole state on each rank for the moments of a checkpoint" in text


def test_moments_of_a_checkpoint_stay_floats(tmp_path):
    run(*flags("mlp", tmp_path / "run", "--steps", 2))
    given = ["--checkpoint", tmp_path / "c.ckpt"]
    run("export", tmp_path / "run", "--checkpoint", ARTIFACTS / "mlp" / "checkpoint", "-o", tmp_path / "c.ckpt")
    error = run(*flags("mlp", tmp_path / "narrow", "--steps", 1, *given, "--moments", "bfloat16"), code=2).stderr
    assert "expected --moments float32 for the moments of a checkpoint, got bfloat16" in error
    # A run whose moments are kept in 16 bits gives a checkpoint of floats.
    run(*flags("mlp", tmp_path / "new", "--steps", 2, "--moments", "bfloat16"))
    run("export", tmp_path / "new", "--checkpoint", ARTIFACTS / "mlp" / "checkpoint", "-o", tmp_path / "new.ckpt")
    run(*flags("mlp", tmp_path / "taken", "--steps", 1, "--checkpoint", tmp_path / "new.ckpt"))
