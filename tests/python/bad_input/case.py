# SPDX-License-Identifier: Apache-2.0
"""The form of a case of bad input, and the small model that most cases spoil."""
import dataclasses
import functools
import pathlib
import shutil
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from program import FIXTURES, run


BATCH = 4  # samples of good.npz
CLASSES = 3


@dataclasses.dataclass(frozen=True)
class Case:
    """`make(folder)` writes the files and returns the command line, which runs in that folder.

    The program must exit with `code` and print one error that contains all of `words`; it may write the files
    named in `leaves` and no others.
    """

    name: str
    make: object
    words: tuple
    code: int
    leaves: tuple = ()
    drop_override: bool = False  # run without root's right to write everywhere


class Cases(list):
    """The cases of one module; `cases("words", ...)` decorates a function that makes a case."""

    def __call__(self, *words, code=1, **options):
        def add(make):
            self.append(Case(make.__name__, make, words, code, **options))
            return make

        return add


# ---- a good model, its data, and a run of it

def weights(seed=0):
    rng = np.random.default_rng(seed)
    return {"w": rng.normal(size=(5, CLASSES)).astype(np.float32), "b": np.zeros(CLASSES, np.float32)}


def tensors(arrays):
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def linear_nodes():
    return [helper.make_node("MatMul", ["x", "w"], ["xw"], "product"),
            helper.make_node("Add", ["xw", "b"], ["y"], "sum")]


def model(nodes=None, initializers=None, opset=18, functions=(), imports=(), inputs=None, outputs=None):
    """y = x w + b, or with the given parts in place of its own."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        linear_nodes() if nodes is None else nodes, "small",
        [value("x", TensorProto.FLOAT, ["batch", 5])] if inputs is None else inputs,
        [value("y", TensorProto.FLOAT, None)] if outputs is None else outputs,
        tensors(weights()) if initializers is None else initializers)
    opsets = [helper.make_opsetid("", opset), *imports]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions))


def save(proto, path):
    pathlib.Path(path).write_bytes(proto.SerializeToString())


def arrays(samples=BATCH):
    rng = np.random.default_rng(1)
    return {"x": rng.normal(size=(samples, 5)).astype(np.float32), "labels": np.arange(samples) % CLASSES}


def good(folder):
    """m.onnx and good.npz."""
    save(model(), folder / "m.onnx")
    np.savez(folder / "good.npz", **arrays())


def inspect(proto, folder):
    """The command that inspects `proto`, with a size for its open axis."""
    save(proto, folder / "m.onnx")
    return ["inspect", "m.onnx", "--shape", "batch=4"]


def grad(folder, *flags, data="good.npz", loss="cross_entropy"):
    return ["grad", "m.onnx", "--data", data, "--loss", loss, "-o", "out.npz", *flags]


def train(*flags, data="good.npz", steps=2, loss="cross_entropy", out="run"):
    return ["train", "m.onnx", "--data", data, "--loss", loss, "--steps", steps, "--batch-size", 2,
            "--out", out, *flags]


@functools.cache
def trained():
    """A folder with the good files and a run of two steps, made once."""
    keep = tempfile.TemporaryDirectory()
    folder = pathlib.Path(keep.name)
    good(folder)
    run(*train(), cwd=folder)
    return keep, folder


def good_run(folder):
    """m.onnx, good.npz, and run/ with one checkpoint, whose folder is returned."""
    shutil.copytree(trained()[1], folder, dirs_exist_ok=True)
    return folder / "run" / "checkpoints" / "step_00000002"


def resume(*flags, steps=4):
    return ["train", "--resume", "--out", "run", "--steps", steps, *flags]


def flip(path, at, mask=0x01):
    """Changes one byte of a file; `at` may count from its end."""
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def cut(path, size):
    """Keeps the first `size` bytes, or all but the last -size."""
    path.write_bytes(path.read_bytes()[:size])
