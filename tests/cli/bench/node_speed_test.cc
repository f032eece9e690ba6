// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/node_speed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/check.h"
#include "cli/bench/moved_bytes.h"
#include "cli/bench/node_cases.h"
#include "cli/bench/node_report.h"
#include "tests/support/forwarding_provider.h"
#include "training/make_provider.h"

namespace onnx_fp8 {
namespace {

// The CPU, but for the result of Neg.
class WrongProvider : public ForwardingProvider {
 public:
  explicit WrongProvider(float times)
      : ForwardingProvider(MakeProvider("cpu")) {
    factor = times;
    kernels_.Add("Neg", [](KernelContext& ctx) {
      const Tensor& x = ctx.In(0);
      Tensor& y = ctx.Out(0, DType::kFloat, x.shape());
      for (int64_t i = 0; i < x.size(); ++i) {
        y.data<float>()[i] = -factor * x.data<float>()[i];
      }
    });
  }

  static inline float factor = 1;
};

// The CPU, but for Neg, which only notes where its operands and results are.
class AddressProvider : public ForwardingProvider {
 public:
  AddressProvider() : ForwardingProvider(MakeProvider("cpu")) {
    read.clear();
    written.clear();
    allocated.clear();
    kernels_.Add("Neg", [](KernelContext& ctx) {
      read.insert(ctx.In(0).raw());
      written.insert(ctx.Out(0, DType::kFloat, ctx.In(0).shape()).raw());
    });
  }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    allocated.push_back(bytes);
    return ForwardingProvider::Allocate(bytes);
  }

  static inline std::set<const void*> read, written;
  static inline std::vector<size_t> allocated;
};

const NodeCase kNeg = {"moves", "", "Neg", "", {{.shape = {300, 1000}}}};

double DifferenceWith(float factor) {
  WrongProvider wrong(factor);
  auto cpu = MakeProvider("cpu");
  NodeCase fours = kNeg;
  fours.operands[0] = {.shape = {5}, .fill = NodeOperand::kValue, .value = 4};
  auto graph = MakeNodeGraph(fours, DType::kFloat, {&wrong.Kernels()});
  return Difference(graph->nodes().front(), wrong, *cpu);
}

TEST(NodeSpeed, DifferenceIsAShareOfTheLargestNumber) {
  EXPECT_EQ(DifferenceWith(1), 0);
  EXPECT_FLOAT_EQ(static_cast<float>(DifferenceWith(0.75f)), 0.25f);
  EXPECT_TRUE(std::isinf(DifferenceWith(NAN)));
}

TEST(NodeSpeed, CountsAllRuns) {
  auto cpu = MakeProvider("cpu");
  auto graph = MakeNodeGraph(kNeg, DType::kFloat, {&cpu->Kernels()});
  NodeTime time = TimeNode(graph->nodes().front(), *cpu, 0);
  EXPECT_GT(time.seconds, 0);
  EXPECT_GE(time.runs, 3);
}

TEST(NodeSpeed, CallsHaveTensorsOfTheirOwn) {
  auto cpu = MakeProvider("cpu");
  auto graph = MakeNodeGraph(kNeg, DType::kFloat, {&cpu->Kernels()});
  const Node& node = graph->nodes().front();
  AddressProvider provider;
  TimeNode(node, provider, 0, 3);
  EXPECT_EQ(AddressProvider::read.size(), 3);
  EXPECT_EQ(AddressProvider::written.size(), 3);
}

TEST(NodeSpeed, CopiesHalfOfTheBytes) {
  AddressProvider provider;
  NodeTime time = TimeCopy(5e6, provider, 0);
  EXPECT_GE(time.runs, 3);
  EXPECT_EQ(AddressProvider::allocated, std::vector<size_t>(2, 2500000));
}

TEST(NodeCases, MissingKernelsAreNamed) {
  KernelRegistry none;
  try {
    MakeNodeGraph(kNeg, DType::kFloat, {&none});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "there is no kernel for Neg");
  }
}

// Rows of a matrix must differ, and numbers be in their range.
TEST(NodeCases, OperandsAreDrawn) {
  auto cpu = MakeProvider("cpu");
  NodeCase gather = {"moves",
                     "",
                     "Gather",
                     "",
                     {{.shape = {7, 524288}},
                      {.shape = {900},
                       .fill = NodeOperand::kIndices,
                       .dtype = DType::kInt64,
                       .value = 7}}};
  auto graph = MakeNodeGraph(gather, DType::kFloat, {&cpu->Kernels()});
  const Node& node = graph->nodes().front();
  auto table = node.in(0)->data.values<float>();
  EXPECT_FALSE(std::equal(table.begin(), table.begin() + 524288,
                          table.begin() + 524288));
  std::vector<int64_t> counts(7);
  for (int64_t i : node.in(1)->data.values<int64_t>()) ++counts.at(i);
  for (int64_t count : counts) EXPECT_GT(count, 0);
}

// A step in bfloat16 keeps the large tensors of these nodes in 16 bits.
TEST(NodeCases, SixteenBitsWhereKernelsCan) {
  auto cpu = MakeProvider("cpu");
  for (const NodeCase& node : OtherCases(SmallNodeSizes(), DType::kBFloat16)) {
    if (node.group != "norms" && node.group != "activations") continue;
    auto graph = MakeNodeGraph(node, DType::kBFloat16, {&cpu->Kernels()});
    const Node& made = graph->nodes().front();
    EXPECT_EQ(StoredAs(*made.in(0)), DType::kBFloat16) << node.op;
    EXPECT_EQ(StoredAs(*made.out(0)), DType::kBFloat16) << node.op;
    EXPECT_EQ(made.in(0)->data.dtype(), DType::kBFloat16) << node.op;
  }
}

TEST(NodeReport, NamesNodesThatFailed) {
  NodeResult good{.node = kNeg, .time = {1e-3, 5}};
  good.cost.flops = 3e5;
  good.cost.bytes = 2e6;
  good.cost.milliseconds = 0.25;
  good.moved = 4e6;
  good.copy = {8e-4, 5};
  NodeResult bad{.node = kNeg, .error = "it is wrong"};
  bad.node.op = "Abs";
  NodeResult missing{.node = kNeg, .note = "there is no kernel"};
  NodeReport report{.provider = "cpu",
                    .peaks = {"gpu", 4e12, 2e12, 1e12, 8e9},
                    .results = {good, bad, missing}};
  EXPECT_EQ(report.Failed(), 1);
  std::ostringstream out;
  report.Print(out);
  for (const char* part :
       {"moves:", "1000.0", "25.0", "80.0", "memory", "failed",
        "1 of 3 nodes failed or are wrong", "Abs [300,1000]: it is wrong",
        "Neg [300,1000]: there is no kernel"}) {
    EXPECT_NE(out.str().find(part), std::string::npos) << part << out.str();
  }
  auto rows = report.Json()["nodes"];
  EXPECT_DOUBLE_EQ(rows[0]["copy_gbytes"], 5);
  EXPECT_DOUBLE_EQ(rows[0]["copy_share"], 0.8);
  EXPECT_FALSE(rows[1].contains("copy_share"));
}

// A dynamic scale needs all of x first, Gather reads a part of its table.
TEST(MovedBytes, AreThoseOfKernels) {
  auto cpu = MakeProvider("cpu");
  auto moved = [&](const NodeCase& node) {
    auto graph = MakeNodeGraph(node, DType::kFloat, {&cpu->Kernels()});
    return MovedBytes(graph->nodes().front(), *cpu);
  };
  EXPECT_EQ(moved(kNeg), 2 * 4 * 300000);
  for (const NodeCase& node : OtherCases(SmallNodeSizes(), DType::kFloat)) {
    constexpr double kElements = 128 * 128;
    if (node.op == "QuantizeTensor") {
      EXPECT_EQ(moved(node), (2 * 4 + 1) * kElements + 8);
    } else if (node.op == "QuantizeWith") {
      EXPECT_EQ(moved(node), (4 + 1) * kElements + 12);
    } else if (node.op == "Gather") {
      EXPECT_EQ(moved(node), 2 * 4 * kElements + 8 * 128);
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
