# SPDX-License-Identifier: Apache-2.0
"""Adapters from the command line: what a run keeps, goes on with and writes."""
import json
import os
import pathlib
import shutil

import ml_dtypes
import numpy as np
import pytest
from program import run, state_bytes
from safetensors.numpy import load_file
from weight_files import layers, random_weights, write_shards

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "samples/digits_mlp"
MODEL = SAMPLE / "digits_mlp.onnx"
FLAGS = ["--data", SAMPLE / "train.npz", "--loss", "cross_entropy", "--batch-size", 16]
LORA = "r=2,alpha=4,targets=fc1,fc2"


def adapter_of(out, folder):
    run("export", out, "--adapter", folder)
    return (folder / "adapter_model.safetensors").read_bytes()


def test_a_run_is_resumed_and_evaluated(tmp_path):
    done = run("train", MODEL, *FLAGS, "--steps", 4, "--lora", LORA + ",dropout=0.2", "--out", tmp_path / "whole")
    assert "2 layers have adapters of r=2, scaling 2, dropout 0.2; the run trains" in done.stderr
    run("train", MODEL, *FLAGS, "--steps", 2, "--lora", LORA + ",dropout=0.2", "--out", tmp_path / "cut")
    run("train", "--resume", "--out", tmp_path / "cut", "--steps", 4)
    assert adapter_of(tmp_path / "cut", tmp_path / "a") == adapter_of(tmp_path / "whole", tmp_path / "b")
    config = json.loads((tmp_path / "a/adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (2, 4, ["fc1", "fc2"])
    shown = run("export", tmp_path / "cut", "-o", tmp_path / "merged.onnx").stdout
    assert "with the adapters merged in float32" in shown
    losses = [json.loads(run("eval", model, "--data", SAMPLE / "val.npz", "--json", *more).stdout)["loss"]
              for model, more in ((tmp_path / "cut", []), (tmp_path / "merged.onnx", ["--loss", "cross_entropy"]),
                                  (MODEL, ["--loss", "cross_entropy"]))]
    assert abs(losses[0] - losses[1]) < 1e-5 and losses[0] != losses[2]


def test_a_run_goes_on_with_a_folder_that_it_needs_only_once(tmp_path):
    run("train", MODEL, *FLAGS, "--steps", 2, "--lora", LORA, "--out", tmp_path / "first")
    adapter = adapter_of(tmp_path / "first", tmp_path / "adapter")
    run("train", MODEL, *FLAGS, "--steps", 1, "--lr", 0, "--lora", tmp_path / "adapter", "--out", tmp_path / "next")
    assert adapter_of(tmp_path / "next", tmp_path / "same") == adapter
    shutil.rmtree(tmp_path / "adapter")
    run("train", "--resume", "--out", tmp_path / "next", "--steps", 2)
    assert adapter_of(tmp_path / "next", tmp_path / "same") == adapter


def test_what_inspect_and_errors_say(tmp_path):
    rows = json.loads(run("inspect", MODEL, "--lora", LORA, "--json").stdout)["initializers"]
    roles = {row["name"]: row["role"] for row in rows}
    assert roles["fc1.lora_A.weight"] == "trained" and roles["fc1.weight"] == "frozen"
    for lora, message in (("r=2,targets=fc9", "matches no linear layer; the model has 3: fc1, fc2, head"),
                          ("r=2", "--lora: expected targets"),
                          (tmp_path / "nowhere", "expected the folder of an adapter")):
        assert message in run("inspect", MODEL, "--lora", lora, code=None).stderr
    run("train", MODEL, *FLAGS, "--steps", 1, "--out", tmp_path / "plain")
    assert "expected a run with --lora" in run("export", tmp_path / "plain", "--adapter", tmp_path / "x", code=1).stderr


SHAPES = {"a.weight": (32, 16), "b.weight": (16, 32), "c.weight": (16, 16)}
NUMBERS = sum(rows * columns for rows, columns in SHAPES.values())


@pytest.fixture
def train_frozen(tmp_path):
    """Trains adapters beside FP8 codes of weights that the folder hub has in bfloat16s."""
    layers(tmp_path / "m.onnx", SHAPES)
    halves = {name: array.astype(ml_dtypes.bfloat16) for name, array in random_weights(SHAPES).items()}
    write_shards(tmp_path / "hub", {name: halves[name] for name in ("a.weight", "c.weight")},
                 {"b.weight": halves["b.weight"]})
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(8, 16)).astype(np.float32),
             labels=rng.normal(size=(8, 16)).astype(np.float32))

    def train(out, steps, *more):
        return run("train", tmp_path / "m.onnx", "--weights", tmp_path / "hub", "--data", tmp_path / "d.npz", "--loss", "mse",
                   "--batch-size", 4, "--recipe", "tensorwise", "--lora", "r=2,alpha=4,targets=a,b,c", "--frozen", "fp8",
                   "--steps", steps, "--save-every", 1, "--out", tmp_path / out, *more)
    return train


def frozen_file(out):
    file, = (out / "checkpoints").glob("frozen_*.safetensors")
    return file


def exported(out, path):
    run("export", out, "-o", path)
    return path.read_bytes()


def test_checkpoints_share_the_frozen_weights(tmp_path, train_frozen):
    whole, part = tmp_path / "whole", tmp_path / "part"
    done = train_frozen("whole", 4)
    assert f"{len(SHAPES)} ({NUMBERS + 8 * len(SHAPES)} bytes)" in done.stderr, done.stderr
    assert f"checkpoints share a file with the frozen weights, of {2 * NUMBERS} bytes" in done.stderr
    assert 2 * NUMBERS < frozen_file(whole).stat().st_size < 2 * NUMBERS + 1000
    states = list(whole.glob("checkpoints/*/state.safetensors"))
    assert len(states) == 2
    for state in states:
        assert not set(SHAPES) & set(load_file(state)), state
    train_frozen("part", 2)
    shutil.rmtree(tmp_path / "hub")
    first = frozen_file(part).stat()
    run("train", "--resume", "--out", part, "--steps", 4)
    assert frozen_file(part).stat().st_ino == first.st_ino
    assert frozen_file(part).name == frozen_file(whole).name
    assert frozen_file(part).read_bytes() == frozen_file(whole).read_bytes()
    assert state_bytes(part) == state_bytes(whole)
    assert adapter_of(part, tmp_path / "a") == adapter_of(whole, tmp_path / "b")
    merged = exported(part, tmp_path / "part.safetensors")
    assert merged == exported(whole, tmp_path / "whole.safetensors")
    assert set(SHAPES) <= set(load_file(tmp_path / "part.safetensors"))
    # Floats and codes are two ways to keep one set of numbers.
    run("train", "--resume", "--out", part, "--steps", 5, "--frozen", "float32")
    run("train", "--resume", "--out", whole, "--steps", 5)
    assert exported(part, tmp_path / "part.safetensors") == exported(whole, tmp_path / "whole.safetensors")


def test_the_best_checkpoint_shares_them_too(tmp_path, train_frozen):
    train_frozen("run", 3, "--val-data", tmp_path / "d.npz", "--val-every", 1, "--save-best", "loss")
    assert os.path.samefile(frozen_file(tmp_path / "run"), frozen_file(tmp_path / "run/best"))
    run("eval", tmp_path / "run", "--best", "--data", tmp_path / "d.npz")


def test_another_file_of_frozen_weights_is_refused(tmp_path, train_frozen):
    train_frozen("run", 1)
    file = frozen_file(tmp_path / "run")
    own = file.read_bytes()

    def refusal():
        return run("train", "--resume", "--out", tmp_path / "run", "--steps", 2, code=1).stderr

    file.write_bytes(own[:-4])
    assert f"[{file}] expected {len(own)} bytes, got {len(own) - 4} (truncated or edited)" in refusal()
    file.write_bytes(own[:-1] + bytes([own[-1] ^ 1]))
    assert f"[{file}] tensor \"" in refusal() and "was damaged or edited" in refusal()
    file.unlink()
    assert f"[{file}] can't be opened: No such file or directory" in refusal()
    file.write_bytes(own)
    run("train", "--resume", "--out", tmp_path / "run", "--steps", 2)


def test_a_killed_first_save_is_no_checkpoint(tmp_path, train_frozen):
    """The file of the weights is written before the checkpoint that names it."""
    out = tmp_path / "run"
    train_frozen("run", 1)
    first = frozen_file(out).name
    for checkpoint in out.glob("checkpoints/step_*"):
        shutil.rmtree(checkpoint)
    (out / "latest").unlink()
    done = run("train", "--resume", "--out", out, "--steps", 1)
    assert "there is no checkpoint in" in done.stderr
    assert frozen_file(out).name == first
