// SPDX-License-Identifier: Apache-2.0
//
// How much signal FP8 keeps: 10·log10(Σ x² / Σ (x - x8)²) in dB, on normal
// data. Too little is a bug; so is too much: something was not quantised.
#include <cmath>

#include "graph/builder.h"
#include "graph/onnx_io.h"
#include "onnx_fp8/session.h"
#include "tests/providers/cpu/kernel_runner.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

double Sqnr(const Tensor& exact, const Tensor& rounded) {
  EXPECT_EQ(exact.shape(), rounded.shape());
  double signal = 0, noise = 0;
  for (int64_t i = 0; i < exact.size(); ++i) {
    double x = DoubleAt(exact, i);
    signal += x * x;
    noise += std::pow(x - DoubleAt(rounded, i), 2);
  }
  return 10 * std::log10(signal / noise);
}

void ExpectBetween(double value, double low, double high, const char* what) {
  EXPECT_GE(value, low) << what;
  EXPECT_LE(value, high) << what;
}

TEST(Sqnr, CastOfANormalTensor) {
  Tensor x = RandomNormal({512, 512}, 1);
  std::vector<Tensor> made =
      RunKernel("QuantizeTensor", {x}, {{"to", int64_t{17}}, {"q_max", 448.0f}},
                3, kDomain);
  Tensor back = ConvertTo(made[0], DType::kFloat);
  float scale = made[1].data<float>()[0];
  for (int64_t i = 0; i < back.size(); ++i) back.data<float>()[i] *= scale;
  ExpectBetween(Sqnr(x, back), 31, 32.5, "cast");
}

struct Sizes {
  int64_t m, k, n;
};

// y = x wᵀ; loss = Σ y·g, so that the gradient of y is g.
std::string WriteLinear(const TempDir& dir, Sizes s) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{s.m, s.k});
  Value* g = graph.AddInput("g", DType::kFloat, Shape{s.m, s.n});
  Value* w = graph.AddInitializer("w", RandomNormal({s.n, s.k}, 2));
  Value* y = b.Op("MatMul", {x, b.Transpose(w, {1, 0})});
  Value* loss = b.Op("ReduceSum", {b.Mul(y, g)}, {{"keepdims", int64_t{0}}});
  graph.Rename(y, "y");
  graph.Rename(loss, "loss");
  graph.outputs = {y, loss};
  WriteModel(graph, dir / "linear.onnx");
  return dir / "linear.onnx";
}

class LinearSqnr : public testing::TestWithParam<std::tuple<Sizes, bool>> {};

TEST_P(LinearSqnr, OutputAndGradients) {
  auto [s, delayed] = GetParam();
  TempDir dir;
  SessionOptions options;
  options.model = WriteLinear(dir, s);
  options.loss.kind = "output:loss";
  auto exact = TrainingSession::Create(options);
  options.recipe = ParseRecipe(delayed ? "delayed" : "tensorwise");
  auto fp8 = TrainingSession::Create(options);
  auto batch = [&](uint64_t seed) {
    return TensorMap{{"x", RandomNormal({s.m, s.k}, seed)},
                     {"g", RandomNormal({s.m, s.n}, seed + 100)}};
  };
  // Delayed scales come from other batches.
  for (uint64_t i = 0; i < 3; ++i) fp8->Step(batch(i + 10), 0);
  GradientResult want = exact->Gradients(batch(3), true);
  GradientResult got = fp8->Gradients(batch(3), true);
  ExpectBetween(Sqnr(want.outputs.at("y"), got.outputs.at("y")), 27, 34, "y");
  ExpectBetween(Sqnr(want.gradients.at("w"), got.gradients.at("w")), 22, 34,
                "weight gradient");
  ExpectBetween(Sqnr(want.input_gradients.at("x"), got.input_gradients.at("x")),
                22, 34, "input gradient");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LinearSqnr,
    testing::Combine(testing::Values(Sizes{64, 64, 64}, Sizes{128, 256, 96},
                                     Sizes{67, 131, 71}, Sizes{512, 384, 256}),
                     testing::Bool()),
    [](const auto& info) {
      Sizes s = std::get<0>(info.param);
      return Concat(std::get<1>(info.param) ? "delayed" : "tensorwise", "_",
                    s.m, "x", s.k, "x", s.n);
    });

}  // namespace
}  // namespace onnx_fp8
