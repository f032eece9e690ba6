# SPDX-License-Identifier: Apache-2.0
"""The bodies of the block-scaled FP8 ops in onnx.reference and stock
onnxruntime, compared with our kernels: codes, scales and amax bit for bit, products
within the bound of an fp32 sum. Both engines read and write float8e8m0 (onnx
1.20, onnxruntime 1.31), from opset 24 on."""

import numpy as np
import pytest
from test_quantize_bodies import (DOMAIN, E4M3, E5M2, INPUTS, Q_MAX, Runner,  # noqa: F401
                                  assert_all_same, bodies, make, quantized, same_bits)

FLOAT, E8M0 = 1, 24
# Rows, columns (0: all); 1x32 and 32x1 are the MX formats' blocks.
BLOCKS = [(0, 0), (1, 0), (0, 1), (1, 128), (128, 1), (128, 128), (1, 32), (32, 1), (3, 7)]
# (pow2, scale_to)
RULES = [(0, FLOAT), (1, FLOAT), (2, FLOAT), (1, E8M0), (2, E8M0)]


def block_of(size, block):
    """The block of each position of an axis, and the number of blocks."""
    at = np.arange(size) // block if block else np.zeros(size, int)
    return at, -(-size // block) if block else 1


def factors_of(x, rows, columns, to, pow2):
    """One factor for each block, by the formulas, and the amax."""
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


@pytest.mark.parametrize("pow2,scale_to", RULES)
@pytest.mark.parametrize("block", [0, 1, 7, 32, 128])
def test_quantize_columns(tmp_path, bodies, block, pow2, scale_to):
    """QuantizeBlock of the transpose."""
    to = [E4M3, E5M2][(block + pow2) % 2]
    attributes = f"to = {to}, q_max = {Q_MAX[to]}, block_rows = 1, block_columns = {block}, pow2 = {pow2}, scale_to = {scale_to}"
    graph = f"""g (float[P,Q,C] x) => (float[C,R] y, float[A,B] s, float amax) {{
      q, scale, amax, sums = {DOMAIN}.QuantizeColumns<{attributes}>(x)
      y = Cast<to = 1>(q)
      s = Cast<to = 1>(scale) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeColumns"], opset=24 if scale_to == E8M0 else 19)
    for shape in [(2, 65, 33), (1, 3, 1)]:
        x = make(shape, "special")
        ours = assert_all_same(runner.run(x=x))
        matrix = x.reshape(-1, shape[-1]).T
        factor, spread, amax = factors_of(matrix, 1, block, to, pow2)
        assert same_bits(ours["y"], quantized(matrix, spread, to))
        assert same_bits(ours["s"], np.float32(1) / factor) and ours["amax"] == amax


@pytest.mark.parametrize("block", [0, 32])
def test_quantize_block_transpose(tmp_path, bodies, block):
    """QuantizeBlock of x and of its transpose."""
    attributes = f"to = {E4M3}, q_max = 448.0, block_rows = 1, block_columns = {block}, pow2 = 1, scale_to = 1"
    graph = f"""g (float[P,Q,C] x) => (float[P,Q,C] y, float[A,B] s, float amax, float[C,R] t, float[D,E] u, float[C] sums) {{
      q, s, amax, q_transposed, u, sums = {DOMAIN}.QuantizeBlockTranspose<{attributes}>(x)
      y = Cast<to = 1>(q)
      t = Cast<to = 1>(q_transposed) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeBlock", "QuantizeColumns", "QuantizeBlockTranspose"])
    shape = (2, 65, 33)
    x = make(shape, "special")
    rows = x.reshape(-1, shape[-1])
    for results in runner.run(x=x):
        for codes, scales, matrix in [("y", "s", rows), ("t", "u", rows.T)]:
            factor, spread, amax = factors_of(matrix, 1, block, E4M3, 1)
            assert same_bits(results[codes].reshape(matrix.shape), quantized(matrix, spread, E4M3))
            assert same_bits(results[scales], np.float32(1) / factor) and results["amax"] == amax
    x = np.random.default_rng(1).integers(-99, 99, shape).astype(np.float32)  # all orders give the same sums
    assert same_bits(assert_all_same(runner.run(x=x))["sums"], x.sum((0, 1)))


def test_sums_of_columns(tmp_path, bodies):
    attributes = f"to = {E5M2}, q_max = 57344.0, block_rows = 1, block_columns = 0, pow2 = 0, scale_to = 1"
    graph = f"""g (float[P,Q,C] x) => (float[C] sums) {{
      q, scale, amax, sums = {DOMAIN}.QuantizeColumns<{attributes}>(x) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeColumns"])
    x = np.random.default_rng(1).integers(-99, 99, (2, 65, 33)).astype(np.float32)  # all orders give the same sums
    ours = assert_all_same(runner.run(x=x))
    assert same_bits(ours["sums"], x.sum((0, 1)))


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


# Blocks of a (as op(a) sees it: rows, depth), of b (depth, columns), pow2.
PRODUCTS = [
    ((1, 0), (0, 1), 0),
    ((1, 0), (0, 0), 1),
    ((1, 128), (128, 128), 0),
    ((1, 128), (128, 1), 0),
    ((1, 32), (32, 1), 2),
    ((5, 7), (3, 2), 0),
]


@pytest.mark.parametrize("a_blocks,b_blocks,pow2", PRODUCTS)
@pytest.mark.parametrize("trans_a,trans_b", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_scaled_matmul_block(tmp_path, bodies, a_blocks, b_blocks, pow2, trans_a, trans_b):
    to, scale_to = [(E4M3, FLOAT), (E4M3, FLOAT), (E5M2, E8M0)][pow2]
    a_blocks, b_blocks = a_blocks[:: -1 if trans_a else 1], b_blocks[:: -1 if trans_b else 1]
    bias, op = (", bias", "ScaledMatMulBlockBias") if trans_a == trans_b else ("", "ScaledMatMulBlock")

    def quantize(x, blocks):
        return f"""q{x}, s{x}, m{x} = {DOMAIN}.QuantizeBlock<to = {to}, q_max = {Q_MAX[to]}, block_rows = {blocks[0]},
                   block_columns = {blocks[1]}, pow2 = {pow2}, scale_to = {scale_to}>({x})
                   d{x} = {DOMAIN}.DequantizeBlock<block_rows = {blocks[0]}, block_columns = {blocks[1]}>(q{x}, s{x})"""

    graph = f"""g (float[A,B] a, float[C,D] b, float[N] bias) => (float[M,N] y, float[A,B] da, float[C,D] db) {{
      {quantize("a", a_blocks)}
      {quantize("b", b_blocks)}
      y = {DOMAIN}.{op}<transA = {trans_a}, transB = {trans_b},
          a_block_rows = {a_blocks[0]}, a_block_columns = {a_blocks[1]},
          b_block_rows = {b_blocks[0]}, b_block_columns = {b_blocks[1]}, role = "wgrad">(qa, sa, qb, sb{bias}) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeBlock", "DequantizeBlock", op], opset=24 if scale_to == E8M0 else 19)
    for m, k, n in [(9, 300, 17), (1, 1, 1), (33, 130, 5)]:
        a, b = make((k, m) if trans_a else (m, k), "special"), make((n, k) if trans_b else (k, n), "normal")
        z = make((n,), "special")
        results = runner.run(a=a, b=b, bias=z)
        x, w = (results[2][name].astype(np.float64) for name in ("da", "db"))
        x, w = x.T if trans_a else x, w.T if trans_b else w
        z = z.astype(np.float64) if bias else np.zeros(n)
        # Higham, Accuracy and Stability of Numerical Algorithms, (3.1), plus one
        # rounding of each operand, the scales, the scaled sum and the bias
        bound = (k + 5) * 2.0**-24 * (np.abs(x) @ np.abs(w) + np.abs(z))
        for result in results:
            assert result["y"].shape == (m, n)
            assert np.all(np.abs(result["y"] - (x @ w + z)) <= bound)
        for name in ("da", "db"):
            assert all(same_bits(r[name], results[2][name]) for r in results)


def test_a_scalar_meets_rows(tmp_path, bodies):
    graph = f"""g (float[M,K] a, float[N,K] b) => (float[M,N] y, float[M,K] fa, float[N,K] db) {{
      qa, sa, ma = {DOMAIN}.QuantizeTensor<to = {E5M2}, q_max = {Q_MAX[E5M2]}>(a)
      fa = {DOMAIN}.DequantizeBlock<block_rows = 0, block_columns = 0>(qa, sa)
      qb, sb, mb = {DOMAIN}.QuantizeBlock<to = {E4M3}, q_max = 448.0, block_rows = 1, block_columns = 0, pow2 = 0,
                                          scale_to = 1>(b)
      db = {DOMAIN}.DequantizeBlock<block_rows = 1, block_columns = 0>(qb, sb)
      y = {DOMAIN}.ScaledMatMulBlock<transA = 0, transB = 1, a_block_rows = 0, a_block_columns = 0,
                                     b_block_rows = 1, b_block_columns = 0>(qa, sa, qb, sb) }}"""
    ops = ["QuantizeTensor", "QuantizeBlock", "DequantizeBlock", "ScaledMatMulBlock"]
    results = Runner(tmp_path, bodies, graph, ops).run(a=make((7, 50), "normal"), b=make((9, 50), "special"))
    x, w = (results[2][name].astype(np.float64) for name in ("fa", "db"))
    for result in results:
        assert np.all(np.abs(result["y"] - x @ w.T) <= 55 * 2.0**-24 * (np.abs(x) @ np.abs(w.T)))
