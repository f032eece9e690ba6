// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/specialise.h"

#include "graph/onnx_io.h"
#include "graph/passes/trained_parameters.h"
#include "onnx_fp8/check.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/corpus.h"
#include "training/safetensors.h"

namespace onnx_fp8 {
namespace {

class SpecialiseCorpus : public testing::TestWithParam<CorpusFile> {};

// The shapes of the reference's feeds, by graph input.
std::map<std::string, Shape> FedShapes(const CorpusFile& file,
                                       const Graph& graph) {
  TensorMap arrays = ReadSafetensors(file.reference());
  std::map<std::string, Shape> shapes;
  for (const Value* input : graph.inputs) {
    for (const char* prefix : {"input.", "label."}) {
      auto it = arrays.find(prefix + input->name);
      if (it != arrays.end()) shapes[input->name] = it->second.shape();
    }
  }
  return shapes;
}

TEST_P(SpecialiseCorpus, EveryValueHasAConcreteShape) {
  auto graph = ReadModel(GetParam().model());
  MarkParameters(*graph);
  auto evaluator = MakeCpuEvaluator();
  SpecialiseReport report;
  auto special =
      Specialise(*graph, FedShapes(GetParam(), *graph), *evaluator, &report);
  for (const Value* value : special->Values()) {
    EXPECT_TRUE(value->concrete()) << value->name;
    EXPECT_NE(value->dtype, DType::kUndefined) << value->name;
  }
  EXPECT_EQ(special->outputs.size(), graph->outputs.size());
  for (size_t i = 0; i < special->outputs.size(); ++i) {
    EXPECT_EQ(special->outputs[i]->name, graph->outputs[i]->name);
  }
  EXPECT_LE(report.nodes_after, report.nodes_before);
}

INSTANTIATE_TEST_SUITE_P(Corpus, SpecialiseCorpus,
                         testing::ValuesIn(WithVariants({"d18", "d20", "d23",
                                                         "l17", "l17e", "d18x",
                                                         "f17"})),
                         CorpusTestName);

}  // namespace
}  // namespace onnx_fp8
