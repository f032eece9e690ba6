# SPDX-License-Identifier: Apache-2.0
"""Training steps in files: bindings and notes that do not fit, halves without their other half, flags that contradict."""
import json

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from program import run

from bad_input.case import FIXTURES, Cases, cut, good, save

CASES = cases = Cases()
WHOLE = "[step.onnx] is a whole training step that `onnx-fp8 rewrite` with --loss wrote"
NOTES = "onnx_fp8.step"
BEGUN = ("run/config.json", "run/model/step.onnx")  # the step is looked at when its first run is planned


def train(*flags):
    return ["train", "step.onnx", "--data", "good.npz", "--steps", 1, "--out", "run", *flags]


def write(folder, *flags):
    """step.onnx and good.npz; with --grad-accum step.apply.onnx too."""
    good(folder)
    run("rewrite", "m.onnx", "-o", "step.onnx", "--loss", "cross_entropy", "--shape", "batch=2", *flags, cwd=folder)
    return onnx.load(folder / "step.onnx")


def edited(name, *words, flags=(), leaves=()):
    """The decorated function spoils the step."""
    def add(spoil):
        def make(folder):
            model = write(folder, *flags)
            spoil(model)
            save(model, folder / "step.onnx")
            return train()

        make.__name__ = name
        cases(*words, leaves=leaves)(make)
        return spoil

    return add


def contradicts(name, *words, given):
    def make(folder):
        write(folder, "--recipe", "tensorwise")
        return train(*given)

    make.__name__ = name
    cases(WHOLE, *words, code=2)(make)


def notes(model):
    [text] = [entry for entry in model.metadata_props if entry.key == NOTES]
    return text


def with_notes(name, *words, flags=(), leaves=()):
    """The decorated function changes the notes."""
    def add(change):
        @edited(name, *words, flags=flags, leaves=leaves)
        def spoil(model):
            text = notes(model)
            content = json.loads(text.value)
            change(content)
            text.value = json.dumps(content)

    return add


def binding(model, key):
    [found] = [b for b in model.training_info[0].update_binding if b.key == key]
    return found


# ---- bindings

@edited("key_of_no_initializer", "[step.onnx] the update_binding of \"v\" expected an initializer, got no value of that name")
def _(model):
    binding(model, "w").key = "v"


@edited("key_of_an_input", "[step.onnx] the update_binding of \"x\" expected an initializer, got another value of that name")
def _(model):
    binding(model, "w").key = "x"


@edited("value_of_no_output", "[step.onnx] the update_binding of \"w\" expected an output of the graph, got \"nothing\", "
        "which is no value")
def _(model):
    binding(model, "w").value = "nothing"


@edited("value_that_is_no_output", "[step.onnx] the update_binding of \"w\" expected an output of the graph, got \"x\", "
        "which is none of them")
def _(model):
    binding(model, "w").value = "x"


@edited("bound_twice", "[step.onnx] the update_binding of \"w\" expected one new value, got a second one, \"b.next\"")
def _(model):
    model.training_info[0].update_binding.add(key="w", value="b.next")


@edited("another_shape", "[step.onnx] the update_binding of \"w\" expected a new value of shape [5,3], got \"b.next\" of shape [3]")
def _(model):
    binding(model, "w").value = "b.next"


@edited("an_empty_value", "[step.onnx] the update_binding of \"b\" expected a new value of shape [3], got \"nothing\" of shape [0]")
def _(model):
    empty = numpy_helper.from_array(np.zeros(0, np.float32))
    model.graph.node.append(helper.make_node("Constant", [], ["nothing"], value=empty))
    model.graph.output.append(helper.make_tensor_value_info("nothing", TensorProto.FLOAT, [0]))
    binding(model, "b").value = "nothing"


@edited("another_type", "[step.onnx] the update_binding of \"w\" expected a new value of float, got \"optimizer.step.next\" "
        "of int64")
def _(model):
    binding(model, "w").value = "optimizer.step.next"


@edited("no_bindings", WHOLE, "expected its bindings in training_info, got none")
def _(model):
    del model.training_info[0].update_binding[:]


# ---- notes

@edited("an_older_version", WHOLE, "an older version: expected its notes as the metadata onnx_fp8.step; write it anew from "
        "the model")
def _(model):
    model.metadata_props.remove(notes(model))


@edited("notes_in_words", "[step.onnx] expected notes of a training step as the metadata onnx_fp8.step, got another text")
def _(model):
    notes(model).value = "a whole step"


@with_notes("notes_of_the_future", "[step.onnx] expected notes of a training step as the metadata onnx_fp8.step of version 1, "
            "got version 2")
def _(content):
    content["version"] = 2


@with_notes("notes_cut_short", "[step.onnx] expected notes of a training step as the metadata onnx_fp8.step, got a text that "
            "lacks a part of them")
def _(content):
    del content["roles"]


@with_notes("an_unknown_role", "with known roles, got \"teacher\" for w")
def _(content):
    content["roles"]["w"] = "teacher"


@with_notes("a_role_of_nothing", "[step.onnx] expected an initializer v, whose role is \"param\" by the notes of the step, "
            "got none")
def _(content):
    content["roles"]["v"] = "param"


@with_notes("state_without_a_role", "[step.onnx] expected the notes of the step to tell the role of w, which the file binds, "
            "got none")
def _(content):
    del content["roles"]["w"]


@with_notes("no_name_for_a_parameter", "[step.onnx] expected a PyTorch name for w among the notes of the step, got none")
def _(content):
    del content["names"]["w"]


@with_notes("a_setting_left_out", WHOLE, "expected the setting recipe among its notes, got none")
def _(content):
    del content["settings"]["recipe"]


@with_notes("a_recipe_in_a_file", WHOLE, "expected a recipe among its notes, got the file ../secret.json")
def _(content):
    content["settings"]["recipe"] = "../secret.json"


@with_notes("another_precision", "expected float32, bfloat16 or float16 as the setting dtype among its notes, got \"int4\"")
def _(content):
    content["settings"]["dtype"] = "int4"


@with_notes("a_whole_step_of_two_batches", "expected a number of micro-batches above 1 for its part for each, and 1 for a "
            "whole step, got 2")
def _(content):
    content["settings"]["grad_accum"] = "2"


@with_notes("another_part", "expected notes of the part whole, got micro")
def _(content):
    content["part"] = "micro"


@with_notes("a_loss_that_is_nothing", "[step.onnx] expected a value nothing, which is the step's loss, got none")
def _(content):
    content["values"]["loss"] = "nothing"


@with_notes("a_loss_of_many_numbers", "[step.onnx] expected one float as the step's loss, w.next, got another value",
            leaves=BEGUN)
def _(content):
    content["values"]["loss"] = "w.next"


@with_notes("a_rate_of_many_numbers", "[step.onnx] expected w to be the learning rate, an input of one float, got another value")
def _(content):
    content["values"]["lr"] = "w"


@with_notes("labels_of_other_amaxes", "[step.onnx] expected 1 floats as the step's amax", flags=["--recipe", "tensorwise"],
            leaves=BEGUN)
def _(content):
    content["amax_labels"] = ["w forward input"]


@edited("scales_without_state", "[step.onnx] expected state fp8.scale for the 1 scales of its metadata "
        "onnx_fp8.scale_slots, got another", flags=["--recipe", "delayed"], leaves=BEGUN)
def _(model):
    [text] = [entry for entry in model.metadata_props if entry.key == "onnx_fp8.scale_slots"]
    text.value = json.dumps(json.loads(text.value)[:1])


# ---- files

@cases("[step.onnx] expected an ONNX model, got a file that does not parse as one")
def truncated(folder):
    write(folder)
    cut(folder / "step.onnx", -500)
    return train()


@cases("[step.onnx fc2.weight] expected 5120 bytes from 4096 on in step.onnx.data, which holds 5000")
def truncated_data(folder):
    run("rewrite", FIXTURES / "mlp" / "d18.onnx", "-o", "step.onnx", "--loss", "cross_entropy", "--shape", "batch=2",
        "--external-data", cwd=folder)
    np.savez(folder / "good.npz", x=np.zeros((4, 24), np.float32), labels=np.zeros(4, np.int64))
    cut(folder / "step.onnx.data", 5000)
    return train()


@cases("[step.apply.onnx] expected the update that belongs to step.onnx, got no such file")
def no_update(folder):
    write(folder, "--grad-accum", 2)
    (folder / "step.apply.onnx").unlink()
    return train()


@cases("[step.apply.onnx] expected the update that belongs to step.onnx, got another file")
def a_model_as_update(folder):
    write(folder, "--grad-accum", 2)
    (folder / "step.apply.onnx").write_bytes((folder / "m.onnx").read_bytes())
    return train()


@cases("[step.apply.onnx] expected the update that belongs to step.onnx, got that of a step with other settings")
def the_update_of_another_step(folder):
    write(folder, "--grad-accum", 3)
    update = (folder / "step.apply.onnx").read_bytes()
    write(folder, "--grad-accum", 2)
    (folder / "step.apply.onnx").write_bytes(update)
    return train()


@cases("[step.apply.onnx] expected the tensor b as in step.onnx, got another one")
def state_fed_back_to_one_file(folder):
    model = write(folder, "--grad-accum", 2)
    for tensor in model.graph.initializer:
        if tensor.name == "b":
            tensor.CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), "b"))
    save(model, folder / "step.onnx")
    return train()


@cases("[step.apply.onnx] is the update of a training step", "expected the file of its part for each micro-batch")
def the_update_alone(folder):
    write(folder, "--grad-accum", 2)
    return ["train", "step.apply.onnx", *train()[2:]]


# ---- flags

contradicts("another_loss", "its --loss is cross_entropy, got mse; leave that out, or make another step of the model",
            given=["--loss", "mse"])
contradicts("another_recipe", "its --recipe is i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2, got off",
            given=["--recipe", "off"])
contradicts("another_optimizer", "its --optimizer is adamw, got sgd", given=["--optimizer", "sgd"])
contradicts("other_moments", "its --moments is float32, got bfloat16", given=["--moments", "bfloat16"])
contradicts("other_masters", "its --master is float32, got split8", given=["--master", "split8"])
contradicts("other_averages", "its --ema is 0, got 0.9", given=["--ema", 0.9])
contradicts("another_decay", "its --weight-decay is 0.01, got 0", given=["--weight-decay", 0])
contradicts("another_norm", "its --clip-norm is 0, got 1:previous", given=["--clip-norm", "1:previous"])
contradicts("another_accumulation", "its --grad-accum is 1, got 2", given=["--grad-accum", 2])
contradicts("another_precision_given", "its --dtype is float32, got bfloat16", given=["--dtype", "bfloat16"])
contradicts("others_frozen", "its --freeze is none, got w", given=["--freeze", "w"])


@cases("[run/model/m.onnx] expected a training step for m.onnx, got a model, which takes its own weights",
       leaves=("run/config.json", "run/model/m.onnx"))
def a_model_for_a_model(folder):
    good(folder)
    run("train", "m.onnx", "--data", "good.npz", "--loss", "cross_entropy", "--batch-size", 2, "--steps", 1,
        "--out", "run", cwd=folder)
    return ["export", "run", "--model", "m.onnx", "-o", "x.onnx"]


# ---- steps of other programs

def foreign(folder, *flags, outputs=("loss", "w_new"), algorithms=0, change=None):
    """step.onnx: loss = sum of x w, w_new = w - w; in the graph or its algorithm."""
    good(folder)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("ReduceMean", ["y"], ["loss"], keepdims=0),
             helper.make_node("Sub", ["w", "w"], ["w_new"])]
    shapes = {"loss": [], "w_new": [5, 3], "y": ["batch", 3]}
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "step", [value("x", TensorProto.FLOAT, ["batch", 5])],
                              [value(name, TensorProto.FLOAT, shapes[name]) for name in outputs],
                              [numpy_helper.from_array(np.ones((5, 3), np.float32), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    model.training_info.add().update_binding.add(key="w", value="w_new")
    for i in range(algorithms):
        info = model.training_info.add() if i else model.training_info[0]
        info.algorithm.node.add(op_type="Identity", input=["loss"], output=[f"copy{i}"])
    if change:
        change(model)
    save(model, folder / "step.onnx")
    return train("--batch-size", 2, *flags)


FOREIGN = "[step.onnx] is a training step of another program"


@cases(FOREIGN, "expected the name of the output that is its loss, as in --loss output:NAME, because none of its outputs is "
       "one float (y, w_new)")
def a_foreign_step_without_a_loss(folder):
    return foreign(folder, outputs=("y", "w_new"))


@cases(FOREIGN, "expected the name of the output that is its loss, as in --loss output:NAME, got cross_entropy")
def a_loss_of_ours_for_a_foreign_step(folder):
    return foreign(folder, "--loss", "cross_entropy")


@cases("[step.onnx] expected a graph output \"nothing\" for the loss, got outputs: loss", leaves=BEGUN)
def a_foreign_loss_that_is_no_output(folder):
    return foreign(folder, "--loss", "output:nothing")


@cases(FOREIGN, "its --recipe is off, got", code=2)
def fp8_for_a_foreign_step(folder):
    return foreign(folder, "--recipe", "tensorwise")


@cases(FOREIGN, "its --optimizer is its own, got adamw", code=2)
def an_optimizer_for_a_foreign_step(folder):
    return foreign(folder, "--optimizer", "adamw")


def read_of_another_algorithm(model):
    model.training_info[1].algorithm.node[0].input[0] = "copy0"


def second_new_value(model):
    model.training_info[1].update_binding.add(key="w", value="w_new")


def another_type_of_an_input(model):
    for info, kind in zip(model.training_info, (TensorProto.FLOAT, TensorProto.INT64), strict=True):
        info.algorithm.input.append(helper.make_tensor_value_info("z", kind, []))


@cases("[step.onnx] expected training algorithm 2 to read values of the model and its own, got \"copy0\", which belongs to "
       "another algorithm")
def an_algorithm_that_reads_another_ones_values(folder):
    return foreign(folder, algorithms=2, change=read_of_another_algorithm)


@cases("[step.onnx] the update_binding of \"w\" expected one new value, got a second one, \"w_new\"")
def two_algorithms_that_bind_one_tensor(folder):
    return foreign(folder, algorithms=2, change=second_new_value)


@cases("[step.onnx] expected training algorithm 2 to have the input z of the type of before")
def two_algorithms_with_another_input_of_one_name(folder):
    return foreign(folder, algorithms=2, change=another_type_of_an_input)


def initialized(folder, key="w", value="w0", shape=(5, 3), inputs=()):
    """w0 = zeros of that shape."""
    def change(model):
        info = model.training_info[0]
        info.initialization_binding.add(key=key, value=value)
        info.initialization.CopyFrom(helper.make_graph(
            [helper.make_node("ConstantOfShape", ["sizes"], ["w0"])], "first",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in inputs],
            [helper.make_tensor_value_info("w0", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.array(shape, np.int64), "sizes")]))

    return foreign(folder, change=change)


@cases("[step.onnx] the initialization_binding of \"w\" expected an output of the initialization, got \"w1\", which is no value")
def a_first_value_that_is_no_output(folder):
    return initialized(folder, value="w1")


@cases("[step.onnx] the initialization_binding of \"v\" expected an initializer, got no value of that name")
def a_first_value_of_nothing(folder):
    return initialized(folder, key="v")


@cases("[step.onnx] the initialization_binding of \"w\" expected a first value of float [5,3], got float [3,5]")
def a_first_value_of_another_shape(folder):
    return initialized(folder, shape=(3, 5))


@cases("[step.onnx] expected an initialization without inputs, got the input t")
def an_initialization_with_an_input(folder):
    return initialized(folder, inputs=["t"])


@cases("[ConstantOfShape -> w0] expected a tensor that fits into memory, got [1099511627776,1048576]")
def a_first_value_without_end(folder):
    return initialized(folder, shape=(1 << 40, 1 << 20))


@cases("[step.onnx] the update_binding of \"v\" expected an initializer, got no value of that name")
def a_foreign_binding_that_does_not_fit(folder):
    def change(model):
        model.training_info[0].update_binding.add(key="v", value="w_new")

    return foreign(folder, change=change)


@cases("expected a training step whose gradients are known, got one of another program")
def gradients_of_a_foreign_step(folder):
    foreign(folder)
    return ["grad", "step.onnx", "--data", "good.npz", "-o", "out.npz"]
