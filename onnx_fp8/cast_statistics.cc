// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/cast_statistics.h"

namespace onnx_fp8 {

void JoinCasts(const std::vector<MeasuredCast>& casts,
               std::vector<MeasuredCast>* all) {
  for (const MeasuredCast& cast : casts) {
    const auto same = std::ranges::find_if(*all, [&](const MeasuredCast& had) {
      return had.fqn == cast.fqn && had.gemm == cast.gemm &&
             had.operand == cast.operand && had.use == cast.use;
    });
    if (same == all->end()) {
      all->push_back(cast);
    } else {
      same->numbers.Add(cast.numbers);
    }
  }
}

}  // namespace onnx_fp8
