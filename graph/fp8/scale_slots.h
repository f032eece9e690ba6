// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/recipe.h"

namespace onnx_fp8 {

// Names of the state tensors that hold kept scales, in graphs and checkpoints.
inline constexpr char kScaleState[] = "fp8.scale";
inline constexpr char kHistoryState[] = "fp8.amax_history";

// One scale that is kept from step to step, delayed or static. Key() names its
// tensor. Resume, evaluation and recipe switches find a scale by its key, never
// by its position in the state tensors.
struct ScaleSlot {
  std::string fqn;
  std::string gemm;     // the first GEMM that reads it under the recipe
  std::string operand;  // "input", "weight" or "grad_output"
  DType format = DType::kE4M3;
  int64_t occurrence = 0;  // a layer that runs several times has several inputs
  Scaling scaling = Scaling::kDelayed;
  float scale = 0;        // static: the scale
  Value* amax = nullptr;  // of this step, rank 0; null: nothing moves it

  std::string Key() const;
  std::string Label() const;  // for people: "blocks.0.fc.weight forward input"
};

// Scales for static scaling.
struct StaticScales {
  std::string source;  // the file, for messages; "": there is none
  std::map<std::string, float> by_key;
};

// The slots as JSON, for a file's metadata and checkpoints, and back.
std::string SlotsText(const std::vector<ScaleSlot>& slots);
std::vector<ScaleSlot> ParseSlots(const std::string& text);

bool AnyDelayed(const std::vector<ScaleSlot>& slots);

}  // namespace onnx_fp8
