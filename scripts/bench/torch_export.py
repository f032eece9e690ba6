# SPDX-License-Identifier: Apache-2.0
"""Writes a model for this program, and once more for onnxruntime-training.
Usage: python -m bench.torch_export MODEL FOLDER
With a third argument it writes FOLDER/MODEL_open.onnx only, whose batch axis is
open."""
import pathlib
import sys
from unittest import mock

import torch
from torch.nn import functional as F

from bench import task, torch_models


class Rows(torch.nn.Module):
    """Logits (tokens, vocabulary): onnxruntime-training's loss wants rows."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids).flatten(0, 1)


def rms_norm(x, shape, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def spelled_out():
    """Expresses ops that opset 14 lacks by ops that it has."""
    whole = F.scaled_dot_product_attention

    def attention(q, k, v, is_causal, enable_gqa=False):
        if enable_gqa:
            group = q.shape[1] // k.shape[1]
            k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        return whole(q, k, v, is_causal=is_causal)

    return mock.patch.multiple(F, rms_norm=rms_norm,
                               scaled_dot_product_attention=attention)


def main():
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    model = torch_models.make(name)
    example = torch_models.batch(name)[:1]
    names = {"input_names": ["pixels" if name == "vit" else "input_ids"],
             "output_names": ["logits"]}
    if sys.argv[3:]:
        torch.onnx.export(model, example, folder / f"{name}_open.onnx",
                          dynamo=True, opset_version=18, optimize=False,
                          external_data=False, dynamic_shapes=(
                              {0: torch.export.Dim("batch")},), **names)
        return
    # The exporter's optimizer would rename the weights that it transposes.
    torch.onnx.export(model, example, folder / f"{name}.onnx", dynamo=True,
                      opset_version=18, optimize=False, external_data=False,
                      **names)
    if name not in task.MODELS:
        return  # no task of onnxruntime-training's
    # Newer files have operators without a gradient in 1.19.2.
    with spelled_out():
        torch.onnx.export(Rows(model), example, folder / f"{name}_ort.onnx",
                          dynamo=False, opset_version=14,
                          do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, **names)


if __name__ == "__main__":
    main()
