# SPDX-License-Identifier: Apache-2.0
"""Writes the GPT of torch_models.py in several widths, each for any batch and
any sequence up to SEQ. Usage: python -m bench.torch_sizes FOLDER SEQ WIDTH..."""
import importlib
import pathlib
import sys

import torch

from bench import task


def export(path, width, seq):
    # The models read their sizes when they are imported.
    task.WIDTH, task.SEQ, task.HEADS = width, seq, width // 32
    sys.modules.pop("bench.torch_models", None)
    model = importlib.import_module("bench.torch_models").make("gpt")
    open_axis = torch.export.Dim.DYNAMIC
    torch.onnx.export(
        model, (torch.zeros(2, 16, dtype=torch.int64),), path, dynamo=True,
        opset_version=18, optimize=False, external_data=False,
        dynamic_shapes=({0: open_axis, 1: open_axis},),
        input_names=["input_ids"], output_names=["logits"])


def main():
    folder, seq = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    for width in map(int, sys.argv[3:]):
        export(folder / f"gpt_{width}.onnx", width, seq)


if __name__ == "__main__":
    main()
