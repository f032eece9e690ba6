// SPDX-License-Identifier: Apache-2.0
//
// Compares the FP8 ops' kernels with their bodies, both on the CPU provider.
// (Other engines run the bodies in tests/python/test_quantize_bodies.py.)
#include <gtest/gtest.h>

#include "base/check.h"
#include "onnx_fp8/float8.h"
#include "tests/providers/cpu/body_runner.h"
#include "tests/providers/cpu/fp8/quantization.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

std::vector<Tensor> ManyTensors() {
  std::vector<Tensor> all;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 5, 7}, Shape{0, 2}}) {
    all.push_back(RandomNormal(shape, 1));
  }
  for (float special :
       {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, 1e-40f, 3e38f, 1e-13f}) {
    Tensor t = RandomNormal({4, 9}, 2);
    t.data<float>()[7] = special;
    all.push_back(t);
    all.push_back(Tensor::From<float>({2}, std::vector<float>(2, special)));
  }
  return all;
}

TEST(Bodies, QuantizeTensorAndQuantizeWith) {
  for (const Tensor& x : ManyTensors()) {
    for (DType format : {DType::kE4M3, DType::kE5M2}) {
      ExpectBodyAndKernelAgree("QuantizeTensor", {x}, QuantizeTo(format), 3);
      for (float scale : {0.0f, 1.0f / 3, 0x1p-126f, 1e30f}) {
        ExpectBodyAndKernelAgree("QuantizeWith", {x, Tensor::Scalar(scale)},
                                 QuantizeTo(format), 3);
      }
    }
  }
}

TEST(Bodies, AmaxAndQuantizeAmax) {
  for (const Tensor& x : ManyTensors()) {
    ExpectBodyAndKernelAgree("Amax", {x}, {}, 1);
    for (DType format : {DType::kE4M3, DType::kE5M2}) {
      for (float amax : {0.0f, 3.7f, 1e-40f, kInfinity}) {
        for (float scale : {0.0f, 1.0f / 3}) {
          ExpectBodyAndKernelAgree(
              "QuantizeAmax", {x, Tensor::Scalar(amax), Tensor::Scalar(scale)},
              QuantizeTo(format), 2);
        }
      }
    }
  }
}

TEST(Bodies, UpdateScale) {
  for (int64_t h : {1, 2, 5}) {
    constexpr int64_t kSlots = 9;
    Tensor amax = Tensor::From<float>(
        {kSlots}, std::vector<float>{0, kInfinity, kNaN, 1e-45f, 1e-38f, 3e38f,
                                     7, 0.1f, 4});
    Tensor history = RandomNormal({h, kSlots}, 3);
    for (int64_t i = 0; i < history.size(); ++i) {
      float& x = history.data<float>()[i];
      if (x < 0) x = -x;
    }
    history.data<float>()[history.size() - 1] = kInfinity;
    history.data<float>()[history.size() - 2] = kNaN;
    Tensor scale = Tensor::From<float>({kSlots}, std::vector<float>(9, 0.3f));
    Tensor q_max = Tensor::From<float>(
        {kSlots},
        std::vector<float>{448, 57344, 448, 448, 57344, 448, 448, 57344, 448});
    for (bool ok : {true, false}) {
      for (int64_t most_recent : {0, 1}) {
        for (float margin : {0.0f, 3.0f, -2.0f}) {
          ExpectBodyAndKernelAgree(
              "UpdateScale", {amax, history, scale, q_max, Tensor::Scalar(ok)},
              {{"most_recent", most_recent}, {"margin", margin}}, 2);
        }
      }
    }
  }
}

Tensor RandomFloat8(const Shape& shape, uint64_t seed, DType format) {
  return ConvertTo(RandomNormal(shape, seed), format);
}

TEST(Bodies, ScaledMatMul) {
  struct Case {
    Shape a, b;
    int64_t ta, tb, n;
  };
  const Case kCases[] = {
      {{3, 5}, {5, 7}, 0, 0, 7},           {{2, 3, 17}, {17, 33}, 0, 0, 33},
      {{2, 3, 4, 17}, {33, 17}, 0, 1, 33}, {{2, 3, 17}, {2, 3, 9}, 1, 0, 9},
      {{2, 2, 3, 17}, {4, 3, 9}, 1, 0, 9}, {{2, 3, 17}, {9, 6}, 1, 1, 9},
      {{0, 3, 5}, {5, 7}, 0, 0, 7},        {{2, 3, 0}, {0, 7}, 0, 0, 7}};
  Tensor sa = Tensor::Scalar(0.3f), sb = Tensor::Scalar(1.7e-3f);
  for (const Case& test : kCases) {
    Attributes attributes = {{"transA", test.ta},
                             {"transB", test.tb},
                             {"role", std::string("wgrad")}};
    Tensor a = RandomFloat8(test.a, 1, DType::kE5M2);
    Tensor b = RandomFloat8(test.b, 2, DType::kE4M3);
    ExpectBodyAndKernelAgree("ScaledMatMul", {a, sa, b, sb}, attributes, 1);
    ExpectBodyAndKernelAgree("ScaledMatMulBias",
                             {a, sa, b, sb, RandomNormal({test.n}, 3)},
                             attributes, 1);
  }
}

// --- inference without values

TEST(Inference, ShapesOfQuantizedValuesAndScales) {
  Attributes to = QuantizeTo(DType::kE5M2);
  using Texts = std::vector<std::string>;
  EXPECT_EQ(Inferred("QuantizeTensor", {{DType::kFloat, Shape{2, -1}}}, to, 3),
            (Texts{"float8e5m2[2,?]", "float[]", "float[]"}));
  EXPECT_EQ(Inferred("QuantizeTensor", {{DType::kFloat, {}}}, to, 3)[0],
            "float8e5m2?");
  EXPECT_THROW(Inferred("QuantizeTensor", {{DType::kInt64, Shape{2}}}, to, 3),
               Error);
  EXPECT_THROW(Inferred("QuantizeTensor", {{DType::kFloat, Shape{2}}},
                        {{"to", int64_t{1}}, {"q_max", 1.0f}}, 3),
               Error);
  EXPECT_THROW(
      Inferred("QuantizeWith",
               {{DType::kFloat, Shape{2}}, {DType::kFloat, Shape{1}}}, to, 3),
      Error);
  std::vector<OperandFacts> slots = {{DType::kFloat, Shape{4}},
                                     {DType::kFloat, Shape{3, 4}},
                                     {DType::kFloat, Shape{4}},
                                     {DType::kFloat, Shape{4}},
                                     {DType::kBool, Shape{}}};
  Attributes update = {{"most_recent", int64_t{0}}, {"margin", 0.0f}};
  EXPECT_EQ(Inferred("UpdateScale", slots, update, 2),
            (Texts{"float[3,4]", "float[4]"}));
  update["margin"] = 0.5f;
  EXPECT_THROW(Inferred("UpdateScale", slots, update, 2), Error);
  update["margin"] = 0.0f;
  slots[4].dtype = DType::kFloat;
  EXPECT_THROW(Inferred("UpdateScale", slots, update, 2), Error);
}

TEST(Inference, ShapesOfProducts) {
  auto y = [](std::optional<Shape> a, std::optional<Shape> b, int64_t ta,
              int64_t tb, Shape scale = {}) {
    return Inferred("ScaledMatMul",
                    {{DType::kE4M3, std::move(a)},
                     {DType::kFloat, scale},
                     {DType::kE5M2, std::move(b)},
                     {DType::kFloat, Shape{}}},
                    {{"transA", ta}, {"transB", tb}}, 1)[0];
  };
  EXPECT_EQ(y(Shape{2, 3, 5}, Shape{5, 7}, 0, 0), "float[2,3,7]");
  EXPECT_EQ(y(Shape{2, 3, 5}, Shape{7, 5}, 0, 1), "float[2,3,7]");
  EXPECT_EQ(y(Shape{2, 3, 5}, Shape{6, 7}, 1, 0), "float[5,7]");
  EXPECT_EQ(y(Shape{-1, 3, 5}, Shape{2, 3, 7}, 1, 0), "float[5,7]");
  EXPECT_EQ(y(Shape{-1, 5}, Shape{5, -1}, 0, 0), "float[?,?]");
  EXPECT_EQ(y({}, Shape{5, 7}, 0, 0), "float?");
  EXPECT_THROW(y(Shape{2, 3}, Shape{5, 7}, 0, 0), Error);
  EXPECT_THROW(y(Shape{5}, Shape{5, 7}, 0, 0), Error);
  EXPECT_THROW(y(Shape{2, 5}, Shape{5, 7}, 2, 0), Error);
  EXPECT_THROW(y(Shape{2, 5}, Shape{5, 7}, 0, 0, Shape{1}), Error);
}

}  // namespace
}  // namespace onnx_fp8
