#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes muon.safetensors: steps of torch.optim.Muon in float64 on matrices with
given gradients. Needs torch 2.9 or later; the tests need only the file.

<case>.start.<i> (A,B), <case>.grads.<i> (STEPS,A,B), <case>.params.<i> and
<case>.buffers.<i> (STEPS,A,B): parameters and momentum after each step.
"""
import pathlib

import torch
from safetensors.torch import save_file

STEPS = 4
SHAPES = [(4, 6), (6, 3), (5, 5)]
CASES = {
    "muon": dict(lr=0.02),
    "plain": dict(lr=0.05, weight_decay=0.2, momentum=0.8, nesterov=False,
                  ns_steps=3, adjust_lr_fn="match_rms_adamw"),
    "coefficients": dict(lr=0.1, weight_decay=0.0, ns_steps=2,
                         ns_coefficients=(1.5, -0.5, 0.0)),
}

# PyTorch's iteration rounds to bfloat16, which would hide an error. It divides
# its copy in place.
torch.Tensor.bfloat16 = torch.Tensor.clone


def main():
    out = {}
    for case, settings in CASES.items():
        torch.manual_seed(len(case))
        params = [torch.nn.Parameter(torch.randn(s, dtype=torch.float64))
                  for s in SHAPES]
        grads = [torch.randn(STEPS, *s, dtype=torch.float64) for s in SHAPES]
        opt = torch.optim.Muon(params, **settings)
        after = [[] for _ in params]
        buffers = [[] for _ in params]
        for i, p in enumerate(params):
            out[f"{case}.start.{i}"] = p.detach().clone()
            out[f"{case}.grads.{i}"] = grads[i]
        for step in range(STEPS):
            for p, g in zip(params, grads):
                p.grad = g[step].clone()
            opt.step()
            for i, p in enumerate(params):
                after[i].append(p.detach().clone())
                buffers[i].append(opt.state[p]["momentum_buffer"].clone())
        for i in range(len(params)):
            out[f"{case}.params.{i}"] = torch.stack(after[i])
            out[f"{case}.buffers.{i}"] = torch.stack(buffers[i])
    save_file(out, pathlib.Path(__file__).parent / "muon.safetensors")


main()
