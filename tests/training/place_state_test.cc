// SPDX-License-Identifier: Apache-2.0
//
// Sessions whose state lies elsewhere: in files, or in the host's memory.
#include "training/step/place_state.h"

#include <filesystem>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "onnx_fp8/option_error.h"
#include "providers/run/state_places.h"
#include "tests/providers/device_provider.h"
#include "tests/support/forwarding_provider.h"
#include "tests/support/mapped_bytes.h"
#include "tests/support/paths.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

// Some of its tensors are large, others small.
SessionOptions LargeAndSmall(const std::string& state_dir) {
  SessionOptions options =
      Options(SourcePath("samples/gpt_tiny/gpt_tiny.onnx"), "delayed");
  options.recompute = {"none"};
  options.state_dir = state_dir;
  return options;
}

std::vector<Batches> TwoShortSteps(size_t micro_batches = 1) {
  std::vector<Batches> steps = TokenSteps(micro_batches, 1);
  steps.resize(2);
  return steps;
}

TEST(StateInFiles, KeepsAllBits) {
  const TempDir dir, state;
  for (size_t micro_batches : {1, 2}) {
    const std::vector<Batches> steps = TwoShortSteps(micro_batches);
    std::vector<float> losses[2];
    TensorMap weights[2];
    for (int in_files : {0, 1}) {
      SessionOptions options = LargeAndSmall(in_files ? state.path() : "");
      options.grad_accum = static_cast<int64_t>(micro_batches);
      auto session = TrainingSession::Create(options);
      for (const Batches& batches : steps) {
        losses[in_files].push_back(session->Step(batches, 1e-3).loss);
      }
      weights[in_files] = Weights(*session, dir);
      const MemoryInfo memory = session->Memory();
      EXPECT_EQ(memory.outside_bytes > memory.state_bytes / 2, in_files == 1);
      EXPECT_LT(memory.outside_bytes, memory.state_bytes);
      // Each file is rounded up to whole pages.
      const size_t mapped = MappedBytesOf(state.path());
      EXPECT_GE(mapped, memory.outside_bytes);
      EXPECT_LE(mapped, memory.outside_bytes + memory.outside_bytes / 16);
    }
    EXPECT_EQ(losses[0], losses[1]);
    ExpectSame(weights[0], weights[1]);
    EXPECT_EQ(MappedBytesOf(state.path()), 0u);
    EXPECT_TRUE(NamesIn(state.path()).empty());
  }
}

// A run goes on with or without files.
TEST(StateInFiles, MayBeginAndEndWhenARunGoesOn) {
  const TempDir dir, state;
  const std::vector<Batches> steps = TwoShortSteps();
  auto whole = TrainingSession::Create(LargeAndSmall(""));
  for (const Batches& batches : steps) whole->Step(batches, 1e-3);
  const TensorMap weights = Weights(*whole, dir);
  for (bool begins_in_files : {false, true}) {
    const std::string first = begins_in_files ? state.path() : "";
    const std::string second = begins_in_files ? "" : state.path();
    auto begun = TrainingSession::Create(LargeAndSmall(first));
    begun->Step(steps[0], 1e-3);
    begun->Save(dir / "run");
    auto resumed = TrainingSession::Create(LargeAndSmall(second));
    resumed->Restore(dir / "run");
    const size_t restored = resumed->Memory().outside_bytes;
    resumed->Step(steps[1], 1e-3);
    EXPECT_EQ(resumed->Memory().outside_bytes, restored);
    EXPECT_EQ(restored > 0, !begins_in_files);
    ExpectSame(Weights(*resumed, dir), weights);
  }
}

TEST(StateInFiles, TheFirstStepSaysWhere) {
  const TempDir state;
  auto session = TrainingSession::Create(LargeAndSmall(state.path()));
  const std::vector<Batches> steps = TwoShortSteps();
  const std::string remark = session->Step(steps[0], 1e-3).remark;
  EXPECT_NE(remark.find("`state_dir`: "), std::string::npos) << remark;
  EXPECT_NE(remark.find(" of state lie in files of " + state.path()),
            std::string::npos)
      << remark;
  EXPECT_EQ(session->Step(steps[1], 1e-3).remark, "");
}

// Files are no memory: half of the state suffices for the rest.
TEST(StateInFiles, DoNotCountForTheLimitOfMemory) {
  const TempDir state;
  const Batches batches = TwoShortSteps()[0];
  auto session = TrainingSession::Create(LargeAndSmall(""));
  session->Step(batches, 1e-3);
  const MemoryInfo memory = session->Memory();
  const std::string limit =
      std::to_string(memory.arena_bytes + memory.state_bytes / 2);
  for (bool in_files : {false, true}) {
    SessionOptions options = LargeAndSmall(in_files ? state.path() : "");
    options.memory = limit;
    auto limited = TrainingSession::Create(options);
    const std::string error = ErrorOf([&] { limited->Step(batches, 1e-3); });
    EXPECT_EQ(error.empty(), in_files) << error;
    EXPECT_EQ(error.find("`state_dir` saves up to ") != std::string::npos,
              !in_files)
        << error;
  }
}

// Two layers; the codes of the first one are as large as what lies in files.
std::string WriteLayersWithLargeCodes(const TempDir& dir) {
  constexpr int64_t kWide = StatePlaces::kLeastInFile / kIn;
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kIn});
  x->axis_names = {"batch", ""};
  Value* in = graph.AddInitializer("in.weight", Random({kIn, kWide}, 1));
  Value* out = graph.AddInitializer("out.weight", Random({kWide, kClasses}, 2));
  Value* h = b.Op("Relu", {b.Op("MatMul", {x, in})});
  graph.outputs = {b.Op("MatMul", {h, out})};
  const std::string path = dir / "wide.onnx";
  WriteModel(graph, path);
  return path;
}

// All of these files are whole pages.
TEST(StateInFiles, HasCopiesOfWeightsThatLiveBetweenSteps) {
  const TempDir dir, state;
  SessionOptions options =
      Options(WriteLayersWithLargeCodes(dir), "tensorwise");
  size_t outside[2];
  for (int primary : {0, 1}) {
    options.state_dir = state.path();
    options.primary_weights = primary ? "fp8" : "float";
    auto session = TrainingSession::Create(options);
    session->Step(Batch(1), 1e-3);
    outside[primary] = session->Memory().outside_bytes;
    EXPECT_EQ(MappedBytesOf(state.path()), outside[primary]);
  }
  EXPECT_GE(outside[1], outside[0] + StatePlaces::kLeastInFile);
}

TEST(StateInFiles, StaysInItsFolderWhenTheProcessGoesToAnother) {
  const TempDir dir;
  SessionOptions options;
  options.state_dir = std::filesystem::relative(dir.path()).string();
  const std::string folder =
      StatePlacesOf(options, Device::kHost, Graph{}).folder;
  EXPECT_TRUE(std::filesystem::path(folder).is_absolute()) << folder;
  EXPECT_TRUE(std::filesystem::equivalent(folder, dir.path())) << folder;
}

TEST(StateInFiles, NeedsAFolderThatExists) {
  const TempDir dir;
  const std::string error =
      ErrorOf([&] { TrainingSession::Create(LargeAndSmall(dir / "missing")); });
  EXPECT_EQ(error, "`state_dir`: [" + (dir / "missing") +
                       "] expected a folder for new files: No such file or "
                       "directory");
}

TEST(PlacesOfState, BelongToOneProviderEach) {
  const TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.offload = "optimizer";
  EXPECT_TRUE(
      ErrorOf([&] { TrainingSession::Create(options); })
          .starts_with("`offload`: expected a step on a GPU, got one on "
                       "the provider cpu, for which `state_dir` "));
  options.offload = "parameters";
  EXPECT_EQ(ErrorOf([&] { TrainingSession::Create(options); }),
            "`offload`: expected none or optimizer, got parameters");
  options.offload = "none";
  options.state_dir = dir.path();
  EXPECT_TRUE(ErrorOf([&] { MakeSession(options, MakeDeviceProvider()); })
                  .starts_with("`state_dir`: expected a step on the provider "
                               "cpu, got one on a GPU, for which "
                               "`offload=optimizer` "));
}

// A simulated device that says how much of the host's memory it uses.
class DeviceWithOffload : public ForwardingProvider {
 public:
  explicit DeviceWithOffload(size_t* bytes)
      : ForwardingProvider(MakeDeviceProvider()),
        device_(MakeDeviceProvider()),
        bytes_(bytes) {}
  const KernelRegistry& Kernels() const override { return device_->Kernels(); }
  std::shared_ptr<void> AllocateOnHost(size_t bytes) override {
    *bytes_ += bytes;
    return Allocate(bytes);
  }

 private:
  std::unique_ptr<ExecutionProvider> device_;  // for its kernels
  size_t* bytes_;
};

// Also of a session that restores them before it has a plan.
TEST(OffloadedMoments, AreAllMomentsAndNothingElse) {
  const TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "delayed");
  options.offload = "optimizer";
  constexpr size_t kMomentBytes = 8 * (kIn * kHidden + kHidden * kClasses);
  auto whole = TrainingSession::Create(Options(options.model, "delayed"));
  for (uint64_t step : {1, 2}) whole->Step(Batch(step), 1e-2);
  size_t on_host = 0;
  auto first =
      MakeSession(options, std::make_unique<DeviceWithOffload>(&on_host));
  const std::string remark = first->Step(Batch(1), 1e-2).remark;
  EXPECT_EQ(on_host, kMomentBytes);
  EXPECT_EQ(first->Memory().outside_bytes, kMomentBytes);
  EXPECT_NE(remark.find("`offload`: 1.5 KiB of moments lie in the host's "
                        "memory"),
            std::string::npos)
      << remark;
  first->Save(dir / "run");
  on_host = 0;
  auto second =
      MakeSession(options, std::make_unique<DeviceWithOffload>(&on_host));
  second->Restore(dir / "run");
  EXPECT_EQ(on_host, kMomentBytes);
  second->Step(Batch(2), 1e-2);
  EXPECT_EQ(on_host, kMomentBytes);
  ExpectSame(Weights(*second, dir), Weights(*whole, dir));
}

}  // namespace
}  // namespace onnx_fp8
