// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/beside_cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/op_facts.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

std::shared_ptr<Graph> GraphWithAllResults(const std::string& text) {
  std::shared_ptr<Graph> graph = ParseGraph(text);
  for (Node& node : graph->nodes()) {
    for (Value* y : node.outputs()) {
      if (y) graph->outputs.push_back(y);
    }
  }
  return graph;
}

double LargestFinite(const Tensor& x) {
  double largest = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    double v = std::fabs(DoubleAt(x, i));
    if (std::isfinite(v)) largest = std::max(largest, v);
  }
  return largest;
}

bool AreClose(double a, double b, double bound) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(a - b) <= bound;
}

void ExpectNear(const Tensor& got, const Tensor& want, double relative,
                const std::string& what) {
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  ASSERT_EQ(got.shape(), want.shape()) << what;
  double bound = relative * LargestFinite(want);
  for (int64_t i = 0; i < got.size(); ++i) {
    double a = DoubleAt(got, i), b = DoubleAt(want, i);
    ASSERT_TRUE(AreClose(a, b, bound))
        << what << ", element " << i << ": expected " << b << ", got " << a
        << ", bound " << bound;
  }
}

// Tensor cores of Hopper add FP8 products with 13 bits behind the point of the
// largest one. The emulated device adds floats.
constexpr double kHopperSums = 0x1p-11;

bool AddsFewBits(const ExecutionProvider& cuda, const Value& output) {
  const Node* node = output.producer;
  return node && FactsOf(*node).kind == OpKind::kScaledProduct &&
         !cuda.Describe().isa.starts_with("Emulated");
}

// The bound of each output is relative to its largest number.
void ExpectWithin(const std::shared_ptr<Graph>& for_cpu,
                  const std::shared_ptr<Graph>& for_cuda,
                  const std::function<double(const Value&)>& bound) {
  auto cpu = MakeCpuProvider();
  auto cuda = MakeCudaProvider();
  Executor on_cpu(for_cpu, *cpu), on_cuda(for_cuda, *cuda);
  TensorMap feeds = RandomFeeds(*for_cpu, {"lse", "rows"}), state;
  TensorMap want = on_cpu.Run(feeds, state);
  TensorMap got = on_cuda.Run(feeds, state);
  cuda->Synchronize();
  for (size_t i = 0; i < for_cpu->outputs.size(); ++i) {
    const Value& output = *for_cpu->outputs[i];
    Tensor result = cuda->ToHost(got.at(for_cuda->outputs[i]->name));
    double relative = bound(output);
    if (AddsFewBits(*cuda, *for_cuda->outputs[i])) {
      relative = std::max(relative, kHopperSums);
    }
    ExpectNear(result, want.at(output.name), relative, output.name);
  }
}

// What reads a rounded result is named so.
constexpr char kReader[] = "rounded.";
// Operands and results with such names stay floats.
constexpr char kStreamPrefix[] = "stream";

}  // namespace

void ExpectCpusResults(const std::shared_ptr<Graph>& for_cpu,
                       const std::shared_ptr<Graph>& for_cuda,
                       double relative) {
  ExpectWithin(for_cpu, for_cuda, [&](const Value&) { return relative; });
}

void ExpectCpusResults(const std::string& text, double relative) {
  ExpectCpusResults(GraphWithAllResults(text), GraphWithAllResults(text),
                    relative);
}

void ExpectCpusBytes(const std::shared_ptr<Graph>& for_cpu,
                     const std::shared_ptr<Graph>& for_cuda,
                     const TensorMap& feeds, const std::string& what) {
  auto cpu = MakeCpuProvider();
  auto cuda = MakeCudaProvider();
  Executor on_cpu(for_cpu, *cpu), on_cuda(for_cuda, *cuda);
  TensorMap state;
  TensorMap want = on_cpu.Run(feeds, state);
  TensorMap got = on_cuda.Run(feeds, state);
  cuda->Synchronize();
  for (size_t i = 0; i < for_cpu->outputs.size(); ++i) {
    const std::string& name = for_cuda->outputs[i]->name;
    const Tensor& tensor = want.at(for_cpu->outputs[i]->name);
    Tensor result = cuda->ToHost(got.at(name));
    ASSERT_EQ(result.dtype(), tensor.dtype()) << name;
    ASSERT_EQ(result.shape(), tensor.shape()) << name;
    EXPECT_EQ(std::memcmp(result.raw(), tensor.raw(), tensor.bytes()), 0)
        << name << " of " << what;
  }
}

std::shared_ptr<Graph> RoundedForGpu(const std::string& text, DType dtype) {
  std::shared_ptr<Graph> graph = ParseGraph(text);
  std::vector<Node*> nodes;
  for (Node& node : graph->nodes()) nodes.push_back(&node);
  for (Node* node : nodes) {
    const KernelTraits& traits =
        CudaKernels().Find(node->domain, node->op)->traits;
    auto rounded = [&](const std::vector<size_t>& list, size_t i,
                       const Value* x) {
      return x && x->dtype == DType::kFloat &&
             !x->name.starts_with(kStreamPrefix) &&
             (traits.moves || std::ranges::count(list, i) > 0);
    };
    auto round = [&](Builder& b, Value* x) {
      return b.Ours("RoundTo", {x}, {{"to", static_cast<int64_t>(dtype)}});
    };
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (!rounded(traits.narrow_in, i, node->in(i))) continue;
      Builder b(*graph, node->out(0)->name + ".in" + std::to_string(i), node);
      graph->SetInput(node, i, round(b, node->in(i)));
    }
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      Value* y = node->out(i);
      if (!y) continue;
      Builder b(*graph, kReader);
      if (rounded(traits.narrow_out, i, y)) {
        if (!traits.moves) y = round(b, y);
        graph->outputs.push_back(b.Ops("QuantizeTensor", {y}, 3,
                                       {{"to", int64_t{17}}, {"q_max", 448.0f}},
                                       kDomain)[2]);
        y = b.Op("Neg", {y});
      }
      graph->outputs.push_back(y);
    }
  }
  return graph;
}

void ExpectCpusResultsIn16Bits(const std::string& text, double relative) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    double of_dtype = dtype == DType::kBFloat16 ? 8e-3 : 1e-3;
    std::shared_ptr<Graph> narrow = RoundedForGpu(text, dtype);
    StoreNarrow(*narrow, CudaKernels());
    ExpectWithin(RoundedForGpu(text, dtype), narrow, [&](const Value& output) {
      return relative > 0 && output.name.starts_with(kReader) ? of_dtype
                                                              : relative;
    });
  }
}

std::string ErrorOnGpu(const std::string& text) {
  try {
    std::shared_ptr<Graph> graph = GraphWithAllResults(text);
    auto cuda = MakeCudaProvider();
    Executor executor(graph, *cuda);
    TensorMap state;
    executor.Run(RandomFeeds(*graph, {}), state);
    cuda->Synchronize();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace onnx_fp8
