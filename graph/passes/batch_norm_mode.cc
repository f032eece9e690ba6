// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/batch_norm_mode.h"

#include <vector>

#include "base/check.h"
#include "graph/op_facts.h"
#include "graph/passes/inference_mode.h"

namespace onnx_fp8 {
namespace {

// A note names at most this many layers.
constexpr size_t kNamed = 8;

struct Norm {
  Graph* graph;
  Node* node;
};

void Collect(Graph& graph, std::vector<Norm>* norms) {
  for (Node& node : graph.nodes()) {
    if (FactsOf(node).statistics > 0) norms->push_back({&graph, &node});
    for (Graph* body : node.Subgraphs()) Collect(*body, norms);
  }
}

// In training mode the op must also return its next statistics.
void NormalizeByBatch(Graph& graph, Node* node) {
  node->attributes["training_mode"] = int64_t{1};
  for (size_t i : {1, 2}) {
    const Value* old = node->in(i + 2);
    if (!old || node->out(i)) continue;
    Value* next = graph.AddOutput(node, i, graph.FreshName(old->name + ".new"));
    next->dtype = old->dtype;
    next->shape = old->shape;
  }
}

// PyTorch's name of the layer, if its scale has kept one.
std::string LayerName(const Node& node) {
  const Value* scale = node.in(1);
  std::string suffix = ".weight";
  if (!scale || !scale->name.ends_with(suffix)) return node.Where();
  return scale->name.substr(0, scale->name.size() - suffix.size());
}

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kNamed; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kNamed) {
    text += Concat(" and ", names.size() - kNamed, " more");
  }
  return text;
}

}  // namespace

std::string SetBatchNormMode(Graph& graph, BatchNormMode mode) {
  std::vector<Norm> norms;
  Collect(graph, &norms);
  std::vector<std::string> fixed;
  for (const Norm& norm : norms) {
    bool trains = norm.node->Int("training_mode", 0) != 0;
    if (mode == BatchNormMode::kTrain) {
      NormalizeByBatch(*norm.graph, norm.node);
    } else if (mode == BatchNormMode::kEval && trains) {
      NormalizeByStatistics(*norm.graph, norm.node);
    } else if (mode == BatchNormMode::kAsExported && !trains) {
      fixed.push_back(LayerName(*norm.node));
    }
  }
  if (!fixed.empty()) {
    return Concat("BatchNormalization keeps its running statistics in ",
                  Listed(fixed),
                  ", as exported (training_mode 0): `batch_norm=train` "
                  "normalizes by each batch and moves them, `batch_norm=eval` "
                  "leaves them without this note");
  }
  if (mode == BatchNormMode::kTrain && norms.empty()) {
    return "`batch_norm=train` changes nothing: the file has no "
           "BatchNormalization (an exporter may have folded it into the layer "
           "before)";
  }
  return "";
}

}  // namespace onnx_fp8
