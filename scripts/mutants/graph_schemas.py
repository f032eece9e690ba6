# SPDX-License-Identifier: Apache-2.0
"""Mutants of graph/schemas/."""
from mutant import M, providers, python, training

MUTANTS = (
    M("UpdateScale: the body ignores ok", "graph/schemas/quantize.cc",
      "roll = And(valid, ok)", "roll = Identity(valid)",
      providers("UpdateScale.*:Bodies.UpdateScale")),
    M("fused quantizers: the body does not round",
      "graph/schemas/fused_quantize.cc", "Cast <to: int = @round_to>",
      "Cast <to = 1>", providers("*FusedQuantizeBody*")),
    M("blocks: the body rounds powers of two down once more",
      "graph/schemas/quantize_block.cc",
      "$_fits = GreaterOrEqual(wanted, $_up)",
      "$_fits = Greater(wanted, $_up)", providers("QuantizeBlock.KernelEqualsBody")),
    M("blocks: the body forgets the format", "graph/schemas/quantize_block.cc",
      "unit = Where(is_e5m2, e5m2_unit, e4m3_unit)",
      "unit = Where(is_e5m2, e4m3_unit, e4m3_unit)",
      providers("QuantizeBlock.KernelEqualsBody")),
    M("blocks: the body swaps its axes", "graph/schemas/quantize_block.cc",
      "Concat<axis = 0>(i0_pair, missing_rows, missing_columns)",
      "Concat<axis = 0>(missing_rows, missing_columns, i0_pair)",
      python("block_bodies")),
    M("blocks: scales of any shape are taken",
      "graph/schemas/quantize_block.cc",
      "Check(!in->shape || MayBe(*in->shape, grid) ||",
      "Check(!in->shape || !in->shape->empty() ||", providers("BlockInference.*")),
    M("rotary: a body's gradient turns forward", "graph/schemas/rotary.cc",
      "across = Concat <axis = -1> (u2, minus_u1)",
      "across = Concat <axis = -1> (minus_u1, u2)", providers("*Body*"), training("*Body*")),
)
