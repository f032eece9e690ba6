// SPDX-License-Identifier: Apache-2.0
//
// The copies of weights that micro-batches read, in FP8 or in 16 bits, lie on
// the device once, and nothing copies them.
#include <gtest/gtest.h>

#include <tuple>

#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/run/executor.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/graph/parse.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kWide = 16384;
// Bytes of the codes. The forward reads both weights transposed. The backward
// reads the second weight as it is.
constexpr size_t kCodes = kWide * (kIn + 2 * 16);
// Rounded weights.
constexpr size_t kRoundedBytes = kWide * (kIn + 16) * 2;

// Two linear layers of many weights, on batches of small_model.h.
std::string WriteWide(const TempDir& dir) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  auto weight = [&](const char* name, const Shape& shape, uint64_t seed) {
    return graph.AddInitializer(name, Random(shape, seed));
  };
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kIn});
  x->axis_names = {"batch", ""};
  Value* h = b.Op("MatMul", {x, weight("fc.weight", {kIn, kWide}, 1)});
  Value* y =
      b.Op("MatMul", {b.Op("Relu", {h}), weight("out.weight", {kWide, 16}, 2)});
  graph.outputs = {y};
  std::string path = dir / "wide.onnx";
  WriteModel(graph, path);
  return path;
}

// A session on the device, and the memory that it has taken there.
struct DeviceSession {
  explicit DeviceSession(const SessionOptions& options)
      : session(MakeSession(options, MakeCudaProvider())) {}

  // Besides results, workspaces and state.
  size_t Others() const {
    const MemoryInfo memory = session->Memory();
    const size_t taken = before - emulation::FreeMemory();
    return taken - memory.arena_bytes - memory.state_bytes;
  }

  size_t before = emulation::FreeMemory();
  std::unique_ptr<TrainingSession> session;
};

class WeightCopies : public testing::Test {
 protected:
  SessionOptions Accumulating(const std::string& recipe) const {
    SessionOptions options = Options(model_, recipe);
    options.grad_accum = 2;
    return options;
  }

  TempDir dir_;
  std::string model_ = WriteWide(dir_);
};

struct Taken {
  int64_t copies = 0, allocations = 0;
  size_t others = 0;
};

// A step that repeats recordings.
Taken TakenBy(const SessionOptions& options) {
  DeviceSession device(options);
  const Batches batches = {Batch(1), Batch(2)};
  for (int i = 0; i < 2; ++i) device.session->Step(batches, 1e-2);
  emulation::ResetCounts();
  device.session->Step(batches, 1e-2);
  return {emulation::Calls("cudaMemcpyAsync"),
          emulation::Calls("cudaMallocAsync"), device.Others()};
}

TEST_F(WeightCopies, LieInMemoryOnceAndAreNotCopied) {
  const Taken without = TakenBy(Accumulating("off"));
  for (const auto& [recipe, dtype, bytes] :
       {std::tuple{"tensorwise", DType::kFloat, kCodes},
        {"off", DType::kBFloat16, kRoundedBytes}}) {
    SCOPED_TRACE(recipe);
    SessionOptions options = Accumulating(recipe);
    options.dtype = dtype;
    const Taken with = TakenBy(options);
    EXPECT_EQ(with.copies, without.copies);
    EXPECT_EQ(with.allocations, without.allocations);
    // An allocation takes a multiple of 256 bytes, and without copies another
    // constant may need one.
    EXPECT_GE(with.others - without.others + 256, bytes);
    EXPECT_LT(with.others - without.others, bytes + bytes / 2);
  }
}

TEST_F(WeightCopies, ServeMicroBatchesOfOtherShapes) {
  DeviceSession device(Accumulating("tensorwise"));
  for (int i = 0; i < 3; ++i) {
    device.session->Step(Batches{Batch(1), Batch(2)}, 1e-2);
  }
  const size_t one = device.Others();
  for (int i = 0; i < 3; ++i) {
    device.session->Step(Batches{Batch(1), Batch(2, 3)}, 1e-2);
  }
  EXPECT_LT(device.Others() - one, kCodes / 2);
}

// A session that begins anew makes its plans, and the copies, anew.
TEST_F(WeightCopies, AreThoseOfTheStepsWeights) {
  model_ = WriteMlp(dir_, false);
  for (const char* recipe : {"tensorwise", "delayed", "rowwise"}) {
    SCOPED_TRACE(recipe);
    auto whole = MakeSession(Accumulating(recipe), MakeCudaProvider());
    for (uint64_t i = 0; i < 4; ++i) {
      const Batches batches = {Batch(2 * i), Batch(2 * i + 1, 3)};
      auto anew = MakeSession(Accumulating(recipe), MakeCudaProvider());
      if (i > 0) anew->Restore(dir_ / "run");
      EXPECT_EQ(whole->Step(batches, 1e-2).loss,
                anew->Step(batches, 1e-2).loss);
      ExpectSame(Weights(*whole, dir_), Weights(*anew, dir_));
      whole->Save(dir_ / "run");
    }
  }
}

// ---- the executors

TEST(ReusedOutputs, LieWhereTheyWereAndAreFedInPlace) {
  std::shared_ptr<Graph> first = ParseGraph(R"(
input x: float[6]
y: float[6] = Neg(x)
output y
output x
)");
  std::shared_ptr<Graph> second = ParseGraph(R"(
input y: float[6]
z: float[6] = Neg(y)
output z
)");
  auto cuda = MakeCudaProvider();
  Executor writer(first, *cuda), reader(second, *cuda);
  writer.set_reuses_outputs(true);
  const void* place = nullptr;
  for (uint64_t i = 0; i < 4; ++i) {
    TensorMap state;
    Tensor x = Random({6}, i);
    TensorMap written = writer.Run({{"x", x}}, state);
    Tensor y = written.at("y");
    if (i == 0) place = y.raw();
    EXPECT_EQ(y.raw(), place);
    emulation::ResetCounts();
    TensorMap read = reader.Run({{"y", y}}, state);
    EXPECT_EQ(emulation::Calls("cudaMemcpyAsync"), 1);  // its result
    EXPECT_EQ(emulation::Calls("cudaGraphLaunch"), i == 0 ? 0 : 1);
    EXPECT_TRUE(Identical(cuda->ToHost(read.at("z")), x));
    EXPECT_TRUE(Identical(cuda->ToHost(written.at("x")), x));
  }
}

// Feeds that lie elsewhere each time.
TEST(FeedsOnTheDevice, AreReadWhereTheyLie) {
  std::shared_ptr<Graph> graph = ParseGraph(R"(
input x: float[6]
y: float[6] = Neg(x)
z: float[6] = Neg(y)
output z
)");
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  const Tensor a = Random({6}, 1), b = Random({6}, 2);
  const Tensor a_there = cuda->Clone(a), b_there = cuda->Clone(b);
  for (const auto& [host, fed] : {std::pair{a, a_there},
                                  {a, a_there},
                                  {b, b_there},
                                  {a, a},
                                  {b, b},
                                  {b, b_there}}) {
    TensorMap state;
    TensorMap outputs = executor.Run({{"x", fed}}, state);
    EXPECT_TRUE(Identical(cuda->ToHost(outputs.at("z")), host));
    EXPECT_TRUE(Identical(cuda->ToHost(a_there), a));
  }
}

}  // namespace
}  // namespace onnx_fp8
