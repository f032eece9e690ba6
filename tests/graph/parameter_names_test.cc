// SPDX-License-Identifier: Apache-2.0
#include "graph/parameter_names.h"

#include "graph/onnx_io.h"
#include "graph/passes/trained_parameters.h"
#include "tests/support/corpus.h"

namespace onnx_fp8 {
namespace {

class ParameterNamesOf : public testing::TestWithParam<CorpusFile> {};

// Where the file kept a tensor, PyTorch's name and layout come back.
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

}  // namespace
}  // namespace onnx_fp8
