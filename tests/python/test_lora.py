# SPDX-License-Identifier: Apache-2.0
"""Adapters from the command line: what a run keeps, goes on with and writes."""
import json
import pathlib
import shutil

from program import run

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
