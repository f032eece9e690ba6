// SPDX-License-Identifier: Apache-2.0
// Compares KernelTraits::host_inputs with the names of operands in ONNX.
#include <gtest/gtest.h>
#include <onnx/defs/schema.h>

#include <set>

#include "graph/schemas.h"
#include "providers/cpu/cpu_provider.h"

namespace onnx_fp8 {
namespace {

namespace onnx = ONNX_NAMESPACE;

// ONNX's names of operands that decide sizes and shapes, and so the amount of
// work; none of them is used in the arithmetic.
const std::set<std::string> kSizes = {
    "shape", "axes",  "axis", "pads",   "starts",      "ends",       "steps",
    "limit", "delta", "K",    "k",      "split",       "repeats",    "start",
    "depth", "sizes", "roi",  "scales", "image_shape", "block_shape"};

TEST(HostInputs, AreTheOperandsThatSaySizes) {
  RegisterSchemas();
  int listed = 0;
  for (const auto& [name, entry] : CpuKernels().entries()) {
    const auto& [domain, op] = name;
    const onnx::OpSchema* schema =
        domain.empty() ? onnx::OpSchemaRegistry::Schema(op) : nullptr;
    if (!schema || entry.traits.view) continue;
    std::vector<size_t> wanted;
    for (size_t i = 0; i < schema->inputs().size(); ++i) {
      if (kSizes.contains(schema->inputs()[i].GetName())) wanted.push_back(i);
    }
    // The op has no other operand.
    if (op == "ConstantOfShape") wanted = {0};
    // Lengths decide which rows are copied where.
    if (op == "ReverseSequence") wanted = {1};
    EXPECT_EQ(entry.traits.host_inputs, wanted) << op;
    listed += static_cast<int>(wanted.size());
  }
  EXPECT_GT(listed, 20);
}

}  // namespace
}  // namespace onnx_fp8
