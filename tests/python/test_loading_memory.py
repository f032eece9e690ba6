# SPDX-License-Identifier: Apache-2.0
"""The memory of a run that begins: weights are read tensor by tensor into their place, so the process never holds more than
its state and one tensor."""
import json
import shutil
import subprocess

import ml_dtypes
import numpy as np
import onnx
import pytest
from program import BIN, run
from rank_jobs import LAUNCHER, need_mpi
from safetensors.numpy import save_file
from weight_files import quantized, write_shards

WIDTH, LAYERS, BATCH = 1536, 12, 4
TENSOR = 4 * WIDTH * WIDTH
STATE = LAYERS * TENSOR
# SGD has no moments: the weights are all of the state.
FLAGS = ["--loss", "mse", "--optimizer", "sgd", "--steps", 1, "--batch-size", BATCH, "--lr", 0.01, "--threads", 1, "--json"]


def write_model(folder, width, external):
    """A chain of square products with random weights, in the model or beside it, and data."""
    folder.mkdir()
    info = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], f"product{i}") for i in range(LAYERS)]
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.normal(0, width ** -0.5, (width, width)).astype(np.float32) for i in range(LAYERS)}
    graph = onnx.helper.make_graph(nodes, "g", [info("x0", 1, ["batch", width])],
                                   [info(f"x{LAYERS}", 1, ["batch", width])],
                                   [onnx.numpy_helper.from_array(w, name) for name, w in weights.items()])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, folder / "m.onnx", save_as_external_data=external, location="w.bin", size_threshold=1024)
    x = rng.normal(size=(2, 2 * BATCH, width)).astype(np.float32)
    np.savez(folder / "d.npz", x0=x[0], labels=x[1])
    return weights


def command(folder, *flags):
    return ["train", folder / "m.onnx", "--data", folder / "d.npz", "--out", folder / "run", *FLAGS, *flags]


def check(done, base, state, tensors=1):
    """`base`: the peak of the same run on tiny tensors, which is the program itself. A step adds its arena."""
    assert done["state_bytes"] == pytest.approx(state, rel=0.01)
    assert done["peak_bytes"] < base["peak_bytes"] + done["state_bytes"] + done["arena_bytes"] + tensors * TENSOR


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "tiny"
    write_model(folder, 16, True)
    return json.loads(run(*command(folder)).stdout)


def test_weights_of_a_model(tmp_path, base):
    write_model(tmp_path / "m", WIDTH, True)
    check(json.loads(run(*command(tmp_path / "m")).stdout), base, STATE)


def test_weights_of_a_state_dict(tmp_path, base):
    """They are converted, and replace the model's own."""
    weights = write_model(tmp_path / "m", WIDTH, True)
    save_file({name: (2 * w).astype(np.float64) for name, w in weights.items()}, tmp_path / "w.safetensors")
    check(json.loads(run(*command(tmp_path / "m", "--init", tmp_path / "w.safetensors")).stdout), base, STATE)


def test_fp8_weights_of_a_model_without_data(tmp_path, base):
    """Codes are decoded one tensor at a time."""
    weights = write_model(tmp_path / "m", WIDTH, True)
    (tmp_path / "m/w.bin").unlink()
    blocks = -(-WIDTH // 128)
    scales = np.full((blocks, blocks), 2.0 ** -8, np.float32)
    stored = [{name: quantized(w, scales, (128, 128))[0], f"{name}_scale_inv": scales} for name, w in weights.items()]
    write_shards(tmp_path / "hub", *stored)
    check(json.loads(run(*command(tmp_path / "m", "--weights", tmp_path / "hub")).stdout), base, STATE)


def test_frozen_weights_of_a_folder(tmp_path, base):
    """No float of a weight that lives as FP8 codes stays, neither when a run begins nor when it goes on, and checkpoints
    hold none but in one file."""
    weights = write_model(tmp_path / "m", WIDTH, True)
    (tmp_path / "m/w.bin").unlink()
    halves = {name: w.astype(ml_dtypes.bfloat16) for name, w in weights.items()}
    write_shards(tmp_path / "hub", {name: halves[name] for name in list(halves)[::2]},
                 {name: halves[name] for name in list(halves)[1::2]})
    trained, frozen = f"w{LAYERS - 1}", (LAYERS - 1) * WIDTH * WIDTH
    words = command(tmp_path / "m", "--weights", tmp_path / "hub", "--freeze", "*", "--train", trained, "--frozen", "fp8",
                    "--recipe", "tensorwise")

    def check_frozen(done):
        assert done["state_bytes"] == pytest.approx(frozen + TENSOR, rel=0.01)
        # A float is read beside the bfloat16s that it comes from, and copied into its place.
        assert done["peak_bytes"] < base["peak_bytes"] + done["state_bytes"] + done["arena_bytes"] + 3 * TENSOR

    check_frozen(json.loads(run(*words).stdout))
    shutil.rmtree(tmp_path / "hub")
    check_frozen(json.loads(run("train", "--resume", "--out", tmp_path / "m/run", "--steps", 2, "--json").stdout))
    checkpoints = tmp_path / "m/run/checkpoints"
    file, = checkpoints.glob("frozen_*.safetensors")
    assert file.stat().st_size == pytest.approx(2 * frozen, rel=0.01)
    for state in checkpoints.glob("*/state.safetensors"):
        assert state.stat().st_size == pytest.approx(TENSOR, rel=0.01)


def test_parts_of_weights(tmp_path):
    need_mpi()

    def ranks(folder):
        words = [LAUNCHER, "-n", 2, BIN, *command(folder, "--mesh", "dp=2", "--shard", "parameters")]
        return json.loads(subprocess.run([str(word) for word in words], capture_output=True, check=True, timeout=300).stdout)

    write_model(tmp_path / "tiny", 16, True)
    write_model(tmp_path / "m", WIDTH, True)
    # A collective of MPI has buffers of its own for what it receives, and keeps them for some time.
    check(ranks(tmp_path / "m"), ranks(tmp_path / "tiny"), STATE / 2, tensors=2)
