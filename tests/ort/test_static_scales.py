# SPDX-License-Identifier: Apache-2.0
"""Static scales in our provider equal the scales that `onnx-fp8 rewrite` writes."""
import itertools
import json

import numpy
import onnx
import pytest
from cases import Case, corpus, fixtures, name_of
from onnx import helper, numpy_helper
from program import run
from sessions import FLOAT, model, session

node = helper.make_node
MODELS = [m for m in [*fixtures(), *corpus(["nanogpt", "vit", "nn_transformer"])]
          if m.parent.name in ("nanogpt", "llama", "vit", "nn_transformer")]
RNG = numpy.random.default_rng(2)


def floats(*shape):
    return RNG.standard_normal(shape).astype(numpy.float32)


def assert_same(mine, theirs):
    for one, other in zip(mine, theirs, strict=True):
        numpy.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("model", MODELS, ids=name_of)
@pytest.mark.parametrize("source", ["calibrate", "train"])
def test_scales_are_those_of_rewrite(source, model, tmp_path):
    """Scales of a file, and of a run with delayed scaling. The session may fold
    transposes of weights, and read shared inputs in another order."""
    case = Case(model, tmp_path)
    path, scales = tmp_path / "fp8.onnx", tmp_path / "scales"
    if source == "calibrate":
        run("calibrate", model, "--data", case.data, *case.loss(), "--batch-size", case.batch(), "-o", scales)
    else:
        run("train", model, "--data", case.data, *case.flags("delayed"), "--batch-size", case.batch(),
            "--steps", 3, "--out", scales)
    run("rewrite", model, "-o", path, "--recipe", "static", "--scales", scales)
    options = {"recipe": "static", "scales": str(scales)}
    feeds = case.inputs()
    assert_same(session(model, options).run(None, feeds), session(path).run(None, feeds))
    with pytest.raises(Exception, match=r"ep.onnx_fp8.scales\] expected a recipe with static scales"):
        session(model, {**options, "recipe": "tensorwise"})


def weights(**shapes):
    return {name: floats(*shape) for name, shape in shapes.items()}


def named(nodes):
    for i, each in enumerate(nodes):
        each.name = f"node_{i}"
    return nodes


def foreign(x, y):
    """A node that our provider leaves to the runtime, so that groups end here."""
    return node("Normalizer", [x], [y], domain="ai.onnx.ml", norm="L2")


# One weight in two groups of nodes.
SHARED = [node("MatMul", ["x", "w"], ["a"]), foreign("a", "b"), node("MatMul", ["b", "w"], ["y"])]
# The session folds the transpose into a constant.
TIED = [node("Transpose", ["w"], ["wt"]), node("MatMul", ["x", "wt"], ["a"]), node("Relu", ["a"], ["b"]),
        node("MatMul", ["b", "w"], ["y"])]
# The session makes Gemm of MatMul and Add, and names it anew.
BIASED = [node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "bias"], ["b"]), node("Relu", ["b"], ["d"]),
          node("MatMul", ["d", "w"], ["e"]), node("Add", ["e", "bias"], ["y"])]
# One input in two groups. v reads another input before.
INPUT = [node("Relu", ["x"], ["r"]), node("MatMul", ["r", "w"], ["a"]), node("MatMul", ["x", "v"], ["b"]),
         node("Mul", ["a", "b"], ["c"]), foreign("c", "d"), node("MatMul", ["r", "v"], ["e"]),
         node("Add", ["e", "d"], ["y"])]
# A product's input is another one's bias.
BIAS = [node("Gemm", ["x", "v"], ["a"]), node("Gemm", ["x", "w", "a"], ["b"]), node("Gemm", ["a", "w"], ["c"]),
        node("Add", ["b", "c"], ["y"])]
# A node that is no product reads the same first.
EMBEDDED = [node("Transpose", ["w"], ["wt"]), node("Concat", ["x", "wt"], ["rows"], axis=0),
            node("ReduceMax", ["rows", "zero"], ["g"]), node("MatMul", ["x", "wt"], ["a"]), node("Add", ["a", "g"], ["b"]),
            node("MatMul", ["b", "w"], ["y"])]
# The session makes Gemm(w, r, transB) of it.
EXCHANGED = [node("Reshape", ["x", "rows"], ["r"]), node("Gemm", ["r", "w"], ["g"]),
             node("Transpose", ["g"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["y"])]
# The session makes Gemm(x, w, transB) of the first two.
TIED_GEMM = [node("Transpose", ["w"], ["wt"]), node("Gemm", ["x", "wt", "bias"], ["a"]), node("Relu", ["a"], ["b"]),
             node("MatMul", ["b", "w"], ["y"])]
# The weight is a node.
CONSTANT = [node("Constant", [], ["w"], value=numpy_helper.from_array(floats(16, 16), "value")),
            node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "bias"], ["b"]), node("MatMul", ["b", "w"], ["c"]),
            node("Add", ["c", "bias"], ["y"])]


def scales_file(path, names):
    """Another scale for each tensor that a model may have."""
    keys = [f"{name}/forward/{operand}/float8e4m3fn#{i}"
            for name, operand, i in itertools.product(names, ("input", "weight"), range(3))]
    path.write_text(json.dumps({"format": "onnx_fp8.scales", "version": 1,
                                "scales": {key: .003 * 1.37 ** i for i, key in enumerate(keys)}}))
    return path


@pytest.mark.parametrize("optimized", [True, False], ids=["optimized", "as_it_is"])
@pytest.mark.parametrize("naming", [named, list], ids=["named", "nameless"])
@pytest.mark.parametrize("nodes,excluded,shape", [
    (SHARED, "", [5, 16]), (TIED, "", ["n", 16]), (BIASED, "", ["n", 16]), (BIASED, "", [5, 3, 16]), (INPUT, "", ["n", 16]),
    (INPUT, "w", ["n", 16]), (BIAS, "", ["n", 16]), (BIAS, "w", ["n", 16]), (EMBEDDED, "", ["n", 16]),
    (EXCHANGED, "", [16, 16]), (TIED_GEMM, "", ["n", 16]), (CONSTANT, "", ["n", 16])],
    ids=["shared", "tied", "biased", "biased_3d", "input", "input_w", "bias", "bias_w", "embedded", "exchanged",
         "tied_gemm", "constant"])
def test_scales_of_each_use(nodes, excluded, shape, naming, optimized, tmp_path):
    """Each use of a weight has an input of its own, with its scale."""
    constants = weights(w=(16, 16), v=(16, 16), bias=(16,)) | {"zero": numpy.array([0]), "rows": numpy.array([-1, 16])}
    read = {name for each in nodes for name in each.input}
    path, rewritten = tmp_path / "model.onnx", tmp_path / "fp8.onnx"
    for each in nodes:
        each.ClearField("name")
    made = {name for each in nodes for name in each.output}
    onnx.save(model(naming(nodes), {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)},
                    {name: array for name, array in constants.items() if name in read - made}), path)
    scales = scales_file(tmp_path / "scales.json", sorted(read & {"w", "v"}))
    filters = ["--exclude", excluded] if excluded else []
    run("rewrite", path, "-o", rewritten, "--recipe", "static", "--scales", scales, *filters)
    options = {"recipe": "static", "scales": str(scales)} | ({"exclude": excluded} if excluded else {})
    feeds = {"x": floats(*(size if size != "n" else 5 for size in shape))}
    mine = session(path, options, fallback=True, optimized=optimized).run(None, feeds)
    assert_same(mine, session(rewritten, fallback=True, optimized=False).run(None, feeds))


def test_scales_of_functions(tmp_path):
    """Two local functions read one input. The first one names its scale, though it is excluded."""
    path, rewritten = tmp_path / "model.onnx", tmp_path / "fp8.onnx"
    proto = model([node("First", ["x", "v"], ["a"], domain="layers"), node("Second", ["x", "w"], ["b"], domain="layers"),
                   node("Add", ["a", "b"], ["y"])],
                  {"x": (FLOAT, ["n", 16])}, {"y": (FLOAT, ["n", 16])}, weights(v=(16, 16), w=(16, 16)))
    for name in ("First", "Second"):
        proto.functions.append(helper.make_function(
            "layers", name, ["in", "weight"], ["out"], [node("MatMul", ["in", "weight"], ["out"])],
            [helper.make_opsetid("", 19)]))
    proto.opset_import.append(helper.make_opsetid("layers", 1))
    onnx.save(proto, path)
    scales = scales_file(tmp_path / "scales.json", ["v", "w"])
    run("rewrite", path, "-o", rewritten, "--recipe", "static", "--scales", scales, "--exclude", "v")
    feeds = {"x": floats(5, 16)}
    mine = session(path, {"recipe": "static", "scales": str(scales), "exclude": "v"}).run(None, feeds)
    assert_same(mine, session(rewritten, optimized=False).run(None, feeds))


def test_scales_of_a_model_in_memory(tmp_path):
    scales = scales_file(tmp_path / "scales.json", ["w"])
    proto = model(named([node("MatMul", ["x", "w"], ["y"])]), {"x": (FLOAT, ["n", 16])}, {"y": (FLOAT, ["n", 16])},
                  weights(w=(16, 16)))
    with pytest.raises(Exception, match=r"ep.onnx_fp8.recipe\] expected a session made from a model's file.* from memory"):
        session(proto, {"recipe": "static", "scales": str(scales)})


def test_a_use_that_can_not_be_told_from_another(tmp_path):
    """Two products without names read the same. The session may keep one of them."""
    path, scales = tmp_path / "model.onnx", scales_file(tmp_path / "scales.json", ["w"])
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["x", "w"], ["b"]), node("Sub", ["a", "b"], ["y"])]
    onnx.save(model(nodes, {"x": (FLOAT, ["n", 16])}, {"y": (FLOAT, ["n", 16])}, weights(w=(16, 16))), path)
    with pytest.raises(Exception, match=r"model.onnx\] expected a product that reads w as .* got none, or several"):
        session(path, {"recipe": "static", "scales": str(scales)}, optimized=False)
    session(path, {"recipe": "tensorwise"}, optimized=False)
