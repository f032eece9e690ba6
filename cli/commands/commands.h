// SPDX-License-Identifier: Apache-2.0
//
// The subcommands; each takes its options and returns the exit code: 0 done,
// 130 interrupted. Errors: OptionError (exit code 2), Error (1).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/flags.h"
#include "collectives/job_secret.h"
#include "onnx_fp8/evaluate.h"
#include "onnx_fp8/tensor.h"
#include "onnx_fp8/trainer.h"

namespace onnx_fp8 {

inline constexpr int kInterrupted = 130;

int Bench(const Arguments& arguments);        // bench.cc
int Calibrate(const Arguments& arguments);    // calibrate.cc
int Compare(const Arguments& arguments);      // compare.cc
int Eval(const Arguments& arguments);         // eval.cc
int Explain(const Arguments& arguments);      // explain.cc
int Export(const Arguments& arguments);       // export.cc
int Grad(const Arguments& arguments);         // grad.cc
int Inspect(const Arguments& arguments);      // inspect.cc
int Ops(const Arguments& arguments);          // ops.cc
int PlanCommand(const Arguments& arguments);  // plan.cc; Plan is another type
int Recipes(const Arguments& arguments);      // recipes.cc
int Report(const Arguments& arguments);       // report.cc
int Rewrite(const Arguments& arguments);      // rewrite.cc
int Run(const Arguments& arguments);          // run.cc
int SensitivityCommand(const Arguments& arguments);  // sensitivity.cc
int Train(const Arguments& arguments);               // train.cc
int Version(const Arguments& arguments);             // version.cc

// Arrays in memory, or batches or samples that the program makes, in place of
// files.
struct HostData {
  std::optional<TensorMap> arrays = {};
  std::optional<BatchSource> source = {};
  std::optional<RowSource> rows = {};

  bool given() const { return arrays || source || rows; }
  void GiveTo(DatasetSpec* spec) const {
    spec->arrays = arrays;
    spec->source = source;
    spec->rows = rows;
  }
};

// A program that trains by `train` watches the run in place of the progress
// line. `stop` ends the run, and signals are the program's own. So are the
// ranks of its job: `ranks` returns the ranks of --mesh, null for one process.
// After an error the program ends the others.
struct TrainHost {
  TrainerEvents& events;
  std::function<bool()> stop;
  std::function<std::shared_ptr<const MeshRanks>(const std::string& mesh,
                                                 const SecretChoice& secret)>
      ranks;
  // In place of --data and --val-data.
  HostData data = {};
  HostData val_data = {};
};
int Train(const Arguments& arguments, const TrainHost& host);

// A run as it was at one of its checkpoints, with the session and the data that
// `train` with `resume` would have. Nothing of the run's folder changes.
struct ReplayedRun {
  TrainingSession& session;
  const Dataset& data;
  const TrainerSpec& spec;
};
// `checkpoint`: its name; "": the run's beginning. `own`: options of the
// caller's start, by name. Errors: no run; the data are others than the run's;
// as `train`.
void Replay(const std::string& folder, const std::string& checkpoint,
            const std::map<std::string, OptionValue>& own,
            const std::function<void(const ReplayedRun&)>& use);  // train.cc

// Explains the run's first step that is not finite, as `explain` does: in
// `json`, or as text if it is null. `own`: as Replay's.
void ExplainRun(const std::string& folder,
                const std::map<std::string, OptionValue>& own,
                nlohmann::ordered_json* json);

// A program that evaluates by `eval` may watch the outputs and add numbers of
// its own about them. Both functions may be empty.
struct EvalHost {
  OutputObserver outputs = {};
  std::function<std::map<std::string, double>()> measures = {};
  HostData data = {};  // in place of --data
};
int EvalWatched(const Arguments& arguments, const EvalHost& host);

// The whole program: finds the command, and explains errors on stderr. Returns
// the exit code.
int Main(const std::vector<std::string>& arguments);

}  // namespace onnx_fp8
