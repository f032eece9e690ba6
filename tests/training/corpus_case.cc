// SPDX-License-Identifier: Apache-2.0
#include "tests/training/corpus_case.h"

#include <cmath>

#include "base/check.h"
#include "data/safetensors.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "training/step/loss.h"

namespace onnx_fp8 {

CorpusCase::CorpusCase(const CorpusFile& corpus_file, BatchNormMode batch_norm)
    : file(corpus_file), params(file.Json(file.variant + ".params.json")) {
  options.batch_norm = batch_norm;
  ReadReference();
  options.model = file.model();
  for (const auto& [name, tensor] : arrays) {
    if (name.starts_with("input.")) feeds[name.substr(6)] = tensor;
    if (name.starts_with("label.")) feeds[name.substr(6)] = tensor;
  }
  // The feeds have the type in which the session computes.
  for (auto& [name, tensor] : feeds) {
    if (IsFloat(tensor.dtype())) tensor = ConvertTo(tensor, DType::kFloat);
  }
  ChooseLoss();
  ChooseParameters();
}

// Models with BatchNorm have results for both modes; only l17 is a training
// export.
void CorpusCase::ReadReference() {
  reference = file.Json("reference.json");
  bool trains = options.batch_norm == BatchNormMode::kTrain ||
                (options.batch_norm == BatchNormMode::kAsExported &&
                 file.variant == "l17");
  if (reference["batchnorm"].is_null() || trains) {
    arrays = ReadSafetensors(file.reference());
    return;
  }
  reference = file.Json("reference.bn_eval.json");
  arrays = ReadSafetensors(file.folder + "/reference.bn_eval.safetensors");
}

void CorpusCase::ChooseLoss() {
  std::string kind = reference["loss_kind"];
  if (!reference["labels"].empty()) {
    options.loss.label = reference["labels"][0];
  }
  if (kind == "in_graph") {
    options.loss.kind = "output:" + reference["outputs"][0].get<std::string>();
  } else if (kind == "vae") {
    AddVaeLoss();
  } else if (kind == "bce") {
    options.loss.kind = "bce_with_logits";
  } else {
    options.loss.kind = kind == "mse" ? "mse" : "cross_entropy";
  }
}

// None of our losses is (Σ BCE-with-logits(recon, target) + KL) / N, so a copy
// of the model computes it.
void CorpusCase::AddVaeLoss() {
  auto graph = ReadModel(file.model());
  for (Value* input : graph->inputs) {
    input->shape = feeds.at(input->name).shape();
  }
  for (Value* output : graph->outputs) {
    output->shape = arrays.at("output." + output->name).shape();
  }
  Builder b(*graph, "loss.");
  Value* recon = graph->outputs[0];
  Value *mu = graph->outputs[1], *logvar = graph->outputs[2];
  double n = static_cast<double>(recon->dim(0));
  Value* bce = AddLoss(*graph, {.kind = "bce_with_logits", .label = "target"});
  double elements = static_cast<double>(NumElements(*recon->shape));
  Value* sum = b.Mul(bce, b.Scalar(elements / n, bce));
  Value* terms = b.Sub(b.Add(logvar, b.Scalar(1, mu)),
                       b.Add(b.Mul(mu, mu), b.Op("Exp", {logvar})));
  Value* kl = b.Mul(b.SumTo(terms, {}), b.Scalar(-0.5 / n, mu));
  graph->outputs.push_back(b.Add(sum, kl));
  options.loss.kind = "output:" + graph->outputs.back()->name;
  options.model = dir_ / "vae.onnx";
  WriteModel(*graph, options.model);
}

void CorpusCase::ChooseParameters() {
  for (const std::string fqn : reference["frozen"]) {
    if (params[fqn]["how"] == "same") options.freeze.push_back(fqn);
  }
  // Scalar parameters look like constants, so they must be named.
  auto graph = ReadModel(options.model);
  for (const auto& [fqn, held] : params.items()) {
    if (!held["name"].is_string() || !arrays.contains("grad." + fqn)) continue;
    const Value* value = graph->Find(held["name"].get<std::string>());
    if (value && value->data.defined() && value->data.rank() == 0) {
      options.train.push_back(value->name);
    }
  }
}

double CorpusCase::OutputTolerance() const {
  return reference["param_dtype"] == "torch.float16" ? 5e-3 : 1e-4;
}

std::vector<double> ToDoubles(const Tensor& t) {
  std::vector<double> values;
  for (int64_t i = 0; i < t.size(); ++i) values.push_back(DoubleAt(t, i));
  return values;
}

double Norm(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}

}  // namespace onnx_fp8
