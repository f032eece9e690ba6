# SPDX-License-Identifier: Apache-2.0
"""Training steps of other programs with several algorithms and with graphs of first values, against onnx.reference, which
runs the graphs one by one as onnx.proto says."""
import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from program import metrics_without_speed, run, state_bytes
from safetensors.numpy import load_file
from test_training_from_steps import state

node, FLOAT, INT64 = helper.make_node, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
BATCH, STEPS, RATE = 8, 5, 0.02
SIZES = {"u": (5, 4), "v": (4, 3)}


def infos(values):
    return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in values.items()]


def tensors(arrays):
    return [numpy_helper.from_array(np.asarray(x), name) for name, x in arrays.items()]


def gradient(after, at, to):
    """Nodes for the mean squared error and one gradient: MatMul(after, ...) of the error."""
    return [node("Sub", ["z", "y"], ["d"]), node("Mul", ["d", "d"], ["dd"]), node("ReduceMean", ["dd"], ["loss"], keepdims=0),
            node("Mul", ["d", "c"], ["dz"]), *after, node("Mul", ["g", "lr"], ["gr"]), node("Sub", [at, "gr"], [to])]


def model_of(branch):
    """z = x u v. With `branch`, a body computes it, which reads h and -v from outside."""
    last = [node("MatMul", ["h", "v"], ["z"])]
    if branch:
        def body(name, nodes):
            return helper.make_graph(nodes, name, [], infos({"r": (FLOAT, [None, 3])}))

        last = [node("ReduceMax", ["x"], ["top"], keepdims=0), node("Less", ["top", "c"], ["small"]),
                node("Neg", ["v"], ["w"]),
                node("If", ["small"], ["z"], "if",
                     then_branch=body("a", [node("MatMul", ["h", "w"], ["r"])]),
                     else_branch=body("b", [node("MatMul", ["h", "w"], ["p"]), node("Neg", ["p"], ["r"])]))]
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=size).astype(np.float32) for name, size in SIZES.items()}
    # `c` is 2 / (elements of the error), and separates the batches into two kinds.
    graph = helper.make_graph([node("MatMul", ["x", "u"], ["h"]), *last], "model", infos({"x": (FLOAT, ["n", 5])}),
                              infos({"z": (FLOAT, ["n", 3])}), tensors({**arrays, "c": np.float32(2 / (BATCH * 3))}))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def add_algorithm(model, nodes, inputs, outputs, arrays, bindings):
    info = model.training_info.add()
    info.algorithm.CopyFrom(helper.make_graph(nodes, "step", infos(inputs), infos(outputs), tensors(arrays)))
    for key, value in bindings.items():
        info.update_binding.add(key=key, value=value)
    return info


def by_blocks(branch=False):
    """Coordinate descent: a step for v with momentum, one for u with the new v, one for the averages of both. The algorithms
    use the same names for values of their own."""
    model = model_of(branch)
    inputs, loss = {"y": (FLOAT, ["n", 3]), "lr": (FLOAT, [])}, {"loss": (FLOAT, [])}
    to_v = [node("Transpose", ["h"], ["t"], perm=[1, 0]), node("MatMul", ["t", "dz"], ["gv"]), node("Mul", ["m", "k"], ["old"]),
            node("Add", ["old", "gv"], ["g"])]
    add_algorithm(model, gradient(to_v, "v", "new"), inputs, {**loss, "new": (FLOAT, [4, 3]), "g": (FLOAT, [4, 3])},
                  {"k": np.float32(0.9), "m": np.zeros((4, 3), np.float32)}, {"v": "new", "m": "g"})
    to_u = [node("Transpose", ["v"], ["t"], perm=[1, 0]), node("MatMul", ["dz", "t"], ["dh"]),
            node("Transpose", ["x"], ["xt"], perm=[1, 0]), node("MatMul", ["xt", "dh"], ["gu"]), node("Mul", ["gu", "k"], ["g"])]
    add_algorithm(model, gradient(to_u, "u", "new"), inputs, {**loss, "new": (FLOAT, [5, 4])}, {"k": np.float32(0.5)},
                  {"u": "new"})
    average = [node("Mul", [f"{w}.mean", "m"], [f"{w}.old"]) for w in SIZES] + [
        node("Add", [f"{w}.old", w], [f"{w}.mean.new"]) for w in SIZES] + [node("Add", ["count", "one"], ["new"])]
    add_algorithm(model, average, {}, {**{f"{w}.mean.new": (FLOAT, list(s)) for w, s in SIZES.items()}, "new": (INT64, [])},
                  {**{f"{w}.mean": np.zeros(s, np.float32) for w, s in SIZES.items()}, "m": np.float32(0.75),
                   "count": np.int64(0), "one": np.int64(1)}, {"u.mean": "u.mean.new", "v.mean": "v.mean.new", "count": "new"})
    return model


def initialize(info, nodes, bindings, arrays=None):
    outputs = [onnx.ValueInfoProto(name=value) for value in bindings.values()]
    info.initialization.CopyFrom(helper.make_graph(nodes, "first", [], outputs, tensors(arrays or {})))
    for key, value in bindings.items():
        info.initialization_binding.add(key=key, value=value)


def data(tmp):
    rng = np.random.default_rng(1)
    arrays = {name: rng.normal(size=(4 * BATCH, n)).astype(np.float32) for name, n in (("x", 5), ("y", 3))}
    arrays["x"][:BATCH] = -abs(arrays["x"][:BATCH])  # a batch for the other branch
    np.savez(tmp / "d.npz", **arrays)
    return arrays


def train(tmp, path, out, steps, *flags, rate=RATE):
    run("train", path, "--data", tmp / "d.npz", "--batch-size", BATCH, "--no-shuffle", "--lr", rate, "--steps", steps, "--out",
        tmp / out, *flags)
    return tmp / out


class Truth:
    """The initializers of a file, and its algorithms as models of their own."""

    def __init__(self, model):
        self.model, self.state = model, {}
        for graph in [model.graph, *(info.algorithm for info in model.training_info)]:
            self.state.update({t.name: numpy_helper.to_array(t) for t in graph.initializer if t.name not in self.state})

    def run(self, graph, feeds):
        one = onnx.ModelProto()
        one.CopyFrom(self.model)
        del one.training_info[:]
        one.graph.CopyFrom(graph)
        names = [value.name for value in graph.output]
        return dict(zip(names, ReferenceEvaluator(one).run(None, feeds), strict=True))

    def begin(self):
        for info in self.model.training_info:
            if info.initialization_binding:
                out = self.run(info.initialization, {})
                self.state.update({b.key: out[b.value] for b in info.initialization_binding})

    def present(self, graph, binders):
        """The graph with the state that these bind."""
        now, keys = onnx.GraphProto(), {b.key for info in binders for b in info.update_binding}
        now.CopyFrom(graph)
        for tensor in now.initializer:
            if tensor.name in keys:
                tensor.CopyFrom(numpy_helper.from_array(np.asarray(self.state[tensor.name]), tensor.name))
        return now

    def step(self, feeds):
        """The loss of the first algorithm that has one."""
        losses = []
        for info in self.model.training_info:
            graph = self.present(self.model.graph, self.model.training_info)
            graph.MergeFrom(self.present(info.algorithm, [info]))
            takes = {value.name for value in graph.input}
            out = self.run(graph, {name: x for name, x in feeds.items() if name in takes})
            self.state.update({b.key: out[b.value] for b in info.update_binding})
            losses += [float(out["loss"])] if "loss" in out else []
        return losses[0]


def expected(truth, arrays, steps):
    batches = [{**{k: x[i * BATCH % (4 * BATCH):][:BATCH] for k, x in arrays.items()}, "lr": np.float32(RATE)} for i in steps]
    return [truth.step(batch) for batch in batches]


def assert_state(folder, truth, names):
    for name in names:
        np.testing.assert_allclose(state(folder)[name], truth.state[name], rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("branch", [False, True])
def test_algorithms_run_one_after_another(branch, tmp_path):
    model, arrays = by_blocks(branch), data(tmp_path)
    path = tmp_path / "blocks.onnx"
    onnx.save(model, path)
    folder = train(tmp_path, path, "run", 2)
    run("train", "--resume", "--out", folder, "--steps", STEPS)
    truth = Truth(model)
    losses = expected(truth, arrays, range(STEPS))
    np.testing.assert_allclose([line["loss"] for line in metrics_without_speed(folder)], losses, rtol=2e-5)
    bound = ["u", "v", "m", "u.mean", "v.mean", "count"]
    assert_state(folder, truth, bound)
    assert sorted(state(folder)) == sorted(bound) and state(folder)["count"] == STEPS
    # The exported file has each tensor in its graph, and other constants as before.
    run("export", folder, "-o", tmp_path / "next.onnx", tmp_path / "w.safetensors")
    held = onnx.load(tmp_path / "next.onnx")
    assert [[t.name for t in i.algorithm.initializer] for i in held.training_info] == [
        [t.name for t in i.algorithm.initializer] for i in model.training_info]
    constants = [numpy_helper.to_array(t) for i in held.training_info for t in i.algorithm.initializer if t.name in "km"]
    assert [x.tolist() for x in constants if x.ndim == 0] == [float(np.float32(x)) for x in (0.9, 0.5, 0.75)]
    assert load_file(tmp_path / "w.safetensors").keys() == {"u", "v", "m", "u.mean", "v.mean"}
    more = expected(truth, arrays, range(2))
    later = train(tmp_path, tmp_path / "next.onnx", "later", 2)
    np.testing.assert_allclose([line["loss"] for line in metrics_without_speed(later)], more, rtol=2e-5)
    assert_state(later, truth, bound)
    # The loss and the weights before any algorithm of the step.
    loss = json.loads(run("eval", folder, "--data", tmp_path / "d.npz", "--batch-size", BATCH, "--json").stdout)["loss"]
    z = arrays["x"] @ state(folder)["u"]
    if branch:
        small = arrays["x"].reshape(4, -1).max(axis=1) < 2 / (BATCH * 3)
        assert small.any() and not small.all()
        z[np.repeat(small, BATCH)] *= -1
    assert loss == pytest.approx(np.mean((z @ state(folder)["v"] - arrays["y"]) ** 2), rel=1e-4)


def test_a_later_algorithm_may_bind_outputs_of_the_model(tmp_path):
    """Without nodes of its own: the model's graph runs again, with the new value."""
    graph = helper.make_graph(
        [node("Mul", ["a", "two"], ["a2"]), node("Add", ["a", "b"], ["b2"]), node("Mul", ["x", "b"], ["xb"]),
         node("ReduceSum", ["xb"], ["loss"], keepdims=0)], "model", infos({"x": (FLOAT, ["n"])}),
        infos({"a2": (FLOAT, []), "b2": (FLOAT, []), "loss": (FLOAT, [])}),
        tensors({"a": np.float32(1), "b": np.float32(0), "two": np.float32(2)}))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    for key in ("a", "b"):
        model.training_info.add().update_binding.add(key=key, value=f"{key}2")
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.ones(1, np.float32))
    run("train", tmp_path / "m.onnx", "--data", tmp_path / "d.npz", "--batch-size", 1, "--steps", 3, "--out", tmp_path / "run")
    assert {name: float(x) for name, x in state(tmp_path / "run").items()} == {"a": 8, "b": 2 + 4 + 8}
    assert [line["loss"] for line in metrics_without_speed(tmp_path / "run")] == [0, 2, 6]


def with_first_values():
    """The second graph replaces a value of the first one, and sets a tensor that no step changes."""
    model = by_blocks()
    first, second, _ = model.training_info
    initialize(first, [node("ConstantOfShape", ["u_size"], ["u0"], value=numpy_helper.from_array(np.array([0.25], np.float32))),
                       node("Expand", ["half", "v_size"], ["v0"])], {"u": "u0", "v": "v0"},
               {"u_size": np.array(SIZES["u"]), "v_size": np.array(SIZES["v"]), "half": np.float32(0.5)})
    initialize(second, [node("Constant", [], ["column"], value_floats=[0.1, 0.2, 0.3]), node("Expand", ["column", "v_size"], ["w0"]),
                        node("Constant", [], ["k0"], value_float=0.8)], {"v": "w0", "k": "k0"},
               {"v_size": np.array(SIZES["v"])})
    # `k` belongs to the second algorithm alone.
    for tensor in first.algorithm.initializer:
        tensor.name = tensor.name.replace("k", "mu")
    for each in first.algorithm.node:
        each.input[:] = ["mu" if name == "k" else name for name in each.input]
    return model


def test_first_values_are_computed_once(tmp_path):
    model, arrays = with_first_values(), data(tmp_path)
    path = tmp_path / "first.onnx"
    onnx.save(model, path)
    whole, parts = train(tmp_path, path, "whole", STEPS), train(tmp_path, path, "parts", 2)
    truth = Truth(model)
    truth.begin()
    model.training_info[1].algorithm.initializer[0].CopyFrom(numpy_helper.from_array(truth.state["k"], "k"))
    losses = expected(truth, arrays, range(STEPS))
    np.testing.assert_allclose([line["loss"] for line in metrics_without_speed(whole)], losses, rtol=2e-5)
    assert_state(whole, truth, ["u", "v", "m", "u.mean", "v.mean", "count", "k"])
    run("train", "--resume", "--out", parts, "--steps", STEPS)
    assert state_bytes(parts) == state_bytes(whole)
    # The exported file holds the present values, and nothing that would replace them.
    run("export", whole, "-o", tmp_path / "next.onnx")
    held = onnx.load(tmp_path / "next.onnx")
    assert not any(info.initialization_binding or info.HasField("initialization") for info in held.training_info)
    later = train(tmp_path, tmp_path / "next.onnx", "later", 2)
    more = expected(truth, arrays, range(2))
    np.testing.assert_allclose([line["loss"] for line in metrics_without_speed(later)], more, rtol=2e-5)


def random_first_values(tmp):
    model = by_blocks()
    initialize(model.training_info[0], [node(f"Random{kind}", [], [name], shape=SIZES[w], **flags) for kind, name, w, flags in (
        ("Normal", "n", "u", {"scale": 0.5}), ("Uniform", "r", "v", {"low": 2.0, "high": 3.0}))], {"u": "n", "v": "r"})
    onnx.save(model, tmp / "random.onnx")
    return tmp / "random.onnx"


def test_random_first_values(tmp_path):
    path = random_first_values(tmp_path)
    data(tmp_path)
    still = {seed: state(train(tmp_path, path, f"seed{seed}", 1, "--seed", seed, rate=0)) for seed in (0, 1)}
    for values in still.values():
        assert 0.2 < values["u"].std() < 0.9 and abs(values["u"].mean()) < 0.5
        assert values["v"].min() >= 2 and values["v"].max() < 3 and values["v"].std() > 0.1
    assert not np.array_equal(still[0]["u"], still[1]["u"])
    whole, parts = train(tmp_path, path, "whole", 4), train(tmp_path, path, "parts", 2)
    run("train", "--resume", "--out", parts, "--steps", 4)
    assert state_bytes(parts) == state_bytes(whole)


def test_a_model_with_first_values(tmp_path):
    """No step: `train` and a step that `rewrite` writes begin with them."""
    model = model_of(False)
    initialize(model.training_info.add(), [node("RandomNormal", [], ["u0"], shape=SIZES["u"])], {"u": "u0"})
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    arrays = data(tmp_path)
    np.savez(tmp_path / "d.npz", x=arrays["x"], labels=arrays["y"])
    flags = ["--loss", "mse", "--optimizer", "sgd", "--lr", RATE]
    run("rewrite", path, "-o", tmp_path / "step.onnx", *flags, "--shape", f"n={BATCH}")
    one = ["--data", tmp_path / "d.npz", "--batch-size", BATCH, "--no-shuffle", "--steps", 3]
    run("train", path, *one, *flags, "--out", tmp_path / "model")
    run("train", tmp_path / "step.onnx", *one, "--out", tmp_path / "step")
    assert metrics_without_speed(tmp_path / "step") == metrics_without_speed(tmp_path / "model")
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    assert np.abs(state(tmp_path / "model")["u"] - stored["u"]).max() > 0.5
    assert np.abs(state(tmp_path / "model")["v"] - stored["v"]).max() < 0.5
    run("export", tmp_path / "model", "-o", tmp_path / "out.onnx", tmp_path / "w.safetensors")
    assert not onnx.load(tmp_path / "out.onnx").training_info[0].initialization_binding
    # Initial weights that are given come after them.
    run("train", path, *one[:-1], 1, *flags[:-1], 0, "--init", tmp_path / "w.safetensors", "--out", tmp_path / "given")
    np.testing.assert_array_equal(state(tmp_path / "given")["u"], state(tmp_path / "model")["u"])
