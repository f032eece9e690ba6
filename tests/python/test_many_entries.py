# SPDX-License-Identifier: Apache-2.0
"""Files with as many entries as their readers take: time grows with the file, not with its square.

A reader that compared each entry with all others would take minutes."""
import json
import struct

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from program import FIXTURES, run, write_random

MLP = FIXTURES / "mlp" / "d18.onnx"
MANY = 200_000


def model_of(graph, opset=18):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def identity(extra=()):
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])  # noqa: E731
    return helper.make_graph([helper.make_node("Identity", ["x"], ["y"]), *extra], "g", [value("x")], [value("y")])


def test_bindings(tmp_path):
    """Each state gets the value of the next one."""
    graph = identity()
    for i in range(MANY):
        graph.initializer.add(name=f"w{i}", data_type=TensorProto.FLOAT, float_data=[1])
        graph.output.add(name=f"w{i}").type.tensor_type.elem_type = TensorProto.FLOAT
    model = model_of(graph)
    info = model.training_info.add()
    for i in range(MANY):
        info.update_binding.add(key=f"w{i}", value=f"w{(i + 1) % MANY}")
    onnx.save(model, tmp_path / "m.onnx")
    shown = json.loads(run("inspect", tmp_path / "m.onnx", "--json", timeout=60).stdout)
    assert len(shown["initializers"]) == MANY


def test_arrays_of_data(tmp_path):
    header = {name: {"dtype": kind, "shape": shape, "data_offsets": [0, 0]} for name, kind, shape in
              (("x", "F32", [8, 24]), ("labels", "I64", [8]))}
    header |= {f"a{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(MANY)}
    header["x"]["data_offsets"], header["labels"]["data_offsets"] = [0, 768], [768, 832]
    for i in range(MANY):
        header[f"a{i}"]["data_offsets"] = [832, 832]
    text = json.dumps(header).encode()
    data = tmp_path / "d.safetensors"
    data.write_bytes(struct.pack("<Q", len(text)) + text + bytes(832))
    done = run("train", MLP, "--data", data, "--loss", "cross_entropy", "--steps", 1, "--batch-size", 8, "--out",
               tmp_path / "run", timeout=60)
    assert f"{MANY} arrays are no inputs of the model: a0, a1" in done.stderr
    assert len(done.stderr) < 2000


def keys(path, start, entry):
    path.write_text(start + ", ".join(entry.format(i) for i in range(MANY)) + "}")
    return path


@pytest.mark.parametrize("flags, start, entry", [
    (["--recipe"], '{"recipe": "tensorwise", ', '"k{}": 1'),
    (["--recipe", "static", "--scales"], "{", '"k{}": {{"input": 1.0}}'),
    (["--recipe", "tensorwise", "--auto-filter"], "{", '"k{}": 1'),
])
def test_keys_of_a_file(tmp_path, flags, start, entry):
    """Refused in a few words."""
    file = keys(tmp_path / "f.json", start, entry)
    data = write_random(tmp_path / "d.npz", 8)
    done = run("train", MLP, "--data", data, "--loss", "cross_entropy", "--steps", 1, "--batch-size", 8, *flags, file,
               "--out", tmp_path / "run", code=None, timeout=60)
    assert done.returncode in (1, 2) and str(file) in done.stderr and len(done.stderr) < 2000, done.stderr[:2000]


def test_functions_beside_trainings(tmp_path):
    model = model_of(identity())
    for i in range(8000):
        function = model.functions.add(name=f"F{i}", domain="local")
        function.input.append("a")
        function.output.append("b")
        function.opset_import.add(version=18)
        function.node.add(op_type="Identity", input=["a"], output=["b"])
    model.opset_import.add(domain="local", version=1)
    for _ in range(800):
        model.training_info.add()
    onnx.save(model, tmp_path / "m.onnx")
    run("inspect", tmp_path / "m.onnx", timeout=60)


def test_operands_of_an_einsum(tmp_path):
    count = 6000
    node = helper.make_node("Einsum", ["y"] * count, ["z"], equation=",".join(["i"] * count) + "->i")
    graph = identity([node])
    graph.output.add(name="z").type.tensor_type.elem_type = TensorProto.FLOAT
    onnx.save(model_of(graph), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones(2, np.float32))
    run("inspect", tmp_path / "m.onnx", timeout=60)
    run("run", tmp_path / "m.onnx", "--data", tmp_path / "x.npz", "--out", tmp_path / "z.npz", timeout=60)
    assert np.array_equal(np.load(tmp_path / "z.npz")["z"], np.ones(2))
