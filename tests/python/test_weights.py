# SPDX-License-Identifier: Apache-2.0
"""Weights from files of others (`--weights`): shards, 16 bits, FP8 with scales, other names, for models without data."""
import json
import shutil

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import losses, run, state_bytes
from safetensors.numpy import load_file, save_file
from weight_files import layers, quantized, random_weights, without_data, write, write_shards

SHAPES = {"a.weight": (6, 5), "b.weight": (4, 6), "c.weight": (3, 4)}
FLAGS = ["--loss", "mse", "--optimizer", "sgd", "--batch-size", 4]


def write_data(path, inputs, outputs):
    rng = np.random.default_rng(1)
    np.savez(path, x=rng.normal(size=(8, inputs)).astype(np.float32),
             labels=rng.normal(size=(8, outputs)).astype(np.float32))


def train(folder, *flags, out="run", lr=0, steps=1, **options):
    """Trains m.onnx. With a rate of 0 the weights stay as they were read."""
    return run("train", folder / "m.onnx", "--data", folder / "d.npz", *FLAGS, "--lr", lr, "--steps", steps, "--out",
               folder / out, *flags, **options)


def start(folder, shapes, *flags, dtype=TensorProto.FLOAT, **options):
    """Trains layers without data."""
    layers(folder / "m.onnx", shapes, dtype)
    sizes = list(shapes.values())
    write_data(folder / "d.npz", sizes[0][1], sizes[-1][0])
    return train(folder, *flags, **options)


def weights_of(folder):
    run("export", folder / "run", "-o", folder / "out.safetensors")
    return load_file(folder / "out.safetensors")


def check_same(got, want):
    assert got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, name)


def test_shards_in_all_widths_under_other_names(tmp_path):
    own = random_weights(SHAPES)
    stored = {"model.a.weight": own["a.weight"], "model.b.weight": own["b.weight"].astype(np.float16),
              "head.weight": own["c.weight"].astype(ml_dtypes.bfloat16)}
    write_shards(tmp_path / "hub", {k: stored[k] for k in ("model.a.weight", "head.weight")},
                 {"model.b.weight": stored["model.b.weight"], "model.steps": np.arange(3)})
    done = start(tmp_path, SHAPES, "--weights", tmp_path / "hub", "--rename", "model.*=*", "--rename", "head.*=c.*")
    assert "left_out.bin does not exist: its tensors come from " in done.stderr
    assert "steps is not in the model and is not read" in done.stderr
    want = {name: stored[key].astype(np.float32) for name, key in zip(SHAPES, stored)}
    check_same(weights_of(tmp_path), want)


def test_a_run_needs_its_weights_only_once(tmp_path):
    write_shards(tmp_path / "hub", random_weights(SHAPES))
    more = ["--weights", tmp_path / "hub", "--freeze", "b.*"]
    start(tmp_path, SHAPES, *more, lr=0.1)
    assert sorted(p.name for p in (tmp_path / "run/model").iterdir()) == ["m.onnx"]
    train(tmp_path, *more, lr=0.1, steps=3, out="whole")
    shutil.rmtree(tmp_path / "hub")
    done = run("train", "--resume", "--out", tmp_path / "run", "--steps", 3)
    assert "its tensors come from the checkpoint" in done.stderr
    assert state_bytes(tmp_path / "run") == state_bytes(tmp_path / "whole")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    run("eval", tmp_path / "run", "--data", tmp_path / "d.npz")
    run("export", tmp_path / "run", "-o", tmp_path / "trained.onnx")
    trained = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "trained.onnx").graph.initializer}
    check_same({name: trained[name] for name in SHAPES}, weights_of(tmp_path))


def test_fp8_with_every_kind_of_scale(tmp_path):
    """The matrices have ragged blocks of 128 x 128."""
    shapes = {"tensor.weight": (130, 5), "one.weight": (140, 130), "rows.weight": (7, 140), "column.weight": (150, 7),
              "blocks.weight": (200, 150), "narrow.weight": (129, 200), "bytes.weight": (40, 129), "wide.weight": (3, 40)}
    own, rng = random_weights(shapes), np.random.default_rng(2)

    def scales(*shape):
        return np.asarray(rng.uniform(0.01, 0.05, shape), np.float32)

    powers = np.exp2(rng.integers(-10, -4, (40, 5))).astype(np.float32)
    kinds = {  # the scale's name and numbers, their grid, the block, the codes' type
        "tensor": ("weight_scale", scales(), (1, 1), (130, 5), ml_dtypes.float8_e4m3fn),
        "one": ("weight_scale_inv", scales(1), (1, 1), (140, 130), ml_dtypes.float8_e4m3fn),
        "rows": ("weight_scale", scales(7), (7, 1), (1, 140), ml_dtypes.float8_e4m3fn),
        "column": ("weight_scale", scales(150, 1).astype(ml_dtypes.bfloat16), (150, 1), (1, 7), ml_dtypes.float8_e4m3fn),
        "blocks": ("weight_scale_inv", scales(2, 2), (2, 2), (128, 128), ml_dtypes.float8_e4m3fn),
        "narrow": ("scale", scales(2, 2), (2, 2), (128, 128), ml_dtypes.float8_e5m2),
        "bytes": ("weight_scale", (np.log2(powers) + 127).astype(np.uint8), (40, 5), (1, 32), ml_dtypes.float8_e4m3fn)}
    stored, want = {"wide.weight": own["wide.weight"], "wide.input_scale": scales()}, {"wide.weight": own["wide.weight"]}
    for module, (name, scale, grid, block, dtype) in kinds.items():
        numbers = powers if module == "bytes" else scale.astype(np.float32)
        stored[f"{module}.{name}"] = scale
        key = f"{module}.weight"
        stored[key], want[key] = quantized(own[key], numbers.reshape(grid), block, dtype)
        assert np.isfinite(want[key]).all() and np.abs(want[key]).max() > 0
    # A scale may lie in another shard than its weight.
    names = sorted(stored)
    write_shards(tmp_path / "hub", *({name: stored[name] for name in names[i::2]} for i in range(2)))
    done = start(tmp_path, shapes, "--weights", tmp_path / "hub")
    assert "wide.input_scale is not in the model and is not read" in done.stderr
    check_same(weights_of(tmp_path), want)


def test_blocks_of_a_configuration(tmp_path):
    """As in checkpoints of DeepSeek and of compressed-tensors."""
    own, grid = random_weights({"a.weight": (10, 33)}), np.random.default_rng(0).uniform(0.01, 0.05, (3, 3))
    codes, want = quantized(own["a.weight"], grid.astype(np.float32), (4, 11))
    write_shards(tmp_path / "hub", {"a.weight": codes, "a.weight_scale": grid.astype(np.float32)})
    config = {"quantization_config": {"weight_block_size": [4, 11]}, "layers": [{"kind": ["full"]}]}
    (tmp_path / "hub/config.json").write_text(json.dumps(config))
    start(tmp_path, {"a.weight": (10, 33)}, "--weights", tmp_path / "hub")
    check_same(weights_of(tmp_path), {"a.weight": want})


def test_missing_weights_are_an_error_or_drawn(tmp_path):
    own = random_weights(SHAPES)
    write(tmp_path / "w.safetensors", {"a.weight": own["a.weight"], "other.weight": own["b.weight"]})
    given = ["--weights", tmp_path / "w.safetensors"]
    done = start(tmp_path, SHAPES, *given, code=1)
    assert "expected 2 more weights, whose data files do not exist: b.weight, c.weight; it holds 1 tensors that the " \
        "model lacks: other.weight" in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()
    done = start(tmp_path, SHAPES, *given, "--init", "normal:0.5", "--seed", 3)
    assert "2 tensors, 36 numbers, are drawn from a normal distribution of deviation 0.5 (seed 3)" in done.stderr
    assert "b.weight (and 1 more: c.weight) is not in the file and is drawn" in done.stderr
    assert "other.weight is not in the model and is not read" in done.stderr
    got = weights_of(tmp_path)
    np.testing.assert_array_equal(got["a.weight"], own["a.weight"])
    assert 0.2 < got["b.weight"].std() < 0.8
    run("train", "--resume", "--out", tmp_path / "run", "--steps", 2)
    check_same(weights_of(tmp_path), got)
    # All weights are there: none is drawn.
    write(tmp_path / "w.safetensors", own)
    shutil.rmtree(tmp_path / "run")
    assert "draws none" in start(tmp_path, SHAPES, *given, "--init", "normal:0.5").stderr
    check_same(weights_of(tmp_path), own)


def test_tables_of_a_file_are_no_weights(tmp_path):
    """Bools, int64s and lists of integers are not taken for a parameter that the file lacks."""
    own = random_weights(SHAPES)
    layers(tmp_path / "m.onnx", SHAPES)
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(own[tensor.name], tensor.name))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    write_data(tmp_path / "d.npz", 5, 3)
    tables = {"mask": np.ones((1, 4, 4), np.bool_), "order": np.arange(4, dtype=np.int32),
              "position_ids": np.arange(4)[None]}
    write(tmp_path / "w.safetensors", {"a.weight": 2 * own["a.weight"]} | tables)
    done = train(tmp_path, "--weights", tmp_path / "w.safetensors")
    assert "mask (and 2 more: order, position_ids) is not in the model and is not read" in done.stderr
    assert "b.weight (and 1 more: c.weight) is not in the file and keeps the model's numbers" in done.stderr
    check_same(weights_of(tmp_path), own | {"a.weight": 2 * own["a.weight"]})


def test_a_model_in_16_bits_without_data(tmp_path):
    own = random_weights(SHAPES)
    write(tmp_path / "w.safetensors", {name: w.astype(ml_dtypes.bfloat16) for name, w in own.items()})
    start(tmp_path, SHAPES, "--weights", tmp_path / "w.safetensors", dtype=TensorProto.BFLOAT16)
    check_same(weights_of(tmp_path), {name: w.astype(ml_dtypes.bfloat16).astype(np.float32) for name, w in own.items()})


def test_one_file_counts_beside_an_index(tmp_path):
    """As in transformers; both may hold other numbers."""
    own = random_weights(SHAPES)
    write_shards(tmp_path / "hub", random_weights(SHAPES, seed=1))
    write(tmp_path / "hub/model.safetensors", own)
    done = start(tmp_path, SHAPES, "--weights", tmp_path / "hub")
    assert f"[{tmp_path}/hub] has model.safetensors and model.safetensors.index.json: the first is read" in done.stderr
    check_same(weights_of(tmp_path), own)


def test_init_means_the_same(tmp_path):
    own = random_weights(SHAPES)
    write_shards(tmp_path / "hub", own)
    start(tmp_path, SHAPES, "--init", tmp_path / "hub")
    check_same(weights_of(tmp_path), own)


def test_a_tied_name_of_the_record(tmp_path):
    """PyTorch's exporter keeps the last name of a tied tensor, and Hugging Face's files the first."""
    layers(tmp_path / "m.onnx", {"head.weight": (3, 5)})
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    entry = {"key": "head.weight", "kind": "parameter", "requires_grad": True, "shape": [3, 5]}
    record = {"version": 1, "exporter": "dynamo", "tensors": {"head.weight": entry},
              "tied": [["embed.weight", "head.weight"]], "separate": True}
    model.metadata_props.add(key="onnx_fp8.parameters", value=json.dumps(record))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    write_data(tmp_path / "d.npz", 5, 3)
    weight = random_weights({"w": (3, 5)})["w"]

    def begin(out, stored, **options):
        save_file(stored, tmp_path / "w.safetensors")
        return train(tmp_path, "--weights", tmp_path / "w.safetensors", out=out, **options)

    begin("run", {"embed.weight": weight})
    np.testing.assert_array_equal(weights_of(tmp_path)["head.weight"], weight)
    begin("both", {"embed.weight": weight, "head.weight": weight})
    done = begin("apart", {"embed.weight": weight, "head.weight": 2 * weight}, code=1)
    assert "expected the same numbers for head.weight and embed.weight, which are one tensor of the module" in done.stderr


def test_grad_and_eval_take_weights(tmp_path):
    own = random_weights(SHAPES)
    write_shards(tmp_path / "hub", own)
    layers(tmp_path / "m.onnx", SHAPES)
    write_data(tmp_path / "d.npz", 5, 3)
    data = np.load(tmp_path / "d.npz")
    want = data["x"].astype(np.float64) @ own["a.weight"].T @ own["b.weight"].T @ own["c.weight"].T
    command = [tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "mse", "--batch-size", 8, "--weights",
               tmp_path / "hub"]
    run("grad", *command, "-o", tmp_path / "g.safetensors")
    np.testing.assert_allclose(load_file(tmp_path / "g.safetensors")["output.h2"], want, rtol=1e-4, atol=1e-6)
    done = run("eval", *command, "--json")
    assert json.loads(done.stdout)["loss"] == pytest.approx(((want - data["labels"]) ** 2).mean(), rel=1e-5)
    assert "its tensors come from " in done.stderr


def test_constants_must_be_in_the_model(tmp_path):
    """A mask that no parameter rule trains can't come from a checkpoint."""
    nodes = [helper.make_node("Gemm", ["x", "a.weight"], ["h"], transB=1), helper.make_node("Gather", ["h", "order"], ["y"],
                                                                                           axis=1)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, ["batch", 5])],
                              [value("y", TensorProto.FLOAT, ["batch", 6])],
                              [without_data("a.weight", (6, 5)), without_data("order", (6,), TensorProto.INT64)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    write_data(tmp_path / "d.npz", 5, 6)
    write(tmp_path / "w.safetensors", random_weights({"a.weight": (6, 5)}) | {"order": np.arange(6)})
    done = train(tmp_path, "--weights", tmp_path / "w.safetensors", code=1)
    assert "order is no parameter of the model" in done.stderr and "left_out.bin, which does not exist" in done.stderr
