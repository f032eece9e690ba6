# SPDX-License-Identifier: Apache-2.0
"""Mutants of providers/cpu/."""
from mutant import M, providers

MUTANTS = (
    M("amax: the last thread's counts", "providers/cpu/amax_meter.h",
      "meter_.to_->Add(seen_);", "*meter_.to_ = seen_;", providers("*Amax*")),
    M("amax: the last run's counts too", "providers/cpu/amax_meter.h",
      "to_ = new (cell) Amax;",
      "to_ = reinterpret_cast<Amax*>(cell);", providers("*Amax*")),
    M("amax: the first piece of each task", "providers/cpu/elementwise.h",
      "AmaxMeter::Part(*meter).Add(*result++ + at, last - at);",
      "AmaxMeter::Part(*meter).Add(*result++ + begin, last - at);",
      providers("*Amax*")),
    M("arguments: a choice counts from the end", "providers/cpu/arguments.cc",
      "static_cast<size_t>(found - names.begin());",
      "static_cast<size_t>(names.end() - found - 1);", providers("Pad.*:Resize.*")),
    M("arguments: any shape will do", "providers/cpu/arguments.cc",
      "Check(x.dtype() == dtype && x.shape() == shape, \"[\", ctx.Where(),",
      "Check(x.dtype() == dtype, \"[\", ctx.Where(),", providers("Arguments.*")),
    M("arguments: indices before the first", "providers/cpu/arguments.h",
      "if (index < -size || index >= size) [[unlikely]] {",
      "if (index >= size) [[unlikely]] {", providers("Arguments.*")),
    M("broadcast: a repeated axis moves on", "providers/cpu/broadcast.cc",
      "if (shape[i] != 1) strides[missing + i] = own[i];",
      "strides[missing + i] = own[i];", providers("Expand.*:*Attention*")),
)
