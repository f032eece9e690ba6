// SPDX-License-Identifier: Apache-2.0
//
// The op RoundStochastic: its kernel beside its body, and the draws of parts
// beside the draws of the whole.
#include "providers/cpu/math/round_stochastic.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "base/random.h"
#include "graph/builder.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/providers/cpu/body_runner.h"
#include "tests/providers/cpu/isas.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

// Floats of any bits but NaN's, which have many patterns; then the ends of the
// floats.
Tensor AnyFloats(int64_t n, uint64_t seed) {
  constexpr uint32_t kEnds[] = {
      0,          0x80000000, 1,          0x80000001, 0x7FFF,     0x8000,
      0xFFFF,     0x10000,    0x007FFFFF, 0x807FFFFF, 0x00800000, 0x00800001,
      0x7F7EFFFF, 0x7F7F0000, 0x7F7F0001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
      0xFF800000, 0x3F800000, 0x3F7FFFFF, 0x3F808000, 0xBF80FFFF, 0x3FFFFFFF};
  Tensor x = Tensor::Allocate(DType::kFloat, {n});
  for (int64_t i = 0; i < n; ++i) {
    auto bits =
        static_cast<uint32_t>(RandomBits(seed, static_cast<uint64_t>(i)) >> 32);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) bits = 0x3F804000;
    const int64_t end = n - 1 - i;
    if (end < static_cast<int64_t>(std::size(kEnds))) bits = kEnds[end];
    x.data<float>()[i] = std::bit_cast<float>(bits);
  }
  return x;
}

Attributes AttributesOf(uint32_t stream, const ElementPlaces& places) {
  return {{"stream", int64_t{stream}},
          {"shift", places.shift},
          {"row", places.run},
          {"stride", places.stride},
          {"begin", places.begin}};
}

std::vector<Tensor> InputsOf(const Tensor& x, int64_t seed, int64_t update) {
  return {x, Tensor::Scalar(seed), Tensor::Scalar(update)};
}

// The kernel's result for a node that was made for floats of the shape.
Tensor RunKernel(const Shape& shape, const std::vector<Tensor>& inputs,
                 const Attributes& attributes) {
  Graph graph;
  Builder b(graph);
  Value* y = b.Ours("RoundStochastic",
                    {graph.AddInput("x", DType::kFloat, shape),
                     graph.AddInput("seed", DType::kInt64, Shape{}),
                     graph.AddInput("update", DType::kInt64, Shape{})},
                    AttributesOf(0, {}));
  y->producer->attributes = attributes;
  return MakeCpuEvaluator()->Evaluate(*y->producer, inputs)[0];
}

Tensor Rounded(const Tensor& x, int64_t seed, int64_t update, uint32_t stream,
               const ElementPlaces& places) {
  return RunKernel(x.shape(), InputsOf(x, seed, update),
                   AttributesOf(stream, places));
}

// The result of the body.
Tensor RoundedByBody(const Tensor& x, int64_t seed, int64_t update,
                     uint32_t stream, const ElementPlaces& places) {
  return RunBody("RoundStochastic", InputsOf(x, seed, update),
                 AttributesOf(stream, places), 1)[0];
}

constexpr int64_t kFarPlace = int64_t{1} << 32;
constexpr ElementPlaces kPlaces[] = {
    {},
    {.shift = 12345},
    {.shift = kFarPlace - 50},
    {.begin = 3 * kFarPlace - 7},
    {.shift = 5, .run = 7, .stride = 21, .begin = 14},
    {.shift = 0, .run = 100, .stride = 100},
    {.shift = 3, .run = 1, .stride = kFarPlace / 4 + 1, .begin = 2},
    {.shift = 9, .run = 64, .stride = kFarPlace, .begin = kFarPlace - 32}};

TEST(RoundStochastic, TheKernelGivesTheBitsOfTheBody) {
  const Tensor x = AnyFloats(300, 1);
  uint64_t k = 0;
  for (const ElementPlaces& places : kPlaces) {
    const auto seed = static_cast<int64_t>(RandomBits(2, k) >> 1);
    const auto update = static_cast<int64_t>(RandomBits(3, k) >> 20);
    const auto stream = static_cast<uint32_t>(RandomBits(4, k++));
    EXPECT_TRUE(Identical(RoundedByBody(x, seed, update, stream, places),
                          Rounded(x, seed, update, stream, places)))
        << k;
  }
}

TEST(RoundStochastic, AShapeWithoutAxesAndOneWithoutElements) {
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{2, 3, 5}}) {
    const Tensor x = RandomNormal(shape, 1);
    const Tensor y = Rounded(x, 1, 2, 3, {});
    EXPECT_EQ(y.shape(), shape);
    EXPECT_TRUE(Identical(y, RoundedByBody(x, 1, 2, 3, {})));
  }
}

TEST(RoundStochastic, ANanStaysOne) {
  constexpr uint32_t kNans[] = {0x7F800001, 0x7F80FFFF, 0x7FC00000,
                                0xFF800001, 0xFFFFFFFF, 0x7FFFFFFF};
  std::vector<float> values;
  for (uint32_t bits : kNans) values.push_back(std::bit_cast<float>(bits));
  const Tensor x = Vector<float>(values);
  const Tensor kernel = Rounded(x, 1, 1, 1, {});
  const Tensor body = RoundedByBody(x, 1, 1, 1, {});
  for (int64_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(DoubleAt(kernel, i) != DoubleAt(kernel, i)) << i;
    EXPECT_TRUE(DoubleAt(body, i) != DoubleAt(body, i)) << i;
  }
}

// Element by element, in plain integers.
TEST(RoundStochastic, EachElementHasTheDrawOfItsPlace) {
  constexpr int64_t kCount = 3000;
  const Tensor x = AnyFloats(kCount, 5);
  for (const ElementPlaces& at : kPlaces) {
    const Tensor y = Rounded(x, 17, 4, 99, at);
    const auto* got = static_cast<const uint16_t*>(y.raw());
    const uint32_t key = DrawKey(17, 99, 4);
    for (int64_t i = 0; i < kCount; ++i) {
      const int64_t k = i + at.shift;
      const int64_t place = k / at.run * at.stride + at.begin + k % at.run;
      const uint32_t draw =
          DrawAt(DrawKeyOf(key, place), static_cast<uint32_t>(place));
      const auto bits = std::bit_cast<uint32_t>(x.data<float>()[i]);
      ASSERT_EQ(got[i], RoundBFloat16(bits, draw)) << i << " " << at.shift;
    }
  }
}

TEST(RoundStochastic, EachNumberThatGoesInDecides) {
  const Tensor x = RandomNormal({1000}, 1);
  const Tensor y = Rounded(x, 1, 2, 3, {});
  EXPECT_TRUE(Identical(y, Rounded(x, 1, 2, 3, {})));
  EXPECT_FALSE(Identical(y, Rounded(x, 2, 2, 3, {})));
  EXPECT_FALSE(Identical(y, Rounded(x, 1 + (int64_t{1} << 40), 2, 3, {})));
  EXPECT_FALSE(Identical(y, Rounded(x, 1, 3, 3, {})));
  EXPECT_FALSE(Identical(y, Rounded(x, 1, 2, 4, {})));
  EXPECT_FALSE(Identical(y, Rounded(x, 1, 2, 3, {.shift = 1})));
}

TEST(RoundStochastic, ABFloat16StaysAsItIs) {
  const Tensor x =
      ConvertTo(ConvertTo(AnyFloats(5000, 9), DType::kBFloat16), DType::kFloat);
  for (int64_t update = 0; update < 8; ++update) {
    const Tensor y = Rounded(x, 5, update, 6, {});
    EXPECT_TRUE(Identical(ConvertTo(y, DType::kFloat), x));
  }
}

TEST(RoundStochastic, AnyThreadCountAndInstructionSetGiveTheSameBits) {
  constexpr int64_t kLong = 200'003;
  const Tensor x = AnyFloats(kLong, 7);
  const ElementPlaces places{
      .shift = 11, .run = 1000, .stride = 3000, .begin = kFarPlace - 90'000};
  const Tensor want = Rounded(x, 1, 2, 3, places);
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    EXPECT_TRUE(Identical(Rounded(x, 1, 2, 3, places), want)) << Name(isa);
  }
  const int threads = NumThreads();
  SetNumThreads(3);
  EXPECT_TRUE(Identical(Rounded(x, 1, 2, 3, places), want));
  SetNumThreads(threads);
}

TEST(RoundStochastic, RefusesOperandsThatDoNotFit) {
  const Tensor x = Vector<float>({1, 2}), one = Tensor::Scalar(int64_t{1});
  auto run = [](const std::vector<Tensor>& inputs,
                const ElementPlaces& places) {
    RunKernel({2}, inputs, AttributesOf(1, places));
  };
  EXPECT_NO_THROW(run({x, one, one}, {}));
  EXPECT_THROW(run({ConvertTo(x, DType::kDouble), one, one}, {}), Error);
  EXPECT_THROW(run({x, Tensor::Scalar(1.0f), one}, {}), Error);
  EXPECT_THROW(run({x, one, Vector<int64_t>({1, 2})}, {}), Error);
  EXPECT_THROW(run({x, one}, {}), Error);
  EXPECT_THROW(run({x, one, one}, {.shift = -1}), Error);
  EXPECT_THROW(run({x, one, one}, {.run = 0}), Error);
  EXPECT_THROW(run({x, one, one}, {.stride = -1}), Error);
  EXPECT_THROW(run({x, one, one}, {.begin = -1}), Error);
}

TEST(RoundStochastic, TheSchemaSaysShapeAndDType) {
  const Attributes attributes = AttributesOf(1, {});
  const OperandFacts seed = {DType::kInt64, Shape{}};
  EXPECT_EQ(Inferred("RoundStochastic",
                     {{DType::kFloat, Shape{2, 3}}, seed, seed}, attributes, 1),
            std::vector<std::string>{"bfloat16[2,3]"});
  for (const OperandFacts& wrong : {OperandFacts{DType::kDouble, Shape{2}},
                                    OperandFacts{DType::kBFloat16, Shape{2}}}) {
    EXPECT_THROW(
        Inferred("RoundStochastic", {wrong, seed, seed}, attributes, 1), Error);
  }
  const OperandFacts two = {DType::kInt64, Shape{2}};
  const OperandFacts x = {DType::kFloat, Shape{2}};
  EXPECT_THROW(Inferred("RoundStochastic", {x, two, seed}, attributes, 1),
               Error);
  EXPECT_THROW(Inferred("RoundStochastic", {x, seed, two}, attributes, 1),
               Error);
}

}  // namespace
}  // namespace onnx_fp8
