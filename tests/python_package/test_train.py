# SPDX-License-Identifier: Apache-2.0
"""onnx_fp8.train, and the other commands as functions."""
import json
import os
import signal

import digits
import numpy as np
import onnx
import program
import pytest
from safetensors.numpy import load_file

import onnx_fp8

RUN = {"loss": "cross_entropy", "recipe": "delayed", "optimizer": "adamw", "lr": 1e-3, "batch_size": 32,
       "schedule": "cosine:warmup=5,min=0.1", "save_every": 10, "val_every": 8}


def command_line(out, steps):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in RUN.items()]
    program.run("train", digits.MODEL, "--data", digits.TRAIN, "--val-data", digits.VAL, *flags, "--steps", steps,
                "--out", out)


def train(out, steps, **options):
    return onnx_fp8.train(digits.MODEL, data=digits.TRAIN, val_data=digits.VAL, out=out, steps=steps,
                          **(RUN | {"progress": False} | options))


def test_a_run_is_that_of_the_command_line(tmp_path, capfd):
    events = {"step": [], "validation": [], "checkpoint": []}
    summary = train(tmp_path / "ours", 24, on_step=events["step"].append, on_validation=events["validation"].append,
                    on_checkpoint=events["checkpoint"].append)
    assert capfd.readouterr().out == ""
    command_line(tmp_path / "theirs", 24)
    assert program.metrics_without_speed(tmp_path / "ours") == program.metrics_without_speed(tmp_path / "theirs")
    assert program.state_bytes(tmp_path / "ours") == program.state_bytes(tmp_path / "theirs")
    assert {e["step"]: e["loss"] for e in events["step"]} == program.losses(tmp_path / "theirs")
    assert [e["step"] for e in events["validation"]] == [8, 16, 24]
    assert [e["step"] for e in events["checkpoint"]] == [10, 20, 24]
    assert summary["steps"] == 24 and summary["val_loss"] == events["validation"][-1]["loss"]
    # The program goes on with our run, as with its own.
    for out in ("ours", "theirs"):
        program.run("train", "--resume", "--out", tmp_path / out, "--steps", 30)
    assert program.state_bytes(tmp_path / "ours") == program.state_bytes(tmp_path / "theirs")


def test_statistics_are_those_of_the_file(tmp_path):
    events = []
    train(tmp_path / "run", 9, recipe="rowwise", stats="every=4,layers=fc*", on_stats=events.append)
    assert [event["step"] for event in events] == [4, 8]
    lines = [json.loads(line) for line in (tmp_path / "run/statistics.jsonl").read_text().splitlines()]
    assert [{"step": event["step"], **cast} for event in events for cast in event["casts"]] == lines
    assert {line["fqn"] for line in lines} == {"fc1.weight", "fc2.weight"}


def test_dumps_are_compared(tmp_path):
    for recipe in ("tensorwise", "rowwise"):
        train(tmp_path / recipe, 3, recipe=recipe, dump="fc*", at_steps=[1, 3], what=["input", "output"])
    found = onnx_fp8.compare(tmp_path / "tensorwise", tmp_path / "rowwise")
    assert found == json.loads(program.run("compare", tmp_path / "tensorwise", tmp_path / "rowwise", "--json").stdout)
    assert found["steps"] == [1, 3] and found["first"]["fqn"] == "fc1.weight"
    assert {tensor["operand"] for tensor in found["tensors"]} == {"input", "output"}


def test_the_progress_line(tmp_path, capsys):
    train(tmp_path / "run", 9, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines.pop(0).startswith("trains 8 of 8 parameters, ")
    assert lines[0].startswith("step 1/9  loss ") and lines[-2].startswith("step 9/9  loss ")
    assert lines[-1].startswith("step 9/9  validation loss ")


def test_ctrl_c_ends_a_run_that_goes_on_later(tmp_path, capfd):
    steps = []

    def press(event):
        steps.append(event["step"])
        if event["step"] == 12:
            os.kill(os.getpid(), signal.SIGINT)

    # A command that caught signals itself gives them back.
    onnx_fp8.calibrate(digits.MODEL, tmp_path / "s.json", data=digits.TRAIN, loss="cross_entropy", steps=2)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", 30, on_step=press)
    assert steps[-1] <= 13
    assert capfd.readouterr().err.splitlines()[-1] == (
        f"onnx_fp8: interrupted; onnx_fp8.train(out={str(tmp_path / 'run')!r}, resume=True) goes on")
    onnx_fp8.train(out=tmp_path / "run", resume=True, steps=30, progress=False)
    train(tmp_path / "whole", 30)
    assert program.state_bytes(tmp_path / "run") == program.state_bytes(tmp_path / "whole")


def test_an_error_of_a_callback_ends_the_run(tmp_path):
    class Mine(Exception):
        pass

    def fail(event):
        if event["step"] == 4:
            raise Mine("enough")

    with pytest.raises(Mine, match="enough"):
        train(tmp_path / "run", 30, on_step=fail)
    # The step is saved.
    assert onnx_fp8.train(out=tmp_path / "run", resume=True, steps=6, progress=False)["steps"] == 6


def test_commands_do_what_the_program_does(tmp_path):
    inspected = onnx_fp8.inspect(digits.MODEL, recipe="tensorwise", shape={"batch": 16}, filter_fqns=["head"])
    theirs = json.loads(program.run("inspect", digits.MODEL, "--recipe", "tensorwise", "--shape", "batch=16",
                                    "--filter-fqns", "head", "--json").stdout)
    for report in (inspected, theirs):  # times differ
        del report["seconds"], report["passes"], report["specialize"]["seconds"]
    assert inspected == theirs
    assert onnx_fp8.recipes() == json.loads(program.run("recipes", "--json").stdout)

    report = onnx_fp8.rewrite(digits.MODEL, tmp_path / "ours.onnx", recipe="tensorwise", filter_fqns=["head"])
    done = program.run("rewrite", digits.MODEL, "-o", tmp_path / "theirs.onnx", "--recipe", "tensorwise",
                       "--filter-fqns", "head", "--json")
    assert (tmp_path / "ours.onnx").read_bytes() == (tmp_path / "theirs.onnx").read_bytes()
    assert report == json.loads(done.stdout) | {"out": str(tmp_path / "ours.onnx")}
    assert {g["fqn"]: g["fp8"] for g in report["gemms"]} == {
        g["fqn"]: g["fp8"] for g in inspected["gemms"] if g["role"] == "forward"}
    assert onnx_fp8.rewrite(digits.MODEL, tmp_path / "step.onnx", loss="cross_entropy", shape={"batch": 8}) == {
        "out": str(tmp_path / "step.onnx")}

    onnx_fp8.calibrate(digits.MODEL, tmp_path / "ours.json", data=digits.TRAIN, loss="cross_entropy", steps=3)
    program.run("calibrate", digits.MODEL, "-o", tmp_path / "theirs.json", "--data", digits.TRAIN, "--loss",
                "cross_entropy", "--steps", 3)
    assert (tmp_path / "ours.json").read_text() == (tmp_path / "theirs.json").read_text()

    measured = onnx_fp8.sensitivity(digits.MODEL, data=digits.TRAIN, loss="cross_entropy", batches=1, recipes=["tensorwise"])
    done = program.run("sensitivity", digits.MODEL, "--data", digits.TRAIN, "--loss", "cross_entropy", "--batches", 1,
                       "--recipes", "tensorwise", "--json")
    assert measured == json.loads(done.stdout)

    train(tmp_path / "run", 4)
    onnx_fp8.report(tmp_path / "run", tmp_path / "ours.html")
    program.run("report", tmp_path / "run", "-o", tmp_path / "theirs.html")
    assert (tmp_path / "ours.html").read_bytes() == (tmp_path / "theirs.html").read_bytes()
    onnx_fp8.export(tmp_path / "run", [tmp_path / "w.safetensors", tmp_path / "m.onnx"])
    assert load_file(tmp_path / "w.safetensors").keys() == {i.name for i in onnx.load(digits.MODEL).graph.initializer
                                                            if i.data_type == onnx.TensorProto.FLOAT}
    evaluated = onnx_fp8.evaluate(tmp_path / "run", data=digits.VAL)
    assert evaluated == json.loads(program.run("eval", tmp_path / "run", "--data", digits.VAL, "--json").stdout)
    assert onnx_fp8.evaluate(tmp_path / "m.onnx", data=digits.VAL, loss="cross_entropy")["loss"] == pytest.approx(
        evaluated["loss"], rel=1e-2)


ARTIFACTS = digits.ROOT / "tests/fixtures/ort_training"


def test_artifacts_of_onnxruntime_training(tmp_path):
    folder, events = ARTIFACTS / "mlp", []
    onnx_fp8.train(ort_training=folder, data=dict(np.load(folder / "feeds.npz")), batch_size=8, no_shuffle=True,
                   steps=20, out=tmp_path / "run", on_step=events.append, progress=False)
    np.testing.assert_allclose([e["loss"] for e in events], np.load(folder / "losses.npy"), rtol=1e-5)

    report = onnx_fp8.rewrite(ort_training=folder, out=tmp_path / "ours", recipe="delayed")
    done = program.run("rewrite", "--ort-training", folder, "-o", tmp_path / "theirs", "--recipe", "delayed", "--json")
    assert report == json.loads(done.stdout.replace("theirs", "ours"))
    for file in (tmp_path / "theirs").iterdir():
        assert (tmp_path / "ours" / file.name).read_bytes() == file.read_bytes()

    onnx_fp8.export(tmp_path / "run", tmp_path / "c.ckpt", checkpoint=folder / "checkpoint")
    onnx_fp8.export(folder, tmp_path / "ours.onnx", checkpoint=tmp_path / "c.ckpt")
    program.run("export", tmp_path / "run", "-o", tmp_path / "theirs.onnx")
    weights = [{t.name: t.raw_data for t in onnx.load(tmp_path / f"{who}.onnx").graph.initializer}
               for who in ("ours", "theirs")]
    assert weights[0] == weights[1]


def test_a_session_from_artifacts(tmp_path):
    """The losses of onnxruntime-training; and from a checkpoint in the middle of the run, moments included."""
    folder, half = ARTIFACTS / "mlp", tmp_path / "half.ckpt"
    feeds, losses = dict(np.load(folder / "feeds.npz")), np.load(folder / "losses.npy")
    session = onnx_fp8.TrainingSession(ort_training=folder)
    ours = [session.step(feeds).loss for _ in losses]
    np.testing.assert_allclose(ours, losses, rtol=1e-5)

    onnx_fp8.train(ort_training=folder, data=feeds, batch_size=8, no_shuffle=True, steps=10, out=tmp_path / "run",
                   progress=False)
    onnx_fp8.export(tmp_path / "run", half, checkpoint=folder / "checkpoint")
    second = onnx_fp8.TrainingSession(ort_training=folder, checkpoint=half)
    assert [second.step(feeds).loss for _ in range(10)] == ours[10:]


@pytest.mark.parametrize("criterion, best_of", [("loss", min), ("accuracy", max)])
def test_the_best_checkpoint_stays(criterion, best_of, tmp_path):
    """Validation with wrong labels is best before the model has learned the right ones."""
    val_data = dict(np.load(digits.VAL))
    val_data["labels"] = (val_data["labels"] + 1) % 10
    np.savez(tmp_path / "wrong.npz", **val_data)
    seen = []
    options = RUN | {"val_every": 4, "save_every": 1000, "progress": False, "on_validation": seen.append}
    summary = onnx_fp8.train(digits.MODEL, data=digits.TRAIN, val_data=tmp_path / "wrong.npz", out=tmp_path / "run",
                             steps=40, save_best=criterion, **options)
    best = best_of(seen, key=lambda event: event[criterion])  # the first of equals
    assert summary["best_step"] == best["step"] < 40
    ours = onnx_fp8.evaluate(tmp_path / "run", data=tmp_path / "wrong.npz", best=True)
    assert ours[criterion] == best[criterion]
    assert onnx_fp8.evaluate(tmp_path / "run", data=tmp_path / "wrong.npz")["loss"] == seen[-1]["loss"] > ours["loss"]
    onnx_fp8.export(tmp_path / "run", tmp_path / "w.safetensors", best=True)
    session = digits.session()
    session.resume(tmp_path / "run/best")
    assert session.steps == best["step"]
    weights = load_file(tmp_path / "w.safetensors")
    for name, array in session.weights().items():
        assert (array == weights[name]).all()
    # A resumed run knows it.
    again = onnx_fp8.train(out=tmp_path / "run", resume=True, steps=44, progress=False)
    assert again["best_step"] == best["step"]


def test_a_better_checkpoint_replaces_the_best(tmp_path):
    seen = []
    summary = train(tmp_path / "run", 40, save_best="loss", on_validation=seen.append)
    best = min(seen, key=lambda event: event["loss"])
    assert summary["best_step"] == best["step"] > 8
    assert onnx_fp8.evaluate(tmp_path / "run", data=digits.VAL, best=True)["loss"] == best["loss"]


def test_averages_are_validated_kept_and_exported(tmp_path):
    seen = []
    summary = train(tmp_path / "run", 24, ema="0.9", eval_with="ema", save_best="loss", on_validation=seen.append)
    assert [event["weights"] for event in seen] == ["ema"] * 3
    assert summary["val_weights"] == "ema"
    best = min(seen, key=lambda event: event["loss"])
    ours = onnx_fp8.evaluate(tmp_path / "run", data=digits.VAL, best=True)
    assert ours["weights"] == "ema" and ours["loss"] == best["loss"]
    plain = onnx_fp8.evaluate(tmp_path / "run", data=digits.VAL, best=True, eval_with="weights")
    assert "weights" not in plain and plain["loss"] != best["loss"]
    # Off FP8, a model with the averages computes the loss of a run that reads them.
    exact = onnx_fp8.evaluate(tmp_path / "run", data=digits.VAL, best=True, recipe="off")
    onnx_fp8.export(tmp_path / "run", tmp_path / "ema.onnx", best=True, ema=True)
    assert onnx_fp8.evaluate(tmp_path / "ema.onnx", data=digits.VAL, loss="cross_entropy")["loss"] == pytest.approx(
        exact["loss"], rel=1e-6)
    onnx_fp8.export(tmp_path / "run", tmp_path / "w.safetensors", best=True)
    onnx_fp8.export(tmp_path / "run", tmp_path / "ema.safetensors", best=True, ema=True)
    weights, averages = load_file(tmp_path / "w.safetensors"), load_file(tmp_path / "ema.safetensors")
    assert weights.keys() == averages.keys()
    assert all((weights[name] != averages[name]).any() for name in weights)


def test_the_progress_line_tells_averages(tmp_path, capsys):
    train(tmp_path / "run", 8, progress=True, ema=0.9, eval_with="ema")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("step 8/8  validation loss ") and last.endswith("  (ema)")


def test_a_run_without_averages_has_none(tmp_path):
    train(tmp_path / "run", 2)
    for work in (lambda: onnx_fp8.evaluate(tmp_path / "run", data=digits.VAL, eval_with="ema"),
                 lambda: onnx_fp8.export(tmp_path / "run", tmp_path / "w.safetensors", ema=True)):
        with pytest.raises(onnx_fp8.OptionError, match="expected a run with `ema`"):
            work()


def test_a_best_checkpoint_needs_a_validation(tmp_path):
    with pytest.raises(onnx_fp8.OptionError, match="`save_best` needs `val_data`"):
        onnx_fp8.train(digits.MODEL, data=digits.TRAIN, out=tmp_path / "run", steps=2, loss="cross_entropy", save_best="loss")
    with pytest.raises(onnx_fp8.OptionError, match="`save_best`: expected loss or accuracy, got f1"):
        train(tmp_path / "run", 2, save_best="f1")
    labels = np.zeros((40, 10), np.float32)
    with pytest.raises(onnx_fp8.OptionError, match="`save_best`: expected loss, got accuracy, which is not known of mse"):
        onnx_fp8.train(digits.MODEL, data=digits.arrays() | {"labels": np.zeros((1500, 10), np.float32)},
                       val_data={"x": digits.arrays()["x"][:40], "labels": labels}, out=tmp_path / "run", steps=2, loss="mse",
                       save_best="accuracy", progress=False)
    train(tmp_path / "plain", 2)
    with pytest.raises(onnx_fp8.Error, match="holds no best checkpoint: `onnx_fp8.train` with `save_best` keeps one"):
        onnx_fp8.evaluate(tmp_path / "plain", data=digits.VAL, best=True)


def test_a_run_ends_when_no_validation_is_better(tmp_path):
    """A rate of zero: all validations are alike."""
    options = {"lr": 0, "recipe": "off", "val_every": 2, "early_stop": 2}
    with pytest.warns(onnx_fp8.Note, match="the run ends after step 6 of 40: none of the last 2 validations was better than "
                      "the validation after step 2; a larger `early_stop` goes on with it"):
        summary = train(tmp_path / "run", 40, **options)
    assert summary["steps"] == 6 and summary["stopped_early"] is True
    ended = [m["step"] for m in program.metrics(tmp_path / "run") if m.get("stopped_early")]
    assert ended == [6]
    again = onnx_fp8.train(out=tmp_path / "run", resume=True, progress=False)
    assert again["steps"] == 6 and again["stopped_early"] is True
    done = program.run("train", "--resume", "--out", tmp_path / "run")
    assert "the run ends after step 6 of 40: " in done.stdout and "a larger --early-stop goes on with it" in done.stdout
    longer = onnx_fp8.train(out=tmp_path / "run", resume=True, steps=8, early_stop="9:0.5", progress=False)
    assert longer["steps"] == 8 and "stopped_early" not in longer


def test_metrics_of_ones_own(tmp_path, capsys):
    calls = []

    def compute(outputs, labels):
        calls.append((outputs, labels))
        [logits] = outputs.values()
        return {"wrong": (logits.argmax(-1) != labels).mean(), "samples_seen": len(labels)}

    seen = []
    summary = train(tmp_path / "run", 16, compute_metrics=compute, on_validation=seen.append, progress=True,
                    tensorboard=tmp_path / "events")
    count = len(np.load(digits.VAL)["labels"])
    assert [event["step"] for event in seen] == [8, 16] and len(calls) == 2
    for event in seen:
        assert event["wrong"] == pytest.approx(1 - event["accuracy"], abs=1e-9) and event["samples_seen"] == count
    lines = [m for m in program.metrics(tmp_path / "run") if "val_loss" in m]
    assert [m["val_wrong"] for m in lines] == [event["wrong"] for event in seen]
    assert summary["val_wrong"] == seen[-1]["wrong"]
    [events] = (tmp_path / "events").iterdir()
    assert events.read_bytes().count(b"val_wrong") == 2
    assert "validation wrong " in capsys.readouterr().err
    # Its arrays are its own: training goes on in other memory.
    first = calls[0][0]["logits" if "logits" in calls[0][0] else next(iter(calls[0][0]))]
    assert first.shape[0] == count and not np.array_equal(first, next(iter(calls[1][0].values())))
    for bad, text in [(lambda o, l: 3, "expected a dict of numbers, got int"),
                      (lambda o, l: {"loss": 1}, "expected names other than accuracy, cause, loss"),
                      (lambda o, l: {"f1": "x"}, "expected a number as f1, got str")]:
        with pytest.raises(onnx_fp8.Error, match="`compute_metrics`: " + text):
            train(tmp_path / text.replace(" ", ""), 8, compute_metrics=bad)
    with pytest.raises(onnx_fp8.OptionError, match="`compute_metrics`: expected a function"):
        train(tmp_path / "none", 8, compute_metrics="f1")


def test_an_evaluation_takes_metrics_of_ones_own(tmp_path):
    train(tmp_path / "run", 8)

    def compute(outputs, labels):
        [logits] = outputs.values()
        return {"wrong": (logits.argmax(-1) != labels).mean(), "samples_seen": len(labels)}

    plain = onnx_fp8.evaluate(tmp_path / "run", data=digits.VAL, batch_size=7)
    ours = onnx_fp8.evaluate(tmp_path / "run", data=digits.VAL, batch_size=7, compute_metrics=compute)
    assert ours.pop("wrong") == pytest.approx(1 - plain["accuracy"], abs=1e-9)
    assert ours.pop("samples_seen") == plain["samples"] == len(np.load(digits.VAL)["labels"])
    assert ours == plain
    with pytest.raises(onnx_fp8.Error, match="`compute_metrics`: expected a dict of numbers, got int"):
        onnx_fp8.evaluate(tmp_path / "run", data=digits.VAL, compute_metrics=lambda o, l: 3)
    with pytest.raises(ZeroDivisionError):
        onnx_fp8.evaluate(tmp_path / "run", data=digits.VAL, compute_metrics=lambda o, l: 1 / 0)
    with pytest.raises(onnx_fp8.OptionError, match="`compute_metrics`: expected a function"):
        onnx_fp8.evaluate(tmp_path / "run", data=digits.VAL, compute_metrics="f1")


def test_a_recipe_may_be_a_dict():
    preset = next(r for r in onnx_fp8.recipes() if r["name"] == "delayed")
    assert digits.losses(digits.session(recipe=preset["recipe"]), 3) == digits.losses(digits.session(), 3)
