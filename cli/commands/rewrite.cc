// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/report/progress.h"
#include "cli/report/text.h"
#include "cli/shapes.h"
#include "graph/rewrite/rewrite_model.h"
#include "onnx_fp8/option_names.h"
#include "training/artifacts/ort_artifacts.h"
#include "training/run/session_options.h"
#include "training/step/step_file.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kStep[] = "Whole training step";

const Option kRewriteOptions[] = {
    {"Own",
     "out",
     OptionKind::kFile,
     "the .onnx file to write",
     "",
     {.letter = "o"}},
    {"Own",
     "grad_accum",
     OptionKind::kInt,
     "batches per step; above 1 the update is a second file, OUT.apply.onnx",
     "1",
     {.min = 1, .max = 65536, .field = &SessionOptions::grad_accum}},
    {"Own",
     "grad_accum_by",
     OptionKind::kChoice,
     "what the update's gradients are means over: the batches, each with its "
     "own mean, or all labels that count (tokens)",
     "batches",
     {.choices = "batches|tokens", .field = &SessionOptions::grad_accum_by}},
    {"Own",
     "ort_training",
     OptionKind::kFile,
     "instead of MODEL: a folder of onnxruntime.training.artifacts; `out` is "
     "the folder of the new ones",
     "",
     {.replaces_model = true}},
};

CommandHelp RewriteHelp() {
  return {"rewrite",
          "Write the model with its linear layers in FP8, for any ONNX "
          "runtime; with `loss` its whole training step.",
          {{"Options",
            {"Model", "out", "External", "JSON", "dump_passes", "Budget",
             "Machine"}},
           {"Forward model", {"Recipe", "Trained"}},
           {kStep,
            {"Loss", "Loss options", "Reading", "Loss scale", "Shapes",
             "Optimizer", "grad_accum", "grad_accum_by"}},
           {"Artifacts", {"ort_training"}}},
          {"onnx-fp8 rewrite model.onnx -o fp8.onnx --recipe tensorwise",
           "onnx-fp8 rewrite model.onnx -o step.onnx --recipe delayed --loss "
           "cross_entropy --optimizer adamw --lr 0.001 --shape "
           "batch=8,seq=64"}};
}

void RequireNoStepFlags(const Flags& flags) {
  for (const std::string& name : flags.Below(kStep)) {
    if (!flags.Given(name)) continue;
    throw OptionError(Reference(name) +
                      " belongs to a whole training step: it needs `loss`");
  }
}

// As in the report of `inspect`.
Json DecisionsJson(const std::vector<GemmDecision>& decisions) {
  Json rows = Json::array();
  for (const GemmDecision& d : decisions) {
    rows.push_back({{"node", d.node},
                    {"module", d.module},
                    {"fqn", d.fqn},
                    {"role", Name(d.gemm.role)},
                    {"fp8", d.fp8},
                    {"reason", d.reason}});
  }
  return rows;
}

void PrintDecisions(const std::vector<GemmDecision>& decisions) {
  Table table({"parameter or module", "decision", "reason"});
  for (const GemmDecision& d : decisions) {
    table.Row({!d.fqn.empty()      ? d.fqn
               : !d.module.empty() ? d.module
                                   : d.node,
               d.fp8 ? "FP8" : "unchanged", d.reason});
  }
  if (!table.empty()) table.Print(Out(), 0);
}

void WriteForward(const Flags& flags) {
  Progress progress;
  PassRunner runner({.dump = flags.Text("dump_passes")});
  const std::string out = flags.Text("out");
  RewriteReport report =
      RewriteModel(flags.Text("MODEL"), out,
                   {.spec = SpecOf(flags),
                    .dtype = PrecisionOf(flags.Text("dtype")),
                    .patterns = {.train = flags.List("train"),
                                 .freeze = flags.List("freeze")},
                    .observer = ShowCopies(progress),
                    .write = {flags.On("external_data")},
                    .budgets = BudgetsOf(flags),
                    .runner = &runner});
  progress.Close();
  if (flags.On("json")) {
    Out() << JsonLine(Json{{"out", out},
                           {"gemms", DecisionsJson(report.decisions)},
                           {"opset_before", report.opset_before},
                           {"opset_after", report.opset_after}});
    return;
  }
  PrintDecisions(report.decisions);
  Out() << Printable(out) << ": " << report.rewritten << " of "
        << report.decisions.size() << " matrix products in FP8, opset "
        << report.opset_after;
  if (report.opset_after != report.opset_before) {
    Out() << " (was " << report.opset_before << ")";
  }
  Out() << "\n";
}

void WriteStep(const Flags& flags) {
  const std::string model = flags.Text("MODEL"), out = flags.Text("out");
  std::error_code none;
  Check(!std::filesystem::equivalent(model, out, none), "[", out,
        "] expected another file than the model itself");
  StepFile file(SessionOptionsOf(flags, model));
  std::vector<InputInfo> inputs = file.Inputs();
  auto shapes = ResolveShapes(inputs, ParseShapeFlag(flags.List("shape")));
  for (const InputInfo& input : inputs) {
    const Shape& shape = shapes.at(input.name);
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] >= 0) continue;
      throw OptionError(
          "`shape`: a whole training step needs the size of the "
          "axis \"" +
          AxisName(input, i) + "\" of the input " + input.name);
    }
  }
  InputValues known =
      ResolveValues(inputs, ParseValueFlag(flags.List("value")));
  file.Write(shapes, known, out, {flags.On("external_data")});
  Notes(file.notes());
  if (flags.On("json")) {
    Out() << JsonLine(Json{{"out", out}});
    return;
  }
  Out() << Printable(out) << ": the whole training step\n";
}

void WriteArtifacts(const Flags& flags) {
  const std::string out = flags.Text("out");
  for (const char* name : {"MODEL", "loss", "train", "freeze", "dtype",
                           "external_data", "dump_passes"}) {
    if (flags.Given(name)) {
      throw OptionError(Reference(name) + " is not for `ort_training`");
    }
  }
  RequireNoStepFlags(flags);
  OrtRewriteReport report = RewriteOrtArtifacts(
      flags.Text("ort_training"), out, SpecOf(flags), BudgetsOf(flags));
  if (flags.On("json")) {
    Out() << JsonLine(
        Json{{"out", out}, {"gemms", DecisionsJson(report.decisions)}});
    return;
  }
  PrintDecisions(report.decisions);
  std::map<GemmRole, int64_t> all;
  int64_t rewritten = 0;
  for (const GemmDecision& d : report.decisions) {
    ++all[d.gemm.role];
    rewritten += d.fp8;
  }
  Out() << Printable(out) << ": " << rewritten << " of "
        << report.decisions.size() << " matrix products in FP8; "
        << all[GemmRole::kForward] << " forward, " << all[GemmRole::kDgrad]
        << " dgrad, " << all[GemmRole::kWgrad] << " wgrad, "
        << all[GemmRole::kNone] << " without a weight\n";
}

}  // namespace

int Rewrite(const Arguments& arguments) {
  Flags flags(RewriteHelp(), kRewriteOptions);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"out"});
  ApplyMachine(flags);
  if (flags.Has("ort_training")) {
    WriteArtifacts(flags);
    return 0;
  }
  flags.Require({"MODEL"});
  const std::string out = flags.Text("out");
  if (std::filesystem::path(out).extension() != ".onnx") {
    throw OptionError("`out`: expected a name that ends in .onnx, got " + out);
  }
  if (flags.Given("loss")) {
    WriteStep(flags);
  } else {
    RequireNoStepFlags(flags);
    WriteForward(flags);
  }
  return 0;
}

}  // namespace onnx_fp8
