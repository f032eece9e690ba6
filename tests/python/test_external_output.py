# SPDX-License-Identifier: Apache-2.0
"""Models that are written with their weights in a file beside them, because the user asks for it or because of
Protobuf's limit of 2 GiB."""
import resource

import numpy as np
import onnx
import onnxruntime
import pytest
from program import FIXTURES, reference, run, write_random
from stock import stock_session
from test_external_data import write_holes, write_model

MLP = FIXTURES / "mlp" / "d18.onnx"
CE = ["--loss", "cross_entropy"]
STEP = [*CE, "--shape", "batch=16", "--recipe", "delayed"]
onnxruntime.set_default_logger_severity(4)


def session(path):
    return stock_session(path)


def feeds():
    return {k.split(".", 1)[1]: v for k, v in reference("mlp").items() if k.startswith(("input.", "label."))}


def outputs(path):
    stock = session(path)
    names = {value.name for value in stock.get_inputs()}
    return stock.run(None, {name: x for name, x in feeds().items() if name in names})


def external(path):
    """Bytes of the initializers in the file beside the model, and of those in the model."""
    model = onnx.load(path, load_external_data=False)
    onnx.checker.check_model(path, full_check=True)
    outside = {t.name: {e.key: e.value for e in t.external_data} for t in model.graph.initializer if t.external_data}
    for entry in outside.values():
        assert entry["location"] == f"{path.name}.data" and int(entry["offset"]) % 4096 == 0
    inside = [len(t.raw_data) for t in model.graph.initializer if t.name not in outside]
    return [int(entry["length"]) for entry in outside.values()], inside


def same_model(a, b):
    """Everything except the place of the bytes."""
    models = [onnx.load(path) for path in (a, b)]
    for model in models:
        for tensor in model.graph.initializer:
            tensor.ClearField("data_location")
    return models[0] == models[1]


@pytest.mark.parametrize("flags", [STEP, [*STEP, "--grad-accum", 2], ["--recipe", "delayed"], ["--recipe", "off"]],
                         ids=["step", "micro", "forward", "off"])
def test_rewrite_moves_the_weights_out(flags, tmp_path):
    run("rewrite", MLP, "-o", tmp_path / "in.onnx", *flags)
    run("rewrite", MLP, "-o", tmp_path / "out.onnx", *flags, "--external-data")
    names = ["in.onnx", "in.apply.onnx"] if "--grad-accum" in flags else ["in.onnx"]
    for name in names:
        other = tmp_path / name.replace("in", "out")
        assert not (tmp_path / f"{name}.data").exists()
        outside, inside = external(other)
        assert outside and min(outside) >= 1024 and max(inside, default=0) < 1024
        assert same_model(tmp_path / name, other)
    for x, y in zip(outputs(tmp_path / "in.onnx"), outputs(tmp_path / "out.onnx")):
        np.testing.assert_array_equal(x, y)
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix not in (".onnx", ".data")) == []


def test_export_moves_the_weights_out(tmp_path):
    write_random(tmp_path / "d.npz", 16)
    run("train", MLP, "--data", tmp_path / "d.npz", *CE, "--steps", 2, "--out", tmp_path / "run")
    run("export", tmp_path / "run", "-o", tmp_path / "in.onnx")
    run("export", tmp_path / "run", "-o", tmp_path / "out.onnx", "--external-data")
    assert external(tmp_path / "out.onnx")[0] and same_model(tmp_path / "in.onnx", tmp_path / "out.onnx")
    # Other commands read it like any model.
    run("eval", tmp_path / "out.onnx", "--data", tmp_path / "d.npz", *CE)


def test_only_its_own_data_are_replaced(tmp_path):
    out = tmp_path / "out.onnx"
    run("rewrite", MLP, "-o", out, *STEP, "--external-data")
    before = outputs(out)
    for _ in range(2):  # its own, whatever the flags
        run("rewrite", MLP, "-o", out, *STEP, "--external-data", "--clip-norm", 1)
    assert len(outputs(out)) == len(before)
    (tmp_path / "other.onnx.data").write_bytes(b"precious")
    done = run("rewrite", MLP, "-o", tmp_path / "other.onnx", *STEP, "--external-data", code=1)
    assert f"[{tmp_path}/other.onnx.data] would be replaced by the external data of {tmp_path}/other.onnx" in done.stderr
    assert (tmp_path / "other.onnx.data").read_bytes() == b"precious"
    assert not (tmp_path / "other.onnx").exists()


def test_the_models_own_data_are_not_replaced(tmp_path):
    """Two models that share a data file: one is made from the other."""
    model = write_model(tmp_path, ["b.onnx.data"])
    run("rewrite", model, "-o", tmp_path / "b.onnx", "--recipe", "tensorwise")
    before = (tmp_path / "b.onnx.data").read_bytes()
    done = run("rewrite", model, "-o", tmp_path / "b.onnx", *STEP, "--external-data", code=1)
    assert "would be replaced" in done.stderr
    assert (tmp_path / "b.onnx.data").read_bytes() == before


def test_a_full_disk_leaves_the_old_files(tmp_path):
    """To the program, a limit on the size of files is like a full disk."""
    out = tmp_path / "out.onnx"
    run("rewrite", MLP, "-o", out, *STEP, "--external-data")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    limit = len(before["out.onnx.data"]) - 100
    done = run("rewrite", MLP, "-o", out, *STEP, "--external-data", code=1,
               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert f"[{out}.data] can't be written: File too large" in done.stderr
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_step_beyond_2_gib_is_written(tmp_path):
    """Its weights are zero, so that they and the moments are holes, which take no room."""
    size = write_holes(tmp_path / "m.onnx", 1 << 14, 1)
    step = tmp_path / "step.onnx"
    run("rewrite", tmp_path / "m.onnx", "-o", step, "--loss", "mse", "--shape", "batch=1", "--optimizer", "adamw")
    data = tmp_path / "step.onnx.data"
    assert data.stat().st_size >= 3 * size > 2 << 30 and data.stat().st_blocks * 512 < 1 << 20
    onnx.checker.check_model(step)
    model = onnx.load(step, load_external_data=False)
    assert sum(bool(t.external_data) for t in model.graph.initializer) == 3
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    stock = onnxruntime.InferenceSession(step, options, providers=["CPUExecutionProvider"])
    assert "loss" in [value.name for value in stock.get_outputs()]
