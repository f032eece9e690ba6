# SPDX-License-Identifier: Apache-2.0
"""`export --format`: folders of Hugging Face and forwards in FP8, read by other programs."""
import json
import pathlib
import struct

import ml_dtypes
import numpy as np
import onnx
import pytest
from program import run
from safetensors.numpy import load_file
from stock import stock_session

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "samples/digits_mlp"
FLAGS = ["--data", SAMPLE / "train.npz", "--loss", "cross_entropy", "--batch-size", 16, "--steps", 3]
LAYERS = ("fc1", "fc2")
DTYPES = {"F32": np.float32, "I64": np.int64, "U8": np.uint8, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn}


def trained(tmp_path, *more):
    run("train", SAMPLE / "digits_mlp.onnx", *FLAGS, "--filter-fqns", "head", *more, "--out", tmp_path / "run")
    run("export", tmp_path / "run", "-o", tmp_path / "w.safetensors")
    return load_file(tmp_path / "w.safetensors")


def tensors_of(path, metadata={"format": "pt"}):
    """The file, read without its library, which does not know FP8 in numpy."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    assert header.pop("__metadata__", None) == metadata
    tensors = {}
    for name, row in header.items():
        begin, end = (8 + size + at for at in row["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], DTYPES[row["dtype"]]).reshape(row["shape"])
    return tensors


def hub_folder(folder):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "digits", "torch_dtype": "float16"}))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


# The scale of a weight [out, in] by the largest absolute values of the recipe's parts.
def test_rows_have_powers_of_two(tmp_path):
    weights = trained(tmp_path, "--recipe", "rowwise")
    done = run("export", tmp_path / "run", "-o", tmp_path / "out", "--format", "hf-fp8", "--like",
               hub_folder(tmp_path / "hub"))
    assert "2 layers in FP8 in the layout of compressed-tensors" in done.stderr
    held = tensors_of(tmp_path / "out/model.safetensors")
    for layer in LAYERS:
        weight = weights[f"{layer}.weight"]
        scale = np.exp2(np.ceil(np.log2(np.abs(weight).max(1, keepdims=True).astype(np.float64) / 448)))
        np.testing.assert_array_equal(held[f"{layer}.weight_scale"], scale.astype(np.float32))
        codes = (weight / scale.astype(np.float32)).astype(ml_dtypes.float8_e4m3fn)
        assert held[f"{layer}.weight"].tobytes() == codes.tobytes()
    rest = weights.keys() - {f"{layer}.weight" for layer in LAYERS}
    assert held.keys() == weights.keys() | {f"{layer}.weight_scale" for layer in LAYERS}
    for name in rest:
        np.testing.assert_array_equal(held[name], weights[name])
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert (config["model_type"], config["torch_dtype"]) == ("digits", "float32")
    quantization = config["quantization_config"]
    assert (quantization["quant_method"], quantization["ignore"]) == ("compressed-tensors", ["head", "norm"])
    assert quantization["config_groups"]["group_0"]["weights"]["strategy"] == "channel"
    assert (tmp_path / "out/tokenizer_config.json").read_text() == "{}"
    again = run("export", tmp_path / "run", "-o", tmp_path / "out", "--format", "hf-fp8", code=1).stderr
    assert "expected the name of a new folder" in again


def kept_scales(folder, operand):
    """The state's scales of the forward, by layer."""
    checkpoint = folder / "checkpoints" / (folder / "latest").read_text().strip()
    slots = json.loads(json.loads((checkpoint / "manifest.json").read_text())["notes"]["session.fp8_slots"])
    scales = tensors_of(checkpoint / "state.safetensors", None)["fp8.scale"]
    return {slot["fqn"].removesuffix(".weight"): scale for slot, scale in zip(slots, scales, strict=True)
            if (slot["gemm"], slot["operand"]) == ("forward", operand)}


@pytest.mark.parametrize("recipe,strategy", [("tensorwise", "tensor"), ("delayed", "tensor"), ("blockwise", "block")])
def test_codes_are_near_the_weights(recipe, strategy, tmp_path):
    weights = trained(tmp_path, "--recipe", recipe)
    done = run("export", tmp_path / "run", "-o", tmp_path / "out", "--format", "hf-fp8")
    keeps = recipe == "delayed"
    assert ("2 of them have the run's kept scale of inputs" in done.stderr) == keeps
    held = tensors_of(tmp_path / "out/model.safetensors")
    config = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert list(config["config_groups"]) == ["group_0"]
    assert config["config_groups"]["group_0"]["weights"]["strategy"] == strategy
    assert config["config_groups"]["group_0"]["input_activations"]["dynamic"] != keeps
    inputs = {name.removesuffix(".input_scale"): held[name] for name in held if name.endswith(".input_scale")}
    assert inputs == (kept_scales(tmp_path / "run", "input") if keeps else {}) and all(s > 0 for s in inputs.values())
    if keeps:
        assert {layer: held[f"{layer}.weight_scale"] for layer in LAYERS} == kept_scales(tmp_path / "run", "weight")
    for layer in LAYERS:  # of at most 128 x 128 numbers
        weight, scale = weights[f"{layer}.weight"], held[f"{layer}.weight_scale"]
        assert scale.shape == ((1, 1) if recipe == "blockwise" else (1,))
        if recipe != "delayed":
            assert scale.item() == pytest.approx(np.abs(weight).max() / 448, rel=1e-6)
        decoded = held[f"{layer}.weight"].astype(np.float32) * scale.item()
        # Half of the distance between two codes; a delayed scale may be too small by a step's change of the weight.
        bound = np.abs(weight) / 16 + scale.item() / 1024 + (0.01 if recipe == "delayed" else 0)
        assert (np.abs(decoded - weight) <= bound).all()


# Each 32 numbers of a row have a power of two, rounded up.
def test_groups_have_bytes_as_scales(tmp_path):
    weights = trained(tmp_path, "--recipe", "mxfp8")
    done = run("export", tmp_path / "run", "-o", tmp_path / "out", "--format", "hf-fp8")
    assert "2 layers in FP8 in the layout of compressed-tensors" in done.stderr
    held = tensors_of(tmp_path / "out/model.safetensors")
    for layer in LAYERS:
        weight = weights[f"{layer}.weight"]
        groups = weight.reshape(weight.shape[0], -1, 32)
        exponents = np.ceil(np.log2(np.abs(groups).max(2).astype(np.float64) / 448))
        np.testing.assert_array_equal(held[f"{layer}.weight_scale"], (exponents + 127).astype(np.uint8))
        codes = (groups / np.exp2(exponents)[:, :, None].astype(np.float32)).reshape(weight.shape)
        assert held[f"{layer}.weight"].tobytes() == codes.astype(ml_dtypes.float8_e4m3fn).tobytes()
    config = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert config["format"] == "mxfp8-quantized"


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "delayed"])
def test_stock_onnxruntime_runs_the_forward(recipe, tmp_path):
    trained(tmp_path, "--recipe", recipe)
    run("export", tmp_path / "run", "-o", tmp_path / "served.onnx", "--format", "onnx-fp8")
    model = onnx.load(tmp_path / "served.onnx")
    onnx.checker.check_model(model)
    sizes = {t.name: np.prod(t.dims) for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT8E4M3FN}
    assert sizes == {"fc1.weight.codes": 128 * 64, "fc2.weight.codes": 64 * 128}
    names = {t.name for t in model.graph.initializer}
    assert "head.weight" in names and not {"fc1.weight", "fc2.weight"} & names
    arrays = np.load(SAMPLE / "val.npz")
    logits = stock_session(tmp_path / "served.onnx").run(None, {"x": arrays["x"]})[0].astype(np.float64)
    logs = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True)) - logits.max(1, keepdims=True)
    loss = -logs[np.arange(len(logs)), arrays["labels"]].mean()
    # One batch: dynamic scales of inputs belong to a batch.
    flags = ["--data", SAMPLE / "val.npz", "--batch-size", len(logs), "--json"]
    evaluated = json.loads(run("eval", tmp_path / "run", *flags).stdout)["loss"]
    assert loss == pytest.approx(evaluated, rel=1e-5)
    again = run("eval", tmp_path / "served.onnx", "--loss", "cross_entropy", *flags)
    assert json.loads(again.stdout)["loss"] == pytest.approx(evaluated, rel=1e-5)


@pytest.mark.parametrize("recipe", ["tensorwise", "mxfp8"])
def test_a_forward_in_bfloat16_is_evaluated(recipe, tmp_path):
    trained(tmp_path, "--recipe", recipe, "--dtype", "bfloat16")
    run("export", tmp_path / "run", "-o", tmp_path / "served.onnx", "--format", "onnx-fp8")
    flags = ["--data", SAMPLE / "val.npz", "--batch-size", len(np.load(SAMPLE / "val.npz")["x"]), "--json"]
    losses = [json.loads(run("eval", *words, *flags).stdout)["loss"]
              for words in ([tmp_path / "run"], [tmp_path / "served.onnx", "--loss", "cross_entropy"])]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_halves_and_refusals(tmp_path):
    weights = trained(tmp_path)
    run("export", tmp_path / "run", "-o", tmp_path / "out", "--format", "bf16")
    held = tensors_of(tmp_path / "out/model.safetensors")
    assert held.keys() == weights.keys()
    for name, weight in weights.items():
        assert held[name].tobytes() == weight.astype(ml_dtypes.bfloat16).tobytes()
    for words, message in ((["-o", tmp_path / "x", "--format", "hf-fp8"], "expected a run with layers in FP8, got none"),
                           (["-o", tmp_path / "x", "--format", "onnx-fp8"], "a name that ends in .onnx"),
                           (["-o", tmp_path / "x.onnx", "--format", "bf16"], "the name of a folder"),
                           (["-o", tmp_path / "x.onnx", "--ema"], "--ema: expected a run with --ema, got one that keeps no"),
                           (["-o", tmp_path / "x", "--format", "bf16", "--like", tmp_path / "nowhere"],
                            "expected a folder of Hugging Face with config.json"),
                           (["-o", tmp_path / "x.onnx", "--like", tmp_path], "--like needs --format")):
        assert message in run("export", tmp_path / "run", *words, code=None).stderr, words
        assert not (tmp_path / "x").exists()


def test_averages(tmp_path):
    trained(tmp_path, "--recipe", "tensorwise", "--ema", 0.5)
    run("export", tmp_path / "run", "--ema", "-o", tmp_path / "ema.safetensors")
    averages, weights = load_file(tmp_path / "ema.safetensors"), load_file(tmp_path / "w.safetensors")
    done = run("export", tmp_path / "run", "--ema", "-o", tmp_path / "out", "--format", "hf-fp8")
    assert ": the averages of the weights of step 3, for programs" in done.stdout
    held = tensors_of(tmp_path / "out/model.safetensors")
    for layer in LAYERS:
        average, other = (np.abs(arrays[f"{layer}.weight"]).max() / 448 for arrays in (averages, weights))
        scale = held[f"{layer}.weight_scale"].item()
        assert scale == pytest.approx(average, rel=1e-6) and scale != pytest.approx(other, rel=1e-6)
    done = run("export", tmp_path / "run", "-o", tmp_path / "s.onnx", "--format", "onnx-fp8")
    assert ": the forward with the weights of step 3, for programs" in done.stdout
