// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/upgrade.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "graph/onnx/check_inference.h"
#include "graph/onnx/infer_shapes.h"
#include "graph/onnx/old_forms_internal.h"

namespace onnx_fp8 {
namespace {

// An attribute that became an operand.
struct Moved {
  int since;  // the opset at which the form changed
  const char* op;
  const char* attribute;
  size_t operand;
};

constexpr Moved kMoved[] = {
    {9, "Upsample", "scales", 1},
    {10, "Slice", "starts", 1},
    {10, "Slice", "ends", 2},
    {10, "Slice", "axes", 3},
    {10, "TopK", "k", 1},
    {11, "Clip", "min", 1},
    {11, "Clip", "max", 2},
    {11, "Pad", "pads", 1},
    {11, "Pad", "value", 2},
    {12, "Dropout", "ratio", 1},
    {13, "ReduceSum", "axes", 1},
    {13, "Split", "split", 1},
    {13, "Squeeze", "axes", 1},
    {13, "Unsqueeze", "axes", 1},
    {18, "ReduceL1", "axes", 1},
    {18, "ReduceL2", "axes", 1},
    {18, "ReduceLogSum", "axes", 1},
    {18, "ReduceLogSumExp", "axes", 1},
    {18, "ReduceMax", "axes", 1},
    {18, "ReduceMean", "axes", 1},
    {18, "ReduceMin", "axes", 1},
    {18, "ReduceProd", "axes", 1},
    {18, "ReduceSumSquare", "axes", 1},
};

// Any other change of meaning.
struct Changed {
  int since;
  const char* op;
  Node* (*edit)(Graph&, Node*);
};

constexpr Changed kChanged[] = {
    {9, "BatchNormalization", BatchNormOfElements},
    {9, "Scan", ScanOfBatches},
    {10, "Dropout", DropoutMask},
    {11, "Resize", ResizeAsymmetric},
    {11, "Scatter", ScatterElements},
    {11, "Upsample", UpsampleToResize},
    {13, "Hardmax", SoftmaxOfMatrix},
    {13, "LogSoftmax", SoftmaxOfMatrix},
    {13, "Resize", ResizeHalfPixel},
    {13, "Softmax", SoftmaxOfMatrix},
    {14, "BatchNormalization", BatchNormMode},
    {16, "RoiAlign", RoiAlignDefault},
    {18, "Split", SplitCount},
    {20, "DFT", DftAxis},
    {20, "GridSample", GridSampleModes},
    {21, "GroupNormalization", GroupNormPerChannel},
};

// The newest change that needs the types of a node's operands.
constexpr int kTypesMatter = 13;

// Many files leave out the types of intermediate values. A type that can't be
// inferred here is reported later, when all shapes are known.
void InferTypes(Node& node, int opset) {
  std::vector<DType> declared;
  for (Value* value : node.outputs()) {
    declared.push_back(value ? value->dtype : DType::kUndefined);
  }
  try {
    InferNode(node, opset);
  } catch (const Error&) {
  }
  for (size_t i = 0; i < declared.size(); ++i) {
    if (node.out(i)) CheckDeclared(node, i, declared[i], node.out(i)->dtype);
  }
}

void TakeTypes(const Graph& outer, Graph& inner) {
  for (Value* value : inner.Values()) {
    if (value->producer || value->is_input || value->is_initializer()) continue;
    const Value* source = outer.Find(value->name);
    if (!source) continue;
    value->dtype = source->dtype;
    value->shape = source->shape;
  }
}

bool UpgradeNodes(Graph& graph, int from, int to);

// Brings the node from its opset (its note's, else `from`) to `to`, one opset
// after the other, because one change may build on an earlier one.
bool UpgradeNode(Graph& graph, Node* node, int from, int to) {
  bool edited = false;
  for (Graph* body : node->Subgraphs()) {
    TakeTypes(graph, *body);
    edited |= UpgradeNodes(*body, from, to);
  }
  int since = from;
  if (auto note = node->metadata.find(kOpsetNote);
      note != node->metadata.end()) {
    since = ParseOpsetNote(note->second, node->Where());
    node->metadata.erase(note);
    edited = true;
  }
  if (since < kTypesMatter) InferTypes(*node, since);
  for (int version = since + 1; version <= to && node->domain.empty();
       ++version) {
    for (const Moved& row : kMoved) {
      if (row.since != version || !node->Is(row.op)) continue;
      AttributeToOperand(graph, node, row.attribute, row.operand);
      edited = true;
    }
    for (const Changed& row : kChanged) {
      if (row.since != version || !node->Is(row.op)) continue;
      node = row.edit(graph, node);
      edited = true;
    }
  }
  if (edited) node->source = -1;
  return edited;
}

// True if a node was edited.
bool UpgradeNodes(Graph& graph, int from, int to) {
  graph.opset = to;
  bool any = false;
  for (auto it = graph.nodes().begin(); it != graph.nodes().end();) {
    Node* node = &*it++;  // an edit may replace it
    any |= UpgradeNode(graph, node, from, to);
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
