// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/unroll_recurrent.h"

#include <algorithm>

#include "base/check.h"
#include "graph/builder.h"

namespace onnx_fp8 {
namespace {

// More steps would make a graph that nobody can plan.

// Slots of the operands.
constexpr size_t kX = 0, kW = 1, kR = 2, kB = 3, kLengths = 4, kH = 5, kC = 6,
                 kP = 7;

struct Activation {
  std::string name;
  float alpha = 0, beta = 0;
  int parameters = 0;  // 1: alpha, 2: alpha and beta
};

// Defaults of the ONNX operators; ScaledTanh has none.
const Activation kActivations[] = {
    {"Sigmoid"},
    {"Tanh"},
    {"Relu"},
    {"Softsign"},
    {"Softplus"},
    {"LeakyRelu", 0.01f, 0, 1},
    {"ThresholdedRelu", 1, 0, 1},
    {"Elu", 1, 0, 1},
    {"HardSigmoid", 0.2f, 0.5f, 2},
    {"Affine", 1, 0, 2},
    {"ScaledTanh", 0, 0, 2},
};

std::vector<Activation> ActivationsOf(const Node& node,
                                      const std::vector<std::string>& defaults,
                                      int64_t directions) {
  std::vector<std::string> names;
  for (int64_t d = 0; d < directions; ++d) {
    names.insert(names.end(), defaults.begin(), defaults.end());
  }
  auto it = node.attributes.find("activations");
  if (it != node.attributes.end()) {
    auto given = std::get_if<std::vector<std::string>>(&it->second);
    Check(given && given->size() == names.size(), "[", node.Where(),
          "] expected ", defaults.size(), " activations per direction, got ",
          given ? given->size() : 0);
    names = *given;
  }
  std::vector<float> alphas = node.Floats("activation_alpha");
  std::vector<float> betas = node.Floats("activation_beta");
  size_t alpha = 0, beta = 0;
  std::vector<Activation> all;
  for (const std::string& name : names) {
    auto known = std::ranges::find(kActivations, name, &Activation::name);
    Check(known != std::end(kActivations), "[", node.Where(),
          "] expected an activation of the operator's list, got ", name);
    all.push_back(*known);
    bool has_alpha = alpha < alphas.size(), has_beta = beta < betas.size();
    Check(name != "ScaledTanh" || (has_alpha && has_beta), "[", node.Where(),
          "] expected activation_alpha and activation_beta for ScaledTanh");
    if (known->parameters > 0 && has_alpha) all.back().alpha = alphas[alpha++];
    if (known->parameters > 1 && has_beta) all.back().beta = betas[beta++];
  }
  return all;
}

int64_t Gates(const Node& node) {
  return node.Is("LSTM") ? 4 : node.Is("GRU") ? 3 : node.Is("RNN") ? 1 : 0;
}

// "y.", where y is the first output that is not omitted.
std::string Prefix(const Node& node) {
  for (const Value* out : node.outputs()) {
    if (out) return out->name + ".";
  }
  return node.op + ".";
}

class Unroller {
 public:
  Unroller(Graph& graph, Node& node, Spending& spending)
      : graph_(graph),
        node_(node),
        spending_(spending),
        b_(graph, Prefix(node), &node) {
    b_.set_metadata(node.metadata);
    for (size_t i : {kX, kW, kR}) {
      const Value* value = node.in(i);
      Check(value && value->concrete() && value->rank() == 3, "[", node.Where(),
            "] expected X, W and R of rank 3 and known shape, got ",
            value && value->shape ? ToString(*value->shape) : "none");
    }
    const Value& x = *node.in(kX);
    dtype_ = x.dtype;
    int64_t layout = node.Int("layout", 0);
    Check(layout == 0 || layout == 1, "[", node.Where(),
          "] expected layout 0 or 1, got ", layout);
    batch_first_ = layout == 1;
    steps_ = x.dim(batch_first_ ? 1 : 0);
    batch_ = x.dim(batch_first_ ? 0 : 1);
    // Each step has at least one node; the parts of x before it have as many.
    spending_.Take(&Budgets::nodes, steps_, node);
    hidden_ = node.in(kR)->dim(2);
    gates_ = Gates(node);
    std::string direction = node.String("direction", "forward");
    Check(direction == "forward" || direction == "reverse" ||
              direction == "bidirectional",
          "[", node.Where(),
          "] expected direction forward, reverse or bidirectional, got ",
          direction);
    directions_ = direction == "bidirectional" ? 2 : 1;
    first_is_reverse_ = direction == "reverse";
    clip_ = node.Float("clip", 0);
    Check(clip_ >= 0, "[", node.Where(), "] expected clip >= 0, got ", clip_);
    std::vector<std::string> defaults = {"Sigmoid", "Tanh", "Tanh"};
    if (gates_ == 3) defaults.pop_back();
    if (gates_ == 1) defaults = {"Tanh"};
    activations_ = ActivationsOf(node, defaults, directions_);
    CheckOperands();
  }

  void Run() {
    Value* x = node_.in(kX);
    int64_t inputs = x->dim(2);
    if (batch_first_) x = b_.Transpose(x, {1, 0, 2});
    x_ = b_.Reshape(x, {steps_ * batch_, inputs});
    MakeMasks();
    std::vector<Unrolled> all;
    for (int64_t d = 0; d < directions_; ++d) all.push_back(Unroll(d));
    if (node_.out(0)) Replace(0, JoinedRows(all));
    for (size_t output : {size_t{1}, size_t{2}}) {
      if (!node_.out(output)) continue;
      std::vector<Value*> states;
      for (const Unrolled& one : all) {
        states.push_back(output == 1 ? one.last.h : one.last.c);
      }
      Replace(output, JoinedStates(states));
    }
    graph_.RemoveNode(&node_);
  }

 private:
  struct State {
    Value* h;  // (B,H)
    Value* c;  // the same, LSTM only
  };
  // Values that all steps of one direction share.
  struct Cell {
    const Activation* activations;  // f, g, h of the op's text
    std::vector<Value*> r;          // (G·H,H) in one or two parts
    Value* recurrent_bias;          // (G·H), if it is not part of from_x
    std::vector<Value*> peephole;   // of the gates i, o and f, each (H)
  };
  struct Unrolled {
    std::vector<Value*> rows;  // y by time, each (B,H)
    State last;
  };

  void CheckShape(size_t input, DType dtype, const Shape& shape) const {
    if (!Has(input)) return;
    const Value& value = *node_.in(input);
    Check(value.dtype == dtype && value.shape && *value.shape == shape, "[",
          node_.Where(), "] expected input ", input, " ", Name(dtype),
          ToString(shape), ", got ", Name(value.dtype),
          value.shape ? ToString(*value.shape) : "");
  }

  void CheckOperands() const {
    int64_t d = directions_, rows = gates_ * hidden_;
    Check(node_.Int("hidden_size", hidden_) == hidden_, "[", node_.Where(),
          "] expected hidden_size ", hidden_, ", got ",
          node_.Int("hidden_size", 0));
    CheckShape(kW, dtype_, {d, rows, node_.in(kX)->dim(2)});
    CheckShape(kR, dtype_, {d, rows, hidden_});
    CheckShape(kB, dtype_, {d, 2 * rows});
    CheckShape(kLengths, DType::kInt32, {batch_});
    CheckShape(kH, dtype_, StateShape());
    if (gates_ != 4) return;
    CheckShape(kC, dtype_, StateShape());
    CheckShape(kP, dtype_, {d, 3 * hidden_});
  }

  bool Has(size_t input) const { return node_.in(input) != nullptr; }
  bool ResetsFirst() const {
    return gates_ == 3 && node_.Int("linear_before_reset", 0) == 0;
  }
  Shape StateShape() const {
    return batch_first_ ? Shape{batch_, directions_, hidden_}
                        : Shape{directions_, batch_, hidden_};
  }

  std::vector<Value*> Split(Value* x, int64_t axis,
                            const std::vector<int64_t>& sizes) {
    if (sizes.size() == 1) return {x};
    return b_.Ops("Split", {x, b_.Ints(sizes)}, sizes.size(), {{"axis", axis}});
  }

  std::vector<Value*> Split(Value* x, int64_t axis, int64_t parts) {
    return Split(
        x, axis,
        std::vector<int64_t>(static_cast<size_t>(parts), x->dim(axis) / parts));
  }
  // Direction d of an operand whose axis `axis` counts directions; without that
  // axis.
  Value* Of(size_t input, int64_t d, int64_t axis = 0) {
    std::vector<Value*>& parts = of_[input];
    if (parts.empty()) {
      for (Value* part : Split(node_.in(input), axis, directions_)) {
        parts.push_back(b_.Op("Squeeze", {part, b_.Ints({axis})}));
      }
    }
    return parts[static_cast<size_t>(d)];
  }

  Value* Initial(size_t input, int64_t d) {
    if (Has(input)) return Of(input, d, batch_first_ ? 1 : 0);
    return b_.Constant(Tensor::Zeros(dtype_, {batch_, hidden_}));
  }

  // x · weightᵀ + c.
  Value* Product(const std::string& name, Value* x, Value* weight, Value* c) {
    std::vector<Value*> in = {x, weight};
    if (c) in.push_back(c);
    Value* y = b_.Op("Gemm", in, {{"transB", int64_t{1}}});
    if (!node_.name.empty()) y->producer->name = node_.name + "." + name;
    return y;
  }

  Value* Apply(const Activation& activation, Value* x) {
    const auto& [name, alpha, beta, parameters] = activation;
    if (name == "Affine") {
      return b_.Add(b_.Mul(x, b_.Scalar(alpha, x)), b_.Scalar(beta, x));
    }
    if (name == "ScaledTanh") {
      Value* y = b_.Op("Tanh", {b_.Mul(x, b_.Scalar(beta, x))});
      return b_.Mul(y, b_.Scalar(alpha, y));
    }
    Attributes attributes;
    if (parameters > 0) attributes["alpha"] = alpha;
    if (parameters > 1) attributes["beta"] = beta;
    return b_.Op(name, {x}, std::move(attributes));
  }

  // The activation of a clipped sum.
  Value* Gate(const Activation& activation, Value* x) {
    if (clip_ > 0) {
      x = b_.Op("Clip", {x, b_.Scalar(-clip_, x), b_.Scalar(clip_, x)});
    }
    return Apply(activation, x);
  }

  void MakeMasks() {
    masks_.resize(static_cast<size_t>(steps_));
    Value* lengths = node_.in(kLengths);
    if (!lengths) return;
    if (!lengths->is_constant()) {
      lengths = b_.Reshape(lengths, {batch_, 1});
      for (int64_t t = 0; t < steps_; ++t) {
        Value* now = b_.Constant(Tensor::Scalar(static_cast<int32_t>(t)));
        masks_[static_cast<size_t>(t)] = b_.Op("Less", {now, lengths});
      }
      return;
    }
    std::vector<int64_t> known = ToInts(lengths->data);
    int64_t shortest = steps_;
    for (int64_t n : known) {
      Check(n >= 0 && n <= steps_, "[", node_.Where(),
            "] expected sequence_lens from 0 to ", steps_, ", got ", n);
      shortest = std::min(shortest, n);
    }
    for (int64_t t = shortest; t < steps_; ++t) {
      Tensor mask = Tensor::Allocate(DType::kBool, {batch_, 1});
      for (size_t i = 0; i < known.size(); ++i) {
        mask.data<bool>()[i] = t < known[i];
      }
      masks_[static_cast<size_t>(t)] = b_.Constant(mask);
    }
  }

  // All steps of direction d, in the order in which it reads them. A row whose
  // sequence has ended gets y = 0 and keeps its state.
  Unrolled Unroll(int64_t d) {
    auto each = static_cast<int64_t>(activations_.size()) / directions_;
    Cell cell = {activations_.data() + d * each, {Of(kR, d)}, nullptr, {}};
    if (ResetsFirst()) cell.r = Split(cell.r[0], 0, {2 * hidden_, hidden_});
    if (gates_ == 4 && Has(kP)) cell.peephole = Split(Of(kP, d), 0, 3);
    auto from_x = FromX(cell, d);
    State state = {Initial(kH, d), gates_ == 4 ? Initial(kC, d) : nullptr};
    Unrolled result;
    result.rows.resize(from_x.size());
    bool reverse = d == 1 || first_is_reverse_;
    for (size_t s = 0; s < from_x.size(); ++s) {
      size_t t = reverse ? from_x.size() - 1 - s : s;
      size_t before = graph_.nodes().size();
      State next = Step(cell, Concat("h", d, ".", t), from_x[t], state);
      Value* row = next.h;
      if (Value* mask = masks_[t]) {
        row = b_.Op("Where", {mask, row, b_.Scalar(0, row)});
        next.h = b_.Op("Where", {mask, next.h, state.h});
        if (next.c) next.c = b_.Op("Where", {mask, next.c, state.c});
      }
      result.rows[t] = row;
      state = next;
      size_t made = graph_.nodes().size() - before;
      spending_.Take(&Budgets::nodes, static_cast<int64_t>(made), node_);
    }
    result.last = state;
    return result;
  }

  // The share of the inputs in the gates of every step, each (B,G·H); sets the
  // cell's biases.
  std::vector<Value*> FromX(Cell& cell, int64_t d) {
    Value* bias = nullptr;
    if (Has(kB)) {
      auto halves = Split(Of(kB, d), 0, 2);
      // In a GRU that resets last, the reset gate scales a recurrent bias.
      bool own = gates_ == 3 && !ResetsFirst();
      bias = own ? halves[0] : b_.Add(halves[0], halves[1]);
      if (own) cell.recurrent_bias = halves[1];
    }
    Value* all = Product(Concat("x", d), x_, Of(kW, d), bias);
    if (steps_ == 0) return {};
    return Split(all, 0, steps_);
  }

  State Step(const Cell& cell, const std::string& name, Value* x, State old) {
    if (gates_ == 4) return LstmStep(cell, name, x, old);
    if (gates_ == 3) return GruStep(cell, name, x, old);
    Value* sum = Product(name, old.h, cell.r[0], x);
    return {Gate(cell.activations[0], sum), nullptr};
  }

  State LstmStep(const Cell& cell, const std::string& name, Value* x,
                 State old) {
    const Activation &f = cell.activations[0], &g = cell.activations[1];
    auto sums = Split(Product(name, old.h, cell.r[0], x), 1, 4);
    // Gates i, o, f, c; peepholes i, o, f.
    auto gate = [&](size_t i, Value* state) {
      Value* sum = sums[i];
      if (Has(kP)) sum = b_.Add(sum, b_.Mul(cell.peephole[i], state));
      return Gate(f, sum);
    };
    Value* in = gate(0, old.c);
    bool coupled = node_.Int("input_forget", 0) != 0;
    Value* forget = coupled ? b_.Sub(b_.Scalar(1, in), in) : gate(2, old.c);
    Value* c = b_.Add(b_.Mul(forget, old.c), b_.Mul(in, Gate(g, sums[3])));
    Value* out = gate(1, c);
    return {b_.Mul(out, Apply(cell.activations[2], c)), c};
  }

  State GruStep(const Cell& cell, const std::string& name, Value* x,
                State old) {
    const Activation &f = cell.activations[0], &g = cell.activations[1];
    std::vector<int64_t> sizes = {2 * hidden_, hidden_};
    auto from_x = Split(x, 1, sizes);
    Value *zr, *candidate = nullptr;
    if (ResetsFirst()) {
      zr = Gate(f, Product(name + ".zr", old.h, cell.r[0], from_x[0]));
    } else {
      auto from_h =
          Split(Product(name, old.h, cell.r[0], cell.recurrent_bias), 1, sizes);
      zr = Gate(f, b_.Add(from_x[0], from_h[0]));
      candidate = from_h[1];
    }
    auto gates = Split(zr, 1, 2);
    Value *z = gates[0], *r = gates[1];
    if (ResetsFirst()) {
      candidate = Product(name + ".h", b_.Mul(r, old.h), cell.r[1], from_x[1]);
    } else {
      candidate = b_.Add(from_x[1], b_.Mul(r, candidate));
    }
    Value* next = Gate(g, candidate);
    // (1 - z) · next + z · h.
    return {b_.Add(next, b_.Mul(z, b_.Sub(old.h, next))), nullptr};
  }

  // (T,D,B,H), or (B,T,D,H).
  Value* JoinedRows(const std::vector<Unrolled>& all) {
    Value* y = nullptr;
    if (steps_ == 0) {
      Shape shape = {0, directions_, batch_, hidden_};
      y = b_.Op("Identity", {b_.Constant(Tensor::Zeros(dtype_, shape))});
    } else {
      std::vector<Value*> parts;
      for (const Unrolled& one : all) {
        Value* rows = one.rows[0];
        if (steps_ > 1) {
          rows = b_.Op("Concat", one.rows, {{"axis", int64_t{0}}});
        }
        parts.push_back(b_.Reshape(rows, {steps_, 1, batch_, hidden_}));
      }
      y = parts[0];
      if (directions_ > 1) y = b_.Op("Concat", parts, {{"axis", int64_t{1}}});
    }
    return batch_first_ ? b_.Transpose(y, {2, 0, 1, 3}) : y;
  }

  // (D,B,H), or (B,D,H).
  Value* JoinedStates(const std::vector<Value*>& states) {
    int64_t axis = batch_first_ ? 1 : 0;
    std::vector<Value*> parts;
    for (Value* state : states) {
      parts.push_back(b_.Op("Unsqueeze", {state, b_.Ints({axis})}));
    }
    if (directions_ == 1) return parts[0];
    return b_.Op("Concat", parts, {{"axis", axis}});
  }

  // Makes `value` the output, with its name.
  void Replace(size_t output, Value* value) {
    Value* old = node_.out(output);
    std::string name = old->name;
    graph_.ReplaceUses(old, value);
    graph_.Rename(old, graph_.FreshName(name + ".fused"));
    graph_.Rename(value, name);
  }

  Graph& graph_;
  Node& node_;
  Spending& spending_;
  Builder b_;
  DType dtype_;
  bool batch_first_, first_is_reverse_;
  int64_t steps_, batch_, hidden_, directions_, gates_;
  float clip_;
  std::vector<Activation> activations_;
  Value* x_ = nullptr;                        // (T·B,I)
  std::map<size_t, std::vector<Value*>> of_;  // operands by direction
  // Per step: rows whose sequence has this step, (B,1); null: all rows.
  std::vector<Value*> masks_;
};

}  // namespace

void UnrollRecurrent(Graph& graph, Spending* spending) {
  Spending own;
  std::vector<Node*> recurrent;
  for (Node& node : graph.nodes()) {
    if (node.domain.empty() && Gates(node) > 0) recurrent.push_back(&node);
  }
  for (Node* node : recurrent)
    Unroller(graph, *node, spending ? *spending : own).Run();
}

}  // namespace onnx_fp8
