// SPDX-License-Identifier: Apache-2.0
//
// How the trained float weights of a run are kept between two steps: its
// masters.
#pragma once

#include <string>
#include <vector>

#include "onnx_fp8/dtype.h"
#include "onnx_fp8/optimizer_spec.h"

namespace onnx_fp8 {

// The values of OptimizerSpec::master.
std::vector<std::string> MasterFormats();

// Errors: another value.
void CheckMaster(const OptimizerSpec& spec);

// Whether float weights are kept as bfloat16s, with or without a correction.
inline bool KeepsHalves(const OptimizerSpec& spec) {
  return spec.master != "float32";
}

// The dtype of the correction beside a bfloat16 (base/master_codes.h);
// kUndefined: there is none. REQUIRES: KeepsHalves(spec).
DType CorrectionOf(const OptimizerSpec& spec);

// Whether each update rounds the weights stochastically.
inline bool DrawsMasters(const OptimizerSpec& spec) {
  return spec.master == "bfloat16";
}

// Corrections are state with the weight's name and this end.
inline constexpr char kCorrection[] = ".correction";

}  // namespace onnx_fp8
