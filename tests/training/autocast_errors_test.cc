// SPDX-License-Identifier: Apache-2.0
//
// Gradients in 16 bits are at least as exact as with PyTorch's autocast.
// scripts/autocast_errors.py has measured the latter.
#include <cmath>
#include <fstream>

#include "tests/training/corpus_case.h"

namespace onnx_fp8 {
namespace {

const nlohmann::json& PyTorch() {
  static const nlohmann::json errors = nlohmann::json::parse(
      std::ifstream(FixtureFile("autocast_errors.json")))["models"];
  return errors;
}

class AutocastErrors : public testing::TestWithParam<CorpusFile> {};

TEST_P(AutocastErrors, AreAtMostThoseOfPyTorch) {
  CorpusCase c(GetParam());
  for (auto [dtype, key] : {std::pair{DType::kBFloat16, "bfloat16"},
                            std::pair{DType::kFloat16, "float16"}}) {
    const nlohmann::json& bar = PyTorch()[c.file.name][key];
    if (bar.is_null()) continue;  // PyTorch's gradients are not finite
    c.options.dtype = dtype;
    c.options.loss_scaling.init = bar["loss_scale"];
    TensorMap got =
        TrainingSession::Create(c.options)->Gradients(c.feeds, false).gradients;
    double error = 0, size = 0;
    for (const auto& [fqn, held] : c.params.items()) {
      std::string name = held["name"].is_null() ? "" : held["name"];
      if (held["how"] != "same" && held["how"] != "renamed") continue;
      if (!got.contains(name)) continue;
      std::vector<double> want = ToDoubles(c.arrays.at("grad." + fqn));
      std::vector<double> difference = ToDoubles(got.at(name));
      for (size_t i = 0; i < want.size(); ++i) difference[i] -= want[i];
      error += Norm(difference) * Norm(difference);
      size += Norm(want) * Norm(want);
    }
    double relative = std::sqrt(error / size);
    EXPECT_LE(relative, bar["error"].get<double>()) << key;
    EXPECT_GE(relative, 1e-5) << key << ": nothing is rounded";
  }
}

std::vector<CorpusFile> MeasuredFiles() {
  std::vector<CorpusFile> files = CorpusFiles();
  std::erase_if(files, [](const CorpusFile& file) {
    return file.fixture || file.variant != "d18" ||
           !PyTorch().contains(file.name);
  });
  return files;
}

INSTANTIATE_TEST_SUITE_P(Corpus, AutocastErrors,
                         testing::ValuesIn(MeasuredFiles()), CorpusTestName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AutocastErrors);

}  // namespace
}  // namespace onnx_fp8
