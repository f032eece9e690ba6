# SPDX-License-Identifier: Apache-2.0
"""Initial weights (--init) that do not belong to the model."""
import numpy as np
from safetensors.numpy import save_file

from bad_input.case import CLASSES, Cases, cut, good, grad, train, weights

CASES = cases = Cases()


def init(folder, arrays):
    good(folder)
    save_file(arrays, folder / "init.safetensors")
    return grad(folder, "--init", "init.safetensors")


@cases("[init.safetensors] can't be opened: No such file or directory")
def no_such_file(folder):
    good(folder)
    return grad(folder, "--init", "init.safetensors")


@cases("[init.safetensors] expected w of shape [5,3], got [3,5]")
def turned_round(folder):
    return init(folder, {"w": np.ascontiguousarray(weights()["w"].T)})


@cases("[init.safetensors] expected w of shape [5,3], got [15]")
def flattened(folder):
    return init(folder, {"w": weights()["w"].reshape(-1)})


@cases("[init.safetensors] holds \"wieght\", which is no parameter of the model", "`onnx-fp8 inspect` lists them")
def unknown_name(folder):
    return init(folder, {"wieght": weights()["w"]})


@cases("[init.safetensors] expected weights, got none")
def no_names_at_all(folder):
    return init(folder, {})


@cases("[init.safetensors] expected w of a float type, got int64")
def integers(folder):
    return init(folder, {"w": np.ones((5, CLASSES), np.int64)})


@cases("[init.safetensors] expected 72 bytes of data, got 71 (truncated?)")
def truncated(folder):
    good(folder)
    save_file(weights(), folder / "init.safetensors")
    cut(folder / "init.safetensors", -1)
    return train("--init", "init.safetensors")


@cases("[init.safetensors] expected a safetensors header within")
def a_pickle_of_pytorch(folder):
    good(folder)
    (folder / "init.safetensors").write_bytes(b"PK\x03\x04" + bytes(200) + b"\x80\x02ccollections\nOrderedDict\n")
    return train("--init", "init.safetensors")
