# SPDX-License-Identifier: Apache-2.0
"""More mutants of scripts/mutate.py: ops that several others became, what their
kernels measure, and which initializers are tables."""
from mutants import M, cpu, graph, training

AMAX = cpu("*Amax*")
BODIES = training("*Body*")
NORMS = graph("FuseNorms.*")
PACKED = cpu("*PackedMatrix*")
ROTARY = graph("FuseRotary.*")
TABLES = graph("TrainedParametersRule.*")

MUTANTS = (
    M("amax: the last thread's counts", "providers/cpu/amax_meter.h",
      "meter_.to_->Add(seen_);", "*meter_.to_ = seen_;", AMAX),
    M("amax: the last run's counts too", "providers/cpu/amax_meter.h",
      "if (to_) *to_ = {};", "if (to_ && false) *to_ = {};", AMAX),
    M("amax: the first piece of each task", "providers/cpu/elementwise.h",
      "AmaxMeter::Part(*meter).Add(*result++ + at, last - at);",
      "AmaxMeter::Part(*meter).Add(*result++ + begin, last - at);", AMAX),
    M("amax: of another result of the same kernel", "providers/plan.cc",
      "writer.out(output) != from.value) {",
      "writer.out(output) == nullptr) {", AMAX),
    M("amax: delayed scales see the first piece",
      "providers/cpu/float8_kernels.cc",
      "part.Add(amax_of(x + at, count));",
      "part.Add(amax_of(x + begin, count));", cpu("Float8Kernels.*")),
    M("packed matrix: deep layers start at the first row",
      "providers/cpu/gemm/packed_matrix.cc", ".b = panels_ + at * columns_ * 4,",
      ".b = panels_,", PACKED),
    M("packed matrix: panels follow each other too early",
      "providers/cpu/gemm/packed_matrix.cc",
      ".b_panel = layer * kernels.columns * 4,",
      ".b_panel = depth * kernels.columns * 4,", PACKED),
    M("rotary: sin of the other half", "providers/cpu/rotary.cc",
      "T s1 = kGrad ? sin[half + i] : -sin[i];",
      "T s1 = kGrad ? sin[i] : -sin[i];", BODIES),
    M("rotary: the first batch's angles", "providers/cpu/rotary.cc",
      "int64_t angles = cos.dim(0) * cos.dim(1);",
      "int64_t angles = cos.dim(1);", ROTARY),
    M("rotary: halves may be swapped", "graph/passes/fuse_rotary.cc",
      "return x && WholeOf(join->in(1), 0) == x ? x : nullptr;",
      "return x && (WholeOf(join->in(1), 0) == x || join->in(1) == minus->out(0))"
      " ? x : nullptr;", ROTARY),
    M("rotary: trained angles lose their gradient",
      "graph/passes/fuse_rotary.cc",
      "if (!axes || !fixed.Has(cos) || !fixed.Has(sin) ||",
      "if (!axes || (false && fixed.Has(cos)) ||", ROTARY),
    M("rotary: a body's gradient turns forward", "graph/schemas/rotary.cc",
      "across = Concat <axis = -1> (u2, minus_u1)",
      "across = Concat <axis = -1> (minus_u1, u2)", BODIES),
    M("dropout: one whose mask is read is removed",
      "graph/passes/inference_mode.cc",
      "if (!mask_read) {", "if (!mask_read || mask_read) {", graph("RemoveIdleDropout.*")),
    M("attention: a Slice of everything keeps heads repeated",
      "graph/passes/fuse_attention.cc", "Unsliced(expand->in(0));",
      "expand->in(0);", graph("FuseAttention.*")),
    M("swiglu: a gate that broadcasts", "graph/passes/fuse_activation.cc",
      "gate->shape != x->shape) {", "false) {", graph("FuseActivations.*")),
    M("swiglu: the gate has no gradient", "providers/cpu/activation.cc",
      "to_gate[i] = g * (v * s);", "to_gate[i] = g * v;", BODIES),
    M("norm: a sum that nobody else reads", "graph/passes/fuse_norm.cc",
      "x->uses.size() < 2 ||", "x->uses.empty() ||", NORMS),
    M("norm: a row is added to all rows", "graph/passes/fuse_norm.cc",
      "if (in[0]->shape != x->shape || in[1]->shape != x->shape) return;", "",
      NORMS),
    M("norm: what comes back for the sum is lost", "providers/cpu/norm.cc",
      "dx[i] = kAdd ? own + more[i] : own;",
      "dx[i] = kAdd ? own + 0 * more[i] : own;", BODIES),
    M("bias gradient: rows of the first block", "providers/cpu/activation.cc",
      "double* sum = sums + row / kBlock * n;", "double* sum = sums;\n"
      "        if (row >= kBlock) continue;", AMAX),
    M("bias gradient: any sum of rows", "graph/passes/fuse_bias_gradient.cc",
      "if (summed == all_but_last) return reader;", "return reader;",
      graph("FuseBiasGradients.*")),
    M("tables: scales of 1 are cosines", "graph/passes/fixed_tables.cc",
      "return n >= 8 && 2 * plain >= n;", "return n >= 8;", TABLES),
    M("tables: the first pair decides", "graph/passes/fixed_tables.cc",
      "if (!(std::fabs(a * a + b * b - 1) <= tolerance)) return false;",
      "if (i == 0 && !(std::fabs(a * a + b * b - 1) <= tolerance)) "
      "return false;", TABLES),
    M("tables: masks are trained", "graph/passes/fixed_tables.cc",
      "if (x <= -1e9 || std::isinf(x)) return true;", "(void)x;", TABLES),
)
