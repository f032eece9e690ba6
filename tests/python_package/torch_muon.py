# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch is: a module trained with optimizer="muon" beside torch.optim.Muon and AdamW."""
import pathlib
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

import onnx_fp8
import onnx_fp8.torch

PATH = pathlib.Path(tempfile.mkdtemp()) / "model.onnx"
# PyTorch's iteration rounds to bfloat16. It divides its copy in place.
torch.Tensor.bfloat16 = torch.Tensor.clone


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 12)
        self.wide, self.tall = nn.Linear(12, 8, bias=False), nn.Linear(8, 20)
        self.norm, self.head = nn.LayerNorm(20), nn.Linear(20, 5)

    def forward(self, x):
        return self.head(self.norm(F.gelu(self.tall(F.relu(self.wide(self.table(x)))))))


def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    return {"x": torch.randint(11, (6,), generator=generator), "labels": torch.randint(5, (6,), generator=generator)}


def beside_pytorch(adjust):
    torch.manual_seed(0)
    net = Module()
    onnx_fp8.torch.export(net, batches(0)["x"], PATH, input_names=["x"])
    hidden = [net.wide.weight, net.tall.weight]
    rest = [p for p in net.parameters() if all(p is not matrix for matrix in hidden)]
    optimizers = [torch.optim.Muon(hidden, lr=0.02, weight_decay=0.1, adjust_lr_fn=adjust),
                  torch.optim.AdamW(rest, lr=0.02, weight_decay=0.1)]
    session = onnx_fp8.TrainingSession(PATH, loss="cross_entropy", optimizer="muon", lr=0.02, adjust_lr_fn=adjust)
    for step in range(5):
        batch = batches(step)
        ours = session.step({name: array.numpy() for name, array in batch.items()}).loss
        loss = F.cross_entropy(net(batch["x"]), batch["labels"])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        assert abs(ours - loss.item()) < 2e-4, (adjust, step, ours, loss.item())


for adjustment in ("original", "match_rms_adamw"):
    beside_pytorch(adjustment)
