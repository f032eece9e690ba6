// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/gather_layers.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "graph/dependence.h"
#include "graph/op_facts.h"
#include "graph/print.h"
#include "graph/repeated_runs.h"

namespace onnx_fp8 {
namespace {

// One layer for each node that is the first to read the result of a gather.
std::vector<GatherLayer> LayersOfReaders(const std::vector<Node*>& nodes) {
  std::unordered_map<const Node*, size_t> position;
  for (const Node* node : nodes) position.emplace(node, position.size());
  std::map<size_t, GatherLayer> layers;  // by the position of the reader
  std::unordered_set<const Value*> known;
  for (Node* node : nodes) {
    if (!DependsOnStateAlone(*node, known)) continue;
    if (FactsOf(*node).collective != Collective::kAllGather) {
      known.insert(node->outputs().begin(), node->outputs().end());
      continue;
    }
    const Value& whole = *node->out(0);
    if (whole.uses.empty()) continue;
    size_t reader = nodes.size();
    for (const Node* use : whole.uses) {
      reader = std::min(reader, position.at(use));
    }
    GatherLayer& layer = layers[reader];
    layer.reader = nodes[reader];
    layer.gathers.push_back(node);
    layer.bytes += static_cast<int64_t>(BytesOf(whole));
  }
  std::vector<GatherLayer> in_order;
  for (auto& [reader, layer] : layers) in_order.push_back(std::move(layer));
  return in_order;
}

std::vector<int> LabelsOf(const std::vector<GatherLayer>& layers) {
  std::unordered_map<std::string, int> known;
  std::vector<int> labels;
  for (const GatherLayer& layer : layers) {
    std::string label;
    for (const Node* gather : layer.gathers) {
      label += gather->String("group", "") + " " + TypeText(*gather->in(0)) +
               " " + TypeText(*gather->out(0)) + ",";
    }
    const int next = static_cast<int>(known.size());
    labels.push_back(known.emplace(label, next).first->second);
  }
  return labels;
}

// A block that repeats may hold layers itself, such as each of two stacks: that
// is, blocks that repeat so often. Equal weights in a row are no such blocks.
constexpr size_t kLeastLayers = 3;

// The items at which layers begin, by the labels of one block. The block begins
// one itself.
std::vector<bool> BeginsInBlock(const std::vector<int>& labels) {
  const auto differs = [&](size_t begin, size_t end) {
    return std::any_of(labels.begin() + static_cast<std::ptrdiff_t>(begin),
                       labels.begin() + static_cast<std::ptrdiff_t>(end),
                       [&](int label) { return label != labels[begin]; });
  };
  std::vector<bool> begins(labels.size(), false);
  begins[0] = true;
  for (const RepeatedRun& run : FindRepeatedRuns(labels, differs)) {
    if (run.length < kLeastLayers * run.period) continue;
    for (size_t at = run.begin; at < run.end(); at += run.period) {
      begins[at] = true;
    }
    if (run.end() < labels.size()) begins[run.end()] = true;
  }
  return begins;
}

// The items at which layers begin, among all items.
std::vector<bool> BeginsOfLayers(const std::vector<int>& labels) {
  std::vector<bool> begins(labels.size(), true);
  for (const RepeatedRun& run :
       FindRepeatedRuns(labels, [](size_t, size_t) { return true; })) {
    const auto first = labels.begin() + static_cast<std::ptrdiff_t>(run.begin);
    const std::vector<bool> block =
        BeginsInBlock({first, first + static_cast<std::ptrdiff_t>(run.period)});
    for (size_t i = 0; i < run.length; ++i) {
      begins[run.begin + i] = block[i % run.period];
    }
  }
  return begins;
}

}  // namespace

std::vector<GatherLayer> FindGatherLayers(const std::vector<Node*>& nodes,
                                          int64_t bytes) {
  std::vector<GatherLayer> single = LayersOfReaders(nodes), layers;
  const std::vector<bool> begins = BeginsOfLayers(LabelsOf(single));
  for (size_t i = 0; i < single.size(); ++i) {
    if (begins[i] || layers.back().bytes + single[i].bytes > bytes) {
      layers.push_back(std::move(single[i]));
      continue;
    }
    GatherLayer& layer = layers.back();
    std::ranges::copy(single[i].gathers, std::back_inserter(layer.gathers));
    layer.bytes += single[i].bytes;
  }
  return layers;
}

}  // namespace onnx_fp8
