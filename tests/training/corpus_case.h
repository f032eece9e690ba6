// SPDX-License-Identifier: Apache-2.0
//
// A corpus file with PyTorch's results, ready for a session.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "onnx_fp8/session.h"
#include "tests/support/corpus.h"
#include "tests/training/files.h"

namespace onnx_fp8 {

struct CorpusCase {
  explicit CorpusCase(const CorpusFile& file,
                      BatchNormMode batch_norm = BatchNormMode::kAsExported);

  // Relative to the largest magnitude, for outputs and loss.
  double OutputTolerance() const;

  CorpusFile file;
  nlohmann::json reference;  // reference.json
  nlohmann::json params;     // FQN → how the file holds it
  TensorMap arrays;          // reference.safetensors
  TensorMap feeds;
  SessionOptions options;

 private:
  void ReadReference();
  void ChooseLoss();
  void ChooseParameters();
  void AddVaeLoss();

  TempDir dir_;
};

std::vector<double> ToDoubles(const Tensor& t);
double Norm(const std::vector<double>& x);

}  // namespace onnx_fp8
