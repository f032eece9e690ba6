// SPDX-License-Identifier: Apache-2.0
//
// Moments in the host's pinned memory: kernels read and write them there,
// beside other kernels, and a step has the same bits.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/core/queue.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/run/executor.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/support/forwarding_provider.h"
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

// Runs work in an order of the emulation's, and in the one before afterwards.
class InSchedule {
 public:
  explicit InSchedule(uint64_t seed) { emulation::SetSchedule(seed); }
  ~InSchedule() { emulation::SetSchedule(before_); }

 private:
  uint64_t before_ = emulation::Schedule();
};

constexpr uint64_t kExtremes[] = {emulation::kFirstStreamFirst,
                                  emulation::kLastStreamFirst};

// Each gradient's memory, and the counter at last, are wanted by the main
// stream while updates read them; one result follows from an update.
constexpr char kUpdates[] = R"(
input x: float[64]
state c: float[64]
moment m0: float[64]
moment m1: float[64]
moment m2: float[64]
g0: float[64] = Add(x, c)
n0: float[64] = Add(m0, g0)
h0: float[64] = Abs(x)
g1: float[64] = Sub(h0, c)
n1: float[64] = Sub(m1, g1)
h1: float[64] = Add(h0, x)
g2: float[64] = Add(h1, h0)
n2: float[64] = Add(m2, g2)
h2: float[64] = Sub(h1, x)
h3: float[64] = Abs(h2)
n3: float[64] = Add(n2, c)
more: float[64] = Add(c, h3)
output n3
output h3
update m0 = n0
update m1 = n1
update m2 = n2
update c = more
)";

std::shared_ptr<Graph> GraphOfUpdates() {
  std::shared_ptr<Graph> graph = ParseGraph(kUpdates);
  for (Value* value : graph->Initializers()) {
    value->on_host = value->role == Role::kMoment;
  }
  return graph;
}

// Moments in pinned memory.
TensorMap PinnedMoments(ExecutionProvider& cuda, const Graph& graph) {
  TensorMap state;
  for (const Value* value : graph.Initializers()) {
    if (!value->on_host) continue;
    std::shared_ptr<void> memory = cuda.AllocateOnHost(BytesOf(*value));
    void* data = memory.get();
    Tensor& moment = state[value->name];
    moment = Tensor::View(value->dtype, *value->shape, std::move(memory), data,
                          Device::kProvider);
    cuda.CopyIn(value->data, moment);
  }
  return state;
}

// Three runs: the first, the recorded one and its replay. If one of the streams
// lacked a wait, an extreme order would change bits.
TEST(UpdatesBesideOtherSteps, WaitForTheirOperandsAndAreAwaited) {
  for (uint64_t seed : kExtremes) {
    SCOPED_TRACE(seed == emulation::kFirstStreamFirst ? "first" : "last");
    InSchedule schedule(seed);
    const std::shared_ptr<Graph> graph = GraphOfUpdates();
    auto cpu = MakeCpuProvider();
    auto cuda = MakeCudaProvider();
    Executor on_cpu(graph, *cpu), on_cuda(graph, *cuda);
    TensorMap want_state, state = PinnedMoments(*cuda, *graph);
    for (uint64_t run = 0; run < 3; ++run) {
      const TensorMap feeds = {{"x", RandomNormal({64}, run)}};
      const TensorMap want = on_cpu.Run(feeds, want_state);
      const TensorMap got = on_cuda.Run(feeds, state);
      for (const auto& [name, tensor] : want) {
        EXPECT_TRUE(Identical(cuda->ToHost(got.at(name)), tensor)) << name;
      }
      for (const auto& [name, tensor] : want_state) {
        EXPECT_TRUE(Identical(cuda->ToHost(state.at(name)), tensor)) << name;
      }
    }
  }
}

// The CUDA provider; it notes the sizes of what the executor takes.
class NotingProvider : public ForwardingProvider {
 public:
  explicit NotingProvider(std::vector<size_t>* sizes)
      : ForwardingProvider(MakeCudaProvider()), sizes_(sizes) {
    for (const auto& [name, entry] : CudaKernels().entries()) {
      kernels_.Add(name.second, entry.kernel, entry.traits, name.first);
    }
  }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    sizes_->push_back(bytes);
    return ForwardingProvider::Allocate(bytes);
  }

 private:
  std::vector<size_t>* const sizes_;
};

// Gradients wait for their updates in the arena, which is the plan's. There are
// four states, an input and two outputs besides.
TEST(UpdatesBesideOtherSteps, TakeThePlansMemory) {
  std::vector<size_t> sizes, want(7, 64 * sizeof(float));
  NotingProvider provider(&sizes);
  Executor executor(GraphOfUpdates(), provider);
  TensorMap state;
  executor.Run({{"x", RandomNormal({64}, 1)}}, state);
  provider.Synchronize();
  const size_t arena = executor.plan().arena_bytes;
  want.push_back(arena);
  std::ranges::sort(sizes);
  std::ranges::sort(want);
  EXPECT_EQ(sizes, want);
  const std::shared_ptr<Graph> here = ParseGraph(kUpdates);
  EXPECT_GT(arena,
            MakePlan(*here, CudaKernels(), Device::kProvider).arena_bytes);
}

// The extreme orders find a missing wait. Here the main stream does not wait
// for a copy in the other one, or that does not wait for its operand.
TEST(UpdatesBesideOtherSteps, AMissingWaitIsFound) {
  for (uint64_t seed : kExtremes) {
    InSchedule schedule(seed);
    auto cuda = MakeCudaProvider();
    SideQueue& side = *cuda->side_queue(Side::kUpdates);
    const Tensor zeros = Tensor::Zeros(DType::kFloat, {64});
    Tensor x = cuda->Clone(zeros), y = cuda->Clone(zeros);
    cuda->Synchronize();
    const auto copy = [&] {
      cudaMemcpyAsync(y.raw(), x.raw(), x.bytes(), cudaMemcpyDeviceToDevice,
                      static_cast<cuda::Queue*>(side.queue())->stream());
    };
    const Tensor ones = Tensor::From<float>({64}, std::vector<float>(64, 1));
    cuda->CopyIn(ones, x);
    if (seed == emulation::kFirstStreamFirst) {
      side.Start(copy);
    } else {
      copy();
      cuda->Synchronize();
    }
    EXPECT_TRUE(Identical(cuda->ToHost(y), zeros));
    cuda->Synchronize();
  }
}

// Memory that a failed work reads and writes belongs to the main stream again:
// it waits for the part that the work has launched.
TEST(UpdatesBesideOtherSteps, TheStartOfAFailedWorkIsAwaited) {
  InSchedule schedule(emulation::kFirstStreamFirst);
  auto cuda = MakeCudaProvider();
  SideQueue& side = *cuda->side_queue(Side::kUpdates);
  const Tensor ones = Tensor::From<float>({64}, std::vector<float>(64, 1));
  Tensor x = cuda->Clone(ones);
  Tensor y = cuda->Clone(Tensor::Zeros(DType::kFloat, {64}));
  const auto fail_behind_a_copy = [&] {
    cudaMemcpyAsync(y.raw(), x.raw(), x.bytes(), cudaMemcpyDeviceToDevice,
                    static_cast<cuda::Queue*>(side.queue())->stream());
    Fail("the second half");
  };
  EXPECT_THROW(side.Start(fail_behind_a_copy), Error);
  side.Drop();
  EXPECT_TRUE(Identical(cuda->ToHost(y), ones));
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
      InSchedule schedule(kExtremes[moments == std::string("float32")]);
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

// The rounding of weights and their next codes run behind the updates.
TEST(OffloadedMomentsOnCuda, KeepTheBitsOfWhatFollows) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  options.optimizer.release_gradients = true;
  options.optimizer.master = "split8";
  options.primary_weights = "fp8";
  const OffloadedRun ours = StepsAndRestored(options, false, {Batch(1)});
  for (uint64_t seed : kExtremes) {
    InSchedule schedule(seed);
    const OffloadedRun away = StepsAndRestored(options, true, {Batch(1)});
    EXPECT_EQ(ours.losses, away.losses);
    ExpectSame(ours.weights, away.weights);
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
constexpr int64_t kManyRows = 512;

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
    auto provider = MakeCudaProvider();
    provider->side_queue(Side::kUpdates);
    auto session = MakeSession(options, std::move(provider));
    const size_t free = emulation::FreeMemory();
    session->Step(Batch(0), 1e-2);
    used[offloads] = free - emulation::FreeMemory();
  }
  // Four moments, each of a page.
  EXPECT_EQ(used[0] - used[1], 4u * 4096);
}

// Kernels of updates, and with offloaded moments the streams that they enter.
TEST(OffloadedMomentsOnCuda, AreUpdatedInAStreamOfTheirOwn) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.optimizer.release_gradients = true;
  for (const char* offload : {"none", "optimizer"}) {
    options.offload = offload;
    auto session = MakeSession(options, MakeCudaProvider());
    emulation::ResetCounts();
    session->Step(Batch(0), 1e-2);
    std::set<uint32_t> all, updates;
    for (const auto& [name, traffic] : emulation::Traffic()) {
      all.insert(traffic.streams.begin(), traffic.streams.end());
      if (name.find("UpdateKernel") == std::string::npos) continue;
      updates.insert(traffic.streams.begin(), traffic.streams.end());
    }
    EXPECT_EQ(updates.size(), 1u);
    EXPECT_EQ(all.size(), offload == std::string("optimizer") ? 2u : 1u);
  }
}

// What runs beside the updates has a higher priority: their kernels wait for
// the bus.
TEST(OffloadedMomentsOnCuda, AreUpdatedAtALowPriority) {
  auto cuda = MakeCudaProvider();
  const auto priority = [](void* queue) {
    int number = 0;
    cudaStreamGetPriority(static_cast<cuda::Queue*>(queue)->stream(), &number);
    return number;
  };
  const int main = priority(cuda->queue());
  EXPECT_EQ(priority(cuda->side_queue(Side::kCollectives)->queue()), main);
  EXPECT_GT(priority(cuda->side_queue(Side::kUpdates)->queue()), main);
}

}  // namespace
}  // namespace onnx_fp8
