// SPDX-License-Identifier: Apache-2.0
//
// Turns the options of a host into the library's types. REQUIRES: the set
// declares the options that a function reads. Errors: OptionError for values
// that do not fit; Error for files that can't be read.
#pragma once

#include <string>
#include <vector>

#include "base/check.h"
#include "collectives/mesh.h"
#include "graph/fp8/gemm_decision.h"
#include "onnx_fp8/dataset.h"
#include "onnx_fp8/early_stop.h"
#include "onnx_fp8/option_names.h"
#include "onnx_fp8/schedule.h"
#include "onnx_fp8/session.h"
#include "training/run/option.h"

namespace onnx_fp8 {

// Runs `read`. Its Error becomes an OptionError that begins with the option.
template <typename F>
auto Blame(const char* option, F&& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw OptionError(Concat(Reference(option), ": ", error.what()));
  }
}

// Sets the number of threads and the CPU's kernels of this process.
void ApplyMachine(const OptionSet& options);

// The group "Recipe" without `scales`.
Recipe RecipeOf(const OptionSet& options);
GemmFilter FilterOf(const OptionSet& options);
DType PrecisionOf(const std::string& dtype);
// With the scales that the option `scales` names.
Fp8Spec SpecOf(const OptionSet& options);
// Whether any layer can have static scales.
bool UsesStatic(const Recipe& recipe, const GemmFilter& filter);

// The groups "Loss" and "Loss options".
LossSpec LossOf(const OptionSet& options);
// The numbers of `class_weights`, which may name a file.
std::vector<float> ClassWeightsOf(const OptionSet& options);
OptimizerSpec OptimizerOf(const OptionSet& options);
Budgets BudgetsOf(const OptionSet& options);
ProviderOptions ProviderOptionsOf(const OptionSet& options);
DataOptions DataOf(const OptionSet& options);
// One for each item of `data`; empty: not given. Errors: OptionError.
std::vector<double> DataWeightsOf(const OptionSet& options);
Schedule ScheduleOf(const OptionSet& options);
EarlyStop EarlyStopOf(const OptionSet& options);
// The number of `watch=spike=X`; 0: not given.
double SpikeOf(const OptionSet& options);

// The group "Ranks".
Mesh MeshOf(const std::string& mesh);
// Errors: OptionError for an option that this mesh leaves without effect.
void CheckRanks(const OptionSet& options);
// Whether a rank holds only a part of the parameters or of their moments.
bool DividesState(const OptionSet& options);

// All options of a session that the set declares, among them the group
// "Recipe"; others keep their defaults.
SessionOptions SessionOptionsOf(const OptionSet& options,
                                const std::string& model);

}  // namespace onnx_fp8
