// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "graph/onnx/body_names_internal.h"
#include "graph/onnx/training_info_internal.h"

namespace onnx_fp8 {
namespace {

// All names that a node reads, also in its bodies, with the bodies' own.
void AddReads(const onnx::NodeProto& node, std::vector<std::string>* names) {
  names->insert(names->end(), node.input().begin(), node.input().end());
  for (const auto& attribute : node.attribute()) {
    for (const auto& inner : attribute.g().node()) AddReads(inner, names);
    for (const auto& output : attribute.g().output()) {
      names->push_back(output.name());
    }
  }
}

class Merger {
 public:
  Merger(const std::string& path, const Budgets& budgets,
         onnx::GraphProto* graph)
      : path_(path),
        budgets_(budgets),
        graph_(*graph),
        nodes_(graph->node_size()),
        outputs_(graph->output_size()),
        taken_(NamesIn(*graph)) {
    taken_.erase("");
    for (int i = 0; i < nodes_; ++i) {
      for (const std::string& output : graph_.node(i).output()) {
        if (!output.empty()) producers_[output] = i;
      }
    }
  }

  // Other tools bind values of a graph of their own.
  bool Trains(const onnx::TrainingInfoProto& info) const {
    return !info.algorithm().node().empty() ||
           std::ranges::any_of(info.update_binding(), [&](const auto& binding) {
             return taken_.contains(binding.value());
           });
  }

  void Add(onnx::TrainingInfoProto* info) {
    onnx::GraphProto part;
    part.Swap(info->mutable_algorithm());
    info->clear_algorithm();
    if (++count_ > 1) Continue(info, &part);
    for (const std::string& name : NamesIn(part)) {
      if (name.empty()) continue;
      if (taken_.insert(name).second) foreign_.insert(name);
    }
    for (const auto& binding : info->update_binding()) {
      newest_[binding.key()] = binding.value();
    }
    const std::string name = graph_.name();
    graph_.MergeFrom(part);
    graph_.set_name(name);
  }

 private:
  // Makes `part` an algorithm that runs after the earlier ones, with a run of
  // the model's nodes of its own.
  void Continue(onnx::TrainingInfoProto* info, onnx::GraphProto* part) {
    ShareInputs(part);
    std::set<std::string> own = NamesIn(*part);
    own.erase("");
    std::vector<std::string> reads;
    for (const auto& node : part->node()) {
      for (const std::string& name : node.input()) CheckRead(name, own);
      AddReads(node, &reads);
    }
    for (const auto& binding : info->initialization_binding()) {
      CheckKey(binding.key(), own);
    }
    for (const auto& binding : info->update_binding()) {
      Check(!newest_.contains(binding.key()), "[", path_,
            "] the update_binding of \"", binding.key(),
            "\" expected one new value, got a second one, \"", binding.value(),
            "\"");
      CheckKey(binding.key(), own);
      CheckRead(binding.value(), own);
      reads.push_back(binding.value());
    }
    Renames renames = newest_;
    for (const std::string& name : own) {
      if (taken_.contains(name)) renames[name] = Fresh(name);
    }
    onnx::GraphProto run;
    for (int i : NodesBehind(std::move(reads))) {
      onnx::NodeProto* node = run.add_node();
      *node = graph_.node(i);
      if (!node->name().empty()) node->set_name(node->name() + Suffix());
      for (const std::string& name : node->output()) {
        if (!name.empty()) renames[name] = Fresh(name);
      }
    }
    Spending(budgets_).Take(
        &Budgets::nodes,
        int64_t{graph_.node_size()} + run.node_size() + part->node_size(),
        path_);
    AddBoundOutputs(*info, &run);
    run.MergeFrom(*part);
    RenameReaders(&run, renames);
    for (auto& node : *run.mutable_node()) {
      for (std::string& name : *node.mutable_output()) Rename(renames, &name);
    }
    for (auto& input : *run.mutable_input()) {
      Rename(renames, input.mutable_name());
    }
    for (auto& tensor : *run.mutable_initializer()) {
      Rename(renames, tensor.mutable_name());
    }
    for (auto& binding : *info->mutable_update_binding()) {
      Rename(renames, binding.mutable_value());
    }
    part->Swap(&run);
  }

  // Removes inputs from `part` if the graph has inputs of the same names, and
  // the initializers that give these inputs their defaults.
  void ShareInputs(onnx::GraphProto* part) {
    auto* inputs = part->mutable_input();
    for (int i = inputs->size(); i-- > 0;) {
      const std::string name = inputs->Get(i).name();
      auto known = std::ranges::find_if(graph_.input(), [&](const auto& info) {
        return info.name() == name;
      });
      if (known == graph_.input().end()) continue;
      Check(known->type().tensor_type().elem_type() ==
                inputs->Get(i).type().tensor_type().elem_type(),
            Where(), " to have the input ", name, " of the type of before");
      shared_.insert(name);
      inputs->DeleteSubrange(i, 1);
      auto* tensors = part->mutable_initializer();
      for (int t = tensors->size(); t-- > 0;) {
        if (tensors->Get(t).name() == name) tensors->DeleteSubrange(t, 1);
      }
    }
  }

  void CheckRead(const std::string& name,
                 const std::set<std::string>& own) const {
    bool known = !foreign_.contains(name) || own.contains(name) ||
                 shared_.contains(name);
    if (known) return;
    Fail(Where(), " to read values of the model and its own, got \"", name,
         "\", which belongs to another algorithm");
  }

  void CheckKey(const std::string& key,
                const std::set<std::string>& own) const {
    bool unclear =
        foreign_.contains(key) || (own.contains(key) && taken_.contains(key));
    if (!unclear) return;
    Fail(Where(),
         " to bind tensors of the model and its own, by names that no "
         "other algorithm has, got \"",
         key, "\"");
  }

  // The model's nodes that compute these values, in order.
  std::set<int> NodesBehind(std::vector<std::string> names) const {
    std::set<int> found;
    while (!names.empty()) {
      auto producer = producers_.find(names.back());
      names.pop_back();
      if (producer == producers_.end()) continue;
      if (!found.insert(producer->second).second) continue;
      AddReads(graph_.node(producer->second), &names);
    }
    return found;
  }

  // The model's outputs that replace state.
  void AddBoundOutputs(const onnx::TrainingInfoProto& info,
                       onnx::GraphProto* run) const {
    for (int i = 0; i < outputs_; ++i) {
      const std::string& name = graph_.output(i).name();
      bool bound = std::ranges::any_of(
          info.update_binding(),
          [&](const auto& binding) { return binding.value() == name; });
      if (bound && producers_.contains(name)) {
        *run->add_output() = graph_.output(i);
      }
    }
  }

  std::string Suffix() const { return Concat(".", count_); }

  std::string Fresh(const std::string& name) {
    std::string fresh = name + Suffix();
    while (!taken_.insert(fresh).second) fresh += "_";
    return fresh;
  }

  std::string Where() const {
    return Concat("[", path_, "] expected training algorithm ", count_);
  }

  const std::string& path_;
  const Budgets& budgets_;
  onnx::GraphProto& graph_;
  // Sizes of the model without algorithms, whose nodes and outputs come first.
  const int nodes_, outputs_;
  std::unordered_map<std::string, int> producers_;  // by output
  int count_ = 0;                                   // of algorithms
  std::set<std::string> taken_;                     // names in graph_
  std::set<std::string> foreign_;  // names that algorithms brought
  std::set<std::string> shared_;   // inputs
  Renames newest_;                 // of state
};

}  // namespace

void MergeAlgorithms(const std::string& path, const Budgets& budgets,
                     onnx::ModelProto* model) {
  if (!model->has_graph()) return;  // RequireModel refuses it
  Merger merger(path, budgets, model->mutable_graph());
  for (auto& info : *model->mutable_training_info()) {
    if (merger.Trains(info)) merger.Add(&info);
  }
}

}  // namespace onnx_fp8
