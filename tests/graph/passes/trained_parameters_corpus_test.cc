// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "graph/onnx/onnx_io.h"
#include "graph/passes/trained_parameters.h"
#include "tests/support/corpus.h"

namespace onnx_fp8 {
namespace {

class TrainedParameters : public testing::TestWithParam<CorpusFile> {};

// The parameters of the reference that the file really holds.
std::set<std::string> Expected(const CorpusFile& file, const Graph& graph) {
  auto reference = file.Json("reference.json");
  auto params = file.Json(file.variant + ".params.json");
  std::set<std::string> unused;
  for (const auto& fqn : reference["unused_params"]) {
    unused.insert(params[fqn.get<std::string>()].value("name", ""));
  }
  std::set<std::string> names;
  for (const char* list : {"trainable", "frozen"}) {
    for (const std::string fqn : reference[list]) {
      if (!params.contains(fqn) || params[fqn]["name"].is_null()) continue;
      std::string how = params[fqn]["how"];
      if (how == "constant" || how == "missing") continue;
      std::string name = params[fqn]["name"];
      const Value* value = graph.Find(name);
      if (value && value->is_initializer() && value->data.rank() > 0 &&
          !unused.contains(name)) {
        names.insert(name);
      }
    }
  }
  return names;
}

TEST_P(TrainedParameters, EqualTheReferencesSet) {
  auto graph = ReadModel(GetParam().model());
  MarkParameters(*graph);
  std::set<std::string> got;
  for (const Value* value : graph->Initializers()) {
    if (value->role == Role::kParameter) got.insert(value->name);
  }
  EXPECT_EQ(got, Expected(GetParam(), *graph));
}

// A Constant node is another way to write an initializer.
TEST_P(TrainedParameters, EqualTheReferencesSetInConstantNodes) {
  auto graph = ReadModel(GetParam().model());
  std::set<std::string> expected = Expected(GetParam(), *graph);
  for (Value* value : graph->Initializers()) {
    std::string name = value->name;
    Node* node =
        graph->AddNode("Constant", {}, {graph->FreshName(name)},
                       {{"value", value->data}}, "", &graph->nodes().front());
    node->out(0)->dtype = value->dtype;
    graph->ReplaceUses(value, node->out(0));
    graph->RemoveValue(value);
    graph->Rename(node->out(0), name);
  }
  MarkParameters(*graph);
  std::set<std::string> got;
  for (const Value* value : graph->Initializers()) {
    EXPECT_NE(value->role, Role::kNone) << value->name;
    if (value->role == Role::kParameter) got.insert(value->name);
  }
  EXPECT_EQ(got, expected);
}

INSTANTIATE_TEST_SUITE_P(Corpus, TrainedParameters,
                         testing::ValuesIn(WithVariants({"d18", "l17", "d18x",
                                                         "f17"})),
                         CorpusTestName);

using Names = std::set<std::string>;

Names ListOf(const Graph& graph) {
  Names names;
  for (const Value* value : graph.Initializers()) {
    if (value->role == Role::kParameter) names.insert(value->name);
  }
  return names;
}

// New numbers for tensors that PyTorch trains.
using Change = std::function<void(Value*)>;

template <typename F>
void Fill(Value* value, F f) {
  Tensor numbers = Tensor::Allocate(DType::kDouble, value->data.shape());
  for (int64_t i = 0; i < numbers.size(); ++i) {
    numbers.data<double>()[i] = f(i);
  }
  value->data = ConvertTo(numbers, value->data.dtype());
}

// A new model and a trained one of one architecture have one list.
class AnyNumbers : public testing::TestWithParam<CorpusFile> {
 protected:
  // The list after the change of each tensor that PyTorch trains.
  static Names After(const Change& change) {
    auto graph = ReadModel(GetParam().model());
    for (const std::string& name : Expected(GetParam(), *graph)) {
      change(graph->Find(name));
    }
    // Where the exporter's optimizer ran, a tied matrix is in the file twice,
    // and the change makes two of it.
    const std::string& variant = GetParam().variant;
    bool folded = variant == "d20" || variant == "d23" || variant == "l17e";
    MarkParameters(*graph, {.tie_copies = !folded});
    return ListOf(*graph);
  }
};

TEST_P(AnyNumbers, GiveTheSameList) {
  const Names list = After([](Value*) {});
  for (double number : {1.0, 0.0, 0.02, -1e-6}) {
    EXPECT_EQ(
        After([&](Value* v) { Fill(v, [&](int64_t) { return number; }); }),
        list)
        << number;
  }
  std::map<Shape, Tensor> first;
  EXPECT_EQ(After([&](Value* v) {
              v->data =
                  first.try_emplace(v->data.shape(), v->data).first->second;
            }),
            list)
      << "copies";
  EXPECT_EQ(After([](Value* v) {
              Fill(v, [](int64_t i) { return i % 2 == 0 ? 1.0 : 0.0; });
            }),
            list)
      << "points of the unit circle";
}

TEST_P(AnyNumbers, GiveTheSameListWhereTheFileHasKinds) {
  if (!GetParam().variant.starts_with("d")) return;
  const Names list = After([](Value*) {});
  EXPECT_EQ(After([](Value* v) {
              Fill(v, [](int64_t i) { return std::sin(0.7 * double(i)); });
            }),
            list)
      << "sines";
  EXPECT_EQ(After([](Value* v) {
              int64_t row = v->data.rank() > 0 ? v->data.dim(-1) : 1;
              Fill(v, [=](int64_t i) { return std::pow(0.5, i % row); });
            }),
            list)
      << "falling rows";
}

INSTANTIATE_TEST_SUITE_P(Corpus, AnyNumbers,
                         testing::ValuesIn(WithVariants(
                             {"d18", "l17", "f17", "d20", "d23", "l17e"})),
                         CorpusTestName);

}  // namespace
}  // namespace onnx_fp8
