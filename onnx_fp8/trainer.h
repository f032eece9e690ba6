// SPDX-License-Identifier: Apache-2.0
//
// The training loop: steps over a data set, validation, metrics, checkpoints.
//
//   auto session = TrainingSession::Create(options);
//   DataLayout layout = LayOutData(session->Inputs(), session->Loss());
//   DatasetSpec files = MakeDatasetSpec({"train.npz"}, layout);
//   files.shuffle = files.drop_last = true;
//   TrainerSpec spec = {.folder = "run", .steps = 1000, .lr = 1e-3};
//   spec.layout = layout;
//   TrainerResult r = RunTraining(*session, Dataset(files), nullptr, spec);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "onnx_fp8/dataset.h"
#include "onnx_fp8/early_stop.h"
#include "onnx_fp8/evaluate.h"
#include "onnx_fp8/schedule.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

class MeshRanks;

struct TrainerSpec {
  // The folder of the run, see onnx_fp8/run_folder.h; "": nothing is written.
  std::string folder;
  int64_t steps = 0;                      // total, including earlier runs
  int64_t grad_accum = 1;                 // the session's value
  std::string grad_accum_by = "batches";  // as the session has it
  int64_t save_every = 0;                 // steps; 0: only at the end
  int64_t keep_last = 2;  // checkpoints that stay, at least 1; older ones go
  int64_t val_every = 0;  // steps; 0: ends of epochs, at least 50 steps apart
  // "loss" or "accuracy": the checkpoint with the best one of a validation is
  // kept in folder/best too, as another folder of checkpoints. "": none is.
  std::string save_best;
  // A folder that gets all numbers of the run as files of TensorBoard, too; ""
  // for none.
  std::string tensorboard;
  // Ends the run by the same number of a validation, else by its loss.
  EarlyStop early_stop;
  double lr = 0;  // for the schedule; the optimizer's is ignored
  Schedule schedule;
  DataLayout layout;  // layout of the data sets
  // Whether a step that is not finite ends the run, after its evidence is kept
  // (training/state/evidence.h).
  bool stops_at_not_finite = false;
  // Keeps the evidence of a step whose loss is more than so many times the
  // median of the losses before it; 0: of none.
  double spike = 0;
  // The run was interrupted in a validation; validate first.
  bool validate_first = false;
  // The ranks that train together, each with its share of each batch
  // (DatasetSpec::ranks); null: this process alone. All stop after the same
  // step. Only the first rank writes metrics. With `shared_state` each rank's
  // session keeps a part of the state, and all ranks have the folder and the
  // validation data: they save and validate together. Without it only the first
  // rank has these.
  const MeshRanks* ranks = nullptr;
  bool shared_state = false;
};

struct TrainerResult {
  bool interrupted = false;
  bool stopped_early = false;  // by `early_stop`
  bool saved = true;           // there is no folder, or the last step is saved
  std::string save_error;      // the reason if it is not
  double loss = 0;             // of the last step done here
  double update_amax = -1;     // the largest of the steps; -1: not measured
  double seconds = 0;          // of steps, without validation and saving
  int64_t steps = 0;           // done here
  int64_t samples = 0;
  int64_t tokens = 0;                    // 0 if labels are not tokens
  std::optional<Evaluation> validation;  // the last one
  int64_t best_step = 0;                 // of folder/best; 0: there is none
  int64_t not_finite_step = 0;  // that ended the run (stops_at_not_finite)
  std::string not_finite;       // why
};

// A step that has been completed.
struct StepEvent {
  StepResult result;
  int64_t total = 0;         // number of steps in the run
  double lr = 0;             // of this step
  int64_t skipped_here = 0;  // steps skipped in this call, including this one
  double per_second = 0;     // tokens or samples a second, smoothed over steps
  bool counts_tokens = false;
  // The time until the last step, without validations. Not known after the
  // first step, because its time says little.
  std::optional<double> seconds_left;
};

// A checkpoint that could not be written.
struct SaveFailure {
  int64_t step = 0;
  std::string reason;      // message for the user
  int64_t saved_step = 0;  // of the newest checkpoint; at most 0: none
  bool goes_on = false;    // the run goes on
};

// The events of a run; derive from this class to watch them. The thread that
// runs the loop calls the functions. An exception from a function ends the run,
// like an error of a step.
class TrainerEvents {
 public:
  virtual ~TrainerEvents() = default;

  // The session is made. `trains`: TrainingSession::Trains.
  virtual void Begun(const std::string& /*trains*/) {}
  // The first step is planned, and begins now. `remark`: what the user should
  // know of it; "": nothing.
  virtual void StepPlanned(const std::string& /*remark*/) {}
  virtual void StepDone(const StepEvent&) {}
  // The outputs of each batch of a validation, if WatchesOutputs; then Measures
  // gives numbers about them for Evaluation::measures.
  virtual bool WatchesOutputs() const { return false; }
  virtual void OutputsDone(const TensorMap& /*outputs*/,
                           const Tensor* /*label*/) {}
  virtual std::map<std::string, double> Measures() { return {}; }
  virtual void ValidationDone(int64_t /*step*/, int64_t /*total*/,
                              const Evaluation&) {}
  virtual void CheckpointSaved(int64_t /*step*/) {}
  virtual void SaveFailed(const SaveFailure&) {}
  // A line of metrics, or an event of TensorBoard, could not be written. The
  // run goes on and tries again.
  virtual void MetricsFailed(const std::string& /*reason*/) {}
  // The run ends before its last step because `stop` returned true.
  virtual void Interrupted(int64_t /*step*/) {}
  // The run ends before its last step because of `early_stop`.
  virtual void StoppedEarly(int64_t /*step*/, int64_t /*total*/,
                            const EarlyStop&) {}
  // The run ends with an error; the steps before it have just been saved.
  virtual void SavedBeforeError(int64_t /*step*/) {}
  // The run's folder keeps what explains the step. `what` is wrong with it.
  virtual void EvidenceKept(int64_t /*step*/, const std::string& /*what*/) {}
};

// Continues the run in spec->folder: restores its newest checkpoint and what
// early_stop has seen, and sets validate_first. Errors:
// TrainingSession::Restore's; the data, the batches or the seed differ from the
// run's start.
void ResumeTraining(TrainingSession& session, const Dataset& data,
                    TrainerSpec* spec);

// Errors: OptionError, if spec.save_best asks for the accuracy of a loss that
// has none. RunTraining checks it too, when the run has begun.
void CheckSaveBest(const TrainingSession& session, const Dataset& validation,
                   const TrainerSpec& spec);
// Errors: the session has a parameter whose name no checkpoint can hold.
void CheckNames(const TrainingSession& session);

// Trains until spec.steps are done, spec.early_stop or a step that is not
// finite ends the run, or `stop` returns true; it is asked before each step and
// each batch of a validation. A step takes grad_accum batches of `data`, or, if
// the session takes smaller groups, the last ones of an epoch. The number of
// the step decides which, so a resumed run continues where it stopped.
// `validation` may be null. The last step is saved. If a checkpoint can't be
// written, the run reports it and goes on. Errors: a step's or a validation's;
// the steps before are saved. CheckSaveBest's; with a folder: CheckNames'.
TrainerResult RunTraining(TrainingSession& session, const Dataset& data,
                          const Dataset* validation, const TrainerSpec& spec,
                          TrainerEvents& events,
                          const std::function<bool()>& stop = {});

// The same without an observer.
TrainerResult RunTraining(TrainingSession& session, const Dataset& data,
                          const Dataset* validation, const TrainerSpec& spec);

}  // namespace onnx_fp8
