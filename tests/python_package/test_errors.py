# SPDX-License-Identifier: Apache-2.0
"""Bad input: the exceptions have the command line's texts, and name options as Python does."""
import re

import digits
import numpy as np
import program
import pytest

import onnx_fp8
from test_session import OverDLPack

OPTIONS = [
    ({"loss": "x"}, "`loss`: expected cross_entropy, nll, mse, l1, huber, kl_div, bce, bce_with_logits, output:NAME or "
                    "FILE.onnx, got x"),
    ({"label_smoothing": 2}, "`label_smoothing`: expected 0 to 1, got 2"),
    ({"delta": 2}, "`delta` is an option of the loss huber, got cross_entropy"),
    ({"filter_fqn": ["a"]}, "there is no option `filter_fqn`; did you mean `filter_fqns`?"),
    ({"recipe": "foo"}, '`recipe`: [recipe foo] expected off, tensorwise, '),
    ({"lr": -1}, "`lr`: expected a number of at least 0, got -1"),
    ({"clip_norm": "1:previus"}, "`clip_norm`: expected a number of at least 0, or X:previous with an X above 0, got "
                                 "1:previus"),
    ({"grad_accum": "two"}, "`grad_accum`: expected an integer of at least 1, got two"),
    ({"provider": "gpu"}, "`provider`: expected cpu or cuda, got gpu"),
    ({"scales": "s.json"}, "`scales`: expected a recipe with static scales"),
    ({"steps": 3}, "`steps` is an option of onnx_fp8.train, not of a session"),
    ({"ort_training": "a"}, "expected one of `model` and `ort_training`"),
    ({"checkpoint": "a"}, "`checkpoint` needs `ort_training`"),
    ({"shard": "parameters"}, "`shard` needs `mesh` dp=N with N of 2 or more"),
    ({"mesh": "dp=x"}, "`mesh`: "),
    ({"bf16": True}, "there is no option `bf16`; did you mean `dtype=\"bfloat16\"`?"),
    ({"fp16": True}, "there is no option `fp16`; did you mean `dtype=\"float16\"`?"),
    ({"learning_rate": 0.1}, "there is no option `learning_rate`; did you mean `lr`?"),
    ({"max_grad_norm": 1}, "there is no option `max_grad_norm`; did you mean `clip_norm`?"),
    ({"gradient_accumulation_steps": 2}, "there is no option `gradient_accumulation_steps`; did you mean `grad_accum`?"),
    ({"shuffle": False}, "there is no option `shuffle`; did you mean `no_shuffle`?"),
    ({"wd": 0.1}, "there is no option `wd`; did you mean `weight_decay`?"),
]


@pytest.mark.parametrize("options, text", OPTIONS, ids=lambda o: "-".join(o) if isinstance(o, dict) else "")
def test_options(options, text):
    with pytest.raises(onnx_fp8.OptionError, match="^" + re.escape(text)) as error:
        digits.session(**options)
    assert isinstance(error.value, ValueError) and "--" not in str(error.value)


@pytest.mark.parametrize("name, command", [("train", "train"), ("inspect", "inspect"), ("evaluate", "eval"),
                                           ("rewrite", "rewrite"), ("export", "export"), ("calibrate", "calibrate"),
                                           ("sensitivity", "sensitivity")])
def test_docstrings_have_the_options_of_the_help(name, command):
    text = program.run(command, "--help").stdout
    flags = re.findall(r"^  (?:-o,)?--([a-z-]+)", text, re.M)
    documented = re.findall(r"^    ([a-z_]+): ", getattr(onnx_fp8, name).__doc__, re.M)
    assert documented == [flag.replace("-", "_") for flag in flags] and len(flags) > 5


def test_a_session_has_the_options_of_train_without_its_loop():
    of = {name: set(re.findall(r"^    ([a-z_]+): ", getattr(onnx_fp8, name).__doc__, re.M))
          for name in ("train", "TrainingSession")}
    assert of["TrainingSession"] < of["train"]
    assert {"steps", "data", "batch_size", "schedule", "resume"} <= of["train"] - of["TrainingSession"]
    assert "    lr: float\n        learning rate (default: 0.001)\n" in onnx_fp8.TrainingSession.__doc__


def test_a_wheel_has_no_cuda():
    with pytest.raises(onnx_fp8.Error, match=r"^\[provider cuda\] expected libonnx_fp8_cuda.so in .*, got none: "
                                             "`./dev build --cuda` builds it$"):
        onnx_fp8.TrainingSession(digits.MODEL, loss="cross_entropy", provider="cuda")


def test_texts_are_those_of_the_command_line():
    with pytest.raises(onnx_fp8.Error) as error:
        digits.session(train=["zz"])
    done = program.run("grad", digits.MODEL, "--data", digits.TRAIN, "--loss", "cross_entropy", "--train", "zz", "-o",
                       "x.npz", code=1)
    theirs = done.stderr.strip().removeprefix("onnx-fp8: ")
    assert str(error.value) == theirs.replace("--train", "`train`").replace("`onnx-fp8 inspect`", "`onnx_fp8.inspect`")


def test_files():
    for fails in (lambda: digits.session("no.onnx"),
                  lambda: onnx_fp8.inspect("no.onnx"),
                  lambda: onnx_fp8.train(digits.MODEL, data="no.npz", loss="cross_entropy", steps=1, out="/tmp/no"),
                  lambda: onnx_fp8.train(ort_training="no", data=digits.TRAIN, steps=1, out="/tmp/no"),
                  lambda: onnx_fp8.TrainingSession(ort_training="no"),
                  lambda: onnx_fp8.TrainingSession(ort_training=digits.ROOT / "tests/fixtures/ort_training/mlp",
                                                   checkpoint="no.ckpt"),
                  lambda: onnx_fp8.rewrite(ort_training="no", out="/tmp/no", recipe="delayed"),
                  lambda: digits.session().resume("/no/such/folder")):
        with pytest.raises(FileNotFoundError, match="no") as error:
            fails()
        assert isinstance(error.value, onnx_fp8.Error)
    with pytest.raises(onnx_fp8.Error, match="model.onnx"):
        onnx_fp8.TrainingSession(b"no model", loss="cross_entropy")
    with pytest.raises(onnx_fp8.OptionError, match="`out` is missing"):
        onnx_fp8.train(digits.MODEL, data=digits.TRAIN, loss="cross_entropy", steps=1)
    with pytest.raises(onnx_fp8.OptionError, match="`data`: expected files, got arrays"):
        onnx_fp8.calibrate(digits.MODEL, "no.json", data=digits.arrays())
    with pytest.raises(onnx_fp8.OptionError, match="expected one of `model` and `ort_training`"):
        onnx_fp8.train(digits.MODEL, ort_training="no", data=digits.TRAIN, steps=1, out="/tmp/no")
    with pytest.raises(onnx_fp8.OptionError, match="`model` is not for `ort_training`"):
        onnx_fp8.rewrite(digits.MODEL, "/tmp/no", ort_training="no", recipe="delayed")
    with pytest.raises(onnx_fp8.OptionError, match="`model` is missing"):
        onnx_fp8.TrainingSession(loss="cross_entropy")
    with pytest.raises(onnx_fp8.OptionError, match="`model` is missing"):
        onnx_fp8.rewrite(out="/tmp/no", recipe="delayed")
    with pytest.raises(onnx_fp8.OptionError, match="ends in .onnx or .safetensors, got x.txt"):
        digits.session().export("x.txt")
    for path, options, message in (
            ("x", {"like": "hub"}, "`like` needs `format` hf-fp8 or bf16"),
            ("x", {"format": "fp8"}, "`format`: expected hf-fp8, bf16 or onnx-fp8, got fp8"),
            ("x", {"format": "onnx-fp8"}, "`path`: expected a name that ends in .onnx for `format` onnx-fp8, got x"),
            ("x.onnx", {"format": "bf16"}, "`path`: expected the name of a folder for `format` bf16, got x.onnx"),
            ("x.onnx", {"format": "onnx-fp8", "like": "hub"}, "`like` is for `format` hf-fp8 and bf16"),
            ("x", {"format": "bf16", "external_data": True}, "`external_data` is for .onnx files")):
        with pytest.raises(onnx_fp8.OptionError, match=message):
            digits.session().export(path, **options)


class Module:
    """As PyTorch's looks."""

    def state_dict(self):
        return {}

    def named_parameters(self):
        return []


def test_things_in_the_wrong_place(tmp_path):
    feeds = digits.batch()
    names = '[batch] expected a dict of arrays by the names of inputs, {"x": …, "labels": …}, or with `grad_accum` a list of '
    for call, text in [
            (lambda: digits.session(Module()), "`model`: expected a path, bytes or a ModelProto, got the PyTorch module "
             "Module; onnx_fp8.torch.export writes its .onnx file"),
            (lambda: onnx_fp8.train(Module(), data=feeds, loss="mse", steps=1, out=tmp_path), "the PyTorch module Module"),
            (lambda: digits.session(7), "`model`: expected a path, bytes or a ModelProto, got int"),
            (lambda: digits.session().step((feeds["x"], feeds["labels"])), names + "such dicts, got a tuple of 2"),
            (lambda: digits.session().step(7), names + "such dicts, got int"),
            (lambda: digits.session().eval((feeds["x"],)), "[batch] expected a dict of arrays by their names, got tuple"),
            (lambda: digits.session().step({0: feeds["x"]}), "[batch] expected names of arrays as keys, got 0: a dict of "
             "rows"),
            (lambda: digits.session().step(feeds | {"x": [[1, 2], [3]]}), "[x] expected an array of numbers, or rows of one "
             "length, got list"),
            (lambda: digits.session().step(feeds | {"x": {"a": 1}}), "[x] expected an array of numbers, got dict"),
            (lambda: onnx_fp8.TrainingSession(digits.MODEL).step(feeds), "`loss` is missing: expected cross_entropy, nll, mse, "),
            (lambda: onnx_fp8.TrainingSession(digits.MODEL).gradients(feeds), "`loss` is missing: expected cross_entropy"),
            (lambda: onnx_fp8.train(digits.MODEL, data=feeds, steps=1, out=tmp_path), "`loss` is missing"),
    ]:
        with pytest.raises(onnx_fp8.Error) as error:
            call()
        assert text in str(error.value), error.value


FEEDS = [
    ({"labels": None}, "labels"),
    ({"y": np.zeros(32)}, "[y] expected one of the inputs x, labels, got another array"),
    ({"x": "text"}, "[x] expected an array of numbers, got <U4"),
    ({"x": np.array([None] * 32)}, "[x] expected an array of numbers, got object"),
    ({"x": np.zeros((32, 63), np.float32)}, 'of shape [?,64], got [32,63]'),
    ({"x": np.zeros((32, 64), np.complex64)}, "[x] expected an array of numbers, got complex64"),
    ({"x": OverDLPack(np.zeros((64, 32), np.float32).T)}, "[x] expected a row-major array, got other strides"),
    ({"labels": np.full(32, 0.5)}, "[labels] expected int64, got double"),
    ({"labels": np.full(32, 99)}, "99"),
    ({"x": np.zeros((0, 64), np.float32), "labels": np.zeros(0, np.int64)}, ""),
]


@pytest.mark.parametrize("feeds, text", FEEDS)
def test_feeds_leave_the_session_as_it_was(feeds, text):
    session = digits.session()
    session.step(digits.batch())
    before = session.state()
    bad = {name: array for name, array in (digits.batch(1) | feeds).items() if array is not None}
    with pytest.raises(onnx_fp8.Error) as error:
        session.step(bad)
    assert text in str(error.value)
    after = session.state()
    assert after["step"] == 1 and after["notes"] == before["notes"]
    for name, array in before["tensors"].items():
        assert array.tobytes() == after["tensors"][name].tobytes(), name
    assert session.step(digits.batch(1)).step == 2


def test_state_of_something_else():
    session = digits.session()
    other = onnx_fp8.TrainingSession(program.FIXTURES / "mlp/d18.onnx", loss="cross_entropy")
    digits.losses(session, 1)
    state = session.state()
    for bad, text in [
            (other.state(), "expected state of this model"),
            ({"step": 1}, '"step", "notes" and "tensors"'),
            (state | {"step": -1}, "expected a number of steps, got -1"),
            (state | {"notes": {}}, "expected the note session.skipped, got none"),
            (state | {"notes": state["notes"] | {"session.skipped": "x"}}, "expected a count as"),
            (state | {"notes": state["notes"] | {"session.fp8_slots": "["}}, ""),
            (state | {"tensors": {}}, "expected the checkpoint to hold"),
            (state | {"tensors": state["tensors"] | {"fc1.bias": np.zeros(3, np.float32)}}, "fc1.bias as float[128]"),
    ]:
        with pytest.raises(onnx_fp8.Error) as error:
            session.load_state(bad)
        assert text in str(error.value), bad
    assert session.steps == 1
    assert digits.losses(session, 2, first=1) == digits.losses(digits.session(), 3)[1:]
