# SPDX-License-Identifier: Apache-2.0
"""Weights that are kept as bfloat16s with or without a correction: the bodies in other runtimes, written steps in stock
onnxruntime, bytes, exports."""
import json

import numpy as np
import onnx
import pytest
from program import FIXTURES, run, state_bytes, write_random
from safetensors.numpy import load_file
from test_moments import floats_of, stock_steps, tensors_of, widened
from test_quantize_bodies import DOMAIN, Runner, assert_all_same, bodies, same_bits  # noqa: F401

MLP = FIXTURES / "mlp" / "d18.onnx"
NUMBERS = 40 * 24 + 40 + 32 * 40 + 32 + 10 * 32 + 10  # parameters of the MLP
INT8, INT16 = 3, 5
ENDS = np.array([0, 1, 0x80000001, 0x7F, 0x80, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000, 0x7F7EFFFF, 0x7F7F0000, 0x7F7F7FFF,
                 0x7F7F8000, 0x7F7FFF7F, 0x7F7FFF80, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F7FFFFF,
                 0x3F808000, 0x3F818000, 0x3F800180, 0xBF80FFFF], np.uint32)


def split(word, bits):
    """The half and the correction of a word that is no NaN, in plain integers."""
    unit = 1 << (16 - bits)
    if unit > 1:
        word += unit // 2 - 1 + word // unit % 2
        word -= word % unit
    low = word % 65536
    if low >= 32768:
        low -= 65536
    return (word - low) // 65536, low // unit


def joined(half, correction, bits):
    words = half.astype(np.int64) * 65536 + correction.astype(np.int64) * (1 << (16 - bits))
    return words.astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("bits", [8, 16])
def test_bodies(tmp_path, bodies, bits):  # noqa: F811
    dtype = INT8 if bits == 8 else INT16
    words = np.random.default_rng(1).integers(0, 2**32, (4, 75), dtype=np.uint32)
    words.reshape(-1)[:len(ENDS)] = ENDS
    nan = (words & 0x7FFFFFFF) > 0x7F800000
    graph = f"""g (float[4, 75] x) => (float[4, 75] h, float[4, 75] c, float[4, 75] y) {{
      half, correction = {DOMAIN}.EncodeMaster<correction = {dtype}>(x)
      y = {DOMAIN}.DecodeMaster<correction = {dtype}>(half, correction)
      h = Cast<to = 1>(half)
      c = Cast<to = 1>(correction) }}"""
    runner = Runner(tmp_path, bodies, graph, ["EncodeMaster", "DecodeMaster"])
    ours = assert_all_same(runner.run(x=words.view(np.float32)))
    pairs = [split(int(word), bits) for word in words.reshape(-1)]
    half, correction = (np.array(part).reshape(words.shape) for part in zip(*pairs))
    want = {"h": (half % 65536).astype(np.uint32) << 16, "c": correction.astype(np.float32).view(np.uint32),
            "y": joined(half, correction, bits).view(np.uint32)}
    for name, bits_of in want.items():
        value = np.where(nan, np.float32(0 if name == "c" else np.nan), bits_of.view(np.float32))
        assert same_bits(ours[name], value), name


FORMATS = {"split8": 3, "bfloat16": 2, "split": 4}


def correction_of(entry):
    dtype, data = entry
    return np.frombuffer(data, {"I8": np.int8, "I16": np.int16}[dtype])


def weight_in(tensors, name):
    """The float weight of a checkpoint's tensors."""
    dtype, data = tensors[name]
    if dtype != "BF16":
        return floats_of(tensors[name])
    if name + ".correction" not in tensors:
        return floats_of(tensors[name])
    correction = correction_of(tensors[name + ".correction"])
    return joined(np.frombuffer(data, np.uint16), correction, 8 * correction.itemsize)


@pytest.mark.parametrize("master", FORMATS)
def test_stock_onnxruntime_trains_the_step(tmp_path, master):
    """Its gradients differ in their last bits."""
    steps, batch = 3, 16
    data = write_random(tmp_path / "d.npz", batch)
    flags = ["--loss", "cross_entropy", "--master", master, "--lr", 1e-3]
    run("rewrite", MLP, "-o", tmp_path / "step.onnx", *flags, "--shape", f"batch={batch}")
    model = onnx.load(tmp_path / "step.onnx")
    onnx.checker.check_model(model, full_check=True)
    with np.load(data) as arrays:
        losses, state = stock_steps(tmp_path / "step.onnx", dict(arrays), steps)
    for source, out in ((MLP, "model"), (tmp_path / "step.onnx", "step")):
        more = flags if source == MLP else []
        run("train", source, "--data", data, *more, "--batch-size", batch, "--no-shuffle", "--steps", steps, "--out",
            tmp_path / out)
    assert state_bytes(tmp_path / "step") == state_bytes(tmp_path / "model")
    ours = tensors_of(tmp_path / "model")
    lines = (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()
    mine = [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]
    assert np.abs(np.subtract(losses, mine)).max() <= 1e-4 * mine[0]
    halves = [name for name, entry in ours.items() if entry[0] == "BF16"]
    assert len(halves) == 6
    for name in halves:
        want = weight_in(ours, name)
        half = widened(state[name]).reshape(-1)
        assert np.mean(floats_of(ours[name]) == half) >= 0.95, name
        if master != "bfloat16":
            correction = state[name + ".correction"].numpy().reshape(-1)
            bits = 8 * correction.itemsize
            got = joined(half.view(np.uint32) >> 16, correction, bits)
            assert np.mean(np.abs(got - want) <= 1e-5) >= 0.95, name


@pytest.mark.parametrize("master", FORMATS)
def test_bytes_of_a_parameter(master):
    flags = ["--loss", "cross_entropy", "--master", master]
    report = json.loads(run("inspect", MLP, *flags, "--shape", "batch=4", "--json").stdout)
    assert report["memory"]["parameters"] == FORMATS[master] * NUMBERS
    assert report["memory"]["gradients"] == 4 * NUMBERS
    forecast = json.loads(run("plan", MLP, *flags, "--batch-size", 8, "--json").stdout)
    assert forecast["memory"]["parameters"] == FORMATS[master] * NUMBERS


@pytest.mark.parametrize("master", FORMATS)
def test_exports_and_evaluations_of_a_run(tmp_path, master):
    data = write_random(tmp_path / "d.npz", 32)
    flags = ["--data", data, "--loss", "cross_entropy", "--batch-size", 8, "--seed", 3]
    run("train", MLP, *flags, "--master", master, "--steps", 3, "--out", tmp_path / "run")
    tensors = tensors_of(tmp_path / "run")
    run("export", tmp_path / "run", "-o", tmp_path / "w.onnx")
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load(tmp_path / "w.onnx").graph.initializer}
    compared = 0
    for name, entry in tensors.items():
        if entry[0] != "BF16":
            continue
        assert weights[name].dtype == np.float32
        assert np.array_equal(weights[name].reshape(-1), weight_in(tensors, name)), name
        compared += 1
    assert compared == 6
    run("export", tmp_path / "run", "-o", tmp_path / "w.safetensors")
    floats = load_file(tmp_path / "w.safetensors")
    assert len(floats) == 6 and all(w.dtype == np.float32 for w in floats.values())
    losses = [json.loads(run("eval", source, "--data", data, *more, "--batch-size", 8, "--json").stdout)["loss"]
              for source, more in ((tmp_path / "run", []), (tmp_path / "w.onnx", ["--loss", "cross_entropy"]))]
    assert losses[0] == losses[1]


def test_a_resumed_run_keeps_its_masters(tmp_path):
    data = write_random(tmp_path / "d.npz", 32)
    flags = ["--data", data, "--loss", "cross_entropy", "--batch-size", 8, "--seed", 3, "--master", "split8"]
    run("train", MLP, *flags, "--steps", 4, "--out", tmp_path / "whole")
    run("train", MLP, *flags, "--steps", 2, "--out", tmp_path / "parts")
    done = run("train", "--resume", "--out", tmp_path / "parts", "--steps", 4, "--master", "float32", code=1)
    assert "bfloat16" in done.stderr and "a run keeps the --master and the --frozen with which it began" in done.stderr
    run("train", "--resume", "--out", tmp_path / "parts", "--steps", 4)
    assert state_bytes(tmp_path / "parts") == state_bytes(tmp_path / "whole")
