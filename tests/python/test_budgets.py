# SPDX-License-Identifier: Apache-2.0
"""Limits of files before a step runs: --budget lowers and raises them, and a run's folder does not store them."""
import json

import numpy as np
import pytest
from bad_input import hostile
from bad_input.case import BATCH, arrays, good, model, save, train
from program import run

READERS = ["train", "eval", "export", "calibrate", "grad", "inspect", "rewrite", "run"]
RAISES = "--budget {0}=N raises the budget \"{0}\""


@pytest.mark.parametrize("command", READERS)
def test_every_command_that_reads_files_has_it(command):
    text = " ".join(run(command, "--help").stdout.split())
    assert "--budget" in text
    for part in ["constants (bytes of folded constants; 4G)", "visits (", "work (", "arrays (", "nodes ("]:
        assert part in text


def few_turns(*nodes, more=()):
    return hostile.loop(20, *nodes, hostile.RELU, more=more)


def product():
    return few_turns(hostile.node("MatMul", ["a", "a"], ["p"]), more=hostile.constants(a=np.ones((64, 64), np.float32)))


def constant():
    return few_turns(hostile.node("ConstantOfShape", ["dims"], ["c"]), more=hostile.constants(dims=[1 << 16]))


@pytest.mark.parametrize("make, name, low, high", [
    (few_turns, "nodes", "10", "100"), (few_turns, "visits", "40", "1k"), (product, "work", "1M", "20M"),
    (constant, "constants", "4M", "6M")], ids=lambda value: getattr(value, "__name__", value))
def test_a_raised_budget_lets_the_model_pass(make, name, low, high, tmp_path):
    save(make(), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=arrays()["x"], labels=np.zeros((BATCH, 5), np.float32))
    commands = [hostile.COMMANDS[command] for command in ("inspect", "run", "train")]
    for command in [*commands, ["grad", "m.onnx", "--data", "d.npz", "--loss", "mse", "-o", "g.npz"]]:
        done = run(*command, "--budget", f"{name}={low}", code=1, cwd=tmp_path)
        assert RAISES.format(name) in done.stderr
        if command[0] == "train":
            command = ["train", "--resume", "--out", "run"]
        run(*command, "--budget", f"{name}={high}", cwd=tmp_path)


def functions(folder):
    """Sixteen nodes in two calls, one of which holds a product."""
    relus = [hostile.node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(14)]
    f = hostile.function("F", hostile.node("MatMul", ["a", "k"], ["v0"]), *relus, inputs=("a", "k"), outputs=("v14",))
    call = hostile.node("F", ["x", "w"], ["y"], domain="local")
    save(model(nodes=[call], functions=[f], imports=hostile.imports(18)[1:]), folder / "m.onnx")


def test_inlined_functions_count(tmp_path):
    good(tmp_path)
    functions(tmp_path)
    out = {"run": ["-o", "out.npz"], "rewrite": ["-o", "out.onnx", "--recipe", "tensorwise"], "inspect": [],
           "train": ["--out", "run", "--loss", "cross_entropy", "--steps", "2", "--batch-size", "2"]}
    for command, flags in out.items():
        data = ["--data", "good.npz"] if command in ("run", "train") else []
        words = [command, "m.onnx", *data, *flags]
        done = run(*words, "--budget", "nodes=10", code=1, cwd=tmp_path)
        assert f"[m.onnx] expected at most 10 {hostile.NODES}" in done.stderr
        run(*words, "--budget", "nodes=100", cwd=tmp_path)
    # The run's own copy of the model is also read within the command's budgets.
    done = run("export", "run", "-o", "out2.onnx", "--budget", "nodes=10", code=1, cwd=tmp_path)
    assert RAISES.format("nodes") in done.stderr
    run("export", "run", "-o", "out2.onnx", cwd=tmp_path)


def test_inspect_says_what_training_would_exceed(tmp_path):
    """Without sizes nothing is specialized, and the rest of the report is there."""
    save(hostile.loop_of_products(), tmp_path / "m.onnx")
    done = run("inspect", "m.onnx", cwd=tmp_path)
    assert "no table of matrix products" in done.stdout
    assert RAISES.format("work") in " ".join(done.stdout.split())


def test_arrays_that_nobody_asks_for_are_not_inflated(tmp_path):
    good(tmp_path)
    np.savez_compressed(tmp_path / "d.npz", **arrays(), unused=np.zeros(1 << 20))
    command = ["grad", "m.onnx", "--data", "d.npz", "--loss", "cross_entropy", "-o", "g.npz"]
    run(*command, "--budget", "arrays=1k", cwd=tmp_path)
    done = run(*command, "--budget", "arrays=256", code=1, cwd=tmp_path)
    assert RAISES.format("arrays") in done.stderr
    done = run("run", "m.onnx", "--data", "d.npz", "-o", "out.npz", "--budget", "arrays=256", cwd=tmp_path)
    assert "the model has no input unused" in done.stderr


def test_a_run_does_not_keep_it(tmp_path):
    good(tmp_path)
    run(*train(), "--budget", "nodes=1000", cwd=tmp_path)
    path = tmp_path / "run/config.json"
    config = json.loads(path.read_text())
    config.pop("crc32")
    assert "--budget" not in config["flags"]
    # A run's folder may come from somebody else.
    config["flags"]["--budget"] = ["nodes=1"]
    path.write_text(json.dumps(config))
    run("train", "--resume", "--out", "run", "--steps", "3", cwd=tmp_path)
