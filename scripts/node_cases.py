# SPDX-License-Identifier: Apache-2.0
"""Writes ONNX's own node cases to a folder: a model, its inputs and the results that it must give.

    python scripts/node_cases.py FOLDER

The Python package holds the code that makes them, with seeded random numbers. `./dev setup` runs this script once.
"""

import os
import pathlib
import sys
import tempfile

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_node_model_tests


def proto(value, info):
    if isinstance(value, TensorProto):
        return value
    kind = info.type.WhichOneof("value")
    if kind == "tensor_type":
        return numpy_helper.from_array(np.asarray(value), info.name)
    convert = {"sequence_type": numpy_helper.from_list, "map_type": numpy_helper.from_dict,
               "optional_type": numpy_helper.from_optional}[kind]
    return convert(value, info.name)


def write_case(case, folder):
    folder.mkdir()
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for i, data_set in enumerate(case.data_sets):
        data = folder / f"test_data_set_{i}"
        data.mkdir()
        graph = case.model.graph
        for name, values, infos in zip(("input", "output"), data_set, (graph.input, graph.output)):
            for j, (value, info) in enumerate(zip(values, infos)):
                (data / f"{name}_{j}.pb").write_bytes(proto(value, info).SerializeToString())


def main():
    folder = pathlib.Path(sys.argv[1])
    np.seterr(all="ignore")  # some cases divide by zero
    # Moved when it is complete.
    with tempfile.TemporaryDirectory(dir=folder.parent) as new:
        for case in load_node_model_tests():
            write_case(case, pathlib.Path(new) / case.name)
        os.chmod(new, 0o755)
        os.rename(new, folder)
        os.mkdir(new)  # for TemporaryDirectory to remove


if __name__ == "__main__":
    main()
