# SPDX-License-Identifier: Apache-2.0
"""`explain` names the node, the input or the state with which a NaN or Inf of a training step begins. Each model has one
place that fails, by a sample or by weights that the test plants."""
import hashlib
import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import FIXTURES, metrics, run, state_bytes

SAMPLES, BATCH, FEATURES, HIDDEN, CLASSES = 24, 4, 5, 6, 3
BAD = 17  # the sample that is planted
COMMON = ["--loss", "cross_entropy", "--batch-size", BATCH, "--threads", 1]


def save(path, nodes, **more):
    """x → `nodes` → y, with the weights w1 and w2."""
    rng = np.random.default_rng(0)
    weights = {"fc1.weight": rng.normal(size=(FEATURES, HIDDEN)), "fc2.weight": rng.normal(size=(HIDDEN, CLASSES)), **more}
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, ins, [out], name) for op, ins, out, name in nodes], "small",
        [value("x", TensorProto.FLOAT, ["batch", FEATURES])], [value("y", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def logarithm(path):
    """log |x w1| w2: a sample of zeros makes -Inf at the node /act/Log."""
    return save(path, [("MatMul", ["x", "fc1.weight"], "h", "/fc1/MatMul"), ("Abs", ["h"], "a", "/act/Abs"),
                       ("Log", ["a"], "l", "/act/Log"), ("MatMul", ["l", "fc2.weight"], "y", "/fc2/MatMul")])


def quotient(path):
    """Of the second layer, x w1 by the sum of |x|: a sample of zeros makes 0/0."""
    return save(path, [("Abs", ["x"], "m", "/norm/Abs"), ("MatMul", ["m", "ones"], "s", "/norm/Sum"),
                       ("MatMul", ["x", "fc1.weight"], "h", "/fc1/MatMul"), ("Div", ["h", "s"], "q", "/norm/Div"),
                       ("MatMul", ["q", "fc2.weight"], "y", "/fc2/MatMul")], ones=np.ones((FEATURES, HIDDEN)))


def plain(path, op="Tanh", **weights):
    return save(path, [("MatMul", ["x", "fc1.weight"], "h", "/fc1/MatMul"), (op, ["h"], "t", f"/act/{op}"),
                       ("MatMul", ["t", "fc2.weight"], "y", "/fc2/MatMul")], **weights)


def samples(path, planted=None, at=BAD):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
    if planted is not None:
        x[at] = planted
    np.savez(path, x=x, labels=np.arange(SAMPLES) % CLASSES)
    return path


def train(folder, model, data, *flags, code=0, steps=6, optimizer="sgd", lr=0.01):
    return run("train", model, "--data", data, *COMMON, "--optimizer", optimizer, "--lr", lr, "--steps", steps,
               "--out", folder, *flags, code=code)


def explain(folder, *flags, code=0):
    return json.loads(run("explain", folder, "--json", "--threads", 1, *flags, code=code).stdout)


def evidence(folder):
    return json.loads((folder / "evidence.json").read_text())["events"]


def digest(folder):
    """The names and bytes of all files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# ---- the place

@pytest.mark.parametrize("flags", [[], ["--grad-accum", 2], ["--save-every", 2], ["--recipe", "off", "--dtype", "bfloat16"]])
def test_a_node_of_a_shuffled_run(tmp_path, flags):
    out = tmp_path / "run"
    done = train(out, logarithm(tmp_path / "m.onnx"), samples(tmp_path / "d.npz", 0.0), "--seed", 7, *flags)
    (event,) = evidence(out)
    assert event["kind"] == "not_finite" and event["cause"] == "the loss is not finite"
    assert f"step {event['step']}: the loss is not finite; `onnx-fp8 explain` of the run's folder does the step again" \
        in done.stderr
    assert sum(batch.count(BAD) for batch in event["samples"]) == 1
    before = digest(out)
    report = explain(out)
    assert digest(out) == before
    assert report["found"] == "node" and report["same"] and report["step"] == event["step"] and report["skipped"]
    finding = report["finding"]
    assert (finding["op"], finding["node"], finding["layer"]) == ("Log", "Log /act/Log", "act")
    assert finding["is"] == "inf" and finding["result"]["infinite"] == HIDDEN and finding["result"]["nan"] == 0
    assert finding["sample"] == BAD
    assert event["samples"][finding["batch"]][finding["sample_of_batch"]] == BAD
    assert finding["index"] == [finding["sample_of_batch"], 0]
    (operand,) = finding["operands"]
    assert operand["min"] == 0 and operand["amax"] == operand["max"] > 0 and operand["infinite"] == 0
    if "--save-every" in flags:
        first = (event["step"] - 1) // 2 * 2
        assert report["first_step"] == first + 1
        assert event["checkpoint"] == (f"step_{first:08d}" if first else "")
    text = run("explain", out).stdout
    assert "The first node that makes Inf of finite operands:" in text and "Log /act/Log" in text
    assert f", {BAD} of the data" in text and "with the numbers of the run" in text


def test_a_quotient_makes_nan(tmp_path):
    out = tmp_path / "run"
    train(out, quotient(tmp_path / "m.onnx"), samples(tmp_path / "d.npz", 0.0), "--no-shuffle")
    report = explain(out)
    finding = report["finding"]
    assert report["step"] == BAD // BATCH + 1 and report["samples"] == [list(range(16, 20))]
    assert (finding["node"], finding["is"], finding["sample"]) == ("Div /norm/Div", "nan", BAD)
    assert [operand["amax"] > 0 for operand in finding["operands"]] == [True, True]


@pytest.mark.parametrize("planted", [np.inf, np.nan])
@pytest.mark.parametrize("recipe", ["off", "tensorwise"])
def test_a_sample_that_is_not_finite(tmp_path, planted, recipe):
    out = tmp_path / "run"
    train(out, plain(tmp_path / "m.onnx"), samples(tmp_path / "d.npz", planted), "--recipe", recipe)
    report = explain(out)
    finding = report["finding"]
    assert report["found"] == "input" and finding["result"]["name"] == "x"
    assert finding["sample"] == BAD and finding["index"][1] == 0
    assert "The batch is not finite before any node runs:" in run("explain", out).stdout


# In float16 the first layer has 65536 and more.
def test_a_product_that_overflows_in_float16(tmp_path):
    out = tmp_path / "run"
    data = samples(tmp_path / "d.npz", 6e4)
    train(out, plain(tmp_path / "m.onnx", "Abs"), data, "--dtype", "float16", "--no-shuffle")
    report = explain(out)
    finding = report["finding"]
    assert report["found"] == "node" and report["step"] == BAD // BATCH + 1
    assert finding["layer"] == "fc1.weight" and finding["sample"] == BAD and finding["is"] == "inf"


# The first update overflows, so the second step begins with weights that are not finite: no checkpoint has them.
def test_weights_that_overflow(tmp_path):
    out = tmp_path / "run"
    model, data = plain(tmp_path / "m.onnx", "Abs"), samples(tmp_path / "d.npz", 1e4, at=0)
    done = train(out, model, data, "--no-shuffle", "--save-every", 1, code=1, lr=3e38)
    assert "] expected finite numbers in a checkpoint, got " in done.stderr
    assert not (out / "latest").exists()
    report = explain(out)
    finding = report["finding"]
    assert report["step"] == 2 and report["checkpoint"] == "" and report["found"] == "node"
    assert finding["step"] == 1 and finding["role"] == "optimizer" and finding["layer"] in ("fc1.weight", "fc2.weight")
    assert all(operand.get("infinite", 0) + operand.get("nan", 0) == 0 for operand in finding["operands"])
    assert "Step 1 makes state that is not finite. The first node that makes " in run("explain", out).stdout


# Weights of the model itself.
def test_a_model_that_is_not_finite(tmp_path):
    out, weight = tmp_path / "run", np.ones((HIDDEN, CLASSES))
    weight[2, 1] = np.inf
    model = plain(tmp_path / "m.onnx", "Abs", **{"fc2.weight": weight})
    train(out, model, samples(tmp_path / "d.npz"), steps=2, code=1)
    report = explain(out)
    assert report["found"] == "state" and report["step"] == report["finding"]["step"] == 1
    assert report["finding"]["result"]["name"] == "fc2.weight" and report["finding"]["index"] == [2, 1]


# ---- no fault

def test_a_mask_of_minus_infinity_is_none(tmp_path):
    """-Inf of a constant that a Softmax makes 0; and, of a row that is masked whole, NaN."""
    nodes = [("MatMul", ["x", "fc1.weight"], "h", "/fc1/MatMul"), ("Add", ["h", "mask"], "m", "/mask/Add"),
             ("Softmax", ["m"], "p", "/mask/Softmax"), ("MatMul", ["p", "fc2.weight"], "y", "/fc2/MatMul")]
    mask = np.zeros(HIDDEN)
    mask[2:] = -np.inf
    flags = ["--freeze", "mask", "--no-shuffle"]
    data = samples(tmp_path / "d.npz")
    train(tmp_path / "some", save(tmp_path / "some.onnx", nodes, mask=mask), data, *flags)
    assert not (tmp_path / "some/evidence.json").exists()
    assert explain(tmp_path / "some", "--step", 2)["found"] == "nothing"
    mask[:] = -np.inf
    train(tmp_path / "all", save(tmp_path / "all.onnx", nodes, mask=mask), data, *flags)
    report = explain(tmp_path / "all")
    assert report["finding"]["node"] == "Softmax /mask/Softmax" and report["finding"]["is"] == "nan"


def test_a_run_without_fault(tmp_path):
    out = tmp_path / "run"
    train(out, plain(tmp_path / "m.onnx"), samples(tmp_path / "d.npz"), "--save-every", 2, "--keep-last", 3, "--recipe",
          "tensorwise")
    assert not (out / "evidence.json").exists()
    done = run("explain", out, code=1)
    assert f"[{out}] holds no evidence: no step was not finite" in done.stderr
    report = explain(out, "--step", 4)
    assert report["found"] == "nothing" and report["same"] and report["first_step"] == 3 and len(report["largest"]) == 5
    assert report["loss"] == metrics(out)[3]["loss"] and "finding" not in report
    amaxes = [result["amax"] for result in report["largest"]]
    assert amaxes == sorted(amaxes, reverse=True) and amaxes[0] < 100  # no codes of FP8, which reach 448


def test_a_loss_scale_that_is_too_large(tmp_path):
    out = tmp_path / "run"
    flags = ["--dtype", "float16", "--loss-scale", 2.0 ** 24]
    train(out, plain(tmp_path / "m.onnx"), samples(tmp_path / "d.npz"), *flags, steps=30)
    first = metrics(out)[0]
    assert first["skipped"] and not metrics(out)[-1].get("skipped")
    assert not (out / "evidence.json").exists()
    assert "but for the loss scale of float16" in run("explain", out, code=1).stderr
    report = explain(out, "--step", 1)
    assert report["found"] == "loss_scale" and report["loss_scale"] == 2.0 ** 24 and "finding" not in report
    assert "that is no fault" in run("explain", out, "--step", 1).stdout
    # A finite loss whose backward is NaN at any scale is a fault as soon as the scale is 1.
    train(tmp_path / "one", logarithm(tmp_path / "l.onnx"), samples(tmp_path / "z.npz", 0.0), "--dtype",
          "float16")
    assert explain(tmp_path / "one")["finding"]["node"] == "Log /act/Log"


# ---- the run

def test_no_result_changes(tmp_path):
    model, data = plain(tmp_path / "m.onnx"), samples(tmp_path / "d.npz", np.inf)
    how = {"steps": 12, "optimizer": "adamw"}
    train(tmp_path / "off", model, data, "--recipe", "delayed", **how)
    train(tmp_path / "on", model, data, "--recipe", "delayed", "--watch", "spike=2", "--on-nonfinite", "skip", **how)
    assert state_bytes(tmp_path / "off") == state_bytes(tmp_path / "on")
    report = explain(tmp_path / "on")
    assert report["same"] and report["checkpoint"] == ""


def test_the_checkpoint_stays(tmp_path):
    out = tmp_path / "run"
    model, data = logarithm(tmp_path / "m.onnx"), samples(tmp_path / "d.npz", 0.0)
    flags = ["--no-shuffle", "--save-every", 2, "--keep-last", 1]
    train(out, model, data, *flags, steps=12)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step_00000004", "step_00000012"]
    (event,) = evidence(out)  # the same sample comes again in step 11
    assert (event["step"], event["checkpoint"]) == (5, "step_00000004")
    assert explain(out)["first_step"] == 5
    run("train", "--resume", "--out", out, "--steps", 16)
    assert evidence(out) == [event]
    assert explain(out)["finding"]["node"] == "Log /act/Log"
    # A run that does the step again finds it again.
    (out / "latest").write_text("step_00000004\n")
    run("train", "--resume", "--out", out, "--steps", 16)
    assert evidence(out) == [event]


@pytest.mark.parametrize("choice", ["stop", "explain"])
def test_a_run_that_ends(tmp_path, choice):
    out = tmp_path / "run"
    model, data = logarithm(tmp_path / "m.onnx"), samples(tmp_path / "d.npz", 0.0)
    done = train(out, model, data, "--no-shuffle", "--on-nonfinite", choice, code=1)
    assert "the run ends after step 5: the loss is not finite (--on-nonfinite)" in done.stderr
    assert ("Log /act/Log" in done.stdout) == (choice == "explain")
    assert len(metrics(out)) == 5 and (out / "latest").read_text() == "step_00000005\n"
    done = train(tmp_path / "json", model, data, "--no-shuffle", "--on-nonfinite", choice, "--json", code=1)
    told = json.loads(done.stdout).get("explanation")
    assert (told is not None) == (choice == "explain") and (not told or told["finding"]["node"] == "Log /act/Log")
    done = run("train", "--resume", "--out", out, "--on-nonfinite", "skip")
    assert len(metrics(out)) == 6


def test_a_spike(tmp_path):
    out = tmp_path / "run"
    model, data = plain(tmp_path / "m.onnx", "Abs"), samples(tmp_path / "d.npz", 100.0, at=SAMPLES - 1)
    arrays = dict(np.load(data))
    arrays["labels"][-1] = 1
    np.savez(data, **arrays)
    done = train(out, model, data, "--no-shuffle", "--watch", "spike=5", steps=18, lr=1e-5)
    (event,) = evidence(out)
    losses = [line["loss"] for line in metrics(out)]
    middle = np.sort(losses[max(0, event["step"] - 33):event["step"] - 1])
    assert event["kind"] == "spike" and event["step"] == 12  # the first 8 are not judged
    assert losses[event["step"] - 1] > 5 * middle[(len(middle) - 1) // 2]
    assert "times the median of the losses before it" in done.stderr
    report = explain(out)
    assert report["kind"] == "spike" and report["found"] == "nothing" and report["same"]
    assert report["loss"] == losses[event["step"] - 1] and report["largest"][0]["amax"] > 0


# ---- bad input

@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    train(folder / "run", logarithm(folder / "m.onnx"), samples(folder / "d.npz", 0.0), "--no-shuffle", "--save-every", 2)
    return folder


@pytest.fixture
def copied(trained, tmp_path):
    """The run in another place; its data stay where they were."""
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path / "run"


def change(folder, **values):
    path = folder / "evidence.json"
    text = json.loads(path.read_text())
    for key, value in values.items():
        (text if key == "format" else text["events"][0])[key] = value
    path.write_text(json.dumps(text))


def refused(folder, *flags):
    return run("explain", folder, *flags, code=1).stderr


def test_evidence_that_does_not_fit(copied):
    assert explain(copied)["finding"]["sample"] == BAD
    change(copied, ranks=2)
    assert "step 5 ran on 2 ranks: expected a run of one process" in refused(copied)
    change(copied, ranks=1, seed=3)
    assert "expected --seed 3, with which step 5 ran, got 0" in refused(copied)
    change(copied, seed=0, samples=[[1, 2, 3, 4]])
    assert "the batches of step 5 have other samples than in the run" in refused(copied)
    change(copied, samples=[[16, 17, 18, 19]], program="onnx-fp8 0.0.1")
    assert "the run was trained by onnx-fp8 0.0.1" in run("explain", copied).stderr
    change(copied, checkpoint="../..")
    assert "expected evidence of a run, got a damaged one" in refused(copied)
    change(copied, checkpoint="step_00000099")
    assert "checkpoints/step_00000099] is gone: expected the checkpoint from which the step is done again" in refused(copied)
    change(copied, format=2)
    assert "expected evidence of a run of format 1, got 2: another version of onnx-fp8 wrote it" in refused(copied)
    (copied / "evidence.json").write_text("[" * 100000)
    assert "evidence.json] expected evidence of a run" in refused(copied)
    (copied / "evidence.json").unlink()
    assert "holds no evidence" in refused(copied)
    assert "--step: expected at most 6, the steps of the run, got 7" in refused(copied, "--step", 7)


def test_a_run_that_has_changed(tmp_path):
    out, data = tmp_path / "run", tmp_path / "d.npz"
    train(out, logarithm(tmp_path / "m.onnx"), samples(data, 0.0), "--no-shuffle")
    samples(data, 0.0, at=3)
    assert f"[{out}] expected the data of the run, got files of another size or content: {data}" in refused(out)
    data.unlink()
    assert str(data) in refused(out)
    assert "expected the folder of a run" in refused(FIXTURES) or "is no folder of a training run" in refused(FIXTURES)


@pytest.mark.parametrize("flags, words", [
    (["--watch", "spike"], "--watch: expected spike=X with a number above 1, got spike"),
    (["--watch", "spike=1"], "--watch: expected spike=X with a number above 1, got spike=1"),
    (["--watch", "spike=inf"], "--watch: expected spike=X with a number above 1, got spike=inf"),
    (["--on-nonfinite", "halt"], "--on-nonfinite"),
])
def test_options(tmp_path, flags, words):
    done = train(tmp_path / "run", plain(tmp_path / "m.onnx"), samples(tmp_path / "d.npz"), *flags, code=2)
    assert words in done.stderr and not (tmp_path / "run").exists()
