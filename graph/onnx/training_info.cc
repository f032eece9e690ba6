// SPDX-License-Identifier: Apache-2.0
#include <unordered_set>

#include "base/check.h"
#include "graph/onnx/step_notes.h"
#include "graph/onnx/training_info_internal.h"
#include "graph/onnx/written_file.h"

namespace onnx_fp8 {
namespace {

// The roles of the file's tensors, by its notes. Errors: a role for something
// else than an initializer.
void SetRoles(const StepNotes& notes, Graph* graph) {
  for (const auto& [name, role] : notes.roles) {
    Value* value = graph->Find(name);
    Check(value && value->is_initializer(), "[", graph->file,
          "] expected an initializer ", name, ", whose role is \"", Name(role),
          "\" by the notes of the step, got none");
    value->role = role;
  }
}

using ValueSet = std::unordered_set<const Value*>;

// One update_binding. `bound` has the state of the bindings before it. Errors:
// its sides do not fit, or the state has a new value already.
StateBinding ReadBinding(const onnx::StringStringEntryProto& entry,
                         const Graph& graph, const ValueSet& outputs,
                         ValueSet* bound) {
  const std::string where =
      Concat("[", graph.file, "] the update_binding of \"", entry.key(), "\" ");
  Value* state = graph.Find(entry.key());
  Check(state && state->is_initializer(), where,
        "expected an initializer, got ", state ? "another value" : "no value",
        " of that name");
  Value* next = graph.Find(entry.value());
  Check(next && outputs.contains(next), where,
        "expected an output of the graph, got \"", entry.value(),
        "\", which is ", next ? "none of them" : "no value");
  Check(bound->insert(state).second, where,
        "expected one new value, got a second one, \"", entry.value(), "\"");
  Check(next->dtype == state->dtype || next->dtype == DType::kUndefined, where,
        "expected a new value of ", Name(state->dtype), ", got \"",
        entry.value(), "\" of ", Name(next->dtype));
  bool fits = !next->shape || next->shape->size() == state->shape->size();
  for (size_t i = 0; fits && next->shape && i < next->shape->size(); ++i) {
    int64_t size = (*next->shape)[i];
    fits = size < 0 || size == (*state->shape)[i];
  }
  Check(fits, where, "expected a new value of shape ", ToString(*state->shape),
        ", got \"", entry.value(), "\" of shape ",
        next->shape ? ToString(*next->shape) : "?");
  return {state, next};
}

// Whether a binding names a value of this graph. Some tools bind values of
// another graph, such as the algorithm. Then this graph is a plain model.
bool BindsThis(const onnx::ModelProto& model, const Graph& graph) {
  for (const auto& info : model.training_info()) {
    if (!info.algorithm().node().empty()) return false;
    for (const auto& binding : info.update_binding()) {
      if (graph.Find(binding.value())) return true;
    }
  }
  return false;
}

}  // namespace

void ReadState(const onnx::ModelProto& model, Graph* graph) {
  auto notes = graph->metadata.find(kStepNotes);
  bool noted = notes != graph->metadata.end();
  if (noted) SetRoles(ParseNotes(notes->second, graph->file), graph);
  if (!noted && !BindsThis(model, *graph)) return;
  ValueSet outputs(graph->outputs.begin(), graph->outputs.end()), bound;
  bool only_scales = true;
  for (const auto& info : model.training_info()) {
    for (const auto& binding : info.update_binding()) {
      graph->state.push_back(ReadBinding(binding, *graph, outputs, &bound));
      Value* state = graph->state.back().state;
      if (!noted) state->role = RoleOfName(state->name);
      only_scales &= state->role == Role::kScale;
      Check(state->role != Role::kNone, "[", graph->file,
            "] expected the notes of the step to tell the role of ",
            state->name, ", which the file binds, got none");
    }
  }
  // Another program means nothing by our names.
  if (noted || only_scales || graph->metadata.contains(kRecipeNote)) return;
  for (auto& binding : graph->state) binding.state->role = Role::kBound;
  // A tensor that only initialization sets is no constant of the file.
  for (const auto& info : model.training_info()) {
    for (const auto& binding : info.initialization_binding()) {
      Value* value = graph->Find(binding.key());
      if (value && value->is_initializer()) value->role = Role::kBound;
    }
  }
}

void AddBindings(const Graph& graph, onnx::ModelProto* model) {
  if (graph.state.empty()) return;
  auto* info = model->add_training_info();
  for (const StateBinding& binding : graph.state) {
    auto* entry = info->add_update_binding();
    entry->set_key(binding.state->name);
    entry->set_value(binding.next->name);
  }
}

}  // namespace onnx_fp8
