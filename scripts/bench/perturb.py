# SPDX-License-Identifier: Apache-2.0
"""Writes a copy of a model. Each of its weights is the weight of the model times
1 + 1e-6 · a normal number. Usage: python -m bench.perturb JSON, which says what to write:
[{"model": FILE, "path": FILE, "seed": 0}, …]"""
import json
import sys

import numpy
import onnx
from onnx import numpy_helper

NOISE = 1e-6


def perturb(model, path, seed):
    random = numpy.random.default_rng(seed)
    graph = onnx.load(model)
    changed = 0
    for weight in graph.graph.initializer:
        # Constants have names of their own.
        if not weight.name.endswith((".weight", ".bias")):
            continue
        values = numpy_helper.to_array(weight)
        noise = 1 + NOISE * random.standard_normal(values.shape)
        weight.CopyFrom(numpy_helper.from_array(
            (values * noise).astype(values.dtype), weight.name))
        changed += 1
    if not changed:
        raise SystemExit(f"bench: {model}: expected weights named … .weight or "
                         "… .bias, found none")
    onnx.save(graph, path)


def main():
    for wanted in json.loads(sys.argv[1]):
        perturb(**wanted)


if __name__ == "__main__":
    main()
