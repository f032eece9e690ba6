// SPDX-License-Identifier: Apache-2.0
#include "training/session_checks.h"

#include <cmath>

#include "base/check.h"
#include "onnx_fp8/option_error.h"
#include "training/loss.h"

namespace onnx_fp8 {

void CheckOptions(const ProviderOptions& options, const MeshRanks* ranks) {
  const char* choice = FirstChoice(options);
  if (!choice || !ranks || ranks->mesh().tp == 1) return;
  throw OptionError(Concat(
      choice, ": expected ranks that compute whole layers (tp=1), got tp=",
      ranks->mesh().tp));
}

void CheckRate(double lr) {
  if (std::isfinite(static_cast<float>(lr)) && lr >= 0) return;
  throw OptionError(Concat("`lr`: expected a number of at least 0, got ", lr));
}

bool HasLabel(const LossSpec& loss, const TensorMap& feeds) {
  return !FindLoss(loss.kind) || feeds.contains(loss.label);
}

}  // namespace onnx_fp8
