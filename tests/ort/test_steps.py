# SPDX-License-Identifier: Apache-2.0
"""Training steps that `onnx-fp8 rewrite` wrote, run by a stock onnxruntime with our
provider: the losses equal `onnx-fp8 train`'s, bit for bit."""
import json

import numpy
import onnx
import onnxruntime
import pytest
from cases import Case, corpus, fixtures, name_of
from onnx import helper
from program import run
from sessions import EP, FLOAT, INT64, LIBRARY, ROOT, TELLS_ASSIGNMENT, VERSION, groups, session, stock
from sessions import model as small_model

STEPS = 5
# The runtimes differ in how they load a graph, not in how we run it.
MODELS = [*fixtures(), *corpus(["gpt2_loss", "llama_eager", "vit"])]
CASES = [(model, recipe) for model in MODELS for recipe in ("off", "tensorwise", "delayed")]
CASES += [(model, recipe) for model in fixtures() if model.parent.name == "nanogpt"
          for recipe in ("rowwise", "blockwise", "mxfp8")]
if VERSION >= (1, 27):  # it has float8e8m0
    CASES += [(ROOT / "tests/fixtures/nanogpt/d18.onnx", "rowwise,scales:e8m0")]


class Step:
    """State in two sets of OrtValues, which change places after each step."""

    def __init__(self, running, path, feeds):
        proto = onnx.load(path)
        self.running = running
        self.bindings = {b.key: b.value for b in proto.training_info[0].update_binding}
        initial = {i.name: i for i in proto.graph.initializer if i.name in self.bindings}
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        self.feeds = {name: value(array) for name, array in feeds.items()}
        self.old = {name: value(numpy.array(onnx.numpy_helper.to_array(i))) for name, i in initial.items()}
        self.new = {name: value(numpy.zeros_like(old.numpy())) for name, old in self.old.items()}

    def run(self):
        binding = self.running.io_binding()
        for name, array in {**self.feeds, **self.old}.items():
            binding.bind_ortvalue_input(name, array)
        for name, new in self.new.items():
            binding.bind_ortvalue_output(self.bindings[name], new)
        binding.bind_output("loss")
        self.running.run_with_iobinding(binding)
        self.old, self.new = self.new, self.old
        return float(binding.get_outputs()[-1].numpy())


@pytest.mark.parametrize("model,recipe", CASES, ids=name_of)
def test_losses_are_those_of_train(model, recipe, tmp_path):
    case = Case(model, tmp_path)
    path = case.step_file(recipe)
    running = session(path)  # no other provider may have a node
    if TELLS_ASSIGNMENT:
        assert [provider for provider, _ in groups(running)] == [EP]
    step = Step(running, path, case.feeds)
    assert [step.run() for _ in range(STEPS)] == case.trained_losses(recipe, STEPS)


@pytest.mark.parametrize("recipe", ["off", "delayed", "mxfp8"])
def test_custom_ops_run_in_any_runtime(recipe, tmp_path):
    """The runtime has the other ops, so that sums have another order."""
    case = Case(fixtures()[-1], tmp_path)
    path = case.step_file(recipe)
    step = Step(stock(path, LIBRARY), path, case.feeds)
    losses, ours = [step.run() for _ in range(STEPS)], case.trained_losses(recipe, STEPS)
    difference = numpy.abs(numpy.subtract(losses, ours)) / ours[0]
    assert difference[0] <= 1e-5 and difference.max() <= (1e-4 if recipe == "off" else 2e-2)


def test_custom_ops_win_over_bodies(tmp_path):
    """A session without our library runs the bodies, and takes more nodes for it."""
    case = Case(fixtures()[-1], tmp_path)
    path = case.step_file("tensorwise")

    def ops(running):
        running.run(["loss"], case.feeds)
        profile = open(running.end_profiling()).read()
        return profile.count("_kernel_time"), profile.count("ScaledMatMul")

    counts = []
    for library in (LIBRARY, None):
        settings = onnxruntime.SessionOptions()
        settings.enable_profiling = True
        settings.profile_file_prefix = str(tmp_path / "profile")
        settings.log_severity_level = 4
        if library:
            settings.register_custom_ops_library(library)
        counts.append(ops(onnxruntime.InferenceSession(str(path), settings,
                                                       providers=["CPUExecutionProvider"])))
    assert counts[0][1] > 0 and counts[0][0] < counts[1][0]


def test_one_buffer_for_old_and_new_state(tmp_path):
    """The session allows it; the result is right because the whole step is one node."""
    case = Case(fixtures()[0], tmp_path)
    path = case.step_file("delayed")
    step = Step(session(path), path, case.feeds)
    step.new = step.old
    assert [step.run() for _ in range(STEPS)] == case.trained_losses("delayed", STEPS)


# ---- a large vocabulary

ROWS, WORDS, FEATURES = (4, 160), 8192, 16


class Words:
    """A language model without a context. Its logits have 20 MiB, so that `train` cuts them into two chunks."""

    def __init__(self, tmp):
        self.model, self.tmp, self.data = tmp / "words.onnx", tmp, tmp / "d.npz"
        rng = numpy.random.default_rng(0)
        weights = {"embed.weight": rng.normal(size=(WORDS, FEATURES)), "head.weight": rng.normal(size=(FEATURES, WORDS))}
        nodes = [helper.make_node("Gather", ["embed.weight", "ids"], ["rows"]), helper.make_node("Tanh", ["rows"], ["h"]),
                 helper.make_node("MatMul", ["h", "head.weight"], ["logits"])]
        axes = ["batch", "seq"]
        onnx.save(small_model(nodes, {"ids": (INT64, axes)}, {"logits": (FLOAT, [*axes, WORDS])},
                              {name: x.astype(numpy.float32) for name, x in weights.items()}), self.model)
        self.feeds = {name: rng.integers(0, WORDS, ROWS) for name in ("ids", "labels")}
        numpy.savez(self.data, **self.feeds)

    def step_file(self, recipe):
        path = self.tmp / "step.onnx"
        run("rewrite", self.model, "-o", path, *self.flags(recipe), "--shape", f"batch={ROWS[0]},seq={ROWS[1]}")
        return path

    def flags(self, recipe):
        return ["--loss", "cross_entropy", "--lr", "1e-2", "--recipe", recipe]

    def losses(self, model, name, *flags):
        run("train", model, "--data", self.data, "--batch-size", ROWS[0], "--no-shuffle", "--steps", STEPS, "--out",
            self.tmp / name, *flags)
        lines = map(json.loads, (self.tmp / name / "metrics.jsonl").read_text().splitlines())
        return [line["loss"] for line in lines if "loss" in line]


@pytest.mark.parametrize("recipe", ["off", "tensorwise", "delayed"])
def test_chunks_of_logits_are_those_of_train(recipe, tmp_path):
    """The provider joins the logits, which are an output of the step."""
    case = Words(tmp_path)
    path = case.step_file(recipe)
    losses = {}
    for chunk in ("", "0", "8388608"):
        option, flag = ({"loss_chunk": chunk}, ["--loss-chunk", chunk]) if chunk else ({}, [])
        step = Step(session(path, option), path, case.feeds)
        losses[chunk] = [step.run() for _ in range(STEPS)]
        assert losses[chunk] == case.losses(case.model, f"model{chunk}", *case.flags(recipe), *flag)
        assert losses[chunk] == case.losses(path, f"step{chunk}", *flag)
    assert losses[""] != losses["0"] != losses["8388608"]


def test_logits_of_chunks(tmp_path):
    case = Words(tmp_path)
    path = case.step_file("off")
    [logits] = session(path).run(["logits"], case.feeds)
    [whole] = session(path, {"loss_chunk": "0"}).run(["logits"], case.feeds)
    numpy.testing.assert_allclose(logits, whole, rtol=1e-6)
