// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/narrow_floats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "onnx_fp8/float8.h"
#include "tests/providers/cpu/isas.h"

namespace onnx_fp8 {
namespace {

// Floats of all exponents and signs, near ties, subnormals, Inf and NaN.
std::vector<float> FloatsOfAllSizes() {
  std::vector<float> floats;
  for (uint32_t top = 0; top < 0x10000; ++top) {
    for (uint32_t low : {0x0000u, 0x0FFFu, 0x1000u, 0x1001u, 0x3000u, 0x7FFFu,
                         0x8000u, 0x8001u, 0xFFFFu}) {
      floats.push_back(std::bit_cast<float>(top << 16 | low));
    }
  }
  return floats;
}

TEST(NarrowFloats, AllInstructionSetsRoundAsEncode) {
  std::vector<float> x = FloatsOfAllSizes();
  auto n = static_cast<int64_t>(x.size());
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    std::vector<uint16_t> b(x.size()), h(x.size());
    NarrowFloats(DType::kBFloat16, x.data(), b.data(), n);
    NarrowFloats(DType::kFloat16, x.data(), h.data(), n);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(b[i], EncodeBFloat16(x[i]).bits) << x[i] << " " << Name(isa);
      ASSERT_EQ(h[i], EncodeFloat16(x[i]).bits) << x[i] << " " << Name(isa);
    }
  }
}

TEST(NarrowFloats, AllInstructionSetsWidenAsDecode) {
  std::vector<uint16_t> codes(0x10000);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint16_t>(i);
  }
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    std::vector<float> b(codes.size()), h(codes.size());
    auto n = static_cast<int64_t>(codes.size());
    WidenFloats(DType::kBFloat16, codes.data(), b.data(), n);
    WidenFloats(DType::kFloat16, codes.data(), h.data(), n);
    for (size_t i = 0; i < codes.size(); ++i) {
      auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
      ASSERT_EQ(bits(b[i]), bits(Decode(BFloat16{codes[i]}))) << i;
      ASSERT_EQ(bits(h[i]), bits(Decode(Float16{codes[i]}))) << i;
      ASSERT_EQ(bits(KeptBFloat16{codes[i]}), bits(b[i])) << i;
      ASSERT_EQ(bits(KeptFloat16{codes[i]}), bits(h[i])) << i;
    }
  }
}

TEST(NarrowFloats, RoundsInPlace) {
  std::vector<float> x = FloatsOfAllSizes(), y = x;
  auto n = static_cast<int64_t>(x.size());
  RoundFloats(DType::kBFloat16, y.data(), y.data(), n);
  for (size_t i = 0; i < x.size(); ++i) {
    float want = Decode(EncodeBFloat16(x[i]));
    ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(want));
  }
}

}  // namespace
}  // namespace onnx_fp8
