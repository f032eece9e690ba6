# SPDX-License-Identifier: Apache-2.0
"""Moments that are kept as bfloat16: the body of their rounding in other runtimes, written steps in stock onnxruntime,
their bytes."""
import json
import struct

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime import OrtValue
from program import FIXTURES, run, state_bytes, write_random
from stock import stock_session
from test_quantize_bodies import DOMAIN, Runner, assert_all_same, bodies, dims, same_bits  # noqa: F401

MLP = FIXTURES / "mlp" / "d18.onnx"
NUMBERS = 40 * 24 + 40 + 32 * 40 + 32 + 10 * 32 + 10  # parameters of the MLP
LOW = 2**32 - 1


def mix(x):
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & LOW
    x = ((x ^ (x >> 15)) * 0x846CA68B) & LOW
    return x ^ (x >> 16)


def draws(seed, update, stream, places):
    key = mix((seed & LOW) ^ stream)
    key = mix((seed >> 32) ^ key)
    key = mix((update & LOW) ^ key)
    return [mix((place & LOW) ^ mix((place >> 32) ^ key)) >> 16 for place in places]


def rounded(x, drawn):
    """Floats, by the draws, in plain integers."""
    bits = x.reshape(-1).view(np.uint32)
    result = []
    for word, draw in zip(map(int, bits), drawn):
        magnitude, sign = word & 0x7FFFFFFF, word & 0x80000000
        if magnitude < 0x7F800000:
            magnitude = min((magnitude + draw) >> 16, 0x7F7F) << 16
        result.append(sign | magnitude)
    return np.array(result, np.uint32).view(np.float32).reshape(x.shape)


ENDS = np.array([0, 0x80000000, 1, 0x80000001, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000, 0x7F7EFFFF, 0x7F7F0000, 0x7F7F0001,
                 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F7FFFFF, 0xBF80FFFF], np.uint32)
# shift, run, stride, begin
PLACES = [(0, 1, 1, 0), (5, 7, 21, 14), (2**32 - 30, 1, 1, 0), (3, 16, 2**33, 2**32 - 8)]


@pytest.mark.parametrize("shape", [(), (7,), (3, 33), (0, 2)], ids=str)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_stochastic_rounding(tmp_path, bodies, place, shape):  # noqa: F811
    shift, length, stride, begin = place
    stream, seed, update = 0xFEDCBA98, 0x7123456789ABCDEF, 2**32 + 17
    graph = f"""g ({dims(shape)} x, int64 seed, int64 update) => ({dims(shape)} y) {{
      h = {DOMAIN}.RoundStochastic<stream = {stream}, shift = {shift}, row = {length}, stride = {stride},
                                   begin = {begin}>(x, seed, update)
      y = Cast<to = 1>(h) }}"""
    runner = Runner(tmp_path, bodies, graph, ["RoundStochastic"])
    words = np.random.default_rng(1).integers(0, 2**32, max(int(np.prod(shape)), 1), dtype=np.uint32)
    words[:len(ENDS)] = ENDS[:len(words)]
    x = words[:int(np.prod(shape))].view(np.float32).reshape(shape)
    at = [(i + shift) // length * stride + begin + (i + shift) % length for i in range(x.size)]
    results = runner.run(x=np.asarray(x), seed=np.asarray(seed), update=np.asarray(update))
    for result in results:
        result["y"] = result["y"] + np.float32(0)  # onnxruntime's zeros have no sign
    ours = assert_all_same(results)
    assert same_bits(ours["y"], rounded(x, draws(seed, update, stream, at)) + np.float32(0))


def widened(value):
    """An OrtValue of bfloat16 as floats."""
    shape = value.shape()
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], "widen",
                              [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    [y] = stock_session(model).run_with_ort_values(["y"], {"x": value})
    return y.numpy()


def stock_steps(path, feeds, steps):
    """Losses and the last state of a written step; it stays in the runtime's memory, which has types that NumPy lacks."""
    session = stock_session(path)
    names = [output.name for output in session.get_outputs()]
    fed = {name: OrtValue.ortvalue_from_numpy(x) for name, x in feeds.items()}
    losses = []
    for _ in range(steps):
        out = dict(zip(names, session.run_with_ort_values(names, fed)))
        losses.append(float(out["loss"].numpy()))
        for binding in onnx.load(path).training_info[0].update_binding:
            fed[binding.key] = out[binding.value]
    return losses, fed


def tensors_of(folder):
    """Name → (dtype, bytes) of the newest checkpoint."""
    data = state_bytes(folder)
    [size] = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    body = data[8 + size:]
    return {name: (entry["dtype"], body[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def floats_of(entry):
    dtype, data = entry
    if dtype == "F32":
        return np.frombuffer(data, np.float32)
    assert dtype == "BF16"
    return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)


OPTIMIZERS = {
    "adamw": ["--optimizer", "adamw"],
    "adamw_hf": ["--optimizer", "adamw_hf", "--weight-decay", 0.01],
    "momentum": ["--optimizer", "sgd", "--momentum", 0.9],
    "muon": ["--optimizer", "muon"],
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_stock_onnxruntime_trains_the_step(tmp_path, optimizer):
    """Its gradients differ in their last bits, so few moments may be rounded to another neighbor. Other draws would round
    a third of the squares to another one."""
    steps, batch = 4, 16
    data = write_random(tmp_path / "d.npz", batch)
    flags = ["--loss", "cross_entropy", "--moments", "bfloat16", "--lr", 1e-3, *OPTIMIZERS[optimizer]]
    run("rewrite", MLP, "-o", tmp_path / "step.onnx", *flags, "--shape", f"batch={batch}")
    model = onnx.load(tmp_path / "step.onnx")
    onnx.checker.check_model(model, full_check=True)
    drawn = {node.op_type for node in model.graph.node} & {"RoundStochastic"}
    assert bool(drawn) == (optimizer != "momentum")
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
    assert np.abs(np.subtract(losses, mine)).max() <= 1e-5 * mine[0]
    compared = 0
    for name, entry in ours.items():
        if not name.endswith((".exp_avg", ".exp_avg_sq", ".momentum_buffer")):
            continue
        assert entry[0] == "BF16", name
        want, got = floats_of(entry), widened(state[name]).reshape(-1)
        assert np.mean(want == got) >= 0.95, name
        compared += 1
    # Muon has one moment of each of two hidden matrices.
    assert compared == {"momentum": 6, "muon": 10}.get(optimizer, 12)
    assert ("optimizer.seed" in ours) == (optimizer != "momentum")


@pytest.mark.parametrize("moments", ["float32", "bfloat16", "fp8"])
def test_the_largest_update_is_a_metric(tmp_path, moments):
    """Each weight's first step is the learning rate, and the largest of all steps is in the result. Skipped steps have none."""
    data = write_random(tmp_path / "d.npz", 32)
    done = run("train", MLP, "--data", data, "--loss", "cross_entropy", "--batch-size", 8, "--moments", moments, "--steps", 4,
               "--out", tmp_path / "out", "--json")
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    found = [line["update_amax"] for line in lines if "update_amax" in line]
    if moments == "float32":
        assert not found and "update_amax" not in json.loads(done.stdout)
        return
    assert len(found) == 4 and abs(found[0] - 1) < 1e-3
    assert json.loads(done.stdout)["update_amax"] == max(found)
    assert "  update " in done.stderr


def test_bytes_of_a_parameter():
    flags = ["--loss", "cross_entropy", "--moments", "bfloat16"]
    memory = json.loads(run("inspect", MLP, *flags, "--shape", "batch=4", "--json").stdout)["memory"]
    assert (memory["parameters"], memory["moments"]) == (4 * NUMBERS, 4 * NUMBERS)
    for mesh in ([], ["--mesh", "dp=2", "--shard", "optimizer"]):
        forecast = json.loads(run("plan", MLP, *flags, *mesh, "--batch-size", 8, "--json").stdout)
        # All axes of the parameters are even. Three counters go with the moments.
        kept = 4 * NUMBERS // (2 if mesh else 1)
        assert kept <= forecast["memory"]["optimizer"] <= kept + 64


def test_a_resumed_run_keeps_its_moments(tmp_path):
    data = write_random(tmp_path / "d.npz", 32)
    flags = ["--data", data, "--loss", "cross_entropy", "--batch-size", 8, "--seed", 3]
    run("train", MLP, *flags, "--moments", "bfloat16", "--steps", 4, "--out", tmp_path / "whole")
    run("train", MLP, *flags, "--moments", "bfloat16", "--steps", 2, "--out", tmp_path / "parts")
    done = run("train", "--resume", "--out", tmp_path / "parts", "--steps", 4, "--moments", "float32", code=1)
    assert "exp_avg" in done.stderr
    run("train", "--resume", "--out", tmp_path / "parts", "--steps", 4, "--moments", "bfloat16")
    assert state_bytes(tmp_path / "parts") == state_bytes(tmp_path / "whole")
