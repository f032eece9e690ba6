// SPDX-License-Identifier: Apache-2.0
#include "cli/report/training_log.h"

#include "base/check.h"
#include "cli/output.h"
#include "cli/report/text.h"

namespace onnx_fp8 {
namespace {

std::string ValidationText(const Evaluation& e) {
  std::string text = "validation loss " + Number(e.loss);
  if (e.accuracy) text += "  accuracy " + Number(*e.accuracy, 4);
  if (e.perplexity) text += "  perplexity " + Number(*e.perplexity);
  if (e.of_averages) text += "  (ema)";
  return text;
}

std::string SkippedText(const StepEvent& event) {
  int64_t n = event.skipped_here;
  return Concat("step ", event.result.step,
                " is skipped, nothing changed: ", event.result.cause,
                n >= 5 ? Concat(" (", n, " skipped by now)") : "");
}

}  // namespace

std::string EarlyStopText(int64_t step, int64_t total, const EarlyStop& early) {
  const std::string last =
      early.not_better == 1
          ? "the last validation was not"
          : Concat("none of the last ", early.not_better, " validations was");
  const std::string than =
      early.best_step > 0
          ? Concat(" better than the validation after step ", early.best_step)
          : std::string(" a number");
  const std::string by =
      early.min_delta > 0 ? Concat(" by more than ", early.min_delta) : "";
  return Concat("the run ends after step ", step, " of ", total, ": ", last,
                than, by, "; a larger `early_stop` goes on with it");
}

void TrainingLog::StepPlanned(const std::string& remark) {
  if (!remark.empty()) Above(Note, remark);
}

void TrainingLog::StepDone(const StepEvent& event) {
  const StepResult& step = event.result;
  StepPlanned(step.remark);
  // A run that diverged skips all steps: report them less and less often.
  int64_t n = event.skipped_here;
  bool said = n <= 5 || (n & (n - 1)) == 0;
  if (step.skipped && said) Above(Warn, SkippedText(event));
  ProgressStep line;
  line.step = step.step;
  line.total = event.total;
  line.loss = step.loss;
  line.grad_norm = step.grad_norm;
  line.update_amax = step.update_amax;
  line.lr = event.lr;
  line.unit = event.counts_tokens ? "tokens" : "samples";
  line.per_second = event.per_second;
  if (event.seconds_left) line.seconds_left = *event.seconds_left;
  progress_.Step(line);
}

void TrainingLog::ValidationDone(int64_t step, int64_t total,
                                 const Evaluation& evaluation) {
  if (!evaluation.remark.empty()) Above(Note, evaluation.remark);
  if (!evaluation.cause.empty()) Above(Warn, NotFiniteText(evaluation.cause));
  progress_.Print(
      Concat("step ", step, "/", total, "  ", ValidationText(evaluation)));
}

void TrainingLog::SaveFailed(const SaveFailure& failure) {
  Above(Warn,
        Concat("step ", failure.step, " can't be saved: ", failure.reason, "; ",
               failure.saved_step > 0 ? Concat("the checkpoint of step ",
                                               failure.saved_step, " stays")
                                      : "there is no checkpoint yet",
               failure.goes_on ? ", the run goes on" : ""));
}

void TrainingLog::MetricsFailed(const std::string& reason) {
  Above(Warn, reason + "; the run goes on and tries again");
}

void TrainingLog::StoppedEarly(int64_t step, int64_t total,
                               const EarlyStop& early) {
  Above(Note, EarlyStopText(step, total, early));
}

void TrainingLog::SavedBeforeError(int64_t step) {
  Above(Note, Concat("an error ends the run; step ", step,
                     " is saved, `resume` goes on from there"));
}

void TrainingLog::EvidenceKept(int64_t step, const std::string& what) {
  Above(Note, Concat("step ", step, ": ", what,
                     "; `explain()` of the run's folder does the step again "
                     "and finds where it comes from"));
}

void TrainingLog::Above(void (*tell)(const std::string&),
                        const std::string& text) {
  progress_.Close();
  tell(text);
}

}  // namespace onnx_fp8
