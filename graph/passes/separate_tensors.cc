// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/separate_tensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/joined.h"
#include "graph/constants.h"
#include "graph/op_facts.h"
#include "graph/parameter_names.h"
#include "graph/views.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kMean = 3;
constexpr size_t kVariance = 4;

// Not a result inside a module ("/norm/Identity_output_0").
bool NamesParameter(const std::string& name) {
  return name.find('/') == std::string::npos && !IsMadeUpName(name);
}

bool IsUniformVector(const Tensor& t) {
  int64_t longest = 0;
  for (int64_t size : t.shape()) longest = std::max(longest, size);
  if (t.size() != std::max<int64_t>(longest, 1)) return false;
  size_t width = ByteSize(t.dtype());
  auto* bytes = static_cast<const std::byte*>(t.raw());
  return std::memcmp(bytes, bytes + width, t.bytes() - width) == 0;
}

Tensor DataOf(const Value& value) {
  if (value.is_initializer()) return value.data;
  bool constant = value.producer && value.producer->Is("Constant");
  return constant ? ConstantIn(*value.producer) : Tensor{};
}

class Separator {
 public:
  Separator(Graph& graph, bool all) : graph_(graph), all_(all) {}

  std::vector<std::string> Run() {
    Statistics(graph_);
    std::vector<Node*> joints;
    for (Node& node : graph_.nodes()) {
      if (node.Is("Identity") && node.in(0) && node.out(0)) {
        joints.push_back(&node);
      }
    }
    for (Node* node : joints) Joint(node);
    std::vector<std::string> notes;
    if (!apart_.empty()) {
      notes.push_back(Concat(
          Joined(apart_), apart_.size() == 1 ? " is" : " are",
          " taken apart from tensors that the exporter found equal and wrote "
          "once (`tie` A=B makes one of two)"));
    }
    if (!together_.empty()) {
      notes.push_back(Concat(
          "one tensor in the file, and trained as one: ", Joined(together_),
          " (`no_tie` trains them apart)"));
    }
    return notes;
  }

 private:
  // An initializer of its own for all readers of the Identity's result.
  void Separate(Node* identity) {
    Value* value = identity->out(0);
    std::string name = value->name;
    Value* own = graph_.AddInitializer(graph_.FreshName(name),
                                       DataOf(*BehindCopies(value)));
    graph_.ReplaceUses(value, own);
    graph_.RemoveNode(identity);
    graph_.Rename(own, name);
    apart_.push_back(name);
  }

  void Joint(Node* node) {
    Value *from = BehindCopies(node->in(0)), *to = node->out(0);
    Tensor data = DataOf(*from);
    if (!data.defined() || !IsFloat(data.dtype())) return;
    if (!NamesParameter(from->name) || !NamesParameter(to->name)) return;
    if (all_ || IsUniformVector(data)) {
      Separate(node);
    } else {
      together_.push_back(Concat(from->name, " = ", to->name));
    }
  }

  // Mean and variance of the normalizations in the graph and in its bodies.
  void Statistics(Graph& graph) {
    using Module = std::tuple<Value*, Value*, Value*, Value*>;
    std::map<std::pair<Module, size_t>, Value*> own;
    for (Node& node : graph.nodes()) {
      if (FactsOf(node).statistics == 0 || !node.in(kVariance)) continue;
      Module module = {node.in(1), node.in(2), node.in(kMean),
                       node.in(kVariance)};
      for (size_t slot : {kMean, kVariance}) {
        Value* read = node.in(slot);
        auto [known, first] = own.try_emplace({module, slot}, nullptr);
        if (first) known->second = OwnStatistic(graph, node, slot);
        if (known->second) graph.SetInput(&node, slot, known->second);
        // The Identity that nobody reads any more.
        if (known->second && read->uses.empty() && read->producer) {
          graph.RemoveNode(read->producer);
        }
      }
    }
  }

  // Null if the tensor is the statistic of this module alone.
  Value* OwnStatistic(Graph& graph, const Node& node, size_t slot) {
    Value* read = node.in(slot);
    Value* held = BehindCopies(read);
    Tensor data = DataOf(*held);
    if (!data.defined() || Alone(held, node, slot)) return nullptr;
    bool named = read != held && NamesParameter(read->name);
    std::string name = read->name;
    if (!named) {
      name = Concat(held->name, slot == kMean ? ".mean" : ".variance");
    } else if (graph.Find(name)->uses.size() == 1) {
      graph.Rename(read, graph.FreshName(name + "_joined"));
    }
    Value* value = graph.AddInitializer(graph.FreshName(name), data);
    apart_.push_back(value->name);
    return value;
  }

  // Whether all readers of the tensor are nodes of the same module as `node`,
  // in the same slot.
  static bool Alone(const Value* held, const Node& node, size_t slot) {
    std::vector<const Value*> open = {held};
    while (!open.empty()) {
      const Value* value = open.back();
      open.pop_back();
      for (const Node* reader : value->uses) {
        if (reader->Is("Identity")) {
          if (!reader->out(0)) return false;
          open.push_back(reader->out(0));
          continue;
        }
        if (FactsOf(*reader).statistics == 0) return false;
        for (size_t i = 1; i <= kVariance; ++i) {
          bool same = reader->in(i) == node.in(i);
          if (!same) return false;
          bool reads = reader->in(i) && BehindCopies(reader->in(i)) == value;
          if (reads && i != slot) return false;
        }
      }
    }
    return true;
  }

  Graph& graph_;
  bool all_;
  std::vector<std::string> apart_;
  std::vector<std::string> together_;
};

}  // namespace

std::vector<std::string> SeparateTensors(Graph& graph, bool all) {
  return Separator(graph, all).Run();
}

}  // namespace onnx_fp8
