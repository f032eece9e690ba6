// SPDX-License-Identifier: Apache-2.0
#include "training/run/best_checkpoint.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "onnx_fp8/option_error.h"
#include "onnx_fp8/run_folder.h"
#include "training/state/checkpoint.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

// A note of such a checkpoint: the score of its validation, by what it is.
std::string NoteOf(const std::string& criterion) { return "best." + criterion; }

// The shortest text that reads back as the same number.
std::string TextOf(double number) {
  char text[32];
  auto end = std::to_chars(text, text + sizeof(text), number).ptr;
  return {text, end};
}

// Whether labels are per token: such losses have a perplexity.
bool AreTokens(const LossKind& kind, const Dataset& data,
               const std::string& label) {
  return kind.likelihood && !data.spec().source &&
         !data.SampleShape(label).empty();
}

}  // namespace

void CheckSaveBest(const TrainingSession& session, const Dataset& validation,
                   const TrainerSpec& spec) {
  if (spec.save_best != "accuracy") return;
  const LossSpec loss = session.Loss();
  const LossKind* kind = FindLoss(loss.kind);
  const bool tokens = kind && AreTokens(*kind, validation, loss.label);
  if (kind && kind->hits && !tokens) return;
  throw OptionError(
      Concat("`save_best`: expected loss, got accuracy, which is not known of ",
             kind ? loss.kind : "a model that computes its own loss",
             tokens ? " for each token" : ""));
}

BestCheckpoint::BestCheckpoint(TrainingSession& session,
                               const Dataset* validation,
                               const TrainerSpec& spec)
    : session_(session), spec_(spec), folder_(BestFolder(spec.folder)) {
  // Ranks that share no state leave both to the first one.
  if (spec.folder.empty() || !validation) return;
  CheckSaveBest(session, *validation, spec);
  if (session.step() == 0) return;
  auto kept = LoadLatestCheckpoint(folder_, kAnyModel);
  if (!kept) return;
  auto note = kept->notes.find(NoteOf(spec.save_best));
  if (note == kept->notes.end()) return;
  const std::string& text = note->second;
  std::from_chars(text.data(), text.data() + text.size(), score_);
  step_ = kept->step;
}

void BestCheckpoint::Take(const Evaluation& evaluation,
                          std::map<std::string, std::string> notes) {
  if (spec_.folder.empty()) return;
  const double score = Score(evaluation);
  if (std::isnan(score) || (step_ > 0 && score <= score_)) return;
  notes[NoteOf(spec_.save_best)] = TextOf(score);
  session_.Save(folder_, notes);
  score_ = score;
  step_ = session_.step();
}

double BestCheckpoint::Score(const Evaluation& evaluation) const {
  if (spec_.save_best == "loss") return -evaluation.loss;
  Check(evaluation.accuracy.has_value(),
        "`save_best`: expected a validation with an accuracy, got none");
  return *evaluation.accuracy;
}

}  // namespace onnx_fp8
