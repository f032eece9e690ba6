// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/data.h"
#include "cli/evaluate.h"
#include "cli/progress.h"
#include "onnx_fp8/session.h"
#include "optimizers/schedule.h"
#include "training/dataset.h"
#include "training/metrics.h"

namespace onnx_fp8 {

// A note in a checkpoint whose step was not validated: the validation was
// interrupted, or it failed.
inline constexpr char kValidationDue[] = "validation_due";

struct TrainerSpec {
  std::string folder;
  std::string metrics;  // path of the file
  int64_t steps = 0;    // total, including earlier runs
  int64_t grad_accum = 1;
  int64_t save_every = 0;
  int64_t val_every = 0;  // 0: at ends of epochs, at least 50 steps apart
  double lr = 0;
  Schedule schedule;
  LossSpec loss;  // logits resolved
  DataLayout layout;
  std::map<std::string, std::string> notes;  // for the checkpoints
  // The run was interrupted in a validation; validate first.
  bool validate_first = false;
};

struct TrainerResult {
  bool interrupted = false;
  bool saved = true;       // the last step is in a checkpoint
  std::string save_error;  // the reason if it is not
  double loss = 0;         // of the last step done here
  double seconds = 0;      // of steps, without validation and saving
  int64_t steps = 0;       // done here
  int64_t samples = 0;
  int64_t tokens = 0;
  std::optional<Evaluation> validation;  // the last one
};

// The loop of `train`: steps, metrics, validation, checkpoints. A step takes
// grad_accum batches; step s reads batches (s - 1) · grad_accum … of `data`, so
// a resumed run goes on where it stopped.
class Trainer {
 public:
  // `validation` may be null.
  Trainer(TrainingSession& session, const Dataset& data,
          const Dataset* validation, TrainerSpec spec, Progress& progress)
      : session_(session),
        data_(data),
        validation_(validation),
        spec_(std::move(spec)),
        progress_(progress) {}

  // Runs until all steps are done or `stop` says so. If a checkpoint can't be
  // written, that is reported and the run goes on. Errors: those of a step or a
  // validation; the steps before are saved.
  TrainerResult Run(const std::function<bool()>& stop);

 private:
  using Clock = std::chrono::steady_clock;
  using Metrics = std::variant<StepMetrics, ValidationMetrics>;

  void Loop(const std::function<bool()>& stop);
  void SaveBeforeError();
  void Step();
  void Report(const StepResult& step, const StepMetrics& metrics);
  void ReportSkipped(const StepResult& step);
  bool ValidationIsDue() const;
  void Validate(const std::function<bool()>& stop);
  void Record(const Metrics& metrics);
  // Errors: the disk; lines that were not written stay pending.
  void WritePending();
  void Save(bool goes_on);

  TrainingSession& session_;
  const Dataset& data_;
  const Dataset* validation_;
  TrainerSpec spec_;
  Progress& progress_;
  // Opened for the first line: a run that fails in its first step leaves no
  // file, so that the folder stays free.
  std::optional<MetricsFile> metrics_;
  int64_t first_step_ = 0;  // steps done before
  TrainerResult result_;
  std::vector<Metrics> pending_;  // lines that the disk has refused so far
  int64_t saved_step_ = -1;
  int64_t skipped_here_ = 0;
  double step_seconds_ = 0;  // smoothed
};

}  // namespace onnx_fp8
