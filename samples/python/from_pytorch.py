#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A PyTorch module is exported, trained in FP8 beside PyTorch in fp32 on the same batches, and gets its weights back.

  python samples/python/from_pytorch.py

Needs the packages torch, onnx, onnxscript and safetensors.
"""
import copy
import pathlib
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import onnx_fp8
import onnx_fp8.torch

SAMPLES = pathlib.Path(__file__).resolve().parents[1] / "digits_mlp"
STEPS, BATCH, LR = 100, 32, 1e-3


def tensors(path):
    return {name: torch.from_numpy(array) for name, array in np.load(path).items()}


def accuracy(module, data):
    with torch.no_grad():
        return (module(data["x"]).argmax(1) == data["labels"]).float().mean().item()


def main():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 10))
    train, val = tensors(SAMPLES / "train.npz"), tensors(SAMPLES / "val.npz")

    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/model.onnx"
        onnx_fp8.torch.export(module, torch.zeros(2, 64), model, input_names=["x"])
        options = {"loss": "cross_entropy", "optimizer": "adamw", "lr": LR, "weight_decay": 0.01}
        in_fp32 = onnx_fp8.TrainingSession(model, **options)
        in_fp8 = onnx_fp8.TrainingSession(model, recipe="tensorwise", filter_fqns=["3.weight"], **options)

    reference = copy.deepcopy(module)
    optimizer = torch.optim.AdamW(reference.parameters(), lr=LR)
    order = torch.randperm(len(train["labels"]))
    for step in range(STEPS):
        rows = order[torch.arange(step * BATCH, (step + 1) * BATCH) % len(order)]
        batch = {name: tensor[rows] for name, tensor in train.items()}
        loss = F.cross_entropy(reference(batch["x"]), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        fp32, fp8 = in_fp32.step(batch).loss, in_fp8.step(batch).loss
        if (step + 1) % 20 == 0:
            print(f"step {step + 1:3}  PyTorch {loss.item():.4f}  ours in fp32 {fp32:.4f}  in FP8 {fp8:.4f}")
        assert abs(fp32 - loss.item()) < 1e-3 and abs(fp8 - loss.item()) < 0.1

    onnx_fp8.torch.load_weights(module, in_fp8)
    print(f"accuracy  PyTorch {accuracy(reference, val):.3f}  trained in FP8, back in PyTorch "
          f"{accuracy(module, val):.3f}")


if __name__ == "__main__":
    main()
