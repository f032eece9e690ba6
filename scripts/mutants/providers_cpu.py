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
)
