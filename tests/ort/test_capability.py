# SPDX-License-Identifier: Apache-2.0
"""Which nodes our provider takes, and their results beside the stock runtime's."""
import numpy
import onnxruntime
import pytest
from onnx import TensorProto, helper
from sessions import (CPU, EP, FLOAT, INT64, TELLS_ASSIGNMENT, groups, model, session, stock)

node = helper.make_node
RNG = numpy.random.default_rng(1)


def floats(*shape):
    return RNG.standard_normal(shape).astype(numpy.float32)


def assert_as_stock(proto, feeds, fallback=False, **limits):
    ours = session(proto, fallback=fallback)
    for mine, theirs in zip(ours.run(None, feeds), stock(proto).run(None, feeds), strict=True):
        numpy.testing.assert_allclose(mine, theirs, **({"rtol": 1e-5, "atol": 1e-6} | limits))
    return ours


def assert_groups(running, expected):
    if TELLS_ASSIGNMENT:
        assert groups(running) == expected


def layers(middle):
    """Two products around a node."""
    return model([node("MatMul", ["x", "w"], ["a"]), middle, node("MatMul", ["b", "w"], ["c"]),
                  node("Mul", ["a", "c"], ["y"])],
                 {"x": (FLOAT, ["n", 8])}, {"y": (FLOAT, ["n", 8])}, {"w": floats(8, 8)})


def test_takes_the_whole_graph():
    running = assert_as_stock(layers(node("Tanh", ["a"], ["b"])), {"x": floats(3, 8)})
    assert_groups(running, [(EP, ["MatMul", "MatMul", "Mul", "Tanh"])])


def test_leaves_what_it_does_not_know_and_no_path_comes_back():
    """The last nodes read the first one's result, but can't be joined with it."""
    proto = layers(node("Normalizer", ["a"], ["b"], domain="ai.onnx.ml", norm="L2"))
    running = assert_as_stock(proto, {"x": floats(3, 8)}, fallback=True)
    if TELLS_ASSIGNMENT:
        assert sorted(groups(running)) == [
            (CPU, ["Normalizer"]), (EP, ["MatMul"]), (EP, ["MatMul", "Mul"])]
    with pytest.raises(Exception, match="disable_cpu_ep_fallback|fallback"):
        session(proto)


def test_takes_nothing_of_a_foreign_model():
    proto = model([node("Normalizer", ["x"], ["y"], domain="ai.onnx.ml", norm="L2")],
                  {"x": (FLOAT, [2, 3])}, {"y": (FLOAT, [2, 3])})
    running = assert_as_stock(proto, {"x": floats(2, 3)}, fallback=True)
    assert_groups(running, [(CPU, ["Normalizer"])])


def test_leaves_texts():
    proto = model([node("Identity", ["t"], ["u"]), node("Relu", ["x"], ["y"])],
                  {"t": (TensorProto.STRING, [1]), "x": (FLOAT, [2])},
                  {"u": (TensorProto.STRING, [1]), "y": (FLOAT, [2])})
    out = session(proto, fallback=True).run(None, {"t": numpy.array(["a"]), "x": floats(2)})
    assert list(out[0]) == ["a"]


def test_shapes_are_new_in_each_run():
    """A head split by Shape, Gather, Concat and Reshape, as exporters write it."""
    proto = model([node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"], axis=0),
                   node("Concat", ["n", "heads"], ["to"], axis=0), node("Reshape", ["x", "to"], ["h"]),
                   node("Transpose", ["h"], ["y"], perm=[1, 0, 2])],
                  {"x": (FLOAT, ["n", 8])}, {"y": (FLOAT, [2, "n", 4])},
                  {"zero": numpy.array([0]), "heads": numpy.array([2, 4])})
    running = session(proto)
    for n in (3, 5, 3, 1, 0):
        x = floats(n, 8)
        numpy.testing.assert_array_equal(
            running.run(None, {"x": x})[0], x.reshape(n, 2, 4).transpose(1, 0, 2))


def test_an_input_of_one_integer_may_decide_a_size():
    proto = model([node("Range", ["zero", "n", "one"], ["r"]), node("Add", ["r", "x"], ["y"])],
                  {"n": (INT64, []), "x": (INT64, [])}, {"y": (INT64, ["n"])},
                  {"zero": numpy.array(0), "one": numpy.array(1)})
    running = session(proto, fallback=True)
    for n in (3, 4, 3):
        out = running.run(None, {"n": numpy.array(n), "x": numpy.array(2)})[0]
        numpy.testing.assert_array_equal(out, numpy.arange(n) + 2)


def test_leaves_sizes_that_are_data():
    proto = model([node("Relu", ["x"], ["a"]), node("Reshape", ["a", "to"], ["y"])],
                  {"x": (FLOAT, [6]), "to": (INT64, [2])}, {"y": (FLOAT, ["a", "b"])})
    running = session(proto, fallback=True)
    for to in ([2, 3], [3, 2], [-1, 1]):
        out = running.run(None, {"x": floats(6), "to": numpy.array(to)})[0]
        assert out.shape == numpy.zeros(6).reshape(to).shape
    assert_groups(running, [(EP, ["Relu"]), (CPU, ["Reshape"])])


def test_sequences_stay_inside_a_group():
    """The first one is ours; a result, and an operand of another provider's node are not."""
    split = [node("SplitToSequence", ["x", "two"], ["s"], axis=0), node("SequenceAt", ["s", "one"], ["a"])]
    kinds = {"x": (FLOAT, [4, 3])}
    constants = {"one": numpy.array(1), "two": numpy.array([2, 2])}
    inside = model([*split, node("Neg", ["a"], ["y"])], kinds, {"y": (FLOAT, [2, 3])}, constants)
    assert_groups(assert_as_stock(inside, {"x": floats(4, 3)}), [(EP, ["Neg", "SequenceAt", "SplitToSequence"])])
    outside = model([*split, node("Neg", ["a"], ["y"])], kinds, {"y": (FLOAT, [2, 3])}, constants)
    outside.graph.output.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))
    x = floats(4, 3)
    y, s = session(outside, fallback=True).run(None, {"x": x})
    numpy.testing.assert_array_equal(y, -x[2:])
    numpy.testing.assert_array_equal(s[0], x[:2])


def test_leaves_branches():
    def branch(op):
        return helper.make_graph([node(op, ["a"], [f"{op}_y"])], op, [],
                                 [helper.make_tensor_value_info(f"{op}_y", FLOAT, None)])

    proto = model([node("Relu", ["x"], ["a"]),
                   node("If", ["c"], ["b"], then_branch=branch("Neg"), else_branch=branch("Exp")),
                   node("Mul", ["b", "a"], ["y"])],
                  {"x": (FLOAT, [4]), "c": (TensorProto.BOOL, [])}, {"y": (FLOAT, [4])})
    for flag in (True, False):
        running = assert_as_stock(proto, {"x": floats(4), "c": numpy.array(flag)}, fallback=True)
    if TELLS_ASSIGNMENT:
        assert [(EP, ["Mul"]), (EP, ["Relu"])] == sorted(g for g in groups(running) if g[0] == EP)


def test_results_that_are_inputs_or_constants():
    proto = model([node("Identity", ["x"], ["same"]), node("Constant", [], ["c"], value_floats=[1., 2.]),
                   node("Reshape", ["x", "to"], ["flat"]), node("Neg", ["x"], ["y"]),
                   node("Identity", ["y"], ["z"])],
                  {"x": (FLOAT, [2, 3])},
                  {name: (FLOAT, None) for name in ("same", "c", "flat", "y", "z")},
                  {"to": numpy.array([6])})
    assert_as_stock(proto, {"x": floats(2, 3)}, fallback=True)


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E5M2", "BFLOAT16", "FLOAT16"])
def test_tensors_of_few_bits(kind):
    """There and back: the codes equal the stock runtime's."""
    to = getattr(TensorProto, kind)
    proto = model([node("Cast", ["x"], ["q"], to=to), node("Cast", ["q"], ["y"], to=FLOAT),
                   node("Cast", ["p"], ["z"], to=FLOAT)],
                  {"x": (FLOAT, ["n"]), "p": (to, ["n"])},
                  {"q": (to, ["n"]), "y": (FLOAT, ["n"]), "z": (FLOAT, ["n"])})
    x, width = floats(64), numpy.uint16 if kind.endswith("16") else numpy.uint8
    wrap = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
    results = []
    for running in (session(proto), stock(proto)):
        codes = numpy.zeros(64, width)
        binding = running.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_ortvalue_input("p", wrap(numpy.arange(64, dtype=width), to))
        binding.bind_ortvalue_output("q", wrap(codes, to))
        for name in ("y", "z"):
            binding.bind_output(name)
        running.run_with_iobinding(binding)
        results.append([codes, *(value.numpy() for value in binding.get_outputs()[1:])])
    for mine, theirs in zip(*results, strict=True):
        numpy.testing.assert_array_equal(mine, theirs)
    assert results[0][0].any()


def test_large_constants_are_kept_though_the_session_drops_them():
    proto = model([node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["y"])],
                  {"x": (FLOAT, ["n", 256])}, {"y": (FLOAT, ["n", 300])},
                  {"w": floats(256, 300), "b": floats(300)})
    assert_as_stock(proto, {"x": floats(5, 256)}, rtol=1e-4, atol=1e-4)


def test_errors_name_the_node():
    proto = model([node("Gather", ["x", "i"], ["y"], name="look up")],
                  {"x": (FLOAT, [4]), "i": (INT64, [1])}, {"y": (FLOAT, [1])})
    running = session(proto)
    with pytest.raises(Exception, match="look up"):
        running.run(None, {"x": floats(4), "i": numpy.array([9])})
    assert running.run(None, {"x": floats(4), "i": numpy.array([1])})[0].shape == (1,)
