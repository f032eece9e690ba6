# SPDX-License-Identifier: Apache-2.0
"""Initial weights (--init) that do not belong to the model."""
import numpy as np
from onnx import helper
from safetensors.numpy import save_file

from bad_input.case import CLASSES, Cases, cut, good, grad, model, save, tensors, train, weights

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


@cases("[init.safetensors] holds \"wieght\", which is no parameter of the model", "; w gets no value")
def one_unknown_name(folder):
    return init(folder, {"wieght": weights()["w"], "b": weights()["b"]})


@cases("[init.safetensors] holds \"position_ids\", which is no parameter of the model")
def integers_of_another_model(folder):
    return init(folder, {"position_ids": np.arange(3)})


def statistics(folder, **arrays):
    """--init for x -> product -> BatchNormalization with the statistics n.running_mean and n.running_var."""
    ones = {name: np.ones(CLASSES, np.float32) for name in ("s", "b", "n.running_mean", "n.running_var")}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("BatchNormalization", ["h", *ones], ["y"])]
    good(folder)
    save(model(nodes=nodes, initializers=tensors({"w": weights()["w"], **ones})), folder / "m.onnx")
    save_file(arrays, folder / "init.safetensors")
    return grad(folder, "--init", "init.safetensors")


@cases("[init.safetensors] expected n.running_mean of shape [3], got [4]")
def statistics_of_another_size(folder):
    return statistics(folder, **{"n.running_mean": np.ones(4, np.float32)})


@cases("[init.safetensors] expected the same numbers for b and c, which are one tensor of the model")
def another_name_of_a_tensor(folder):
    good(folder)
    nodes = [helper.make_node("Identity", ["b"], ["c"]), helper.make_node("MatMul", ["x", "w"], ["h"]),
             helper.make_node("Add", ["h", "b"], ["hb"]), helper.make_node("Add", ["hb", "c"], ["y"])]
    given = {"w": weights()["w"], "b": np.arange(CLASSES, dtype=np.float32)}
    save(model(nodes=nodes, initializers=tensors(given)), folder / "m.onnx")
    save_file(given | {"c": np.ones(CLASSES, np.float32)}, folder / "init.safetensors")
    return grad(folder, "--init", "init.safetensors")


@cases("[init.safetensors] expected n.num_batches_tracked as a number of batches, got int64[] of -1")
def fewer_batches_than_none(folder):
    return statistics(folder, **{"n.num_batches_tracked": np.array(-1)})


@cases("[init.safetensors] expected n.num_batches_tracked as a number of batches, got float[3]")
def batches_that_are_no_number(folder):
    return statistics(folder, **{"n.num_batches_tracked": np.ones(3, np.float32)})


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
