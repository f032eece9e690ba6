# SPDX-License-Identifier: Apache-2.0
"""Each command reads a model once.

The operating system counts, but it merges opens of one file that follow each other. The
models here therefore have their weights in a second file, which is opened in between."""
import collections
import ctypes
import os
import struct

import onnx
import pytest
from program import FIXTURES, run, write_batch

MLP = FIXTURES / "mlp" / "d18.onnx"
IN_OPEN, IN_NONBLOCK = 0x20, 0o4000
CE = ["--loss", "cross_entropy"]


class Opens:
    """Counts how often files of a folder are opened, by name."""

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(IN_NONBLOCK)
        if self.fd < 0 or libc.inotify_add_watch(self.fd, os.fsencode(folder), IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def take(self):
        """The counts since the last call."""
        counts = collections.Counter()
        try:
            while data := os.read(self.fd, 1 << 16):
                while data:
                    _, _, _, size = struct.unpack_from("iIII", data)
                    counts[data[16:16 + size].rstrip(b"\0").decode()] += 1
                    data = data[16 + size:]
        except BlockingIOError:
            return counts

    def close(self):
        os.close(self.fd)


@pytest.fixture
def watch():
    watches = []

    def start(folder):
        watches.append(Opens(folder))
        return watches[-1]

    yield start
    for opens in watches:
        opens.close()


def write_model(folder):
    folder.mkdir()
    onnx.save_model(onnx.load(MLP), folder / "m.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    return folder / "m.onnx"


@pytest.mark.parametrize("command,flags", [
    ("eval", ["--data", "d.npz", *CE]),
    ("grad", ["--data", "d.npz", *CE, "-o", "g.npz"]),
    ("calibrate", ["--data", "d.npz", *CE, "--steps", 1, "-o", "scales.json"]),
    ("inspect", [*CE, "--recipe", "tensorwise", "--shape", "batch=4"]),
    ("inspect", []),
    ("rewrite", ["-o", "step.onnx", *CE, "--shape", "batch=4"]),
    ("rewrite", ["-o", "step.onnx", *CE, "--shape", "batch=4", "--grad-accum", 2]),
    ("run", ["--data", "x.npz", "-o", "y.npz"]),
])
def test_a_model(command, flags, watch, tmp_path):
    model = write_model(tmp_path / "model")
    for name in ("d.npz", "x.npz"):
        write_batch("mlp", tmp_path / name)
    opens = watch(model.parent)
    run(command, model, *flags, cwd=tmp_path)
    assert opens.take()["weights"] == 1


def test_a_run(watch, tmp_path):
    model = write_model(tmp_path / "model")
    data = write_batch("mlp", tmp_path / "d.npz")
    flags = ["--data", data, *CE, "--batch-size", 2, "--steps", 1, "--out", tmp_path / "run"]
    opens = watch(model.parent)
    run("train", model, *flags)
    assert opens.take()["weights"] == 2  # the second time to copy it to the run's folder
    opens = watch(tmp_path / "run/model")
    run("eval", tmp_path / "run", "--data", data)
    assert opens.take()["weights"] == 1
    run("train", "--resume", "--steps", 2, "--out", tmp_path / "run")
    assert opens.take()["weights"] == 1
    run("export", tmp_path / "run", "-o", tmp_path / "w.safetensors")
    assert opens.take()["weights"] == 1
