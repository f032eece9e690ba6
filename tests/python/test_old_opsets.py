# SPDX-License-Identifier: Apache-2.0
"""Small models of old opsets, as exporters wrote them: `onnx-fp8 run` compared with stock onnxruntime, which has kernels
for every opset from 7 on. Each row of graph/onnx/upgrade.cc below opset 18 whose op has a kernel has a case on either side of
the change."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import losses, run
from stock import stock_session

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def node(op, inputs, outputs="y", **attributes):
    return helper.make_node(op, inputs.split(","), outputs.split(","), **attributes)


def value(name, array):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


X, TABLE, IMAGE = floats(2, 3, 4), floats(3, 5), floats(2, 3, 6, 8)
F32 = np.float32
NORM = {k: np.abs(floats(3)) + F32(.5) for k in ("g", "b", "m", "v")}
NORM_EACH = {k: np.abs(floats(3, 6, 8)) + F32(.5) for k in ("g", "b", "m", "v")}


def constant(name, array):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))


def scales(*values):
    return {"s": np.array(values, np.float32)}


def recurrent(op, gates, **attributes):
    return ([node(op, "x,w,r,b", "y,h", hidden_size=4, **attributes)], {"x": floats(5, 2, 3)},
            {"w": floats(1, gates * 4, 3), "r": floats(1, gates * 4, 4), "b": floats(1, gates * 8)})


def branches():
    """An If whose branches have an old form and read a value that the outer graph computes."""
    def branch(name, op):
        return helper.make_graph([node("Clip", "t", "c", min=-.5, max=.5), node(op, "c", name, axes=[0])], name, [],
                                 [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])
    return [node("Neg", "x", "t"), constant("k", np.array(True)),
            helper.make_node("If", ["k"], ["y"], then_branch=branch("p", "Unsqueeze"), else_branch=branch("q", "Unsqueeze"))]


def loop():
    body = helper.make_graph(
        [node("Identity", "keep", "more"), node("Slice", "state", "head", axes=[0], starts=[0], ends=[1]),
         node("Add", "state,head", "next"), node("Squeeze", "head", "out", axes=[0])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("keep", TensorProto.BOOL, []),
         helper.make_tensor_value_info("state", TensorProto.FLOAT, [3, 5])],
        [helper.make_tensor_value_info("more", TensorProto.BOOL, []), helper.make_tensor_value_info("next", TensorProto.FLOAT, [3, 5]),
         helper.make_tensor_value_info("out", TensorProto.FLOAT, [5])])
    return [constant("n", np.array(4, np.int64)), constant("go", np.array(True)),
            helper.make_node("Loop", ["n", "go", "x"], ["y", "z"], body=body)]


def scan(**attributes):
    """Opset 8 has a batch axis in front, and lengths, here omitted, as the first operand."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", "s,e", "n"), node("Mul", "n,e", "o")], "body",
        [info("s", TensorProto.FLOAT, [3]), info("e", TensorProto.FLOAT, [3])],
        [info("n", TensorProto.FLOAT, [3]), info("o", TensorProto.FLOAT, [3])])
    return [helper.make_node("Scan", ["", "x", "t"], ["y", "z"], body=body, num_scan_inputs=1, **attributes)]


def hidden():
    """The body's input has the name of an outer value of another type. The limits of Clip take the type of the input."""
    body = helper.make_graph([node("Clip", "x", "c", min=-.5, max=.5)], "body",
                             [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
                             [helper.make_tensor_value_info("c", TensorProto.FLOAT, None)])
    return [node("Cast", "t", "x", to=TensorProto.DOUBLE), node("Neg", "x", "z"),
            helper.make_node("Scan", ["t"], ["y"], num_scan_inputs=1, body=body)]


# name: opsets, nodes, inputs, initializers
CASES = {
    "squeeze": ([7, 11, 12], [node("Squeeze", "x", axes=[1, 3])], {"x": floats(2, 1, 3, 1)}, {}),
    "squeeze_all": ([7, 12], [node("Squeeze", "x")], {"x": floats(2, 1, 3, 1)}, {}),
    "squeeze_negative": ([11], [node("Squeeze", "x", axes=[-1])], {"x": floats(2, 1, 3, 1)}, {}),
    "squeeze_operand": ([13, 23], [node("Squeeze", "x,a")], {"x": floats(2, 1, 3, 1)}, {"a": ints(1)}),
    "unsqueeze": ([7, 11, 12], [node("Unsqueeze", "x", axes=[0, 4])], {"x": X}, {}),
    "reduce_sum": ([7, 11, 12], [node("ReduceSum", "x", axes=[0, 2], keepdims=0)], {"x": X}, {}),
    "reduce_sum_all": ([7, 12], [node("ReduceSum", "x")], {"x": X}, {}),
    "reduce_mean": ([7, 11, 13, 17], [node("ReduceMean", "x", axes=[1])], {"x": X}, {}),
    "reduce_l2": ([7, 11, 13, 17], [node("ReduceL2", "x", axes=[1], keepdims=0)], {"x": X}, {}),
    "reduce_log_sum_exp": ([7, 11, 13, 17], [node("ReduceLogSumExp", "x", axes=[2])], {"x": X}, {}),
    "reduce_max": ([7, 11, 12, 13, 17], [node("ReduceMax", "x", axes=[2])], {"x": X}, {}),
    "split": ([7, 11, 12], [node("Split", "x", "y,z", axis=2, split=[1, 3])], {"x": X}, {}),
    "split_evenly": ([7, 12, 13, 17], [node("Split", "x", "y,z", axis=2)], {"x": X}, {}),
    "softmax": ([7, 11, 12], [node("Softmax", "x")], {"x": X}, {}),
    "softmax_0": ([7, 11, 12], [node("Softmax", "x", axis=0)], {"x": X}, {}),
    "softmax_last": ([7, 11, 12], [node("Softmax", "x", axis=2)], {"x": X}, {}),
    "softmax_negative": ([11, 12], [node("Softmax", "x", axis=-2)], {"x": X}, {}),
    "softmax_since": ([13], [node("Softmax", "x", axis=1)], {"x": X}, {}),
    "softmax_of_image": ([7, 11], [node("Softmax", "x", axis=2)], {"x": IMAGE}, {}),
    "log_softmax": ([7, 11, 12], [node("LogSoftmax", "x")], {"x": X}, {}),
    "hardmax": ([7, 11, 12], [node("Hardmax", "x")], {"x": X}, {}),
    "dropout": ([7, 9, 10, 11], [node("Dropout", "x", ratio=.3)], {"x": X}, {}),
    "dropout_mask_unread": ([7, 10, 11], [node("Dropout", "x", "t,mask", ratio=.3), node("Neg", "t")], {"x": X}, {}),
    # The old texts do not say which mask an inference returns.
    "dropout_mask": ([7, 9], [node("Dropout", "x", "t,mask"), node("Mul", "mask,o", "u"), node("Add", "t,u")],
                     {"x": X}, {"o": floats(1) * 0}),
    "dropout_mask_of_bool": ([10, 11], [node("Dropout", "x", "t,mask"), node("Cast", "mask", "f", to=TensorProto.FLOAT),
                                        node("Mul", "f,o", "u"), node("Add", "t,u")], {"x": X}, {"o": floats(1) * 0}),
    "batch_norm": ([7, 8, 9, 13, 14], [node("BatchNormalization", "x,g,b,m,v", epsilon=.01)], {"x": IMAGE}, NORM),
    "batch_norm_spatial": ([7, 8], [node("BatchNormalization", "x,g,b,m,v", spatial=1)], {"x": IMAGE}, NORM),
    "batch_norm_of_elements": ([7, 8], [node("BatchNormalization", "x,g,b,m,v", spatial=0)], {"x": IMAGE}, NORM_EACH),
    "clip": ([7, 10], [node("Clip", "x", min=-.5, max=.7)], {"x": X}, {}),
    "clip_below": ([7, 10], [node("Clip", "x", min=0.)], {"x": X}, {}),
    "clip_above": ([7, 10], [node("Clip", "x", max=.1)], {"x": X}, {}),
    "clip_of_a_computed_value": ([7, 10], [node("Cast", "x", "h", to=TensorProto.FLOAT), node("Add", "h,h", "t"),
                                           node("Clip", "t", max=.1)], {"x": X.astype(np.float16)}, {}),
    "clip_operands": ([11, 12], [node("Clip", "x,,b")], {"x": X}, {"b": np.array(.5, np.float32)}),
    "pad": ([7, 10], [node("Pad", "x", pads=[0, 1, 0, 2, 0, 1], value=1.5)], {"x": X}, {}),
    "pad_reflect": ([7, 10], [node("Pad", "x", pads=[0, 1, 2, 0, 1, 1], mode="reflect")], {"x": X}, {}),
    "pad_crops": ([7, 10], [node("Pad", "x", pads=[0, -1, 0, 0, 0, 1])], {"x": X}, {}),
    "slice": ([7, 9], [node("Slice", "x", axes=[2, 0], starts=[1, -1], ends=[-1, 9223372036854775807])], {"x": X}, {}),
    "slice_first_axes": ([7, 9], [node("Slice", "x", starts=[0, 1], ends=[1, 3])], {"x": X}, {}),
    "slice_operands": ([10, 12], [node("Slice", "x,s,e,a,d")], {"x": X},
                       {"s": ints(-1), "e": ints(-9), "a": ints(2), "d": ints(-2)}),
    "upsample": ([7, 8], [node("Upsample", "x", scales=[1., 1., 2., 1.5])], {"x": IMAGE}, {}),
    "upsample_linear": ([7, 8], [node("Upsample", "x", mode="linear", scales=[1., 1., 2., 1.5])], {"x": IMAGE}, {}),
    "upsample_operand": ([9], [node("Upsample", "x,s", mode="nearest")], {"x": IMAGE}, scales(1, 1, 2, 2)),
    "upsample_linear_operand": ([9], [node("Upsample", "x,s", mode="linear")], {"x": IMAGE}, scales(1, 1, 2.5, 2)),
    "upsample_constant": ([9], [constant("s", scales(1, 1, 2, 2)["s"]), node("Upsample", "x,s")], {"x": IMAGE}, {}),
    "resize_grows": ([10], [node("Resize", "x,s")], {"x": IMAGE}, scales(1, 1, 1.5, 2.3)),
    "resize_shrinks": ([10], [node("Resize", "x,s")], {"x": IMAGE}, scales(1, 1, .7, .6)),
    "resize_both": ([10], [node("Resize", "x,s")], {"x": IMAGE}, scales(1, 1, 1.7, .6)),
    "resize_linear": ([10], [node("Resize", "x,s", mode="linear")], {"x": IMAGE}, scales(1, 1, 1.7, .6)),
    "resize_by_shapes": ([10], [node("Shape", "x", "n"), node("Cast", "n", "f", to=TensorProto.FLOAT), node("Mul", "f,k", "t"),
                                node("Div", "t,f", "s"), node("Resize", "x,s")], {"x": IMAGE},
                         {"k": np.array([1, 1, 2, .5], np.float32)}),
    "resize_11": ([11, 12], [node("Resize", "x,e,s", mode="linear", coordinate_transformation_mode="half_pixel")],
                  {"x": IMAGE}, {"e": floats(0), **scales(1, 1, 1.7, .6)}),
    "resize_11_sizes": ([11, 12], [node("Resize", "x,e,e,n", mode="nearest", nearest_mode="floor",
                                        coordinate_transformation_mode="asymmetric")],
                        {"x": IMAGE}, {"e": floats(0), "n": ints(2, 3, 12, 5)}),
    "resize_tf": ([11, 12], [node("Resize", "x,e,s", nearest_mode="floor",
                                  coordinate_transformation_mode="tf_half_pixel_for_nn")],
                  {"x": IMAGE}, {"e": floats(0), **scales(1, 1, 1.75, .625)}),
    "top_k": ([7, 9], [node("TopK", "x", "y,i", k=2, axis=1)], {"x": X}, {}),
    "top_k_operand": ([10, 11], [node("TopK", "x,k", "y,i", axis=-1)], {"x": X}, {"k": ints(3)}),
    "scatter": ([9, 10], [node("Scatter", "x,i,u", axis=1)], {"x": TABLE},
                {"i": np.array([[1, 3]], np.int64), "u": floats(1, 2)}),
    "scatter_elements": ([11, 13], [node("ScatterElements", "x,i,u", axis=1)], {"x": TABLE},
                         {"i": np.array([[1, -3]], np.int64), "u": floats(1, 2)}),
    "one_hot": ([9, 11], [node("OneHot", "x,d,v", axis=1)], {"x": ints(0, 2, 4)},
                {"d": ints(5), "v": np.array([-1, 2], np.float32)}),
    "gemm": ([7, 9, 11, 13], [node("Gemm", "x,w,b", alpha=.5, beta=2., transB=1)], {"x": TABLE},
             {"w": floats(4, 5), "b": floats(4)}),
    "gemm_without_c": ([11], [node("Gemm", "x,w")], {"x": TABLE}, {"w": floats(5, 4)}),
    "max_pool": ([7, 8, 10, 11, 12], [node("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 0, 1])],
                 {"x": IMAGE}, {}),
    "max_pool_same": ([7, 10], [node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")],
                      {"x": IMAGE}, {}),
    "max_pool_ceil": ([10, 11], [node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)], {"x": IMAGE}, {}),
    "average_pool": ([7, 10, 11], [node("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1])], {"x": IMAGE}, {}),
    "average_pool_pads": ([7, 10, 11], [node("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                                             count_include_pad=1)], {"x": IMAGE}, {}),
    "conv": ([7, 11], [node("Conv", "x,w,b", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=1)], {"x": IMAGE},
             {"w": floats(4, 3, 3, 3), "b": floats(4)}),
    "conv_transpose": ([7, 11], [node("ConvTranspose", "x,w", strides=[2, 2])], {"x": IMAGE}, {"w": floats(3, 2, 3, 3)}),
    "flatten": ([7, 9, 11], [node("Flatten", "x", axis=2)], {"x": X}, {}),
    "reshape": ([7, 13], [node("Reshape", "x,n")], {"x": X}, {"n": ints(0, -1)}),
    "p_relu": ([7, 9], [node("PRelu", "x,a")], {"x": IMAGE}, {"a": floats(3, 1, 1)}),
    "sum": ([8, 13], [node("Sum", "x,a,b")], {"x": X}, {"a": floats(4), "b": floats(3, 1)}),
    "pow": ([7, 12], [node("Pow", "x,a")], {"x": np.abs(X)}, {"a": np.array(2, np.float32)}),
    "expand": ([8, 13], [node("Expand", "x,n")], {"x": TABLE}, {"n": ints(2, 1, 5)}),
    "arg_max": ([7, 11, 12], [node("ArgMax", "x", axis=1, keepdims=0)], {"x": X}, {}),
    "gather": ([7, 11], [node("Gather", "x,i", axis=1)], {"x": X}, {"i": ints(2, 0)}),
    "gather_negative": ([11], [node("Gather", "x,i", axis=1)], {"x": X}, {"i": ints(-1, 0)}),
    "depth_to_space": ([7, 11], [node("DepthToSpace", "x", blocksize=2)], {"x": floats(1, 8, 2, 3)}, {}),
    "instance_norm": ([7], [node("InstanceNormalization", "x,g,b")], {"x": IMAGE}, {k: NORM[k] for k in "gb"}),
    "mean_variance": ([9, 13], [node("MeanVarianceNormalization", "x")], {"x": IMAGE}, {}),
    "eye_like": ([9], [node("EyeLike", "x", k=1)], {"x": TABLE}, {}),
    "cum_sum": ([11], [node("CumSum", "x,a", reverse=1)], {"x": X}, {"a": np.array(1, np.int32)}),
    "constant_of_shape": ([9], [node("Shape", "x", "n"), node("ConstantOfShape", "n", "c"), node("Add", "x,c")], {"x": X}, {}),
    "tile": ([7], [node("Tile", "x,n")], {"x": X}, {"n": ints(1, 2, 1)}),
    "less": ([7, 9], [node("Less", "x,a", "c"), node("Cast", "c", to=TensorProto.FLOAT)], {"x": X}, {"a": floats(4)}),
    "where": ([9], [node("Greater", "x,a", "c"), node("Where", "c,x,a")], {"x": X}, {"a": floats(4)}),
    "lstm": ([7, 13], *recurrent("LSTM", 4)),
    "gru": ([7, 13], *recurrent("GRU", 3, linear_before_reset=1)),
    "rnn": ([7, 13], *recurrent("RNN", 1)),
    "if": ([7, 10], branches(), {"x": X}, {}),
    "loop": ([7, 9], loop(), {"x": TABLE}, {}),
    "scan": ([8], scan(), {"x": floats(2, 3), "t": floats(2, 4, 3)}, {}),
    "scan_hides": ([10], hidden(), {"t": X}, {}),
    "scan_reversed": ([8], scan(directions=[1]), {"x": floats(2, 3), "t": floats(2, 4, 3)}, {}),
}
# Below IR 4 every initializer is an input too.
IR = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7}


def model(opset, nodes, inputs, initializers):
    """As old exporters wrote it: no types of intermediate values, no ranks of outputs, texts on everything."""
    ir = IR.get(opset, 8 if opset < 21 else 10)
    infos = [value(k, a) for k, a in inputs.items()]
    if ir < 4:
        infos = [value(k, a) for k, a in initializers.items()] + infos
    outputs = [name for name in ("y", "z", "h", "i") if any(name in n.output for n in nodes)]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name=name) for name in outputs],
                              [numpy_helper.from_array(a, k) for k, a in initializers.items()], doc_string="a graph")
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir, doc_string="a model")
    for n in proto.graph.node:
        n.doc_string = "a node"
    return proto


@pytest.mark.parametrize("name, opset", [(name, opset) for name, case in CASES.items() for opset in case[0]])
def test_means_what_onnxruntime_takes_it_for(name, opset, tmp_path):
    proto = model(opset, *CASES[name][1:])
    onnx.save(proto, tmp_path / "m.onnx")
    feeds = CASES[name][2]
    np.savez(tmp_path / "d.npz", **feeds)
    run("run", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "-o", tmp_path / "y.npz")
    got = np.load(tmp_path / "y.npz")
    session = stock_session(proto)
    names = [output.name for output in session.get_outputs()]
    assert sorted(got.files) == sorted(names)
    for key, expected in zip(names, session.run(None, feeds), strict=True):
        assert got[key].dtype == expected.dtype
        np.testing.assert_allclose(got[key], expected, rtol=1e-5, atol=2e-6)


def classifier(opset):
    """A trainable model as PyTorch wrote it then: constants as nodes, initializers as inputs, dropout that is off."""
    nodes = [node("Conv", "x,c,d", "a", kernel_shape=[3, 3]), node("BatchNormalization", "a,g,b,m,v", "n"),
             node("Clip", "n", "r", min=0., max=6.), node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
             node("Dropout", "p", "q", ratio=.5), constant("flat", ints(0, -1)), node("Reshape", "q,flat", "f"),
             node("Gemm", "f,w,u", "y", transB=1)]
    weights = {"c": floats(3, 3, 3, 3), "d": floats(3), **NORM, "w": floats(16, 18), "u": floats(16)}
    proto = model(opset, nodes, {"x": floats(8, 3, 6, 8)}, weights)
    proto.graph.output[0].CopyFrom(value("y", floats(8, 16)))
    return proto


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_trains_and_is_rewritten(opset, tmp_path):
    proto = classifier(opset)
    onnx.save(proto, tmp_path / "m.onnx")
    x = floats(8, 3, 6, 8)
    np.savez(tmp_path / "d.npz", x=x, labels=np.arange(8) % 16)
    run("train", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--loss", "cross_entropy", "--steps", 8, "--batch-size",
        8, "--lr", .01, "--recipe", "tensorwise", "--out", tmp_path / "run")
    first, *_, last = losses(tmp_path / "run").values()
    assert last < .8 * first
    run("rewrite", tmp_path / "m.onnx", "-o", tmp_path / "fp8.onnx", "--recipe", "tensorwise")
    onnx.checker.check_model(tmp_path / "fp8.onnx", full_check=True)
    run("run", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "-o", tmp_path / "y.npz")
    expected = np.load(tmp_path / "y.npz")["y"]
    step = tmp_path / "step.onnx"
    run("rewrite", tmp_path / "m.onnx", "-o", step, "--recipe", "off", "--loss", "cross_entropy")
    for path in (tmp_path / "fp8.onnx", step):
        session = stock_session(path)
        known = {"x": x, "labels": np.arange(8) % 16, "lr": np.array(.01, np.float32)}
        state = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
        feeds = {i.name: {**state, **known}[i.name] for i in session.get_inputs()}
        got = session.run(["y"], feeds)[0]
        assert np.abs(got - expected).max() <= (1e-4 if path == step else .1) * np.abs(expected).max()
