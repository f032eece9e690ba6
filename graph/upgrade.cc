// SPDX-License-Identifier: Apache-2.0
#include "graph/upgrade.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

Value* AddInts(Graph& graph, const Node& node, const std::string& what,
               const std::vector<int64_t>& values) {
  std::string base = node.out(0) ? node.out(0)->name : node.op;
  return graph.AddInitializer(graph.FreshName(base + "." + what),
                              Tensor::Ints(values));
}

// axes: attribute → second input (ReduceX at 18).
void AxesToInput(Graph& graph, Node& node) {
  if (!node.Has("axes")) return;
  std::vector<int64_t> axes = node.Ints("axes");
  node.attributes.erase("axes");
  graph.SetInput(&node, 1, AddInts(graph, node, "axes", axes));
}

// Split without sizes takes their number from an attribute since 18.
void SplitCount(Graph&, Node& node) {
  if (node.in(1) || node.Has("num_outputs")) return;
  node.attributes["num_outputs"] = static_cast<int64_t>(node.outputs().size());
}

// Scale and bias have one element per channel since 21, one per group before.
void GroupNorm(Graph&, Node& node) {
  Fail("[", node.Where(),
       "] GroupNormalization of opsets 18–20 was withdrawn from ONNX; export "
       "again with opset 21 or newer");
}

// Modes were renamed at 20.
void GridSample(Graph&, Node& node) {
  std::string mode = node.String("mode", "linear");
  if (mode == "bilinear") node.attributes["mode"] = std::string("linear");
  if (mode == "bicubic") node.attributes["mode"] = std::string("cubic");
}

struct Row {
  int since;  // the opset at which the form changed
  void (*edit)(Graph&, Node&);
};

const std::map<std::string, Row, std::less<>> kRows = {
    {"ReduceMax", {18, AxesToInput}},
    {"ReduceMin", {18, AxesToInput}},
    {"ReduceMean", {18, AxesToInput}},
    {"ReduceProd", {18, AxesToInput}},
    {"ReduceL1", {18, AxesToInput}},
    {"ReduceL2", {18, AxesToInput}},
    {"ReduceLogSum", {18, AxesToInput}},
    {"ReduceLogSumExp", {18, AxesToInput}},
    {"ReduceSumSquare", {18, AxesToInput}},
    {"Split", {18, SplitCount}},
    {"GridSample", {20, GridSample}},
    {"GroupNormalization", {21, GroupNorm}},
};

// True if a node was edited.
bool UpgradeNodes(Graph& graph, int from, int to) {
  graph.opset = to;
  bool any = false;
  for (Node& node : graph.nodes()) {
    bool edited = false;
    for (auto& [key, attribute] : node.attributes) {
      auto* inner = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (inner) edited |= UpgradeNodes(**inner, from, to);
    }
    int since = from;
    if (auto note = node.metadata.find(kOpsetNote);
        note != node.metadata.end()) {
      since = ParseOpsetNote(note->second, node.Where());
      node.metadata.erase(note);
      edited = true;
    }
    auto row = node.domain.empty() ? kRows.find(node.op) : kRows.end();
    if (row != kRows.end() && since < row->second.since &&
        row->second.since <= to) {
      row->second.edit(graph, node);
      edited = true;
    }
    if (edited) node.source = -1;
    any |= edited;
  }
  return any;
}

}  // namespace

int ParseOpsetNote(const std::string& text, const std::string& where) {
  int opset = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, opset);
  Check(error == std::errc() && stop == end && opset >= kOldestOpset &&
            opset <= kNormalOpset,
        "[", where, "] expected metadata ", kOpsetNote,
        " to be an ONNX opset from ", kOldestOpset, " to ", kNormalOpset,
        ", got \"", text, "\"");
  return opset;
}

void Upgrade(Graph& graph, int to) {
  Check(graph.opset >= kOldestOpset && graph.opset <= kNormalOpset, "[",
        graph.file, "] expected ONNX opset ", kOldestOpset, " to ",
        kNormalOpset, ", got ", graph.opset,
        "; export the model with one of these");
  UpgradeNodes(graph, graph.opset, std::max(graph.opset, to));
}

}  // namespace onnx_fp8
