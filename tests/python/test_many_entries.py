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
