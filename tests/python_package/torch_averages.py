# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch is: averages of weights beside torch.optim.swa_utils."""
import pathlib
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import onnx_fp8
import onnx_fp8.torch

DECAY, LR, STEPS = 0.8, 0.01, 6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(F.gelu(self.norm(self.fc1(x))))


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(12, 6, generator=generator), torch.randint(4, (12,), generator=generator)


def train_torch(every):
    """The averaged module after STEPS steps, and its loss."""
    torch.manual_seed(3)
    module = Net()
    optimizer = torch.optim.AdamW(module.parameters(), lr=LR)
    averaged = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    for step in range(1, STEPS + 1):
        x, labels = batch(step)
        optimizer.zero_grad()
        F.cross_entropy(module(x), labels).backward()
        optimizer.step()
        if step % every == 0:
            averaged.update_parameters(module)
    x, labels = batch(99)
    return averaged.module.state_dict(), F.cross_entropy(averaged(x), labels).item(), F.cross_entropy(module(x), labels).item()


with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder)
    torch.manual_seed(3)
    onnx_fp8.torch.export(Net(), torch.randn(2, 6), path / "m.onnx", input_names=["x"])
    for every in (1, 2):
        want, loss, loss_of_weights = train_torch(every)
        session = onnx_fp8.TrainingSession(path / "m.onnx", loss="cross_entropy", optimizer="adamw", lr=LR, weight_decay=0.01,
                                           ema=f"{DECAY},every={every}", eval_with="ema")
        for step in range(1, STEPS + 1):
            x, labels = batch(step)
            session.step({"x": x, "labels": labels})
        x, labels = batch(99)
        ours = session.eval({"x": x, "labels": labels})
        assert ours.of_averages
        assert abs(ours.loss - loss) < 1e-4 < abs(loss_of_weights - loss), (ours.loss, loss, loss_of_weights)
        session.export(path / "w.safetensors")
        got = load_file(path / "w.safetensors")
        for name, tensor in want.items():
            np.testing.assert_allclose(got[name].numpy(), tensor.numpy(), atol=2e-5, err_msg=name)
