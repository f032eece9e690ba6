// SPDX-License-Identifier: Apache-2.0
//
// cuDNN itself compiles attention for an H100, on a machine without a GPU.
// no_driver.cc takes the place of the driver. Nothing runs.
#include <gtest/gtest.h>

#include <ostream>

#include "providers/cuda/attention/by_library.h"
#include "providers/cuda/attention/cudnn_plan.h"
#include "providers/cuda/attention/parts.h"
#include "providers/cuda/library/cudnn_library.h"
#include "providers/ops/divide_up.h"
#include "tests/cuda/cudnn/h100.h"
#include "tests/support/left_out.h"
#include "tests/training/files.h"

namespace onnx_fp8::cuda {
namespace {

struct PlanCase {
  const char* name;
  int64_t b, t, s, heads, groups, d;
  bool causal;
  bool packed = false, time_first = false;
};

void PrintTo(const PlanCase& c, std::ostream* out) { *out << c.name; }

// Rows of `width` elements, of which a batch's follow each other.
HeadLayout RowsOf(int64_t rows, int64_t width, int64_t head) {
  return {.batch = rows * width, .row = width, .head = head};
}

LibraryProblem ProblemOf(const PlanCase& c, bool backward) {
  AttentionSizes z = {.b = c.b,
                      .t = c.t,
                      .s = c.s,
                      .heads = c.heads,
                      .groups = c.groups,
                      .d = c.d,
                      .e = c.d,
                      .scale = 0.125f,
                      .causal = c.causal,
                      .round_to = DType::kBFloat16};
  z.y = RowsOf(c.t, c.heads * c.d, c.d);
  if (c.packed) {
    z.q = z.k = z.v = RowsOf(c.t, (c.heads + 2 * c.groups) * c.d, c.d);
  } else {
    z.q = z.y;
    z.k = z.v = RowsOf(c.s, c.groups * c.d, c.d);
  }
  if (c.time_first) {
    for (HeadLayout* x : {&z.q, &z.k, &z.v, &z.y}) {
      x->batch = x->row;
      x->row *= c.b;
    }
  }
  LibraryProblem problem = cuda::ProblemOf(z, backward);
  problem.keeps_lse = true;
  return problem;
}

class CudnnPlanTest : public testing::TestWithParam<PlanCase> {
 protected:
  void SetUp() override {
    if (OpenCudnn() > 0) return;
    LeaveOut("plans of cuDNN, which can't be opened here");
    GTEST_SKIP();
  }
};

TEST_P(CudnnPlanTest, ForwardCompiles) {
  CudnnPlan plan(ProblemOf(GetParam(), false), kH100);
  EXPECT_LT(plan.workspace(), size_t{1} << 20);
}

TEST_P(CudnnPlanTest, BackwardCompiles) {
  LibraryProblem problem = ProblemOf(GetParam(), true);
  EXPECT_LE(CudnnPlan(problem, kH100).workspace(), MostWorkspace(problem));
}

TEST_P(CudnnPlanTest, BackwardInAnyOrderCompiles) {
  LibraryProblem problem = ProblemOf(GetParam(), true);
  problem.deterministic = false;
  EXPECT_LE(CudnnPlan(problem, kH100).workspace(), MostWorkspace(problem));
}

// The smallest part: one group of one batch, beside the others in memory.
TEST_P(CudnnPlanTest, PartsOfTheBackwardPassCompile) {
  LibraryParts parts = EqualParts(ProblemOf(GetParam(), true), 0);
  EXPECT_LE(CudnnPlan(parts.part, kH100).workspace(),
            MostWorkspace(parts.part));
}

INSTANTIATE_TEST_SUITE_P(
    All, CudnnPlanTest,
    testing::Values(PlanCase{"Square", 2, 128, 128, 4, 4, 64, false},
                    PlanCase{"Causal", 2, 128, 128, 4, 4, 64, true},
                    PlanCase{"Groups", 2, 128, 128, 8, 2, 64, false},
                    PlanCase{"CausalGroups", 2, 256, 256, 8, 2, 64, true},
                    PlanCase{"OneGroup", 1, 128, 128, 8, 1, 128, true},
                    PlanCase{"Width128", 1, 256, 256, 4, 4, 128, false},
                    PlanCase{"Causal128", 1, 256, 256, 4, 4, 128, true},
                    PlanCase{"Width8", 1, 64, 64, 2, 2, 8, true},
                    PlanCase{"Width72", 1, 64, 64, 2, 2, 72, false},
                    PlanCase{"OddRows", 3, 67, 67, 4, 2, 64, true},
                    PlanCase{"FewColumns", 2, 130, 33, 4, 4, 64, true},
                    PlanCase{"FewRows", 2, 33, 130, 4, 4, 128, true},
                    PlanCase{"Long", 1, 4096, 4096, 16, 4, 128, true},
                    PlanCase{"Packed", 2, 128, 128, 4, 4, 64, true, true},
                    PlanCase{"PackedGroups", 2, 96, 96, 8, 2, 128, true, true},
                    PlanCase{"PackedTimeFirst", 3, 128, 128, 4, 4, 64, false,
                             true, true}),
    [](const auto& info) { return info.param.name; });

// The gradients of the scores, in bfloat16, are the price of an order.
TEST(CudnnPlan, OrderNeedsWorkspace) {
  if (OpenCudnn() == 0) return;
  LibraryProblem problem =
      ProblemOf({"", 1, 4096, 4096, 16, 4, 128, true}, true);
  constexpr size_t kScores = size_t{2} * 16 * 4096 * 4096;
  EXPECT_GE(CudnnPlan(problem, kH100).workspace(), kScores);
  problem.deterministic = false;
  EXPECT_LT(CudnnPlan(problem, kH100).workspace(), kScores / 4);
}

TEST(CudnnPlan, SaysWhatCudnnLacks) {
  if (OpenCudnn() == 0) return;
  LibraryProblem problem = ProblemOf({"", 1, 1, 1, 2, 2, 64, false}, true);
  ExpectError([&] { CudnnPlan(problem, kH100); }, "s_q = s_kv = 1 is not");
}

}  // namespace
}  // namespace onnx_fp8::cuda
