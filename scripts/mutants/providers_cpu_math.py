# SPDX-License-Identifier: Apache-2.0
"""Mutants of providers/cpu/math/."""
from mutant import M, providers

FLOAT8_KERNELS = providers("Float8Kernels.*")

MUTANTS = (
    M("kernels: a thread's amax is lost",
      "providers/cpu/math/float8_kernels.cc",
      "    Amax part = kernels.amax(x + begin, end - begin);\n"
      "    std::lock_guard<std::mutex> lock(mutex);\n"
      "    all.Add(part);",
      "    Amax part = kernels.amax(x + begin, end - begin);\n"
      "    std::lock_guard<std::mutex> lock(mutex);\n"
      "    all = part;", FLOAT8_KERNELS),
    M("amax: delayed scales see the first piece",
      "providers/cpu/math/float8_kernels.cc",
      "part.Add(amax_of(x + at, count));",
      "part.Add(amax_of(x + begin, count));", FLOAT8_KERNELS),
    M("kernels: subnormals have finer steps",
      "providers/cpu/math/float8_kernels.inc",
      "power = power > kMinNormal ? power : kMinNormal;", "", FLOAT8_KERNELS),
    M("kernels: NaN saturates", "providers/cpu/math/float8_kernels.inc",
      "code = Select(magnitude > static_cast<int32_t>(kInfBits), kNaN, code);",
      "", FLOAT8_KERNELS),
    M("kernels: amax ignores the last element",
      "providers/cpu/math/float8_kernels.inc",
      "for (int64_t i = 0; i < n; ++i) {\n"
      "    int32_t magnitude",
      "for (int64_t i = 0; i < n - 1; ++i) {\n"
      "    int32_t magnitude", FLOAT8_KERNELS),
    M("kernels: NaN is not flagged", "providers/cpu/math/float8_kernels.inc",
      "special |= finite ? 0 : 1;",
      "special |= magnitude == static_cast<int32_t>(kInfBits) ? 1 : 0;",
      FLOAT8_KERNELS),
)
