# SPDX-License-Identifier: Apache-2.0
"""A run that was cut off and resumed has the same bits as one that was not, whatever state it keeps from step to step;
and the same bits with another number of threads."""
import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import FIXTURES, metrics_without_speed, run, state_bytes, write_random

STEPS, CUT, BATCH, SAMPLES = 6, 3, 32, 160  # 5 batches an epoch: the cut is within one


def gpt_data(folder):
    """Enough tokens that the threads share the work."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 61, (SAMPLES, 24))
    np.savez(folder / "d.npz", input_ids=rng.integers(0, 61, (SAMPLES, 24)), labels=labels)


def write_convnet(path):
    """Running statistics, and masks that Dropout draws anew each step."""
    rng = np.random.default_rng(0)
    shapes = {"conv.weight": (16, 3, 3, 3), "bn.weight": (16,), "bn.bias": (16,), "fc.weight": (48, 16 * 64)}
    values = {name: rng.normal(scale=0.2, size=shape) for name, shape in shapes.items()}
    values |= {"bn.running_mean": np.zeros(16), "bn.running_var": np.ones(16), "ratio": np.array(0.25)}
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"],
                         ["b", "mean", "var"], training_mode=1),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Dropout", ["d", "ratio", "on"], ["e"], seed=7),
        helper.make_node("Gemm", ["e", "fc.weight"], ["logits"], transB=1),
    ]
    initializers = [numpy_helper.from_array(x.astype(np.float32), name) for name, x in values.items()]
    initializers.append(numpy_helper.from_array(np.array(True), "on"))
    graph = helper.make_graph(
        nodes, "convnet", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 48])], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def convnet_data(folder):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SAMPLES, 3, 8, 8)).astype(np.float32)
    np.savez(folder / "d.npz", x=x, labels=rng.integers(0, 48, SAMPLES))


@pytest.fixture
def flags_of(tmp_path):
    """flags_of(model) are MODEL, its data, loss and batches."""
    def make(model):
        path = FIXTURES / model / "d18.onnx"
        if model == "convnet":
            path = tmp_path / "convnet.onnx"
            write_convnet(path)
            convnet_data(tmp_path)
        elif model == "mlp":
            write_random(tmp_path / "d.npz", SAMPLES)
        else:
            gpt_data(tmp_path)
        return [path, "--data", tmp_path / "d.npz", "--loss", "cross_entropy", "--batch-size", BATCH, "--seed", 3]
    return make


def cut(whole, parts):
    """As if killed after step CUT's checkpoint was complete, when the next lines of the metrics were half written."""
    shutil.copytree(whole, parts)
    shutil.rmtree(parts / "checkpoints" / f"step_{STEPS:08}")
    (parts / "latest").write_text(f"step_{CUT:08}\n")
    with open(parts / "metrics.jsonl", "a") as file:
        file.write('{"step":9,"loss":1}\n{"step":')


def expect_same_bits(tmp, flags):
    run("train", *flags, "--steps", STEPS, "--save-every", CUT, "--threads", 1, "--out", tmp / "whole")
    cut(tmp / "whole", tmp / "parts")
    done = run("train", "--resume", "--out", tmp / "parts")
    assert f"resuming at step {CUT} of {STEPS}" in done.stderr
    run("train", *flags, "--steps", STEPS, "--threads", 2, "--out", tmp / "threads")
    lines = metrics_without_speed(tmp / "whole")
    assert [m["step"] for m in lines] == list(range(1, STEPS + 1))
    assert not any("skipped" in m for m in lines)
    for other in ("parts", "threads"):
        assert metrics_without_speed(tmp / other) == lines, other
        assert state_bytes(tmp / other) == state_bytes(tmp / "whole"), other


def named_recipes():
    return [recipe["name"] for recipe in json.loads(run("recipes", "--json").stdout)]


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("recipe", named_recipes())
def test_every_named_recipe(tmp_path, flags_of, recipe, accumulation):
    flags = [*flags_of("nanogpt"), "--schedule", "cosine:warmup=2"]
    more = []
    if recipe == "static":
        run("calibrate", *flags[:-4], "--steps", 1, "-o", tmp_path / "scales.json")
        more = ["--scales", tmp_path / "scales.json"]
    expect_same_bits(tmp_path, [*flags, "--recipe", recipe, "--grad-accum", accumulation, *more])


# The parameters of the convnet are large enough for two threads.
WAYS = {
    "momentum": ("convnet", ["--optimizer", "sgd", "--lr", 0.1, "--momentum", 0.9]),
    "nesterov": ("convnet", ["--optimizer", "sgd", "--lr", 0.1, "--momentum", 0.9, "--nesterov", "--weight-decay", 0.01]),
    "adam": ("convnet", ["--optimizer", "adam", "--weight-decay", 0.01, "--schedule", "linear:warmup=2,min=0.1"]),
    "moments": ("convnet", ["--moments", "bfloat16"]),
    "moments of micro-batches": ("mlp", ["--moments", "bfloat16", "--optimizer", "adamw_hf", "--grad-accum", 2]),
    "moments of released gradients": ("convnet", ["--moments", "bfloat16", "--release-gradients"]),
    "clipping": ("convnet", ["--clip-norm", 0.1, "--schedule", "linear"]),
    "clipping by the step before": ("convnet", ["--clip-norm", "0.1:previous", "--release-gradients"]),
    "averages": ("convnet", ["--ema", "0.9,every=2"]),
    "averages of micro-batches": ("mlp", ["--ema", 0.9, "--master", "split8", "--grad-accum", 2]),
    "groups": ("convnet", ["--group", "bn.*=weight_decay:0,lr_scale:0.5", "--group", "conv.*=lr_scale:0"]),
    "micro": ("mlp", ["--recipe", "delayed,update:micro", "--grad-accum", 2]),
    "layers": ("mlp", ["--recipe", "mxfp8", "--recipe-for", "fc1=delayed", "--recipe-for", "fc2=off", "--recipe-for",
                       "head=rowwise,tr:requantize"]),
    "FP8 weights": ("mlp", ["--recipe", "delayed", "--primary-weights", "fp8"]),
    "frozen codes": ("mlp", ["--recipe", "rowwise", "--freeze", "fc1*", "--frozen", "fp8"]),
    "frozen codes and bfloat16s": ("mlp", ["--recipe", "delayed", "--filter-fqns", "fc1", "--dtype", "bfloat16", "--freeze", "fc*",
                                           "--frozen", "fp8"]),
    "muon": ("mlp", ["--optimizer", "muon", "--recipe", "delayed"]),
    "muon of micro-batches": ("mlp", ["--optimizer", "muon", "--moments", "fp8", "--grad-accum", 2]),
    "hopper": ("mlp", ["--recipe", "tensorwise", "--accumulate", "hopper"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_else_is_kept(tmp_path, flags_of, way):
    model, flags = WAYS[way]
    expect_same_bits(tmp_path, [*flags_of(model), *flags])


def test_state_in_files(tmp_path, flags_of):
    """A run begins with its state in files and goes on without them."""
    flags = [*flags_of("convnet"), "--save-every", CUT]
    run("train", *flags, "--steps", STEPS, "--out", tmp_path / "whole")
    (tmp_path / "state").mkdir()
    done = run("train", *flags, "--steps", CUT, "--out", tmp_path / "parts", "--state-dir", tmp_path / "state", "--json")
    summary = json.loads(done.stdout)
    matrix = 4 * 48 * 16 * 64  # the one large weight, which has two moments
    assert summary["outside_bytes"] == 3 * matrix < summary["state_bytes"]
    assert f"--state-dir: 576.0 KiB of state lie in files of {tmp_path / 'state'}" in done.stderr
    assert not list((tmp_path / "state").iterdir())
    run("train", "--resume", "--out", tmp_path / "parts", "--steps", STEPS)
    assert state_bytes(tmp_path / "parts") == state_bytes(tmp_path / "whole")
    assert "--state-dir" not in json.loads((tmp_path / "parts/config.json").read_text())["flags"]


def test_fp8_weights_leave_no_trace(tmp_path, flags_of):
    """The codes that live between steps are the ones that each step would make, and a resumed run may do without."""
    flags = flags_of("mlp")
    run("calibrate", *flags[:-2], "--steps", 1, "-o", tmp_path / "scales.json")
    flags += ["--recipe", "static", "--scales", tmp_path / "scales.json", "--steps", STEPS, "--save-every", CUT]
    run("train", *flags, "--out", tmp_path / "plain")
    done = run("train", *flags, "--primary-weights", "fp8", "--out", tmp_path / "fp8")
    assert "weights live from step to step" in done.stderr
    cut(tmp_path / "fp8", tmp_path / "parts")
    run("train", "--resume", "--primary-weights", "float", "--out", tmp_path / "parts")
    for other in ("fp8", "parts"):
        assert metrics_without_speed(tmp_path / other) == metrics_without_speed(tmp_path / "plain"), other
        assert state_bytes(tmp_path / other) == state_bytes(tmp_path / "plain"), other


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("recipe", ["off", "delayed"])
def test_running_statistics_and_dropout(tmp_path, flags_of, recipe, accumulation):
    expect_same_bits(tmp_path, [*flags_of("convnet"), "--recipe", recipe, "--grad-accum", accumulation])
