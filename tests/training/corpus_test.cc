// SPDX-License-Identifier: Apache-2.0
//
// Compares outputs, loss and gradients of exported models with PyTorch; the
// corpus' README defines "matches". One line per file.
#include <cmath>
#include <set>

#include "graph/onnx/onnx_io.h"
#include "graph/parameter_names.h"
#include "graph/passes/trained_parameters.h"
#include "tests/training/corpus_case.h"

namespace onnx_fp8 {
namespace {

constexpr double kGradientTolerance = 2e-4;

void ExpectClose(const Tensor& got, const Tensor& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  double largest = 0;
  double error = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::fabs(DoubleAt(want, i)));
    double difference = std::fabs(DoubleAt(got, i) - DoubleAt(want, i));
    // NaN never matches.
    if (!(difference <= error)) error = difference;
  }
  EXPECT_LE(error, tolerance * largest) << what;
}

// `x` (rows, columns) → its transpose.
std::vector<double> Transposed(const std::vector<double>& x, int64_t rows,
                               int64_t columns) {
  std::vector<double> y(x.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      y[static_cast<size_t>(j * rows + i)] =
          x[static_cast<size_t>(i * columns + j)];
    }
  }
  return y;
}

// The initializers that hold the parameter. It is one, unless the parameter is
// tied and an optimization has split it; the copy is then no parameter of its
// own.
std::vector<std::string> Copies(const CorpusCase& c, const std::string& fqn,
                                const TensorMap& gradients) {
  std::vector<std::string> names = {c.params[fqn]["name"]};
  bool tied = false;
  for (const auto& group : c.reference["tied"]) {
    for (const std::string member : group) tied |= member == fqn;
  }
  std::set<std::string> known;
  for (const auto& [key, held] : c.params.items()) {
    if (!held["name"].is_null()) known.insert(held["name"]);
  }
  for (const auto& [name, gradient] : gradients) {
    bool same_size = gradient.size() == c.arrays.at("grad." + fqn).size();
    if (tied && same_size && !known.contains(name)) names.push_back(name);
  }
  return names;
}

// The parameter's gradient in PyTorch's shape.
std::vector<double> Gradient(const CorpusCase& c, const std::string& fqn,
                             const TensorMap& gradients) {
  const auto& held = c.params[fqn];
  const Tensor& want = c.arrays.at("grad." + fqn);
  std::vector<double> sum(static_cast<size_t>(want.size()), 0.0);
  for (const std::string& name : Copies(c, fqn, gradients)) {
    Check(gradients.contains(name), "[", fqn, "] has no gradient");
    const Tensor& gradient = gradients.at(name);
    std::vector<double> g = ToDoubles(gradient);
    bool turned = held["name"] == name ? held["how"] == "transposed"
                                       : gradient.shape() != want.shape();
    if (turned) g = Transposed(g, gradient.dim(0), gradient.dim(1));
    Check(g.size() == sum.size(), "[", fqn, "] has another size");
    for (size_t i = 0; i < g.size(); ++i) sum[i] += g[i];
  }
  return sum;
}

bool IsHeld(const nlohmann::json& held) {
  return held["how"] != "constant" && held["how"] != "missing";
}

void ExpectOutputs(const CorpusCase& c, const TensorMap& got) {
  size_t compared = 0;
  for (const auto& [name, tensor] : got) {
    auto want = c.arrays.find("output." + name);
    if (want == c.arrays.end()) continue;
    ExpectClose(tensor, want->second, c.OutputTolerance(), name);
    ++compared;
  }
  EXPECT_EQ(compared, c.reference["outputs"].size());
}

void ExpectGradients(const CorpusCase& c, const TensorMap& gradients) {
  double largest = 0;
  for (const std::string fqn : c.reference["trainable"]) {
    largest = std::max(largest, Norm(ToDoubles(c.arrays.at("grad." + fqn))));
  }
  int compared = 0;
  for (const std::string fqn : c.reference["trainable"]) {
    if (!IsHeld(c.params[fqn])) continue;
    std::vector<double> difference = Gradient(c, fqn, gradients);
    std::vector<double> want = ToDoubles(c.arrays.at("grad." + fqn));
    for (size_t i = 0; i < want.size(); ++i) difference[i] -= want[i];
    double scale = std::max(Norm(want), 1e-3 * largest);
    EXPECT_LE(Norm(difference), kGradientTolerance * scale) << fqn;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

bool IsRefused(const CorpusCase& c, const std::string& fqn) {
  SessionOptions options = c.options;
  options.train.push_back(fqn);
  try {
    TrainingSession::Create(options);
    return false;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(fqn), std::string::npos)
        << error.what();
    return true;
  }
}

// If the file holds a parameter as a constant, there is a reason. If a
// parameter is missing because it was folded into others, the program says that
// there is none, or that the name is a guess. If another tensor has its exact
// name, the file says so.
void ExpectSaidToBeLost(const CorpusCase& c) {
  auto graph = ReadModel(c.options.model);
  std::map<std::string, InitializerReport> reports;
  for (const InitializerReport& report : MarkParameters(*graph)) {
    reports[report.value->name] = report;
  }
  std::map<std::string, std::string> remarks;
  for (const auto& [name, held] : NameParameters(*graph)) {
    remarks[held.fqn] = held.remark;
  }
  int missing = 0, refused = 0;
  for (const auto& [fqn, held] : c.params.items()) {
    if (IsHeld(held)) continue;
    if (held["name"].is_string()) {
      const InitializerReport& report = reports.at(held["name"]);
      EXPECT_EQ(report.value->role, Role::kNone) << fqn;
      EXPECT_NE(report.reason, "") << fqn;
      continue;
    }
    ++missing;
    if (remarks.contains(fqn)) {
      EXPECT_TRUE(reports.contains(fqn) || remarks[fqn] != "") << fqn;
    } else {
      EXPECT_TRUE(IsRefused(c, fqn)) << fqn;
      ++refused;
    }
  }
  EXPECT_EQ(refused > 0, missing > 0);
}

void ExpectTheReference(const CorpusCase& c) {
  auto session = TrainingSession::Create(c.options);
  GradientResult got = session->Gradients(c.feeds, false);
  double loss = c.reference["loss"];
  EXPECT_LE(std::fabs(got.loss - loss), c.OutputTolerance() * std::fabs(loss));
  ExpectOutputs(c, got.outputs);
  ExpectGradients(c, got.gradients);
}

class Corpus : public testing::TestWithParam<CorpusFile> {};

TEST_P(Corpus, OutputsLossAndGradients) {
  CorpusCase c(GetParam());
  ExpectTheReference(c);
  ExpectSaidToBeLost(c);
}

INSTANTIATE_TEST_SUITE_P(All, Corpus,
                         testing::ValuesIn(WithVariants({"d18", "l17", "d18x",
                                                         "f17", "d20", "d23",
                                                         "l17e"})),
                         CorpusTestName);

// d18 has training_mode 0, l17 has 1. (l17's exporter ran the model in training
// mode, which has moved the statistics in the file.)
class CorpusBatchNorm : public testing::TestWithParam<CorpusFile> {};

TEST_P(CorpusBatchNorm, TrainsByTheBatch) {
  CorpusCase c(GetParam(), BatchNormMode::kTrain);
  ExpectTheReference(c);
}

// For files that hold the original statistics: no training export.
class CorpusStatistics : public testing::TestWithParam<CorpusFile> {};

TEST_P(CorpusStatistics, NormalizeInEvaluationMode) {
  CorpusCase c(GetParam(), BatchNormMode::kEval);
  ExpectTheReference(c);
}

TEST_P(CorpusStatistics, MoveAsInPyTorch) {
  CorpusCase c(GetParam(), BatchNormMode::kTrain);
  auto session = TrainingSession::Create(c.options);
  session->Step(c.feeds, 0);
  TempDir dir;
  session->ExportOnnx(dir / "trained.onnx");
  auto graph = ReadModel(dir / "trained.onnx");
  const std::string prefix = "buffer_after_step1.";
  int compared = 0;
  for (const auto& [name, want] : c.arrays) {
    // ONNX has no counter of batches.
    bool held = name.starts_with(prefix) && !name.ends_with("tracked");
    if (!held) continue;
    const Value* value = graph->Find(name.substr(prefix.size()));
    ASSERT_NE(value, nullptr) << name;
    ExpectClose(value->data, want, c.OutputTolerance(), name);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

std::vector<CorpusFile> BatchNormFiles(
    const std::vector<std::string>& variants) {
  auto files = WithVariants(variants);
  std::erase_if(files, [](const CorpusFile& file) {
    return file.Json("reference.json")["batchnorm"].is_null();
  });
  return files;
}

INSTANTIATE_TEST_SUITE_P(All, CorpusBatchNorm,
                         testing::ValuesIn(BatchNormFiles({"d18", "l17"})),
                         CorpusTestName);
INSTANTIATE_TEST_SUITE_P(All, CorpusStatistics,
                         testing::ValuesIn(BatchNormFiles({"d18"})),
                         CorpusTestName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CorpusBatchNorm);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CorpusStatistics);

}  // namespace
}  // namespace onnx_fp8
