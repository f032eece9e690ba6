# SPDX-License-Identifier: Apache-2.0
"""Models whose data files are missing train from weights that are drawn (`--init normal:STD`)."""
import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import set_external_data
from program import BIN, FIXTURES, losses, run, state_bytes, write_batch
from rank_jobs import LAUNCHER, need_mpi
from safetensors.numpy import load_file
from stock import stock_session

FLAGS = ["--loss", "cross_entropy", "--batch-size", 4, "--no-shuffle", "--lr", 0.01, "--seed", 7]
DRAWN = ["--init", "normal:0.02"]


@pytest.fixture
def files(tmp_path):
    """nanogpt without its weights, and data."""
    model = onnx.load(FIXTURES / "nanogpt/d18.onnx")
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 0:
            set_external_data(tensor, "weights.bin")
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "weights.bin").unlink()
    return tmp_path / "m.onnx", write_batch("nanogpt", tmp_path / "data.npz", 4)


def train(files, out, *flags, **kwargs):
    model, data = files
    return run("train", model, "--data", data, *FLAGS, "--out", out, *flags, **kwargs)


def test_trains_and_goes_on(files, tmp_path):
    done = train(files, tmp_path / "whole", *DRAWN, "--steps", 4)
    assert "weights.bin does not exist: " in done.stderr and "scales are ones" in done.stderr
    assert "of deviation 0.02 (seed 7)" in done.stderr
    # A fresh model does not know more than chance.
    assert abs(losses(tmp_path / "whole")[1] - np.log(61)) < 0.3, losses(tmp_path / "whole")
    assert sorted(p.name for p in (tmp_path / "whole/model").iterdir()) == ["m.onnx"]
    train(files, tmp_path / "parts", *DRAWN, "--steps", 2)
    run("train", "--out", tmp_path / "parts", "--resume", "--steps", 4)
    assert state_bytes(tmp_path / "parts") == state_bytes(tmp_path / "whole")
    run("eval", tmp_path / "whole", "--data", files[1])
    run("export", tmp_path / "whole", "-o", tmp_path / "w.safetensors")
    weights = load_file(tmp_path / "w.safetensors")
    assert all(np.isfinite(w).all() for w in weights.values())
    run("export", tmp_path / "whole", "-o", tmp_path / "trained.onnx")
    stock_session(tmp_path / "trained.onnx")


def test_inspect_needs_no_numbers(files):
    with_data = json.loads(run("inspect", FIXTURES / "nanogpt/d18.onnx", "--json").stdout)
    done = json.loads(run("inspect", files[0], "--json").stdout)
    assert done["initializers"] == with_data["initializers"] and done["gemms"] == with_data["gemms"]
    assert any("weights.bin does not exist: " in note for note in done["notes"]), done["notes"]


def test_is_the_same_on_every_mesh(files, tmp_path):
    train(files, tmp_path / "one", *DRAWN, "--steps", 2)
    need_mpi()
    model, data = files
    for mesh in ("dp=2", "tp=2"):
        command = [LAUNCHER, "-n", "2", BIN, "train", model, "--data", data, *FLAGS, *DRAWN, "--steps", 2, "--mesh", mesh,
                   "--threads", 1, "--out", tmp_path / mesh]
        subprocess.run([str(word) for word in command], capture_output=True, check=True, timeout=300)
        np.testing.assert_allclose(list(losses(tmp_path / mesh).values()), list(losses(tmp_path / "one").values()),
                                   rtol=1e-5)


def test_frozen_tensors_are_drawn_again(files, tmp_path):
    train(files, tmp_path / "run", *DRAWN, "--steps", 1, "--freeze", "wpe.weight")
    first = run("eval", tmp_path / "run", "--data", files[1], "--json").stdout
    run("export", tmp_path / "run", "-o", tmp_path / "trained.onnx")
    done = run("eval", tmp_path / "trained.onnx", "--data", files[1], "--loss", "cross_entropy", "--batch-size", 4, "--json")
    assert json.loads(done.stdout)["loss"] == pytest.approx(json.loads(first)["loss"], rel=1e-6)
    train(files, tmp_path / "again", *DRAWN, "--steps", 1, "--freeze", "wpe.weight")
    assert run("eval", tmp_path / "again", "--data", files[1], "--json").stdout == first


def test_errors(files, tmp_path):
    done = train(files, tmp_path / "run", "--steps", 1, code=1)
    assert "weights.bin" in done.stderr
    done = train(files, tmp_path / "run", "--steps", 1, "--init", "normal:zero", code=2)
    assert "--init: expected normal:STD with a standard deviation above 0" in done.stderr
    whole = FIXTURES / "nanogpt/d18.onnx"
    done = run("train", whole, "--data", files[1], *FLAGS, *DRAWN, "--steps", 1, "--out", tmp_path / "run", code=1)
    assert "the model has all its data" in done.stderr
    assert not (tmp_path / "run").exists()
