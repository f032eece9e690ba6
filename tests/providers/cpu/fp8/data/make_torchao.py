#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes torchao.npz: tensors quantized by torchao 0.18 on the CPU.
Needs torch and torchao; the tests need only the file.

<tensor>.x, and for each rule <rows>x<columns>.<to>.<pow2>.<scale_to>, the
attributes of QuantizeBlock:
<tensor>.<rule>.q      the codes, as bytes
<tensor>.<rule>.scale  for the product: the reciprocal of torchao's scale,
                       or the byte of an e8m0 scale

torchao takes the power of two below a scale with exp2(floor(log2(s))), which is
wrong just below a power of two (one in two million). No value here is affected.
"""
import pathlib
import sys
from unittest import mock

import numpy
import torch
from torchao.float8.config import ScalingGranularity
from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
from torchao.float8.float8_training_tensor import LinearMMConfig
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_mx

# The file's kernels for GPUs need triton; its functions for the CPU do not.
for module in ("triton", "triton.language"):
    sys.modules.setdefault(module, mock.MagicMock())
from torchao.prototype.blockwise_fp8_training.kernels import (  # noqa: E402
    torch_blockwise_scale_act_quant_lhs, torch_blockwise_scale_act_quant_rhs,
    torch_blockwise_scale_weight_quant)

FLOAT, E4M3, E5M2, E8M0 = 1, 17, 19, 24
TORCH = {E4M3: torch.float8_e4m3fn, E5M2: torch.float8_e5m2}


def tensors():
    torch.manual_seed(0)
    outlier = torch.randn(33, 70)
    outlier[torch.rand(33, 70) < 0.01] *= 1000
    mixed = torch.randn(40, 60) * torch.logspace(-18, 18, 60)
    mixed[3] = 0
    mixed[:, 7] = 0
    return {
        "random": torch.randn(48, 80),
        "outlier": outlier,
        "mixed": mixed,
        "tiny": torch.randn(16, 40) * 1e-25,
        "below_eps": torch.randn(7, 9) * 1e-13,
        "huge": torch.randn(9, 21).clamp(-3, 3) * 1e38,
        "zero": torch.zeros(5, 24),
        "one": torch.full((1, 1), 0.3),
        "row": torch.randn(1, 37),
        "column": torch.randn(67, 1),
        "leading": torch.randn(2, 3, 17),
        "blocks": torch.randn(128, 256) * torch.logspace(-6, 6, 256),
    }


def by_training_tensor(x, to, rows, columns, pow2):
    """Tensorwise and rowwise; the block decides the reduced axis."""
    axis = {(0, 0): None, (1, 0): -1, (0, 1): 0}[rows, columns]
    tensorwise = axis is None
    y = hp_tensor_to_float8_dynamic(
        x, TORCH[to], LinearMMConfig(),
        scaling_granularity=ScalingGranularity.TENSORWISE if tensorwise
        else ScalingGranularity.AXISWISE,
        axiswise_dim=axis, round_scales_to_power_of_2=bool(pow2))
    # addmm_float8_unwrapped gives the product the reciprocal.
    return y._data, y._scale.reciprocal()


def by_mx(x, to, rows, columns, pow2):
    mode = ScaleCalculationMode.RCEIL if pow2 == 1 else ScaleCalculationMode.FLOOR
    turn = (lambda t: t.t().contiguous()) if rows > 1 else (lambda t: t)
    scale, q = to_mx(turn(x), TORCH[to], 32, mode)
    return turn(q.view(torch.uint8)), turn(scale.view(torch.uint8))


def by_blocks(x, to, rows, columns, pow2):
    quantize = {(1, 128): torch_blockwise_scale_act_quant_lhs,
                (128, 1): torch_blockwise_scale_act_quant_rhs,
                (128, 128): torch_blockwise_scale_weight_quant}[rows, columns]
    return quantize(x)


def main():
    out = {}

    def add(name, x, make, rows, columns, to, pow2, scale_to=FLOAT):
        q, scale = make(x, to, rows, columns, pow2)
        rule = f"{name}.{rows}x{columns}.{to}.{pow2}.{scale_to}"
        out[f"{rule}.q"] = q.contiguous().view(torch.uint8)
        out[f"{rule}.scale"] = scale.contiguous()

    for name, x in tensors().items():
        out[f"{name}.x"] = x
        if name == "blocks":
            continue
        for to in (E4M3, E5M2):
            for pow2 in (0, 1):
                add(name, x, by_training_tensor, 0, 0, to, pow2)
                add(name, x, by_training_tensor, 1, 0, to, pow2)
                if x.dim() == 2:
                    add(name, x, by_training_tensor, 0, 1, to, pow2)
    x = out["blocks.x"]
    for rows, columns in ((1, 32), (32, 1)):
        for to in (E4M3, E5M2):
            for pow2 in (1, 2):
                add("blocks", x, by_mx, rows, columns, to, pow2, E8M0)
    for rows, columns in ((1, 128), (128, 1), (128, 128)):
        add("blocks", x, by_blocks, rows, columns, E4M3, 0)
    numpy.savez_compressed(pathlib.Path(__file__).parent / "torchao.npz",
                            **{k: v.numpy() for k, v in out.items()})


main()
