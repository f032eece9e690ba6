// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/recompute.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/glob.h"
#include "graph/copy_node.h"
#include "graph/dependence.h"
#include "graph/node_notes.h"
#include "graph/op_facts.h"
#include "graph/passes/repeated_blocks.h"
#include "graph/views.h"

namespace onnx_fp8 {
namespace {

class Recomputer {
 public:
  Recomputer(Graph& graph, std::unordered_set<Node*>* backward)
      : graph_(graph), backward_(*backward) {
    for (auto it = graph.nodes().begin(); it != graph.nodes().end(); ++it) {
      places_[&*it] = {order_.size(), it};
      order_.push_back(&*it);
    }
  }

  // Readers come first: a clone reads clones.
  void Run(const std::unordered_set<Node*>& again) {
    for (size_t i = order_.size(); i-- > 0;) {
      Node* node = order_[i];
      if (!again.contains(node) || backward_.contains(node)) continue;
      Node* first = FirstInBackward(*node);
      if (!first) continue;
      if (OnlyBackwardReads(*node)) {
        Move(node, first);
      } else {
        Clone(node, first);
      }
    }
    graph_.Sort();
  }

 private:
  struct Where {
    size_t place;  // in the order at the start. A clone takes its reader's.
    std::list<Node>::iterator at;
  };

  // The first node of the backward that reads the node; null if none does.
  Node* FirstInBackward(const Node& node) const {
    Node* first = nullptr;
    for (const Value* out : node.outputs()) {
      if (!out) continue;
      for (Node* reader : out->uses) {
        if (!backward_.contains(reader)) continue;
        if (!first || places_.at(reader).place < places_.at(first).place) {
          first = reader;
        }
      }
    }
    return first;
  }

  bool OnlyBackwardReads(const Node& node) const {
    return std::ranges::all_of(node.outputs(), [&](const Value* out) {
      return !out || (!IsReturned(graph_, out) &&
                      std::ranges::all_of(out->uses, [&](Node* reader) {
                        return backward_.contains(reader);
                      }));
    });
  }

  void Move(Node* node, Node* before) {
    Where& where = places_.at(node);
    graph_.nodes().splice(places_.at(before).at, graph_.nodes(), where.at);
    where.place = places_.at(before).place;
    backward_.insert(node);
  }

  void Clone(Node* node, Node* before) {
    const size_t place = places_.at(before).place;
    Node* clone =
        CopyNode(graph_, *node, node->inputs(), NamesFor(*node), before);
    if (!clone->name.empty()) clone->name += ".again";
    clone->part = Part::kRecomputed;
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      if (clone->out(i)) Redirect(node->out(i), clone->out(i));
    }
    places_[clone] = {place, std::prev(places_.at(before).at)};
    backward_.insert(clone);
  }

  // Names of the clone's results; "" for an amax that the backward does not
  // read.
  std::vector<std::string> NamesFor(const Node& node) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      const Value* out = node.out(i);
      const bool amax = FactsOf(node).kind == OpKind::kQuantize && i == 2;
      const bool made = out && (!amax || IsReadInBackward(*out));
      names.push_back(made ? graph_.FreshName(out->name + ".again") : "");
    }
    return names;
  }

  bool IsReadInBackward(const Value& value) const {
    return std::ranges::any_of(
        value.uses, [&](Node* node) { return backward_.contains(node); });
  }

  // The backward reads `to` instead of `from`.
  void Redirect(Value* from, Value* to) {
    const std::vector<Node*> readers = from->uses;
    for (Node* reader : readers) {
      if (!backward_.contains(reader)) continue;
      for (size_t i = 0; i < reader->inputs().size(); ++i) {
        if (reader->in(i) == from) graph_.SetInput(reader, i, to);
      }
    }
  }

  Graph& graph_;
  std::unordered_set<Node*>& backward_;
  std::vector<Node*> order_;  // nodes at the start
  std::unordered_map<const Node*, Where> places_;
};

// Whether the node gives the same results again, on this rank alone.
bool MayRunAgain(const Node& node) {
  return FactsOf(node).kind != OpKind::kRandom && !IsCollective(node);
}

// Adds the blocks' nodes, but for the ones with a result that a later block
// reads.
void ChooseBlocks(const std::vector<Node*>& forward, RecomputeChoice* choice) {
  size_t blocks = 0;
  for (const RepeatedBlocks& run : FindRepeatedBlocks(forward)) {
    blocks += run.blocks.size();
    for (const std::vector<Node*>& block : run.blocks) {
      for (Node* node : block) {
        if (!run.ends.contains(node)) choice->nodes.insert(node);
      }
    }
  }
  choice->text = blocks > 0 ? Concat("`recompute`: ", blocks, " blocks")
                            : "`recompute`: no layers repeat here, so the "
                              "forward keeps what the backward reads";
}

void ChooseModules(const std::vector<std::string>& globs, const Graph& graph,
                   const std::vector<Node*>& forward, RecomputeChoice* choice) {
  std::set<std::string> modules;
  for (const std::string& glob : globs) {
    bool matches = false;
    for (Node* node : forward) {
      const std::string module = ModulePath(*node);
      modules.insert(module);
      if (module.empty() || !MatchesGlob(glob, module)) continue;
      matches = true;
      choice->nodes.insert(node);
    }
    modules.erase("");
    if (matches) continue;
    Fail("[", graph.file, "] `recompute` ", glob, " matches no module; ",
         modules.empty() ? "the file names none"
                         : "one of its modules is " + *modules.begin());
  }
  choice->text = "`recompute`: the modules that match";
}

// Adds reshapes and copies of chosen nodes' results. One that is kept would
// keep the memory of the result that it shows.
void AddViews(const std::vector<Node*>& forward,
              const std::unordered_set<Node*>& may,
              std::unordered_set<Node*>* chosen) {
  for (Node* node : forward) {
    if (SharesMemory(*node) && may.contains(node) &&
        chosen->contains(node->in(0)->producer)) {
      chosen->insert(node);
    }
  }
}

bool Quantizes(const Node& node) {
  return FactsOf(node).kind == OpKind::kQuantize;
}

// Whether the node decodes a weight that is kept as a bfloat16. Each reader of
// the weight has a decoding node of its own.
bool DecodesWeight(const Node& node) {
  return node.IsOurs("DecodeMaster") ||
         (node.Is("Cast") && node.in(0)->role == Role::kParameter &&
          node.in(0)->dtype == DType::kBFloat16);
}

// Whether a node that depends on weights alone may run again.
bool CopiesAgain(const Node& node, bool copies, bool codes) {
  return copies ? codes || !Quantizes(node) : DecodesWeight(node);
}

// Adds values that depend on weights alone and that a chosen node reads.
void AddCopies(const std::vector<Node*>& forward, const RecomputeSpec& spec,
               std::unordered_set<Node*>* chosen) {
  const Dependences of(forward);
  for (size_t i = forward.size(); i-- > 0;) {
    Node* node = forward[i];
    if (!of.copies.contains(node) || !MayRunAgain(*node)) continue;
    if (!CopiesAgain(*node, spec.copies, spec.codes)) continue;
    const bool read =
        std::ranges::any_of(node->outputs(), [&](const Value* out) {
          return out && std::ranges::any_of(out->uses, [&](Node* reader) {
                   return chosen->contains(reader);
                 });
        });
    if (read) chosen->insert(node);
  }
}

}  // namespace

StepHalves::StepHalves(Graph& graph, const Value* seed) {
  for (Node& node : graph.nodes()) {
    if (!backward.empty() || std::ranges::count(node.inputs(), seed) > 0) {
      backward.insert(&node);
    } else {
      forward.push_back(&node);
    }
  }
}

std::unordered_set<Node*> NodesThatMayRunAgain(
    const std::vector<Node*>& forward, bool copies, bool codes) {
  const Dependences of(forward);
  std::unordered_set<Node*> nodes;
  for (Node* node : forward) {
    const bool depends =
        of.activations.contains(node) ||
        (of.copies.contains(node) && CopiesAgain(*node, copies, codes));
    if (depends && MayRunAgain(*node)) nodes.insert(node);
  }
  return nodes;
}

RecomputeChoice ChooseRecomputed(const RecomputeSpec& spec, const Graph& graph,
                                 const std::vector<Node*>& forward) {
  RecomputeChoice choice;
  if (spec.what.empty() || spec.what == std::vector<std::string>{"none"}) {
    return choice;
  }
  const bool blocks = spec.what == std::vector<std::string>{"blocks"};
  if (blocks) {
    ChooseBlocks(forward, &choice);
  } else {
    ChooseModules(spec.what, graph, forward, &choice);
  }
  const auto may = NodesThatMayRunAgain(forward, false);
  std::erase_if(choice.nodes, [&](Node* node) { return !may.contains(node); });
  if (!blocks) AddViews(forward, may, &choice.nodes);
  AddCopies(forward, spec, &choice.nodes);
  if (!choice.nodes.empty()) {
    choice.text += Concat("; ", choice.nodes.size(), " of ", forward.size(),
                          " nodes of the forward run again in the backward");
  }
  return choice;
}

void RecomputeInBackward(Graph& graph, const std::unordered_set<Node*>& again,
                         std::unordered_set<Node*>* backward) {
  Recomputer(graph, backward).Run(again);
}

}  // namespace onnx_fp8
