# SPDX-License-Identifier: Apache-2.0
"""The bodies of the block-scaled FP8 ops in onnx.reference and stock
onnxruntime, against our kernels: codes, scales and amax bit for bit, products
to the bound of an fp32 sum. Both engines read and write float8e8m0 (onnx
1.19, onnxruntime 1.31), from opset 24 on."""

import numpy as np
import pytest
from test_quantize_bodies import (DOMAIN, E4M3, E5M2, INPUTS, Q_MAX, Runner,  # noqa: F401
                                  assert_all_same, bodies, make, quantized, same_bits)

FLOAT, E8M0 = 1, 24
# Rows, columns (0: all); 1x32 and 32x1 are those of the MX formats.
BLOCKS = [(0, 0), (1, 0), (0, 1), (1, 128), (128, 1), (128, 128), (1, 32), (32, 1), (3, 7)]
# (pow2, scale_to)
RULES = [(0, FLOAT), (1, FLOAT), (2, FLOAT), (1, E8M0), (2, E8M0)]


def block_of(size, block):
    """The block of each position of an axis, and how many there are."""
    at = np.arange(size) // block if block else np.zeros(size, int)
    return at, -(-size // block) if block else 1


def factors_of(x, rows, columns, to, pow2):
    """One factor for each block, by the formulas; and the amax."""
    finite = np.where(np.isfinite(x), np.abs(x), np.float32(0))
    (r, down), (c, across) = block_of(x.shape[0], rows), block_of(x.shape[1], columns)
    a = np.zeros((down, across), np.float32)
    np.maximum.at(a, (r[:, None], c[None, :]), finite)
    v = np.maximum(a, np.float32(1e-12))
    factor = (Q_MAX[to] / v.astype(np.float64)).astype(np.float32)
    if pow2 == 1:
        factor = np.exp2(np.frexp(factor)[1] - 1).astype(np.float32)
    elif pow2 == 2:
        emax = 8 if to == E4M3 else 15
        factor = np.exp2(emax - (np.frexp(v)[1] - 1)).astype(np.float32)
    amax = finite.max() if np.isfinite(x).all() else np.float32(np.inf)
    return factor, factor[r[:, None], c[None, :]], amax


@pytest.mark.parametrize("pow2,scale_to", RULES)
@pytest.mark.parametrize("rows,columns", BLOCKS)
def test_quantize_block(tmp_path, bodies, rows, columns, pow2, scale_to):
    to = [E4M3, E5M2][(rows + columns + pow2) % 2]
    blocks = f"block_rows = {rows}, block_columns = {columns}"
    graph = f"""g (float[R,C] x) => (float[R,C] y, float[A,B] s, float amax, float[R,C] back) {{
      q, scale, amax = {DOMAIN}.QuantizeBlock<to = {to}, q_max = {Q_MAX[to]}, {blocks}, pow2 = {pow2},
                                              scale_to = {scale_to}>(x)
      y = Cast<to = 1>(q)
      s = Cast<to = 1>(scale)
      back = {DOMAIN}.DequantizeBlock<{blocks}>(q, scale) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeBlock", "DequantizeBlock"], opset=24 if scale_to == E8M0 else 19)
    kinds = INPUTS if (rows, columns) in [(1, 0), (3, 7)] else ["special", "nan"]
    for shape, kind in [((130, 257), "special"), ((5, 1), "normal"), *(((9, 35), k) for k in kinds)]:
        x = make(shape, kind)
        ours = assert_all_same(runner.run(x=x))
        factor, spread, amax = factors_of(x, rows, columns, to, pow2)
        scale = np.float32(1) / factor
        assert same_bits(ours["y"], quantized(x, spread, to)), kind
        assert same_bits(ours["s"], scale) and ours["amax"] == amax, kind
        (r, _), (c, _) = block_of(shape[0], rows), block_of(shape[1], columns)
        assert same_bits(ours["back"], ours["y"] * scale[r[:, None], c[None, :]]), kind


def test_leading_axes_are_one(tmp_path, bodies):
    attributes = f"to = {E4M3}, q_max = 448.0, block_rows = 4, block_columns = 8, pow2 = 0, scale_to = 1"
    graph = f"""g (float[P,Q,C] x) => (float[P,Q,C] y, float[A,B] s, float amax) {{
      q, s, amax = {DOMAIN}.QuantizeBlock<{attributes}>(x)
      y = Cast<to = 1>(q) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeBlock"])
    x = make((2, 3, 17), "special")
    ours = assert_all_same(runner.run(x=x))
    _, spread, _ = factors_of(x.reshape(6, 17), 4, 8, E4M3, 0)
    assert ours["s"].shape == (2, 3)
    assert same_bits(ours["y"], quantized(x.reshape(6, 17), spread, E4M3).reshape(x.shape))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)], ids=str)
@pytest.mark.parametrize("rows,columns", [(0, 0), (1, 0), (0, 1), (2, 3)])
def test_nothing_to_quantize(tmp_path, bodies, shape, rows, columns):
    scales = [block_of(n, b)[1] for n, b in zip(shape, (rows, columns))]
    attributes = f"to = {E4M3}, q_max = 448.0, block_rows = {rows}, block_columns = {columns}, pow2 = 1, scale_to = 1"
    graph = f"""g (float[R,C] x) => (float[R,C] y, float[A,B] s, float amax) {{
      q, s, amax = {DOMAIN}.QuantizeBlock<{attributes}>(x)
      y = Cast<to = 1>(q) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeBlock"])
    ours = assert_all_same(runner.run(x=np.zeros(shape, np.float32)))
    assert ours["y"].shape == shape and ours["s"].shape == tuple(scales) and ours["amax"] == 0
