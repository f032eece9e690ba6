# SPDX-License-Identifier: Apache-2.0
"""Small files that are made to bring a reader down: each command refuses them by name of the node or function."""
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


def refused(*words, by=("inspect", "run", "train"), data=None):
    """`refused("words", ...)` decorates a function that makes a model; the commands `by` refuse it."""
    def add(make_model):
        name = make_model.__name__
        MODELS[name] = make_model

        def files(command):
            def make(folder):
                save(make_model(), folder / "m.onnx")
                np.savez(folder / "d.npz", **(data or {"x": arrays()["x"]}), labels=np.zeros((BATCH, 5), np.float32))
                return COMMANDS[command]
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
