// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/api_names.h"
#include "cli/commands/commands.h"
#include "cli/data_flags.h"
#include "cli/json_line.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/report/text.h"
#include "cli/run_session.h"
#include "onnx_fp8/evaluate.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

struct EvalFlags {
  std::string model;
  std::vector<std::string> data;
  DataFlags data_flags;
  SessionFlags session;
  MachineFlags machine;
  bool json = false;
  bool best = false;

  void AddTo(Flags& flags) {
    flags.Positional("MODEL", &model, "an .onnx file, or the folder of a run");
    flags.Group("Data");
    flags.Files("--data", &data, "as for train; all samples are used");
    data_flags.AddTo(flags);
    session.AddTo(flags);
    flags.Group("Options");
    flags.Switch("--best", &best,
                 "of a run with --save-best: the best checkpoint, in place of "
                 "the newest");
    flags.Switch("--json", &json, "print one JSON object");
    machine.AddTo(flags);
    flags.Example("onnx-fp8 eval runs/gpt --data val.bin");
    flags.Example(
        "onnx-fp8 eval trained.onnx --data test.npz --loss cross_entropy");
  }
};

std::unique_ptr<TrainingSession> MakeSession(Flags& flags, EvalFlags* values) {
  bool run = IsFolder(values->model);
  SessionOptions options;
  std::string folder = values->model;
  if (values->best && !run) {
    throw UsageError("--best is for the folder of a run");
  }
  if (run) {
    RunConfig config = LoadRun(RunFolder(folder));
    options = RunSessionOptions(config, values->session.budgets.Make());
    // Flags that this command itself reads and writes, and values in the
    // checkpoint.
    for (const char* own : {"--data", "--threads", "--scales"}) {
      config.settings.erase(own);
    }
    flags.Fill(config.settings);
    values->model = config.model;
  }
  SessionOptions ours = values->session.Make(values->model);
  ours.given = GivenOptions(flags);
  ours.optimizer = options.optimizer;
  ours.grad_accum = options.grad_accum;
  ours.seed = options.seed;
  ours.init = options.init;  // only drawn ones
  auto session = TrainingSession::Create(ours);
  if (session->Options().loss.kind.empty()) {
    throw UsageError("--loss is missing: expected " + LossNames());
  }
  if (run) session->Restore(CheckpointFolder(folder, values->best));
  return session;
}

nlohmann::ordered_json ToJson(const Evaluation& e) {
  nlohmann::ordered_json json = {{"loss", e.loss}};
  if (e.accuracy) json["accuracy"] = *e.accuracy;
  if (e.perplexity) json["perplexity"] = *e.perplexity;
  json["samples"] = e.samples;
  if (e.tokens > 0) json["tokens"] = e.tokens;
  if (!e.cause.empty()) json["cause"] = e.cause;
  return json;
}

}  // namespace

int Eval(const Arguments& arguments) {
  Flags flags("eval", "Loss, and accuracy or perplexity, over a data set.");
  EvalFlags values;
  values.AddTo(flags);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"MODEL", "--data"});
  values.machine.Apply();
  auto session = MakeSession(flags, &values);
  DataLayout layout =
      LayOutData(session->Inputs(), session->Loss(), values.data_flags.Make());
  Dataset data(
      MakeDatasetSpec(values.data, layout, values.session.budgets.Make()));
  Notes(data.notes());
  Evaluation evaluation = Evaluate(*session, data, layout);
  if (!evaluation.remark.empty()) Note(evaluation.remark);
  if (!evaluation.cause.empty()) Warn(NotFiniteText(evaluation.cause));
  auto json = ToJson(evaluation);
  if (values.json) {
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
  return 0;
}

}  // namespace onnx_fp8
