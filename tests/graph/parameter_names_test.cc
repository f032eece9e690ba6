// SPDX-License-Identifier: Apache-2.0
#include "graph/parameter_names.h"

#include "graph/onnx/onnx_io.h"
#include "graph/passes/trained_parameters.h"
#include "tests/graph/parse.h"
#include "tests/support/corpus.h"

namespace onnx_fp8 {
namespace {

class ParameterNamesOf : public testing::TestWithParam<CorpusFile> {};

// If the file has kept a tensor, PyTorch's name and layout are recovered.
TEST_P(ParameterNamesOf, RecoverWhatTheExporterFolded) {
  const CorpusFile& file = GetParam();
  auto graph = ReadModel(file.model());
  MarkParameters(*graph);
  ParameterNames names = NameParameters(*graph);
  auto params = file.Json(file.variant + ".params.json");
  for (const auto& [fqn, held] : params.items()) {
    if (held["name"].is_null()) continue;
    auto it = names.find(held["name"]);
    if (it == names.end()) continue;
    // A tied weight keeps one of its names.
    if (held["how"] == "same" || held["how"] == "transposed") {
      EXPECT_EQ(it->second.fqn, fqn);
    }
    EXPECT_EQ(it->second.transposed, held["how"] == "transposed") << fqn;
  }
}

INSTANTIATE_TEST_SUITE_P(Corpus, ParameterNamesOf,
                         testing::ValuesIn(WithVariants({"d18", "d20", "d23",
                                                         "l17", "l17e", "d18x",
                                                         "f17"})),
                         CorpusTestName);

TEST(ParameterNames, ComeFromTheModuleThatReadsThem) {
  auto graph = ParseGraph(R"(
input x: float[2,3]
param val_1: float[3,3]
param val_2: float[3,3]
param val_3: float[3]
param val_4: float[3,3]
param own.weight: float[3,3]
a: float[2,3] = MatMul(x, val_1)  # /fc/MatMul
b: float[2,3] = Gemm<transB=1>(a, val_2, val_3)  # /out/Gemm
c: float[2,3] = MatMul(b, val_4)  # /fc/MatMul_1
d: float[2,3] = MatMul(c, own.weight)  # /fc/MatMul_2
output d
)");
  std::string text;
  for (const auto& [held, name] : NameParameters(*graph)) {
    text += held + " " + name.fqn + (name.transposed ? " transposed\n" : "\n");
  }
  // A module has one weight: the second keeps the file's name.
  EXPECT_EQ(text,
            "own.weight own.weight\n"
            "val_1 fc.weight transposed\n"
            "val_2 out.weight\n"
            "val_3 out.bias\n"
            "val_4 val_4\n");
}

}  // namespace
}  // namespace onnx_fp8
