# SPDX-License-Identifier: Apache-2.0
"""TrainingSession against the command line, and against itself."""
import json
import pickle
import threading
import time
import warnings

import digits
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import program
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file

import onnx_fp8


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        assert a[name].tobytes() == b[name].tobytes(), name


@pytest.mark.parametrize("recipe", ["off", "tensorwise", "delayed"])
def test_losses_are_those_of_the_command_line(recipe, tmp_path):
    out = tmp_path / "run"
    program.run("train", digits.MODEL, "--data", digits.TRAIN, "--loss", "cross_entropy", "--optimizer", "adamw",
                "--lr", 1e-3, "--recipe", recipe, "--batch-size", 32, "--no-shuffle", "--steps", 12, "--out", out)
    session = digits.session(recipe=recipe)
    assert digits.losses(session, 12) == list(program.losses(out).values())
    session.save(tmp_path / "ours")
    assert program.state_bytes(tmp_path / "ours") == program.state_bytes(out)


def test_the_norm_of_the_step_before_clips_the_next_step():
    plain, number, previous = (digits.losses(digits.session(optimizer="sgd", lr=0.1, clip_norm=clip), 3)
                               for clip in (0, 0.01, "0.01:previous"))
    assert previous[:2] == plain[:2] and previous[2] != plain[2]
    assert number[0] == plain[0] and number[1] != plain[1]


def test_the_largest_update_is_reported_where_moments_are_rounded():
    """Each weight's first step is the learning rate."""
    for moments, expected in (("float32", -1), ("bfloat16", 1), ("fp8", 1)):
        assert digits.session(moments=moments).step(digits.batch()).update_amax == pytest.approx(expected, abs=1e-3), moments


@pytest.mark.parametrize("master,correction", [("split8", np.int8), ("split", np.int16)])
def test_weights_are_floats_whatever_the_run_keeps(master, correction):
    session = digits.session(master=master)
    digits.losses(session, 2)
    tensors, weights = session.state()["tensors"], session.weights()
    assert weights
    for name, weight in weights.items():
        half, low = tensors[name], tensors[f"{name}.correction"]
        assert (half.dtype, low.dtype, weight.dtype) == (ml_dtypes.bfloat16, correction, np.float32)
        words = half.view(np.uint16).astype(np.int64) * 65536 + low.astype(np.int64) * (65536 >> 8 * low.itemsize)
        assert np.array_equal(words.astype(np.uint32), weight.view(np.uint32)), name
    digits.losses(session, 1)
    session.load_weights(weights)
    same(session.weights(), weights)


def test_gradients_are_those_of_pytorch():
    """The fixture holds PyTorch's."""
    reference = program.reference("nanogpt")
    feeds = {name.split(".", 1)[1]: array for name, array in reference.items()
             if name.startswith(("input.", "label."))}
    session = onnx_fp8.TrainingSession(program.FIXTURES / "nanogpt/d18.onnx", loss="cross_entropy")
    result = session.gradients(feeds)
    assert result.loss == pytest.approx(reference["loss"].item(), rel=1e-5)
    grads = {name.split(".", 1)[1]: array for name, array in reference.items() if name.startswith("grad.")}
    assert len(grads) > 10
    names = json.loads((program.FIXTURES / "nanogpt/d18.params.json").read_text())
    assert len(result.gradients) == len(grads)
    for name, expected in grads.items():
        got = result.gradients[names[name]["name"]]
        assert np.abs(got - expected).max() <= 1e-4 * max(np.abs(expected).max(), 1e-3), name


@pytest.mark.parametrize("recipe", ["tensorwise", "delayed"])
def test_a_batch_that_fp8_cannot_hold(recipe):
    session = digits.session(recipe=recipe)
    batch = digits.batch()
    assert session.eval(batch).cause == session.gradients(batch).cause == ""
    name = next(i.name for i in session.inputs if not i.is_label)
    batch[name] = batch[name].copy()
    batch[name].reshape(-1)[7] = np.inf
    skipped = session.step(batch)
    assert skipped.skipped and skipped.cause.endswith("is not finite")
    for result in session.eval(batch), session.gradients(batch):
        assert result.cause == skipped.cause and np.isnan(result.loss)


def test_outputs_are_those_of_onnxruntime():
    feeds = digits.batch()
    result = digits.session(recipe="off").eval(feeds)
    stock = onnxruntime.InferenceSession(digits.MODEL, providers=["CPUExecutionProvider"])
    [name], [expected] = [o.name for o in stock.get_outputs()], stock.run(None, {"x": feeds["x"]})
    np.testing.assert_allclose(result.outputs[name], expected, rtol=1e-5, atol=1e-5)
    # The array shares the memory of the result, and may be written to.
    assert not result.outputs[name].flags.owndata and result.outputs[name].flags.writeable


def test_a_model_may_be_bytes_or_a_proto(tmp_path):
    proto = onnx.load(digits.MODEL)
    path, data, ours = (digits.session(m) for m in (digits.MODEL, digits.MODEL.read_bytes(), proto))
    assert digits.losses(path, 3) == digits.losses(data, 3) == digits.losses(ours, 3)
    data.export(tmp_path / "trained.onnx")
    assert len(onnx.load(tmp_path / "trained.onnx").graph.node) == len(proto.graph.node)


def test_state_goes_on_bit_for_bit():
    whole = digits.session()
    expected = digits.losses(whole, 8)
    first = digits.session()
    digits.losses(first, 4)
    state = pickle.loads(pickle.dumps(first.state()))
    assert state["step"] == 4 and "fc1.weight.exp_avg" in state["tensors"] and "fp8.scale" in state["tensors"]
    second = digits.session()
    second.load_state(state)
    assert second.steps == 4 and second.scales == first.scales
    assert digits.losses(second, 4, first=4) == expected[4:]
    same(second.state()["tensors"], whole.state()["tensors"])


def test_a_copy_of_the_state_stays():
    session = digits.session()
    session.step(digits.batch())
    held, view = session.state()["tensors"], session.state(copy=False)["tensors"]
    before = held["fc1.weight"].copy()
    assert np.shares_memory(view["fc1.weight"], session.weights(copy=False)["fc1.weight"])
    session.step(digits.batch(1))
    assert (held["fc1.weight"] == before).all()
    assert (session.weights()["fc1.weight"] != before).any()


def test_weights_by_name(tmp_path):
    trained, fresh = digits.session(recipe="off"), digits.session(recipe="off")
    digits.losses(trained, 5)
    fresh.load_weights(trained.weights())
    same(fresh.weights(), trained.weights())
    assert fresh.eval(digits.batch()).loss == trained.eval(digits.batch()).loss
    fresh.load_weights({"head.bias": np.zeros(10, np.float32)})
    assert not fresh.weights()["head.bias"].any()
    trained.export(tmp_path / "weights.safetensors")
    torch_names = load_file(tmp_path / "weights.safetensors")
    assert (torch_names["head.bias"] == trained.weights()["head.bias"]).all()
    with pytest.raises(onnx_fp8.Error, match='no weight "head.bia"'):
        fresh.load_weights({"head.bias": np.ones(10, np.float32), "head.bia": np.zeros(10, np.float32)})
    with pytest.raises(onnx_fp8.Error, match=r"head.bias as float\[10\], got float\[9\]"):
        fresh.load_weights({"head.bias": np.ones(9, np.float32)})
    assert not fresh.weights()["head.bias"].any()


def test_save_and_resume(tmp_path):
    expected = digits.losses(digits.session(), 6)
    first = digits.session()
    digits.losses(first, 3)
    first.save(tmp_path)
    second = digits.session()
    second.resume(tmp_path)
    assert digits.losses(second, 3, first=3) == expected[3:]


def test_what_is_served_is_what_export_writes(tmp_path):
    """Of a session, and of its checkpoint in the folder of a run."""
    options = {"recipe": "tensorwise", "filter_fqns": ["head"]}
    run, hub = tmp_path / "run", tmp_path / "hub"
    onnx_fp8.train(digits.MODEL, data=digits.TRAIN, steps=1, batch_size=30, out=run, progress=False,
                   **(digits.OPTIONS | options))
    hub.mkdir()
    (hub / "config.json").write_text('{"model_type": "digits"}')
    session = digits.session(**options)
    session.resume(run)
    session.step(digits.batch())
    session.save(run)
    for format, like in (("hf-fp8", hub), ("bf16", None), ("onnx-fp8", None)):
        end = ".onnx" if format == "onnx-fp8" else ""
        ours, theirs = tmp_path / f"ours{format}{end}", tmp_path / f"theirs{format}{end}"
        remarks = session.export(ours, format=format, like=like)
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            onnx_fp8.export(run, theirs, format=format, like=like)
        assert remarks == [str(note.message) for note in notes], format
        assert contents(ours) == contents(theirs), format
    assert json.loads((tmp_path / "ourshf-fp8/config.json").read_text())["model_type"] == "digits"


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()} if path.is_dir() else path.read_bytes()


def test_predictions_need_no_label():
    session = digits.session(recipe="off")
    feeds = digits.batch()
    whole = session.eval(feeds)
    same(session.predict({"x": feeds["x"]}), whole.outputs)
    same(session.predict(feeds), whole.outputs)
    without = session.eval({"x": feeds["x"]})
    assert without.loss is None and whole.loss > 0
    same(without.outputs, whole.outputs)
    assert session.eval(feeds).loss == whole.loss
    assert onnx_fp8.TrainingSession(digits.MODEL).eval({"x": feeds["x"]}).loss is None
    # In FP8 with the scales that training has measured, and after a step.
    session = digits.session(recipe="delayed")
    session.step(feeds)
    same(session.predict({"x": feeds["x"]}), session.eval(feeds).outputs)
    with pytest.raises(onnx_fp8.Error, match="labels"):
        session.step({"x": feeds["x"]})


def test_micro_batches():
    options = {"recipe": "off", "optimizer": "sgd", "lr": 0.1}
    by_two = digits.session(grad_accum=2, **options)
    whole = digits.session(**options)
    parts = [digits.batch(0), digits.batch(1)]
    loss = by_two.step(parts).loss
    assert loss == pytest.approx(whole.step(digits.batch(0, 64)).loss, rel=1e-5)
    with pytest.raises(onnx_fp8.Error, match="expected a list of 2 batches, as `grad_accum` says, got one batch"):
        by_two.step(parts[0])
    for count in (0, 3):
        with pytest.raises(onnx_fp8.Error, match=f"expected 1 to 2 micro-batches a step, got {count}"):
            by_two.step((parts * 2)[:count])
    # The mean of one.
    assert by_two.step(parts[:1]).loss == pytest.approx(whole.step(parts[0]).loss, rel=1e-5)
    assert by_two.step(parts).loss == pytest.approx(whole.step(digits.batch(0, 64)).loss, rel=1e-5)


def test_lr_of_one_step():
    session = digits.session(optimizer="sgd", recipe="off", lr=0.5)
    before = session.weights()
    session.step(digits.batch(), lr=0)
    same(session.weights(), before)
    session.step(digits.batch())
    assert (session.weights()["head.bias"] != before["head.bias"]).any()


@pytest.mark.parametrize("lr", [float("nan"), float("inf"), -1e-3, 1e39])
def test_a_rate_that_is_none(lr):
    session = digits.session(recipe="off")
    before = session.state()
    with pytest.raises(onnx_fp8.OptionError, match="^`lr`: expected a number of at least 0, got "):
        session.step(digits.batch(), lr=lr)
    after = session.state()
    assert after["step"] == 0
    same(after["tensors"], before["tensors"])


class OverDLPack:
    """An array that speaks DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def variants(feeds):
    x, labels = feeds["x"], feeds["labels"]
    frozen = x.copy()
    frozen.flags.writeable = False
    packed = np.zeros(x.nbytes + 1, np.uint8)[1:]
    packed[:] = np.frombuffer(x.tobytes(), np.uint8)
    yield "read-only", {"x": frozen, "labels": labels}
    yield "strided", {"x": np.repeat(x, 2, axis=1)[:, ::2], "labels": np.repeat(labels, 2)[::2]}
    yield "column-major", {"x": np.asfortranarray(x), "labels": labels}
    yield "not aligned", {"x": packed.view(np.float32).reshape(x.shape), "labels": labels}
    yield "big-endian", {"x": x.astype(">f4"), "labels": labels.astype(">i8")}
    yield "lists", {"x": x.tolist(), "labels": labels.tolist()}
    yield "other dtypes", {"x": x.astype(np.float64), "labels": labels.astype(np.uint8)}
    yield "DLPack", {"x": OverDLPack(x), "labels": OverDLPack(labels)}


@pytest.mark.parametrize("what", [name for name, _ in variants(digits.batch())])
def test_any_array_gives_the_same_loss(what):
    feeds = digits.batch()
    given = dict(variants(feeds))[what]
    expected = digits.session().step(feeds).loss
    assert digits.session().step(given).loss == expected
    same(digits.batch(), feeds)  # feeds are only read


def test_narrow_floats():
    """bfloat16 in; float8 out, as ml_dtypes rounds it."""
    w = np.linspace(-2, 2, 64 * 4, dtype=np.float32).reshape(64, 4)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]),
         helper.make_node("Cast", ["y"], ["q"], to=TensorProto.FLOAT8E4M3FN)], "narrow",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4]),
         helper.make_tensor_value_info("q", TensorProto.FLOAT8E4M3FN, ["n", 4])],
        [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    x = digits.batch(size=8)["x"].astype(ml_dtypes.bfloat16)
    outputs = onnx_fp8.TrainingSession(model).eval({"x": x}).outputs
    y = x.astype(np.float32) @ w
    np.testing.assert_allclose(outputs["y"], y, rtol=1e-4, atol=1e-4)
    assert outputs["q"].dtype == ml_dtypes.float8_e4m3fn
    assert (outputs["q"] == outputs["y"].astype(ml_dtypes.float8_e4m3fn)).all()


def test_an_array_outlives_its_session():
    session = digits.session()
    expected = session.eval(digits.batch()).outputs
    weights, copy = session.weights(copy=False), session.weights()
    held = session.eval(digits.batch()).outputs
    del session
    same(held, expected)
    same(weights, copy)


def test_sessions_in_two_threads():
    def train(recipe, result):
        result[recipe] = digits.losses(digits.session(recipe=recipe), 20)

    expected, got = {}, {}
    for recipe in ("tensorwise", "delayed"):
        train(recipe, expected)
    threads = [threading.Thread(target=train, args=(recipe, got)) for recipe in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == expected


def test_threads_take_turns_with_a_session():
    session = digits.session(optimizer="sgd", lr=0, recipe="off")
    feeds, results = digits.batch(), []
    threads = [threading.Thread(target=lambda: results.append(session.step(feeds))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(r.step for r in results) == list(range(1, 9)) and len({r.loss for r in results}) == 1


def test_other_threads_run_during_a_step():
    """The longest batch that fits in a moment; without the lock of Python, the other thread counts on."""
    session = digits.session(recipe="off")
    feeds = {name: np.concatenate([array] * 40) for name, array in digits.arrays().items()}
    session.step(feeds)
    running, count, done = threading.Event(), [0], threading.Event()

    def watch():
        while not done.is_set():
            count[0] += running.is_set()
            time.sleep(1e-4)

    thread = threading.Thread(target=watch)
    thread.start()
    running.set()
    for _ in range(5):
        session.step(feeds)
    running.clear()
    done.set()
    thread.join()
    assert count[0] > 20


@pytest.mark.parametrize("fact", ["steps", "skipped_steps", "parameters", "scales", "notes"])
def test_who_asks_during_a_step_leaves_the_lock(fact):
    """A thread steps, a second one waits to ask, and this one goes on."""
    session = digits.session(recipe="off")
    feeds = {name: np.concatenate([array] * 40) for name, array in digits.arrays().items()}
    session.step(feeds)
    begun, asking, answered, count = threading.Event(), threading.Event(), threading.Event(), 0

    def step():
        begun.set()
        session.step(feeds)

    def ask():
        begun.wait()
        time.sleep(0.02)  # within the step
        asking.set()
        getattr(session, fact)
        answered.set()

    threads = [threading.Thread(target=step), threading.Thread(target=ask)]
    for thread in threads:
        thread.start()
    asking.wait()
    while not answered.is_set():
        count += 1
        time.sleep(1e-4)
    for thread in threads:
        thread.join()
    assert count > 10


def test_begins_with_weights_under_other_names(tmp_path):
    trained = digits.session()
    digits.losses(trained, 2)
    trained.export(tmp_path / "w.safetensors")
    save_file({f"net.{name}": array for name, array in load_file(tmp_path / "w.safetensors").items()},
              tmp_path / "model.safetensors")
    session = digits.session(weights=tmp_path, rename=["net.*=*"])
    same(session.weights(), trained.weights())
    with pytest.raises(onnx_fp8.MissingFileError, match="nowhere"):
        digits.session(weights=tmp_path / "nowhere")
    with pytest.raises(onnx_fp8.OptionError, match="`rename` needs `weights`"):
        digits.session(rename=["net.*=*"])


def test_what_a_session_tells():
    session = digits.session()
    assert [(i.name, i.dtype, i.is_label) for i in session.inputs] == [("x", "float", False),
                                                                       ("labels", "int64", True)]
    assert session.inputs[0].shape == (-1, 64) and session.inputs[0].axis_names == ("batch", "")
    names = {i.name: i for i in onnx.load(digits.MODEL).graph.initializer}
    for parameter in session.parameters:
        assert parameter.shape == tuple(names[parameter.name].dims)
    assert session.scales == {} and session.steps == 0 and session.skipped_steps == 0
    session.step(digits.batch())
    key = "fc1.weight/forward/input/float8e4m3fn#0"
    amax = np.abs(digits.batch()["x"]).max()
    assert session.scales[key] == pytest.approx(amax / 448, rel=1e-6)
