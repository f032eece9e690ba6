# SPDX-License-Identifier: Apache-2.0
"""FP8 holds no infinity: `eval` and `grad` report the tensor because of which `train` would skip the step."""
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from program import FIXTURES, reference, run

MODEL = FIXTURES / "mlp" / "l17.onnx"
RECIPES = ["tensorwise", "delayed", "rowwise", "mxfp8"]


def batch(folder, value):
    arrays = {k.split(".", 1)[1]: v.copy() for k, v in reference("mlp").items() if k.startswith(("input.", "label."))}
    arrays["x"][3, 5] = value
    np.savez(folder / "d.npz", **arrays)
    return ["--data", folder / "d.npz", "--loss", "cross_entropy"]


def skipped_because(folder, data, recipe):
    """The cause that `train` gives."""
    done = run("train", MODEL, *data, "--recipe", recipe, "--steps", "1", "--batch-size", "16", "--out", folder / f"run {recipe}")
    return next(line for line in done.stderr.splitlines() if "is skipped" in line).split("changed: ")[1]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_an_input_that_is_not_finite(value, recipe, tmp_path):
    data = batch(tmp_path, value)
    cause = skipped_because(tmp_path, data, recipe)
    assert cause.endswith("is not finite") and "input" in cause
    done = run("eval", MODEL, *data, "--recipe", recipe, "--json")
    report = json.loads(done.stdout)
    assert report["loss"] is None and report["cause"] == cause
    assert "accuracy" not in report
    assert f"{cause}; a step with such a batch would be skipped" in done.stderr
    text = run("eval", MODEL, *data, "--recipe", recipe)
    assert cause in text.stderr and "nan" in text.stdout.lower()
    done = run("grad", MODEL, *data, "--recipe", recipe, "-o", tmp_path / "g.safetensors")
    assert f"{cause}; a step with such a batch would be skipped" in done.stderr
    assert np.isnan(load_file(tmp_path / "g.safetensors")["loss"])


@pytest.mark.parametrize("recipe", ["off", *RECIPES])
def test_finite_batches_say_nothing(recipe, tmp_path):
    data = batch(tmp_path, 0.5)
    done = run("eval", MODEL, *data, "--recipe", recipe, "--json")
    assert "cause" not in json.loads(done.stdout) and "not finite" not in done.stderr
    done = run("grad", MODEL, *data, "--recipe", recipe, "-o", tmp_path / "g.safetensors")
    assert "not finite" not in done.stderr


# Without FP8 the loss itself tells.
def test_without_fp8(tmp_path):
    data = batch(tmp_path, np.inf)
    report = json.loads(run("eval", MODEL, *data, "--json").stdout)
    assert report["loss"] is None and report["cause"] == "the loss is not finite"


def test_validation_of_a_run(tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    train = batch(good, 0.5)
    batch(bad, np.inf)
    done = run("train", MODEL, *train, "--val-data", bad / "d.npz", "--recipe", "tensorwise", "--steps", "1",
               "--batch-size", "16", "--out", tmp_path / "run")
    assert "is not finite; a step with such a batch would be skipped" in done.stderr


@pytest.mark.parametrize("recipe", ["tensorwise", "delayed"])
def test_a_step_in_a_file(recipe, tmp_path):
    data = batch(tmp_path, np.inf)[:2]
    step = tmp_path / "step.onnx"
    run("rewrite", MODEL, "-o", step, "--recipe", recipe, "--loss", "cross_entropy", "--optimizer", "sgd",
        "--shape", "batch=16")
    report = json.loads(run("eval", step, *data, "--json").stdout)
    assert report["loss"] is None and report["cause"].endswith("input is not finite")
    done = run("grad", step, *data, "-o", tmp_path / "g.safetensors")
    assert report["cause"] in done.stderr
    data = batch(tmp_path, 0.5)[:2]
    assert "cause" not in json.loads(run("eval", step, *data, "--json").stdout)
    assert "not finite" not in run("grad", step, *data, "-o", tmp_path / "g.safetensors").stderr
