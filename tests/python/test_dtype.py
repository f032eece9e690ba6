# SPDX-License-Identifier: Apache-2.0
"""--dtype bfloat16 and float16, in every command and in written files."""
import json

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from program import FIXTURES, losses, metrics, run, state_bytes
from safetensors.numpy import load_file
from stock import stock_session
from test_step_files import Case, file_losses, trained_losses

MODELS = ["mlp", "nanogpt", "llama", "vit"]
DTYPES = ["bfloat16", "float16"]


def case_of(name, tmp_path):
    return Case(FIXTURES / name / "d18.onnx", tmp_path)


def rounds(model):
    return sum(node.op_type == "RoundTo" for node in model.graph.node)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("recipe", ["off", "tensorwise"])
@pytest.mark.parametrize("name", MODELS)
def test_stock_onnxruntime_trains_the_step(name, recipe, dtype, tmp_path):
    case = case_of(name, tmp_path)
    path = tmp_path / "step.onnx"
    more = ["--dtype", dtype]
    if dtype == "float16":
        # The first steps are skipped, and the scale then grows.
        more += ["--loss-scale", 2.0**30, "--loss-scale-interval", 2]
    run("rewrite", case.model, "-o", path, *case.flags(recipe), "--shape", case.shapes(), *more)
    model, file = file_losses(path, case.feeds)
    assert rounds(model) > 10
    bound = {binding.key for binding in model.training_info[0].update_binding}
    assert ({"loss_scale", "loss_scale.growth"} <= bound) == (dtype == "float16")
    ours = trained_losses(case, recipe, more=more)
    # Sums in another order may round to the next number of 8 bits.
    difference = np.abs(np.subtract(file, ours)) / np.abs(ours)
    assert difference[0] <= 1e-3 and difference.max() <= 3e-2, difference
    with np.errstate(all="ignore"):  # of a step that is skipped
        first = float(ReferenceEvaluator(model).run(None, case.feeds)[0])
    assert first == pytest.approx(file[0], rel=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("recipe", ["off", "tensorwise"])
@pytest.mark.parametrize("name", MODELS)
def test_a_forward_file_rounds_too(name, recipe, dtype, tmp_path):
    case = case_of(name, tmp_path)
    path = tmp_path / "forward.onnx"
    done = run("rewrite", case.model, "-o", path, "--recipe", recipe, "--dtype", dtype)
    assert ("0 of" in done.stdout) == (recipe == "off")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert rounds(model) > 3
    session = stock_session(path)
    feeds = {i.name: case.feeds[i.name] for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    stock = dict(zip(names, session.run(None, feeds)))
    np.savez(tmp_path / "feeds.npz", **feeds)
    run("run", path, "--data", tmp_path / "feeds.npz", "-o", tmp_path / "out.safetensors")
    ours = load_file(tmp_path / "out.safetensors")
    exact = stock_session(case.model).run(names, feeds)
    for y, output in zip(exact, names):
        size = np.abs(y).max()
        error = np.abs(stock[output] - y).max()
        assert 0 < error <= (0.2 if recipe != "off" else 0.02) * size
        assert np.abs(stock[output] - ours[output]).max() <= 0.5 * error


def test_every_command_rounds(tmp_path):
    case = case_of("nanogpt", tmp_path)
    data = ["--data", case.data, *case.loss_flags(), "--batch-size", case.batch]
    for command, more in {"eval": [], "train": ["--steps", 5, "--no-shuffle", "--optimizer", "sgd", "--lr", 0.1]}.items():
        found = {}
        for dtype in ["float32", *DTYPES]:
            out = ["--out", tmp_path / dtype] if command == "train" else []
            done = run(command, case.model, *data, *more, *out, "--json", "--dtype", dtype)
            found[dtype] = json.loads(done.stdout)["loss"]
        for dtype in DTYPES:
            assert found[dtype] != found["float32"], command
            assert found[dtype] == pytest.approx(found["float32"], rel=5e-3), command
    gradients = {}
    for dtype in ["float32", *DTYPES]:
        run("grad", case.model, *data, "--dtype", dtype, "-o", tmp_path / f"{dtype}.safetensors")
        gradients[dtype] = load_file(tmp_path / f"{dtype}.safetensors")
    for key, want in gradients["float32"].items():
        for dtype, bound in {"bfloat16": 0.1, "float16": 0.02}.items():
            got = gradients[dtype][key]
            assert got.dtype == want.dtype
            assert 0 < np.abs(got - want).max() <= bound * np.abs(want).max(), (key, dtype)
    run("calibrate", case.model, *data, "--steps", 1, "--dtype", "float16", "-o",
        tmp_path / "scales.json")
    memory = {dtype: json.loads(run("inspect", case.model, "--json", "--shape", case.shapes(), *case.loss_flags(),
                                    "--dtype", dtype).stdout)["memory"] for dtype in ["float32", "bfloat16"]}
    assert memory["bfloat16"] != memory["float32"]


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_run_keeps_its_dtype(dtype, accumulated, tmp_path):
    case = case_of("nanogpt", tmp_path)
    flags = ["--data", case.data, *case.loss_flags(), "--batch-size", case.batch // accumulated, "--grad-accum",
             accumulated, "--no-shuffle", "--dtype", dtype]
    if dtype == "float16":
        flags += ["--loss-scale", 2.0**31, "--loss-scale-interval", 2]
    run("train", case.model, *flags, "--steps", 6, "--out", tmp_path / "whole")
    run("train", case.model, *flags, "--steps", 3, "--out", tmp_path / "parts")
    run("train", "--resume", "--out", tmp_path / "parts", "--steps", 6)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert state_bytes(tmp_path / "parts") == state_bytes(tmp_path / "whole")
    scales = [m["loss_scale"] for m in metrics(tmp_path / "whole") if "loss_scale" in m]
    assert len(scales) == (6 if dtype == "float16" else 0)
    ours = json.loads(run("eval", tmp_path / "parts", "--data", case.data, "--json").stdout)["loss"]
    exact = json.loads(run("eval", tmp_path / "parts", "--data", case.data, "--json", "--dtype", "float32").stdout)["loss"]
    assert ours != exact and ours == pytest.approx(exact, rel=1e-2)
    # The exported weights are float32.
    run("export", tmp_path / "parts", "-o", tmp_path / "x.onnx")
    kinds = {t.data_type for t in onnx.load(tmp_path / "x.onnx").graph.initializer}
    assert onnx.TensorProto.BFLOAT16 not in kinds


def test_loss_scaling_follows_gradscaler(tmp_path):
    """The rule of torch.amp.GradScaler, with steps that are skipped, and growth."""
    case = case_of("mlp", tmp_path)
    flags = ["--data", case.data, *case.loss_flags(), "--batch-size", case.batch, "--no-shuffle", "--dtype", "float16",
             "--loss-scale", 2.0**24, "--loss-scale-interval", 3]
    run("train", case.model, *flags, "--steps", 20, "--out", tmp_path / "run")
    lines = metrics(tmp_path / "run")
    scale, good = 2.0**24, 0
    for line in lines:
        assert line["loss_scale"] == scale
        if line.get("skipped"):
            scale, good = scale * 0.5, 0
        else:
            good += 1
            if good == 3:
                scale, good = scale * 2, 0
    skipped = [line.get("skipped", False) for line in lines]
    assert any(skipped) and not all(skipped)
    # The norm is taken of unscaled gradients.
    flags[flags.index("float16")] = "float32"
    run("train", case.model, *flags, "--steps", 1, "--out", tmp_path / "exact")
    first = next(line for line in lines if not line.get("skipped"))
    assert first["grad_norm"] == pytest.approx(metrics(tmp_path / "exact")[0]["grad_norm"], rel=1e-2)


@pytest.mark.parametrize("flag,value", [("--loss-scale", 0), ("--loss-scale", "inf"), ("--loss-scale-interval", 0)])
def test_a_bad_loss_scale_is_refused(flag, value, tmp_path):
    case = case_of("mlp", tmp_path)
    words = ["train", case.model, "--data", case.data, *case.loss_flags(), "--batch-size", case.batch, "--steps", 1,
             "--dtype", "float16", flag, value, "--out", tmp_path / "run"]
    code = 1 if flag == "--loss-scale" and value == 0 else 2
    assert "expected" in run(*words, code=code).stderr
    assert not (tmp_path / "run").exists()
