// SPDX-License-Identifier: Apache-2.0
//
// How the GEMMs of linear layers run in FP8. Only the passes that rewrite the
// graph read it (graph/fp8/fp8_rewrite.h); kernels never see a recipe.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

// Where the scale of a quantized tensor comes from.
enum class Scaling {
  kDynamic,  // from the amax of this very tensor
  kDelayed,  // from the amax history of earlier steps
  kStatic,   // given, and never changed
};

// Which elements share a scale.
enum class Granularity {
  kTensor,
  kRow,    // one vector along the contraction of the GEMM that reads it
  kBlock,  // `block` elements of that vector, or a square of them
};

enum class ScaleRounding {
  kNone,
  kPowerOfTwo,  // the scale rounds up: nothing saturates (MX: RCEIL)
  kFloor,       // MX: 2^(floor(log2(amax)) - emax), the largest may saturate
};

// One use of an operand by a GEMM.
struct OperandRecipe {
  bool high_precision = true;  // not quantized; the other fields have no effect
  DType dtype = DType::kE4M3;
  Scaling scaling = Scaling::kDynamic;
  Granularity granularity = Granularity::kTensor;
  int64_t block = 128;
  bool square = false;  // block x block, which a transposed operand can keep
  ScaleRounding rounding = ScaleRounding::kNone;

  auto operator<=>(const OperandRecipe&) const = default;
};

// An operand whose scales can't be transposed (rows, blocks that are not
// square) needs a second copy. This says where that copy comes from.
enum class Transposition {
  kHighPrecision,  // both are quantized from the tensor, which is kept
  kRequantize,     // from the first copy, decoded, in the backward
};

// The GEMMs of a layer read each of its three operands twice. The first uses
// come first, then the second uses in the same order.
enum class Use {
  kInput,               // forward = input weight^T
  kWeight,              // forward
  kGradOutput,          // dgrad = grad_output weight
  kInputForWgrad,       // wgrad = grad_output^T input
  kWeightForDgrad,      // dgrad
  kGradOutputForWgrad,  // wgrad
};
inline constexpr Use kFirstUses[] = {Use::kInput, Use::kWeight,
                                     Use::kGradOutput};
// REQUIRES: one of kFirstUses.
constexpr Use SecondUse(Use first) {
  return static_cast<Use>(static_cast<int>(first) + 3);
}

// A GEMM runs in high precision if both its operands are in high precision. The
// default is "off".
struct Recipe {
  std::array<OperandRecipe, 6> operands;  // by Use
  OperandRecipe& operator[](Use use) {
    return operands[static_cast<size_t>(use)];
  }
  const OperandRecipe& operator[](Use use) const {
    return operands[static_cast<size_t>(use)];
  }
  // Recorded for CUDA: sums that stay in the tensor cores' short accumulator.
  bool fast_accum_forward = false;
  bool fast_accum_dgrad = false;
  bool fast_accum_wgrad = false;
  Transposition transposition = Transposition::kHighPrecision;
  // Scales are stored as float8e8m0, not as float.
  bool e8m0_scales = false;
  // Delayed scaling: the number of steps whose amax is kept; whether the scale
  // comes from their maximum or from the newest; the scale is multiplied by
  // 2^margin. Scales move once per step, or with each micro-batch.
  int64_t amax_history = 16;
  bool most_recent = false;
  int64_t margin = 0;
  bool per_micro_batch = false;

  bool operator==(const Recipe&) const = default;
  bool enabled() const;  // at least one operand is quantized
  bool Uses(Scaling scaling) const;
};

struct RecipePreset {
  const char* name;
  const char* summary;
};

std::vector<RecipePreset> RecipePresets();
std::string RecipePresetNames();  // "off, tensorwise, …"

// REQUIRES: a name of RecipePresets.
Recipe PresetRecipe(const std::string& name);
bool IsRecipePreset(const std::string& name);

// Errors: impossible settings, each with `where` before it ("[recipe …]").
void CheckRecipe(const Recipe& recipe, const std::string& where);

// Notes for the user: what CUDA can't do, settings without an effect.
std::vector<std::string> RecipeNotes(const Recipe& recipe);

}  // namespace onnx_fp8
