// SPDX-License-Identifier: Apache-2.0
//
// Outputs, loss and every parameter's gradient of exported models against
// PyTorch, by the rules of the corpus' README; graph and kernels only.
#include <cmath>
#include <set>

#include "graph/builder.h"
#include "graph/onnx_io.h"
#include "graph/passes/specialise.h"
#include "graph/passes/trained_parameters.h"
#include "onnx_fp8/check.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/corpus.h"
#include "tests/training/gradient_check.h"
#include "training/autodiff.h"
#include "training/loss.h"
#include "training/safetensors.h"

namespace onnx_fp8 {
namespace {

using nlohmann::json;

// No gradient of LSTM; no products of float16, which the session avoids by
// computing in float.
bool Runs(const CorpusFile& file) {
  return file.name != "lstm_lm" && file.name != "mlp_fp16";
}

std::vector<CorpusFile> Files() {
  std::vector<CorpusFile> files =
      WithVariants({"d18", "d20", "d23", "l17", "l17e", "d18x", "f17"});
  std::erase_if(files, [](const CorpusFile& f) { return !Runs(f); });
  return files;
}

// Models with BatchNorm have another truth for all but training exports: those
// files normalise with the running statistics.
TensorMap Reference(const CorpusFile& file, json* description) {
  *description = file.Json("reference.json");
  bool running =
      !(*description)["batchnorm"].is_null() && file.variant != "l17";
  if (!running) return ReadSafetensors(file.reference());
  *description = file.Json("reference.bn_eval.json");
  return ReadSafetensors(file.folder + "/reference.bn_eval.safetensors");
}

void TurnDropoutOff(Graph& graph) {
  for (Node& node : graph.nodes()) {
    if (!node.Is("Dropout") || !node.in(1)) continue;
    graph.SetInput(&node, 1,
                   graph.AddInitializer(graph.FreshName("no_ratio"),
                                        Tensor::Scalar(0.0f)));
  }
}

// (Σ BCE-with-logits(recon, target) + KL) / N
Value* VaeLoss(Graph& graph, const Shape& target) {
  Builder b(graph);
  Value* recon = graph.outputs[0];
  Value *mu = graph.outputs[1], *logvar = graph.outputs[2];
  Value* bce = AddLoss(graph, {.kind = "bce_with_logits", .label = "target"});
  double n = static_cast<double>(target[0]);
  Value* sum = b.Mul(
      bce, b.Scalar(static_cast<double>(NumElements(*recon->shape)) / n, bce));
  Value* terms = b.Sub(b.Add(logvar, b.Scalar(1, mu)),
                       b.Add(b.Mul(mu, mu), b.Op("Exp", {logvar})));
  Value* kl = b.Mul(b.SumTo(terms, {}), b.Scalar(-0.5 / n, mu));
  return b.Add(sum, kl);
}

Value* CorpusLoss(Graph& graph, const json& description,
                  const TensorMap& reference) {
  std::string kind = description["loss_kind"];
  if (kind == "in_graph") return AddLoss(graph, {.kind = "output:loss"});
  std::string label = description["labels"][0];
  if (kind == "vae")
    return VaeLoss(graph, reference.at("label.target").shape());
  std::string ours = kind == "mse"   ? "mse"
                     : kind == "bce" ? "bce_with_logits"
                                     : "cross_entropy";
  return AddLoss(graph, {.kind = ours, .label = label});
}

double Norm(const Tensor& t) {
  double sum = 0;
  for (int64_t i = 0; i < t.size(); ++i) {
    sum += DoubleAt(t, i) * DoubleAt(t, i);
  }
  return std::sqrt(sum);
}

// ‖g - reference‖; `transposed`: the file holds the matrix the other way.
double Distance(const Tensor& g, const Tensor& reference, bool transposed) {
  double sum = 0;
  for (int64_t i = 0; i < g.size(); ++i) {
    int64_t at = i;
    if (transposed) {
      at = i % g.dim(1) * reference.dim(1) + i / g.dim(1);
    }
    double d = DoubleAt(g, i) - DoubleAt(reference, at);
    sum += d * d;
  }
  return std::sqrt(sum);
}

void ExpectClose(const std::string& name, const Tensor& got, const Tensor& want,
                 double tolerance) {
  ASSERT_EQ(got.size(), want.size()) << name;
  double largest = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::fabs(DoubleAt(want, i)));
  }
  for (int64_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(DoubleAt(got, i), DoubleAt(want, i), tolerance * largest)
        << name << "[" << i << "]";
  }
}

bool Equal(const Tensor& a, const Tensor& b, bool transposed) {
  if (!transposed) return a.shape() == b.shape() && Distance(a, b, false) == 0;
  return a.rank() == 2 && b.rank() == 2 && a.dim(0) == b.dim(1) &&
         a.dim(1) == b.dim(0) && Distance(a, b, true) == 0;
}

// Adds to g the gradients of copies that an optimised export made of a tied
// parameter.
void AddCopies(const Value* parameter, const BackwardResult& result,
               std::map<std::string, Tensor>& values, Tensor& g) {
  g = g.Clone();
  for (const auto& [copy, gradient] : result.gradient) {
    if (copy == parameter) continue;
    bool same = Equal(copy->data, parameter->data, false);
    if (!same && !Equal(copy->data, parameter->data, true)) continue;
    const Tensor& more = values[gradient->name];
    for (int64_t i = 0; i < g.size(); ++i) {
      int64_t at = same ? i : i % g.dim(1) * g.dim(0) + i / g.dim(1);
      g.data<float>()[i] += more.data<float>()[at];
    }
  }
}

// The model for the shapes that the reference was made with, and its feeds.
std::unique_ptr<Graph> Special(const CorpusFile& file, const json& params,
                               const TensorMap& reference, bool dropout_off,
                               std::map<std::string, Tensor>* feeds) {
  auto graph = ReadModel(file.model());
  if (dropout_off) TurnDropoutOff(*graph);
  // Parameters of one element look like constants and must be named.
  ParameterPatterns patterns;
  for (const auto& [fqn, held] : params.items()) {
    if (!held["name"].is_string()) continue;
    const Value* value = graph->Find(held["name"].get<std::string>());
    if (value && value->data.size() == 1 && reference.contains("grad." + fqn)) {
      patterns.train.push_back(value->name);
    }
  }
  MarkParameters(*graph, patterns);
  std::map<std::string, Shape> shapes;
  for (const auto& [name, data] : reference) {
    if (!name.starts_with("input.") && !name.starts_with("label.")) continue;
    std::string input = name.substr(6);
    Value* value = graph->Find(input);
    (*feeds)[input] = value ? ConvertTo(data, value->dtype) : data;
    shapes[input] = data.shape();
  }
  return Specialise(*graph, shapes, *MakeCpuEvaluator());
}

class CorpusGradients : public testing::TestWithParam<CorpusFile> {};

TEST_P(CorpusGradients, MatchPyTorch) {
  const CorpusFile& file = GetParam();
  json description;
  TensorMap reference = Reference(file, &description);
  json params = file.Json(file.variant + ".params.json");
  std::map<std::string, Tensor> feeds;
  auto graph =
      Special(file, params, reference,
              description["stochastic_reference_has_dropout_off"], &feeds);
  Value* loss = CorpusLoss(*graph, description, reference);
  std::vector<Value*> wanted;
  for (Value* value : graph->Initializers()) {
    if (value->role == Role::kParameter) wanted.push_back(value);
  }
  std::vector<Value*> outputs = graph->outputs;
  BackwardResult result = BuildBackward(*graph, loss, wanted);
  auto values = RunGraph(*graph, feeds);
  const double tolerance = 1e-4;
  ExpectClose("loss", values[loss->name], reference.at("loss"), tolerance);
  for (Value* output : outputs) {
    auto it = reference.find("output." + output->name);
    if (it != reference.end()) {
      ExpectClose(output->name, values[output->name], it->second, tolerance);
    }
  }
  double largest = 0;
  for (const auto& [name, data] : reference) {
    if (name.starts_with("grad.")) largest = std::max(largest, Norm(data));
  }
  std::set<std::string> tied;
  for (const auto& group : description["tied"]) {
    for (const std::string fqn : group) tied.insert(fqn);
  }
  size_t compared = 0;
  for (const auto& [fqn, held] : params.items()) {
    auto want = reference.find("grad." + fqn);
    if (want == reference.end() || !held["name"].is_string()) continue;
    std::string how = held["how"];
    if (how == "constant" || how == "missing") continue;
    Value* parameter = graph->Find(held["name"].get<std::string>());
    ASSERT_NE(parameter, nullptr) << fqn;
    ASSERT_TRUE(result.gradient.contains(parameter)) << fqn;
    Tensor g = values[result.gradient[parameter]->name];
    if (tied.contains(fqn)) AddCopies(parameter, result, values, g);
    ASSERT_EQ(g.size(), want->second.size()) << fqn;
    double bound = std::max(Norm(want->second), 1e-3 * largest);
    EXPECT_LE(Distance(g, want->second, how == "transposed"),
              2 * tolerance * bound)
        << fqn << ", norm " << Norm(want->second);
    ++compared;
  }
  EXPECT_GT(compared, 0u);
}

INSTANTIATE_TEST_SUITE_P(Corpus, CorpusGradients, testing::ValuesIn(Files()),
                         CorpusTestName);

}  // namespace
}  // namespace onnx_fp8
