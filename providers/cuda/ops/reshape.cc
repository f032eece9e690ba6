// SPDX-License-Identifier: Apache-2.0
//
// The same elements under another shape: a plan makes the result an alias of
// the operand, so that no kernel runs.
#include "base/check.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {
namespace {

void NeverRuns(KernelContext& ctx) {
  Fail("[", ctx.Where(), "] expected a plan, which makes it a view");
}

}  // namespace

void RegisterReshape(KernelRegistry& r) {
  for (const char* op :
       {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"}) {
    r.Add(op, NeverRuns, {.view = true});
  }
  r.Add("Detach", NeverRuns, {.view = true}, kDomain);
}

}  // namespace onnx_fp8::cuda
