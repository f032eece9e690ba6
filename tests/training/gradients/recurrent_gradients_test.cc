// SPDX-License-Identifier: Apache-2.0
//
// Compares gradients of the unrolled LSTM, GRU and RNN with differences of
// their kernels.
#include "base/check.h"
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

using Recurrent = testing::TestWithParam<GradientCase>;

TEST_P(Recurrent, UnrolledGradientIsTheDerivative) {
  CheckGradient(GetParam());
}

constexpr int64_t kSteps = 3, kBatch = 2, kInputs = 2, kHidden = 2;

struct Variant {
  std::string name;
  Attributes attributes = {};
  std::vector<int32_t> lengths = {};
  bool states = true;  // with initial states, bias and peepholes
  bool y_only = false;
};

GradientCase Make(const std::string& op, const Variant& v) {
  int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  auto direction = v.attributes.find("direction");
  bool both = direction != v.attributes.end() &&
              std::get<std::string>(direction->second) == "bidirectional";
  bool batch_first = v.attributes.contains("layout");
  int64_t d = both ? 2 : 1, rows = gates * kHidden;
  Shape x = batch_first ? Shape{kBatch, kSteps, kInputs}
                        : Shape{kSteps, kBatch, kInputs};
  Shape state =
      batch_first ? Shape{kBatch, d, kHidden} : Shape{d, kBatch, kHidden};
  GradientCase c = {op + v.name, op, {X(x)}, v.attributes};
  c.inputs.push_back(X({d, rows, kInputs}, -1, 1));
  c.inputs.push_back(X({d, rows, kHidden}, -1, 1));
  c.inputs.push_back(v.states ? X({d, 2 * rows}, -1, 1) : None());
  c.inputs.push_back(
      v.lengths.empty() ? None()
                        : Constant(Tensor::From<int32_t>({kBatch}, v.lengths)));
  c.inputs.push_back(v.states ? X(state) : None());
  if (op == "LSTM") {
    c.inputs.push_back(v.states ? X(state) : None());
    c.inputs.push_back(v.states ? X({d, 3 * kHidden}, -1, 1) : None());
  }
  c.attributes["hidden_size"] = kHidden;
  c.outputs = v.y_only ? 1 : op == "LSTM" ? 3 : 2;
  return c;
}

std::vector<GradientCase> RecurrentCases() {
  std::vector<GradientCase> cases;
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    auto add = [&](const Variant& v) { cases.push_back(Make(op, v)); };
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      Attributes a = {{"direction", std::string(direction)}};
      add({Concat("_", direction), a});
      add({Concat("_", direction, "_lengths"), a, {1, 3}});
      a["layout"] = int64_t{1};
      add({Concat("_", direction, "_batch_first"), a, {2, 0}});
    }
    add({"_bare", {}, {}, false, true});
    add({"_clip", {{"clip", 0.5f}}});
  }
  auto activations = [](const std::vector<std::string>& names) {
    return Variant{"_activations", {{"activations", names}}};
  };
  cases.push_back(Make("LSTM", activations({"Tanh", "Sigmoid", "Relu"})));
  cases.push_back(Make("GRU", activations({"Tanh", "Relu"})));
  cases.push_back(Make("RNN", activations({"Relu"})));
  Attributes before = {{"linear_before_reset", int64_t{1}}};
  cases.push_back(Make("GRU", {"_resets_last", before}));
  cases.push_back(Make("GRU", {"_resets_last_bare", before, {}, false}));
  cases.push_back(
      Make("LSTM", {"_coupled", {{"input_forget", int64_t{1}}}, {3, 1}}));
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Table, Recurrent, testing::ValuesIn(RecurrentCases()),
                         CaseName);

}  // namespace
}  // namespace onnx_fp8
