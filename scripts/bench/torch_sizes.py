# SPDX-License-Identifier: Apache-2.0
"""Writes the GPT of torch_models.py in several widths, each for any batch and
any sequence up to SEQ. Usage: python -m bench.torch_sizes FOLDER SEQ WIDTH..."""
import importlib
import pathlib
import sys

import torch

from bench import task


def model_of(name, seed, sizes):
    """A model of torch_models.py with these sizes in place of task.py's."""
    for size, value in sizes.items():
        setattr(task, size, value)
    # The models read the sizes at their import.
    sys.modules.pop("bench.torch_models", None)
    return importlib.import_module("bench.torch_models").make(name, seed)


def export(path, width, seq):
    model = model_of("gpt", 0, {"WIDTH": width, "SEQ": seq,
                                "HEADS": width // 32})
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
