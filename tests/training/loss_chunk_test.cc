// SPDX-License-Identifier: Apache-2.0
//
// Sessions whose last layer and loss run chunk by chunk.
#include <cmath>
#include <tuple>

#include "tests/support/paths.h"
#include "tests/training/small_model.h"

namespace onnx_fp8 {
namespace {

class LossChunks
    : public testing::TestWithParam<std::tuple<const char*, DType>> {};

TensorMap Tokens(int64_t batch, int64_t length) {
  TensorMap feeds;
  for (const char* name : {"input_ids", "labels"}) {
    Tensor tokens = Random({batch, length}, name[0]);
    Tensor ids = Tensor::Allocate(DType::kInt64, tokens.shape());
    for (int64_t i = 0; i < ids.size(); ++i) {
      ids.data<int64_t>()[i] =
          static_cast<int64_t>(tokens.data<float>()[i] * 128 + 128);
    }
    feeds[name] = ids;
  }
  std::fill_n(feeds["labels"].data<int64_t>(), 2 * length, -100);
  return feeds;
}

// The first of three chunks has no label that counts.
TEST_P(LossChunks, TrainAsTheWholeDoes) {
  auto [recipe, dtype] = GetParam();
  TensorMap feeds = Tokens(6, 128);
  std::vector<float> losses[2], norms[2];
  for (int chunked : {0, 1}) {
    SessionOptions options =
        Options(SourcePath("samples/gpt_tiny/gpt_tiny.onnx"), recipe);
    options.dtype = dtype;
    options.loss_chunk_bytes = chunked ? 256 * 256 * 4 : 0;
    auto session = TrainingSession::Create(options);
    for (int step = 0; step < 3; ++step) {
      StepResult result = session->Step(feeds, 1e-3);
      EXPECT_FALSE(result.skipped) << result.cause;
      losses[chunked].push_back(result.loss);
      norms[chunked].push_back(result.grad_norm);
    }
    for (const ScaleInfo& scale : session->Scales()) {
      EXPECT_TRUE(std::isfinite(scale.scale)) << scale.key;
    }
  }
  // Dynamic scales of tensors are those of a chunk then, also in the first step
  // with delayed scaling; and sums in another order may round to the next
  // number of 8 bits.
  std::string scaling = recipe;
  bool own_scales = scaling == "tensorwise" || scaling == "delayed";
  bool exact = scaling == "off" && dtype == DType::kFloat;
  double bound = own_scales ? 2e-3 : exact ? 2e-6 : 2e-4;
  for (size_t i = 0; i < losses[0].size(); ++i) {
    EXPECT_NEAR(losses[1][i], losses[0][i], bound * losses[0][i]) << i;
    EXPECT_NEAR(norms[1][i], norms[0][i], 20 * bound * norms[0][i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, LossChunks,
    testing::Combine(testing::Values("off", "tensorwise", "rowwise",
                                     "rowwise_with_gw_hp", "delayed",
                                     "blockwise", "mxfp8"),
                     testing::Values(DType::kFloat, DType::kBFloat16)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" +
             Name(std::get<1>(info.param));
    });

}  // namespace
}  // namespace onnx_fp8
