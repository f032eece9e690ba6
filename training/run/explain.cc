// SPDX-License-Identifier: Apache-2.0
#include "training/run/explain.h"

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/number_text.h"
#include "data/json_lines.h"
#include "training/run/batch_groups.h"
#include "training/run/data_layout.h"

namespace onnx_fp8 {
namespace {

// A step's loss and gradient norm in metrics.jsonl; nullopt: not finite.
using Numbers = std::pair<std::optional<double>, std::optional<double>>;

std::optional<double> FiniteOrNone(double number) {
  if (!std::isfinite(number)) return std::nullopt;
  return number;
}

std::optional<double> NumberOf(const JsonFields& line, const char* key) {
  return line.Find(key) ? line.Number(key) : -1;  // -1: it is not known
}

// Lines that are not ours are left out: the numbers are compared, not needed.
std::map<int64_t, Numbers> NumbersOfRun(const std::string& folder) {
  std::map<int64_t, Numbers> all;
  const std::string name = "metrics.jsonl";
  if (!PathExists(folder + "/" + name)) return all;
  ReadJsonLines(folder, name, [&](const JsonFields& line) {
    if (!line.Find("loss")) return;
    all[line.Step()] = {NumberOf(line, "loss"), NumberOf(line, "grad_norm")};
  });
  return all;
}

std::string TextOf(const std::optional<double>& number) {
  return number ? NumberText(*number) : "not finite";
}

// "": the run had the same numbers, or it is not known which.
std::string DifferenceOf(const StepResult& now,
                         const std::map<int64_t, Numbers>& before) {
  const auto at = before.find(now.step);
  if (at == before.end()) return "";
  const auto& [loss, norm] = at->second;
  const auto differs = [&](const char* what, float got,
                           const std::optional<double>& had) {
    const auto is = FiniteOrNone(double{got});
    return is == had ? ""
                     : Concat("step ", now.step, " has the ", what, " ",
                              TextOf(is), ", in the run it was ", TextOf(had));
  };
  std::string text = differs("loss", now.loss, loss);
  if (text.empty()) {
    text =
        differs("gradient norm", now.grad_norm < 0 ? -1 : now.grad_norm, norm);
  }
  return text;
}

std::set<std::string> InputsBySample(const DataLayout& layout) {
  std::set<std::string> names;
  for (const DatasetInput& input : layout.inputs) {
    if (!input.whole) names.insert(input.name);
  }
  return names;
}

// The FQNs of layers that have the names of initializers.
void NameLayers(const TrainingSession& session, Explanation* explanation) {
  const auto name = [&](std::string* layer) {
    for (const ParameterInfo& parameter : session.Parameters()) {
      if (parameter.name == *layer) {
        *layer = parameter.fqn;
        return;
      }
    }
  };
  if (explanation->found) name(&explanation->found->layer);
  for (LargeResult& result : explanation->largest) name(&result.layer);
}

void CheckSamples(const Dataset& data, const BatchGroups::Group& group,
                  const StepEvidence& evidence) {
  for (size_t i = 0; i < evidence.batches.size(); ++i) {
    const int64_t batch = group.first + static_cast<int64_t>(i);
    Check(batch == evidence.batches[i] && i < evidence.samples.size() &&
              data.Samples(batch) == evidence.samples[i],
          "the batches of step ", evidence.step,
          " have other samples than in the run: its data or its options have "
          "changed since");
  }
}

// The batches of the session's next step.
struct NextBatches {
  std::vector<TensorMap> feeds;
  std::vector<int64_t> sizes;  // in samples
};

NextBatches ReadBatches(const Dataset& data, const BatchGroups::Group& group,
                        const DataLayout& layout) {
  NextBatches batches;
  for (int64_t i = 0; i < group.count; ++i) {
    batches.feeds.push_back(data.Batch(group.first + i));
    batches.sizes.push_back(CountSamples(batches.feeds.back(), layout));
  }
  return batches;
}

StepResult WatchedStep(TrainingSession& session, const NextBatches& batches,
                       const TrainerSpec& spec, NotFiniteWatch* watch) {
  struct AtEnd {
    TrainingSession& session;
    ~AtEnd() { session.Watch(nullptr); }
  } at_end{session};
  session.Watch(watch);
  return session.Step(
      batches.feeds,
      LearningRate(spec.schedule, spec.lr, session.step() + 1, spec.steps));
}

// The sample of the data that the finding names; -1: none.
int64_t SampleOf(const std::optional<NotFiniteOrigin>& found,
                 const Dataset& data, const BatchGroups::Group& group) {
  if (!found || found->sample < 0) return -1;
  const auto samples = data.Samples(group.first + found->batch);
  const auto at = static_cast<size_t>(found->sample);
  return at < samples.size() ? samples[at] : -1;
}

}  // namespace

Explanation ExplainStep(TrainingSession& session, const Dataset& data,
                        const TrainerSpec& spec, const StepEvidence& evidence) {
  const BatchGroups groups = GroupsOf(session, data, spec.grad_accum);
  const auto before = NumbersOfRun(spec.folder);
  CheckSamples(data, groups.OfStep(evidence.step - 1), evidence);
  Explanation explanation;
  explanation.first_step = session.step() + 1;
  const auto step = [&](const NextBatches& batches, NotFiniteWatch* watch) {
    explanation.result = WatchedStep(session, batches, spec, watch);
    if (!explanation.difference.empty()) return;
    explanation.difference = DifferenceOf(explanation.result, before);
  };
  std::optional<NotFiniteOrigin> in_state;
  int64_t in_state_step = 0;
  while (session.step() + 1 < evidence.step) {
    NotFiniteWatch watch;
    step(ReadBatches(data, groups.OfStep(session.step()), spec.layout), &watch);
    if (!watch.reaches_results() || in_state) continue;
    in_state = watch.found();
    in_state_step = session.step();
  }
  const BatchGroups::Group group = groups.OfStep(session.step());
  const NextBatches batches = ReadBatches(data, group, spec.layout);
  NotFiniteWatch watch(batches.sizes, InputsBySample(spec.layout));
  step(batches, &watch);
  // NaN that reaches no result is no fault, unless the step was skipped.
  if (watch.reaches_results() || explanation.result.skipped) {
    explanation.found = watch.found();
  }
  explanation.found_step = session.step();
  explanation.sample = SampleOf(explanation.found, data, group);
  if (explanation.found && in_state &&
      explanation.found->source == NotFiniteOrigin::Source::kState) {
    explanation.found = in_state;
    explanation.found_step = in_state_step;
  }
  explanation.largest = watch.largest();
  NameLayers(session, &explanation);
  return explanation;
}

}  // namespace onnx_fp8
