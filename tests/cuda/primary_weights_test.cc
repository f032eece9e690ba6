// SPDX-License-Identifier: Apache-2.0
//
// FP8 copies of weights that live from step to step, on the device: in both
// orientations that products read, in the state alone.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "providers/cuda/cuda_provider.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kInner = 64;

// Two linear layers whose sizes GPUs multiply as they are.
std::string WriteLayersOf64(const TempDir& dir) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kIn});
  x->axis_names = {"batch", ""};
  Value* in = graph.AddInitializer("in.weight", Random({kIn, kInner}, 1));
  Value* fc = graph.AddInitializer("fc.weight", Random({kInner, kInner}, 2));
  Value* out = graph.AddInitializer("out.weight", Random({kInner, 16}, 3));
  Value* h = b.Op("Relu", {b.Op("MatMul", {x, in})});
  h = b.Op("Relu", {b.Op("MatMul", {h, fc})});
  graph.outputs = {b.Op("MatMul", {h, out})};
  const std::string path = dir / "layers.onnx";
  WriteModel(graph, path);
  return path;
}

struct DeviceRun {
  std::vector<float> losses;
  TensorMap weights;
  MemoryInfo memory;
  int64_t launches = 0, copies = 0;  // of the last step
};

// The third step repeats a recording.
DeviceRun RunOnDevice(const SessionOptions& options, const TempDir& dir) {
  auto session = MakeSession(options, MakeCudaProvider());
  DeviceRun run;
  for (uint64_t i = 0; i < 4; ++i) {
    emulation::ResetCounts();
    run.losses.push_back(session->Step(Batch(i, 16), 1e-2).loss);
  }
  run.launches = emulation::Calls("cudaGraphLaunch");
  run.copies = emulation::Calls("cudaMemcpyAsync");
  run.weights = Weights(*session, dir);
  run.memory = session->Memory();
  return run;
}

TEST(PrimaryWeightsOnADevice, KeepAllBits) {
  TempDir dir;
  const std::string model = WriteLayersOf64(dir);
  for (const char* recipe : {"tensorwise", "rowwise", "delayed"}) {
    SCOPED_TRACE(recipe);
    SessionOptions options = Options(model, recipe);
    const DeviceRun want = RunOnDevice(options, dir);
    options.primary_weights = "fp8";
    const DeviceRun got = RunOnDevice(options, dir);
    EXPECT_EQ(got.losses, want.losses);
    ExpectSame(got.weights, want.weights);
    // Nothing makes the copies but the step, in their place.
    EXPECT_EQ(got.launches, want.launches);
    EXPECT_EQ(got.copies, want.copies);
    // Of fc.weight and out.weight in both orientations, at least.
    const size_t codes = 2 * kInner * (kInner + 16);
    EXPECT_LT(got.memory.arena_bytes, want.memory.arena_bytes + codes);
    EXPECT_GE(got.memory.state_bytes - want.memory.state_bytes, codes);
  }
}

}  // namespace
}  // namespace onnx_fp8
