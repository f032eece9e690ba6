// SPDX-License-Identifier: Apache-2.0
//
// Moments in the host's pinned memory: kernels read and write them there, and a
// step has the same bits.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "providers/cuda/cuda_provider.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/training/needed_memory.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

TEST(PinnedMemory, IsUsedAsTheDevicesOwn) {
  auto cuda = MakeCudaProvider();
  emulation::ResetCounts();
  const size_t free = emulation::FreeMemory();
  std::shared_ptr<void> memory = cuda->AllocateOnHost(12);
  EXPECT_EQ(emulation::Calls("cudaHostAlloc"), 1);
  EXPECT_EQ(emulation::FreeMemory(), free);
  void* data = memory.get();
  Tensor pinned =
      Tensor::View(DType::kFloat, {3}, memory, data, Device::kProvider);
  const Tensor x = RandomNormal({3}, 1);
  cuda->CopyIn(x, pinned);
  EXPECT_TRUE(Identical(cuda->ToHost(pinned), x));
  Tensor ours = cuda->Clone(pinned);
  cuda->Clear(pinned);
  EXPECT_TRUE(
      Identical(cuda->ToHost(pinned), Tensor::Zeros(DType::kFloat, {3})));
  cuda->Copy(ours, pinned);
  EXPECT_TRUE(Identical(cuda->ToHost(pinned), x));
}

struct OffloadedRun {
  std::vector<float> losses;
  TensorMap weights;
  MemoryInfo memory;
  std::string remarks;
};

// The third step repeats a recording. The last one goes on from a checkpoint.
OffloadedRun StepsAndRestored(SessionOptions options, bool offloads,
                              const std::vector<TensorMap>& feeds) {
  TempDir dir;
  if (offloads) options.offload = "optimizer";
  OffloadedRun outcome;
  {
    auto session = MakeSession(options, MakeCudaProvider());
    for (size_t i = 0; i < 3; ++i) {
      const StepResult result = session->Step(feeds[i % feeds.size()], 1e-2);
      outcome.losses.push_back(result.loss);
      outcome.remarks += result.remark;
    }
    outcome.memory = session->Memory();
    session->Save(dir / "run");
  }
  auto session = MakeSession(options, MakeCudaProvider());
  session->Restore(dir / "run");
  outcome.losses.push_back(session->Step(feeds[0], 1e-2).loss);
  outcome.weights = Weights(*session, dir);
  EXPECT_EQ(session->Memory().outside_bytes, outcome.memory.outside_bytes);
  return outcome;
}

TEST(OffloadedMomentsOnCuda, KeepAllBits) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  constexpr size_t kNumbers = kIn * kHidden + kHidden * kClasses;
  for (const char* moments : {"float32", "bfloat16"}) {
    for (bool releases : {false, true}) {
      SCOPED_TRACE(moments);
      options.optimizer.moments = moments;
      options.optimizer.release_gradients = releases;
      const std::vector<TensorMap> feeds = {Batch(1), Batch(2), Batch(3)};
      const OffloadedRun ours = StepsAndRestored(options, false, feeds);
      const OffloadedRun away = StepsAndRestored(options, true, feeds);
      EXPECT_EQ(ours.losses, away.losses);
      ExpectSame(ours.weights, away.weights);
      const size_t bytes = moments == std::string("float32") ? 8 : 4;
      EXPECT_EQ(ours.memory.outside_bytes, 0u);
      EXPECT_EQ(away.memory.outside_bytes, bytes * kNumbers);
      EXPECT_EQ(away.memory.state_bytes, ours.memory.state_bytes);
    }
  }
}

// Two layers; the moments of the first one are kept as codes with scales.
std::string WriteTwoLayersWithCodes(const TempDir& dir, int64_t hidden) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kIn});
  x->axis_names = {"batch", ""};
  auto weight = [&](const char* name, const Shape& shape) {
    return graph.AddInitializer(name, Random(shape, 1));
  };
  Value* h = b.Op("MatMul", {x, weight("fc.weight", {kIn, hidden})});
  h = b.Op("Relu", {h});
  graph.outputs = {
      b.Op("MatMul", {h, weight("out.weight", {hidden, kClasses})})};
  const std::string path = dir / "codes.onnx";
  WriteModel(graph, path);
  return path;
}

TEST(OffloadedMomentsOnCuda, MayBeCodes) {
  TempDir dir;
  constexpr int64_t kCodedWidth = 512;
  SessionOptions options = Options(WriteTwoLayersWithCodes(dir, kCodedWidth));
  options.optimizer.moments = "fp8";
  const OffloadedRun ours = StepsAndRestored(options, false, {Batch(1)});
  const OffloadedRun away = StepsAndRestored(options, true, {Batch(1)});
  EXPECT_EQ(ours.losses, away.losses);
  ExpectSame(ours.weights, away.weights);
  // Two codes of each number of the first layer, and a scale of 4 bytes for 128
  // of them; two floats of each number of the second.
  constexpr size_t kFirst = kIn * kCodedWidth, kSecond = kCodedWidth * kClasses;
  EXPECT_EQ(away.memory.outside_bytes,
            2 * (kFirst + 4 * kFirst / 128) + 8 * kSecond);
}

constexpr int64_t kStreamWidth = 16, kStreamBlocks = 3;

// A stream x of blocks, x + relu(x w) v.
std::string WriteStream(const TempDir& dir) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* input = graph.AddInput("x", DType::kFloat, Shape{-1, kIn});
  input->axis_names = {"batch", ""};
  uint64_t seed = 0;
  const auto layer = [&](Value* x, const std::string& name, int64_t rows) {
    const Shape shape = {rows, kStreamWidth};
    return b.Op("MatMul", {x, graph.AddInitializer(name + ".weight",
                                                   Random(shape, ++seed))});
  };
  Value* x = layer(input, "in", kIn);
  for (int64_t i = 0; i < kStreamBlocks; ++i) {
    const std::string name = Concat("blocks.", i);
    Value* h = b.Op("Relu", {layer(x, name + ".w", kStreamWidth)});
    x = b.Add(x, layer(h, name + ".v", kStreamWidth));
  }
  graph.outputs = {layer(x, "out", kStreamWidth)};
  const std::string path = dir / "stream.onnx";
  WriteModel(graph, path);
  return path;
}

// Activations are most of the arena of such a batch.
constexpr int64_t kManyRows = 128;

std::string HalfwayMemory(SessionOptions options, const TensorMap& feeds) {
  options.offload = "optimizer";
  const NeededMemory needed =
      MemoryNeeded(options, [&](const SessionOptions& refused) {
        MakeSession(refused, MakeCudaProvider())->Step(feeds, 1e-2);
      });
  EXPECT_LT(needed.least, needed.most);
  return std::to_string(needed.halfway());
}

TEST(OffloadedMomentsOnCuda, KeepAllBitsBesideOtherChoices) {
  TempDir dir;
  const SessionOptions plain = Options(WriteStream(dir), "tensorwise");
  const std::vector<TensorMap> feeds = {Batch(1, kManyRows)};
  const OffloadedRun want = StepsAndRestored(plain, false, feeds);
  constexpr size_t kNumbers =
      kStreamWidth * (kIn + (2 * kStreamBlocks + 1) * kStreamWidth);
  SessionOptions recomputes = plain, keeps_codes = plain, fits = plain;
  recomputes.recompute = {"blocks"};
  keeps_codes.primary_weights = "fp8";
  fits.memory = HalfwayMemory(plain, feeds[0]);
  for (const auto& [options, said] :
       {std::pair{recomputes, "`recompute`: "},
        std::pair{keeps_codes, "`primary_weights` fp8: "},
        std::pair{fits, " run again in the backward: "}}) {
    SCOPED_TRACE(said);
    const OffloadedRun got = StepsAndRestored(options, true, feeds);
    EXPECT_EQ(got.losses, want.losses);
    ExpectSame(got.weights, want.weights);
    EXPECT_EQ(got.memory.outside_bytes, 8 * kNumbers);
    EXPECT_NE(got.remarks.find(said), std::string::npos) << got.remarks;
  }
}

// The emulated device gives whole pages.
TEST(OffloadedMomentsOnCuda, TakeNoneOfTheDevicesMemory) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  size_t used[2];
  for (int offloads : {0, 1}) {
    options.offload = offloads ? "optimizer" : "none";
    auto session = MakeSession(options, MakeCudaProvider());
    const size_t free = emulation::FreeMemory();
    session->Step(Batch(0), 1e-2);
    used[offloads] = free - emulation::FreeMemory();
  }
  // Four moments, each of a page.
  EXPECT_EQ(used[0] - used[1], 4u * 4096);
}

}  // namespace
}  // namespace onnx_fp8
