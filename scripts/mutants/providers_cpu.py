# SPDX-License-Identifier: Apache-2.0
"""Mutants of providers/cpu/."""
from mutant import M, cpu

MUTANTS = (
    M("amax: the last thread's counts", "providers/cpu/amax_meter.h",
      "meter_.to_->Add(seen_);", "*meter_.to_ = seen_;", cpu("*Amax*")),
    M("amax: the last run's counts too", "providers/cpu/amax_meter.h",
      "if (to_) *to_ = {};", "if (to_ && false) *to_ = {};", cpu("*Amax*")),
    M("amax: the first piece of each task", "providers/cpu/elementwise.h",
      "AmaxMeter::Part(*meter).Add(*result++ + at, last - at);",
      "AmaxMeter::Part(*meter).Add(*result++ + begin, last - at);",
      cpu("*Amax*")),
    M("arguments: a choice counts from the end", "providers/cpu/arguments.cc",
      "static_cast<size_t>(found - names.begin());",
      "static_cast<size_t>(names.end() - found - 1);", cpu("Pad.*:Resize.*")),
    M("arguments: any shape will do", "providers/cpu/arguments.cc",
      "Check(x.dtype() == dtype && x.shape() == shape, \"[\", c.Where(),",
      "Check(x.dtype() == dtype, \"[\", c.Where(),", cpu("Arguments.*")),
    M("arguments: indices before the first", "providers/cpu/arguments.h",
      "if (index < -size || index >= size) [[unlikely]] {",
      "if (index >= size) [[unlikely]] {", cpu("Arguments.*")),
    M("broadcast: a repeated axis moves on", "providers/cpu/broadcast.cc",
      "if (shape[i] != 1) strides[missing + i] = own[i];",
      "strides[missing + i] = own[i];", cpu("Expand.*:*Attention*")),
)
