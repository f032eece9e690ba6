// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/printable.h"
#include "cli/calibration_data.h"
#include "cli/commands/commands.h"
#include "cli/interrupt.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/output_place.h"
#include "cli/report/cast_table.h"
#include "cli/report/progress.h"
#include "training/run/session_options.h"
#include "training/step/static_scales.h"

namespace onnx_fp8 {
namespace {

const Option kCalibrateOptions[] = {
    {"Own",
     "steps",
     OptionKind::kInt,
     "batches to look at",
     "16",
     {.min = 1, .max = 4096}},
};

CommandHelp CalibrateHelp() {
  return WithSession(
      {"calibrate",
       "Scales for static scaling, from the largest values of some batches, "
       "forward and backward.",
       {{"Options",
         {"Model", "steps", "Weights", "Output", "stats", "JSON", "Machine"}},
        {"Data", {"data", "Samples"}}},
       {"onnx-fp8 calibrate gpt.onnx --data train.bin --seq-len 128 --loss "
        "cross_entropy --steps 20 -o scales.json"}});
}

// Makes every static scale a delayed one that remembers all steps.
Recipe Observing(Recipe recipe, int64_t steps) {
  for (OperandRecipe& operand : recipe.operands) {
    if (operand.scaling == Scaling::kStatic) {
      operand.scaling = Scaling::kDelayed;
    }
  }
  recipe.amax_history = steps;
  recipe.most_recent = false;
  recipe.per_micro_batch = false;
  return recipe;
}

SessionOptions ObservingOptions(const OptionSet& flags) {
  SessionOptions options = SessionOptionsOf(flags, flags.Text("MODEL"));
  if (!UsesStatic(options.recipe, options.filter)) {
    throw OptionError(
        "`recipe`: expected one with static scales, as static or "
        "tensorwise,i:sta_ten_e4m3");
  }
  const int64_t steps = flags.Int("steps");
  options.recipe = Observing(options.recipe, steps);
  for (auto& [glob, recipe] : options.filter.recipes) {
    recipe = Observing(recipe, steps);
  }
  options.scales.clear();
  options.model_only = true;
  return options;
}

// Steps that leave the weights unchanged. Returns the number of steps done, and
// in `casts` the statistics of the steps that measure them.
int64_t Observe(TrainingSession& session, const Dataset& data,
                int64_t batch_size, int64_t steps,
                std::vector<MeasuredCast>* casts) {
  Progress progress;
  CatchInterrupts();
  auto begin = std::chrono::steady_clock::now();
  int64_t done = 0;
  while (done < steps && !Interrupted()) {
    StepResult step = session.Step(data.Batch(done++), 0);
    JoinCasts(step.casts, casts);
    if (step.skipped) {
      progress.Close();
      Warn(step.cause);
    }
    std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - begin;
    double each = seconds.count() / static_cast<double>(done);
    ProgressStep line;
    line.step = done;
    line.total = steps;
    line.loss = step.loss;
    line.grad_norm = step.grad_norm;
    line.per_second = static_cast<double>(batch_size) / each;
    line.seconds_left = static_cast<double>(steps - done) * each;
    progress.Step(line);
  }
  return done;
}

}  // namespace

int Calibrate(const Arguments& arguments) {
  Flags flags(CalibrateHelp(), kCalibrateOptions);
  flags.Preset("recipe", "static");
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"MODEL", "data", "loss", "out"});
  ApplyMachine(flags);
  const std::string out = flags.Text("out");
  const int64_t wanted = flags.Int("steps");
  RequireFolderOf(out);
  SessionOptions options = ObservingOptions(flags);
  auto session = TrainingSession::Create(options);
  // Which weights the model took, and which it lacks.
  if (flags.Given("weights") || flags.Given("init")) Notes(session->Notes());
  const Dataset data = CalibrationData(flags, *session);
  std::vector<MeasuredCast> casts;
  int64_t steps =
      Observe(*session, data, data.spec().batch_size, wanted, &casts);
  if (steps < wanted) return kInterrupted;
  StaticScales scales = {out, {}};
  for (const ScaleInfo& info : session->Scales()) {
    Check(info.scale > 0, "[", options.model, "] ", info.key,
          " was zero or not finite in all ", steps,
          " batches: there is no "
          "scale for it; leave its layer out or take other data");
    scales.by_key[info.key] = info.scale;
  }
  WriteStaticScales(out, scales);
  if (flags.On("json")) {
    nlohmann::ordered_json json = {
        {"scales", scales.by_key.size()}, {"steps", steps}, {"out", out}};
    if (flags.Given("stats")) json["casts"] = CastsJson(casts);
    Out() << JsonLine(json);
  } else {
    Out() << Printable(out) << ": " << scales.by_key.size() << " scales from "
          << steps << " batches\n";
    if (flags.Given("stats")) PrintCasts(Out(), casts);
  }
  return 0;
}

}  // namespace onnx_fp8
