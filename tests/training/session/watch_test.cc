// SPDX-License-Identifier: Apache-2.0
//
// A session whose nodes are watched computes the same bits.
#include <gtest/gtest.h>

#include <string>

#include "providers/run/not_finite_watch.h"
#include "tests/training/small_model.h"

namespace onnx_fp8 {
namespace {

void ExpectSameRun(SessionOptions options) {
  NotFiniteWatch watch({6, 6}, {"x", "labels"});
  std::vector<TensorMap> states;
  std::vector<float> losses;
  for (const bool watched : {false, true}) {
    auto session = TrainingSession::Create(options);
    if (watched) session->Watch(&watch);
    for (uint64_t step = 0; step < 3; ++step) {
      Batches batches;
      for (int64_t i = 0; i < options.grad_accum; ++i) {
        batches.push_back(Batch(2 * step + static_cast<uint64_t>(i)));
      }
      losses.push_back(session->Step(batches, 0.1).loss);
    }
    TensorMap& state = states.emplace_back();
    for (const auto& [name, tensor] : session->State().tensors) {
      state[name] = tensor.Clone();
    }
  }
  ExpectSame(states[0], states[1]);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(losses[i], losses[i + 3]);
  EXPECT_FALSE(watch.reaches_results());
  EXPECT_FALSE(watch.largest().empty());
}

TEST(Watch, ChangesNoBit) {
  TempDir dir;
  const std::string model = WriteMlp(dir, true);
  for (const char* recipe : {"off", "tensorwise", "delayed", "mxfp8"}) {
    SCOPED_TRACE(recipe);
    ExpectSameRun(Options(model, recipe));
  }
  SessionOptions options = Options(model, "tensorwise");
  options.grad_accum = 2;
  ExpectSameRun(options);
  options.grad_accum = 1;
  options.primary_weights = "fp8";
  ExpectSameRun(options);
  options = Options(model);
  options.dtype = DType::kFloat16;
  ExpectSameRun(options);
}

}  // namespace
}  // namespace onnx_fp8
