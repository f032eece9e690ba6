// SPDX-License-Identifier: Apache-2.0
//
// A training step of many ranks, without running it: the step of one rank is
// built and planned as `train` would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/mesh.h"
#include "graph/passes/specialize.h"
#include "onnx_fp8/dataset.h"
#include "onnx_fp8/session.h"
#include "providers/report/timeline.h"
#include "training/step/fit_memory.h"

namespace onnx_fp8 {

struct ForecastSpec {
  SessionOptions session;  // with a loss
  Mesh mesh;
  DataOptions data;                     // batch size of all ranks together
  std::map<std::string, int64_t> axes;  // sizes of other open axes
  InputValues values;                   // that decide branches or sizes
  Cluster cluster;
};

// Bytes on one rank at the step's peak.
struct RankMemory {
  size_t parameters = 0, optimizer = 0, scales = 0;
  size_t fp8_weights = 0;  // FP8 copies of weights that live between steps
  size_t others = 0;       // batch, constants, outputs
  // The larger of two arenas: the step's, and the one in which the first FP8
  // weights are made.
  size_t arena = 0;
  size_t outside = 0;  // moments in the host's memory; no part of `optimizer`
  // In the arena: gradients of parameters; other values that collectives read
  // or give (gathered parameters, gradients before they are added up);
  // workspaces of kernels, as far as they are known without a GPU; the rest.
  size_t gradients = 0, communication = 0, saved = 0, workspaces = 0,
         temporaries = 0;

  size_t total() const {
    return parameters + optimizer + scales + fp8_weights + others + arena;
  }
};

struct StepForecast {
  RankMemory memory;
  Timeline time;
  int64_t samples = 0;  // of a rank
  int64_t tokens = 0;   // labels of a rank; 0: they have no sequence axis
  int64_t trained = 0;  // numbers, of all ranks together
  double peak = 0;      // operations per second that model_flops are a share of
  std::optional<MemoryFit> fit;  // with a limit of memory
  std::vector<std::string> notes;

  // In a second, for each GPU: ranks that divide the layers share the samples.
  double Speed(const Mesh& mesh) const {
    return static_cast<double>(tokens > 0 ? tokens : samples) /
           (time.step * static_cast<double>(mesh.tp));
  }
  // Share of the peak in operations of the model (Timeline::model_flops).
  double Mfu() const { return time.model_flops / (time.step * peak); }
};

// With a limit of memory, `auto` is the GPU's. If no step fits, the forecast is
// for the smallest one that the search has found, and a note says so. Data
// files of the model may be missing. If the ranks do not divide the batch, the
// forecast is for a rank with the largest share. Errors: an OptionError if an
// axis does not exist or has no size, or if there are fewer samples than ranks;
// errors of the import; errors of the passes.
StepForecast ForecastStep(const ForecastSpec& spec);

}  // namespace onnx_fp8
