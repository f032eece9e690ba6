// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/mask_segments.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/passes/expand.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

bool IsOneOf(const Node& node, std::span<const std::string_view> ops) {
  return std::ranges::any_of(ops,
                             [&](std::string_view op) { return node.Is(op); });
}

// Ops whose results for a row depend on rows before it.
constexpr std::array<std::string_view, 5> kRecurrentOps = {
    "LSTM", "GRU", "RNN", "LinearAttention", "CausalConvWithState"};

// Whether a convolution along one axis has a window of several rows.
bool MixesNeighbors(const Node& node) {
  return (node.Is("Conv") || node.Is("ConvTranspose")) &&
         node.in(1)->rank() == 3 && node.in(1)->dim(2) > 1;
}

// Ops between a Softmax and the product that reads its probabilities.
constexpr std::array<std::string_view, 7> kBetweenOps = {
    "Cast", "Dropout", "Identity", "Mul", "Reshape", "Where", "Expand"};

bool ComesFromWeight(const Value* value) {
  constexpr std::array<std::string_view, 4> kMoves = {"Cast", "Identity",
                                                      "Reshape", "Transpose"};
  while (value->producer && IsOneOf(*value->producer, kMoves)) {
    value = value->producer->in(0);
  }
  return value->is_initializer() || value->is_constant();
}

// Whether a product of computed values reads `value` as probabilities.
bool WeighsRows(const Value* value) {
  return std::ranges::any_of(value->uses, [&](const Node* node) {
    if (node->Is("MatMul")) {
      return node->in(0) == value && !ComesFromWeight(node->in(1));
    }
    if (node->Is("Einsum")) return node->inputs().size() == 2;
    return IsOneOf(*node, kBetweenOps) && WeighsRows(node->out(0));
  });
}

class SegmentMasks {
 public:
  SegmentMasks(Graph& graph, Value* input)
      : graph_(graph), input_(input), masks_(2) {}

  // True if the node is the Softmax of attention.
  bool Visit(Node& softmax) {
    Value* x = softmax.in(0);
    int64_t axis = softmax.Int("axis", -1);
    bool last = axis == -1 || axis == x->rank() - 1;
    if (!last || x->rank() < 3 || !WeighsRows(softmax.out(0))) return false;
    int64_t batch = input_->dim(0), rows = input_->dim(1);
    Check(x->rank() <= 4 && x->dim(0) == batch && x->dim(-2) == rows &&
              x->dim(-1) == rows,
          "[", softmax.Where(), "] expected scores of ", batch, " samples and ",
          rows, " × ", rows, " tokens, as ", input_->name,
          " has segments for, got ", ToString(*x->shape));
    Builder b(graph_, softmax.out(0)->name + ".", &softmax);
    b.set_metadata(softmax.metadata);
    Value* hidden = b.Scalar(-std::numeric_limits<double>::infinity(), x);
    graph_.SetInput(&softmax, 0, b.Op("Where", {MaskOf(x->rank()), x, hidden}));
    return true;
  }

 private:
  // True where row and column have one segment: (B,1,T,T) or (B,T,T).
  Value* MaskOf(int64_t rank) {
    Value*& mask = masks_[static_cast<size_t>(rank - 3)];
    if (mask) return mask;
    Builder b(graph_, input_->name + ".", &graph_.nodes().front());
    Value* numbers = b.Cast(input_, DType::kInt32);
    Shape of_rows = {input_->dim(0), input_->dim(1), 1},
          of_columns = {input_->dim(0), 1, input_->dim(1)};
    if (rank == 4) {
      of_rows.insert(of_rows.begin() + 1, 1);
      of_columns.insert(of_columns.begin() + 1, 1);
    }
    mask = b.Op("Equal",
                {b.Reshape(numbers, of_rows), b.Reshape(numbers, of_columns)});
    return mask;
  }

  Graph& graph_;
  Value* input_;
  std::vector<Value*> masks_;  // for scores of three and of four axes
};

}  // namespace

bool AddSegmentInput(Graph& graph, const std::string& name) {
  for (const Value* input : graph.inputs) {
    if (input->name != name) continue;
    if (!IsInteger(input->dtype) || (input->shape && input->rank() != 2)) {
      throw OptionError(Concat(
          "`segment_ids`: expected an input of integers with the axes of batch "
          "and sequence, got ",
          name, " of ", Name(input->dtype),
          input->shape ? ToString(*input->shape) : ""));
    }
    return false;
  }
  if (graph.Find(name)) {
    throw OptionError(
        Concat("`segment_ids`: expected the name of an input, or "
               "one that the model does not have, got ",
               name));
  }
  for (const Value* input : graph.inputs) {
    if (!input->shape || input->rank() < 2) continue;
    Value* segments = graph.AddInput(name, DType::kInt32,
                                     Shape{input->dim(0), input->dim(1)});
    if (input->axis_names.size() >= 2) {
      segments->axis_names = {input->axis_names[0], input->axis_names[1]};
    }
    return true;
  }
  throw OptionError(
      "`segment_ids`: expected a model with an input that has the axes of "
      "batch and sequence, got none");
}

void MaskSegments(Graph& graph, const std::string& name,
                  const Evaluator& evaluator) {
  Value* input = graph.Find(name);
  Check(input != nullptr, "[", graph.file, "] expected the input ", name);
  std::vector<Node*> whole, softmaxes;
  for (Node& node : graph.nodes()) {
    Check(!IsOneOf(node, kRecurrentOps) && !MixesNeighbors(node), "[",
          node.Where(), "] ", node.op,
          " mixes the tokens of a row: expected attention alone to do so, "
          "because `segment_ids` keeps documents apart there");
    if (node.Is("Attention")) whole.push_back(&node);
  }
  for (Node* node : whole) ExpandNode(graph, *node, &evaluator);
  for (Node& node : graph.nodes()) {
    if (node.Is("Softmax")) softmaxes.push_back(&node);
  }
  SegmentMasks masks(graph, input);
  int64_t found = 0;
  for (Node* softmax : softmaxes) found += masks.Visit(*softmax) ? 1 : 0;
  Check(found > 0, "[", graph.file,
        "] expected attention, which `segment_ids` keeps to the documents of a "
        "row, got none");
}

}  // namespace onnx_fp8
