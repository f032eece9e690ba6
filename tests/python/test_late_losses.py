# SPDX-License-Identifier: Apache-2.0
"""What would be lost late, after hours of training, is refused before or said at once."""
import json
import os
import shutil
import subprocess
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import BIN, FIXTURES, losses, metrics, run, write_random
from safetensors.numpy import save_file

MLP = FIXTURES / "mlp" / "d18.onnx"
CE = ["--loss", "cross_entropy", "--batch-size", 8]


def layer(name):
    """A model of one layer whose weight has this name."""
    nodes = [helper.make_node("MatMul", ["x", name], ["y"], "layer")]
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32), name)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def arrays(path, samples=16, seed=0):
    rng = np.random.default_rng(seed)
    np.savez(path, x=rng.normal(size=(samples, 24)).astype(np.float32), labels=rng.integers(0, 4, samples))
    return path


@pytest.mark.parametrize("name, shown, reason", [
    (b"__metadata__", "__metadata__", "the name of a checkpoint's own entry"),
    (b"w\xffight", "w\\xffight", "bytes that are not UTF-8"),
    (b"w\xed\xa0\x80ght", "w\\xed\\xa0\\x80ght", "bytes that are not UTF-8"),
])
def test_names_that_no_checkpoint_can_hold(tmp_path, name, shown, reason):
    mark = "N" * len(name)
    model, data = tmp_path / "m.onnx", arrays(tmp_path / "d.npz")
    model.write_bytes(layer(mark).SerializeToString().replace(mark.encode(), name))
    out = tmp_path / "run"
    done = run("train", model, "--data", data, *CE, "--steps", 1, "--out", out, code=1)
    assert f"{shown}] expected a parameter whose name can be saved, got {reason}: rename it in the model" in done.stderr
    assert not out.exists()
    run("eval", model, "--data", data, "--loss", "cross_entropy")


@pytest.mark.parametrize("model, data, flag", [(b"m.onnx", b"d\xff.npz", "--data"), (b"m\xff.onnx", b"d.npz", "the model")])
def test_names_that_no_configuration_can_hold(tmp_path, model, data, flag):
    place = os.fsencode(tmp_path)
    shutil.copy(MLP, place + b"/" + model)
    os.rename(write_random(tmp_path / "any.npz", 8), place + b"/" + data)
    done = subprocess.run([BIN, "train", place + b"/" + model, "--data", place + b"/" + data, *map(str, CE), "--steps", "1",
                           "--out", tmp_path / "run"], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"[{tmp_path}/run/config.json] can't hold {flag} \"" in done.stderr
    assert "\": expected UTF-8, got other bytes; use another name" in done.stderr
    assert not (tmp_path / "run").exists()


def test_external_data_of_training_info_goes_with_the_run(tmp_path):
    model = layer("w")
    info = model.training_info.add()
    tensor = info.initialization.initializer.add()
    tensor.CopyFrom(numpy_helper.from_array(np.ones((24, 4), np.float32), "start"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/start.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="start.bin")
    info.initialization.name = "initialization"
    info.initialization.output.append(helper.make_tensor_value_info("first", TensorProto.FLOAT, [24, 4]))
    info.initialization.node.append(helper.make_node("Identity", ["start"], ["first"]))
    info.initialization_binding.add(key="w", value="first")
    (tmp_path / "in/m.onnx").write_bytes(model.SerializeToString())
    out, data = tmp_path / "run", arrays(tmp_path / "d.npz")
    run("train", tmp_path / "in/m.onnx", "--data", data, *CE, "--steps", 2, "--out", out)
    assert (out / "model/start.bin").read_bytes() == (tmp_path / "in/start.bin").read_bytes()
    shutil.rmtree(tmp_path / "in")
    run("train", "--resume", "--out", out, "--steps", 4)
    assert sorted(losses(out)) == [1, 2, 3, 4]
    run("export", out, "-o", tmp_path / "t.onnx")


class Run:
    """A run in the background."""

    def __init__(self, out, *flags):
        self.process = subprocess.Popen([BIN, *map(str, flags)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not (out / "latest").exists():
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)

    def lines_until(self, words):
        for line in self.process.stderr:
            if words in line:
                return line
        raise AssertionError("not said")

    def stop(self):
        self.process.terminate()
        return "".join(self.process.communicate(timeout=60))


def begin(tmp_path):
    out = tmp_path / "run"
    return out, Run(out, "train", MLP, "--data", write_random(tmp_path / "d.npz", 40), *CE, "--steps", 10**8,
                    "--save-every", 20, "--out", out)


def test_a_folder_that_is_removed(tmp_path):
    out, job = begin(tmp_path)
    os.rename(out, tmp_path / "old")
    job.lines_until(f"warning: [{out}] expected the folder of the run, got none: it was moved or removed.")
    while not (out / "latest").exists():
        time.sleep(0.01)
    job.stop()
    # The new folder has all steps since the last checkpoint of the old one, and goes on.
    last = max(losses(out))
    assert not (out / "config.json").exists()
    run("train", MLP, "--resume", "--data", tmp_path / "d.npz", *CE, "--steps", last + 1, "--out", out)
    assert max(losses(out)) == last + 1


def test_another_folder_in_its_place(tmp_path):
    """It may hold another run."""
    out, job = begin(tmp_path)
    os.rename(out, tmp_path / "old")
    out.mkdir()
    (out / "mine").write_text("precious")
    job.lines_until(f"can't be saved: [{out}] expected the folder of the run, got another one: it was moved or removed")
    job.stop()
    assert [path.name for path in out.iterdir()] == ["mine"]


def test_other_data_of_the_same_shape(tmp_path):
    out, data = tmp_path / "run", write_random(tmp_path / "d.npz", 40)
    run("train", MLP, "--data", data, "--val-data", data, *CE, "--steps", 2, "--out", out)
    resume = ["train", "--resume", "--out", out, "--steps"]
    assert "note: --" not in run(*resume, 3).stderr
    shutil.copy(data, tmp_path / "copy.npz")
    assert "note: --" not in run(*resume, 4, "--data", tmp_path / "copy.npz").stderr
    write_random(tmp_path / "copy.npz", 40, seed=1)
    said = run(*resume, 5).stderr
    assert said.count("note: --data: the files have another size or content than those with which the run went on before: "
                      f"{tmp_path}/copy.npz") == 1 and "--val-data" not in said
    assert "note: --" not in run(*resume, 6).stderr  # it has been said
    write_random(data, 40, seed=2)
    assert "note: --val-data: the files" in run(*resume, 7).stderr
    assert len(metrics(out)) >= 7


def test_data_are_compared_at_both_ends(tmp_path):
    out, rng, data = tmp_path / "run", np.random.default_rng(0), tmp_path / "d.safetensors"
    save_file({"x": rng.normal(size=(4096, 24)).astype(np.float32), "labels": rng.integers(0, 4, 4096)}, data)
    run("train", MLP, "--data", data, *CE, "--steps", 1, "--out", out)
    whole = data.read_bytes()
    assert json.loads((out / "config.json").read_text())["files"]["--data"][0].startswith(f"{len(whole)} ")
    for steps, at in enumerate((60_000, len(whole) - 60_000), 2):  # low bits of x
        changed = bytearray(whole)
        changed[at & ~3] ^= 1
        data.write_bytes(changed)
        assert "note: --data: the files" in run("train", "--resume", "--out", out, "--steps", steps).stderr


def test_scales_that_have_changed(tmp_path):
    data, scales, out = write_random(tmp_path / "d.npz", 40), tmp_path / "s.json", tmp_path / "run"
    run("calibrate", MLP, "--data", data, *CE, "-o", scales)
    flags = ["train", MLP, "--data", data, *CE, "--recipe", "static", "--scales", scales, "--out", out]
    run(*flags, "--steps", 2)
    text = scales.read_text()
    scales.write_text(text.replace("\n", " "))
    run("train", "--resume", "--out", out, "--steps", 3)  # the checkpoint has them
    shutil.rmtree(out / "checkpoints")
    (out / "latest").unlink()
    done = run("train", "--resume", "--out", out, "--steps", 3, code=1)
    assert f"[{scales}] is not the file that the run was started with; --scales takes it as it is now" in done.stderr
    run("train", "--resume", "--out", out, "--steps", 3, "--scales", scales)
