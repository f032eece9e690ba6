# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as others publish them, and models without data, for tests."""
import json
import struct

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

TYPES = {np.dtype(dtype): name for dtype, name in [
    (np.float64, "F64"), (np.float32, "F32"), (np.float16, "F16"), (ml_dtypes.bfloat16, "BF16"), (np.uint8, "U8"),
    (np.int8, "I8"), (np.int32, "I32"), (np.int64, "I64"), (np.bool_, "BOOL"),
    (ml_dtypes.float8_e4m3fn, "F8_E4M3"), (ml_dtypes.float8_e5m2, "F8_E5M2"), (ml_dtypes.float8_e8m0fnu, "F8_E8M0")]}


def write(path, arrays):
    """A safetensors file, also of types that the package `safetensors` can't write from numpy."""
    header, data = {}, b""
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": TYPES[array.dtype], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_shards(folder, *shards):
    """A folder with an index and a file for each dict of arrays."""
    folder.mkdir()
    places = {}
    for i, arrays in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write(folder / file, arrays)
        places |= dict.fromkeys(arrays, file)
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def quantized(weight, scales, block, dtype=ml_dtypes.float8_e4m3fn):
    """Codes of a matrix, and the floats that they mean. `scales`: one for each `block` of rows and columns."""
    rows, columns = weight.shape
    whole = np.repeat(np.repeat(scales.astype(np.float32), block[0], 0), block[1], 1)[:rows, :columns]
    codes = (weight / whole).astype(dtype)
    return codes, codes.astype(np.float32) * whole


def without_data(name, shape, dtype=TensorProto.FLOAT, location="left_out.bin"):
    """A tensor of a model whose data file does not exist."""
    tensor = TensorProto(name=name, data_type=dtype, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def layers(path, shapes, dtype=TensorProto.FLOAT):
    """Writes linear layers, one after another, without their weights: {name: (outputs, inputs)}."""
    nodes, before = [], "x"
    for i, name in enumerate(shapes):
        nodes.append(helper.make_node("Gemm", [before, name], [f"h{i}"], f"layer{i}", transB=1))
        before = f"h{i}"
    sizes = list(shapes.values())
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "layers", [value("x", dtype, ["batch", sizes[0][1]])],
                              [value(before, dtype, ["batch", sizes[-1][0]])],
                              [without_data(name, shape, dtype) for name, shape in shapes.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path.write_bytes(model.SerializeToString())


def random_weights(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return {name: (rng.normal(size=shape) / shape[-1] ** 0.5).astype(np.float32) for name, shape in shapes.items()}
