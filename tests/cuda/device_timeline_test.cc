// SPDX-License-Identifier: Apache-2.0
//
// Timelines of the emulated device, by its CUPTI.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#if __has_include(<cupti.h>)
#include <cupti.h>
#endif

#include "providers/cuda/cuda_provider.h"
#include "providers/cuda/profiling/cupti.h"
#include "providers/run/device_timeline.h"
#include "providers/run/executor.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation_test/child.h"
#include "tests/cuda/process_ranks.h"
#include "tests/graph/parse.h"
#include "tests/training/files.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

#if __has_include(<cupti.h>)
template <typename Record>
constexpr bool Fits(const cuda::CuptiLayout& layout) {
  return layout.begin == offsetof(Record, start) &&
         layout.end == offsetof(Record, end) &&
         layout.stream == offsetof(Record, streamId) &&
         layout.correlation == offsetof(Record, correlationId) &&
         layout.graph_id == offsetof(Record, graphId);
}
static_assert(Fits<CUpti_ActivityKernel9>(cuda::kCuptiKernelLayout));
static_assert(cuda::kCuptiKernelName == offsetof(CUpti_ActivityKernel9, name));
#if CUPTI_API_VERSION >= 130000
static_assert(Fits<CUpti_ActivityKernel10>(cuda::kCuptiKernelLayout));
static_assert(Fits<CUpti_ActivityMemcpy6>(cuda::kCuptiCopyLayout));
#endif
static_assert(Fits<CUpti_ActivityMemcpy5>(cuda::kCuptiCopyLayout));
static_assert(cuda::kCuptiCopyKind ==
              offsetof(CUpti_ActivityMemcpy5, copyKind));
static_assert(Fits<CUpti_ActivityMemset4>(cuda::kCuptiClearLayout));
static_assert(cuda::kCuptiConcurrentKernel ==
              int{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
static_assert(cuda::kCuptiMemcpy == int{CUPTI_ACTIVITY_KIND_MEMCPY});
static_assert(cuda::kCuptiMemset == int{CUPTI_ACTIVITY_KIND_MEMSET});
#endif

std::unique_ptr<ExecutionProvider> Recording() {
  return MakeCudaProvider({.timeline = true});
}

// Events of a trace that are of the device.
std::vector<nlohmann::json> DeviceEvents(const std::string& trace) {
  std::vector<nlohmann::json> events;
  for (const auto& event : nlohmann::json::parse(trace)) {
    if (event["cat"] != "host") events.push_back(event);
  }
  return events;
}

// The kernels of each op in a trace.
std::map<std::string, std::set<std::string>> KernelsByOp(
    const std::string& trace) {
  std::map<std::string, std::set<std::string>> kernels;
  for (const auto& event : DeviceEvents(trace)) {
    kernels[event["cat"]].insert(event["args"]["kernel"]);
  }
  return kernels;
}

class CudaTimeline : public testing::TestWithParam<uint64_t> {
 protected:
  CudaTimeline() { emulation::SetSchedule(GetParam()); }
  ~CudaTimeline() override {
    emulation::SetSchedule(before_);
    emulation::LoseRecords(0);
  }

  SessionOptions OptionsWith(const std::string& file) {
    SessionOptions options = Options(WriteMlp(dir_, false), "delayed");
    options.timeline = file;
    options.timeline_steps = 2;
    return options;
  }

  TempDir dir_;
  uint64_t before_ = emulation::Schedule();
};

TEST_P(CudaTimeline, EachKernelHasItsNode) {
  for (int64_t grad_accum : {1, 2}) {
    const std::string file = dir_ / "trace.json";
    SessionOptions options = OptionsWith(file);
    options.grad_accum = grad_accum;
    auto session = MakeSession(options, Recording());
    auto losses = [&](TrainingSession& of) {
      std::vector<float> list;
      for (uint64_t i = 0; i < 6; ++i) {
        const Batches batches(static_cast<size_t>(grad_accum), Batch(i));
        list.push_back(of.Step(batches, 1e-2).loss);
      }
      return list;
    };
    const std::vector<float> with = losses(*session);
    const TimelineReport report = session->ReportTimeline();
    options.timeline.clear();
    EXPECT_EQ(with, losses(*MakeSession(options, MakeCudaProvider())));
    EXPECT_EQ(report.steps, 2);
    EXPECT_TRUE(report.notes.empty()) << report.notes.front();
    EXPECT_EQ(report.gpu, "h100");
    EXPECT_GT(report.milliseconds, 0);

    auto kernels = KernelsByOp(ReadText(file));
    auto has = [&](const std::string& op, const std::string& kernel) {
      return std::ranges::any_of(kernels[op], [&](const std::string& name) {
        return name.starts_with(kernel);
      });
    };
    EXPECT_TRUE(has("onnx_fp8.AdamW", "UpdateKernel"));
    EXPECT_TRUE(has("onnx_fp8.ScaledMatMulPadded", "a matrix product"));
    EXPECT_TRUE(has("onnx_fp8.UpdateScale", "UpdateScaleKernel"));
    EXPECT_TRUE(has("onnx_fp8.CrossEntropyWithGrad", "ScoresWithGradKernel"));
    EXPECT_TRUE(has("Sqrt", "ElementsKernel"));
    for (const auto& [op, names] : kernels) {
      EXPECT_EQ(has(op, "a matrix product"),
                op.starts_with("onnx_fp8.ScaledMatMul"))
          << op;
      EXPECT_EQ(has(op, "UpdateKernel"), op == "onnx_fp8.AdamW") << op;
      EXPECT_EQ(has(op, "UpdateScaleKernel"), op == "onnx_fp8.UpdateScale");
    }
    for (const TimelineNode& row : report.nodes) {
      EXPECT_NE(row.node.role, "not matched") << row.node.node;
      EXPECT_NE(row.node.role, "not recorded") << row.node.node;
      if (row.node.op == "onnx_fp8.ScaledMatMulPadded") {
        EXPECT_GT(row.least, 0);
      }
    }
  }
}

TEST_P(CudaTimeline, LostRecordsAreSaid) {
  auto session = MakeSession(OptionsWith(dir_ / "trace.json"), Recording());
  emulation::LoseRecords(9);
  for (uint64_t i = 0; i < 5; ++i) session->Step(Batch(i), 1e-2);
  const TimelineReport report = session->ReportTimeline();
  ASSERT_GE(report.notes.size(), 2u);
  EXPECT_NE(report.notes.back().find("CUPTI lost"), std::string::npos);
  EXPECT_NE(report.notes[0].find("they are not matched"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Schedules, CudaTimeline, testing::Values(0, 1, 2));

// The nodes' records come from two streams.
TEST(CudaTimelines, CollectivesBesideOtherNodes) {
  const std::string errors = RunProcesses(2, [](Communicator& ranks) {
    const std::shared_ptr<Graph> graph = ParseGraph(R"(
input x: float[8]
p: float[8] = Neg(x)
a: float[4] = onnx_fp8.ReduceScatter<group="dp", ranks=2, bucket=1>(p)
e: float[8] = Add(x, x)
f: float[8] = Exp(e)
all: float[8] = onnx_fp8.AllGather<group="dp", ranks=2>(a)
g: float[8] = Abs(f)
y: float[8] = Add(all, g)
output y
)");
    const auto cuda = Recording();
    const Groups groups = {{"dp", &ranks}};
    Executor executor(graph, *cuda);
    DeviceTimeline timeline(*cuda, "", 1);
    executor.set_groups(&groups);
    executor.set_timeline(&timeline);
    TensorMap state;
    const Tensor x =
        Tensor::From<float>({8}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
    for (int i = 0; i < 3; ++i) {
      timeline.BeginStep();
      executor.Run({{"x", x}}, state);
      timeline.EndStep();
      cuda->Synchronize();
    }
    timeline.Finish();
    const TimelineReport report = timeline.Report();
    EXPECT_TRUE(report.notes.empty()) << report.notes.front();
    std::map<std::string, std::string> kernel_of;
    for (const auto& event : DeviceEvents(timeline.ChromeTrace())) {
      kernel_of[event["name"]] = event["args"]["kernel"];
    }
    EXPECT_NE(kernel_of.at("onnx_fp8.ReduceScatter -> a").find("ReduceScatter"),
              std::string::npos);
    EXPECT_NE(kernel_of.at("onnx_fp8.AllGather -> all").find("AllGather"),
              std::string::npos);
    EXPECT_NE(kernel_of.at("Exp -> f").find("Exp"), std::string::npos);
    EXPECT_NE(kernel_of.at("Abs -> g").find("Abs"), std::string::npos);
  });
  EXPECT_EQ(errors, "");
}

// The timeline waits for the steps before it, and their errors stay errors.
TEST(CudaTimelines, StepsThatFailBeforeIt) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.timeline = dir / "trace.json";
  auto session = MakeSession(options, Recording());
  TensorMap bad = Batch(1);
  bad["labels"] = Tensor::From<int64_t>({6}, std::vector<int64_t>(6, 99));
  session->Start({Batch(0)}, 1e-2);
  session->Start({bad}, 1e-2);
  ExpectError([&] { session->Start({Batch(2)}, 1e-2); },
              "state must be restored");
  ExpectError([&] { session->Step(Batch(2), 1e-2); }, "half updated");
}

#if defined(ONNX_FP8_NVTX_TOOL)
// A tool that prints the ranges of NVTX.
TEST(CudaRanges, ReachATool) {
  const std::string text = emulation_test::TextOfChild([] {
    setenv("NVTX_INJECTION64_PATH", ONNX_FP8_NVTX_TOOL, 1);
    const auto cuda = MakeCudaProvider();
    Executor executor(ParseGraph(R"(
input x: float[2]
a: float[2] = Exp<role="forward">(x)
b: float[2] = Neg(a)
output b
)"),
                      *cuda);
    TensorMap state;
    executor.Run({{"x", Tensor::Zeros(DType::kFloat, {2})}}, state);
  });
  EXPECT_EQ(text, "push forward: Exp -> a\npop\npush other: Neg -> b\npop\n");
}
#endif

TEST(CudaRanges, AreNotMadeWithoutATool) {
  EXPECT_EQ(MakeCudaProvider()->host_ranges(), nullptr);
}

}  // namespace
}  // namespace onnx_fp8
