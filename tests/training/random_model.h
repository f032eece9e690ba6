// SPDX-License-Identifier: Apache-2.0
//
// Random models of layers and of ops between them, with operands of all the
// forms that ONNX allows: absent, negative, int32, broadcast, of rank 0. A
// third of them were never trained; masks have the numbers of exporters.
#pragma once

#include <cstdint>
#include <string>

#include "onnx_fp8/session.h"
#include "tests/training/small_model.h"

namespace onnx_fp8 {

struct RandomModel {
  SessionOptions options;  // SGD with cross entropy
  Shape labels;            // as the labels of a batch
  int64_t samples;
  int64_t classes;
  std::string text;  // the graph

  // The same seed gives the same batch.
  TensorMap Batch(uint64_t seed, int64_t size) const;
  TensorMap Batch(uint64_t seed) const { return Batch(seed, samples); }

  // Inputs, with the sizes of one sample behind the axis of the samples.
  Shape x, ids;      // empty: there is no such input
  int64_t rows = 0;  // of the table that `ids` reads
};

// How many models a test tries: ONNX_FP8_RANDOM_MODELS, or 200.
uint64_t NumberOfRandomModels();

// Writes the model into `dir`. The same seed gives the same model.
// `samples_apart`: nothing mixes the samples of a batch, which may have any
// number of them.
RandomModel WriteRandomModel(const TempDir& dir, uint64_t seed,
                             bool samples_apart = false);

}  // namespace onnx_fp8
