// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/commands/commands.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/report/cast_table.h"
#include "cli/report/text.h"
#include "cli/run_session.h"
#include "onnx_fp8/evaluate.h"
#include "onnx_fp8/option_names.h"
#include "training/run/session_options.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

const Option kEvalOptions[] = {
    {"Own", "MODEL", OptionKind::kFile,
     "an .onnx file, or the folder of a run"},
};

CommandHelp EvalHelp() {
  return WithSession(
      {"eval",
       "Loss, and accuracy or perplexity, over all samples of a data set.",
       {{"Options",
         {"MODEL", "Weights", "Evaluation", "Best", "stats", "JSON",
          "Machine"}},
        {"Data", {"data", "Samples"}}},
       {"onnx-fp8 eval runs/gpt --data val.bin",
        "onnx-fp8 eval trained.onnx --data test.npz --loss cross_entropy",
        "onnx-fp8 eval runs/gpt --data val.bin --stats every=4"}});
}

std::unique_ptr<TrainingSession> MakeSession(Flags& flags) {
  const std::string folder = flags.Text("MODEL");
  const bool run = IsFolder(folder);
  if (flags.On("best") && !run) {
    throw OptionError("`best` is for the folder of a run");
  }
  SessionOptions options;
  std::string model = folder;
  for (const char* name : {"weights", "rename", "init", "lora"}) {
    if (!run || !flags.Given(name)) continue;
    throw OptionError(Reference(name) +
                      " is for an .onnx file: a run has weights of its own");
  }
  if (run) {
    RunConfig config = LoadRun(RunFolder(folder));
    options = RunSessionOptions(config, BudgetsOf(flags));
    // Options that this command itself reads, and values in the checkpoint.
    for (const char* own :
         {"data", "threads", "scales", "weights", "rename", "init", "stats"}) {
      config.settings.erase(FlagOf(own));
    }
    flags.Fill(config.settings);
    model = config.model;
  }
  SessionOptions ours = SessionOptionsOf(flags, model);
  ours.optimizer = options.optimizer;
  ours.grad_accum = options.grad_accum;
  ours.grad_accum_by = options.grad_accum_by;
  ours.seed = options.seed;
  if (run) {
    ours.init = options.init;  // only drawn ones
    ours.lora = options.lora;  // without the folder of its first values
    ours.lacks_weights = options.lacks_weights;
  }
  auto session = TrainingSession::Create(ours);
  if (session->Options().loss.kind.empty()) {
    throw OptionError("`loss` is missing: expected " + LossNames());
  }
  if (run) session->Restore(CheckpointFolder(folder, flags.On("best")));
  // Which weights the model took, and which it lacks.
  if (flags.Given("weights") || flags.Given("init")) Notes(session->Notes());
  return session;
}

nlohmann::ordered_json ToJson(const Evaluation& e) {
  nlohmann::ordered_json json = {{"loss", e.loss}};
  if (e.accuracy) json["accuracy"] = *e.accuracy;
  if (e.perplexity) json["perplexity"] = *e.perplexity;
  json["samples"] = e.samples;
  if (e.tokens > 0) json["tokens"] = e.tokens;
  if (e.of_averages) json["weights"] = "ema";
  if (!e.cause.empty()) json["cause"] = e.cause;
  for (const auto& [name, value] : e.measures) json[name] = value;
  return json;
}

}  // namespace

int Eval(const Arguments& arguments) { return EvalWatched(arguments, {}); }

int EvalWatched(const Arguments& arguments, const EvalHost& host) {
  Flags flags(EvalHelp(), kEvalOptions);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"MODEL"});
  const bool is_given = host.data.given();
  if (!is_given) flags.Require({"data"});
  ApplyMachine(flags);
  auto session = MakeSession(flags);
  DataLayout layout =
      LayOutData(session->Inputs(), session->Loss(), DataOf(flags));
  // The name stands in messages for what the host gives.
  const auto files =
      is_given ? std::vector<std::string>{"data"} : flags.List("data");
  DatasetSpec spec = MakeDatasetSpec(files, layout, BudgetsOf(flags));
  host.data.GiveTo(&spec);
  const Dataset data(spec);
  Notes(data.notes());
  Evaluation evaluation = Evaluate(*session, data, layout, {}, host.outputs,
                                   ParseStats(flags.Text("stats")));
  if (host.measures) evaluation.measures = host.measures();
  if (!evaluation.remark.empty()) Note(evaluation.remark);
  if (!evaluation.cause.empty()) Warn(NotFiniteText(evaluation.cause));
  auto json = ToJson(evaluation);
  if (flags.On("json")) {
    if (flags.Given("stats")) json["casts"] = CastsJson(evaluation.casts);
    Out() << JsonLine(json);
    return 0;
  }
  for (const auto& [key, value] : json.items()) {
    std::string name = key;
    name.resize(12, ' ');
    Out() << name
          << (value.is_number_float() ? Number(value.get<double>(), 7)
                                      : value.dump())
          << "\n";
  }
  if (flags.Given("stats")) PrintCasts(Out(), evaluation.casts);
  return 0;
}

}  // namespace onnx_fp8
