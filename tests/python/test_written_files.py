# SPDX-License-Identifier: Apache-2.0
"""Files that `rewrite` wrote are recognized: commands that can't use them refuse, commands that show them say so."""
import json

import numpy as np
import onnx
import pytest
from program import FIXTURES, run, write_random

MLP = FIXTURES / "mlp" / "d18.onnx"
CE = ["--loss", "cross_entropy"]
WHOLE = "is a whole training step that `onnx-fp8 rewrite` with --loss wrote"
MICRO = "is the part of a training step for each micro-batch that `onnx-fp8 rewrite` with --grad-accum wrote"
FOREIGN = "is a training step of another program"
UPDATE = "is the update of a training step that `onnx-fp8 rewrite` with --grad-accum wrote"
FORWARD = "is a forward pass in FP8 that `onnx-fp8 rewrite` wrote"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Steps of every kind, and data."""
    path = tmp_path_factory.mktemp("written")
    step = [*CE, "--shape", "batch=4"]
    run("rewrite", MLP, "-o", path / "whole.onnx", *step, "--recipe", "delayed")
    run("rewrite", MLP, "-o", path / "sgd.onnx", *step, "--optimizer", "sgd")
    run("rewrite", MLP, "-o", path / "micro.onnx", *step, "--grad-accum", 2, "--recipe", "tensorwise")
    run("rewrite", MLP, "-o", path / "forward.onnx", "--recipe", "tensorwise")
    run("rewrite", MLP, "-o", path / "forward_delayed.onnx", "--recipe", "delayed")
    # As after a tool that keeps no metadata.
    model = onnx.load(path / "whole.onnx")
    del model.metadata_props[:]
    onnx.save(model, path / "bare.onnx")
    write_random(path / "d.npz", 8)
    return path


OURS = {"whole.onnx": WHOLE, "sgd.onnx": WHOLE, "micro.onnx": MICRO, "micro.apply.onnx": UPDATE}
STEPS = {**OURS, "bare.onnx": FOREIGN}


def commands(model, tmp_path):
    data = ["--data", model.parent / "d.npz", *CE, "--batch-size", 4]
    return {
        "train": ["train", model, *data, "--steps", 1, "--out", tmp_path / "run"],
        "grad": ["grad", model, *data, "-o", tmp_path / "g.npz"],
        "eval": ["eval", model, *data],
        "calibrate": ["calibrate", model, *data, "-o", tmp_path / "s.json"],
        "export": ["export", model, "-o", tmp_path / "x.onnx"],
        "step": ["rewrite", model, "-o", tmp_path / "x.onnx", *CE],
        "rewrite": ["rewrite", model, "-o", tmp_path / "x.onnx", "--recipe", "tensorwise"],
    }


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("command", ["calibrate", "step", "rewrite"])
def test_a_step_is_refused(folder, name, command, tmp_path):
    done = run(*commands(folder / name, tmp_path)[command], code=1)
    [line] = [line for line in done.stderr.splitlines() if not line.startswith("onnx-fp8: note: ")]
    assert line.startswith(f"onnx-fp8: [{folder / name}] {STEPS[name]}")
    assert "expected the model that it was made from" in line
    assert not (tmp_path / "x.onnx").exists()


def test_export_takes_a_run(folder, tmp_path):
    path = folder / "whole.onnx"
    done = run(*commands(path, tmp_path)["export"], code=1)
    assert f"[{path}] is a file: expected the folder of a run, which `onnx-fp8 train` writes to --out" in done.stderr


@pytest.mark.parametrize("name", ["whole.onnx", "sgd.onnx", "micro.onnx"])
@pytest.mark.parametrize("command", ["train", "grad", "eval"])
def test_a_step_is_used(folder, name, command, tmp_path):
    """test_training_from_steps looks at the numbers."""
    run(*commands(folder / name, tmp_path)[command])


@pytest.mark.parametrize("command", ["train", "grad", "eval"])
def test_an_update_alone_is_refused(folder, command, tmp_path):
    done = run(*commands(folder / "micro.apply.onnx", tmp_path)[command], code=1)
    assert f"{UPDATE} (recipe" in done.stderr
    assert "expected the file of its part for each micro-batch" in done.stderr


@pytest.mark.parametrize("name", ["forward.onnx", "forward_delayed.onnx"])
def test_a_forward_pass_is_evaluated_but_not_trained(folder, name, tmp_path):
    everything = commands(folder / name, tmp_path)
    loss = json.loads(run(*everything["eval"], "--json").stdout)["loss"]
    assert loss == pytest.approx(json.loads(run(*commands(MLP, tmp_path)["eval"][:2], "--data", folder / "d.npz", *CE,
                                                "--json").stdout)["loss"], rel=0.05)
    for command in ("train", "grad", "calibrate", "step"):
        done = run(*everything[command], code=1)
        assert f"onnx-fp8: [{folder / name}] {FORWARD}" in done.stderr
    assert not (tmp_path / "x.onnx").exists() and not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", STEPS)
def test_inspect_says_what_a_step_is(folder, name):
    report = json.loads(run("inspect", folder / name, "--json").stdout)
    assert any(STEPS[name] in note for note in report["notes"])
    model = onnx.load(folder / name)
    bound = {b.key: b.value for b in model.training_info[0].update_binding}
    rows = {row["name"]: row for row in report["initializers"]}
    assert bound and all(rows[key]["next"] == value for key, value in bound.items())
    trained = {name for name, row in rows.items() if row["role"] == "trained"}
    assert trained == (set() if name == "bare.onnx" else {x.name for x in onnx.load(MLP).graph.initializer})
    if name == "bare.onnx":  # our names mean nothing without the metadata
        assert {row["role"] for row in rows.values()} == {"state"}
    assert ("memory" in report) == (name != "micro.apply.onnx")


@pytest.mark.parametrize("name", ["whole.onnx", "micro.onnx"])
def test_run_says_what_a_step_is_and_runs_it(folder, name, tmp_path):
    with np.load(folder / "d.npz") as data:
        np.savez(tmp_path / "b.npz", x=data["x"][:4], labels=data["labels"][:4])
    done = run("run", folder / name, "--data", tmp_path / "b.npz", "-o", tmp_path / "out.npz")
    assert f"onnx-fp8: note: [{folder / name}] {STEPS[name]}" in done.stderr
    with np.load(tmp_path / "out.npz") as out:
        outputs = dict(out)
    model = onnx.load(folder / name)
    assert outputs.keys() == {value.name for value in model.graph.output}
    assert np.isfinite(outputs["loss"])


def test_another_tools_training_info_is_no_step(tmp_path):
    """Its bindings belong to another graph: this one is the model to train."""
    model = onnx.load(MLP)
    info = model.training_info.add()
    info.update_binding.add(key=model.graph.initializer[0].name, value="of_its_algorithm")
    onnx.save(model, tmp_path / "m.onnx")
    write_random(tmp_path / "d.npz", 8)
    run(*commands(tmp_path / "m.onnx", tmp_path)["grad"])
