# SPDX-License-Identifier: Apache-2.0
"""Mutants of providers/cpu/math/."""
from mutant import M, providers

FLOAT8_KERNELS = providers("Float8Kernels.*")

MUTANTS = (
    M("kernels: a thread's amax is lost",
      "providers/cpu/math/float8_kernels.cc",
      "    std::lock_guard<std::mutex> lock(mutex);\n"
      "    all.Add(part);",
      "    std::lock_guard<std::mutex> lock(mutex);\n"
      "    all = part;", FLOAT8_KERNELS),
    M("bfloat16: ties go up", "providers/cpu/math/narrow_floats.h",
      "bits + 0x7FFF + ((bits >> 16) & 1);", "bits + 0x8000;", providers("NarrowFloats.*")),
    M("bfloat16: numbers are cut", "providers/cpu/math/narrow_floats.h",
      "bits + 0x7FFF + ((bits >> 16) & 1);", "bits;",
      providers("NarrowFloats.*")),
    M("float16: subnormals are 0", "providers/cpu/math/narrow_floats.h",
      "magnitude < 0x38800000 ? small : normal;",
      "magnitude < 0x38800000 ? small & 0 : normal;", providers("NarrowFloats.*")),
    M("amax: delayed scales see the first piece",
      "providers/cpu/math/float8_kernels.cc",
      "part.Add(amax_of(block, n));\n                      encode",
      "if (at == 0) part.Add(amax_of(block, n));\n"
      "                      encode", FLOAT8_KERNELS),
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
