# SPDX-License-Identifier: Apache-2.0
"""Models with impossible nodes: each message names the node."""
import numpy as np
from onnx import TensorProto, helper

from bad_input.case import Cases, good, grad, inspect, linear_nodes, model, save, tensors, weights

CASES = cases = Cases()
node = helper.make_node


def through(*nodes, more=(), **options):
    """x -> the given nodes, which end in y; `more` are initializers beside w and b."""
    return model(nodes=list(nodes), initializers=tensors(weights()) + list(more), **options)


def constants(**arrays):
    return tensors({name: np.array(value) for name, value in arrays.items()})


@cases("[m.onnx] value \"nothing\" is read by MatMul product but never computed")
def reads_what_nobody_computes(folder):
    return inspect(through(node("MatMul", ["x", "nothing"], ["y"], "product")), folder)


@cases("[Relu second] computes \"q\", which Add first has read before: expected nodes in the order of the computation, "
       "without a cycle")
def cycle(folder):
    return inspect(through(node("Add", ["x", "q"], ["p"], "first"), node("Relu", ["p"], ["q"], "second"),
                           node("Relu", ["q"], ["y"], "third")), folder)


@cases("[Relu second] computes \"y\", which is there already: expected values to be computed once")
def computed_twice(folder):
    return inspect(through(node("Relu", ["x"], ["y"], "first"), node("Relu", ["x"], ["y"], "second")), folder)


@cases("[Relu other] computes \"x\", which is there already: expected values to be computed once")
def computes_an_input(folder):
    return inspect(through(node("Relu", ["w"], ["x"], "other"), *linear_nodes()), folder)


@cases("[m.onnx: Frobnicate odd] no operator Frobnicate in ONNX opset 18")
def unknown_op(folder):
    return inspect(through(node("Frobnicate", ["x"], ["y"], "odd")), folder)


@cases("[com.example.Gelu mine] no operator Gelu of domain com.example", "only local functions of the model are known")
def unknown_domain(folder):
    return inspect(through(node("Gelu", ["x"], ["y"], "mine", domain="com.example"),
                           imports=[helper.make_opsetid("com.example", 1)]), folder)


@cases("[onnx_fp8.Nothing own] no such op in domain onnx_fp8")
def unknown_op_of_our_domain(folder):
    return inspect(through(node("Nothing", ["x"], ["y"], "own", domain="onnx_fp8"),
                           imports=[helper.make_opsetid("onnx_fp8", 1)]), folder)


@cases("[m.onnx: Gelu new] no operator Gelu in ONNX opset 18")
def op_newer_than_the_opset(folder):
    return inspect(through(node("Gelu", ["x"], ["y"], "new")), folder)


@cases("[m.onnx] expected every node to have an op_type, got none for \"blank\"")
def node_without_op(folder):
    return inspect(through(node("", ["x"], ["y"], "blank")), folder)


@cases("[m.onnx: MatMul product]", "input size 1 not in range [min=2, max=2]")
def too_few_inputs(folder):
    return inspect(through(node("MatMul", ["x"], ["y"], "product")), folder)


@cases("[m.onnx: Relu much]", "input size 2 not in range [min=1, max=1]")
def too_many_inputs(folder):
    return inspect(through(node("Relu", ["x", "w"], ["y"], "much")), folder)


@cases("[m.onnx: Gather pick]", "input 1 is marked single but has an empty string in the graph")
def required_input_left_out(folder):
    return inspect(through(node("Gather", ["w", ""], ["y"], "pick")), folder)


@cases("[m.onnx: Relu much]", "output size 2 not in range [min=1, max=1]")
def too_many_outputs(folder):
    return inspect(through(node("Relu", ["x"], ["y", "z"], "much")), folder)


@cases("[m.onnx: Transpose turn] Mismatched attribute type in 'turn : perm'. Expected: 'INTS', actual: 'INT'")
def attribute_of_another_type(folder):
    return inspect(through(node("Transpose", ["x"], ["y"], "turn", perm=1)), folder)


@cases("[m.onnx: Relu odd]", "Unrecognized attribute: slope")
def unknown_attribute(folder):
    return inspect(through(node("Relu", ["x"], ["y"], "odd", slope=0.5)), folder)


@cases("[m.onnx: Cast to]", "Required attribute 'to' is missing")
def required_attribute_left_out(folder):
    return inspect(through(node("Cast", ["x"], ["y"], "to")), folder)


@cases("[Cast odd]", "Attribute to does not specify a valid type")
def cast_to_an_unknown_type(folder):
    return inspect(through(node("Cast", ["x"], ["y"], "odd", to=77)), folder)


@cases("[Add sum] expected inputs of one type, got \"x\" of float and \"k\" of double")
def two_types_in_one_sum(folder):
    return inspect(through(node("Add", ["x", "k"], ["y"], "sum"), more=constants(k=np.float64(1))), folder)


@cases("[MatMul product] expected input 0 (\"c\") to be of ", "float, ", "got bool")
def type_that_the_op_does_not_take(folder):
    return inspect(through(node("Cast", ["x"], ["c"], "cast", to=TensorProto.BOOL),
                           node("MatMul", ["c", "c2"], ["y"], "product"), more=constants(c2=np.ones((5, 3), bool))),
                   folder)


@cases("[MatMul product]", "Incompatible dimensions", "; inputs: x float[4,5], w float[4,3]")
def product_of_shapes_that_do_not_fit(folder):
    return inspect(model(initializers=tensors({"w": np.ones((4, 3), np.float32), "b": weights()["b"]})), folder)


@cases("[Reshape shape]", "incompatible shapes", "; inputs: x float[4,5], to int64[2]")
def reshape_that_fits_no_batch(folder):
    """Only the concrete batch shows the error."""
    return inspect(through(node("Reshape", ["x", "to"], ["y"], "shape"), more=constants(to=[3, -1])), folder)


@cases("[Add sum]", "ncompatible dimensions", "; inputs: x float[4,5], k float[3,5]")
def sum_of_shapes_that_do_not_broadcast(folder):
    return inspect(through(node("Add", ["x", "k"], ["y"], "sum"), more=constants(k=np.ones((3, 5), np.float32))),
                   folder)


@cases("[Concat join]", "axis", "; inputs: x float[4,5], x float[4,5]")
def axis_beyond_the_rank(folder):
    return inspect(through(node("Concat", ["x", "x"], ["y"], "join", axis=7)), folder)


@cases("[LayerNormalization norm] expected an axis in -2…1, got 9223372036854775807")
def axis_beyond_everything(folder):
    """ONNX's inference would read the shape there."""
    return inspect(through(node("LayerNormalization", ["x", "k"], ["y"], "norm", axis=(1 << 63) - 1),
                           more=constants(k=np.ones(5, np.float32))), folder)


@cases("[Transpose turn]", "perm", "; inputs: x float[4,5]")
def permutation_with_an_axis_twice(folder):
    return inspect(through(node("Transpose", ["x"], ["y"], "turn", perm=[1, 1])), folder)


@cases("[Split part]", "split", "; inputs: x float[4,5], sizes int64[2]")
def split_into_more_than_there_is(folder):
    return inspect(through(node("Split", ["x", "sizes"], ["p", "y"], "part", axis=1), more=constants(sizes=[2, 7])),
                   folder)


def image_model(attributes, kernel=(2, 1, 3, 3)):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 8, 8])
    return model(nodes=[node("Conv", ["x", "k"], ["y"], "filter", **attributes)],
                 initializers=tensors({"k": np.ones(kernel, np.float32)}), inputs=[x])


@cases("[m.onnx: Conv filter] expected attribute strides in 1…1048576, got 0")
def stride_of_zero(folder):
    return inspect(image_model({"strides": [0, 1]}), folder)


@cases("[m.onnx: Conv filter] expected attribute group in 1…1048576, got 0")
def group_of_zero(folder):
    return inspect(image_model({"group": 0}), folder)


@cases("[m.onnx: Conv filter] expected attribute dilations in 1…1048576, got -1")
def negative_dilation(folder):
    return inspect(image_model({"dilations": [-1, 1]}), folder)


@cases("[Conv filter] expected kernel_shape [3,3], got [5,5]")
def kernel_shape_that_is_not_the_weight(folder):
    save(image_model({"kernel_shape": [5, 5]}), folder / "m.onnx")
    np.savez(folder / "d.npz", x=np.ones((4, 1, 8, 8), np.float32))
    return ["run", "m.onnx", "--data", "d.npz", "-o", "out.npz"]


@cases("[Gather pick] expected indices in -5…4, got 9")
def index_beyond_a_constant(folder):
    return inspect(through(node("Gather", ["w", "at"], ["y"], "pick", axis=0), more=constants(at=[0, 9])), folder)


@cases("[ConstantOfShape fill] expected a tensor that fits into memory, got [1048576,1048576,4,5]")
def tensor_that_fits_no_memory(folder):
    proto = through(node("ConstantOfShape", ["dims"], ["big"], "fill"), node("Expand", ["x", "dims"], ["big2"], "big"),
                    node("ReduceSum", ["big2"], ["y"], "all"), more=constants(dims=[1 << 20, 1 << 20, 4, 5]))
    good(folder)
    save(proto, folder / "m.onnx")
    return grad(folder, loss="mse")


@cases("[Range count] expected a tensor that fits into memory, got [1152921504606846976]")
def range_without_end(folder):
    return inspect(through(node("Range", ["from", "to", "by"], ["y"], "count"),
                           more=constants(**{"from": np.int64(0), "to": np.int64(1 << 60), "by": np.int64(1)})), folder)


@cases("[m.onnx] graph output \"y\" has as many rows as NonZero where finds in the data")
def shape_that_depends_on_data(folder):
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT64, None)]
    return inspect(through(node("NonZero", ["x"], ["y"], "where"), outputs=outputs), folder)


@cases("[TopK best] TopK reads rows whose number data decide, and has no rule for them here: it is along the rows; "
       "rewrite the model so that a mask selects the rows")
def rows_that_an_op_can_not_bound(folder):
    return inspect(through(node("NonZero", ["x"], ["at"], "where"), node("TopK", ["at", "one"], ["y", "i"], "best"),
                           more=constants(one=np.array([1]))), folder)


@cases(r"[m.onnx: Relu \x1b[2J\x07] Unrecognized attribute: slope")
def name_that_a_terminal_would_obey(folder):
    return inspect(through(node("Relu", ["x"], ["y"], "\x1b[2J\x07", slope=0.5)), folder)


@cases("[m.onnx] value \"\\xffothing\" is read by MatMul product but never computed")
def name_that_is_no_utf_8(folder):
    proto = through(node("MatMul", ["x", "nothing"], ["y"], "product"))
    (folder / "m.onnx").write_bytes(proto.SerializeToString().replace(b"nothing", b"\xffothing"))
    return ["inspect", "m.onnx"]


@cases("[m.onnx] value \"nnnnnnnn", "nnnn…")
def name_without_end(folder):
    return inspect(through(node("MatMul", ["x", "n" * 1_000_000], ["y"], "product")), folder)


# ---- functions and subgraphs

def function(name, *nodes):
    return helper.make_function("local", name, ["a"], ["c"], list(nodes), [helper.make_opsetid("", 18),
                                                                          helper.make_opsetid("local", 1)])


LOCAL = {"imports": [helper.make_opsetid("local", 1)]}


@cases("[m.onnx] local function local.F calls itself")
def function_that_calls_itself(folder):
    f = function("F", node("F", ["a"], ["c"], domain="local"))
    return inspect(through(node("F", ["x"], ["y"], domain="local"), functions=[f], **LOCAL), folder)


@cases("[m.onnx] local function local.F calls itself")
def functions_that_call_each_other(folder):
    f = function("F", node("G", ["a"], ["c"], domain="local"))
    g = function("G", node("F", ["a"], ["c"], domain="local"))
    save(through(node("F", ["x"], ["y"], domain="local"), functions=[f, g], **LOCAL), folder / "m.onnx")
    return ["rewrite", "m.onnx", "-o", "out.onnx", "--recipe", "tensorwise"]


@cases("[m.onnx] expected at most 256k nodes once loops and functions are unrolled, got more: --budget nodes=N raises")
def functions_that_grow_without_end(folder):
    """40 functions, each of which calls the next one twice."""
    last = function("F40", node("Relu", ["a"], ["c"]))
    rest = [function(f"F{i}", node(f"F{i + 1}", ["a"], ["m"], domain="local"),
                     node(f"F{i + 1}", ["m"], ["c"], domain="local")) for i in range(40)]
    return inspect(through(node("F0", ["x"], ["y"], domain="local"), functions=[*rest, last], **LOCAL), folder)


def branch(*nodes):
    return helper.make_graph(list(nodes), "branch", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)])


@cases("[m.onnx] expected an ONNX model, got a file that does not parse as one")
def subgraphs_nested_too_deeply(folder):
    def field(number, data):
        size, rest = b"", len(data)
        while rest > 127:
            size, rest = size + bytes([rest & 127 | 128]), rest >> 7
        return bytes([number << 3 | 2]) + size + bytes([rest]) + data

    graph = b""
    for _ in range(5000):  # GraphProto.node.attribute.g
        graph = field(1, field(5, field(6, graph)))
    (folder / "m.onnx").write_bytes(model().SerializeToString() + field(7, graph))
    return ["inspect", "m.onnx"]


@cases("[m.onnx: If choose]", "Required attribute 'else_branch' is missing")
def if_without_else(folder):
    return inspect(through(node("If", ["yes"], ["y"], "choose", then_branch=branch(node("Relu", ["x"], ["r"]))),
                           more=constants(yes=True)), folder)


@cases("[If choose] expected 1 outputs of then_branch, got 0")
def branch_without_outputs(folder):
    empty = branch(node("Relu", ["x"], ["r"]))
    del empty.output[:]
    return inspect(through(node("If", ["yes"], ["y"], "choose", then_branch=empty, else_branch=empty),
                           more=constants(yes=True)), folder)


@cases("[m.onnx] value \"nowhere\" is read by a subgraph but never computed")
def branch_that_reads_what_nobody_computes(folder):
    inner = branch(node("Relu", ["nowhere"], ["r"]))
    return inspect(through(node("If", ["yes"], ["y"], "choose", then_branch=inner, else_branch=inner),
                           more=constants(yes=True)), folder)


@cases("[Loop again] expected at most 1M nodes visited, those of a loop each time, got more: --budget visits=N raises")
def loop_without_end(folder):
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["c"], ["go"]), node("Relu", ["v"], ["r"])], "body",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("v", TensorProto.FLOAT, None)],
        [value("go", TensorProto.BOOL, []), value("r", TensorProto.FLOAT, None)])
    return inspect(through(node("Loop", ["times", "yes", "x"], ["y"], "again", body=body),
                           more=constants(times=np.int64(1 << 62), yes=True)), folder)
