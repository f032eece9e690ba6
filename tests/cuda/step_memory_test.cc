// SPDX-License-Identifier: Apache-2.0
//
// A step says what it needs of the GPU's memory before it takes any. All that
// its kernels need for themselves lies in the plan's one block: results,
// cuBLASLt's and cuDNN's workspaces, copies of operands, partial sums, lists.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "base/check.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/convolution_library.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/memory_limit.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/providers/kernel_cases.h"
#include "tests/support/corpus.h"
#include "tests/support/forwarding_provider.h"
#include "tests/training/corpus_case.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;
constexpr size_t kProductWorkspace = 32 * kMebibyte;

int64_t Allocations() {
  return emulation::Calls("cudaMalloc") + emulation::Calls("cudaMallocAsync");
}

// 2 GiB of emulated memory, some of which tests of faults never free.
constexpr char kRemark[] =
    "a step needs 33 MiB for results and workspaces, in one block, 1 MiB for "
    "state and 1 MiB for batch, constants and outputs; the GPU had 20\\d\\d "
    "MiB "
    "free of 2048 MiB";

TEST(StepMemory, IsSaidBeforeAnyIsTaken) {
  TempDir dir;
  for (int64_t grad_accum : {1, 2}) {
    SessionOptions options = Options(WriteMlp(dir, false), "delayed");
    options.grad_accum = grad_accum;
    auto session = MakeSession(options, MakeCudaProvider());
    Batches batches(static_cast<size_t>(grad_accum), Batch(0));
    emulation::ResetCounts();
    std::string remark = session->Prepare(batches);
    EXPECT_TRUE(std::regex_match(remark, std::regex(kRemark))) << remark;
    EXPECT_EQ(session->Step(batches, 1e-2).remark, "");
    EXPECT_EQ(session->Step(batches, 1e-2).remark, "");
  }
}

// Prepare only computes with shapes; the scales of a recipe are state.
TEST(StepMemory, APlanTakesNone) {
  TempDir dir;
  auto session = MakeSession(Options(WriteMlp(dir, false)), MakeCudaProvider());
  emulation::ResetCounts();
  session->Prepare({Batch(0)});
  EXPECT_EQ(Allocations(), 0);
  EXPECT_EQ(session->Memory().arena_bytes, 0u);
  session->Step(Batch(0), 1e-2);
  EXPECT_GT(Allocations(), 0);
  EXPECT_GE(session->Memory().arena_bytes, kProductWorkspace);
}

TEST(StepMemory, AStepWithoutPrepareSaysIt) {
  TempDir dir;
  auto session = MakeSession(Options(WriteMlp(dir, false)), MakeCudaProvider());
  std::string remark = session->Step(Batch(0), 1e-2).remark;
  EXPECT_TRUE(std::regex_match(remark, std::regex(kRemark))) << remark;
}

TEST(StepMemory, AStepThatDoesNotFitIsRefusedBeforeAnyIsTaken) {
  TempDir dir;
  std::string model = WriteMlp(dir, false);
  size_t taken = emulation::TotalMemory() - emulation::FreeMemory();
  MemoryLimit limit(taken + 20 * kMebibyte);
  auto session = MakeSession(Options(model), MakeCudaProvider());
  emulation::ResetCounts();
  const std::regex expected(
      "expected 33\\d{6} bytes of GPU memory for a step \\(33\\d{6} for "
      "results "
      "and workspaces, \\d+ for state, \\d+ for batch, constants and "
      "outputs\\), "
      "got (20|19)\\d{6} free of \\d+; a smaller `batch_size` with a larger "
      "`grad_accum`, `dtype` bfloat16, `offload=optimizer` and ranks that "
      "divide the state "
      "\\(`shard`\\) need less");
  for (int i = 0; i < 2; ++i) {
    try {
      if (i == 0) session->Prepare({Batch(0)});
      if (i == 1) session->Step(Batch(0), 1e-2);
      FAIL();
    } catch (const Error& error) {
      EXPECT_TRUE(std::regex_match(error.what(), expected)) << error.what();
    }
  }
  EXPECT_EQ(Allocations(), 0);
}

// A plan of another batch later on.
TEST(StepMemory, ALargerBatchIsRefusedAndTheRunGoesOn) {
  TempDir dir;
  std::string model = WriteMlp(dir, false);
  size_t taken = emulation::TotalMemory() - emulation::FreeMemory();
  MemoryLimit limit(taken + 60 * kMebibyte);
  auto session = MakeSession(Options(model), MakeCudaProvider());
  session->Step(Batch(0), 1e-2);
  ExpectError([&] { session->Step(Batch(0, 200000), 1e-2); },
              "bytes of GPU memory for a step");
  EXPECT_EQ(session->Step(Batch(1), 1e-2).step, 2);
}

// What the device gives while a step runs is what was said: nothing is
// allocated beside the plan.
TEST(StepMemory, IsAllThatAStepTakes) {
  for (const char* name : {"nanogpt", "vit"}) {
    for (const CorpusFile& file : CorpusFiles()) {
      bool wanted = file.fixture && file.name == name && file.variant == "d18";
      if (!wanted) continue;
      CorpusCase c(file);
      c.options.dtype = DType::kBFloat16;
      auto session = MakeSession(c.options, MakeCudaProvider());
      std::string remark = session->Prepare({c.feeds});
      std::smatch sizes;
      ASSERT_TRUE(std::regex_search(
          remark, sizes,
          std::regex(
              "needs (\\d+) MiB .* block, (\\d+) MiB .* and (\\d+) MiB")));
      size_t said = 0;
      for (size_t i = 1; i < sizes.size(); ++i) {
        said += std::stoul(sizes[i]) * kMebibyte;
      }
      size_t free = emulation::FreeMemory();
      session->Step(c.feeds, 1e-3);
      session->Step(c.feeds, 1e-3);
      EXPECT_LE(free - emulation::FreeMemory(), said) << name;
    }
  }
}

// ---- who takes memory

// The provider; it counts what the executor takes.
class CountingProvider : public ForwardingProvider {
 public:
  explicit CountingProvider(int64_t* taken)
      : ForwardingProvider(MakeCudaProvider()), taken_(taken) {
    for (const auto& [name, entry] : CudaKernels().entries()) {
      kernels_.Add(name.second, entry.kernel, entry.traits, name.first);
    }
  }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    ++*taken_;
    return ForwardingProvider::Allocate(bytes);
  }

 private:
  int64_t* const taken_;
};

// A step of a fixture with that recipe and dtype.
struct StepCase {
  const char* recipe;
  DType dtype;
  size_t micro;
};
constexpr StepCase kStepCases[] = {{"off", DType::kFloat, 1},
                                   {"delayed", DType::kBFloat16, 2},
                                   {"rowwise", DType::kBFloat16, 1},
                                   {"blockwise", DType::kFloat, 1},
                                   {"mxfp8", DType::kFloat, 1}};

// Calls step(options, batches) for each fixture and each case.
template <typename F>
void ForSteps(F step) {
  for (const CorpusFile& file : CorpusFiles()) {
    if (!file.fixture || file.variant != "d18") continue;
    for (const StepCase& s : kStepCases) {
      SCOPED_TRACE(Concat(file.name, " ", s.recipe));
      CorpusCase c(file);
      c.options.recipe = ParseRecipe(s.recipe);
      c.options.dtype = s.dtype;
      c.options.grad_accum = static_cast<int64_t>(s.micro);
      c.options.optimizer.clip_norm = 1;
      step(c.options, Batches(s.micro, c.feeds));
    }
  }
}

// The executor's memory: the arena, amaxes, the number of a draw, constants,
// batches, state and results. Kernels take none beside it.
TEST(StepMemory, OnlyTheExecutorTakesIt) {
  ForSteps([](const SessionOptions& options, const Batches& batches) {
    int64_t taken = 0;
    auto session =
        MakeSession(options, std::make_unique<CountingProvider>(&taken));
    for (int i = 0; i < 2; ++i) {
      emulation::ResetCounts();
      taken = 0;
      session->Step(batches, 1e-3);
      EXPECT_EQ(emulation::Calls("cudaMalloc"), 0);
      EXPECT_EQ(emulation::Calls("cudaMallocAsync"), taken);
      EXPECT_GT(taken, 0);
    }
  });
}

// The second step is recorded, the third one is repeated. A step hands over a
// copy of its report, which the next step does not change, and so do its
// micro-batches and its update. It is freed when it was read.
TEST(StepMemory, LaterStepsTakeWhatTheyHandOver) {
  ForSteps([](const SessionOptions& options, const Batches& batches) {
    auto session = MakeSession(options, MakeCudaProvider());
    session->Step(batches, 1e-3);
    size_t free = emulation::FreeMemory();
    const auto micro = static_cast<int64_t>(batches.size());
    const int64_t copies = micro > 1 ? micro + 1 : 1;
    for (int i = 0; i < 3; ++i) {
      emulation::ResetCounts();
      session->Step(batches, 1e-3);
      EXPECT_EQ(emulation::Calls("cudaMalloc"), 0);
      EXPECT_EQ(emulation::Calls("cudaMallocAsync"), copies);
      EXPECT_EQ(emulation::Calls("cudaFreeAsync"), copies);
      EXPECT_EQ(emulation::FreeMemory(), free);
    }
  });
}

// Collectives and updates may have queues of their own, which are made here.
TEST(StepMemory, NoKernelTakesAny) {
  for (const KernelCase& c : KernelCases()) {
    std::shared_ptr<Graph> graph = GraphOf(c);
    auto provider = MakeCudaProvider();
    provider->side_queue(Side::kCollectives);
    provider->side_queue(Side::kUpdates);
    Executor executor(graph, *provider);
    TensorMap feeds = RandomFeeds(*graph, {"lse", "rows"}), state;
    emulation::ResetCounts();
    executor.Run(feeds, state);
    EXPECT_EQ(emulation::Calls("cudaMalloc"), 0) << c.name;
  }
}

// ---- single nodes

// Only its workspaces outlive the graph.
Plan PlanOf(const std::string& text, ExecutionProvider* provider) {
  std::unique_ptr<Graph> graph = ParseGraph(text);
  StoreNarrow(*graph, CudaKernels());
  return MakePlan(*graph, CudaKernels(), Device::kProvider,
                  provider ? provider->queue() : nullptr);
}

std::vector<int64_t> SizesOf(const Plan& plan) {
  std::vector<int64_t> sizes;
  for (const auto& value : plan.workspaces) sizes.push_back(value->dim(0));
  return sizes;
}

// The workspace of the only step that has one.
size_t WorkspaceOf(const std::string& text, bool on_device = true) {
  std::unique_ptr<ExecutionProvider> provider;
  if (on_device) provider = MakeCudaProvider();
  std::vector<int64_t> sizes = SizesOf(PlanOf(text, provider.get()));
  EXPECT_EQ(sizes.size(), 1u);
  return sizes.empty() ? 0 : static_cast<size_t>(sizes[0]);
}

TEST(Workspaces, ProductsOfFloatsNeedCublasLts) {
  constexpr char kGemm[] = R"(
input a: float[48,64]
input b: float[64,32]
input c: float[32]
y: float[48,32] = Gemm(a, b, c)
output y
)";
  EXPECT_EQ(WorkspaceOf(kGemm), kProductWorkspace);
  EXPECT_EQ(WorkspaceOf(kGemm, false), kProductWorkspace);
}

// A column of C is added to sums, by another pass.
TEST(Workspaces, SumsThatAreNotTheResultCount) {
  EXPECT_EQ(WorkspaceOf(R"(
input a: float[48,64]
input b: float[64,32]
input c: float[48,1]
y: float[48,32] = Gemm(a, b, c)
output y
)"),
            kProductWorkspace + 48 * 32 * 4);
}

std::string Rowwise(const char* y, const char* more = "") {
  return Concat(R"(
input qa: float8e4m3fn[32,64]
input qb: float8e4m3fn[64,48]
input sa: float[32,1]
input sb: float[1,48]
)",
                more, "y: float", y,
                " = onnx_fp8.ScaledMatMulBlock<transA=0, transB=0, "
                "a_block_rows=1, a_block_columns=0, b_block_rows=0, "
                "b_block_columns=1>(qa, sa, qb, sb)\noutput y\n");
}

// b does not lie along k; its copy counts. Sums only where cuBLASLt lacks
// scales of rows and columns.
TEST(Workspaces, CopiesOfCodesCount) {
  constexpr size_t kCopy = 64 * 48, kSums = 32 * 48 * 4;
  EXPECT_EQ(WorkspaceOf(Rowwise("[32,48]")), kProductWorkspace + kCopy);
  EXPECT_EQ(WorkspaceOf(Rowwise("[32,48]"), false), kProductWorkspace + kCopy);
  size_t version = emulation::CublasLtVersion();
  emulation::SetCublasLtVersion(120800);
  EXPECT_EQ(WorkspaceOf(Rowwise("[32,48]")), kProductWorkspace + kCopy + kSums);
  emulation::SetCublasLtVersion(version);
}

// The emulated library's: 256 bytes for the forward. cudnn/
// attention_plans_test.cc holds the bounds of both passes against cuDNN's
// plans.
TEST(Workspaces, AttentionNeedsTheLibrarys) {
  std::string text = BFloat16Text(SmallAttention());
  auto provider = MakeCudaProvider();
  EXPECT_EQ(SizesOf(PlanOf(text, provider.get())),
            (std::vector<int64_t>{256, 2 * 64 * (2 * 128 + 4)}));
  provider = MakeCudaProvider({.nondeterministic = true});
  EXPECT_EQ(SizesOf(PlanOf(text, provider.get())),
            (std::vector<int64_t>{256, 256}));
  EXPECT_EQ(SizesOf(PlanOf(text, nullptr)),
            (std::vector<int64_t>{1 << 20,
                                  2 * (2 * 64 * 128 + 64 * 64 + 8 * 128 * 8)}));
}

// Parts of the gradient share one workspace.
TEST(Workspaces, DividedAttentionNeedsOnePartsWorkspace) {
  AttentionCase c = SmallAttention();
  c.b = 6;
  c.groups = 2;
  std::string text = BFloat16Text(c);
  // Bytes of a head: the emulated library's, and their bound.
  constexpr int64_t kHead = 64 * (2 * 128 + 4);
  constexpr size_t kMost = 2 * 64 * 128 + 64 * 64 + 8 * 128 * 8;
  // Two batches of two heads.
  auto provider = MakeCudaProvider({.attention_workspace = 4 * kMost});
  EXPECT_EQ(SizesOf(PlanOf(text, provider.get())),
            (std::vector<int64_t>{256, 4 * kHead}));
  // One head, and a copy of its lse of five floats.
  provider = MakeCudaProvider({.attention_workspace = 1});
  EXPECT_EQ(SizesOf(PlanOf(text, provider.get())),
            (std::vector<int64_t>{256, kHead + 256}));
}

// Neither a forecast nor the plan on a device takes more than 1 GiB, unless a
// group of heads needs it.
TEST(Workspaces, LongAttentionNeedsOneGibibyte) {
  struct Long {
    int b, t, heads, groups;
    bool fits = true;
  };
  const Long kLong[] = {{1, 8192, 32, 8},         {4, 4096, 32, 8},
                        {3, 8191, 12, 12},        {64, 2048, 12, 12},
                        {1, 32768, 32, 8, false}, {2, 32767, 3, 3, false}};
  for (const Long& z : kLong) {
    AttentionCase c = SmallAttention();
    c.b = z.b;
    c.t = c.s = z.t;
    c.heads = z.heads;
    c.groups = z.groups;
    c.d = c.e = 128;
    std::string text = BFloat16Text(c);
    auto provider = MakeCudaProvider();
    int64_t planned = SizesOf(PlanOf(text, provider.get())).at(1);
    int64_t forecast = SizesOf(PlanOf(text, nullptr)).at(1);
    EXPECT_LE(planned, forecast) << z.t;
    EXPECT_EQ(forecast <= int64_t{1} << 30, z.fits) << z.t;
    // One group's gradients of scores, and a sixteenth more.
    int64_t group = int64_t{2} * (z.heads / z.groups) * z.t * z.t;
    if (z.fits) continue;
    EXPECT_LE(forecast, group + group / 16) << z.t;
  }
}

// Our own kernel keeps two floats for each row, and in a step without a device.
TEST(Workspaces, OurAttentionNeedsItsOwn) {
  AttentionCase floats = SmallAttention();
  floats.attributes = "causal=1, scale=0.2";
  std::string text = GraphText(floats) + "output y\noutput dk\n";
  EXPECT_EQ(WorkspaceOf(text), 2 * 2 * 5 * sizeof(float));
  EXPECT_EQ(WorkspaceOf(text, false), 2 * 2 * 5 * sizeof(float));
}

// Taps of 9 · 4 elements, 32 bytes each. cuDNN's workspace is not known without
// a device.
TEST(Workspaces, ConvolutionsNeedTheLibrarysOrTheirOwn) {
  constexpr char kConv[] = R"(
input x: float[2,4,6,6]
input w: float[8,4,3,3]
y: float[2,8,4,4] = Conv(x, w)
output y
)";
  constexpr size_t kTaps = (9 * 4 * 32 + 255) / 256 * 256;
  EXPECT_EQ(WorkspaceOf(kConv), 1000u);
  EXPECT_EQ(WorkspaceOf(kConv, false), kTaps);
  cuda::SetConvolutionLibrary(false);
  EXPECT_EQ(WorkspaceOf(kConv), kTaps);
  cuda::SetConvolutionLibrary(true);
}

struct SizeCase {
  const char* node;
  size_t bytes;
};

// Seven factors, the two keys of draws and four bytes of padding, the four
// numbers of their places, the correction of the first moment and the largest
// update.
constexpr size_t kBytesOfAnUpdate = 10 * 4 + 4 * 8 + 2 * 8;

TEST(Workspaces, SumsAndListsLieThere) {
  constexpr char kInputs[] = R"(graph "g" opset 23
input x: float[70,48]
input z: float[70,48]
input w: float[48]
input m: float[70,1]
input long: float[70,8200]
input long_row: float[8200]
input whole: float[40000]
input ints: int64[70,48]
input pixels: float[4,6,130,130]
input six: float[6]
input scores: float[300,2000]
input labels: int64[300]
input dloss: float[]
input lse: float[300]
input g: float[48]
const step: int64[] = {3}
const lr: float[] = {0.125}
const ok: bool[] = {1}
const first: int64[1] = {0}
const last: int64[1] = {1}
)";
  const SizeCase cases[] = {
      // Five parts, of 16 rows each, rounded up.
      {"y: float[70,48], s: float[48], b: float[48] = "
       "onnx_fp8.LayerNormGrad<axis=1>(x, z, w, m, m)",
       2048},
      {"y: float[70,48], s: float[48] = "
       "onnx_fp8.RMSNormGrad<axis=1>(x, z, w)",
       1024},
      // Two parts, and a number for each row.
      {"y: float[70,8200], s: float[8200] = "
       "onnx_fp8.RMSNormGrad<axis=1>(long, long, long_row)",
       (16448 + 70) * 4},
      {"y: float[70,48], s: float[48] = onnx_fp8.GeluBiasGrad(x, z)",
       2 * 48 * 4},
      {"y: float[] = ReduceSum<keepdims=0>(whole)", 3 * 4},
      {"y: float[] = ReduceSumSquare<keepdims=0>(whole)", 3 * 4},
      {"y: float[] = ReduceLogSumExp<keepdims=0>(whole)", 3 * 2 * 4},
      {"y: int64[70] = ReduceSum<keepdims=0>(ints, last)", 70 * 8},
      {"y: int64[70] = ReduceMax<keepdims=0>(ints, last)", 70 * 8},
      // One chunk: 256 rows.
      {"y: float[48] = ReduceSum<keepdims=0>(x, first)", 48 * 4},
      // Two doubles for each of 5 and 4 chunks, and for each segment.
      {"y: float[4,6,130,130] = BatchNormalization(pixels, six, six, six, six)",
       6 * (5 + 1) * 16},
      {"y: float[4,6,130,130] = GroupNormalization<num_groups=2>(pixels, six, "
       "six)",
       8 * (4 + 1) * 16},
      // Two doubles for each row, or for each warp.
      {"y: float[] = onnx_fp8.CrossEntropy(scores, labels)", 300 * 16},
      {"y: float[] = NegativeLogLikelihoodLoss(scores, labels)", 2 * 8 * 16},
      {"y: float[300,2000] = onnx_fp8.CrossEntropyGrad(dloss, scores, lse, "
       "labels)",
       8},
      {"l: float[], y: float[300,2000] = onnx_fp8.CrossEntropyWithGrad(dloss, "
       "scores, labels)",
       300 * 16 + 8},
      // 300 / 33 long rows.
      {"y: float[2000,2000] = onnx_fp8.GatherGrad<axis=0, shape=[2000,2000]>"
       "(scores, labels)",
       (2 * 2000 + 2 * 300 + 9 + 2) * 4},
      // One scale for a column of more than 128 rows.
      {"y: float8e4m3fn[300,2000], s: float[1,2000] = onnx_fp8.QuantizeBlock"
       "<to=17, q_max=448.0, block_rows=0, block_columns=1, pow2=0, "
       "scale_to=1>(scores)",
       2000 * 4},
      {"y: float[48] = onnx_fp8.SGD(w, g, lr, lr, ok)", kBytesOfAnUpdate},
      {"y: float[48], n: float[48], u: float[48] = onnx_fp8.AdamW"
       "(w, g, w, w, step, lr, lr, ok)",
       kBytesOfAnUpdate},
  };
  for (const SizeCase& c : cases) {
    const std::string text = Concat(kInputs, c.node, "\noutput y\n");
    EXPECT_EQ(WorkspaceOf(text), c.bytes) << c.node;
    EXPECT_EQ(WorkspaceOf(text, false), c.bytes) << c.node;
  }
}

}  // namespace
}  // namespace onnx_fp8
