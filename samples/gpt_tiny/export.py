#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small byte-level GPT, exported untrained to gpt_tiny.onnx.

usage: export.py [OUT.onnx]

Needs torch, onnx and onnxscript; training needs none of them.
"""
import math
import pathlib
import sys

import onnx
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 256
POSITIONS = 128
WIDTH = 128
HEADS = 4
LAYERS = 3


def sinusoids(positions, width):
    """Waves with periods of 2 pi to 200 pi tokens: initial values of the table.

    With a random table, attention needs hundreds of steps more until it finds
    its neighbors.
    """
    frequency = 100.0 ** (-torch.arange(width // 2) / (width // 2))
    angle = torch.arange(positions)[:, None] * frequency
    return 0.5 * torch.cat([angle.sin(), angle.cos()], dim=1)


class Attention(nn.Module):
    """Causal self-attention, written out as matmul, mask, softmax, matmul."""

    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.v_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, future):
        """x (B,T,C); future (T,T) is true where a key follows its query."""
        batch, seq, _ = x.shape
        q, k, v = (
            proj(x).view(batch, seq, HEADS, WIDTH // HEADS).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.transpose(2, 3) * (WIDTH // HEADS) ** -0.5
        weights = F.softmax(scores.masked_fill(future, -math.inf), dim=-1)
        y = (weights @ v).transpose(1, 2).reshape(batch, seq, WIDTH)
        return self.o_proj(y)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, future):
        x = x + self.attn(self.ln_1(x), future)
        return x + self.proj(F.gelu(self.fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.normal_(self.wte.weight, std=0.5)
        with torch.no_grad():
            self.wpe.weight.copy_(sinusoids(POSITIONS, WIDTH))

    def forward(self, input_ids):  # (B,T) -> (B,T,VOCABULARY)
        position = torch.arange(input_ids.shape[1])
        future = position[None, :] > position[:, None]
        x = self.wte(input_ids) + self.wpe(position)
        for block in self.blocks:
            x = block(x, future)
        return self.lm_head(self.ln_f(x))


def export(model, path):
    axes = {
        0: torch.export.Dim("batch", min=1),
        1: torch.export.Dim("seq", min=1, max=POSITIONS),
    }
    proto = torch.onnx.export(
        model.eval(),
        (torch.randint(VOCABULARY, (2, 32)),),
        input_names=["input_ids"],
        output_names=["logits"],
        dynamic_shapes=(axes,),
        opset_version=18,
        dynamo=True,
        optimize=False,
    ).model_proto
    for node in proto.graph.node:  # keep module paths, drop this machine's
        for entry in list(node.metadata_props):
            if entry.key.endswith((".stack_trace", ".fx_node")):
                node.metadata_props.remove(entry)
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, path)


def main():
    here = pathlib.Path(__file__).parent
    path = sys.argv[1] if len(sys.argv) > 1 else here / "gpt_tiny.onnx"
    torch.manual_seed(0)
    export(GPT(), path)


if __name__ == "__main__":
    main()
