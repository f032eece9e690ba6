// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/trainer.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/joined.h"
#include "base/number_text.h"
#include "base/printable.h"
#include "collectives/mesh.h"
#include "data/safetensors.h"
#include "onnx_fp8/option_error.h"
#include "onnx_fp8/run_folder.h"
#include "training/run/batch_groups.h"
#include "training/run/data_layout.h"
#include "training/run/dump_file.h"
#include "training/run/event_file.h"
#include "training/run/evidence_keeper.h"
#include "training/run/metrics.h"
#include "training/run/validation_score.h"
#include "training/state/checkpoint.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

// The name of the note in which a best checkpoint keeps the score of its
// validation. `criterion`: "loss" or "accuracy".
std::string NoteOf(const std::string& criterion) { return "best." + criterion; }

// Whether labels are per token: such losses have a perplexity.
bool AreTokens(const LossKind& kind, const Dataset& data,
               const std::string& label) {
  return kind.likelihood && !data.spec().source &&
         !data.SampleShape(label).empty();
}

// The checkpoint of a run with the best validation, in a folder of checkpoints
// of its own.
class BestCheckpoint {
 public:
  // If the session goes on with a run, so does this. Without a folder or a
  // validation nothing is saved. Errors: CheckSaveBest's.
  BestCheckpoint(TrainingSession& session, const Dataset* validation,
                 const TrainerSpec& spec)
      : session_(session), spec_(spec), folder_(BestFolder(spec.folder)) {
    // Ranks that share no state leave both to the first one.
    if (spec.folder.empty() || !validation) return;
    CheckSaveBest(session, *validation, spec);
    if (session.step() == 0) return;
    const std::set<std::string> none;
    auto kept = LoadLatestCheckpoint(folder_, kAnyModel, none);
    if (!kept) return;
    auto note = kept->notes.find(NoteOf(spec.save_best));
    if (note == kept->notes.end()) return;
    score_ = ScoreIn(note->second, note->first, folder_);
    step_ = kept->step;
  }

  // Saves the session with these notes if no validation was as good before.
  // All ranks that share state call it. Errors: TrainingSession::Save's.
  void Take(const Evaluation& evaluation,
            std::map<std::string, std::string> notes) {
    if (spec_.folder.empty()) return;
    Check(spec_.save_best != "accuracy" || evaluation.accuracy.has_value(),
          "`save_best`: expected a validation with an accuracy, got none");
    const double score = ScoreOf(spec_.save_best, evaluation);
    if (std::isnan(score) || (step_ > 0 && score <= score_)) return;
    notes[NoteOf(spec_.save_best)] = NumberText(score);
    session_.Save(folder_, notes);
    score_ = score;
    step_ = session_.step();
  }

  int64_t step() const { return step_; }  // 0: there is none yet

 private:
  TrainingSession& session_;
  const TrainerSpec& spec_;
  std::string folder_;
  double score_ = 0;
  int64_t step_ = 0;
};

using Clock = std::chrono::steady_clock;
using Notes = std::map<std::string, std::string>;

// A note in a checkpoint whose step was not validated: the validation was
// interrupted, or it failed.
constexpr char kValidationDue[] = "validation_due";

// The number of a validation by which a run ends early.
std::string StopCriterion(const TrainerSpec& spec) {
  return spec.save_best.empty() ? "loss" : spec.save_best;
}

// Why a run ends before its last step. If ranks have several reasons, the
// largest counts.
enum Ending : int64_t { kGoesOn, kNoBetter, kStopped, kAtNotFinite };

// Weight of the newest step in the smoothed time per step.
constexpr double kSmoothing = 0.1;

// Steps between two validations at ends of epochs, if val_every is not set.
constexpr int64_t kFewestSteps = 50;

// A note in a checkpoint that must be the same in a resumed run, and the option
// that decides it.
struct FixedNote {
  const char* key;
  const char* option;
};

constexpr FixedNote kFixedNotes[] = {
    {"seed", "`seed`"},
    {"batch_size", "`batch_size`"},
    {"grad_accum", "`grad_accum`"},
    {"grad_accum_by", "`grad_accum_by`"},
    {"groups", "`grad_accum`"},
    {"shuffle", "`no_shuffle`"},
    {"shuffle_block", "`shuffle_block`"},
    {"data_weights", "`data_weights`"},
    {"seq_len", "`seq_len`"},
    {"eod", "`eod`"},
    {"samples", "`data`"},
};

// Which folder a path names; nothing if there is none.
std::optional<std::pair<dev_t, ino_t>> PlaceOf(const std::string& path) {
  struct stat now;
  if (stat(path.c_str(), &now) != 0) return std::nullopt;
  return std::pair(now.st_dev, now.st_ino);
}

// The settings that decide the batches of a run.
Notes DataNotes(const Dataset& data, const TrainerSpec& spec,
                const BatchGroups& groups) {
  const DatasetSpec& files = data.spec();
  Notes notes = {{"seed", std::to_string(files.seed)},
                 {"grad_accum", std::to_string(spec.grad_accum)},
                 {"grad_accum_by", spec.grad_accum_by}};
  if (groups.rest() > 0) notes["groups"] = "that end with an epoch";
  if (files.source) return notes;  // the caller decides the batches
  notes["batch_size"] = std::to_string(files.batch_size);
  notes["shuffle"] = files.shuffle ? "yes" : "no";
  notes["shuffle_block"] = std::to_string(files.shuffle_block);
  std::vector<std::string> weights;
  for (double weight : files.weights) weights.push_back(NumberText(weight));
  notes["data_weights"] = Joined(weights, weights.size());
  notes["seq_len"] = std::to_string(files.seq_len);
  notes["eod"] = files.eod ? std::to_string(*files.eod) : "";
  notes["samples"] = std::to_string(data.size());
  return notes;
}

class Trainer {
 public:
  Trainer(TrainingSession& session, const Dataset& data,
          const Dataset* validation, const TrainerSpec& spec,
          TrainerEvents& events, const std::function<bool()>& stop)
      : session_(session),
        data_(data),
        validation_(validation),
        spec_(spec),
        events_(events),
        stop_(stop),
        groups_(GroupsOf(session, data, spec.grad_accum)),
        label_(session.Loss().label),
        notes_(DataNotes(data, spec, groups_)),
        first_step_(session.step()),
        saved_step_(session.step()),
        early_(spec.early_stop),
        evidence_(session, data, spec, IsFirst()) {
    AddNotes(early_, StopCriterion(spec_), &notes_);
  }

  TrainerResult Run() {
    if (!spec_.folder.empty()) CheckNames(session_);
    if (!spec_.save_best.empty()) best_.emplace(session_, validation_, spec_);
    try {
      Loop();
    } catch (...) {
      SaveBeforeError();
      throw;
    }
    result_.stopped_early = ending_ == kNoBetter;
    const bool ends_early = result_.stopped_early || ending_ == kAtNotFinite;
    result_.interrupted = (session_.step() < spec_.steps && !ends_early) ||
                          notes_.contains(kValidationDue);
    if (session_.step() != saved_step_) Save(false);
    result_.saved = session_.step() == saved_step_ || spec_.folder.empty();
    if (result_.interrupted) events_.Interrupted(session_.step());
    if (result_.stopped_early) {
      events_.StoppedEarly(session_.step(), spec_.steps, early_);
    }
    if (best_) result_.best_step = best_->step();
    return result_;
  }

 private:
  using Metrics = std::variant<StepMetrics, ValidationMetrics, CastMetrics>;

  bool IsFirst() const {
    return !spec_.ranks || spec_.ranks->world().rank() == 0;
  }

  // The strongest reason of any rank. All ranks ask at the same time.
  Ending OfAnyRank(Ending ours) const {
    int64_t ending = ours;
    if (spec_.ranks) {
      spec_.ranks->world().AllReduce(Reduction::kMax, DType::kInt64, &ending,
                                     &ending, 1);
    }
    return static_cast<Ending>(ending);
  }

  bool IsStopped() const { return stop_ && stop_(); }

  // Ranks that do not validate learn here that the run ends early.
  bool GoesOn() {
    if (result_.not_finite_step > 0) ending_ = kAtNotFinite;
    if (session_.step() >= spec_.steps) return false;
    const Ending own = result_.not_finite_step > 0    ? kAtNotFinite
                       : validation_ && early_.Ends() ? kNoBetter
                                                      : kGoesOn;
    ending_ = OfAnyRank(own == kGoesOn && IsStopped() ? kStopped : own);
    return ending_ == kGoesOn;
  }

  void Loop() {
    if (spec_.validate_first && validation_) {
      Validate();
      saved_step_ = -1;  // its checkpoint notes that validation is due
    }
    bool goes_on = GoesOn();
    while (goes_on) {
      Step();
      if (ValidationIsDue()) Validate();
      goes_on = GoesOn();
      bool due =
          spec_.save_every > 0 && session_.step() % spec_.save_every == 0;
      if (due && goes_on) Save(true);
    }
  }

  void SaveBeforeError() {
    // Other ranks may have no error, and would not save.
    if (session_.step() == saved_step_ || spec_.shared_state) return;
    Save(false);
    if (session_.step() == saved_step_) events_.SavedBeforeError(saved_step_);
  }

  void Step() {
    std::vector<TensorMap> batches;
    int64_t samples = 0;
    int64_t tokens = 0;
    auto begin = Clock::now();
    const BatchGroups::Group group = groups_.OfStep(session_.step());
    for (int64_t i = 0; i < group.count; ++i) {
      batches.push_back(data_.Batch(group.first + i));
      samples += CountSamples(batches.back(), spec_.layout);
      tokens += CountTokens(batches.back(), label_);
    }
    if (spec_.ranks) {
      // Ranks that divide layers have the same samples.
      const bool counts_them = spec_.ranks->tensor_rank() == 0;
      int64_t counts[] = {counts_them ? samples : 0, counts_them ? tokens : 0};
      spec_.ranks->world().AllReduce(Reduction::kSum, DType::kInt64, counts,
                                     counts, 2);
      samples = counts[0];
      tokens = counts[1];
    }
    double lr = LearningRate(spec_.schedule, spec_.lr, session_.step() + 1,
                             spec_.steps);
    if (result_.steps == 0) Prepare(batches);
    StepResult step = session_.Step(batches, lr);
    double seconds =
        std::chrono::duration<double>(Clock::now() - begin).count();
    seconds = std::max(seconds, 1e-9);
    // The first step also makes the plan.
    step_seconds_ =
        result_.steps < 2
            ? seconds
            : step_seconds_ + kSmoothing * (seconds - step_seconds_);
    result_.seconds += seconds;
    result_.samples += samples;
    result_.tokens += tokens;
    result_.steps += 1;
    result_.loss = step.loss;
    result_.update_amax =
        std::max<double>(result_.update_amax, step.update_amax);
    skipped_here_ += step.skipped;
    StepMetrics metrics;
    metrics.step = step.step;
    metrics.loss = step.loss;
    metrics.grad_norm = step.grad_norm;
    metrics.loss_scale = step.loss_scale;
    metrics.update_amax = step.update_amax;
    metrics.lr = lr;
    metrics.samples_per_second = static_cast<double>(samples) / seconds;
    if (tokens > 0) {
      metrics.tokens_per_second = static_cast<double>(tokens) / seconds;
    }
    metrics.skipped = step.skipped;
    Record(metrics);
    for (const MeasuredCast& cast : step.casts) {
      Record(CastMetrics{step.step, cast});
    }
    WriteDumps(step);
    Report(step, lr);
    KeepEvidence(step, group);
  }

  void KeepEvidence(const StepResult& step, const BatchGroups::Group& group) {
    const std::string what = WhatIsNotFinite(step);
    if (spec_.stops_at_not_finite && !what.empty()) {
      result_.not_finite_step = step.step;
      result_.not_finite = what;
    }
    try {
      const auto kept = evidence_.Take(step, what, group);
      if (kept) events_.EvidenceKept(kept->step, kept->cause);
    } catch (const Error& error) {
      events_.MetricsFailed(error.what());
    }
  }

  // Errors: the disk.
  void WriteDumps(const StepResult& step) const {
    if (spec_.folder.empty() || step.dumps.empty()) return;
    const SessionOptions& options = session_.Options();
    DumpFile file{.step = step.step,
                  .batches = std::ssize(step.dumps),
                  .model = MarkOfModel(session_.Parameters()),
                  .recipe = RecipeText(options.recipe),
                  .provider = options.provider};
    for (const Dump& dump : step.dumps) {
      file.tensors = dump;
      WriteDump(RunFolder(spec_.folder).dumps(), file);
      ++file.batch;
    }
  }

  // Plans the first step and the validation, so that a run without room for one
  // of them does not begin.
  void Prepare(const std::vector<TensorMap>& batches) {
    const std::string remark = session_.Prepare(batches);
    if (validation_) PrepareEvaluation(session_, *validation_, spec_.layout);
    events_.StepPlanned(remark);
  }

  void Report(const StepResult& step, double lr) {
    StepEvent event;
    event.result = step;
    event.total = spec_.steps;
    event.lr = lr;
    event.skipped_here = skipped_here_;
    event.counts_tokens = result_.tokens > 0;
    double per_step =
        static_cast<double>(event.counts_tokens ? result_.tokens
                                                : result_.samples) /
        static_cast<double>(result_.steps);
    event.per_second = per_step / step_seconds_;
    int64_t left = spec_.steps - step.step;
    if (result_.steps > 1 || left == 0) {
      event.seconds_left = static_cast<double>(left) * step_seconds_;
    }
    events_.StepDone(event);
  }

  bool ValidationIsDue() const {
    if (!validation_) return false;
    int64_t step = session_.step();
    if (step == spec_.steps) return true;
    if (spec_.val_every > 0) return step % spec_.val_every == 0;
    return groups_.EndsEpoch(step, kFewestSteps);
  }

  void Validate() {
    // Until the validation is complete: an interruption or an error may come
    // first.
    notes_[kValidationDue] = "yes";
    std::function<bool()> stop = stop_;
    if (spec_.shared_state) {
      stop = [this] {
        return OfAnyRank(IsStopped() ? kStopped : kGoesOn) == kStopped;
      };
    }
    OutputObserver observer;
    if (events_.WatchesOutputs()) {
      observer = [this](const TensorMap& outputs, const Tensor* label) {
        events_.OutputsDone(outputs, label);
      };
    }
    Evaluation e =
        Evaluate(session_, *validation_, spec_.layout, stop, observer);
    if (!e.complete) return;
    e.measures = events_.Measures();
    notes_.erase(kValidationDue);
    if (early_.patience > 0) {
      early_.Take(ScoreOf(StopCriterion(spec_), e), session_.step());
      AddNotes(early_, StopCriterion(spec_), &notes_);
    }
    ValidationMetrics metrics;
    metrics.step = session_.step();
    metrics.val_loss = e.loss;
    metrics.val_accuracy = e.accuracy;
    metrics.val_perplexity = e.perplexity;
    metrics.measures = e.measures;
    metrics.of_averages = e.of_averages;
    metrics.stops_early = early_.Ends() && session_.step() < spec_.steps;
    Record(metrics);
    events_.ValidationDone(session_.step(), spec_.steps, e);
    result_.validation = e;
    if (best_) SaveBest(e);
  }

  void SaveBest(const Evaluation& e) {
    try {
      best_->Take(e, notes_);
    } catch (const Error& error) {
      events_.SaveFailed(
          {session_.step(), error.what(), best_->step(), /*goes_on=*/true});
    }
  }

  void Record(const Metrics& metrics) {
    if (!IsFirst()) return;
    if (!spec_.folder.empty()) {
      Record(metrics, &pending_, [this] { WritePending(); });
    }
    if (!spec_.tensorboard.empty()) {
      Record(metrics, &pending_events_, [this] { WriteEvents(); });
    }
  }

  // `write` writes all pending lines.
  void Record(const Metrics& metrics, std::vector<Metrics>* pending,
              const std::function<void()>& write) {
    pending->push_back(metrics);
    bool first = pending->size() == 1;
    try {
      write();
    } catch (const Error& error) {
      if (first) events_.MetricsFailed(error.what());
    }
  }

  // Writes each line by `write`. Errors: its; the lines that it has not written
  // stay.
  template <typename Write>
  static void WriteAll(const Write& write, std::vector<Metrics>* lines) {
    size_t done = 0;
    try {
      for (; done < lines->size(); ++done) std::visit(write, (*lines)[done]);
    } catch (const Error&) {
      lines->erase(lines->begin(),
                   lines->begin() + static_cast<std::ptrdiff_t>(done));
      throw;
    }
    lines->clear();
  }

  // "": the folder of the run is still the one in which it began.
  std::string FaultOfFolder() {
    const auto place = PlaceOf(spec_.folder);
    if (!place_) place_ = place;
    if (place == place_) return "";
    return Concat("[", spec_.folder, "] expected the folder of the run, got ",
                  place ? "another one: it was moved or removed"
                        : "none: it was moved or removed. A new one gets the "
                          "checkpoints, but neither the model nor the flags, "
                          "which a resumed run then needs");
  }

  // Errors: the folder, the disk; lines that were not written stay pending.
  void WritePending() {
    const std::string fault = FaultOfFolder();
    Check(fault.empty(), fault);
    if (!metrics_) {
      metrics_.emplace(RunFolder(spec_.folder).metrics(), first_step_);
    }
    if (!session_.Options().stats.empty() && !statistics_) {
      statistics_.emplace(RunFolder(spec_.folder).statistics(), first_step_);
    }
    auto write = [this]<typename Line>(const Line& line) {
      const bool cast = std::is_same_v<Line, CastMetrics>;
      (cast ? *statistics_ : *metrics_).Append(line);
    };
    WriteAll(write, &pending_);
  }

  // Errors: the folder, the disk; events that were not written stay pending.
  void WriteEvents() {
    if (pending_events_.empty()) return;
    if (!event_file_) event_file_.emplace(spec_.tensorboard, first_step_);
    WriteAll([this](const auto& line) { event_file_->Append(line); },
             &pending_events_);
  }

  // Events are no part of the run: no checkpoint fails because of them.
  void SaveEvents() {
    try {
      WriteEvents();
      if (event_file_) event_file_->Sync();
    } catch (const Error& error) {
      events_.MetricsFailed(error.what());
    }
  }

  // Before a checkpoint: a folder that is gone is made again. Errors: another
  // one is in its place, which may hold another run.
  void RenewFolder() {
    const std::string fault = IsFirst() ? FaultOfFolder() : "";
    const bool gone = !fault.empty() && !PlaceOf(spec_.folder);
    if (gone) {
      if (pending_.empty()) events_.MetricsFailed(fault);
      place_.reset();
      metrics_.reset();
      statistics_.reset();
    }
    int64_t fails = !fault.empty() && !gone;
    // The ranks save together.
    if (spec_.shared_state) {
      spec_.ranks->world().AllReduce(Reduction::kMax, DType::kInt64, &fails,
                                     &fails, 1);
    }
    Check(fails == 0, fault.empty() ? "the first rank can't save" : fault);
  }

  void Save(bool goes_on) {
    SaveEvents();
    if (spec_.folder.empty()) return;
    try {
      RenewFolder();
      auto sync = [this] {
        if (!IsFirst()) return;
        WritePending();
        metrics_->Sync();
        if (statistics_) statistics_->Sync();
      };
      session_.Save(spec_.folder, notes_, sync, spec_.keep_last);
    } catch (const Error& error) {
      result_.save_error = error.what();
      events_.SaveFailed({session_.step(), error.what(), saved_step_, goes_on});
      return;
    }
    saved_step_ = session_.step();
    events_.CheckpointSaved(saved_step_);
  }

  TrainingSession& session_;
  const Dataset& data_;
  const Dataset* validation_;
  const TrainerSpec& spec_;
  TrainerEvents& events_;
  const std::function<bool()>& stop_;
  const BatchGroups groups_;
  std::string label_;
  Notes notes_;  // for the checkpoints
  // Opened for the first line: a run that fails in its first step leaves no
  // file, so that the folder stays free.
  std::optional<MetricsFile> metrics_, statistics_;
  int64_t first_step_;  // steps done before
  TrainerResult result_;
  std::optional<std::pair<dev_t, ino_t>> place_;  // of the folder
  std::vector<Metrics> pending_;  // lines that the disk has refused so far
  std::optional<EventFile> event_file_;  // opened for the first event
  std::vector<Metrics> pending_events_;  // as pending_
  int64_t saved_step_;
  std::optional<BestCheckpoint> best_;
  EarlyStop early_;
  EvidenceKeeper evidence_;
  Ending ending_ = kGoesOn;
  int64_t skipped_here_ = 0;
  double step_seconds_ = 0;  // smoothed
};

}  // namespace

void CheckSaveBest(const TrainingSession& session, const Dataset& validation,
                   const TrainerSpec& spec) {
  if (spec.save_best != "accuracy") return;
  const LossSpec loss = session.Loss();
  const LossKind* kind = FindLoss(loss.kind);
  const bool tokens = kind && AreTokens(*kind, validation, loss.label);
  const bool counted =
      std::ranges::count(session.Options().metrics, "accuracy") > 0;
  if (kind && kind->hits && (!tokens || counted)) return;
  throw OptionError(
      Concat("`save_best`: expected loss, got accuracy, which is not known of ",
             kind ? loss.kind : "a model that computes its own loss",
             tokens ? " for each token unless `metrics` asks for it" : ""));
}

void CheckNames(const TrainingSession& session) {
  for (const ParameterInfo& parameter : session.Parameters()) {
    if (parameter.role == "constant") continue;  // it is not saved
    for (const std::string& name : {parameter.name, parameter.fqn}) {
      Check(IsUtf8(name) && name != kReservedName, "[", session.Options().model,
            ": ", name, "] expected a parameter whose name can be saved, got ",
            name == kReservedName ? "the name of a checkpoint's own entry"
                                  : "bytes that are not UTF-8",
            ": rename it in the model");
    }
  }
}

void ResumeTraining(TrainingSession& session, const Dataset& data,
                    TrainerSpec* spec) {
  Notes notes = session.Restore(spec->folder);
  spec->validate_first = notes.contains(kValidationDue);
  ReadNotes(notes, StopCriterion(*spec), spec->folder, &spec->early_stop);
  // Older checkpoints do not say it.
  notes.emplace("grad_accum_by", "batches");
  notes.emplace("groups", "that cross the ends of epochs");
  notes.emplace("shuffle_block", "0");
  notes.emplace("data_weights", "");
  notes.emplace("eod", "");
  Notes ours =
      DataNotes(data, *spec, GroupsOf(session, data, spec->grad_accum));
  for (const auto& [key, option] : kFixedNotes) {
    auto it = notes.find(key);
    if (!ours.contains(key)) continue;
    Check(it == notes.end() || it->second == ours[key], "[", spec->folder,
          "] was started with ", key, " ", it == notes.end() ? "" : it->second,
          ", got ", ours[key], " (", option,
          "): a resumed run goes on with the same batches");
  }
}

TrainerResult RunTraining(TrainingSession& session, const Dataset& data,
                          const Dataset* validation, const TrainerSpec& spec,
                          TrainerEvents& events,
                          const std::function<bool()>& stop) {
  return Trainer(session, data, validation, spec, events, stop).Run();
}

TrainerResult RunTraining(TrainingSession& session, const Dataset& data,
                          const Dataset* validation, const TrainerSpec& spec) {
  TrainerEvents unwatched;
  return RunTraining(session, data, validation, spec, unwatched);
}

}  // namespace onnx_fp8
