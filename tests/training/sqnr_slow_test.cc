// SPDX-License-Identifier: Apache-2.0
//
// SQNR of LLaMA's feed-forward, width 1024, hidden 3584, 1024 tokens.
#include <algorithm>

#include "tests/providers/cpu/kernel_runner.h"
#include "tests/training/sqnr.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kRows = 1024, kWidth = 1024, kHidden = 3584;
// What may be missing of the figures, and what may be too much.
constexpr double kLess = 0.2, kMore = 0.3;

struct Figures {
  const char* recipe;
  double y, dx, w1, w2, w3;
};

// torchao 0.18's own code has those of tensorwise, rowwise and
// rowwise_with_gw_hp; the other ones are what the bodies give.
const Figures kRandom[] = {
    {"tensorwise", 23.9, 20.8, 20.7, 22.0, 20.8},
    {"delayed", 23.8, 20.8, 20.7, 22.0, 20.8},
    {"static", 23.8, 20.8, 20.7, 22.0, 20.8},
    {"rowwise", 24.0, 23.8, 23.6, 23.9, 23.8},
    {"rowwise_with_gw_hp", 24.0, 23.8, 25.2, 25.8, 25.5},
    {"blockwise", 24.1, 24.0, 23.9, 24.1, 24.1},
    {"blockwise,tr:requantize", 24.1, 24.0, 22.75, 22.9, 22.95},
    {"blockwise,round:p2", 24.0, 23.9, 23.6, 24.0, 23.8},
    {"mxfp8", 24.0, 23.9, 23.6, 24.0, 23.8},
    // Weights of ±1/32: blocks of their largest values saturate.
    {"mxfp8,round:floor", 19.6, 19.5, 20.6, 19.7, 20.8},
};

// A gradient of ones, which FP8 holds as it is.
const Figures kOnes[] = {
    {"tensorwise", 23.9, 22.5, 24.2, 26.1, 24.4},
    {"rowwise", 23.9, 24.7, 25.75, 26.5, 26.1},
    {"rowwise_with_gw_hp", 23.9, 24.7, 27.4, 27.25, 27.6},
};

void Compare(std::span<const Figures> all, bool ones) {
  TempDir dir;
  std::string model = WriteFeedForward(dir, kRows, kWidth, kHidden);
  auto batch = [&](uint64_t seed) {
    TensorMap feeds = {{"x", RandomNormal({kRows, kWidth}, seed)},
                       {"g", RandomNormal({kRows, kWidth}, seed + 100)}};
    if (ones) std::fill_n(feeds["g"].data<float>(), kRows * kWidth, 1.0f);
    return feeds;
  };
  GradientResult exact = RunStep(model, {"off"}, batch(3));
  for (const Figures& f : all) {
    SCOPED_TRACE(f.recipe);
    SqnrRun run = {f.recipe, {batch(10), batch(11)}};
    StepSqnr got = CompareSteps(exact, RunStep(model, run, batch(3)));
    auto expect = [](double value, double figure, const char* what) {
      ExpectBetween(value, figure - kLess, figure + kMore, what);
    };
    expect(got.y, f.y, "y");
    expect(got.dx, f.dx, "dx");
    expect(got.dw.at("w1"), f.w1, "w1");
    expect(got.dw.at("w2"), f.w2, "w2");
    expect(got.dw.at("w3"), f.w3, "w3");
  }
}

TEST(FeedForwardSqnr, RandomGradient) { Compare(kRandom, false); }

TEST(FeedForwardSqnr, GradientOfOnes) { Compare(kOnes, true); }

}  // namespace
}  // namespace onnx_fp8
