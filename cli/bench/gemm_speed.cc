// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/gemm_speed.h"

#include "cli/bench/random_tensor.h"
#include "cli/bench/timing.h"
#include "providers/cpu/gemm/gemm.h"

namespace onnx_fp8 {

GemmSpeed MeasureGemm(const ProductSize& size, const std::string& layout,
                      DType dtype, double seconds) {
  auto [m, k, n] = size;
  bool ta = layout[0] == 'T', tb = layout[1] == 'T';
  Tensor a = RandomTensor({ta ? k : m, ta ? m : k}, dtype, 1);
  Tensor b = RandomTensor({tb ? n : k, tb ? k : n}, dtype, 2);
  DType result = dtype == DType::kBFloat16 ? dtype : DType::kFloat;
  Tensor c = Tensor::Allocate(result, {m, n});
  GemmProblem problem = {
      .m = m, .n = n, .k = k, .c = c.raw(), .c_dtype = result};
  problem.a = {a.raw(), dtype, a.dim(1), ta};
  problem.b = {b.raw(), dtype, b.dim(1), tb};
  std::vector<double> times = Times([&] { Gemm(problem); }, seconds);
  double operations = size.operations();
  return {operations / times.front(), operations / times[times.size() / 2],
          static_cast<int64_t>(times.size())};
}

}  // namespace onnx_fp8
