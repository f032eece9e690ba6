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
      "parts[i]->Add(out[i], n);",
      "if (at == begin) parts[i]->Add(out[i], n);", providers("*Amax*")),
    M("amax: measured before numbers are rounded",
      "providers/cpu/amax_meter.h",
      "RoundFloats(meter_.narrow_, &seen_.finite, &seen_.finite, 1);", "",
      providers("*NarrowKernels*")),
    M("stored: a block is read from the start",
      "providers/cpu/math/narrow_floats.h",
      "static_cast<const uint16_t*>(x) + at, buffer, n);",
      "static_cast<const uint16_t*>(x), buffer, n);",
      providers("*NarrowKernels*")),
    M("stored: a result is not rounded", "providers/cpu/stored.h",
      "        NarrowFloats(dtype_, buffer,", "        if (n < 0) NarrowFloats(dtype_, buffer,",
      providers("*NarrowKernels*")),
)
