# SPDX-License-Identifier: Apache-2.0
"""Small files that are made to crash a reader: each command refuses them and names the node or function."""
import numpy as np
from onnx import TensorProto, helper

from bad_input.case import BATCH, Case, arrays, model, save, tensors, train, weights

CASES = []
COMMANDS = {
    "inspect": ["inspect", "m.onnx", "--shape", f"batch={BATCH}"],
    "run": ["run", "m.onnx", "--data", "d.npz", "-o", "out.npz"],
    "train": train(data="d.npz", loss="mse"),
    "rewrite": ["rewrite", "m.onnx", "-o", "out.onnx", "--recipe", "tensorwise"],
}
MODELS = {}  # every proto of this module, by name


def refused(*words, by=("inspect", "run", "train"), flags=()):
    """`refused("words", ...)` decorates a function that makes a model; the commands in `by` refuse it, with `flags`."""
    def add(make_model):
        name = make_model.__name__
        MODELS[name] = make_model

        def files(command):
            def make(folder):
                save(make_model(), folder / "m.onnx")
                np.savez(folder / "d.npz", x=arrays()["x"], labels=np.zeros((BATCH, 5), np.float32))
                return [*COMMANDS[command], *flags]
            return make

        for command in by:
            leaves = ("run/config.json", "run/model/m.onnx") if command == "train" else ()
            CASES.append(Case(f"{name}-{command}", files(command), words, 1, leaves))
        return make_model
    return add


def refused_as_read(*words):
    """Every command refuses it when it reads the file."""
    return refused(*words, by=tuple(COMMANDS))


def node(op, inputs, outputs, name="it", **attributes):
    return helper.make_node(op, inputs, outputs, name, **attributes)


def through(*nodes, more=(), **options):
    """A trained product of x, then the given nodes, which read h and end in y; `more` are initializers."""
    first = [node("MatMul", ["x", "w5"], ["h"], "product")]
    own = tensors({"w5": np.ones((5, 5), np.float32), **weights()})
    return model(nodes=[*first, *nodes], initializers=own + list(more), **options)


def constants(**values):
    return tensors({name: np.array(value) for name, value in values.items()})


# ---- functions

OPSETS = {"local": 1, "other": 1, "d": 1}


def imports(onnx_opset):
    return [helper.make_opsetid("", onnx_opset)] + [helper.make_opsetid(k, v) for k, v in OPSETS.items()]


def function(name, *nodes, domain="local", opset=18, inputs=("a",), outputs=("c",), overload=""):
    made = helper.make_function(domain, name, list(inputs), list(outputs), list(nodes), imports(opset))
    made.overload = overload
    return made


def calling(*functions, call=None, **options):
    call = call or node("F", ["h"], ["y"], "call", domain="local")
    return through(call, functions=functions, imports=imports(18)[1:], **options)


@refused_as_read("[m.onnx] local function F expected a domain of its own, got ONNX's")
def function_of_onnx_that_calls_itself():
    return calling(function("F", node("F", ["a"], ["c"]), domain="ai.onnx"), call=node("F", ["h"], ["y"]))


@refused_as_read("[m.onnx] local function Relu expected a domain of its own, got ONNX's")
def function_in_the_place_of_an_operator():
    return calling(function("Relu", node("Relu", ["a"], ["c"]), domain=""), call=node("Relu", ["h"], ["y"]))


@refused_as_read("[m.onnx] local function d.F::G calls itself: it can't be inlined")
def function_that_calls_itself_by_its_overload():
    f = function("F::G", node("F", ["a"], ["c"], domain="d"), domain="d")
    f.node[0].overload = "G"
    return calling(f, call=node("F::G", ["h"], ["y"], domain="d"))


@refused_as_read("[m.onnx] local function local.F calls itself: it can't be inlined")
def function_that_calls_itself_in_a_branch():
    branch = helper.make_graph([node("F", ["a"], ["r"], domain="local")], "branch", [],
                               [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)])
    f = function("F", node("Constant", [], ["yes"], value=tensors({"": np.array(True)})[0]),
                 node("If", ["yes"], ["c"], then_branch=branch, else_branch=branch))
    return calling(f)


@refused_as_read("[m.onnx] local function local.F declares output \"lost\", which none of its nodes computes")
def output_that_no_node_of_the_function_computes():
    f = function("F", node("Relu", ["a"], ["c"]), opset=17, outputs=("c", "lost"))
    return calling(f, call=node("F", ["h"], ["y", "z"], "call", domain="local"))


@refused_as_read("[m.onnx] local function local.F declares output \"a\", which none of its nodes computes")
def output_that_is_an_input():
    return calling(function("F", node("Relu", ["a"], ["c"]), outputs=("a",)))


@refused_as_read("[m.onnx] local function local.F reads \"h\", which is no input of it and is not computed before")
def function_that_reads_what_is_around_its_call():
    return calling(function("F", node("Add", ["a", "h"], ["c"])))


@refused_as_read("[m.onnx] local function local.F reads \"b\", which is no input of it and is not computed before")
def function_whose_nodes_are_out_of_order():
    return calling(function("F", node("Relu", ["b"], ["c"]), node("Relu", ["a"], ["b"])))


@refused_as_read("[m.onnx] local function local.F computes \"c\" twice")
def function_that_computes_a_value_twice():
    return calling(function("F", node("Relu", ["a"], ["c"]), node("Relu", ["a"], ["c"])))


@refused_as_read("[m.onnx] local function local.F is there twice")
def two_functions_of_one_name():
    return calling(function("F", node("Relu", ["a"], ["c"])), function("F", node("Tanh", ["a"], ["c"])))


@refused_as_read("[m.onnx] a call of local function local.F has 2 inputs and 1 outputs; the function declares 1 and 1")
def call_with_more_than_is_declared():
    return calling(function("F", node("Relu", ["a"], ["c"])), call=node("F", ["h", "h"], ["y"], domain="local"))


@refused_as_read("[m.onnx: MaxPool it] expected attribute strides in 1…", "got 0")
def stride_of_zero_ahead_of_a_call():
    x = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])
    f = function("F", node("Relu", ["a"], ["c"]), opset=17)
    proto = calling(f, inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 5]), x])
    proto.graph.node.insert(0, node("MaxPool", ["image"], ["p"], kernel_shape=[1, 1], strides=[0, 0]))
    return proto


@refused_as_read("[m.onnx: MaxPool it] expected attribute strides in 1…", "got 0")
def stride_of_zero_in_a_function_that_nobody_calls():
    pool = node("MaxPool", ["a"], ["c"], kernel_shape=[1, 1], strides=[0, 0])
    return calling(function("F", node("Relu", ["a"], ["c"])), function("G", pool, opset=17))


@refused_as_read("[m.onnx: MaxPool it", "] expected attribute strides in 1…", "got 0")
def stride_of_zero_that_a_call_passes():
    pool = node("MaxPool", ["a"], ["c"], kernel_shape=[1, 1])
    pool.attribute.add(name="strides", ref_attr_name="steps", type=7)
    f = function("F", pool)
    f.attribute.append("steps")
    return calling(f, call=node("F", ["h"], ["y"], domain="local", steps=[0, 0]))


@refused_as_read("[m.onnx] expected subgraphs that lie in each other at most 100 deep once local functions are inlined")
def branches_that_lie_in_each_other_through_calls():
    """Twenty functions, each of which calls the next one inside of twenty branches."""
    info = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)

    def nested(depth, name):
        nodes = [node(name, ["a"], ["r"], domain="local")] if depth == 0 else [
            node("If", ["yes"], ["r"], then_branch=nested(depth - 1, name), else_branch=nested(0, "Last"))]
        return helper.make_graph(nodes, "branch", [], [info])

    def one(i):
        names = f"F{i + 1}" if i < 20 else "Last"
        return function(f"F{i}" if i else "F",
                        node("Constant", [], ["yes"], value=tensors({"": np.array(True)})[0]),
                        node("If", ["yes"], ["c"], then_branch=nested(20, names), else_branch=nested(0, "Last")))

    return calling(*[one(i) for i in range(21)], function("Last", node("Relu", ["a"], ["c"])))


@refused("[m.onnx] expected metadata onnx_fp8.opset to be an ONNX opset from", "got \"99\"", by=("inspect", "run"))
def opset_note_that_is_none():
    relu = node("Relu", ["h"], ["y"])
    relu.metadata_props.add(key="onnx_fp8.opset", value="99")
    return through(relu)


# ---- sizes and attributes that ONNX's shape inference takes on trust

F = np.float32
BIG = 1 << 62


def of_image(shape, *nodes, more=()):
    """The nodes read an initializer of zeros, whose shape is `shape`, through an op that is never folded."""
    like = node("RandomNormalLike", ["zeros"], ["image"])
    return through(like, *nodes, more=[*constants(zeros=np.zeros(shape, F)), *more])


@refused("[OneHot it] expected a depth of one element, got 0")
def depth_that_is_empty():
    return through(node("Cast", ["h"], ["i"], to=TensorProto.INT64), node("OneHot", ["i", "depth", "values"], ["y"]),
                   more=constants(depth=np.zeros(0, np.int64), values=np.array([0, 1], F)))


@refused("[OneHot it] expected a depth in 0…4398046511104, got nan")
def depth_that_is_no_number():
    return through(node("Cast", ["h"], ["i"], to=TensorProto.INT64), node("OneHot", ["i", "depth", "values"], ["y"]),
                   more=constants(depth=F("nan"), values=np.array([0, 1], F)))


def split_to_sequence(source, size):
    return through(node("SplitToSequence", [source, "size"], ["s"]), node("SequenceAt", ["s", "first"], ["y"]),
                   more=constants(size=np.int64(size), first=np.int64(0), scalar=F(1)))


@refused("[SplitToSequence it] expected an axis in 0…-1, got 0")
def split_of_a_scalar():
    return split_to_sequence("scalar", 1)


@refused("[SplitToSequence it] expected a chunk size > 0, got 0")
def chunks_of_zero():
    return split_to_sequence("h", 0)


@refused("[Split it] expected num_outputs to be 2, the number of outputs, got 1")
def fewer_parts_than_outputs():
    return through(node("Split", ["h"], ["y", "z"], num_outputs=1))


@refused("[Split it] expected input 1 (\"sizes\") to list sizes in 0…", "got -1")
def part_of_a_negative_size():
    return through(node("Split", ["h", "sizes"], ["y", "z"], axis=1), more=constants(sizes=[6, -1]))


@refused_as_read("[m.onnx: MaxPool it] expected attribute strides in 1…1048576, got 4611686018427387904")
def stride_without_end():
    return of_image([1, 1, 4], node("MaxPool", ["image"], ["y"], kernel_shape=[1], strides=[BIG]))


@refused_as_read("[m.onnx: MaxPool it] expected attribute pads in -4398046511104…4398046511104")
def pads_without_end():
    return of_image([1, 1, 4], node("MaxPool", ["image"], ["y"], kernel_shape=[1], pads=[BIG, BIG]))


@refused_as_read("[m.onnx: MaxPool it] expected attribute kernel_shape in 1…2147483647, got -3")
def kernel_of_a_negative_size():
    return of_image([1, 1, 4], node("MaxPool", ["image"], ["y"], kernel_shape=[-3]))


@refused("[MaxPool it] expected an output with axis sizes >= 0, got -2")
def kernel_beyond_the_image():
    return of_image([1, 1, 4], node("MaxPool", ["image"], ["y"], kernel_shape=[7]))


@refused("[MaxPool it] expected axes of at most 16777216 with auto_pad SAME_UPPER, got 1099511627776")
def remainder_by_subtraction():
    return through(node("ConstantOfShape", ["dims"], ["image"]),
                   node("MaxPool", ["image"], ["y"], kernel_shape=[2], strides=[2], auto_pad="SAME_UPPER"),
                   more=constants(dims=[1, 1, 1 << 40]))


@refused("[Expand it] expected input 1 (\"dims\") to list sizes in -1…4398046511104, got 4611686018427387904")
def expand_without_end():
    return through(node("Expand", ["one", "dims"], ["y"]), more=constants(one=np.ones((1, 1, 1), F), dims=[1, 1, BIG]))


@refused("[Conv it] expected input 1 (\"k\") to have the rank of input 0, 3 and at least 2, got 5")
def kernel_of_another_rank():
    return of_image([1, 1, 4], node("Conv", ["image", "k"], ["y"]), more=constants(k=np.ones((1, 1, 1, 1, 1), F)))


@refused("[ConvTranspose it] expected input 1 (\"k\") to have the rank of input 0, 3 and at least 2, got 1")
def transposed_kernel_of_rank_one():
    return of_image([1, 1, 4], node("ConvTranspose", ["image", "k"], ["y"]), more=constants(k=np.ones(1, F)))


@refused("[MaxUnpool it] expected input 1 (\"i\") to have the rank of input 0, 3 and at least 2, got 1")
def indices_of_another_rank():
    return of_image([1, 1, 4], node("MaxUnpool", ["image", "i"], ["y"], kernel_shape=[2]),
                    more=constants(i=np.zeros(1, np.int64)))


@refused("[MaxRoiPool it] expected an input of rank 4")
def regions_of_a_line():
    return of_image([1, 1, 4], node("MaxRoiPool", ["image", "r"], ["y"], pooled_shape=[1]),
                    more=constants(r=np.zeros((1, 5), F)))


@refused("[Reshape it] expected a tensor that fits into memory, got [4294967296,4294967296,?]")
def product_that_wraps_to_zero():
    return through(node("Reshape", ["h", "to"], ["y"]), more=constants(to=[1 << 32, 1 << 32, -1]))


@refused("[Reshape it] expected input 1 (\"to\") to list at most 64 sizes, got 100")
def shape_of_a_hundred_axes():
    return through(node("Reshape", ["h", "to"], ["y"]), more=constants(to=np.ones(100, np.int64)))


@refused("[Reshape it] expected input 1 (\"to\") to list at most 64 sizes, got 1099511627776")
def shape_whose_rank_is_a_size():
    return through(node("ConstantOfShape", ["dims"], ["to"], value=helper.make_tensor("", TensorProto.INT64, [1], [1])),
                   node("Reshape", ["h", "to"], ["y"]), more=constants(dims=[1 << 40]))


@refused("[Tile it] expected a tensor that fits into memory, got an axis of 5 times 4398046511104")
def tile_without_end():
    return through(node("Tile", ["h", "times"], ["y"]), more=constants(times=[1, 1 << 42]))


@refused("[Unsqueeze it] expected input 1 (\"at\") to list at most 64 sizes, got 100")
def a_hundred_new_axes():
    return through(node("Unsqueeze", ["h", "at"], ["y"]), more=constants(at=np.arange(100)))


@refused("[TopK it] expected input 1 (\"k\") to list sizes in 0…", "got -1")
def top_of_less_than_none():
    return through(node("TopK", ["h", "k"], ["y", "i"]), more=constants(k=[-1]))


@refused("[Pad it] expected input 1 (\"p\") to list sizes in -4398046511104…", "got 4611686018427387904")
def padding_without_end():
    return through(node("Pad", ["h", "p"], ["y"]), more=constants(p=[0, BIG, 0, BIG]))


@refused("[Pad it] expected an output with axis sizes >= 0, got -5")
def padding_that_takes_more_than_there_is():
    return through(node("Pad", ["h", "p"], ["y"]), more=constants(p=[0, -5, 0, -5]))


@refused("[Resize it] expected scales above 0 and at most 1.04858e+06, got nan")
def scale_that_is_no_number():
    return of_image([1, 1, 4, 4], node("Resize", ["image", "", "s"], ["y"]),
                    more=constants(s=np.array([1, 1, "nan", 2], F)))


@refused("[Resize it] expected no axis of size 0 where the aspect ratio is kept")
def aspect_ratio_of_nothing():
    return of_image([1, 1, 0, 4], node("Resize", ["image", "", "", "s"], ["y"], axes=[2, 3],
                                       keep_aspect_ratio_policy="not_larger"), more=constants(s=[2, 2]))


@refused("[Range it] expected a delta, got 0")
def range_that_stands_still():
    return through(node("Range", ["a", "o", "d"], ["y"]), more=constants(a=np.int64(0), o=np.int64(9), d=np.int64(0)))


@refused("[Range it] expected finite start, limit and delta below 2^62, got inf")
def range_to_infinity():
    return through(node("Range", ["a", "o", "d"], ["y"]), more=constants(a=F(0), o=F("inf"), d=F(1)))


@refused("[GatherND it] expected batch_dims in 0…1, got -2")
def batch_before_the_first_axis():
    return through(node("GatherND", ["h", "i"], ["y"], batch_dims=-2), more=constants(i=np.zeros((4, 1), np.int64)))


@refused("[Transpose it] expected perm to list 2 axes, got 1")
def permutation_of_fewer_axes():
    return through(node("Transpose", ["h"], ["y"], perm=[0]))


@refused("[Einsum it] expected each ellipsis to stand for 0 axes, got 2")
def ellipses_of_two_lengths():
    return through(node("Einsum", ["v", "h"], ["y"], equation="...i,...->...i"), more=constants(v=np.ones(5, F)))


@refused("[Einsum it] expected an equation of 1 terms, such as", "got \"->z\"")
def equation_with_a_label_from_nowhere():
    return through(node("Einsum", ["scalar"], ["y"], equation="->z"), more=constants(scalar=F(1)))


@refused("[Softmax it]", "Input rank must be >= 1 for Softmax", by=("inspect", "run"))
def axis_of_a_scalar():
    return through(node("Softmax", ["scalar"], ["y"], axis=0), more=constants(scalar=F(1)))


@refused("[LayerNormalization it] expected an axis in 0…-1, got 0")
def norm_of_a_scalar():
    return through(node("LayerNormalization", ["scalar", "scalar"], ["y"], axis=0), more=constants(scalar=F(1)))


@refused("[Dropout it]", "training_mode of Dropout must be a scalar", by=("inspect", "run"))
def dropout_whose_mode_is_empty():
    return through(node("Dropout", ["h", "ratio", "mode"], ["y"]),
                   more=constants(ratio=F(0.5), mode=np.zeros(0, bool)))


@refused("[ai.onnx.ml.Normalizer it] no operator Normalizer of domain ai.onnx.ml", by=("inspect", "run"))
def operator_of_another_domain():
    return through(node("Normalizer", ["h"], ["y"], domain="ai.onnx.ml"), imports=[helper.make_opsetid("ai.onnx.ml", 4)])


# ---- models that would take hours or all memory

def over(name, unit, amount, where, lowered=True):
    """`refused` with the message of a budget, which is `amount`, lowered or by default."""
    return refused(f"{where}] expected at most {amount} {unit}, got more: --budget {name}=N raises the budget \"{name}\"",
                   flags=["--budget", f"{name}={amount}"] if lowered else ())


VISITS, NODES = "nodes visited, those of a loop each time", "nodes once loops and functions are unrolled"
CONSTANTS, WORK = "bytes of folded constants", "operations of folding"


def loop(trips, *nodes, goes="go", more=()):
    """y is h after some turns of the nodes, which compute `next` from `v`; the loop goes on while `goes`."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [*nodes, node("Identity", [goes], ["goes"])], "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("v", TensorProto.FLOAT, None)],
        [value("goes", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, None)])
    return through(node("Loop", ["trips", "", "h"], ["y"], "again", body=body),
                   more=[*constants(trips=np.int64(trips)), *more])


RELU = node("Relu", ["v"], ["next"], "relu")


@over("visits", VISITS, "1M", "[Loop again", lowered=False)
def loop_without_end():
    return loop(BIG, RELU)


@over("visits", VISITS, "20k", "")
def loop_that_could_end():
    return loop(BIG, node("Less", ["i", "last"], ["less"]), RELU, goes="less", more=constants(last=np.int64(BIG)))


@over("visits", VISITS, "20k", "[If choose")
def branches_in_a_loop():
    """The condition of each iteration depends on all iterations before it."""
    info = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    branches = [helper.make_graph([node(op, ["v"], ["r"])], op, [], [info]) for op in ("Relu", "Tanh")]
    return loop(1000, node("ReduceMax", ["v"], ["m"], keepdims=0), node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
                node("If", ["c"], ["next"], "choose", then_branch=branches[0], else_branch=branches[1]))


@over("nodes", NODES, "1k", "[Relu relu")
def loop_of_layers():
    return loop(2000, RELU)


@over("constants", CONSTANTS, "64M", "[ConstantOfShape big")
def loop_of_constants():
    return loop(100_000, node("ConstantOfShape", ["dims"], ["c"], "big"), RELU, more=constants(dims=[1 << 21]))


@over("work", WORK, "8G", "[MatMul square", lowered=False)
def loop_of_products():
    return loop(100_000, node("MatMul", ["a", "a"], ["p"], "square"), RELU, more=constants(a=np.ones((512, 512), F)))


@over("work", WORK, "1G", "[Conv filter")
def loop_of_convolutions():
    return loop(100_000, node("Conv", ["a", "k"], ["p"], "filter"), RELU,
                more=constants(a=np.ones((1, 16, 64, 64), F), k=np.ones((16, 16, 5, 5), F)))


@over("work", WORK, "64M", "[MaxPool pool")
def loop_of_same_upper():
    return loop(100_000, node("ConstantOfShape", ["dims"], ["line"]),
                node("MaxPool", ["line"], ["p"], "pool", kernel_shape=[2], strides=[2], auto_pad="SAME_UPPER"), RELU,
                more=constants(dims=[1, 1, 1 << 24]))


@over("work", WORK, "1M", "")
def loop_of_sequences():
    value = helper.make_tensor_value_info
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    longer = helper.make_tensor_sequence_value_info("longer", TensorProto.FLOAT, None)
    body = helper.make_graph(
        [node("SequenceInsert", ["s", "h"], ["longer"], "more"), node("Identity", ["go"], ["goes"])], "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), sequence],
        [value("goes", TensorProto.BOOL, []), longer])
    return through(node("SequenceEmpty", [], ["none"]),
                   node("Loop", ["trips", "", "none"], ["all"], "again", body=body),
                   node("SequenceAt", ["all", "first"], ["y"]),
                   more=constants(trips=np.int64(60_000), first=np.int64(0)))
