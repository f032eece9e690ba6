# SPDX-License-Identifier: Apache-2.0
"""Losses in files that can't be one."""
import numpy as np
from bad_input.case import Cases, good, grad, helper, model, save, TensorProto, tensors

CASES = cases = Cases()
value = helper.make_tensor_value_info


def own(folder, nodes, inputs=None, outputs=None, initializers=None, opset=18):
    """Gradients with the loss of own.onnx."""
    good(folder)
    inputs = [("y", TensorProto.FLOAT, ["n", 3]), ("labels", TensorProto.INT64, ["n"])] if inputs is None else inputs
    outputs = [("loss", TensorProto.FLOAT, [])] if outputs is None else outputs
    graph = helper.make_graph(nodes, "loss", [value(*i) for i in inputs], [value(*o) for o in outputs],
                              tensors(initializers or {}))
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), folder / "own.onnx")
    return grad(folder, loss="own.onnx")


def mean(source="y", **more):
    return [helper.make_node("ReduceMean", [source], ["loss"], keepdims=0, **more)]


@cases("[own.onnx] can't be opened: No such file or directory")
def loss_file_that_is_missing(folder):
    good(folder)
    return grad(folder, loss="own.onnx")


@cases("[own.onnx] expected an ONNX model")
def loss_file_that_is_no_model(folder):
    good(folder)
    (folder / "own.onnx").write_bytes(b"no model")
    return grad(folder, loss="own.onnx")


@cases("[own.onnx] expected one output, the loss, got 2: loss, other")
def loss_file_with_two_outputs(folder):
    return own(folder, [*mean(), helper.make_node("Identity", ["loss"], ["other"])],
               outputs=[("loss", TensorProto.FLOAT, []), ("other", TensorProto.FLOAT, [])])


@cases("[own.onnx] expected a loss of one float, got \"loss\", float[?,3]")
def loss_file_without_a_number(folder):
    return own(folder, [helper.make_node("Abs", ["y"], ["loss"])], outputs=[("loss", TensorProto.FLOAT, ["n", 3])])


@cases("[own.onnx] expected a loss of one float, got \"loss\", int64[]")
def loss_file_of_integers(folder):
    return own(folder, [helper.make_node("Size", ["y"], ["loss"])], outputs=[("loss", TensorProto.INT64, [])])


@cases("[own.onnx] expected an input with the name of an output of the model (y), got logits, labels")
def loss_file_of_another_model(folder):
    return own(folder, mean("logits"), inputs=[("logits", TensorProto.FLOAT, ["n", 3]),
                                               ("labels", TensorProto.INT64, ["n"])])


@cases("[own.onnx] expected an input \"y\" of float[?,3], as the model has it, got float[?,7]")
def loss_file_for_more_classes(folder):
    command = own(folder, mean(), inputs=[("y", TensorProto.FLOAT, ["n", 7])])
    save(model(outputs=[value("y", TensorProto.FLOAT, ["batch", 3])]), folder / "m.onnx")
    return command


@cases("[own.onnx] expected an input \"y\" of float", "got double[?,3]")
def loss_file_of_another_type(folder):
    return own(folder, mean(), inputs=[("y", TensorProto.DOUBLE, ["n", 3])], outputs=[("loss", TensorProto.DOUBLE, [])])


@cases("[own.onnx] expected a name for the label \"xw\" that no other value of the model has")
def loss_file_with_a_label_of_a_taken_name(folder):
    return own(folder, mean(), inputs=[("y", TensorProto.FLOAT, ["n", 3]), ("xw", TensorProto.FLOAT, ["n"])])


@cases("expected an array \"target\", got labels, x")
def loss_file_with_a_label_that_the_data_lack(folder):
    return own(folder, [helper.make_node("Sub", ["y", "target"], ["miss"]), *mean("miss")],
               inputs=[("y", TensorProto.FLOAT, ["n", 3]), ("target", TensorProto.FLOAT, ["n", 3])])


@cases("[own.onnx] expected a loss without If, Loop and Scan, got If")
def loss_file_with_branches(folder):
    def branch(scale):
        constant = tensors({"c": np.array(scale, np.float32)})
        return helper.make_graph([helper.make_node("Identity", ["c"], ["out"])], "b", [],
                                 [value("out", TensorProto.FLOAT, [])], constant)

    nodes = [helper.make_node("ReduceMean", ["y"], ["m"], keepdims=0), helper.make_node("Greater", ["m", "zero"], ["c"]),
             helper.make_node("If", ["c"], ["f"], then_branch=branch(1), else_branch=branch(2)),
             helper.make_node("Mul", ["m", "f"], ["loss"])]
    return own(folder, nodes, initializers={"zero": np.array(0, np.float32)})


@cases("--label-smoothing is an option of the loss cross_entropy, got own.onnx", code=2)
def loss_file_with_smoothing(folder):
    return [*own(folder, mean()), "--label-smoothing", "0.1"]
