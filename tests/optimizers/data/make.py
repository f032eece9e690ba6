#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes traces.safetensors: 20 steps of PyTorch's optimizers in float64 on two
parameters with given gradients. Needs torch; the tests need only the file.

<case>.start.<i> (n,), <case>.grads.<i> (20,n), <case>.params.<i> (20,n) and
<case>.norms (20,): parameters after each step, gradient norms before clipping.
"""
import pathlib

import torch
from safetensors.torch import save_file

STEPS = 20
SIZES = [3, 4]
CASES = {
    "sgd": (torch.optim.SGD, dict(lr=0.1), 0),
    "sgd_decay": (torch.optim.SGD, dict(lr=0.1, weight_decay=0.1), 0),
    "momentum": (torch.optim.SGD, dict(lr=0.05, momentum=0.9), 0),
    "nesterov": (torch.optim.SGD,
                 dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
                 1.0),
    "adam": (torch.optim.Adam, dict(lr=0.01), 0),
    "adam_decay": (torch.optim.Adam,
                   dict(lr=0.01, betas=(0.8, 0.95), eps=1e-4,
                        weight_decay=0.1), 0),
    "adamw": (torch.optim.AdamW, dict(), 0),
    "adamw_clip": (torch.optim.AdamW,
                   dict(lr=0.02, betas=(0.7, 0.97), weight_decay=0.2), 0.5),
}


def main():
    out = {}
    for case, (optimizer, settings, clip) in CASES.items():
        torch.manual_seed(len(case))
        params = [torch.nn.Parameter(torch.randn(n, dtype=torch.float64))
                  for n in SIZES]
        grads = [torch.randn(STEPS, n, dtype=torch.float64) for n in SIZES]
        # Gradients of very different sizes, so that epsilon and clipping matter.
        for g in grads:
            g *= torch.logspace(-4, 1, STEPS, dtype=torch.float64)[:, None]
        opt = optimizer(params, **settings)
        trace, norms = [[], []], []
        for i, p in enumerate(params):
            out[f"{case}.start.{i}"] = p.detach().clone()
            out[f"{case}.grads.{i}"] = grads[i]
        for step in range(STEPS):
            for p, g in zip(params, grads):
                p.grad = g[step].clone()
            limit = clip if clip else float("inf")
            norms.append(torch.nn.utils.clip_grad_norm_(params, limit))
            opt.step()
            for i, p in enumerate(params):
                trace[i].append(p.detach().clone())
        for i in range(len(params)):
            out[f"{case}.params.{i}"] = torch.stack(trace[i])
        out[f"{case}.norms"] = torch.stack(norms)
    save_file(out, pathlib.Path(__file__).parent / "traces.safetensors")


main()
