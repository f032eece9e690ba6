// SPDX-License-Identifier: Apache-2.0
//
// Ops of moments as codes: their kernels beside their bodies, in their place
// and on any number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "base/random.h"
#include "graph/moment_shapes.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/providers/cpu/body_runner.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

const Shape kShapesOfMoments[] = {{3, 300}, {2, 3, 128}, {40, 5},
                                  {2, 129}, {0, 200},    {3, 0}};

Attributes DrawsOfNode() {
  return {{"stream", int64_t{0xFFFFFFFF}},
          {"shift", int64_t{3}},
          {"row", int64_t{100}},
          {"stride", int64_t{1} << 31},
          {"begin", int64_t{7}}};
}

// Blocks of numbers of very different sizes; some elements are special.
Tensor WideFloats(const Shape& shape, bool is_square) {
  Tensor x = RandomNormal(shape, 5);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f,   -0.0f, 1e-40f, 1e6f,  kInf,
                           1e-20f, 1e30f, -kInf,  -1e-3f};
  for (int64_t i = 0; i < x.size(); ++i) {
    float& y = x.data<float>()[i];
    y *= std::exp(static_cast<float>(i * 37 % 97 - 48) / 6);
    if (i % 41 == 0) y = special[i / 41 % std::ssize(special)];
    if (i % 300 == 7) y = std::numeric_limits<float>::quiet_NaN();
    if (is_square) y = std::fabs(y);
  }
  return x;
}

// All codes but the negative NaN.
Tensor EveryCode(const Shape& shape) {
  Tensor codes = Tensor::Allocate(DType::kE4M3, shape);
  for (int64_t i = 0; i < codes.size(); ++i) {
    codes.data<E4M3>()[i].bits = static_cast<uint8_t>(i % 255);
  }
  return codes;
}

Tensor ScalesFor(const Shape& shape) {
  Tensor scales = RandomNormal(MomentScaleShape(shape), 6);
  for (int64_t i = 0; i < scales.size(); ++i) {
    scales.data<float>()[i] = std::fabs(scales.data<float>()[i]);
  }
  return scales;
}

std::vector<Tensor> EncodeOperands(const Shape& shape, bool is_square,
                                   bool ok) {
  std::vector<Tensor> operands = {WideFloats(shape, is_square),
                                  EveryCode(shape), ScalesFor(shape),
                                  Tensor::Scalar(ok)};
  if (is_square) {
    operands.push_back(Tensor::Scalar(int64_t{0x7234567890ABCDEF}));
    operands.push_back(Tensor::Scalar(int64_t{41}));
  }
  return operands;
}

const char* MomentEncoder(bool is_square) {
  return is_square ? "EncodeSecondMoment" : "EncodeMoment";
}

Attributes MomentAttributes(bool is_square) {
  return is_square ? DrawsOfNode() : Attributes{};
}

TEST(MomentOps, EqualTheirBodies) {
  for (const Shape& shape : kShapesOfMoments) {
    for (bool is_square : {false, true}) {
      for (bool ok : {true, false}) {
        ExpectBodyAndKernelAgree(MomentEncoder(is_square),
                                 EncodeOperands(shape, is_square, ok),
                                 MomentAttributes(is_square), 2);
      }
      ExpectBodyAndKernelAgree("DecodeMoment",
                               {EveryCode(shape), ScalesFor(shape)},
                               {{"squared", int64_t{is_square}}}, 1);
    }
  }
}

TEST(MomentOps, WithoutOkNothingChanges) {
  for (bool is_square : {false, true}) {
    const auto operands = EncodeOperands({3, 300}, is_square, false);
    const auto kept = RunNode(MomentEncoder(is_square), operands,
                              MomentAttributes(is_square), 2, kDomain);
    EXPECT_TRUE(Identical(kept[0], operands[1]));
    EXPECT_TRUE(Identical(kept[1], operands[2]));
  }
}

TEST(MomentOps, APositiveSquareHasAPositiveCode) {
  constexpr int64_t kElements = 256;
  std::vector<Tensor> operands = EncodeOperands({1, kElements}, true, true);
  for (int64_t i = 0; i < kElements; ++i) {
    operands[0].data<float>()[i] = i == 0 ? 1e12f : i % 2 == 0 ? 1e-30f : 0;
  }
  const auto kept =
      RunNode("EncodeSecondMoment", operands, DrawsOfNode(), 2, kDomain);
  for (int64_t i = 1; i < kMomentBlock; ++i) {
    EXPECT_EQ(kept[0].data<E4M3>()[i].bits > 0, i % 2 == 0) << i;
  }
}

// One threads' pieces begin where another one's end, and long tensors have
// many.
TEST(MomentOps, InPlaceAndAnyThreadCountGiveTheSameBits) {
  const int threads = NumThreads();
  for (const Shape& shape : {Shape{301, 130}, Shape{5000, 9}}) {
    for (bool is_square : {false, true}) {
      const auto operands = EncodeOperands(shape, is_square, true);
      const auto apart = RunNode(MomentEncoder(is_square), operands,
                                 MomentAttributes(is_square), 2, kDomain);
      std::vector<Tensor> inputs, outputs(2);
      for (const Tensor& t : operands) inputs.push_back(t.Clone());
      Graph graph;
      std::vector<Value*> values;
      for (const Tensor& t : inputs) {
        values.push_back(graph.AddInput(std::to_string(values.size()),
                                        t.dtype(), t.shape()));
      }
      const Node& node =
          *graph.AddNode(MomentEncoder(is_square), values, {"codes", "scale"},
                         MomentAttributes(is_square), kDomain);
      const KernelEntry* entry =
          CpuKernels().Find(kDomain, MomentEncoder(is_square));
      for (auto [in, out] : entry->traits.in_place) {
        outputs[static_cast<size_t>(out)] = inputs[static_cast<size_t>(in)];
      }
      SetNumThreads(3);
      KernelContext context(node, inputs, outputs);
      entry->kernel(context);
      SetNumThreads(threads);
      for (size_t i : {0, 1}) EXPECT_TRUE(Identical(outputs[i], apart[i]));
    }
  }
}

TEST(MomentOps, RefuseOperandsThatDoNotFit) {
  for (bool is_square : {false, true}) {
    const auto operands = EncodeOperands({2, 200}, is_square, true);
    const Attributes attributes = MomentAttributes(is_square);
    for (size_t i = 0; i < operands.size(); ++i) {
      for (const Tensor& wrong :
           {Tensor::Zeros(DType::kFloat, {5}), Tensor::Zeros(DType::kInt8, {}),
            Tensor::Zeros(DType::kE4M3, {2, 129})}) {
        std::vector<Tensor> given = operands;
        given[i] = wrong;
        EXPECT_NE(
            ErrorOf(MomentEncoder(is_square), given, attributes, 2, kDomain),
            "")
            << i;
      }
    }
  }
  EXPECT_NE(ErrorOf("DecodeMoment",
                    {EveryCode({2, 200}), Tensor::Zeros(DType::kFloat, {2, 1})},
                    {{"squared", int64_t{0}}}, 1, kDomain),
            "");
  EXPECT_NE(ErrorOf("DecodeMoment",
                    {EveryCode({200}), Tensor::Zeros(DType::kFloat, {2})},
                    {{"squared", int64_t{0}}}, 1, kDomain),
            "");
}

}  // namespace
}  // namespace onnx_fp8
