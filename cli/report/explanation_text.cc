// SPDX-License-Identifier: Apache-2.0
#include "cli/report/explanation_text.h"

#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/joined.h"
#include "base/number_text.h"
#include "base/printable.h"
#include "cli/report/text.h"
#include "training/run/evidence_keeper.h"

namespace onnx_fp8 {
namespace {

using ExplainedJson = nlohmann::ordered_json;

// Samples of a batch that a text shows.
constexpr size_t kMostShown = 16;

enum class Verdict { kNode, kInput, kState, kLossScale, kNothing };

Verdict VerdictOf(const Explanation& e) {
  if (IsLossScale(e.result)) return Verdict::kLossScale;
  if (!e.found) return Verdict::kNothing;
  switch (e.found->source) {
    case NotFiniteOrigin::Source::kInput:
      return Verdict::kInput;
    case NotFiniteOrigin::Source::kState:
      return Verdict::kState;
    default:
      return Verdict::kNode;
  }
}

const char* NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kNode:
      return "node";
    case Verdict::kInput:
      return "input";
    case Verdict::kState:
      return "state";
    case Verdict::kLossScale:
      return "loss_scale";
    default:
      return "nothing";
  }
}

std::string SentenceOf(Verdict verdict, const Explanation& e) {
  switch (verdict) {
    case Verdict::kNode:
      return Concat(e.found_step < e.result.step
                        ? Concat("Step ", e.found_step,
                                 " makes state that is not finite. ")
                        : "",
                    "The first node that makes ",
                    e.found->is_nan ? "NaN" : "Inf", " of finite operands:");
    case Verdict::kInput:
      return "The batch is not finite before any node runs:";
    case Verdict::kState:
      return "The state is not finite before the step:";
    case Verdict::kLossScale:
      return Concat("Gradients overflow in float16 with the loss scale ",
                    NumberText(e.result.loss_scale),
                    ". The step is skipped, and the next one has half the "
                    "scale: that is no fault.");
    default:
      return "No node makes NaN or Inf that reaches the loss, a gradient or "
             "the state. The largest results:";
  }
}

std::string Texts(const std::vector<int64_t>& numbers) {
  std::vector<std::string> texts;
  for (int64_t number : numbers) texts.push_back(std::to_string(number));
  return Joined(texts, kMostShown);
}

std::string CountsText(const TensorRange& range) {
  return Concat(range.nans, " NaN and ", range.infinite, " infinite");
}

void PrintLine(std::ostream& out, const std::string& name,
               const std::string& text) {
  if (text.empty()) return;
  out << "  " << name << std::string(12 - name.size(), ' ') << Printable(text)
      << "\n";
}

void PrintFound(const NotFiniteOrigin& found, int64_t sample,
                std::ostream& out) {
  const bool is_node = found.source == NotFiniteOrigin::Source::kNode;
  PrintLine(out, is_node ? "node" : "read by", found.node);
  PrintLine(out, "layer", found.layer);
  PrintLine(out, "gradient of", found.forward);
  PrintLine(out, "role", found.role == "other" ? "" : found.role);
  PrintLine(out, is_node ? "result" : "tensor",
            Concat(found.result.name, " ", found.result.type, ": ",
                   CountsText(*found.result.range), ", the first at [",
                   Texts(found.index), "]"));
  if (found.sample >= 0) {
    PrintLine(out, "sample",
              Concat(found.sample, " of the batch",
                     sample >= 0 ? Concat(", ", sample, " of the data") : ""));
  }
  if (found.operands.empty()) return;
  Table table({"operand", "type", "min", "max", "amax"});
  for (const SeenTensor& operand : found.operands) {
    const auto& range = operand.range;
    table.Row({operand.name, operand.type, range ? Number(range->min) : "",
               range ? Number(range->max) : "",
               range ? Number(range->amax) : ""});
  }
  table.Print(out);
}

ExplainedJson JsonOf(double number) {
  return std::isfinite(number) ? ExplainedJson(number) : ExplainedJson(nullptr);
}

ExplainedJson JsonOf(const SeenTensor& tensor) {
  ExplainedJson json = {{"name", tensor.name}, {"type", tensor.type}};
  if (!tensor.range) return json;
  json["min"] = tensor.range->min;
  json["max"] = tensor.range->max;
  json["amax"] = tensor.range->amax;
  json["nan"] = tensor.range->nans;
  json["infinite"] = tensor.range->infinite;
  return json;
}

ExplainedJson JsonOf(const NotFiniteOrigin& found, int64_t sample) {
  ExplainedJson json = {{"node", found.node},
                        {"op", found.op},
                        {"role", found.role},
                        {"layer", found.layer},
                        {"forward", found.forward},
                        {"operands", ExplainedJson::array()},
                        {"result", JsonOf(found.result)},
                        {"index", found.index},
                        {"is", found.is_nan ? "nan" : "inf"},
                        {"batch", found.batch}};
  for (const SeenTensor& operand : found.operands) {
    json["operands"].push_back(JsonOf(operand));
  }
  if (found.sample >= 0) json["sample_of_batch"] = found.sample;
  if (sample >= 0) json["sample"] = sample;
  return json;
}

}  // namespace

void PrintExplanation(const std::string& folder, const StepEvidence& evidence,
                      const Explanation& e, std::ostream& out) {
  out << "step " << evidence.step << " of " << Printable(folder) << ": "
      << Printable(evidence.cause) << "\n";
  for (size_t i = 0; i < evidence.samples.size(); ++i) {
    PrintLine(out, Concat("batch ", evidence.batches[i]),
              evidence.samples[i].empty()
                  ? ""
                  : "samples " + Texts(evidence.samples[i]));
  }
  PrintLine(out, "done again",
            Concat("steps ", e.first_step, " to ", evidence.step, ", from ",
                   evidence.checkpoint.empty() ? "the beginning"
                                               : evidence.checkpoint,
                   ", seed ", evidence.seed));
  PrintLine(out, "",
            e.difference.empty() ? "with the numbers of the run"
                                 : "not as in the run: " + e.difference);
  const Verdict verdict = VerdictOf(e);
  out << SentenceOf(verdict, e) << "\n";
  if (verdict == Verdict::kLossScale) return;
  if (e.found) {
    PrintFound(*e.found, e.sample, out);
    return;
  }
  Table table({"node", "layer", "amax"});
  for (const LargeResult& result : e.largest) {
    table.Row({result.node, result.layer, Number(result.amax)});
  }
  table.Print(out);
}

ExplainedJson ExplanationJson(const std::string& folder,
                              const StepEvidence& evidence,
                              const Explanation& e) {
  const Verdict verdict = VerdictOf(e);
  ExplainedJson json = {{"run", folder},
                        {"step", evidence.step},
                        {"kind", evidence.kind},
                        {"cause", evidence.cause},
                        {"batches", evidence.batches},
                        {"samples", evidence.samples},
                        {"seed", evidence.seed},
                        {"checkpoint", evidence.checkpoint},
                        {"first_step", e.first_step},
                        {"same", e.difference.empty()},
                        {"loss", JsonOf(e.result.loss)},
                        {"grad_norm", JsonOf(e.result.grad_norm)},
                        {"skipped", e.result.skipped},
                        {"found", NameOf(verdict)}};
  if (!e.difference.empty()) json["difference"] = e.difference;
  if (verdict == Verdict::kLossScale) json["loss_scale"] = e.result.loss_scale;
  if (e.found && verdict != Verdict::kLossScale) {
    json["finding"] = JsonOf(*e.found, e.sample);
    json["finding"]["step"] = e.found_step;
  }
  if (verdict != Verdict::kNothing) return json;
  json["largest"] = ExplainedJson::array();
  for (const LargeResult& result : e.largest) {
    json["largest"].push_back({{"node", result.node},
                               {"layer", result.layer},
                               {"amax", result.amax}});
  }
  return json;
}

}  // namespace onnx_fp8
