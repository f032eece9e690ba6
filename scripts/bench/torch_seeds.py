# SPDX-License-Identifier: Apache-2.0
"""Writes models of torch_models.py in a size of their own, one per seed.
Usage: python -m bench.torch_seeds JSON, which says what to write:
[{"model", "seed", "path", "sizes": {"LAYERS": 2, …: as in task.py}}, …]"""
import json
import sys

import torch

from bench import task, torch_sizes


def export(model, seed, path, sizes):
    module = torch_sizes.model_of(model, seed, sizes)
    example = torch.zeros(task.BATCH, task.SEQ, dtype=torch.int64)
    torch.onnx.export(
        module, (example,), path, dynamo=True, opset_version=18,
        optimize=False, external_data=False, input_names=["input_ids"],
        output_names=["logits"])


def main():
    for wanted in json.loads(sys.argv[1]):
        export(**wanted)


if __name__ == "__main__":
    main()
