// SPDX-License-Identifier: Apache-2.0
#include "training/run/validation_score.h"

#include <cmath>

#include "base/check.h"
#include "base/number_text.h"
#include "training/state/checkpoint.h"

namespace onnx_fp8 {
namespace {

constexpr char kStopStep[] = "early_stop.best_step";
constexpr char kStopCount[] = "early_stop.not_better";

std::string StopScore(const std::string& criterion) {
  return "early_stop." + criterion;
}

}  // namespace

double ScoreOf(const std::string& criterion, const Evaluation& evaluation) {
  if (criterion == "loss") return -evaluation.loss;
  return evaluation.accuracy.value_or(NAN);
}

double ScoreIn(const std::string& text, const std::string& note,
               const std::string& folder) {
  double score = 0;
  Check(ReadNumber(text, &score), "[", folder,
        "] expected a number as the checkpoint's note ", note, ", got \"", text,
        "\"");
  return score;
}

void AddNotes(const EarlyStop& stop, const std::string& criterion,
              std::map<std::string, std::string>* notes) {
  if (stop.patience == 0) return;
  (*notes)[StopScore(criterion)] = NumberText(stop.best);
  (*notes)[kStopStep] = std::to_string(stop.best_step);
  (*notes)[kStopCount] = std::to_string(stop.not_better);
}

void ReadNotes(const std::map<std::string, std::string>& notes,
               const std::string& criterion, const std::string& folder,
               EarlyStop* stop) {
  auto score = notes.find(StopScore(criterion));
  auto step = notes.find(kStopStep), count = notes.find(kStopCount);
  if (stop->patience == 0 || score == notes.end() || step == notes.end() ||
      count == notes.end()) {
    return;
  }
  stop->best = ScoreIn(score->second, score->first, folder);
  stop->best_step = CountIn(step->second, kStopStep, folder);
  stop->not_better = CountIn(count->second, kStopCount, folder);
}

}  // namespace onnx_fp8
