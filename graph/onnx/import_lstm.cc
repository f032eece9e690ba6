// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "graph/onnx/import_lstm_internal.h"

namespace onnx_fp8 {
namespace {

constexpr char kWhat[] = "DynamicQuantizeLSTM";

// An 8-bit matrix (rows, columns) with one scale and zero point, or a pair for
// each column.
struct Codes {
  Value *matrix, *scale, *zero;
};

// x · codes: x is rounded to 8 bits by its own range.
Value* Product(Builder& b, Value* x, const Codes& codes) {
  std::vector<Value*> q = b.Ops("DynamicQuantizeLinear", {x}, 3);
  Value* sum = b.Op("MatMulInteger", {q[0], codes.matrix, q[2], codes.zero});
  return b.Mul(b.Cast(sum, DType::kFloat), b.Mul(q[1], codes.scale));
}

void CheckForm(const Node& node) {
  Check(node.Float("clip", 0) == 0 && node.Int("input_forget", 0) == 0,
        "expected ", kWhat, " without clip and input_forget, got one");
  for (size_t i = 8; i < 12; ++i) {
    Check(node.in(i) != nullptr, "expected ", kWhat,
          " with scales and zero points, lacks input ", i);
  }
  auto it = node.attributes.find("activations");
  if (it != node.attributes.end()) {
    auto* names = std::get_if<std::vector<std::string>>(&it->second);
    for (size_t i = 0; names && i < names->size(); ++i) {
      Check((*names)[i] == (i % 3 == 0 ? "Sigmoid" : "Tanh"), "expected ",
            kWhat, " with its default activations, got ", (*names)[i]);
    }
  }
  Check(!node.in(4), "expected ", kWhat, " without sequence_lens, got ",
        node.in(4) ? node.in(4)->name : "");
  Check(!node.in(7), "expected ", kWhat, " without peepholes, got ",
        node.in(7) ? node.in(7)->name : "");
}

// One step: h, c and the product of x, with the biases → h, c, h.
std::shared_ptr<Graph> Step(const Graph& outer, const Codes& recurrent) {
  auto body = std::make_shared<Graph>();
  body->name = "lstm.step";
  body->file = outer.file;
  body->opset = outer.opset;
  Value* h = body->AddInput("h", DType::kFloat, std::nullopt);
  Value* c = body->AddInput("c", DType::kFloat, std::nullopt);
  Value* from_x = body->AddInput("from_x", DType::kFloat, std::nullopt);
  auto captured = [&](const Value* value) {
    Value* inner = body->AddCaptured(value->name);
    inner->dtype = value->dtype;
    inner->shape = value->shape;
    return inner;
  };
  Builder b(*body, "lstm.");
  Codes codes = {captured(recurrent.matrix), captured(recurrent.scale),
                 captured(recurrent.zero)};
  Value* gates = b.Add(from_x, Product(b, h, codes));
  std::vector<Value*> parts =
      b.Ops("Split", {gates}, 4,
            {{"axis", int64_t{-1}}, {"num_outputs", int64_t{4}}});
  Value* input = b.Op("Sigmoid", {parts[0]});
  Value* output = b.Op("Sigmoid", {parts[1]});
  Value* forget = b.Op("Sigmoid", {parts[2]});
  Value* fresh = b.Op("Tanh", {parts[3]});
  Value* next = b.Add(b.Mul(forget, c), b.Mul(input, fresh));
  Value* y = b.Mul(output, b.Op("Tanh", {next}));
  body->outputs = {y, next, b.Op("Identity", {y})};
  return body;
}

}  // namespace

std::vector<Value*> ImportDynamicQuantizeLstm(Builder& b, Node& node) {
  CheckForm(node);
  std::string direction = node.String("direction", "forward");
  const bool both = direction == "bidirectional";
  Check(both || direction == "forward" || direction == "reverse",
        "expected direction forward, reverse or bidirectional, got ",
        direction);
  const int64_t hidden = node.Int("hidden_size", 0);
  Value* x = node.in(0);
  auto of = [&](size_t i, int64_t d) {
    return b.Op("Gather", {node.in(i), b.Int(d)}, {{"axis", int64_t{0}}});
  };
  auto sizes = [&](int64_t begin) {
    return b.Op("Slice", {b.Op("Shape", {x}), b.Ints({begin}),
                          b.Ints({begin + 1}), b.Ints({0})});
  };
  Value* state_shape =
      b.Op("Concat", {sizes(1), b.Ints({hidden})}, {{"axis", int64_t{0}}});
  Value* zeros =
      b.Op("Expand", {b.Constant(Tensor::Scalar(0.0f)), state_shape});
  std::vector<Value*> rows, last_h, last_c;
  for (int64_t d = 0; d < (both ? 2 : 1); ++d) {
    auto codes = [&](size_t matrix, size_t scale) {
      return Codes{of(matrix, d), of(scale, d), of(scale + 1, d)};
    };
    Value* from_x = Product(b, x, codes(1, 8));
    if (node.in(3)) {
      std::vector<Value*> biases =
          b.Ops("Split", {of(3, d)}, 2, {{"num_outputs", int64_t{2}}});
      from_x = b.Add(from_x, b.Add(biases[0], biases[1]));
    }
    int64_t reverse = direction == "reverse" || d == 1;
    Attributes attributes = {
        {"body", Step(b.graph(), codes(2, 10))},
        {"num_scan_inputs", int64_t{1}},
        {"scan_input_directions", std::vector<int64_t>{reverse}},
        {"scan_output_directions", std::vector<int64_t>{reverse}}};
    std::vector<Value*> results = b.Ops(
        "Scan",
        {node.in(5) ? of(5, d) : zeros, node.in(6) ? of(6, d) : zeros, from_x},
        3, attributes);
    for (Value* result : results) result->dtype = DType::kFloat;
    auto with_axis = [&](Value* value, int64_t axis) {
      return b.Op("Unsqueeze", {value, b.Ints({axis})});
    };
    last_h.push_back(with_axis(results[0], 0));
    last_c.push_back(with_axis(results[1], 0));
    rows.push_back(with_axis(results[2], 1));
  }
  auto join = [&](const std::vector<Value*>& parts, int64_t axis) {
    return parts.size() == 1 ? parts[0]
                             : b.Op("Concat", parts, {{"axis", axis}});
  };
  return {join(rows, 1), join(last_h, 0), join(last_c, 0)};
}

}  // namespace onnx_fp8
