// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/moved_bytes.h"

#include <gtest/gtest.h>

#include "cli/bench/node_cases.h"
#include "cli/bench/node_speed.h"
#include "providers/cuda/cuda_provider.h"
#include "tests/cuda/emulation/emulation.h"

namespace onnx_fp8 {
namespace {

struct MovedCase {
  const char* group;
  NodeSizes sizes;
};

// The bytes that the copies of `bench nodes` have are really moved. What
// several threads read counts for each of them.
TEST(CudaBenchNodes, MoveTheBytesThatCopiesHave) {
  if (!emulation::Checked()) return;  // only checked builds count
  auto cuda = MakeCudaProvider();
  NodeSizes matrix = {.tokens = 256, .heads = 1, .head_size = 128};
  NodeSizes rows = {.tokens = 2, .vocabulary = 20000};
  for (const auto& [group, sizes] :
       {MovedCase{"casts", matrix}, {"losses", rows}}) {
    for (const NodeCase& one : OtherCases(sizes, DType::kBFloat16)) {
      if (one.group != group) continue;
      SCOPED_TRACE(one.op + ", " + one.what);
      auto graph = MakeNodeGraph(one, DType::kBFloat16, {&cuda->Kernels()});
      const Node& node = graph->nodes().front();
      emulation::ResetCounts();
      EXPECT_EQ(Difference(node, *cuda, *cuda), 0);
      double counted = 0;
      for (const auto& [kernel, traffic] : emulation::Traffic()) {
        counted += static_cast<double>(traffic.bytes_read);
        counted += static_cast<double>(traffic.bytes_written);
      }
      // Both sides run once when they are made, and once more.
      counted /= 4;
      double moved = MovedBytes(node, *cuda);
      EXPECT_GE(counted, 0.97 * moved);
      EXPECT_LE(counted, 1.4 * moved);
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
