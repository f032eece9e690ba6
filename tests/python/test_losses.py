# SPDX-License-Identifier: Apache-2.0
"""Losses of the command line against PyTorch's (tests/fixtures/losses): gradients, evaluation, written steps."""
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import FIXTURES, metrics, run

CASES = json.loads((FIXTURES / "losses" / "cases.json").read_text())


def model(shape, path, batch="n", outputs=("y",)):
    """y = x + b with b of zeros: the gradient of x equals the gradient by y."""
    value = helper.make_tensor_value_info
    zeros = numpy_helper.from_array(np.zeros(shape[1:] or (1,), np.float32), "b")
    axes = [batch, *shape[1:]]
    nodes = [helper.make_node("Add", ["x", "b"], [name]) for name in outputs]
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, axes)],
                              [value(name, TensorProto.FLOAT, axes) for name in outputs], [zeros])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def arrays(case):
    labels = np.array(case["labels"])
    return {"x": np.array(case["y"], np.float32),
            "labels": labels.astype(np.float32) if labels.dtype.kind == "f" else labels}


def flags(options):
    words = []
    for name, value in options.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        words.append(f"--{name.replace('_', '-')}={text}")
    return words


def write(case, folder, **changes):
    feeds = arrays(case)
    model(feeds["x"].shape, folder / "m.onnx", **changes)
    np.savez(folder / "d.npz", **feeds)
    return feeds


def numbered(cases):
    return [pytest.param(case, id=f"{i}-{case['loss']}") for i, case in cases]


@pytest.mark.parametrize("case", numbered(enumerate(CASES)))
def test_loss_and_gradient(case, tmp_path):
    write(case, tmp_path)
    run("grad", "m.onnx", "--data", "d.npz", "--loss", case["loss"], *flags(case["options"]), "--batch-size", "4",
        "--input-grads", "-o", "g.npz", cwd=tmp_path)
    result = np.load(tmp_path / "g.npz")
    wanted = np.array(case["gradient"], np.float32)
    np.testing.assert_allclose(result["loss"], case["value"], rtol=3e-6, atol=3e-6)
    np.testing.assert_allclose(result["input_grad.x"], wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("case", numbered(list(enumerate(CASES))[::7]))
def test_evaluation_is_the_mean_over_all_batches(case, tmp_path):
    """One sample a batch; the last batch of three is filled up."""
    feeds = write(case, tmp_path, batch="n")
    samples = feeds["x"].shape[0]
    if feeds["labels"].shape[0] != samples:
        pytest.skip("labels without a sample axis")
    command = ["eval", "m.onnx", "--data", "d.npz", "--loss", case["loss"], *flags(case["options"]), "--json"]
    for size in (1, samples):
        result = json.loads(run(*command, "--batch-size", size, cwd=tmp_path).stdout)
        np.testing.assert_allclose(result["loss"], case["value"], rtol=3e-6, atol=3e-6)
    model(feeds["x"].shape, tmp_path / "m.onnx", batch=samples + 1)
    result = json.loads(run(*command, cwd=tmp_path).stdout)
    np.testing.assert_allclose(result["loss"], case["value"], rtol=3e-6, atol=3e-6)


def like_labels(case, step):
    """The labels in the shape that the step in the file has."""
    shape = [d.dim_value for i in step.graph.input if i.name == "labels" for d in i.type.tensor_type.shape.dim]
    return arrays(case)["labels"].reshape(shape)


@pytest.mark.parametrize("case", numbered((i, c) for i, c in list(enumerate(CASES))[::5]
                                          if np.array(c["labels"]).dtype.kind == "i" or c["loss"] != "cross_entropy"))
def test_written_steps_in_stock_onnxruntime(case, tmp_path):
    feeds = write(case, tmp_path)
    options = dict(case["options"])
    if feeds["labels"].dtype.kind == "i" and feeds["x"].ndim > 2:
        # No data show where the classes lie.
        lacks = feeds["x"].shape[1:-1] == feeds["labels"].shape[1:]
        options.setdefault("class_axis", -1 if lacks else 1)
    run("rewrite", "m.onnx", "--loss", case["loss"], *flags(options), "--shape", f"n={feeds['x'].shape[0]}", "-o",
        "step.onnx", "--optimizer", "sgd", "--lr", "1", cwd=tmp_path)
    step = onnx.load(tmp_path / "step.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(step.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = dict(zip([o.name for o in session.get_outputs()],
                       session.run(None, {"x": feeds["x"], "labels": like_labels(case, step)})))
    np.testing.assert_allclose(results["loss"], case["value"], rtol=1e-5, atol=1e-5)
    gradient = np.array(case["gradient"], np.float32)
    moved = -gradient.sum(0) if gradient.ndim > 1 else -gradient.sum(keepdims=True)
    np.testing.assert_allclose(results["b.next"], moved, rtol=1e-4, atol=1e-5)


# ---- labels that do not count

def train(folder, *more, **changes):
    words = {"--loss": "cross_entropy", "--steps": 3, "--batch-size": 2, "--out": "run", **changes}
    return run("train", "m.onnx", "--data", "d.npz", "--no-shuffle", *[str(w) for pair in words.items() for w in pair],
               *more, cwd=folder)


@pytest.mark.parametrize("more", [[], ["--class-weights", "1,2,3"], ["--dtype", "float16"], ["--recipe", "delayed"]],
                         ids=lambda more: "-".join(more) or "plain")
def test_batch_without_a_label_that_counts_is_skipped(more, tmp_path):
    model((6, 3), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32),
             labels=np.array([0, 1, -100, -100, 2, 0]))
    done = train(tmp_path, *more)
    assert "step 2 is skipped, nothing changed: no label of this batch counts" in done.stderr
    lines = metrics(tmp_path / "run")
    assert [line.get("skipped", False) for line in lines] == [False, True, False]
    assert lines[1]["loss"] is None
    if more == ["--dtype", "float16"]:
        assert len({line["loss_scale"] for line in lines}) == 1


def test_micro_batches_without_labels(tmp_path):
    model((8, 3), tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, labels=np.array([0, 1, -100, -100, -100, -100, -100, -100]))
    done = train(tmp_path, **{"--steps": 2, "--grad-accum": 2})
    assert "step 2 is skipped, nothing changed: no label of this batch counts" in done.stderr
    first, second = metrics(tmp_path / "run")
    rows = x[:2] - np.log(np.exp(x[:2]).sum(1, keepdims=True))
    np.testing.assert_allclose(first["loss"], -(rows[0, 0] + rows[1, 1]) / 2, rtol=1e-6)
    assert second["skipped"] and second["loss"] is None


def test_gradients_and_evaluation_say_that_no_label_counts(tmp_path):
    model((2, 3), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 3), np.float32), labels=np.array([-100, -100]))
    done = run("grad", "m.onnx", "--data", "d.npz", "--loss", "cross_entropy", "-o", "g.npz", cwd=tmp_path)
    assert "no label of this batch counts" in done.stderr
    assert np.isnan(np.load(tmp_path / "g.npz")["loss"])
    done = run("eval", "m.onnx", "--data", "d.npz", "--loss", "cross_entropy", cwd=tmp_path)
    assert "no label of the data counts" in done.stderr


# ---- the class axis

def test_accuracy_of_pixels(tmp_path):
    """Classes along axis 1 have an accuracy, tokens a perplexity."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(4, 3, 2, 5)).astype(np.float32)
    labels = rng.integers(0, 3, (4, 2, 5))
    labels[0, 0] = 255
    model(y.shape, tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=y, labels=labels)
    flags = ["--data", "d.npz", "--loss", "cross_entropy", "--ignore-index", "255", "--json"]
    result = json.loads(run("eval", "m.onnx", *flags, cwd=tmp_path).stdout)
    counts = labels != 255
    assert result["accuracy"] == pytest.approx((y.argmax(1) == labels)[counts].mean())
    assert "perplexity" not in result


def test_later_batches_keep_the_axis(tmp_path):
    """The second batch has as many tokens as there are classes."""
    import pathlib
    rng = np.random.default_rng(0)
    value = helper.make_tensor_value_info
    zeros = numpy_helper.from_array(np.zeros(4, np.float32), "b")
    axes = ["n", "t", 4]
    graph = helper.make_graph([helper.make_node("Add", ["x", "b"], ["y"])], "g", [value("x", TensorProto.FLOAT, axes)],
                              [value("y", TensorProto.FLOAT, axes)], [zeros])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
              pathlib.Path(tmp_path) / "m.onnx")
    for name, tokens in (("wide", 5), ("square", 4)):
        np.savez(tmp_path / f"{name}.npz", x=rng.normal(size=(2, tokens, 4)).astype(np.float32),
                 labels=rng.integers(0, 4, (2, tokens)))
    command = ["train", "m.onnx", "--loss", "cross_entropy", "--steps", "1", "--batch-size", "2", "--data"]
    run(*command, "wide.npz", "--val-data", "square.npz", "--out", "run", cwd=tmp_path)
    done = run(*command, "square.npz", "--out", "other", cwd=tmp_path, code=1)
    assert "fit two" in done.stderr and "--class-axis 1" in done.stderr
    run(*command, "square.npz", "--out", "third", "--class-axis", "-1", cwd=tmp_path)


def test_weights_from_a_file_stay_with_the_run(tmp_path):
    model((4, 3), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 3), np.float32), labels=np.array([0, 1, 2, 0]))
    np.save(tmp_path / "w.npy", np.array([1, 0.1, 3]))
    train(tmp_path, "--class-weights", "w.npy", **{"--steps": 1})
    (tmp_path / "w.npy").unlink()
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["flags"]["--class-weights"]
    assert saved == ["1", "0.1", "3"]
    run("eval", "run", "--data", "d.npz", cwd=tmp_path)
    run("train", "--resume", "--out", "run", "--steps", "2", cwd=tmp_path)


def test_a_step_keeps_its_loss(tmp_path):
    """Evaluation of a step in a file knows the options of its loss: the last batch is filled up."""
    case = next(c for c in CASES if c["options"].get("ignore_index") == 2 and len(c["labels"]) == 4)
    feeds = write(case, tmp_path)
    options = flags(case["options"])
    run("rewrite", "m.onnx", "--loss", case["loss"], *options, "--shape", "n=5", "-o", "step.onnx", cwd=tmp_path)
    assert feeds["x"].shape[0] == 4
    result = json.loads(run("eval", "step.onnx", "--data", "d.npz", "--json", cwd=tmp_path).stdout)
    np.testing.assert_allclose(result["loss"], case["value"], rtol=3e-6)
    done = run("train", "step.onnx", "--data", "d.npz", "--steps", "1", "--ignore-index", "7", "--loss", case["loss"],
               "--out", "run", cwd=tmp_path, code=2)
    assert "--ignore-index` is 2" in done.stderr or "--ignore-index is 2" in done.stderr


# ---- a loss in a file

def own_loss(path, opset=18):
    """Weighted squares and a part that reads the model's input: (w (y - target)²).mean() + 0.1 mean(x)."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Sub", ["y", "target"], ["miss"]), helper.make_node("Mul", ["miss", "miss"], ["square"]),
             helper.make_node("Mul", ["square", "w"], ["weighted"]),
             helper.make_node("ReduceMean", ["weighted"], ["mean"], keepdims=0),
             helper.make_node("ReduceMean", ["x"], ["level"], keepdims=0), helper.make_node("Mul", ["level", "c"], ["part"]),
             helper.make_node("Add", ["mean", "part"], ["total"])]
    graph = helper.make_graph(
        nodes, "own", [value("y", TensorProto.FLOAT, ["k", 3]), value("target", TensorProto.FLOAT, ["k", 3]),
                       value("w", TensorProto.FLOAT, ["k", 1]), value("x", TensorProto.FLOAT, ["k", 3])],
        [value("total", TensorProto.FLOAT, [])], [numpy_helper.from_array(np.array(0.1, np.float32), "c")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)


def own_case(folder, samples=4):
    rng = np.random.default_rng(0)
    model((samples, 3), folder / "m.onnx")
    own_loss(folder / "own.onnx")
    feeds = {"x": rng.normal(size=(samples, 3)), "target": rng.normal(size=(samples, 3)), "w": rng.random((samples, 1))}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    np.savez(folder / "d.npz", **feeds)
    miss = feeds["x"] - feeds["target"]
    value = (feeds["w"] * miss**2).mean() + 0.1 * feeds["x"].mean()
    return feeds, value, 2 * feeds["w"] * miss / miss.size


def test_own_loss(tmp_path):
    feeds, value, slope = own_case(tmp_path)
    done = run("grad", "m.onnx", "--data", "d.npz", "--loss", "own.onnx", "--input-grads", "-o", "g.npz", cwd=tmp_path)
    assert "the loss of own.onnx reads y of the model and the labels target, w" in done.stderr
    result = np.load(tmp_path / "g.npz")
    np.testing.assert_allclose(result["loss"], value, rtol=1e-6)
    np.testing.assert_allclose(result["grad.b"], slope.sum(0), rtol=1e-5)
    np.testing.assert_allclose(result["input_grad.x"], slope + 0.1 / slope.size, rtol=1e-5)


def test_own_loss_of_a_run(tmp_path):
    """The run keeps the file; its model has no loss."""
    feeds, value, _ = own_case(tmp_path)
    run("train", "m.onnx", "--data", "d.npz", "--loss", "own.onnx", "--steps", 1, "--batch-size", 4, "--lr", 0, "--out",
        "run", cwd=tmp_path)
    np.testing.assert_allclose(metrics(tmp_path / "run")[0]["loss"], value, rtol=1e-6)
    for name in ("own.onnx", "m.onnx"):
        (tmp_path / name).unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    run("train", "--resume", "--out", "moved", "--steps", 2, cwd=tmp_path)
    result = json.loads(run("eval", "moved", "--data", "d.npz", "--json", cwd=tmp_path).stdout)
    np.testing.assert_allclose(result["loss"], value, rtol=1e-6)
    run("export", "moved", "-o", "out.onnx", cwd=tmp_path)
    exported = onnx.load(tmp_path / "out.onnx").graph
    assert [i.name for i in exported.input] == ["x"] and [o.name for o in exported.output] == ["y"]
    loss = tmp_path / "moved" / "loss" / "own.onnx"
    loss.write_bytes(loss.read_bytes() + b"\0")
    done = run("eval", "moved", "--data", "d.npz", cwd=tmp_path, code=1)
    assert "loss/own.onnx] is not the file that the run was started with" in done.stderr


def test_own_loss_in_a_written_step(tmp_path):
    feeds, value, slope = own_case(tmp_path)
    run("rewrite", "m.onnx", "--loss", "own.onnx", "--shape", "n=4", "--shape", "k=4", "-o", "step.onnx", "--optimizer", "sgd", "--lr", 1,
        cwd=tmp_path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(tmp_path / "step.onnx"), options, providers=["CPUExecutionProvider"])
    results = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
    np.testing.assert_allclose(results["loss"], value, rtol=1e-6)
    np.testing.assert_allclose(results["b.next"], -slope.sum(0), rtol=1e-5)
    (tmp_path / "own.onnx").unlink()
    run("train", "step.onnx", "--data", "d.npz", "--steps", 1, "--out", "run", cwd=tmp_path)
    np.testing.assert_allclose(metrics(tmp_path / "run")[0]["loss"], value, rtol=1e-6)


def test_inspect_with_an_own_loss(tmp_path):
    own_case(tmp_path)
    run("inspect", "m.onnx", "--loss", "own.onnx", "--shape", "n=4", "--shape", "k=4", cwd=tmp_path)
