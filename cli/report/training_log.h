// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/progress.h"
#include "onnx_fp8/trainer.h"

namespace onnx_fp8 {

// Why a run ends after `step` of `total` steps, and how it goes on.
std::string EarlyStopText(int64_t step, int64_t total, const EarlyStop& early);

// Tells of a training run: the progress line, and notes above it.
class TrainingLog : public TrainerEvents {
 public:
  explicit TrainingLog(Progress& progress) : progress_(progress) {}

  void StepPlanned(const std::string& remark) override;
  void StepDone(const StepEvent& event) override;
  void ValidationDone(int64_t step, int64_t total,
                      const Evaluation& evaluation) override;
  void SaveFailed(const SaveFailure& failure) override;
  void MetricsFailed(const std::string& reason) override;
  void StoppedEarly(int64_t step, int64_t total,
                    const EarlyStop& early) override;
  void SavedBeforeError(int64_t step) override;
  void EvidenceKept(int64_t step, const std::string& what) override;

 private:
  void Above(void (*tell)(const std::string&), const std::string& text);

  Progress& progress_;
};

}  // namespace onnx_fp8
