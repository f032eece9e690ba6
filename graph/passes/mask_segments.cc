// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/mask_segments.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/joined.h"
#include "graph/builder.h"
#include "graph/passes/expand.h"
#include "graph/passes/token_places.h"
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

// Whether a convolution has a window of several rows.
bool MixesNeighbors(const Node& node) {
  if (!node.Is("Conv") && !node.Is("ConvTranspose")) return false;
  const Shape& window = *node.in(1)->shape;  // behind the axes of channels
  return std::any_of(window.begin() + 2, window.end(),
                     [](int64_t size) { return size > 1; });
}

// Ops between a Softmax and the product that reads its probabilities.
constexpr std::array<std::string_view, 10> kBetweenOps = {
    "Cast", "Div",     "Dropout", "Expand",    "Identity",
    "Mul",  "Reshape", "Slice",   "Transpose", "Where"};

// Whether a product of computed values reads `value` as probabilities.
bool WeighsRows(const Value* value) {
  return std::ranges::any_of(value->uses, [&](const Node* node) {
    if (node->Is("MatMul")) {
      return !ComesFromWeight(node->in(node->in(0) == value ? 1 : 0));
    }
    if (node->Is("Einsum")) return node->inputs().size() == 2;
    return IsOneOf(*node, kBetweenOps) && WeighsRows(node->out(0));
  });
}

// The inputs of the graph on which each value depends.
class Sources {
 public:
  using Inputs = std::set<const Value*>;

  explicit Sources(const Graph& graph) {
    for (const Value* input : graph.inputs) inputs_[input] = {input};
    for (const Node& node : graph.nodes()) {
      Inputs all;
      for (const Value* in : node.inputs()) {
        const Inputs& own = Of(in);
        all.insert(own.begin(), own.end());
      }
      for (const Value* out : node.outputs()) {
        if (out) inputs_[out] = all;
      }
    }
  }

  const Inputs& Of(const Value* value) const {
    static const Inputs none;
    auto found = inputs_.find(value);
    return found == inputs_.end() ? none : found->second;
  }

 private:
  std::unordered_map<const Value*, Inputs> inputs_;
};

std::string NamesOf(const Sources::Inputs& inputs) {
  std::vector<std::string> names;
  for (const Value* input : inputs) names.push_back(input->name);
  std::ranges::sort(names);
  return Joined(names);
}

class SegmentMasks {
 public:
  SegmentMasks(Graph& graph, Value* input)
      : graph_(graph), input_(input), sources_(graph), masks_(2) {}

  // True if the node is the Softmax of attention.
  bool Visit(Node& softmax) {
    Value* x = softmax.in(0);
    int64_t batch = input_->dim(0), rows = input_->dim(1);
    const bool scores = x->rank() > 2 || (x->rank() == 2 && x->dim(1) == rows);
    if (!scores || !WeighsRows(softmax.out(0))) return false;
    int64_t axis = softmax.Int("axis", -1);
    bool last = axis == -1 || axis == x->rank() - 1;
    Check(last && (x->rank() == 3 || x->rank() == 4) && x->dim(0) == batch &&
              x->dim(-2) == rows && x->dim(-1) == rows,
          "[", softmax.Where(), "] expected scores of ", batch, " samples and ",
          rows, " × ", rows, " tokens, as ", input_->name,
          " has segments for, got ", ToString(*x->shape),
          last ? "" : Concat(" and the axis ", axis));
    CheckOneSequence(softmax);
    Builder b(graph_, softmax.out(0)->name + ".", &softmax);
    b.set_metadata(softmax.metadata);
    Value* hidden = b.Scalar(-std::numeric_limits<double>::infinity(), x);
    graph_.SetInput(&softmax, 0, b.Op("Where", {MaskOf(x->rank()), x, hidden}));
    return true;
  }

 private:
  // Errors: no input reaches both queries and keys, as in attention of a
  // decoder to an encoder.
  void CheckOneSequence(const Node& softmax) const {
    std::vector<const Value*> left = {softmax.in(0)};
    std::set<const Value*> met;
    while (!left.empty()) {
      const Value* value = left.back();
      left.pop_back();
      const Node* node = value ? value->producer : nullptr;
      if (!node || !met.insert(value).second) continue;
      if (node->Is("MatMul") || (node->Is("Einsum") && node->in(1))) {
        const Sources::Inputs &q = sources_.Of(node->in(0)),
                              &k = sources_.Of(node->in(1));
        const bool meet = std::ranges::any_of(
            q, [&](const Value* input) { return k.contains(input); });
        Check(meet || q.empty() || k.empty(), "[", softmax.Where(),
              "] expected attention of a sequence to itself, as ", input_->name,
              " tells the documents of one sequence apart, got ", NamesOf(q),
              " and ", NamesOf(k));
        if (meet) continue;
      }
      left.insert(left.end(), node->inputs().begin(), node->inputs().end());
    }
  }

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
  Sources sources_;
  std::vector<Value*> masks_;  // for scores of three and of four axes
};

// The first input of integers with two axes, as tokens have; else the first one
// with two axes and perhaps more. Null: there is none.
const Value* RowsOfTokens(const Graph& graph) {
  const Value* rows = nullptr;
  for (const Value* input : graph.inputs) {
    if (!input->shape || input->rank() < 2) continue;
    if (IsInteger(input->dtype) && input->rank() == 2) return input;
    if (!rows) rows = input;
  }
  return rows;
}

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
  const Value* rows = RowsOfTokens(graph);
  if (!rows) {
    throw OptionError(
        "`segment_ids`: expected a model with an input that has the axes of "
        "batch and sequence, got none");
  }
  Value* segments =
      graph.AddInput(name, DType::kInt32, Shape{rows->dim(0), rows->dim(1)});
  if (rows->axis_names.size() >= 2) {
    segments->axis_names = {rows->axis_names[0], rows->axis_names[1]};
  }
  return true;
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
  RequireTokensInPlace(graph, *input);
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
