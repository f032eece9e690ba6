// SPDX-License-Identifier: Apache-2.0
//
// Collectives on the emulated device. The ranks are processes.
#include <gtest/gtest.h>

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/collectives/local_rank.h"
#include "providers/cuda/collectives/nccl.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/run/executor.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/cuda/process_ranks.h"
#include "tests/graph/parse.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/corpus_case.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

#if __has_include(<nccl.h>)
static_assert(sizeof(cuda::NcclId) == sizeof(ncclUniqueId));
static_assert(cuda::kNcclUInt8 == int{ncclUint8});
static_assert(cuda::kNcclInt32 == int{ncclInt32});
static_assert(cuda::kNcclInt64 == int{ncclInt64});
static_assert(cuda::kNcclFloat == int{ncclFloat32});
static_assert(cuda::kNcclDouble == int{ncclFloat64});
static_assert(cuda::kNcclSum == int{ncclSum});
static_assert(cuda::kNcclMax == int{ncclMax});
static_assert(cuda::kNcclSystemError == int{ncclSystemError});
static_assert(cuda::kNcclInternalError == int{ncclInternalError});
static_assert(cuda::kNcclInvalidArgument == int{ncclInvalidArgument});
static_assert(cuda::kNcclInvalidUsage == int{ncclInvalidUsage});
static_assert(cuda::kNcclRemoteError == int{ncclRemoteError});
static_assert(cuda::kNcclInProgress == int{ncclInProgress});
#endif

// `node`: the op and its attributes but for the group.
std::shared_ptr<Graph> CollectiveGraph(int ranks, const std::string& x,
                                       const std::string& y,
                                       const std::string& op,
                                       const std::string& more = "") {
  return ParseGraph(Concat("input x: ", x, "\ny: ", y, " = onnx_fp8.", op,
                           "<group=\"dp\", ranks=", ranks, more,
                           ">(x)\noutput y\n"));
}

std::vector<float> Numbers(int rank, size_t count) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) {
    data[i] =
        static_cast<float>((i * 7 + 1) % 31) - static_cast<float>(rank * 5);
  }
  return data;
}

// Three runs: the first, the recorded one and its replay.
std::vector<Tensor> RunThrice(const std::shared_ptr<Graph>& graph,
                              Communicator& ranks, const Tensor& x) {
  const auto cuda = MakeCudaProvider();
  const Groups groups = {{"dp", &ranks}};
  Executor executor(graph, *cuda);
  executor.set_groups(&groups);
  TensorMap state;
  std::vector<Tensor> results;
  for (int i = 0; i < 3; ++i) {
    results.push_back(cuda->ToHost(executor.Run({{"x", x}}, state).at("y")));
  }
  return results;
}

void ExpectResult(const std::shared_ptr<Graph>& graph, Communicator& ranks,
                  const std::vector<float>& x, const std::vector<float>& want) {
  const Tensor fed = Tensor::From<float>({static_cast<int64_t>(x.size())}, x);
  for (const Tensor& y : RunThrice(graph, ranks, fed)) {
    ASSERT_EQ(static_cast<size_t>(y.size()), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(y.data<float>()[i], want[i]) << "element " << i;
    }
  }
}

// Sums of small integers are exact in any order.
void CheckReductions(Communicator& ranks) {
  const int n = ranks.size();
  std::vector<float> sum(6, 0), max(6, -INFINITY);
  for (int r = 0; r < n; ++r) {
    const std::vector<float> x = Numbers(r, 6);
    for (size_t i = 0; i < 6; ++i) {
      sum[i] += x[i];
      max[i] = std::max(max[i], x[i]);
    }
  }
  std::vector<float> mine = Numbers(ranks.rank(), 6);
  auto graph = [&](const std::string& reduction) {
    return CollectiveGraph(n, "float[6]", "float[6]", "AllReduce",
                           ", reduction=\"" + reduction + "\"");
  };
  ExpectResult(graph("sum"), ranks, mine, sum);
  ExpectResult(graph("max"), ranks, mine, max);
  // An amax that is not finite reaches all ranks.
  if (ranks.rank() == n - 1) mine[2] = INFINITY;
  max[2] = INFINITY;
  ExpectResult(graph("max"), ranks, mine, max);
  const auto part = static_cast<size_t>(6 / n);
  const auto begin = sum.begin() + static_cast<ptrdiff_t>(part) * ranks.rank();
  ExpectResult(CollectiveGraph(n, "float[6]", Concat("float[", part, "]"),
                               "ReduceScatter"),
               ranks, Numbers(ranks.rank(), 6),
               {begin, begin + static_cast<ptrdiff_t>(part)});
}

void CheckCopies(Communicator& ranks) {
  const int n = ranks.size();
  std::vector<float> all;
  for (int r = 0; r < n; ++r) {
    const std::vector<float> x = Numbers(r, 3);
    all.insert(all.end(), x.begin(), x.end());
  }
  const std::vector<float> mine = Numbers(ranks.rank(), 3);
  ExpectResult(
      CollectiveGraph(n, "float[3]", Concat("float[", 3 * n, "]"), "AllGather"),
      ranks, mine, all);
  all.pop_back();
  ExpectResult(CollectiveGraph(n, "float[3]", Concat("float[", 3 * n - 1, "]"),
                               "AllGather", Concat(", rows=", 3 * n - 1)),
               ranks, mine, all);
  ExpectResult(
      CollectiveGraph(n, "float[3]", "float[3]", "Broadcast", ", root=1"),
      ranks, mine, Numbers(1, 3));
}

class CudaCollectives : public testing::TestWithParam<int> {};

TEST_P(CudaCollectives, Reduce) {
  EXPECT_EQ(RunProcesses(GetParam(), CheckReductions), "");
}

TEST_P(CudaCollectives, Copy) {
  EXPECT_EQ(RunProcesses(GetParam(), CheckCopies), "");
}

INSTANTIATE_TEST_SUITE_P(All, CudaCollectives, testing::Values(2, 3));

TEST(CudaRanks, OtherGraphsAreAnErrorOfTheNode) {
  const std::string errors = RunProcesses(2, [](Communicator& ranks) {
    const int n = 3 + ranks.rank();
    const std::string type = Concat("float[", n, "]");
    RunThrice(
        CollectiveGraph(2, type, type, "AllReduce", ", reduction=\"sum\""),
        ranks, Tensor::From<float>({n}, Numbers(0, static_cast<size_t>(n))));
  });
  EXPECT_NE(errors.find("[collectives of the plan] expected y: float[3] = "),
            std::string::npos)
      << errors;
  EXPECT_NE(errors.find("got y: float[4] = "), std::string::npos) << errors;
}

TEST(CudaRanks, NanInAMaximumIsAnErrorOfTheNode) {
  const std::string errors = RunProcesses(2, [](Communicator& ranks) {
    std::vector<float> x = {1, 2, 3};
    if (ranks.rank() == 1) x[2] = NAN;
    RunThrice(CollectiveGraph(2, "float[3]", "float[3]", "AllReduce",
                              ", reduction=\"max\""),
              ranks, Tensor::From<float>({3}, x));
  });
  EXPECT_NE(errors.find("rank 1: [onnx_fp8.AllReduce -> y] expected numbers in "
                        "a maximum over ranks, got NaN as "
                        "element 2"),
            std::string::npos)
      << errors;
}

TEST(CudaRanks, GroupsOfAnotherSize) {
  const std::string errors = RunProcesses(2, [](Communicator& ranks) {
    RunThrice(CollectiveGraph(3, "float[3]", "float[3]", "Broadcast"), ranks,
              Tensor::From<float>({3}, Numbers(0, 3)));
  });
  EXPECT_NE(errors.find("expected 3 ranks in the group dp, got 2"),
            std::string::npos)
      << errors;
}

// A bucket and a gather run on the second stream, beside e to g: results and
// operands must be there in time, and stay long enough.
TEST(CudaRanks, CollectivesBesideOtherNodes) {
  const auto graph = [] {
    return ParseGraph(R"(
input x: float[8]
p: float[8] = Neg(x)
q: float[8] = Abs(x)
a: float[4] = onnx_fp8.ReduceScatter<group="dp", ranks=2, bucket=1>(p)
b: float[4] = onnx_fp8.ReduceScatter<group="dp", ranks=2, bucket=1>(q)
e: float[8] = Add(x, x)
f: float[8] = Mul(e, e)
g: float[8] = Sub(f, x)
all: float[8] = onnx_fp8.AllGather<group="dp", ranks=2>(a)
h: float[8] = Add(g, f)
i: float[8] = Add(all, h)
c: float[4] = Add(a, b)
j: float[8] = onnx_fp8.AllGather<group="dp", ranks=2>(c)
y: float[8] = Add(i, j)
output y
)");
  };
  // Small integers: sums are exact.
  const std::vector<float> x0 = Numbers(0, 8), x1 = Numbers(1, 8);
  const std::string errors = RunProcesses(2, [&](Communicator& ranks) {
    const std::vector<float>& x = ranks.rank() ? x1 : x0;
    std::vector<float> want(8);
    for (size_t i = 0; i < 8; ++i) {
      const float a = -x0[i] - x1[i], b = std::fabs(x0[i]) + std::fabs(x1[i]);
      const float f = 4 * x[i] * x[i];
      want[i] = a + (f - x[i] + f) + (a + b);
    }
    ExpectResult(graph(), ranks, x, want);
  });
  EXPECT_EQ(errors, "");
}

// A bucket of gathers with several dtypes, one of them with fewer rows than the
// ranks have.
TEST(CudaRanks, GathersOfABucket) {
  const std::string errors = RunProcesses(2, [](Communicator& ranks) {
    const std::shared_ptr<Graph> graph = ParseGraph(R"(
input x: float[3]
h: float16[3] = Cast<to=10>(x)
a: float[6] = onnx_fp8.AllGather<group="dp", ranks=2, bucket=1>(x)
b: float[5] = onnx_fp8.AllGather<group="dp", ranks=2, rows=5, bucket=1>(x)
c: float16[6] = onnx_fp8.AllGather<group="dp", ranks=2, bucket=1>(h)
wide: float[6] = Cast<to=1>(c)
y: float[17] = Concat<axis=0>(a, b, wide)
output y
)");
    std::vector<float> all = Numbers(0, 3), want;
    const std::vector<float> second = Numbers(1, 3);
    all.insert(all.end(), second.begin(), second.end());
    for (size_t count : {6, 5, 6}) {
      want.insert(want.end(), all.begin(),
                  all.begin() + static_cast<ptrdiff_t>(count));
    }
    ExpectResult(graph, ranks, Numbers(ranks.rank(), 3), want);
  });
  EXPECT_EQ(errors, "");
}

struct RankResult {
  std::vector<float> losses;
  int64_t received = 0;  // bytes of the last step
};

int64_t Received(const Communicator& world) {
  const WireBytes& bytes = world.wire_bytes();
  return bytes.all_reduce + bytes.all_gather + bytes.reduce_scatter;
}

RankResult TrainOn(std::unique_ptr<ExecutionProvider> provider,
                   const SessionOptions& options, const TensorMap& batch,
                   Communicator& world, const Mesh& mesh) {
  const MeshRanks ranks(mesh, world);
  auto session = MakeSession(options, std::move(provider), &ranks);
  RankResult all;
  for (int i = 0; i < 5; ++i) {
    const int64_t before = Received(world);
    const StepResult result = session->Step(
        {ShareOf(batch, ranks.data_rank(), mesh.data_ranks())}, 1e-3);
    EXPECT_FALSE(result.skipped) << result.cause;
    all.losses.push_back(result.loss);
    all.received = Received(world) - before;
  }
  return all;
}

// Five steps of two ranks; from the third on they are replayed. NCCL's bytes
// equal the bytes that the ranks of the CPU count.
void ExpectCpusLosses(const SessionOptions& options, const TensorMap& batch,
                      double band, const Mesh& mesh = {.dp = 2}) {
  RankResult want;
  RunRanks(2, [&](Communicator& ranks) {
    const RankResult result =
        TrainOn(MakeCpuProvider(), options, batch, ranks, mesh);
    if (ranks.rank() == 0) want = result;
  });
  const std::string errors = RunProcesses(2, [&](Communicator& ranks) {
    const RankResult result =
        TrainOn(MakeCudaProvider(), options, batch, ranks, mesh);
    const std::vector<float>& got = result.losses;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], want.losses[i], band * std::fabs(want.losses[i]))
          << "step " << i;
    }
    EXPECT_EQ(result.received, want.received);
    // All ranks have equal bits.
    std::vector<float> first = got;
    ranks.Broadcast(first.data(), first.size() * sizeof(float), 0);
    EXPECT_EQ(got, first);
  });
  EXPECT_EQ(errors, "");
}

TEST(CudaRanks, OneRankCopies) {
  ExpectCpusResults(R"(
input x: float[4,2]
a: float[4,2] = onnx_fp8.AllReduce<group="dp", ranks=1, reduction="max">(x)
b: float[4,2] = onnx_fp8.AllGather<group="dp", ranks=1>(x)
c: float[3,2] = onnx_fp8.AllGather<group="dp", ranks=1, rows=3>(x)
d: float[4,2] = onnx_fp8.ReduceScatter<group="dp", ranks=1>(x)
e: float[4,2] = onnx_fp8.Broadcast<group="dp", ranks=1>(x)
output a
output b
output c
output d
output e
)",
                    0);
}

TEST(CudaRanks, ARankThatEndsIsAnErrorOfTheOthers) {
  const std::string errors = RunProcesses(2, [](Communicator& ranks) {
    const auto cuda = MakeCudaProvider();
    const Groups groups = {{"dp", &ranks}};
    Executor executor(CollectiveGraph(2, "float[3]", "float[3]", "AllReduce",
                                      ", reduction=\"sum\""),
                      *cuda);
    executor.set_groups(&groups);
    TensorMap state;
    const Tensor x = Tensor::From<float>({3}, Numbers(0, 3));
    cuda->ToHost(executor.Run({{"x", x}}, state).at("y"));
    if (ranks.rank() == 1) return;
    cuda->ToHost(executor.Run({{"x", x}}, state).at("y"));
  });
  EXPECT_TRUE(errors.starts_with("rank 0: ")) << errors;
  EXPECT_NE(errors.find("cudaErrorLaunchFailure"), std::string::npos) << errors;
  EXPECT_EQ(errors.find("rank 1"), std::string::npos) << errors;
}

// A group that stayed open would hold back the next call.
TEST(CudaRanks, AnErrorInABucketEndsItsGroup) {
  const std::string errors = RunProcesses(2, [](Communicator& ranks) {
    const auto cuda = MakeCudaProvider();
    const Groups groups = {{"dp", &ranks}};
    TensorMap state;
    Executor bucket(ParseGraph(R"(
input x: float16[3]
input z: float16[3]
a: float16[3] = onnx_fp8.AllReduce<bucket=1, group="dp", ranks=2, reduction="sum">(x)
b: float16[3] = onnx_fp8.AllReduce<bucket=1, group="dp", ranks=2, reduction="sum">(z)
output a
output b
)"),
                    *cuda);
    bucket.set_groups(&groups);
    const Tensor half = Tensor::Zeros(DType::kFloat16, {3});
    ExpectError(
        [&] {
          bucket.Run({{"x", half}, {"z", half}}, state);
        },
        "expected float, double, int32 or int64, got float16");
    Executor next(CollectiveGraph(2, "float[3]", "float[3]", "AllReduce",
                                  ", reduction=\"sum\""),
                  *cuda);
    next.set_groups(&groups);
    const Tensor x = Tensor::From<float>({3}, Numbers(ranks.rank(), 3));
    const Tensor y = cuda->ToHost(next.Run({{"x", x}}, state).at("y"));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(y.data<float>()[i], Numbers(0, 3)[i] + Numbers(1, 3)[i]) << i;
    }
  });
  EXPECT_EQ(errors, "");
}

TEST(CudaRanks, EachProcessOfAMachineHasItsGpu) {
  const auto with = [](const std::string& name, const char* value) {
    return cuda::LocalRank(
        [=](const char* asked) { return name == asked ? value : nullptr; });
  };
  EXPECT_EQ(with("", nullptr), 0);
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                           "LOCAL_RANK", "SLURM_LOCALID"}) {
    EXPECT_EQ(with(name, "3"), 3) << name;
  }
  ExpectError([&] { with("LOCAL_RANK", "first"); },
              "[LOCAL_RANK] expected a number, got 'first'");
  EXPECT_EQ(cuda::DeviceOf(0, 8, nullptr), 0);
  EXPECT_EQ(cuda::DeviceOf(3, 8, "0,1,2,3,4,5,6,7"), 3);
  // Slurm's --gpus-per-task=1 shows each process one GPU, as number 0.
  EXPECT_EQ(cuda::DeviceOf(3, 1, "0"), 0);
  ExpectError([] { cuda::DeviceOf(2, 2, "0,1"); },
              "expected a GPU for each of the 3 or more processes of this "
              "machine, got 2 GPUs");
  const auto second = [](const std::string& name) {
    return name == "LOCAL_RANK" ? "1" : nullptr;
  };
  ExpectError([&] { cuda::UseOwnDevice(second); },
              "expected a GPU for each of the 2 or more processes of this "
              "machine, got 1 GPU");
}

TEST(CudaRanks, TrainTheMlp) {
  TempDir dir;
  const std::string mlp = WriteMlp(dir, false);
  ExpectCpusLosses(Options(mlp), Batch(1, 7), 2e-5);
  ExpectCpusLosses(Options(mlp, "tensorwise"), Batch(1, 7), 5e-3);
  ExpectCpusLosses(Options(mlp, "delayed"), Batch(1, 7), 5e-3);
}

// The weights travel as FP8.
TEST(CudaRanks, TrainTheMlpInParts) {
  TempDir dir;
  for (const char* recipe : {"off", "tensorwise", "delayed"}) {
    SessionOptions options = Options(WriteMlp(dir, false), recipe);
    options.shard.what = Sharding::kParameters;
    ExpectCpusLosses(options, Batch(1, 7),
                     options.recipe == Recipe() ? 2e-5 : 5e-3);
  }
}

TEST(CudaRanks, TrainNanoGpt) {
  for (const CorpusFile& file : CorpusFiles()) {
    if (!file.fixture || file.name + "/" + file.variant != "nanogpt/d18") {
      continue;
    }
    CorpusCase c(file);
    c.options.optimizer.clip_norm = 1;
    ExpectCpusLosses(c.options, c.feeds, 2e-5);
    // Heads, the vocabulary and the other layers are divided.
    ExpectCpusLosses(c.options, c.feeds, 2e-5, {.tp = 2});
  }
}

TEST(CudaRanks, DivideTheLayersOfTheMlp) {
  TempDir dir;
  for (const char* recipe : {"off", "tensorwise", "delayed"}) {
    const SessionOptions options = Options(WriteMlp(dir, false), recipe);
    ExpectCpusLosses(options, Batch(1, 7),
                     options.recipe == Recipe() ? 2e-5 : 5e-3, {.tp = 2});
  }
}

}  // namespace
}  // namespace onnx_fp8
