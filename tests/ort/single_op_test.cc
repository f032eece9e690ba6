// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/single_op.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "providers/cpu/cpu_provider.h"

namespace onnx_fp8 {
namespace {

using Lists = std::vector<std::vector<DType>>;

TEST(SingleOp, TypesOfResultsAreKnownWithoutANode) {
  for (const std::string& name : OpNames()) {
    bool runs = FindOp(name)->facts.kind != OpKind::kCollective &&
                CpuKernels().Find(kDomain, name);
    if (!runs) continue;
    for (const auto& list : ResultTypes(*FindOp(name))) {
      EXPECT_EQ(std::ranges::count(list, DType::kUndefined), 0) << name;
    }
  }
}

TEST(SingleOp, TypesOfResults) {
  const DType f = DType::kFloat, d = DType::kDouble;
  EXPECT_EQ(ResultTypes(*FindOp("ScaledMatMul")), (Lists{{f}}));
  EXPECT_EQ(ResultTypes(*FindOp("QuantizeWith")),
            (Lists{{DType::kE4M3, f, f}, {DType::kE5M2, f, f}}));
  EXPECT_EQ(ResultTypes(*FindOp("EncodeMaster")),
            (Lists{{DType::kBFloat16, DType::kInt8},
                   {DType::kBFloat16, DType::kInt16}}));
  EXPECT_EQ(ResultTypes(*FindOp("DecodeMaster")), (Lists{{f}}));
  EXPECT_EQ(ResultTypes(*FindOp("UpdateAmax")), (Lists{{f}}));
  EXPECT_EQ(ResultTypes(*FindOp("GatherGrad"))[0], std::vector<DType>{f});
  EXPECT_EQ(ResultTypes(*FindOp("GatherGrad"))[1], std::vector<DType>{d});
}

}  // namespace
}  // namespace onnx_fp8
