# SPDX-License-Identifier: Apache-2.0
"""Mutants of providers/cpu/attention/."""
from mutant import M, providers

ATTENTION = providers("*Attention*")
PACKED = providers("*PackedMatrix*")

FORWARD = "providers/cpu/attention/forward.cc"
BACKWARD = "providers/cpu/attention/backward.cc"
ROWS = "providers/cpu/attention/rows.h"
MATRIX = "providers/cpu/gemm/packed_matrix.cc"

MUTANTS = (
    M("attention: rows see the next column", FORWARD,
      "int64_t first = z_.Columns(row + i + 1) - column;",
      "int64_t first = z_.Columns(row + i + 2) - column;", ATTENTION),
    M("attention: lse without the largest score", FORWARD,
      "return state.largest / kUnit<T> + std::log(state.total);",
      "return std::log(state.total);", ATTENTION),
    M("attention: results keep an old largest score", FORWARD,
      "if (column > 0) ScaleRows(y, count, z_.e, state);", "", ATTENTION),
    M("attention: a thread's packed keys are those of any group", FORWARD,
      "if (w.packed_call == call_ && w.packed_group == index) return;",
      "if (w.packed_call == call_) return;", ATTENTION),
    M("attention: packed keys of the call before", FORWARD,
      "if (w.packed_call == call_ && w.packed_group == index) return;",
      "if (w.packed_call > 0 && w.packed_group == index) return;", ATTENTION),
    M("attention: the bias of the first row", FORWARD,
      "bias + (row + i + r) * z_.bias_step[2] +", "bias +", ATTENTION),
    M("attention: the forward rounds nothing", FORWARD,
      "RoundRows(z_.round_to, powers.From(i), count, n);", "",
      providers("*Attention*")),
    M("attention: a row of -infinity is 0", ROWS,
      "T shift = largest == -std::numeric_limits<T>::infinity() ? 0 : largest;",
      "T shift = largest;", ATTENTION),
    M("attention: sums of rounded powers are not those of powers", ROWS,
      "state = {largest, state.total * factor + total, factor};",
      "state = {largest, state.total + total, factor};", ATTENTION),
    M("attention: the gradient lacks the scale", ROWS,
      "ds[j] = RoundedTo<E>(power * (dp[j] - along[j]) * scale);",
      "ds[j] = RoundedTo<E>(power * (dp[j] - along[j]) * (scale != 0));",
      ATTENTION),
    M("attention: hidden scores have a gradient", ROWS,
      "for (int64_t j = 0; j < seen; ++j) ds[j] = E{0};", "", ATTENTION),
    M("attention: operands of bfloat16 end in old numbers", ROWS,
      "int64_t end = kRounded<E> ? RoundUp(x.n, kLanes) : x.n;",
      "int64_t end = x.n;", ATTENTION),
    M("attention: operands of bfloat16 are not filled up",
      "providers/cpu/attention/operands.h",
      "std::fill(to + n, to + width, E{0});", "", ATTENTION),
    M("attention: heads of a group share no gradient", BACKWARD,
      "for (int64_t h = head + 1; h < stop; ++h) {",
      "for (int64_t h = head + 1; h < stop && false; ++h) {", ATTENTION),
    M("attention: a group that goes on forgets its first heads", BACKWARD,
      "if (head > g * repeats) {", "if (false) {", ATTENTION),
    M("attention: the first split is the whole of dq", BACKWARD,
      "s < splits_ && FirstRow(s * split_) <= row; ++s) {",
      "s < 1; ++s) {", ATTENTION),
    M("attention: a head reads the first group", BACKWARD,
      "ReadKeys(batch, head / z_.Repeats(), begin, end, w);",
      "ReadKeys(batch, 0, begin, end, w);", ATTENTION),
    M("attention: the backward's bias of the first key", BACKWARD,
      "(key + r) * z_.bias_step[3],", "key * z_.bias_step[3],", ATTENTION),
    M("packed matrix: a part begins at the first column", MATRIX,
      "column / kernels.columns * b_panel +", "0 * b_panel +", PACKED),
    M("packed matrix: a part begins at the first row", MATRIX,
      "(at - layer) * kernels.columns * size,", "0 * size,", PACKED),
    M("packed matrix: a turned operand of bfloat16 is read as it is", MATRIX,
      "bool packs = p.a.transposed && unit > 1;", "bool packs = false;",
      PACKED),
)
