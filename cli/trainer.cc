// SPDX-License-Identifier: Apache-2.0
#include "cli/trainer.h"

#include <algorithm>
#include <cmath>

#include "cli/text.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

// Weight of the newest step in the smoothed time per step.
constexpr double kSmoothing = 0.1;

// Between two validations, if --val-every does not say.
constexpr int64_t kFewestSteps = 50;

int64_t CountSamples(const TensorMap& batch, const DataLayout& layout) {
  for (const DatasetInput& input : layout.inputs) {
    if (!input.whole) return batch.at(input.name).dim(0);
  }
  return 0;
}

std::string ValidationText(const Evaluation& e) {
  std::string text = "validation loss " + Number(e.loss);
  if (e.accuracy) text += "  accuracy " + Number(*e.accuracy, 4);
  if (e.perplexity) text += "  perplexity " + Number(*e.perplexity);
  return text;
}

}  // namespace

TrainerResult Trainer::Run(const std::function<bool()>& stop) {
  first_step_ = saved_step_ = session_.step();
  try {
    Loop(stop);
  } catch (...) {
    SaveBeforeError();
    throw;
  }
  result_.interrupted =
      session_.step() < spec_.steps || spec_.notes.contains(kValidationDue);
  if (session_.step() != saved_step_) Save(false);
  result_.saved = session_.step() == saved_step_;
  progress_.Close();
  return result_;
}

void Trainer::Loop(const std::function<bool()>& stop) {
  if (spec_.validate_first && validation_) {
    Validate(stop);
    saved_step_ = -1;  // its checkpoint notes that validation is due
  }
  while (session_.step() < spec_.steps && !stop()) {
    Step();
    if (ValidationIsDue()) Validate(stop);
    bool due = spec_.save_every > 0 && session_.step() % spec_.save_every == 0;
    if (due && session_.step() < spec_.steps && !stop()) Save(true);
  }
}

void Trainer::SaveBeforeError() {
  if (session_.step() == saved_step_) return;
  Save(false);
  if (session_.step() != saved_step_) return;
  progress_.Note(Concat("onnx-fp8: note: an error ends the run; step ",
                        saved_step_, " is saved, --resume goes on from there"));
}

void Trainer::Step() {
  std::vector<TensorMap> batches;
  int64_t samples = 0;
  int64_t tokens = 0;
  auto begin = Clock::now();
  for (int64_t i = 0; i < spec_.grad_accum; ++i) {
    batches.push_back(data_.Batch(session_.step() * spec_.grad_accum + i));
    samples += CountSamples(batches.back(), spec_.layout);
    tokens += CountTokens(batches.back(), spec_.loss.label);
  }
  double lr =
      LearningRate(spec_.schedule, spec_.lr, session_.step() + 1, spec_.steps);
  StepResult step = session_.Step(batches, lr);
  double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  seconds = std::max(seconds, 1e-9);
  // The first step also makes the plan.
  step_seconds_ = result_.steps < 2
                      ? seconds
                      : step_seconds_ + kSmoothing * (seconds - step_seconds_);
  result_.seconds += seconds;
  result_.samples += samples;
  result_.tokens += tokens;
  result_.steps += 1;
  result_.loss = step.loss;
  StepMetrics metrics;
  metrics.step = step.step;
  metrics.loss = step.loss;
  metrics.grad_norm = step.grad_norm;
  metrics.lr = lr;
  metrics.samples_per_second = static_cast<double>(samples) / seconds;
  if (tokens > 0) {
    metrics.tokens_per_second = static_cast<double>(tokens) / seconds;
  }
  metrics.skipped = step.skipped;
  Record(metrics);
  Report(step, metrics);
}

void Trainer::Report(const StepResult& step, const StepMetrics& metrics) {
  if (!step.remark.empty()) progress_.Note("onnx-fp8: note: " + step.remark);
  if (step.skipped) ReportSkipped(step);
  int64_t left = spec_.steps - step.step;
  ProgressStep line;
  line.step = step.step;
  line.total = spec_.steps;
  line.loss = step.loss;
  line.grad_norm = step.grad_norm;
  line.lr = metrics.lr;
  bool tokens = result_.tokens > 0;
  line.unit = tokens ? "tokens" : "samples";
  double per_step =
      static_cast<double>(tokens ? result_.tokens : result_.samples) /
      static_cast<double>(result_.steps);
  line.per_second = per_step / step_seconds_;
  // The time of the first step says little.
  bool known = result_.steps > 1 || left == 0;
  if (known) line.seconds_left = static_cast<double>(left) * step_seconds_;
  progress_.Step(line);
}

void Trainer::ReportSkipped(const StepResult& step) {
  int64_t n = ++skipped_here_;
  // A run that diverged skips all steps: report them less and less often.
  if (n > 5 && (n & (n - 1)) != 0) return;
  progress_.Note(Concat("onnx-fp8: step ", step.step,
                        " is skipped, nothing changed: ", step.cause,
                        n >= 5 ? Concat(" (", n, " skipped by now)") : ""));
}

bool Trainer::ValidationIsDue() const {
  if (!validation_) return false;
  int64_t step = session_.step();
  if (step == spec_.steps) return true;
  if (spec_.val_every > 0) return step % spec_.val_every == 0;
  // At ends of epochs; if epochs are short, at the end of every k-th epoch.
  int64_t epoch = data_.batches_per_epoch();
  int64_t wanted = kFewestSteps * spec_.grad_accum;
  int64_t period = (wanted + epoch - 1) / epoch * epoch;
  return step * spec_.grad_accum / period >
         (step - 1) * spec_.grad_accum / period;
}

void Trainer::Validate(const std::function<bool()>& stop) {
  // Until the validation is complete: an interruption or an error may come
  // first.
  spec_.notes[kValidationDue] = "yes";
  Evaluation e =
      Evaluate(session_, *validation_, spec_.layout, spec_.loss, stop);
  if (!e.complete) return;
  spec_.notes.erase(kValidationDue);
  ValidationMetrics metrics;
  metrics.step = session_.step();
  metrics.val_loss = e.loss;
  metrics.val_accuracy = e.accuracy;
  metrics.val_perplexity = e.perplexity;
  Record(metrics);
  progress_.Note(Concat("step ", session_.step(), "/", spec_.steps, "  ",
                        ValidationText(e)));
  result_.validation = e;
}

void Trainer::Record(const Metrics& metrics) {
  pending_.push_back(metrics);
  bool first = pending_.size() == 1;
  try {
    WritePending();
  } catch (const Error& error) {
    if (!first) return;
    progress_.Note(Concat("onnx-fp8: warning: ", error.what(),
                          "; the run goes on and tries again"));
  }
}

void Trainer::WritePending() {
  if (!metrics_) metrics_.emplace(spec_.metrics, first_step_);
  size_t done = 0;
  try {
    for (; done < pending_.size(); ++done) {
      std::visit([&](const auto& m) { metrics_->Append(m); }, pending_[done]);
    }
  } catch (const Error&) {
    pending_.erase(pending_.begin(),
                   pending_.begin() + static_cast<std::ptrdiff_t>(done));
    throw;
  }
  pending_.clear();
}

void Trainer::Save(bool goes_on) {
  try {
    session_.Save(spec_.folder, spec_.notes, [this] {
      WritePending();
      metrics_->Sync();
    });
    saved_step_ = session_.step();
  } catch (const Error& error) {
    result_.save_error = error.what();
    progress_.Note(Concat("onnx-fp8: warning: step ", session_.step(),
                          " can't be saved: ", error.what(), "; ",
                          saved_step_ > 0 ? Concat("the checkpoint of step ",
                                                   saved_step_, " stays")
                                          : "there is no checkpoint yet",
                          goes_on ? ", the run goes on" : ""));
  }
}

}  // namespace onnx_fp8
