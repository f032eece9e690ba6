# SPDX-License-Identifier: Apache-2.0
"""Trains in PyTorch. Usage:
  python -m bench.torch_peer PEER MODEL TOKENS [BATCH SEQ]
PEER: torch_eager_fp32, torch_compile_fp32, torch_compile_bf16 (autocast),
torch_compile_bf16_weights (weights and moments too) or torchao_emulate
(torch.compile too, as torchao's documentation advises)."""
import contextlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

from bench import task, torch_models, turns


def to_float8(model):
    """Every nn.Linear, lm_head too, by torchao's default recipe."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    from torchao.float8.float8_linear import Float8Linear
    model = convert_to_float8_training(
        model, config=Float8LinearConfig(emulate=True))
    count = sum(isinstance(m, Float8Linear) for m in model.modules())
    return model, 3 * count


def prepare():
    peer, name, tokens = sys.argv[1:4]
    if sys.argv[4:]:
        task.BATCH, task.SEQ = map(int, sys.argv[4:6])
    model = torch_models.make(name)
    if peer == "torch_compile_bf16_weights":
        model = model.bfloat16()
    facts = {"gemms": 3 * sum(isinstance(m, nn.Linear)
                              for m in model.modules()),
             "fp8_gemms": 0, "threads": torch.get_num_threads(),
             "parameters": sum(p.numel() for p in model.parameters())}
    if peer == "torchao_emulate":
        model, facts["fp8_gemms"] = to_float8(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=task.LR, betas=task.BETAS, eps=task.EPS,
        weight_decay=task.WEIGHT_DECAY, fused=True)
    batches = task.Batches(tokens)

    def loss_of(input_ids, labels):
        logits = model(input_ids)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

    if peer != "torch_eager_fp32":
        loss_of = torch.compile(loss_of)
    autocast = (torch.autocast("cpu", torch.bfloat16)
                if peer == "torch_compile_bf16" else contextlib.nullcontext())

    def step():
        input_ids, labels = map(torch.from_numpy, batches.next())
        optimizer.zero_grad()
        with autocast:
            loss = loss_of(input_ids, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, facts


if __name__ == "__main__":
    turns.serve(prepare)
