// SPDX-License-Identifier: Apache-2.0
//
// Records of activities become times of nodes. A provider here says what its
// device did.
#include "providers/run/device_timeline.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
#include "tests/support/forwarding_provider.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

constexpr WorkKind kKernel = WorkKind::kKernel, kCopy = WorkKind::kCopy;

// Microseconds in place of nanoseconds.
Activity At(WorkKind kind, const std::string& name, int64_t begin, int64_t end,
            uint32_t stream, uint32_t launch) {
  return {kind,   name,   begin * 1000, end * 1000,
          stream, launch, launch < 100};  // launches from 100 on: no recording
}

class Tells : public ForwardingProvider, public ActivityTrace {
 public:
  Tells() : ForwardingProvider(MakeCpuProvider()) {}

  ProviderInfo Describe() const override {
    return {.isa = gpu, .gemm = "", .fast_bfloat16 = true};
  }
  ActivityTrace* activities() override { return this; }
  int64_t Now() override { return now += 2'000'000; }
  void Begin() override { ++begun; }
  std::vector<Activity> End() override { return list; }
  int64_t Lost() const override { return lost; }

  std::string gpu = "NVIDIA H200";
  std::vector<Activity> list;
  int64_t now = 0, lost = 0;
  int begun = 0;
};

WorkCounts Counts(int64_t kernels, int64_t copies) {
  WorkCounts counts;
  counts[kKernel] = kernels;
  counts[kCopy] = copies;
  return counts;
}

class DeviceTimelineTest : public testing::Test {
 protected:
  DeviceTimelineTest()
      : graph_(ParseGraph(R"(
input x: float[1000,1200]
a: float[1000,1200] = Exp(x)
b: float[1000,1200] = onnx_fp8.AllReduce<group="dp", ranks=2>(a)
c: float[1000,1200] = Relu(a)
output b
output c
)")) {
    for (const Node& node : graph_->nodes()) nodes_.push_back(&node);
  }

  // Two steps of a recording, after those before the timeline.
  TimelineReport Run(std::vector<RecordedWork> works, int64_t steps = 2,
                     int64_t ran = 4) {
    DeviceTimeline timeline(provider_, file_, steps);
    const size_t recording = timeline.AddRecording(std::move(works));
    for (int64_t i = 0; i < ran; ++i) {
      timeline.BeginStep();
      if (i > 0) timeline.AddReplay(recording);
      timeline.EndStep();
      EXPECT_EQ(timeline.is_complete(), i + 1 == 2 + steps);
    }
    timeline.Finish();
    return timeline.Report();
  }

  const TimelineNode& RowOf(const TimelineReport& report,
                            const std::string& node) {
    for (const TimelineNode& row : report.nodes) {
      if (row.node.node.find(node) != std::string::npos) return row;
    }
    ADD_FAILURE() << "no row " << node;
    return report.nodes.front();
  }

  std::shared_ptr<Graph> graph_;
  std::vector<const Node*> nodes_;  // Exp, AllReduce, Relu
  Tells provider_;
  std::string file_;
};

TEST_F(DeviceTimelineTest, KernelsBelongToNodesInTheOrderOfTheRecording) {
  // Records come in any order.
  provider_.list = {At(kKernel, "relu", 80, 100, 1, 8),
                    At(kKernel, "exp, part 2", 20, 30, 1, 7),
                    At(kKernel, "exp, part 1", 10, 20, 1, 7),
                    At(kKernel, "exp, part 1", 60, 70, 1, 8),
                    At(kCopy, "device to device", 0, 5, 1, 100),
                    At(kKernel, "relu", 34, 44, 1, 7),
                    At(kKernel, "exp, part 2", 71, 79, 1, 8)};
  TimelineReport report = Run({{{nodes_[0]}, Lane::kHost, Counts(2, 0)},
                               {{nodes_[2]}, Lane::kHost, Counts(1, 0)}});
  EXPECT_TRUE(report.notes.empty()) << report.notes.front();
  EXPECT_EQ(provider_.begun, 1);
  EXPECT_EQ(report.steps, 2);
  EXPECT_DOUBLE_EQ(report.milliseconds, 0.050);
  EXPECT_DOUBLE_EQ(report.host, 2);
  // From the copy to the first launch, and from that to the second.
  EXPECT_NEAR(report.idle, (0.005 + 0.016) / 2, 1e-9);
  EXPECT_EQ(report.gpu, "h200");
  ASSERT_EQ(report.nodes.size(), 3u);
  const TimelineNode& exp = RowOf(report, "Exp");
  EXPECT_EQ(&exp, &report.nodes[0]);  // the longest
  EXPECT_DOUBLE_EQ(exp.node.calls, 2);
  EXPECT_NEAR(exp.node.milliseconds, (0.020 + 0.018) / 2, 1e-9);
  EXPECT_NEAR(exp.gap, 0.001 / 2, 1e-9);
  // 4.8 MB read and written at 4.8 TB/s.
  EXPECT_NEAR(exp.least, 0.002, 1e-6);
  EXPECT_EQ(exp.node.bytes, 9.6e6);
  const TimelineNode& relu = RowOf(report, "Relu");
  EXPECT_NEAR(relu.node.milliseconds, 0.015, 1e-9);
  EXPECT_NEAR(relu.gap, (0.004 + 0.001) / 2, 1e-9);
  EXPECT_EQ(RowOf(report, "device to device").node.role, "inputs and results");
}

// 4.8 MB at 64 GB/s.
TEST_F(DeviceTimelineTest, MomentsOfTheHostCrossTheBus) {
  graph_->Find("x")->on_host = true;
  provider_.list = {At(kKernel, "exp", 10, 90, 1, 7),
                    At(kKernel, "exp", 100, 180, 1, 8)};
  const TimelineReport report = Run({{{nodes_[0]}, Lane::kHost, Counts(1, 0)}});
  EXPECT_NEAR(RowOf(report, "Exp").least, 0.075, 1e-6);
}

TEST_F(DeviceTimelineTest, CollectivesHaveAStreamOfTheirOwn) {
  provider_.list = {At(kKernel, "exp", 0, 10, 1, 3),
                    At(kKernel, "ncclDevKernel_AllReduce", 12, 40, 5, 3),
                    At(kKernel, "checks the sum", 40, 42, 5, 3),
                    At(kKernel, "relu", 11, 20, 1, 3)};
  TimelineReport report = Run({{{nodes_[0]}, Lane::kHost, Counts(1, 0)},
                               {{nodes_[1]}, Lane::kBeside, Counts(2, 0)},
                               {{nodes_[2]}, Lane::kHost, Counts(1, 0)}},
                              1, 3);
  EXPECT_TRUE(report.notes.empty()) << report.notes.front();
  EXPECT_NEAR(RowOf(report, "AllReduce").node.milliseconds, 0.030, 1e-9);
  EXPECT_NEAR(RowOf(report, "AllReduce").beside, 0.008, 1e-9);
  EXPECT_NEAR(RowOf(report, "Relu").node.milliseconds, 0.009, 1e-9);
  EXPECT_NEAR(RowOf(report, "Relu").beside, 0.008, 1e-9);
  EXPECT_EQ(RowOf(report, "Exp").beside, 0);
}

// A kernel of scales has its turn, whatever its name.
TEST_F(DeviceTimelineTest, UpdatesHaveAStreamOfTheirOwn) {
  provider_.list = {At(kKernel, "exp", 0, 10, 1, 3),
                    At(kKernel, "FactorsKernel", 10, 12, 7, 3),
                    At(kKernel, "UpdateKernel", 12, 40, 7, 3),
                    At(kKernel, "ncclDevKernel_AllReduce", 12, 20, 5, 3),
                    At(kKernel, "UpdateScaleKernel", 20, 30, 1, 3)};
  TimelineReport report = Run({{{nodes_[0]}, Lane::kHost, Counts(2, 0)},
                               {{nodes_[2]}, Lane::kUpdates, Counts(2, 0)},
                               {{nodes_[1]}, Lane::kBeside, Counts(1, 0)}},
                              1, 3);
  EXPECT_TRUE(report.notes.empty()) << report.notes.front();
  EXPECT_NEAR(RowOf(report, "Exp").node.milliseconds, 0.020, 1e-9);
  EXPECT_NEAR(RowOf(report, "Relu").node.milliseconds, 0.030, 1e-9);
  EXPECT_NEAR(RowOf(report, "AllReduce").node.milliseconds, 0.008, 1e-9);
}

TEST_F(DeviceTimelineTest, MissingRecordsAreNamedAndNothingIsGuessed) {
  provider_.lost = 1;
  provider_.list = {At(kKernel, "relu", 11, 20, 1, 3),
                    At(kCopy, "device to device", 20, 22, 1, 3)};
  TimelineReport report = Run({{{nodes_[0]}, Lane::kHost, Counts(1, 0)},
                               {{nodes_[2]}, Lane::kHost, Counts(1, 1)}},
                              1, 3);
  EXPECT_EQ(report.notes,
            (std::vector<std::string>{
                "a launch has records of 1 kernels where the recorded step has "
                "2: they are not matched to nodes",
                "CUPTI lost 1 records"}));
  EXPECT_EQ(RowOf(report, "relu").node.role, "not matched");
  EXPECT_NEAR(RowOf(report, "Relu").node.milliseconds, 0.002, 1e-9);

  provider_.list = {At(kKernel, "exp", 11, 20, 1, 3)};
  report = Run({{{nodes_[0]}, Lane::kHost, Counts(1, 0)}});
  ASSERT_FALSE(report.notes.empty());
  EXPECT_EQ(report.notes.front(),
            "expected records of 2 launches of recorded steps, got records of "
            "1: they are not matched to nodes");
  EXPECT_EQ(report.nodes.front().node.role, "not matched");
}

TEST_F(DeviceTimelineTest, TooFewStepsAreSaid) {
  TimelineReport report = Run({}, 3, 2);
  EXPECT_EQ(report.steps, 0);
  EXPECT_EQ(report.notes, std::vector<std::string>{
                              "the run had 2 steps: a timeline needs at least "
                              "3"});
  EXPECT_EQ(provider_.begun, 0);
  // A run that ends early has a shorter timeline.
  EXPECT_EQ(Run({}, 3, 3).steps, 1);
}

TEST_F(DeviceTimelineTest, OtherGpusHaveNoLeastTime) {
  provider_.gpu = "NVIDIA GeForce";
  provider_.list = {At(kKernel, "exp", 11, 20, 1, 3)};
  TimelineReport report = Run({{{nodes_[0]}, Lane::kHost, Counts(1, 0)}}, 1, 3);
  EXPECT_EQ(report.gpu, "");
  EXPECT_EQ(report.nodes.front().least, 0);
}

TEST_F(DeviceTimelineTest, TheTraceNamesNodesAndKernels) {
  TempDir dir;
  file_ = dir / "trace.json";
  provider_.list = {At(kKernel, "exp", 11, 20, 1, 3),
                    At(kCopy, "device to host", 21, 22, 2, 100)};
  Run({{{nodes_[0]}, Lane::kHost, Counts(1, 0)}}, 1, 3);
  auto trace = nlohmann::json::parse(ReadText(file_));
  ASSERT_EQ(trace.size(), 3u);
  EXPECT_EQ(trace[0]["name"], "the host starts step 3");
  EXPECT_EQ(trace[1]["name"], nodes_[0]->Where());
  EXPECT_EQ(trace[1]["args"]["kernel"], "exp");
  EXPECT_EQ(trace[1]["dur"], 9);
  EXPECT_EQ(trace[2]["name"], "device to host");
  EXPECT_NE(trace[1]["tid"], trace[2]["tid"]);

  // The file can't be written: before a run that is an error, after it a note.
  DeviceTimeline timeline(provider_, file_, 1);
  for (int i = 0; i < 3; ++i) timeline.BeginStep();
  std::filesystem::remove_all(dir.path());
  timeline.Finish();
  EXPECT_NE(timeline.Report().notes.back().find("trace.json"),
            std::string::npos);
  EXPECT_THROW(Run({}), Error);
}

class Listens : public ForwardingProvider, public HostRanges {
 public:
  Listens() : ForwardingProvider(MakeCpuProvider()) {
    kernels_.Add("Exp", [](KernelContext&) {});
    kernels_.Add("Relu", [](KernelContext&) { Fail("no"); });
  }
  HostRanges* host_ranges() override { return this; }
  void Push(const std::string& name) override { text += "(" + name; }
  void Pop() override { text += ")"; }

  std::string text;
};

TEST(HostRanges, NameRoleAndNodeAndEndAfterErrors) {
  Listens provider;
  Executor executor(ParseGraph(R"(
input x: float[2]
a: float[2] = Exp<role="forward">(x)
b: float[2] = Relu(a)
output b
)"),
                    provider);
  TensorMap state;
  const Tensor x = Tensor::From<float>({2}, std::vector<float>{1, 2});
  EXPECT_THROW(executor.Run({{"x", x}}, state), Error);
  EXPECT_EQ(provider.text, "(forward: Exp -> a)(other: Relu -> b)");
}

}  // namespace
}  // namespace onnx_fp8
