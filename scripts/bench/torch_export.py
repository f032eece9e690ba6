# SPDX-License-Identifier: Apache-2.0
"""Writes a model for this program, and once more for onnxruntime-training.
Usage: python -m bench.torch_export MODEL FOLDER"""
import pathlib
import sys

import torch

from bench import task, torch_models


class Rows(torch.nn.Module):
    """Logits (tokens, vocabulary): onnxruntime-training's loss wants rows."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids).flatten(0, 1)


def main():
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    model = torch_models.make(name)
    example = (torch.zeros(task.BATCH, task.SEQ, dtype=torch.int64),)
    names = {"input_names": ["input_ids"], "output_names": ["logits"]}
    # The exporter's optimiser would rename the weights that it transposes.
    torch.onnx.export(model, example, folder / f"{name}.onnx", dynamo=True,
                      opset_version=18, optimize=False, external_data=False,
                      **names)
    # Newer files have operators that 1.19.2 has no gradients for.
    torch.onnx.export(Rows(model), example, folder / f"{name}_ort.onnx",
                      dynamo=False, opset_version=14,
                      do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING, **names)


if __name__ == "__main__":
    main()
