// SPDX-License-Identifier: Apache-2.0
#include "training/run/explain.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "cli/commands/commands.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/report/explanation_text.h"
#include "cli/run_session.h"
#include "training/run/batch_groups.h"
#include "training/state/checkpoint.h"
#include "training/state/evidence.h"

namespace onnx_fp8 {
namespace {

const Option kExplainOptions[] = {
    {"Own", "RUN", OptionKind::kFile,
     "the folder of a run, which `train()` writes to `out`"},
    {"Own",
     "step",
     OptionKind::kInt,
     "this step, from the newest checkpoint before it (default: the first one "
     "that is not finite, else the one whose loss jumps)",
     "",
     {.min = 1}},
};

CommandHelp ExplainHelp() {
  return {"explain",
          "Do a run's step again that was not finite, and name the first node "
          "that makes NaN or Inf out of finite operands. Nothing changes in "
          "the run's folder but what it keeps.",
          {{"Options", {"Own", "JSON", "Budget", "Machine"}}},
          {"onnx-fp8 explain runs/gpt",
           "onnx-fp8 explain runs/gpt --step 120 --json"}};
}

// Errors: the run read its data from memory; it had several ranks; its
// configuration names another seed than the evidence.
void CheckReplays(const RunConfig& config, const std::string& folder,
                  const StepEvidence& evidence) {
  Check(evidence.ranks == 1, "[", folder, "] step ", evidence.step, " ran on ",
        evidence.ranks,
        " ranks: expected a run of one process, which can be done again alone");
  Check(config.settings.contains("--data"), "[", folder,
        "] was trained on data of the program that ran it: expected data in "
        "files, which can be read again");
  const auto seed = config.settings.find("--seed");
  const std::string now = seed == config.settings.end() ? "0" : seed->second[0];
  Check(now == std::to_string(evidence.seed), "[", folder, "] expected `seed` ",
        evidence.seed, ", with which step ", evidence.step, " ran, got ", now);
}

// The step that the caller names, or the first one that was not finite, or the
// first spike.
StepEvidence ChooseEvidence(const std::string& folder,
                            const std::optional<int64_t>& step) {
  const std::vector<StepEvidence> all = ReadEvidence(folder);
  for (const char* kind : {kNotFinite, kSpike}) {
    for (const StepEvidence& evidence : all) {
      if (step ? evidence.step == *step : evidence.kind == kind) {
        return evidence;
      }
    }
  }
  Check(step.has_value(), "[", folder,
        "] holds no evidence: no step was not finite but for the loss scale of "
        "float16, and no loss was a spike (`watch`); `step` takes any step "
        "behind a checkpoint");
  StepEvidence chosen;
  chosen.kind = "step";
  chosen.step = *step;
  chosen.cause = "there is no evidence of it";
  chosen.checkpoint = CheckpointBefore(folder, *step);
  return chosen;
}

// Completes the evidence of a step for which the run kept none.
void FillIn(const ReplayedRun& run, StepEvidence* evidence) {
  const TrainerSpec& spec = run.spec;
  Check(evidence->step <= spec.steps, "`step`: expected at most ", spec.steps,
        ", the steps of the run, got ", evidence->step);
  if (!evidence->batches.empty()) return;
  const BatchGroups::Group group =
      GroupsOf(run.session, run.data, spec.grad_accum)
          .OfStep(evidence->step - 1);
  for (int64_t i = 0; i < group.count; ++i) {
    evidence->batches.push_back(group.first + i);
    evidence->samples.push_back(run.data.Samples(group.first + i));
  }
  evidence->seed = run.session.Options().seed;
}

void ExplainOne(const std::string& folder, const std::optional<int64_t>& step,
                const std::map<std::string, OptionValue>& own,
                nlohmann::ordered_json* json) {
  const RunConfig config = LoadRun(RunFolder(folder));
  StepEvidence evidence = ChooseEvidence(folder, step);
  if (evidence.kind != "step") {
    CheckReplays(config, folder, evidence);
    if (evidence.program != "onnx-fp8 " ONNX_FP8_VERSION) {
      Note(Concat("the run was trained by ", evidence.program,
                  ", this is onnx-fp8 " ONNX_FP8_VERSION
                  ": steps that are done again may differ"));
    }
  }
  Replay(folder, evidence.checkpoint, own, [&](const ReplayedRun& run) {
    FillIn(run, &evidence);
    const Explanation explanation =
        ExplainStep(run.session, run.data, run.spec, evidence);
    if (json) {
      *json = ExplanationJson(folder, evidence, explanation);
    } else {
      PrintExplanation(folder, evidence, explanation, Out());
    }
  });
}

}  // namespace

void ExplainRun(const std::string& folder,
                const std::map<std::string, OptionValue>& own,
                nlohmann::ordered_json* json) {
  if (!json) return ExplainOne(folder, {}, own, nullptr);
  ExplainOne(folder, {}, own, &(*json)["explanation"]);
}

int Explain(const Arguments& arguments) {
  Flags flags(ExplainHelp(), kExplainOptions);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"RUN"});
  std::map<std::string, OptionValue> own;
  if (flags.Given("threads")) own["threads"] = flags.Int("threads");
  if (flags.Given("budget")) own["budget"] = flags.List("budget");
  for (const char* name : {"isa", "accumulate"}) {
    if (flags.Given(name)) own[name] = flags.Text(name);
  }
  std::optional<int64_t> step;
  if (flags.Has("step")) step = flags.Int("step");
  nlohmann::ordered_json json;
  const bool as_json = flags.On("json");
  ExplainOne(flags.Text("RUN"), step, own, as_json ? &json : nullptr);
  if (as_json) Out() << JsonLine(json);
  return 0;
}

}  // namespace onnx_fp8
