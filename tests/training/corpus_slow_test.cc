// SPDX-License-Identifier: Apache-2.0
//
// Outputs, loss, gradients and loss curves of exported models against PyTorch,
// "matches" as the corpus' README defines it.
#include <cmath>
#include <set>

#include "onnx_fp8/check.h"
#include "onnx_fp8/session.h"
#include "tests/support/corpus.h"
#include "training/safetensors.h"

namespace onnx_fp8 {
namespace {

constexpr double kOutputTolerance = 1e-4;
constexpr double kGradientTolerance = 2e-4;
constexpr double kCurveTolerance = 1e-4;

// A case and what its reference holds, ready to feed.
struct Case {
  explicit Case(const CorpusFile& corpus_file)
      : file(corpus_file),
        reference(file.Json("reference.json")),
        params(file.Json(file.variant + ".params.json")),
        arrays(ReadSafetensors(file.reference())) {
    options.model = file.model();
    std::string kind = reference["loss_kind"];
    if (kind == "in_graph") {
      options.loss.kind =
          "output:" + reference["outputs"][0].get<std::string>();
    } else if (kind == "bce") {
      options.loss.kind = "bce_with_logits";
    } else {
      options.loss.kind = kind == "mse" ? "mse" : "cross_entropy";
    }
    for (const auto& [name, tensor] : arrays) {
      if (name.starts_with("input.")) feeds[name.substr(6)] = tensor;
      if (name.starts_with("label.")) feeds[name.substr(6)] = tensor;
    }
    if (!reference["labels"].empty()) {
      options.loss.label = reference["labels"][0];
    }
    for (const std::string fqn : reference["frozen"]) {
      if (params[fqn]["how"] == "same") options.freeze.push_back(fqn);
    }
  }

  CorpusFile file;
  nlohmann::json reference;
  nlohmann::json params;
  TensorMap arrays;
  TensorMap feeds;
  SessionOptions options;
};

std::vector<double> Doubles(const Tensor& t) {
  std::vector<double> values;
  for (int64_t i = 0; i < t.size(); ++i) values.push_back(DoubleAt(t, i));
  return values;
}

double Norm(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}

void ExpectClose(const Tensor& got, const Tensor& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  double largest = 0;
  double error = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::fabs(DoubleAt(want, i)));
    error = std::max(error, std::fabs(DoubleAt(got, i) - DoubleAt(want, i)));
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

// The initializers that hold the parameter: one, unless it is tied and an
// optimisation has split it; the copy then is no parameter of its own.
std::vector<std::string> Copies(const Case& c, const std::string& fqn,
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

class Corpus : public testing::TestWithParam<CorpusFile> {};

TEST_P(Corpus, OutputsLossAndGradients) {
  Case c(GetParam());
  auto session = TrainingSession::Create(c.options);
  GradientResult got = session->Gradients(c.feeds, false);
  double loss = c.reference["loss"];
  EXPECT_LE(std::fabs(got.loss - loss), kOutputTolerance * std::fabs(loss));
  for (const auto& [name, tensor] : got.outputs) {
    auto want = c.arrays.find("output." + name);
    if (want != c.arrays.end()) {
      ExpectClose(tensor, want->second, kOutputTolerance, name);
    }
  }
  double largest = 0;
  for (const std::string fqn : c.reference["trainable"]) {
    largest = std::max(largest, Norm(Doubles(c.arrays.at("grad." + fqn))));
  }
  int compared = 0;
  for (const std::string fqn : c.reference["trainable"]) {
    const auto& held = c.params[fqn];
    if (held["name"].is_null() || held["how"] == "constant" ||
        held["how"] == "missing") {
      continue;
    }
    const Tensor& want = c.arrays.at("grad." + fqn);
    std::vector<double> sum(static_cast<size_t>(want.size()), 0.0);
    for (const std::string& name : Copies(c, fqn, got.gradients)) {
      ASSERT_TRUE(got.gradients.contains(name)) << fqn;
      const Tensor& gradient = got.gradients.at(name);
      std::vector<double> g = Doubles(gradient);
      bool turned = name == held["name"] ? held["how"] == "transposed"
                                         : gradient.shape() != want.shape();
      if (turned) g = Transposed(g, gradient.dim(0), gradient.dim(1));
      ASSERT_EQ(g.size(), sum.size()) << fqn;
      for (size_t i = 0; i < g.size(); ++i) sum[i] += g[i];
    }
    std::vector<double> reference = Doubles(want);
    double scale = std::max(Norm(reference), 1e-3 * largest);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] -= reference[i];
    EXPECT_LE(Norm(sum), kGradientTolerance * scale) << fqn;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Round1, Corpus,
                         testing::ValuesIn(Round1({"d18", "l17", "d18x", "f17",
                                                   "d20", "d23", "l17e"})),
                         CorpusTestName);

class Curve : public testing::TestWithParam<CorpusFile> {};

void FollowCurve(Case& c, const std::string& optimizer) {
  const auto& reference = c.reference[optimizer];
  c.options.optimizer.kind =
      optimizer == "sgd" ? OptimizerKind::kSgd : OptimizerKind::kAdamW;
  if (optimizer == "adamw") {
    c.options.optimizer.weight_decay = reference["weight_decay"].get<double>();
    c.options.optimizer.beta1 = reference["betas"][0];
    c.options.optimizer.beta2 = reference["betas"][1];
    c.options.optimizer.eps = reference["eps"];
  }
  auto session = TrainingSession::Create(c.options);
  std::vector<double> want = Doubles(c.arrays.at(optimizer + ".losses"));
  double tolerance = std::max(
      kCurveTolerance, 10 * reference["fp64_max_loss_rel_diff"].get<double>());
  for (size_t i = 0; i + 1 < want.size(); ++i) {
    StepResult result = session->Step(c.feeds, reference["lr"]);
    EXPECT_FALSE(result.skipped);
    EXPECT_LE(std::fabs(result.loss - want[i]), tolerance * std::fabs(want[i]))
        << optimizer << " step " << i;
  }
  float last = session->Eval(c.feeds).loss;
  EXPECT_LE(std::fabs(last - want.back()), tolerance * std::fabs(want.back()));
}

TEST_P(Curve, Sgd) {
  Case c(GetParam());
  FollowCurve(c, "sgd");
}

TEST_P(Curve, AdamW) {
  Case c(GetParam());
  FollowCurve(c, "adamw");
}

INSTANTIATE_TEST_SUITE_P(
    Round1, Curve, testing::ValuesIn(Round1({"d18", "l17", "d18x", "f17"})),
    CorpusTestName);

}  // namespace
}  // namespace onnx_fp8
