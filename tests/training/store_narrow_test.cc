// SPDX-License-Identifier: Apache-2.0
//
// Steps in 16 bits give the same bits whether the rounded values are kept in 16
// bits or as floats.
#include <cstring>

#include "tests/providers/cpu/isas.h"
#include "tests/training/corpus_case.h"

namespace onnx_fp8 {
namespace {

class StoreNarrow : public testing::TestWithParam<CorpusFile> {};

struct Results {
  TensorMap gradients;
  TensorMap outputs;
};

Results Compute(const CorpusCase& c) {
  auto session = TrainingSession::Create(c.options);
  Results results;
  results.gradients = session->Gradients(c.feeds, true).gradients;
  results.outputs = session->Eval(c.feeds).outputs;
  return results;
}

void ExpectSame(const TensorMap& got, const TensorMap& want,
                const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    const Tensor& other = got.at(name);
    ASSERT_EQ(other.bytes(), tensor.bytes()) << name;
    EXPECT_EQ(std::memcmp(other.raw(), tensor.raw(), tensor.bytes()), 0)
        << what << ": " << name;
  }
}

// Products of 16-bit operands have instructions of their own on some machines;
// without them the sums are the same too.
std::vector<Isa> IsasWithoutBFloat16() {
  std::vector<Isa> isas;
  for (Isa isa : RunnableIsas()) {
    if (isa <= Isa::kAvx512) isas.push_back(isa);
  }
  return isas;
}

TEST_P(StoreNarrow, ChangesNoBit) {
  WithIsa isa(IsasWithoutBFloat16().back());
  CorpusCase c(GetParam());
  // Both dtypes and all recipes see many models, but not each other.
  bool first = GetParam().variant == "d18";
  c.options.dtype = first ? DType::kBFloat16 : DType::kFloat16;
  std::vector<const char*> recipes = {first ? "off" : "tensorwise"};
  if (GetParam().fixture) {
    recipes = {"off", "tensorwise", "delayed", "rowwise", "blockwise", "mxfp8"};
  }
  for (const char* recipe : recipes) {
    c.options.recipe = ParseRecipe(recipe);
    c.options.skip_passes = {};
    Results narrow = Compute(c);
    c.options.skip_passes = {"StoreNarrow"};
    Results wide = Compute(c);
    ExpectSame(narrow.gradients, wide.gradients, recipe);
    ExpectSame(narrow.outputs, wide.outputs, recipe);
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoreNarrow, testing::ValuesIn(CorpusFiles()),
                         CorpusTestName);

}  // namespace
}  // namespace onnx_fp8
