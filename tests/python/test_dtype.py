# SPDX-License-Identifier: Apache-2.0
"""--dtype bfloat16, in every command and in written files."""
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from program import FIXTURES, losses, run
from safetensors.numpy import load_file
from test_step_files import Case, file_losses, trained_losses

MODELS = ["mlp", "nanogpt", "llama", "vit"]
BF16 = ["--dtype", "bfloat16"]


def case_of(name, tmp_path):
    return Case(FIXTURES / name / "d18.onnx", tmp_path)


def rounds(model):
    return sum(node.op_type == "RoundTo" for node in model.graph.node)


@pytest.mark.parametrize("recipe", ["off", "tensorwise"])
@pytest.mark.parametrize("name", MODELS)
def test_stock_onnxruntime_trains_the_step(name, recipe, tmp_path):
    case = case_of(name, tmp_path)
    path = tmp_path / "step.onnx"
    run("rewrite", case.model, "-o", path, *case.flags(recipe), "--shape", case.shapes(), *BF16)
    model, file = file_losses(path, case.feeds)
    assert rounds(model) > 10
    ours = trained_losses(case, recipe, more=BF16)
    # Sums in another order may round to the next number of 8 bits.
    difference = np.abs(np.subtract(file, ours)) / np.abs(ours)
    assert difference[0] <= 1e-3 and difference.max() <= 3e-2, difference
    first = float(ReferenceEvaluator(model).run(None, case.feeds)[0])
    assert first == pytest.approx(file[0], rel=1e-3)


@pytest.mark.parametrize("recipe", ["off", "tensorwise"])
@pytest.mark.parametrize("name", MODELS)
def test_a_forward_file_rounds_too(name, recipe, tmp_path):
    case = case_of(name, tmp_path)
    path = tmp_path / "forward.onnx"
    done = run("rewrite", case.model, "-o", path, "--recipe", recipe, *BF16)
    assert ("0 of" in done.stdout) == (recipe == "off")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert rounds(model) > 3
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {i.name: case.feeds[i.name] for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    stock = dict(zip(names, session.run(None, feeds)))
    np.savez(tmp_path / "feeds.npz", **feeds)
    run("run", path, "--data", tmp_path / "feeds.npz", "-o", tmp_path / "out.safetensors")
    ours = load_file(tmp_path / "out.safetensors")
    exact = onnxruntime.InferenceSession(str(case.model)).run(names, feeds)
    for y, output in zip(exact, names):
        size = np.abs(y).max()
        error = np.abs(stock[output] - y).max()
        assert 0 < error <= (0.2 if recipe != "off" else 0.02) * size
        assert np.abs(stock[output] - ours[output]).max() <= 0.5 * error


def test_every_command_rounds(tmp_path):
    case = case_of("nanogpt", tmp_path)
    data = ["--data", case.data, *case.loss_flags(), "--batch-size", case.batch]
    for command, more in {"eval": [], "train": ["--steps", 5, "--no-shuffle"]}.items():
        found = {}
        for dtype in ["float32", "bfloat16"]:
            out = ["--out", tmp_path / dtype] if command == "train" else []
            done = run(command, case.model, *data, *more, *out, "--json", "--dtype", dtype)
            found[dtype] = json.loads(done.stdout)["loss"]
        assert found["bfloat16"] != found["float32"], command
        assert found["bfloat16"] == pytest.approx(found["float32"], rel=5e-3), command
    for dtype in ["float32", "bfloat16"]:
        run("grad", case.model, *data, "--dtype", dtype, "-o", tmp_path / f"{dtype}.safetensors")
    g, h = (load_file(tmp_path / f"{dtype}.safetensors") for dtype in ["float32", "bfloat16"])
    for key, want in g.items():
        assert h[key].dtype == want.dtype
        assert 0 < np.abs(h[key] - want).max() <= 0.1 * np.abs(want).max(), key
    run("calibrate", case.model, *data, "--steps", 1, *BF16, "-o", tmp_path / "scales.json")
    memory = {dtype: json.loads(run("inspect", case.model, "--json", "--shape", case.shapes(), *case.loss_flags(),
                                    "--dtype", dtype).stdout)["memory"] for dtype in ["float32", "bfloat16"]}
    assert memory["bfloat16"] != memory["float32"]


def test_a_run_keeps_its_dtype(tmp_path):
    case = case_of("nanogpt", tmp_path)
    flags = ["--data", case.data, *case.loss_flags(), "--batch-size", case.batch, "--no-shuffle", *BF16]
    run("train", case.model, *flags, "--steps", 6, "--out", tmp_path / "whole")
    run("train", case.model, *flags, "--steps", 3, "--out", tmp_path / "parts")
    run("train", "--resume", "--out", tmp_path / "parts", "--steps", 6)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    ours = json.loads(run("eval", tmp_path / "parts", "--data", case.data, "--json").stdout)["loss"]
    exact = json.loads(run("eval", tmp_path / "parts", "--data", case.data, "--json", "--dtype", "float32").stdout)["loss"]
    assert ours != exact and ours == pytest.approx(exact, rel=1e-2)
    # The exported weights are float32.
    run("export", tmp_path / "parts", "-o", tmp_path / "x.onnx")
    kinds = {t.data_type for t in onnx.load(tmp_path / "x.onnx").graph.initializer}
    assert onnx.TensorProto.BFLOAT16 not in kinds
