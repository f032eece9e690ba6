// SPDX-License-Identifier: Apache-2.0
//
// Masters that are kept as bfloat16s with a correction have the CPU's bits.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/random.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// Any bits, NaN's too. The last element has no three others beside it.
Tensor AnyBits() {
  Tensor x = Tensor::Allocate(DType::kFloat, {1501});
  for (int64_t i = 0; i < x.size(); ++i) {
    const uint64_t bits = RandomBits(1, static_cast<uint64_t>(i)) >> 32;
    x.data<float>()[i] = std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
  const uint32_t ends[] = {0,          0x80000000, 1,          0x8000FFFF,
                           0x7F7F8000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
                           0xFF800000, 0x7FC00000, 0x7F800001, 0x3F80FFFF,
                           0x3F808000, 0x3F818000, 0x3F800180, 0x00007FFF};
  std::memcpy(x.raw(), ends, sizeof ends);
  return x;
}

TEST(CudaMasters, AreTheCpus) {
  for (int correction : {3, 5}) {
    const std::string type = correction == 3 ? "int8" : "int16";
    const std::string text = Concat(
        "input x: float[1501]\n", "h: bfloat16[1501], c: ", type,
        "[1501] = onnx_fp8.EncodeMaster<correction=", correction, ">(x)\n",
        "y: float[1501] = onnx_fp8.DecodeMaster<correction=", correction,
        ">(h, c)\n");
    auto graph = [&] {
      std::shared_ptr<Graph> made = ParseGraph(text);
      made->outputs = {made->Find("h"), made->Find("c"), made->Find("y")};
      return made;
    };
    ExpectCpusBytes(graph(), graph(), {{"x", AnyBits()}}, type);
  }
}

}  // namespace
}  // namespace onnx_fp8
