// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/trained_parameters.h"

#include <set>

#include "graph/onnx_io.h"
#include "onnx_fp8/check.h"
#include "tests/support/corpus.h"

namespace onnx_fp8 {
namespace {

class TrainedParameters : public testing::TestWithParam<CorpusFile> {};

// What the file really holds of the parameters that the reference knows.
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

INSTANTIATE_TEST_SUITE_P(Corpus, TrainedParameters,
                         testing::ValuesIn(WithVariants({"d18", "l17", "d18x",
                                                         "f17"})),
                         CorpusTestName);

std::unique_ptr<Graph> SmallGraph() {
  auto graph = std::make_unique<Graph>();
  Value* x = graph->AddInput("x", DType::kFloat, Shape{2, 3});
  Value* w = graph->AddInitializer("w", Tensor::Zeros(DType::kFloat, {3, 3}));
  Value* s = graph->AddInitializer("s", Tensor::Scalar(1.0f));
  Node* y = graph->AddNode("MatMul", {x, w}, {"y"});
  Node* z = graph->AddNode("Mul", {y->out(0), s}, {"z"});
  graph->outputs = {z->out(0)};
  return graph;
}

TEST(TrainedParametersFlags, FreezeThenTrain) {
  auto graph = SmallGraph();
  MarkParameters(*graph);
  EXPECT_EQ(graph->Find("w")->role, Role::kParameter);
  EXPECT_EQ(graph->Find("s")->role, Role::kNone);
  MarkParameters(*graph, {.train = {"s"}, .freeze = {"*"}});
  EXPECT_EQ(graph->Find("w")->role, Role::kFrozen);
  EXPECT_EQ(graph->Find("s")->role, Role::kParameter);
  EXPECT_THROW(MarkParameters(*graph, {.train = {"nothing*"}}), Error);
}

}  // namespace
}  // namespace onnx_fp8
