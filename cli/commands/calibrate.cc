// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/data_flags.h"
#include "cli/interrupt.h"
#include "cli/json_line.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/report/progress.h"
#include "cli/report/text.h"
#include "training/step/static_scales.h"

namespace onnx_fp8 {
namespace {

struct CalibrateFlags {
  std::string model, out, init;
  std::vector<std::string> data;
  DataFlags data_flags;
  SessionFlags session;
  MachineFlags machine;
  int64_t steps = 16;
  bool json = false;

  void AddTo(Flags& flags) {
    flags.Positional("MODEL", &model, "the .onnx file");
    flags.Group("Data");
    flags.Files("--data", &data, "as for train");
    data_flags.AddTo(flags);
    session.recipe.recipe = "static";
    session.AddTo(flags);
    flags.Group("Options");
    flags.Int("--steps", &steps, 1, "batches to look at (default: 16)");
    flags.File("--init", &init, "weights to calibrate for (.safetensors)");
    flags.File("-o", &out, "file to write");
    flags.Switch("--json", &json, "the summary as one JSON object");
    machine.AddTo(flags);
    flags.Example(
        "onnx-fp8 calibrate gpt.onnx --data train.bin --seq-len 128 --loss "
        "cross_entropy --steps 20 -o scales.json");
  }
};

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

SessionOptions MakeOptions(const CalibrateFlags& values) {
  SessionOptions options = values.session.Make(values.model);
  if (!UsesStatic(options.recipe, options.filter)) {
    throw UsageError(
        "--recipe: expected one with static scales, as static or "
        "tensorwise,i:sta_ten_e4m3");
  }
  options.recipe = Observing(options.recipe, values.steps);
  for (auto& [glob, recipe] : options.filter.recipes) {
    recipe = Observing(recipe, values.steps);
  }
  options.scales.clear();
  options.init = values.init;
  options.model_only = true;
  return options;
}

// Steps that leave the weights unchanged. Returns the number of steps done.
int64_t Observe(TrainingSession& session, const Dataset& data,
                int64_t batch_size, int64_t steps) {
  Progress progress;
  CatchInterrupts();
  auto begin = std::chrono::steady_clock::now();
  int64_t done = 0;
  while (done < steps && !Interrupted()) {
    StepResult step = session.Step(data.Batch(done++), 0);
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
  Flags flags("calibrate",
              "Scales for static scaling, from the largest values of some "
              "batches, forward and backward.");
  CalibrateFlags values;
  values.AddTo(flags);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"MODEL", "--data", "--loss", "-o"});
  if (values.steps > 4096) {
    throw UsageError(
        Concat("--steps: expected at most 4096, got ", values.steps));
  }
  values.machine.Apply();
  auto folder = std::filesystem::absolute(values.out).parent_path();
  Check(IsFolder(folder), "[", values.out,
        "] can't be written: there is no folder ", folder.string());
  SessionOptions options = MakeOptions(values);
  auto session = TrainingSession::Create(options);
  DataLayout layout =
      LayOutData(session->Inputs(), session->Loss(), values.data_flags.Make());
  DatasetSpec spec = MakeDatasetSpec(values.data, layout, options.budgets);
  spec.shuffle = true;
  spec.drop_last = true;
  Dataset data(spec);
  Notes(data.notes());
  int64_t steps = Observe(*session, data, layout.batch_size, values.steps);
  if (steps < values.steps) return kInterrupted;
  StaticScales scales = {values.out, {}};
  for (const ScaleInfo& info : session->Scales()) {
    Check(info.scale > 0, "[", values.model, "] ", info.key,
          " was zero or not finite in all ", steps,
          " batches: there is no "
          "scale for it; leave its layer out or take other data");
    scales.by_key[info.key] = info.scale;
  }
  WriteStaticScales(values.out, scales);
  if (values.json) {
    Out() << JsonLine(nlohmann::ordered_json{{"scales", scales.by_key.size()},
                                             {"steps", steps},
                                             {"out", values.out}});
  } else {
    Out() << Printable(values.out) << ": " << scales.by_key.size()
          << " scales from " << steps << " batches\n";
  }
  return 0;
}

}  // namespace onnx_fp8
