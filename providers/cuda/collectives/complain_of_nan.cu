// SPDX-License-Identifier: Apache-2.0
//
// Reads each element once.
#include "base/check.h"
#include "providers/cuda/collectives/complain_of_nan.h"
#include "providers/cuda/core/complain.h"

namespace onnx_fp8::cuda {
namespace {

constexpr unsigned kNanThreads = 256;

template <typename T>
__global__ void FindNan(const T* x, int64_t n, Complaint* complaint,
                        uint32_t message) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n && x[i] != x[i]) Complain(complaint, message, i);
}

template <typename T>
void StartFindNan(KernelContext& ctx) {
  const Tensor& x = ctx.In(0);
  if (x.size() == 0) return;
  Queue& queue = QueueOf(ctx);
  const uint32_t message = queue.MessageNumber(Concat(
      "[", ctx.Where(),
      "] expected numbers in a maximum over ranks, got NaN as element "));
  const auto blocks = static_cast<unsigned>((x.size() + kNanThreads - 1) /
                                            int64_t{kNanThreads});
  Launch(FindNan<T>, dim3(blocks), dim3(kNanThreads), 0, queue.stream(),
         static_cast<const T*>(x.raw()), x.size(), queue.complaint(), message);
}

}  // namespace

void ComplainOfNan(KernelContext& ctx) {
  if (ctx.In(0).dtype() == DType::kFloat) StartFindNan<float>(ctx);
  if (ctx.In(0).dtype() == DType::kDouble) StartFindNan<double>(ctx);
}

}  // namespace onnx_fp8::cuda
