// SPDX-License-Identifier: Apache-2.0
//
// Kernels that read and write floats kept in 16 bits (KernelTraits::narrow_in,
// narrow_out, moves) must give the bits that they give with floats.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/parallel.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "tests/providers/cpu/isas.h"
#include "tests/providers/cpu/random_feeds.h"
#include "tests/providers/kernel_cases.h"

namespace onnx_fp8 {
namespace {

const KernelRegistry& Kernels() { return CpuKernels(); }

class NarrowKernels : public testing::TestWithParam<KernelCase> {};

TEST_P(NarrowKernels, GiveTheBitsOfFloats) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    std::shared_ptr<Graph> wide = RoundedGraph(GetParam(), dtype, Kernels());
    std::shared_ptr<Graph> narrow = RoundedGraph(GetParam(), dtype, Kernels());
    StoreNarrow(*narrow, Kernels());
    for (const Node& node : narrow->nodes()) {
      for (const Value* y : node.outputs()) {
        // Every rounded value is kept in 16 bits.
        bool rounded = node.IsOurs("RoundTo") || y->name.starts_with("out.");
        if (rounded && y->name.find("RoundTo") != std::string::npos) {
          EXPECT_EQ(y->narrow, dtype) << y->name;
        }
      }
    }
    auto provider = MakeCpuProvider();
    Executor wide_executor(wide, *provider);
    Executor narrow_executor(narrow, *provider);
    for (Isa isa : RunnableIsas()) {
      // Later sets have products of 16 bits of their own.
      if (isa > Isa::kAvx512) continue;
      WithIsa with(isa);
      for (int threads : {1, 2}) {
        SetNumThreads(threads);
        TensorMap state, feeds = RandomFeeds(*wide, {"lse", "rows"});
        TensorMap want = wide_executor.Run(feeds, state);
        TensorMap got = narrow_executor.Run(feeds, state);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < wide->outputs.size(); ++i) {
          EXPECT_TRUE(Identical(got.at(narrow->outputs[i]->name),
                                want.at(wide->outputs[i]->name)))
              << wide->outputs[i]->name << ", " << Name(dtype) << ", "
              << Name(isa) << ", " << threads << " threads";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, NarrowKernels, testing::ValuesIn(KernelCases()),
                         [](const auto& info) { return info.param.name; });

TEST(NarrowKernelsList, IsComplete) {
  std::set<std::string> able, tested;
  for (const auto& [key, entry] : Kernels().entries()) {
    const KernelTraits& t = entry.traits;
    if (t.moves || !t.narrow_in.empty() || !t.narrow_out.empty()) {
      able.insert(key.second);
    }
  }
  for (const KernelCase& c : KernelCases()) {
    std::shared_ptr<Graph> graph = GraphOf(c);
    for (const Node& node : graph->nodes()) tested.insert(node.op);
  }
  for (const std::string& op : able) EXPECT_TRUE(tested.contains(op)) << op;
}

}  // namespace
}  // namespace onnx_fp8
