#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A digits classifier, exported untrained, and the data to train it.

usage: export.py [FOLDER]

Writes digits_mlp.onnx, train.npz and val.npz (default: beside this script).
Needs torch, onnx, onnxscript and scikit-learn; training needs none of them.
"""
import pathlib
import sys

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

TRAIN_SAMPLES = 1500  # of 1797


class DigitsMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 128)
        self.norm = nn.LayerNorm(128)
        self.fc2 = nn.Linear(128, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, x):  # (B,64) -> (B,10)
        x = self.norm(F.relu(self.fc1(x)))
        return self.head(F.gelu(self.fc2(x)))


def export(model, path):
    proto = torch.onnx.export(
        model.eval(),
        (torch.rand(8, 64),),
        input_names=["x"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        opset_version=18,
        dynamo=True,
        optimize=False,
    ).model_proto
    for node in proto.graph.node:  # keep module paths, not this machine's
        for entry in list(node.metadata_props):
            if entry.key.endswith((".stack_trace", ".fx_node")):
                node.metadata_props.remove(entry)
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, path)


def write_data(folder):
    """Arrays named like the graph's input, and their labels."""
    digits = load_digits()
    x = (digits.data / 16).astype(np.float32)  # gray levels 0..16
    labels = digits.target.astype(np.int64)
    order = np.random.RandomState(0).permutation(len(x))
    for name, part in (
        ("train", order[:TRAIN_SAMPLES]),
        ("val", order[TRAIN_SAMPLES:]),
    ):
        # Not compressed, so that the arrays can be mapped into memory.
        np.savez(folder / f"{name}.npz", x=x[part], labels=labels[part])


def main():
    here = pathlib.Path(__file__).parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    export(DigitsMLP(), folder / "digits_mlp.onnx")
    write_data(folder)


if __name__ == "__main__":
    main()
