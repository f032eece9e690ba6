# SPDX-License-Identifier: Apache-2.0
"""The bodies of CastStatistics and ProductStatistics in onnx.reference and stock onnxruntime, our kernels, and NumPy's
formulas."""
import numpy as np
import pytest
from test_quantize_bodies import DOMAIN, E4M3, E5M2, INPUTS, Q_MAX, Runner, bodies, make  # noqa: F401

EXACT = [0, 1, 2, 3, 4, 7, 9, 10, 11]  # all but the sums
LIMIT = {E4M3: 464.0, E5M2: 61440.0}  # half a step beyond the largest code


SUMS = [5, 6, 8]


def lines_of(squares, errors, *axes):
    """The rows (axis 1) and columns (0) that are not 0, and the sum of their noise over signal."""
    signal, noise = (np.concatenate([x.sum(axis) for axis in axes]) for x in (squares, errors))
    some = signal > 0
    return some.sum(), np.minimum(noise[some] / signal[some], 1).sum()


def formulas(x, code, scale, to):
    """`scale`: of each element."""
    x = x.astype(np.float64)
    finite = np.isfinite(x)
    size, some = np.abs(x), finite & (x != 0)
    squares = np.where(finite, x, 0)**2
    errors = np.where(finite, x - (code * scale).astype(np.float64), 0)**2
    return np.array([x.size, (x == 0).sum(), (some & (code == 0)).sum(),
                     (finite & (size > LIMIT[to] * scale.astype(np.float64))).sum(), (~finite).sum(),
                     squares.sum(), errors.sum(), *lines_of(squares, errors, 1), size[finite].max(initial=0), size[some].min(initial=np.inf),
                     scale.max()])


@pytest.mark.parametrize("rows, columns, pow2", [(0, 0, 0), (1, 0, 0), (1, 32, 2), (4, 4, 1)])
@pytest.mark.parametrize("to", [E4M3, E5M2])
def test_three_engines(tmp_path, bodies, to, rows, columns, pow2):  # noqa: F811
    blocks = f"block_rows = {rows}, block_columns = {columns}"
    graph = f"""g (float[R,C] x) => (float[R,C] code, float[A,B] scale, double[12] y) {{
      q, scale, amax = {DOMAIN}.QuantizeBlock<to = {to}, q_max = {Q_MAX[to]}, {blocks}, pow2 = {pow2}, scale_to = 1>(x)
      code = Cast<to = 1>(q)
      y = {DOMAIN}.CastStatistics<q_max = {Q_MAX[to]}, limit = {LIMIT[to]}, {blocks}>(x, q, scale) }}"""
    runner = Runner(tmp_path, bodies, graph, ["QuantizeBlock", "DequantizeBlock", "CastStatistics"])
    for kind in INPUTS:
        x = make((9, 65), kind)
        with np.errstate(all="ignore"):
            results = runner.run(x=x)
            at = np.arange(9) // (rows or 9), np.arange(65) // (columns or 65)
            ours = results[2]
            expected = formulas(x, ours["code"], ours["scale"][np.ix_(*at)], to)
        for engine in results:
            np.testing.assert_array_equal(engine["y"][EXACT], expected[EXACT], err_msg=kind)
            np.testing.assert_allclose(engine["y"][SUMS], expected[SUMS], rtol=1e-12, err_msg=kind)


def test_products_in_three_engines(tmp_path, bodies):  # noqa: F811
    graph = f"""g (float[R,C] x, float[R,C] other) => (double[12] y) {{
      y = {DOMAIN}.ProductStatistics(x, other) }}"""
    runner = Runner(tmp_path, bodies, graph, ["ProductStatistics"])
    for kind in INPUTS:
        x, other = make((9, 65), kind), make((9, 65), "normal")
        with np.errstate(all="ignore"):
            results = runner.run(x=x, other=other)
            x, other = (np.where(np.isfinite(other), x, np.nan).astype(np.float64), other.astype(np.float64))
            finite = np.isfinite(x)
            size, some = np.abs(x), finite & (x != 0)
            squares, errors = np.where(finite, x, 0)**2, np.where(finite, x - other, 0)**2
            expected = np.array([x.size, (x == 0).sum(), (some & (other == 0)).sum(), 0, (~finite).sum(), squares.sum(),
                                 errors.sum(), *lines_of(squares, errors, 1, 0), size[finite].max(initial=0), size[some].min(initial=np.inf), 0])
        for engine in results:
            np.testing.assert_array_equal(engine["y"][EXACT], expected[EXACT], err_msg=kind)
            np.testing.assert_allclose(engine["y"][SUMS], expected[SUMS], rtol=1e-12, err_msg=kind)
