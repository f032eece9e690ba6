# SPDX-License-Identifier: Apache-2.0
"""Initial weights (--weights, --init) that do not belong to the model."""
import json

import ml_dtypes
import numpy as np
import weight_files
from onnx import helper
from safetensors.numpy import save_file

from bad_input.case import CLASSES, Case, Cases, cut, good, grad, model, save, tensors, train, weights

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


@cases("[init.safetensors] holds \"wieght\", which is no parameter of the model", "; w gets no value (--rename gives tensors other names)")
def one_unknown_name(folder):
    return init(folder, {"wieght": weights()["w"], "b": weights()["b"]})


def packed(folder, array):
    """--weights with another form of w, under another name."""
    good(folder)
    weight_files.write(folder / "init.safetensors", {"b": weights()["b"], "w_packed": array})
    return grad(folder, "--weights", "init.safetensors")


def packed_case(name, array, dtype):
    cases.append(Case(name, lambda folder: packed(folder, array), (
        "[init.safetensors] holds \"w_packed\", which is no parameter of the model",
        f"; w gets no value; weights of {dtype} are not read"), 1))


packed_case("two_weights_in_a_byte", np.zeros((5, 2, 1), np.uint8), "uint8")
packed_case("weights_in_int8", np.zeros((5, 3), np.int8), "int8")
packed_case("eight_weights_in_an_int32", np.zeros((5, 1), np.int32), "int32")
packed_case("codes_of_another_name", np.zeros((5, 3), ml_dtypes.float8_e5m2), "float8e5m2 without a scale")


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


def sharded(folder, places, *flags):
    """--weights with an index of the one shard init.safetensors."""
    good(folder)
    (folder / "hub").mkdir()
    save_file(weights(), folder / "hub/init.safetensors")
    (folder / "hub/model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return grad(folder, "--weights", "hub", *flags)


@cases("[hub/model.safetensors.index.json] names the shard hub/b.safetensors, which does not exist")
def no_such_shard(folder):
    return sharded(folder, {"w": "b.safetensors"})


@cases("[hub/model.safetensors.index.json] expected names of files in the index' folder as shards, "
       "got \"../good.npz\"")
def a_shard_elsewhere(folder):
    return sharded(folder, {"w": "../good.npz"})


@cases("[hub/init.safetensors] expected tensor \"v\", which hub/model.safetensors.index.json says is there, got none")
def a_tensor_that_its_shard_lacks(folder):
    return sharded(folder, {"v": "init.safetensors"})


@cases("[hub] --rename model.*=* matches no tensor")
def a_rename_without_effect(folder):
    return sharded(folder, {"w": "init.safetensors"}, "--rename", "model.*=*")


@cases("[hub] --rename gives b and w one name, w")
def two_tensors_of_one_name(folder):
    return sharded(folder, {"w": "init.safetensors"}, "--rename", "*=w")


@cases("[hub/init.safetensors] expected w (b in the file) of shape [5,3], got [3]")
def a_rename_to_a_weight_of_another_shape(folder):
    return sharded(folder, {"w": "init.safetensors"}, "--rename", "w=b", "--rename", "b=w")


@cases("--rename: expected OLD=NEW with no more * in NEW than in OLD, as in model.*=*, got \"w\"", code=2)
def no_rename(folder):
    return sharded(folder, {"w": "init.safetensors"}, "--rename", "w")


@cases("--init: expected normal:STD beside --weights, got init.safetensors", code=2)
def two_files_of_weights(folder):
    return sharded(folder, {"w": "init.safetensors"}, "--init", "init.safetensors")


@cases("--init: expected normal:STD with a standard deviation above 0", code=2)
def no_deviation(folder):
    return sharded(folder, {"w": "init.safetensors"}, "--init", "normal:-1")


@cases("[hub] expected a folder with model.safetensors or model.safetensors.index.json, got neither")
def a_folder_without_weights(folder):
    good(folder)
    (folder / "hub").mkdir()
    return grad(folder, "--weights", "hub")


@cases("[hub] expected a folder with model.safetensors or model.safetensors.index.json, got neither, but pytorch_model.bin: ",
       "are not read", "writes safetensors")
def a_folder_with_a_pickle(folder):
    good(folder)
    (folder / "hub").mkdir()
    (folder / "hub/pytorch_model.bin").write_bytes(b"PK\x03\x04" + bytes(200))
    return grad(folder, "--weights", "hub")


def codes(folder, **more):
    """--weights with w in FP8."""
    good(folder)
    arrays = {"w": weights()["w"].astype(ml_dtypes.float8_e4m3fn), "b": weights()["b"]}
    weight_files.write(folder / "codes.safetensors", arrays | more)
    return grad(folder, "--weights", "codes.safetensors")


@cases("[codes.safetensors] expected w of a float type, got float8e4m3fn without a scale")
def codes_without_a_scale(folder):
    return codes(folder)


@cases("[codes.safetensors] expected w_scale for the tensor, its rows or its blocks of 128 x 128", "got [2,2]")
def a_scale_of_another_shape(folder):
    return codes(folder, w_scale=np.ones((2, 2), np.float32))


@cases("[codes.safetensors] expected w_scale of a float type, got float8e5m2")
def a_scale_in_fp8(folder):
    return codes(folder, w_scale=np.ones((), ml_dtypes.float8_e5m2))


@cases("[nvfp4.safetensors] expected w of a float type, got uint8")
def weights_in_nvfp4(folder):
    """Two codes in a byte, and scales of blocks that have a scale."""
    good(folder)
    weight_files.write(folder / "nvfp4.safetensors", {
        "b": weights()["b"], "w": np.zeros((5, 2), np.uint8), "w_scale": np.ones((5, 1), ml_dtypes.float8_e4m3fn),
        "w_scale_2": np.ones((), np.float32)})
    return grad(folder, "--weights", "nvfp4.safetensors")


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
