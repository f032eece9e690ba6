# SPDX-License-Identifier: Apache-2.0
"""Files that are no ONNX model, and models with malformed tensors or headers."""
import numpy as np
from onnx import TensorProto, helper

from program import run

from bad_input.case import FIXTURES, Cases, cut, good, inspect, linear_nodes, model, save, tensors, train, weights

CASES = cases = Cases()
MLP = FIXTURES / "mlp" / "d18.onnx"


def raw(name, dims, data, dtype=TensorProto.FLOAT):
    """An initializer with any dims and any bytes."""
    return TensorProto(name=name, dims=dims, data_type=dtype, raw_data=data)


def with_weight(weight):
    """The good model with `weight` in place of its w."""
    return model(initializers=[weight, *tensors({"b": weights()["b"]})])


@cases("[none.onnx] can't be opened: No such file or directory")
def no_such_file(folder):
    return ["inspect", "none.onnx"]


@cases("[m.onnx] expected a regular file, got a folder")
def a_folder(folder):
    (folder / "m.onnx").mkdir()
    return ["inspect", "m.onnx"]


@cases("[m.onnx] can't be opened: Permission denied", drop_override=True)
def unreadable(folder):
    save(model(), folder / "m.onnx")
    (folder / "m.onnx").chmod(0)
    return ["inspect", "m.onnx"]


@cases("[m.onnx] expected an ONNX model, got an empty file")
def empty(folder):
    (folder / "m.onnx").write_bytes(b"")
    return ["inspect", "m.onnx"]


@cases("[m.onnx] expected an ONNX model, got a file that does not parse as one (truncated, or of another format)")
def truncated(folder):
    (folder / "m.onnx").write_bytes(MLP.read_bytes())
    cut(folder / "m.onnx", -1000)
    return ["inspect", "m.onnx"]


@cases("[m.onnx] expected an ONNX model, got a file that does not parse as one (truncated, or of another format)")
def text(folder):
    (folder / "m.onnx").write_text("import torch\nmodel = torch.nn.Linear(5, 3)\n")
    return ["inspect", "m.onnx"]


@cases("[m.onnx] expected an ONNX model, got a file that does not parse as one (truncated, or of another format)")
def garbage(folder):
    (folder / "m.onnx").write_bytes(np.random.default_rng(0).bytes(5000))
    return ["inspect", "m.onnx"]


@cases("[m.onnx] expected an ONNX model, got a file that does not parse as one (truncated, or of another format)")
def a_zip_of_pytorch(folder):
    np.savez(folder / "m.npz", w=np.zeros(3))
    (folder / "m.npz").rename(folder / "m.onnx")
    return ["train", "m.onnx", "--data", "d.npz", "--loss", "mse", "--steps", "1", "--out", "run"]


@cases("[m.onnx] expected an ONNX model with a graph, got something else")
def no_graph(folder):
    proto = model()
    proto.ClearField("graph")
    save(proto, folder / "m.onnx")
    return ["inspect", "m.onnx"]


@cases("[m.onnx] expected an opset_import of the ONNX domain, got none")
def no_opset(folder):
    proto = model()
    del proto.opset_import[:]
    return inspect(proto, folder)


@cases("[m.onnx] expected ONNX opset 7 to 28, got 99; export the model with one of these")
def opset_of_the_future(folder):
    return inspect(model(opset=99), folder)


@cases("[m.onnx] expected ONNX opset 7 to 28, got 6; export the model with one of these")
def opset_of_the_past(folder):
    return inspect(model(opset=6), folder)


@cases("[m.onnx] expected ONNX opset 7 to 28, got 4294967314")
def opset_beyond_32_bits(folder):
    return inspect(model(opset=(1 << 32) + 18), folder)


@cases('[m.onnx] expected one opset of the ONNX domain ("" or "ai.onnx"), got 18 and 17', "remove the opset_import")
def two_opsets(folder):
    return inspect(model(imports=[helper.make_opsetid("ai.onnx", 17)]), folder)


@cases("[m.onnx] expected ONNX's IR version 1 to 14, got 15; export the model with one of these")
def ir_of_the_future(folder):
    proto = model()
    proto.ir_version = 15
    return inspect(proto, folder)


@cases("[Add sum] expected output 0 to be declared as float, which the node computes, got int64")
def output_declared_as_another_type(folder):
    return inspect(model(outputs=[helper.make_tensor_value_info("y", TensorProto.INT64, None)]), folder)


@cases("[Identity same] expected output 0 to be declared as float, which the node computes, got int64")
def alias_declared_as_another_type(folder):
    nodes = [*linear_nodes()[:1], helper.make_node("Identity", ["xw"], ["y"], "same")]
    return inspect(model(nodes, outputs=[helper.make_tensor_value_info("y", TensorProto.INT64, None)]), folder)


@cases("[MatMul product] expected output 0 to be declared as float, which the node computes, got double")
def value_declared_as_another_type(folder):
    proto = model(opset=11)
    proto.graph.value_info.append(helper.make_tensor_value_info("xw", TensorProto.DOUBLE, None))
    return inspect(proto, folder)


@cases('[m.onnx] expected one type of "y", got float and int32')
def value_declared_twice(folder):
    proto = model()
    proto.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.INT32, None))
    return inspect(proto, folder)


@cases('[m.onnx] expected one type of "x", got float and int64')
def input_as_output_of_another_type(folder):
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
               helper.make_tensor_value_info("x", TensorProto.INT64, None)]
    return inspect(model(outputs=outputs), folder)


@cases('[m.onnx] expected one type of "w", got float and double')
def default_of_another_type(folder):
    proto = model()
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.DOUBLE, [5, 3]))
    return inspect(proto, folder)


@cases('[m.onnx] expected initializer "w" of shape [4,3], as the input of that name declares it, got [5,3]')
def default_of_another_shape(folder):
    proto = model()
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3]))
    return inspect(proto, folder)


@cases("[m.onnx w] expected 15 elements of float for shape [5,3], got 56 bytes")
def weight_with_too_few_bytes(folder):
    return inspect(with_weight(raw("w", [5, 3], bytes(56))), folder)


@cases("[m.onnx w] expected 15 elements of float for shape [5,3], got 64 bytes")
def weight_with_too_many_bytes(folder):
    return inspect(with_weight(raw("w", [5, 3], bytes(64))), folder)


@cases("[m.onnx w] expected 15 elements for shape [5,3], got 4")
def weight_with_too_few_numbers(folder):
    weight = TensorProto(name="w", dims=[5, 3], data_type=TensorProto.FLOAT, float_data=[1, 2, 3, 4])
    return inspect(with_weight(weight), folder)


@cases("[m.onnx w] expected axis sizes >= 0, got -5")
def weight_with_a_negative_axis(folder):
    return inspect(with_weight(raw("w", [-5, 3], bytes(60))), folder)


@cases("[m.onnx w] expected 1099511627776 elements of float for shape [1048576,1048576], got 60 bytes")
def weight_of_terabytes(folder):
    return inspect(with_weight(raw("w", [1 << 20, 1 << 20], bytes(60))), folder)


@cases("[m.onnx w] expected a tensor of less than 2^63 elements, got shape [4611686018427387904,4]")
def weight_whose_size_overflows(folder):
    return inspect(with_weight(raw("w", [1 << 62, 4], b"")), folder)


@cases("[m.onnx w] expected a tensor of less than 2^63 elements, got shape [0,4611686018427387904,4]")
def empty_weight_whose_strides_overflow(folder):
    return inspect(with_weight(raw("w", [0, 1 << 62, 4], b"")), folder)


@cases("[m.onnx w] expected a numeric tensor, got ONNX data type 99")
def weight_of_unknown_dtype(folder):
    return inspect(with_weight(raw("w", [5, 3], bytes(60), 99)), folder)


@cases("[m.onnx w] expected a numeric tensor, got ONNX data type 8 (STRING)")
def weight_of_strings(folder):
    weight = TensorProto(name="w", dims=[1], data_type=TensorProto.STRING, string_data=[b"x"])
    return inspect(with_weight(weight), folder)


@cases("[m.onnx] expected dense initializers, got the sparse one \"w\"")
def sparse_weight(folder):
    proto = model(initializers=tensors({"b": weights()["b"]}))
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("w_at", TensorProto.INT64, [1], [0])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [15]))
    return inspect(proto, folder)


@cases("[m.onnx] expected parameters to train, got none; `onnx-fp8 inspect` tells why",
       leaves=("run/config.json", "run/model/m.onnx"))
def nothing_to_train(folder):
    good(folder)
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    save(model(nodes=nodes, initializers=[]), folder / "m.onnx")
    np.savez(folder / "d.npz", x=np.zeros((4, 5), np.float32), labels=np.zeros((4, 5), np.float32))
    return train(data="d.npz", loss="mse")


@cases("[m.onnx] is a forward pass in FP8", "it is rewritten already; expected the model that it was made from")
def rewritten_already(folder):
    save(model(), folder / "first.onnx")
    run("rewrite", "first.onnx", "-o", "m.onnx", "--recipe", "tensorwise", cwd=folder)
    return ["rewrite", "m.onnx", "-o", "again.onnx", "--recipe", "tensorwise"]


@cases("[m.onnx] expected a model with outputs, got none")
def no_outputs(folder):
    good(folder)
    save(model(outputs=[]), folder / "m.onnx")
    return ["train", "m.onnx", "--data", "good.npz", "--loss", "mse", "--steps", "1", "--out", "run"]


@cases("[m.onnx] value \"z\" is an output of the graph but never computed")
def output_of_nothing(folder):
    return inspect(model(outputs=[helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]), folder)


@cases("[m.onnx] expected unique value names, got \"w\" twice")
def two_weights_of_one_name(folder):
    return inspect(model(initializers=tensors(weights()) + tensors({"w": weights()["w"]})), folder)


@cases("[m.onnx] expected graph inputs to be listed once, got \"x\" twice")
def two_inputs_of_one_name(folder):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 5])
    return inspect(model(inputs=[x, x]), folder)


@cases("[m.onnx] expected a value with a name")
def weight_without_a_name(folder):
    return inspect(model(initializers=tensors(weights()) + [raw("", [1], bytes(4))]), folder)


@cases("[MatMul product] expected input 0 (\"x\") to be of ", "float", "got string")
def input_of_strings(folder):
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["batch", 5])
    return inspect(model(inputs=[x]), folder)


@cases("[m.onnx] expected input \"x\" to fit into memory, got [4611686018427387904,5]")
def input_that_fits_no_memory(folder):
    good(folder)
    return ["inspect", "m.onnx", "--shape", "batch=4611686018427387904"]
