// SPDX-License-Identifier: Apache-2.0
//
// Flags that several commands share, so that they mean the same in all. A
// struct holds the typed words, with the defaults; Make… converts them to the
// library's types.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/budget_flags.h"
#include "cli/flags.h"
#include "graph/fp8/gemm_decision.h"
#include "graph/passes/specialize.h"
#include "onnx_fp8/gemm_filter.h"
#include "onnx_fp8/schedule.h"
#include "onnx_fp8/session.h"
#include "training/make_provider.h"

namespace onnx_fp8 {

// --threads, --isa, --accumulate; every command has them.
struct MachineFlags {
  int64_t threads = 0;  // 0: AvailableCpus()
  CpuSettings cpu;

  void AddTo(Flags& flags);
  // Errors: UsageError for an instruction set that this machine lacks.
  void Apply() const;
};

// --recipe, the flags that belong to it, and --dtype.
struct RecipeFlags {
  std::string recipe = "off";
  std::vector<std::string> filter_fqns, include, exclude;
  std::vector<std::string> recipe_for;  // PATTERN=RECIPE
  std::string auto_filter;              // "h100" or a file
  std::string scales;                   // a file or the folder of a run
  std::string dtype = "float32";        // of all that is not FP8
  LossScaling loss_scaling;             // in float16

  void AddTo(Flags& flags);
  // Errors: UsageError for an impossible recipe; Error for a file that can't be
  // read.
  Recipe Make() const;
  GemmFilter MakeFilter() const;
  DType MakeDType() const;
  // Recipe, filter, scales and dtype of a session.
  void Fill(SessionOptions* options) const;
  // The same for a rewrite, with the scales read.
  Fp8Spec MakeSpec() const;
  // Replaces names of .json files by the recipes in them, and makes the path of
  // --auto-filter absolute.
  void Resolve(FlagMap* saved) const;

 private:
  // Errors: UsageError for scales that no layer uses.
  void CheckScales(const Recipe& recipe, const GemmFilter& filter) const;
};

// Whether any layer can have static scales.
bool UsesStatic(const Recipe& recipe, const GemmFilter& filter);

// --loss, --label, --logits and the options of single losses.
struct LossFlags {
  std::string loss, label = "labels", logits;
  std::string class_axis, ignore_index, label_smoothing, delta;
  std::vector<std::string> class_weights;  // numbers, or one file

  void AddTo(Flags& flags);
  // Errors: UsageError for an unknown kind or a word that is no number; Error
  // for a file that can't be read; CheckLossOptions'.
  LossSpec Make() const;
  // Replaces the file of --class-weights by its numbers.
  void Resolve(FlagMap* saved) const;
};

// --train, --freeze, --no-tie, --tie, --batch-norm.
struct ParameterFlags {
  std::vector<std::string> train, freeze, ties;
  bool no_tie = false;
  std::string batch_norm = "as-exported";

  void AddTo(Flags& flags);
  // Errors: UsageError for a word that is not A=B.
  void Fill(SessionOptions* options) const;
};

// --optimizer, --lr and the flags that belong to them.
struct OptimizerFlags {
  std::string optimizer = OptimizerSpec().kind;
  double lr = 1e-3;
  double weight_decay = 0;  // counts only if it was given
  double momentum = 0;
  double eps = 1e-8;
  double clip_norm = 0;
  bool nesterov = false;
  std::vector<std::string> betas = {"0.9", "0.999"};
  std::vector<std::string> groups;

  void AddTo(Flags& flags);
  // Errors: UsageError.
  OptimizerSpec Make(const Flags& flags) const;
};

// --provider, --tune, --nondeterministic of the commands that run nodes.
void AddProvider(Flags& flags, std::string* provider, ProviderOptions* options);

// --dump-passes of the commands that build graphs.
void AddDumpPasses(Flags& flags, std::string* folder);

// --loss-chunk of the commands that build steps.
void AddLossChunk(Flags& flags, int64_t* bytes);

// Flags that each fill in one field of the session's options.
void AddEngineFlags(Flags& flags, SessionOptions* options);

// --external-data of the commands that write models.
void AddExternalData(Flags& flags, bool* external_data);
void AddCheckpoint(Flags& flags, std::string* file);

// The flags of all commands with a session.
struct SessionFlags {
  LossFlags loss;
  ParameterFlags parameters;
  RecipeFlags recipe;
  SessionOptions engine;  // filled in by AddEngineFlags
  BudgetFlags budgets;

  void AddTo(Flags& flags);
  SessionOptions Make(const std::string& model) const;
};

// "batch=4", "seq=8" → sizes by axis name. Errors: UsageError.
std::map<std::string, int64_t> ParseShapeFlag(
    const std::vector<std::string>& words);

// The name that --shape uses for axis `i` of the input: its own, or INPUT.i
// without one.
std::string AxisName(const InputInfo& input, size_t i);

// Shapes of the graph's inputs with these axes filled in; other open axes stay
// -1. Errors: UsageError for an axis that no input has.
std::map<std::string, Shape> ResolveShapes(
    const std::vector<InputInfo>& inputs,
    const std::map<std::string, int64_t>& axes);

// --value.
void AddValueFlag(Flags& flags, std::vector<std::string>* words);

// "sr=16000", "causal=true" → values by name of input. Errors: UsageError.
InputValues ParseValueFlag(const std::vector<std::string>& words);

// The same values. Errors: a value without an input of one integer or bool.
InputValues ResolveValues(const std::vector<InputInfo>& inputs,
                          const InputValues& values);

}  // namespace onnx_fp8
