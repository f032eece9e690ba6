// SPDX-License-Identifier: Apache-2.0
//
// The GPU's kernels beside the CPU's: every case of kernel_cases.h, with floats
// and with 16-bit floats in memory.
#include <gtest/gtest.h>

#include <string_view>

#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/passes/store_narrow.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/providers/kernel_cases.h"

namespace onnx_fp8 {
namespace {

// Whether products have operands that were rounded to bfloat16: a probability
// may lie near the middle of two.
bool Rounds(const KernelCase& c) {
  return std::string_view(c.node).find("round_to=") != std::string_view::npos;
}

class CudaKernelsTest : public testing::TestWithParam<KernelCase> {};

// Sums of a few hundred floats, and functions with errors of a few ulp.
TEST_P(CudaKernelsTest, GiveTheCpusNumbers) {
  std::shared_ptr<Graph> graph = GraphOf(GetParam());
  ExpectCpusResults(graph, GraphOf(GetParam()),
                    Rounds(GetParam()) ? 4e-3 : 4e-6);
}

// Where a float lies between two 16-bit floats, both sides may round it to
// either.
TEST_P(CudaKernelsTest, KeepFloatsIn16Bits) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    auto wide = RoundedGraph(GetParam(), dtype, CpuKernels());
    auto narrow = RoundedGraph(GetParam(), dtype, CpuKernels());
    StoreNarrow(*narrow, CudaKernels());
    double bound = dtype == DType::kBFloat16 ? 8e-3 : 1e-3;
    if (dtype == DType::kFloat16 && Rounds(GetParam())) bound += 4e-3;
    ExpectCpusResults(wide, narrow, bound);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaKernelsTest, testing::ValuesIn(KernelCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace onnx_fp8
