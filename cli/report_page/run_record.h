// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/report_page/heat_map.h"
#include "cli/report_page/thin_curve.h"

namespace onnx_fp8 {

// One run's folder, as a report shows it. Texts are copied unchanged.
struct RunRecord {
  std::string folder;
  std::vector<std::pair<std::string, std::string>> facts;     // program, model
  std::vector<std::pair<std::string, std::string>> settings;  // flags of train
  Curve loss, grad_norm, val_loss;  // sorted by steps, finite
  std::vector<int64_t> skipped;     // sorted
  std::vector<int64_t> not_finite;  // steps whose loss is not finite
  int64_t last_step = 0;
  bool stopped_early = false;
  std::vector<CastRow> casts;      // in the order of the file
  std::vector<std::string> notes;  // what of the folder is left out
};

// Errors: no folder, no metrics.jsonl in it, no step in that file; a file that
// can't be read.
RunRecord ReadRunRecord(const std::string& folder);

}  // namespace onnx_fp8
