# SPDX-License-Identifier: Apache-2.0
"""Training steps that `onnx-fp8 rewrite` wrote, run by a stock onnxruntime with our
provider: the losses are those of `onnx-fp8 train`, bit for bit."""
import numpy
import onnx
import onnxruntime
import pytest
from cases import Case, corpus, fixtures, name_of
from sessions import EP, LIBRARY, ROOT, TELLS_ASSIGNMENT, VERSION, groups, session, stock

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
