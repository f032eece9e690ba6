// SPDX-License-Identifier: Apache-2.0
//
// Some kernels can write a result into the memory of an operand. The result
// must be the same as in memory of its own.
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/kernel.h"
#include "providers/plan/plan.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

struct RowOp {
  const char* op;
  const char* domain;
  std::vector<Shape> inputs, outputs;
  Attributes attributes = {};
  size_t labels = 99;  // the operand that is int64
};

const Shape kX = {5, 300}, kRow = {300}, kColumn = {5, 1}, kRows = {5};

std::vector<RowOp> RowOps() {
  Attributes axis = {{"axis", int64_t{-1}}};
  Attributes norm = {{"axis", int64_t{-1}}, {"epsilon", 1e-5f}};
  Attributes ignore = {{"ignore_index", int64_t{3}}};
  return {
      {"CrossEntropyGrad", kDomain, {{}, kX, kRows, kRows}, {kX}, ignore, 3},
      {"CrossEntropyWithGrad", kDomain, {{}, kX, kRows}, {{}, kX}, ignore, 2},
      // One row may lie where a bias does; all have several layers of depth.
      {"Gemm", "", {{5, 1300}, {1300, 7}, {5, 7}}, {{5, 7}}},
      {"Gemm", "", {{1, 1300}, {1300, 7}, {7}}, {{1, 7}}},
      {"Gemm",
       "",
       {{5, 1300}, {1300, 7}, {5, 7}},
       {{5, 7}},
       {{"alpha", 0.5f}, {"beta", -3.0f}}},
      {"LayerNormalization", "", {kX, kRow, kRow}, {kX, kColumn, kColumn}},
      {"RMSNormalization", "", {kX, kRow}, {kX}},
      {"RMSNorm", kDomain, {kX, kRow}, {kX}, norm},
      {"LayerNormGrad",
       kDomain,
       {kX, kX, kRow, kColumn, kColumn},
       {kX, kRow, kRow},
       axis},
      {"RMSNormGrad", kDomain, {kX, kX, kRow}, {kX, kRow}, norm},
      {"Softmax", "", {kX}, {kX}, axis},
      {"Softmax", "", {kX}, {kX}, {{"axis", int64_t{0}}}},
      {"LogSoftmax", "", {kX}, {kX}, axis},
      {"SoftmaxGrad", kDomain, {kX, kX}, {kX}, axis},
      {"SoftmaxGrad", kDomain, {kX, kX}, {kX}, {{"axis", int64_t{0}}}},
  };
}

Tensor Random(const Shape& shape, uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = static_cast<float>(
        RandomUniform(seed, static_cast<uint64_t>(i)) * 2 - 1);
  }
  return t;
}

// The results; one of them may lie in the memory of an operand.
std::vector<Tensor> Results(const RowOp& c, const KernelEntry& entry,
                            std::pair<int, int> shared) {
  Graph graph;
  std::vector<Value*> values;
  std::vector<Tensor> inputs, outputs;
  std::vector<std::string> names;
  for (const Shape& shape : c.inputs) {
    bool labels = inputs.size() == c.labels;
    inputs.push_back(labels ? Tensor::Ints({3, 0, 299, 150, 3})
                            : Random(shape, inputs.size()));
    values.push_back(graph.AddInput("x" + std::to_string(inputs.size()),
                                    inputs.back().dtype(), shape));
  }
  for (const Shape& shape : c.outputs) {
    outputs.push_back(Tensor::Zeros(DType::kFloat, shape));
    names.push_back("y" + std::to_string(outputs.size()));
  }
  if (shared.first >= 0) {
    auto result = static_cast<size_t>(shared.second);
    outputs[result] =
        inputs[static_cast<size_t>(shared.first)].Reshaped(c.outputs[result]);
  }
  Node* node = graph.AddNode(c.op, values, names, c.attributes, c.domain);
  for (size_t i = 0; i < outputs.size(); ++i) {
    node->out(i)->dtype = DType::kFloat;
    node->out(i)->shape = c.outputs[i];
  }
  KernelContext context(*node, inputs, outputs);
  entry.kernel(context);
  return outputs;
}

TEST(InPlace, RowKernelsGiveTheSame) {
  for (const RowOp& c : RowOps()) {
    const KernelEntry* entry = CpuKernels().Find(c.domain, c.op);
    ASSERT_NE(entry, nullptr) << c.op;
    EXPECT_FALSE(entry->traits.in_place.empty()) << c.op;
    std::vector<Tensor> apart = Results(c, *entry, {-1, -1});
    for (auto pair : entry->traits.in_place) {
      std::vector<Tensor> together = Results(c, *entry, pair);
      for (size_t i = 0; i < apart.size(); ++i) {
        EXPECT_TRUE(Identical(apart[i], together[i]))
            << c.op << " on operand " << pair.first << ", result " << i;
      }
    }
  }
}

TEST(InPlace, WhereTakesTheMemoryOfEitherValue) {
  for (const char* operands : {"(c, a, x)", "(c, x, a)"}) {
    auto graph = ParseGraph(Concat(R"(
input c: bool[64]
input x: float[64]
a: float[64] = Exp(x)
y: float[64] = Where)",
                                   operands, R"(
z: float[64] = Cast<to=1>(y)
output z
)"));
    EXPECT_EQ(MakePlan(*graph, CpuKernels()).arena_bytes, 64 * sizeof(float))
        << operands;
  }
}

}  // namespace
}  // namespace onnx_fp8
