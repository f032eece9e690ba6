// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/growing_file.h"
#include "onnx_fp8/cast_statistics.h"

namespace onnx_fp8 {

// One line per training step. NaN and infinities are written as null, and the
// line then has "nonfinite": true.
struct StepMetrics {
  int64_t step = 0;         // from 1
  double loss = 0;          // before the update
  double grad_norm = 0;     // not written if negative: it is not known
  double loss_scale = 0;    // written only in float16
  double update_amax = -1;  // not written if negative: it is not measured
  double lr = 0;
  double samples_per_second = 0;
  std::optional<double> tokens_per_second;
  bool skipped = false;  // written only if true
};

// One line per validation.
struct ValidationMetrics {
  int64_t step = 0;  // steps done
  double val_loss = 0;
  std::optional<double> val_accuracy;
  std::optional<double> val_perplexity;
  std::map<std::string, double> measures;  // written as val_NAME
  bool of_averages = false;                // val_weights: "ema" if true
  bool stops_early = false;                // written only if true
};

// One line per cast to FP8 of a step that `stats` measures, in a file of its
// own.
struct CastMetrics {
  int64_t step = 0;
  MeasuredCast cast;
};

// The object of a cast, without its step (docs/formats.md). A ratio that is
// infinite is left out: the cast has no noise, or all numbers are zero.
std::string JsonOf(const MeasuredCast& cast);

// A file of JSON objects, one per line, that only grows.
class MetricsFile {
 public:
  // Opens or creates `path`. Removes lines of steps beyond `last_step` and
  // lines of another form (the torn end of a killed run); 0 starts afresh. A
  // link is not followed, and a file that also has other names is left to those
  // names. Errors: the file can't be read or written.
  MetricsFile(const std::string& path, int64_t last_step);

  // Errors: the disk, naming the file.
  void Append(const StepMetrics& metrics);
  void Append(const ValidationMetrics& metrics);
  void Append(const CastMetrics& metrics);

  // Brings all lines to the device. Call it before a checkpoint gets its name.
  // Errors: the disk.
  void Sync() { file_->Sync(); }

  // Number of lines that were removed when the file was opened.
  int64_t cut() const { return cut_; }

 private:
  std::optional<GrowingFile> file_;  // there is always one
  int64_t cut_ = 0;
};

}  // namespace onnx_fp8
