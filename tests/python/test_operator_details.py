# SPDX-License-Identifier: Apache-2.0
"""Shapes, attributes and values of operators that few models have: `onnx-fp8 run` compared with stock onnxruntime."""
import itertools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from program import run
from stock import stock_session

RNG = np.random.default_rng(0)
LOWEST = float(np.finfo(np.float32).min)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def node(op, inputs, outputs="y", **attributes):
    return helper.make_node(op, inputs.split(","), outputs.split(","), **attributes)


def model_of(nodes, inputs, initializers=None, outputs="y", opset=20):
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in inputs.items()]
    results = [helper.make_value_info(name, onnx.TypeProto()) for name in outputs.split(",")]
    constants = [numpy_helper.from_array(np.asarray(x), n) for n, x in (initializers or {}).items()]
    graph = helper.make_graph(nodes, "g", infos, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def results_here(model, inputs, folder):
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "data.npz", **inputs)
    run("run", folder / "model.onnx", "--data", folder / "data.npz", "-o", folder / "results.npz")
    return dict(np.load(folder / "results.npz"))


def check(model, inputs, folder, engine=None):
    if engine is None:
        engine = stock_session(model)
    expected = engine.run(None, inputs)
    got = results_here(model, inputs, folder)
    for output, want in zip(model.graph.output, expected, strict=True):
        assert got[output.name].shape == want.shape
        np.testing.assert_allclose(got[output.name], want, rtol=2e-5, atol=2e-6, err_msg=output.name)


# ---- norms

SHAPES = {"row": (4,), "own": (2, 3, 4), "column": (3, 1), "batch": (2, 1, 1), "one": (1,), "middle": (1, 3, 4)}


@pytest.mark.parametrize("bias", SHAPES)
@pytest.mark.parametrize("scale", SHAPES)
def test_layer_norm_of_any_scale_and_bias(tmp_path, scale, bias):
    inputs = {"x": normal(2, 3, 4)}
    model = model_of([node("LayerNormalization", "x,s,b", axis=-1)], inputs, {"s": normal(*SHAPES[scale]), "b": normal(*SHAPES[bias])})
    check(model, inputs, tmp_path, ReferenceEvaluator(model))


@pytest.mark.parametrize("scale", SHAPES)
def test_rms_norm_of_any_scale(tmp_path, scale):
    inputs = {"x": normal(2, 3, 4)}
    model = model_of([node("RMSNormalization", "x,s", axis=-1)], inputs, {"s": normal(*SHAPES[scale])}, opset=23)
    check(model, inputs, tmp_path, ReferenceEvaluator(model))


@pytest.mark.parametrize("scale", ["row", "own", "middle"])
def test_layer_norm_behind_a_residual(tmp_path, scale):
    """The pass that fuses norms with the sum before them leaves other scales alone."""
    inputs = {"x": normal(2, 3, 4), "z": normal(2, 3, 4)}
    nodes = [node("Add", "x,z", "sum"), node("LayerNormalization", "sum,s,b", "n"), node("Add", "sum,n")]
    model = model_of(nodes, inputs, {"s": normal(*SHAPES[scale]), "b": normal(*SHAPES[scale])})
    check(model, inputs, tmp_path, ReferenceEvaluator(model))


# ---- attention with masks of the lowest float

def attention_model(mask_nodes, mask, heads=2, depth=3):
    batch, length = mask.shape
    width = heads * depth
    inputs = {"x": normal(batch, length, width), "mask": mask}
    weights = {w: normal(width, width) for w in ("wq", "wk", "wv")}
    tables = {"split": np.array([batch, length, heads, depth]), "joined": np.array([batch, length, width]), "axes": np.array([1, 2]),
              "low": np.float32(LOWEST), "one": np.float32(1), "zero": np.float32(0), "tri": np.tril(np.ones((1, 1, length, length), bool))}
    nodes = [n for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
             for n in (node("MatMul", f"x,w{name}", f"{name}0"), node("Reshape", f"{name}0,split", f"{name}4"),
                       node("Transpose", f"{name}4", name, perm=perm))]
    nodes += [node("MatMul", "q,k", "scores"), *mask_nodes, node("Softmax", "masked", "p", axis=-1), node("MatMul", "p,v", "o"),
              node("Transpose", "o", "turned", perm=[0, 2, 1, 3]), node("Reshape", "turned,joined")]
    return model_of(nodes, inputs, weights | tables, opset=17), inputs


PADDING = [node("Cast", "mask", "f", to=1), node("Sub", "one,f", "hidden"), node("Mul", "hidden,low", "p2"), node("Unsqueeze", "p2,axes", "bias")]
KEPT = [node("Cast", "mask", "kept2", to=9), node("Unsqueeze", "kept2,axes", "kept")]
MASKS = {
    "added": [*PADDING, node("Add", "scores,bias", "masked")],
    "chosen": [*KEPT, node("Where", "kept,scores,low", "masked")],
    "causal_then_added": [*PADDING, node("Where", "tri,scores,low", "seen"), node("Add", "seen,bias", "masked")],
    "added_then_causal": [*PADDING, node("Add", "scores,bias", "seen"), node("Where", "tri,seen,low", "masked")],
    "both_chosen": [*KEPT, node("And", "kept,tri", "both"), node("Where", "both,scores,low", "masked")],
    "both_added": [*KEPT, node("And", "kept,tri", "both"), node("Where", "both,zero,low", "bias"), node("Add", "scores,bias", "masked")],
}


@pytest.mark.parametrize("form", MASKS)
@pytest.mark.parametrize("length", [4, 40])
def test_attention_of_rows_that_see_masks_only(tmp_path, form, length):
    """Left padding, right padding, and a sequence that is all padding."""
    mask = np.ones((4, length), np.int64)
    mask[0, :] = 0
    mask[1, : length // 2] = 0
    mask[2, length // 2 :] = 0
    model, inputs = attention_model(MASKS[form], mask)
    check(model, inputs, tmp_path)


# ---- movement

@pytest.mark.parametrize("kept", [k for k in itertools.product([0, 1], repeat=3) if any(k)])
def test_results_without_a_name(tmp_path, kept):
    """Stock onnxruntime crashes."""
    inputs = {"x": normal(3, 6)}
    names = [f"y{i}" if k else "" for i, k in enumerate(kept)]
    model = model_of([node("Mul", "x,x", "h"), node("Split", "h,sizes", ",".join(names), axis=1)], inputs, {"sizes": np.array([1, 3, 2])},
                     outputs=",".join(n for n in names if n))
    got = results_here(model, inputs, tmp_path)
    for name, part in zip(names, np.split(inputs["x"] ** 2, [1, 4], axis=1)):
        if name:
            np.testing.assert_array_equal(got[name], part)


def branch(name, *results):
    outputs = [helper.make_value_info(f"{name}{i}", onnx.TypeProto()) for i in range(len(results))]
    return helper.make_graph([node(op, operands, f"{name}{i}") for i, (op, operands) in enumerate(results)], name, [], outputs)


@pytest.mark.parametrize("case", ["LSTM", "If"])
def test_first_or_middle_result_without_a_name(tmp_path, case):
    inputs = {"x": normal(4, 6)}
    initializers = {"w": normal(1, 8, 6), "r": normal(1, 8, 2), "three": np.array([2, 2, 6]),
                    "c": np.array(True)}
    nodes, outputs = {
        "LSTM": ([node("Reshape", "x,three", "x3"), node("LSTM", "x3,w,r", ",y", hidden_size=2)], "y"),
        "If": ([node("If", "c", ",y", then_branch=branch("t", ("Neg", "x"), ("Abs", "x")),
                     else_branch=branch("e", ("Abs", "x"), ("Neg", "x")))], "y"),
    }[case]
    model = model_of(nodes, inputs, initializers, outputs)
    named = onnx.ModelProto.FromString(model.SerializeToString())
    for n in named.graph.node:
        n.output[:] = [name or "unread" for name in n.output]
    session = stock_session(named)
    got = results_here(model, inputs, tmp_path)
    for name, want in zip(outputs.split(","), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6)


# ---- resize, grid sample, einsum

@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("by", ["sizes", "scales"])
def test_resize_to_one_element(tmp_path, mode, antialias, by):
    if antialias and mode == "nearest":
        pytest.skip("antialias is for interpolation")
    inputs = {"x": normal(2, 1, 5, 5)}
    attributes = {"antialias": 1} if antialias else {}
    operands = {"sizes": "x,,,s", "scales": "x,,s"}[by]
    amount = {"sizes": np.array([2, 1, 1, 1]), "scales": np.array([1, 1, .2, .2], np.float32)}[by]
    model = model_of([node("Resize", operands, mode=mode, coordinate_transformation_mode="pytorch_half_pixel", **attributes)],
                     inputs, {"s": amount})
    check(model, inputs, tmp_path)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scales", [[1, 1, .3, .5], [1, 1, 1.3, 2.5], [1, 1, .2, .2]])
def test_resize_of_a_crop_by_fractions(tmp_path, mode, scales):
    inputs = {"x": normal(2, 1, 5, 5)}
    crop = np.array([0, 0, .1, .2, 1, 1, .8, .9], np.float32)
    model = model_of([node("Resize", "x,crop,s", mode=mode, coordinate_transformation_mode="tf_crop_and_resize")], inputs,
                     {"s": np.array(scales, np.float32), "crop": crop})
    check(model, inputs, tmp_path)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scale", [.3, .7, 1.3, 1.7])
def test_resize_with_aligned_corners(tmp_path, mode, scale):
    """The result has a whole number of elements. Its last one is the last one of x."""
    inputs = {"x": normal(2, 1, 6, 5)}
    model = model_of([node("Resize", "x,,s", mode=mode, coordinate_transformation_mode="align_corners")], inputs,
                     {"s": np.array([1, 1, scale, scale], np.float32)})
    check(model, inputs, tmp_path)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_grid_sample_outside(tmp_path, mode, padding, corners):
    inputs = {"x": normal(2, 2, 4, 5), "grid": RNG.uniform(-2.5, 2.5, (2, 6, 7, 2)).astype(np.float32)}
    model = model_of([node("GridSample", "x,grid", mode=mode, padding_mode=padding, align_corners=corners)], inputs)
    check(model, inputs, tmp_path)


@pytest.mark.parametrize("equation, shapes", [
    ("ij,jk->ik", [(3, 1), (4, 5)]), ("ij,jk->ik", [(3, 4), (1, 5)]), ("ij,jk->k", [(1, 4), (4, 5)]), ("i,i->", [(1,), (4,)]),
    ("ij,ij->ij", [(3, 1), (3, 4)]), ("ij,ij->ij", [(3, 4), (3, 1)]), ("ij,ij->i", [(3, 1), (3, 4)]), ("bij,bjk->ik", [(1, 3, 4), (2, 4, 5)]),
    ("i...,i...->...i", [(1, 2, 1), (4, 1, 3)]), ("ij,jk,j->ki", [(3, 1), (1, 5), (4,)])])
def test_einsum_of_axes_with_one_element(tmp_path, equation, shapes):
    inputs = {f"x{i}": normal(*shape) for i, shape in enumerate(shapes)}
    model = model_of([node("Einsum", ",".join(inputs), equation=equation)], inputs)
    check(model, inputs, tmp_path)


# ---- bodies with bodies

@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 5, 6)])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("fed", [False, True])
def test_affine_grid(tmp_path, size, corners, fed):
    """Its body is in ONNX's schema: If nodes whose branches read inputs and constants of the body."""
    inputs = {"theta": normal(2, len(size) - 2, len(size) - 1)}
    nodes = [node("AffineGrid", "theta,size", align_corners=corners)]
    if not fed:
        inputs, initializers = {"x": inputs["theta"]}, {"size": np.array(size), "half": np.float32(.5)}
        nodes.insert(0, node("Mul", "x,half", "theta"))
    else:
        initializers = {"size": np.array(size)}
    model = model_of(nodes, inputs, initializers)
    check(model, inputs, tmp_path, ReferenceEvaluator(model))


def test_a_function_whose_branch_reads_its_inputs(tmp_path):
    """The function's input and a constant of its body have other names in the graph around it."""
    text = """<ir_version: 9, opset_import: ["" : 20, "own" : 1]>
    g (float[2,3] x, float[2,3] z) => (float[2,3] y) {
      big = Mul (x, z)
      y = own.Choose (big, z)
    }
    <domain: "own", opset_import: ["" : 20]>
    Choose (a, b) => (c) {
      two = Constant <value = float {2}> ()
      rank = Size (a)
      six = Constant <value_int = 6> ()
      even = Equal (rank, six)
      c = If (even) <then_branch = yes () => (t) { t = Mul (a, two) }, else_branch = no () => (e) { e = Add (b, two) }>
    }"""
    model = onnx.parser.parse_model(text)
    inputs = {"x": normal(2, 3), "z": normal(2, 3)}
    got = results_here(model, inputs, tmp_path)["y"]
    np.testing.assert_allclose(got, 2 * inputs["x"] * inputs["z"], rtol=1e-6)
