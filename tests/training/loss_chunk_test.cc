// SPDX-License-Identifier: Apache-2.0
//
// Sessions whose last layer and loss run chunk by chunk.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "tests/support/paths.h"
#include "tests/training/small_model.h"
#include "training/make_provider.h"

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

// The first of four chunks, of 256 rows each, has no label that counts.
TEST_P(LossChunks, TrainAsTheWholeDoes) {
  auto [recipe, dtype] = GetParam();
  TensorMap feeds = Tokens(8, 128);
  std::vector<float> losses[2], norms[2];
  size_t arena[2];
  for (int chunked : {0, 1}) {
    SessionOptions options =
        Options(SourcePath("samples/gpt_tiny/gpt_tiny.onnx"), recipe);
    options.dtype = dtype;
    options.loss_chunk_bytes = chunked ? 256 * 256 * 4 : 0;
    auto session = TrainingSession::Create(options);
    for (int step = 0; step < 2; ++step) {
      StepResult result = session->Step(feeds, 1e-3);
      EXPECT_FALSE(result.skipped) << result.cause;
      losses[chunked].push_back(result.loss);
      norms[chunked].push_back(result.grad_norm);
    }
    for (const ScaleInfo& scale : session->Scales()) {
      EXPECT_TRUE(std::isfinite(scale.scale)) << scale.key;
    }
    arena[chunked] = session->Memory().arena_bytes;
  }
  EXPECT_LE(100 * arena[1], 101 * arena[0]);
  // Dynamic scales of tensors then belong to a chunk, also in the first step
  // with delayed scaling; and sums in another order may round to the next
  // number of 8 bits.
  std::string scaling = recipe;
  bool own_scales = scaling == "tensorwise" || scaling == "delayed";
  bool exact = scaling == "off" && dtype == DType::kFloat;
  // With FP8 the weights' copies are most of the arena.
  if (exact) {
    EXPECT_LT(arena[1], arena[0]);
  }
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

constexpr int64_t kWords = 160, kFeatures = 16;

// A language model with its loss: the logits of all tokens but the last, and
// the labels of all but the first.
std::string WriteShifted(const TempDir& dir) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* ids = graph.AddInput("input_ids", DType::kInt64, Shape{-1, -1});
  Value* labels = graph.AddInput("labels", DType::kInt64, Shape{-1, -1});
  ids->axis_names = labels->axis_names = {"batch", "seq"};
  auto weight = [&](const char* name, const Shape& shape, uint64_t seed) {
    return graph.AddInitializer(name, Random(shape, seed));
  };
  Value *first = b.Ints({0}), *second = b.Ints({1}), *last = b.Ints({-1});
  Value* x =
      b.Op("Gather", {weight("embed.weight", {kWords, kFeatures}, 1), ids});
  x = b.Op("Tanh", {x});
  Value* logits = b.Op("MatMul", {x, weight("head.w", {kFeatures, kWords}, 2)});
  logits = b.Op("Slice", {logits, first, last, second});
  labels = b.Op("Slice", {labels, second, b.Ints({int64_t{1} << 40}), second});
  Value* loss = b.Op("SoftmaxCrossEntropyLoss",
                     {b.Op("Reshape", {logits, b.Ints({-1, kWords})}),
                      b.Op("Reshape", {labels, b.Ints({-1})})},
                     {{"ignore_index", int64_t{-100}}});
  graph.Rename(loss, "loss");
  graph.outputs = {loss};
  std::string path = dir / "shifted.onnx";
  WriteModel(graph, path);
  return path;
}

// The product and the loss of those logits run in chunks as well. The same
// losses without the pass are computed from the logits of all tokens.
TEST(ShiftedLossChunks, LogitsWithoutTheLastToken) {
  TempDir dir;
  SessionOptions options;
  options.model = WriteShifted(dir);
  options.loss = {.kind = "output:loss"};
  options.loss_chunk_bytes = 256 * kWords * 4;
  TensorMap feeds = Tokens(6, 128);
  for (auto& [name, tokens] : feeds) {
    for (int64_t i = 0; i < tokens.size(); ++i) {
      int64_t& token = tokens.data<int64_t>()[i];
      if (token >= 0) token %= kWords;
    }
  }
  std::vector<float> losses[2];
  size_t arena[2];
  for (int chunked : {0, 1}) {
    options.skip_passes.clear();
    if (!chunked) options.skip_passes = {"SliceBeforeProduct"};
    auto session = TrainingSession::Create(options);
    for (int step = 0; step < 3; ++step) {
      losses[chunked].push_back(session->Step(feeds, 1e-2).loss);
    }
    arena[chunked] = session->Memory().arena_bytes;
  }
  EXPECT_LT(losses[0][2], losses[0][0]);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(losses[1][i], losses[0][i], 1e-5 * losses[0][i]);
  }
  EXPECT_LT(10 * arena[1], 6 * arena[0]);
}

TEST(LossChunkBytes, AreTheProvidersUnlessTheyAreChosen) {
  EXPECT_EQ(LossChunkBytes(-1, "cpu"), 16 << 20);
  for (int64_t chosen : {0, 5})
    EXPECT_EQ(LossChunkBytes(chosen, "cpu"), chosen);
  EXPECT_EQ(LossChunkBytes(-1, "cuda"), 1 << 30);
  EXPECT_THROW(LossChunkBytes(-1, "tpu"), Error);
}

}  // namespace
}  // namespace onnx_fp8
