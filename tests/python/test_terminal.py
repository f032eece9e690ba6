# SPDX-License-Identifier: Apache-2.0
"""Names come from files, and may hold any bytes. None of them reaches the terminal as a command to it, or as a line of
its own: every command prints what it prints with the bytes escaped."""
import json
import os
import pathlib
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from program import BIN

CONTROLS = "".join(map(chr, [*range(32), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F),
                             *range(0x2066, 0x206A)]))
FORGED = "onnx-fp8: forged"  # a line that only a name holds
NAMES = {
    "controls": f"\x1b[2J{CONTROLS}\n{FORGED}\r{FORGED}".encode(),
    "every byte": bytes(range(256)) + f"\n{FORGED}".encode(),
    "newline": f"\n{FORGED}".encode(),
}
# A name that is not UTF-8 gets into a model by its bytes.
MARK = "\u2603" * 150


def make(folder, bad):
    """A model of one layer; the names of its nodes, tensors, axes and outputs hold the bytes."""
    bad += b"_" * (-len(bad) % 3)
    mark = MARK[: len(bad) // 3]
    rng = np.random.default_rng(0)
    weights = {f"w{mark}": rng.normal(size=(16, 16)), f"v{mark}": rng.normal(size=(16, 4)), f"b{mark}": np.zeros(4)}
    nodes = [
        helper.make_node("MatMul", ["x", f"w{mark}"], [f"h{mark}"], f"first{mark}"),
        helper.make_node("Relu", [f"h{mark}"], [f"r{mark}"], f"relu{mark}"),
        helper.make_node("MatMul", [f"r{mark}", f"v{mark}"], [f"m{mark}"], f"second{mark}"),
        helper.make_node("Add", [f"m{mark}", f"b{mark}"], [f"y{mark}"], f"sum{mark}"),
        helper.make_node("Sqrt", ["x"], [f"idle{mark}"], f"idle{mark}"),
    ]
    graph = helper.make_graph(
        nodes, f"graph{mark}", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [f"batch{mark}", 16])],
        [helper.make_tensor_value_info(f"y{mark}", TensorProto.FLOAT, [f"batch{mark}", 4])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9,
                              producer_name=f"producer{mark}")
    model.metadata_props.add(key=f"key{mark}", value=f"value{mark}")
    text = model.SerializeToString()
    assert mark.encode() in text
    (folder / "m.onnx").write_bytes(text.replace(mark.encode(), bad))
    np.savez(folder / "d.npz", x=rng.normal(size=(8, 16)).astype(np.float32), labels=rng.integers(0, 4, 8))
    np.savez(folder / "x.npz", x=rng.normal(size=(8, 16)).astype(np.float32))
    np.savez(folder / "other.npz", y=np.zeros((8, 16), np.float32))


def check(folder, words):
    """What a command prints. Its exit code is another test's."""
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=120)
    assert done.returncode in (0, 1, 2), (words, done)
    for text in (done.stdout, done.stderr):
        shown = text.decode()  # UTF-8
        bad = sorted(set(shown) & (set(CONTROLS) - {"\n"}))
        assert not bad, (words, bad, shown)
        assert not any(line.startswith(FORGED) for line in shown.splitlines()), (words, shown)
    return done


CE = "--data d.npz --loss cross_entropy --batch-size 4"
COMMANDS = {
    "inspect": "inspect m.onnx",
    "inspect with a size": "inspect m.onnx --loss cross_entropy --memory-report --recipe tensorwise --mesh tp=2",
    "inspect for a GPU": "inspect m.onnx --loss cross_entropy --gpu h200 --recipe tensorwise --shape batch=4",
    "inspect as JSON": "inspect m.onnx --json",
    "train": f"train m.onnx {CE} --steps 2 --out out --recipe tensorwise --memory-report --profile-summary "
             "--profile trace.json",
    "train as JSON": f"train m.onnx {CE} --steps 2 --out json --json --memory-report --profile-summary",
    "train delayed": f"train m.onnx {CE} --steps 2 --out out2 --recipe delayed --filter-fqns none",
    "train by a filter": f"train m.onnx {CE} --steps 2 --out out3 --freeze nothing --train everything",
    "resume": "train --resume --out out --steps 3",
    "eval": "eval out --data d.npz",
    "eval a model": "eval m.onnx --data d.npz --loss cross_entropy",
    "export": "export out -o t.onnx",
    "export weights": "export out -o t.safetensors",
    "grad": f"grad m.onnx {CE} -o g.npz",
    "grad of safetensors": f"grad m.onnx {CE} -o g.safetensors",
    "calibrate": "calibrate m.onnx --data d.npz --batch-size 4 --recipe static -o s.json",
    "calibrate with a loss": f"calibrate m.onnx {CE} -o s.json",
    "rewrite": "rewrite m.onnx --recipe tensorwise -o r.onnx",
    "rewrite as JSON": "rewrite m.onnx --recipe tensorwise -o r2.onnx --json",
    "rewrite a step": "rewrite m.onnx --loss cross_entropy -o s.onnx",
    "run": "run m.onnx --data x.npz -o o.npz",
    "run without an input": "run m.onnx --data other.npz -o o.npz",
    "run safetensors": "run m.onnx --data x.npz -o o.safetensors",
    "plan": "plan m.onnx --loss cross_entropy --gpu h200 --mesh dp=2 --shape batch=4",
    "bench nodes": "bench nodes m.onnx --shape batch=4 --loss cross_entropy --repeat 1",
    "train without labels": "train m.onnx --data x.npz --loss cross_entropy --steps 1 --out none",
    "train by the model's loss": "train m.onnx --data x.npz --loss output:y --steps 1 --out none",
    "dump": f"train m.onnx {CE} --steps 1 --out out4 --dump-passes passes",
}


@pytest.mark.parametrize("bad", NAMES.values(), ids=NAMES)
def test_names_of_a_model(tmp_path, bad):
    make(tmp_path, bad)
    printed = {name: check(tmp_path, [BIN, *words.split()]) for name, words in COMMANDS.items()}
    shown = printed["inspect"].stdout.decode()
    assert "\\x0aonnx-fp8: forged" in shown
    json.loads(printed["inspect as JSON"].stdout)
    if bad != NAMES["every byte"]:  # which no checkpoint can hold
        for name in ("train", "eval", "export", "resume", "grad", "rewrite", "run"):
            assert printed[name].returncode == 0, printed[name]
        trace = (tmp_path / "trace.json").read_text()
        assert not set(trace) & (set(CONTROLS) - {"\n"})
        json.loads(trace)
        json.loads(printed["train as JSON"].stdout)


@pytest.mark.parametrize("bad", NAMES.values(), ids=NAMES)
def test_names_of_inputs_and_files(tmp_path, bad):
    make(tmp_path, b"_")
    text = (tmp_path / "m.onnx").read_bytes()
    bad = bad.replace(b"\0", b"").replace(b"/", b"")[:200]
    pathlib.Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + bad)).write_bytes(text[:100])
    for words in ([b"inspect", bad], [b"train", b"m.onnx", b"--data", bad, *CE.encode().split()[2:], b"--steps", b"1", b"--out",
                                      b"out"],
                  [b"run", b"m.onnx", b"--data", b"x.npz", b"-o", bad + b".npz"], [bad], [b"train", b"--" + bad],
                  [b"rewrite", b"m.onnx", b"-o", bad + b".onnx"], [b"train", b"m.onnx", b"--loss", bad],
                  [b"inspect", b"m.onnx", b"--shape", bad + b"=4"], [b"eval", bad, b"--data", b"d.npz"],
                  [b"inspect", b"m.onnx", b"--recipe", bad], [b"help", bad], [b"export", bad, b"-o", b"t.onnx"]):
        check(tmp_path, [os.fsencode(BIN), *words])


def test_arrays_of_a_data_file(tmp_path):
    """Arrays that no input reads are noted."""
    make(tmp_path, b"_")
    arrays = dict(np.load(tmp_path / "d.npz"))
    np.savez(tmp_path / "d.npz", **arrays, **{f"a{CONTROLS.replace(chr(0), '')}\n{FORGED}": np.zeros(8)})
    done = check(tmp_path, [BIN, *f"train m.onnx {CE} --steps 1 --out out".split()])
    assert done.returncode == 0 and b"\\u009b" in done.stderr
