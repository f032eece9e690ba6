// SPDX-License-Identifier: Apache-2.0
//
// Optimizers as graph nodes; the formulas are in graph/schemas/optimizers.cc.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/stochastic_rounding.h"
#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/weight_uses.h"
#include "onnx_fp8/optimizer_spec.h"

namespace onnx_fp8 {

// The values of OptimizerSpec::kind.
std::vector<std::string> OptimizerNames();

// Errors: an unknown kind; a setting outside PyTorch's range, e.g. "expected
// beta1 in [0, 1), got 1".
void CheckOptimizer(const OptimizerSpec& spec);

// The weight decay of parameters that decay and have no group: the spec's, or
// the optimizer's own. Errors: an unknown kind.
double WeightDecayOf(const OptimizerSpec& spec);

// The values of MuonSettings::adjust_lr.
std::vector<std::string> RateAdjustments();

// The optimizer of the parameters that the spec's optimizer leaves to another
// one, which all tensors but matrices are among. "": it takes all.
std::string RestOf(const OptimizerSpec& spec);

// The values of OptimizerSpec::decay.
inline constexpr char kDecayOfAll[] = "all";
inline constexpr char kDecayOfMatrices[] = "matrices";
inline constexpr char kDecayOfLayers[] = "layers";

// The first group that fits a parameter with these names; null: none does.
const ParameterGroup* GroupOf(const OptimizerSpec& spec, const std::string& fqn,
                              const std::string& name);

// The weight decay of a parameter with these names, the shape `whole` and that
// use. Errors: as above.
double DecayOf(const OptimizerSpec& spec, const std::string& fqn,
               const std::string& name, const Shape& whole,
               WeightUse use = WeightUse::kLayer);

// Errors: a group that matches none of `names`, which are all names of the
// model's trained parameters. (A graph for some shapes may lack parameters.)
void CheckGroups(const OptimizerSpec& spec, const std::set<std::string>& names,
                 const std::string& file);

// x, like a part of a tensor → the whole tensor, or the reverse.
using PartFunction = std::function<Value*(Builder&, Value* x)>;

struct ParameterGradient {
  Value* param;     // an initializer of float or double
  Value* grad;      // of the same shape
  std::string fqn;  // for patterns and names
  // If the parameter is a part of a tensor: the axes of the mesh whose ranks
  // have the other parts.
  std::vector<std::string> divided_by = {};
  ElementPlaces places = {};  // of its elements in that tensor
  Shape whole = {};           // that tensor's; empty: the parameter is whole
  // Whether the part begins or ends within a block of kMomentBlock elements.
  bool cuts_blocks = false;
  WeightUse use = WeightUse::kLayer;  // in the model
  // Whether the graph holds the transpose of PyTorch's matrix.
  bool transposed = false;
  // Whether RestOf the spec updates it. Tensors that are no matrices need not
  // say so.
  bool of_rest = false;
  // If the parameter is a part and its optimizer needs the whole tensor.
  PartFunction to_whole = {}, to_part = {};
};

// The metadata of the first node that reads a gradient, which is its operand 0,
// where the update reads another direction: the parameter's name.
inline constexpr char kGradientOf[] = "gradient_of";

// Moments of all optimizers. Their state has the parameter's name, a dot and
// one of these.
inline constexpr char kExpAvg[] = "exp_avg";
inline constexpr char kExpAvgSq[] = "exp_avg_sq";
inline constexpr char kMomentumBuffer[] = "momentum_buffer";
inline constexpr const char* kMoments[] = {kExpAvg, kExpAvgSq, kMomentumBuffer};

// The moments that the optimizer, and RestOf it, keep of parameters. Errors: an
// unknown kind.
std::vector<std::string> MomentsOf(const OptimizerSpec& spec);

// The same of one parameter. `of_rest`: RestOf the spec updates it.
std::vector<std::string> MomentsOf(const OptimizerSpec& spec, bool of_rest);

// The values of OptimizerSpec::moments.
std::vector<std::string> MomentFormats();

// With spec.clip_previous, the state that holds the norm of the step before.
inline constexpr char kPreviousNorm[] = "optimizer.previous_norm";

// The scales of a moment that is kept as codes: state with the moment's name
// and this end.
inline constexpr char kMomentScale[] = ".scale";

// Whether the moments of a tensor of that shape are worth the scales of codes:
// it has rows of 32 elements or more, and 4,096 elements or more. (The scales
// of shorter rows would take more than an eighth of a byte per element.)
bool MayKeepCodes(const Shape& whole);

// The dtype that the spec wants for moments of parameters of that dtype: kE4M3
// for codes.
DType MomentFormat(const OptimizerSpec& spec, DType parameter);

// The dtype in which moments of the parameter are kept. kE4M3: as codes, with a
// float for each block (base/moment_codes.h).
DType MomentDType(const OptimizerSpec& spec,
                  const ParameterGradient& parameter);

// The wish for a state's name → the name that it gets.
using StateNames = std::function<std::string(const std::string&)>;

// A value of rank 0 → its sum over the ranks of these axes.
using SumOfParts = std::function<Value*(Builder&, Value*,
                                        const std::vector<std::string>& axes)>;

// The values that AppendOptimizer made, all of rank 0.
struct OptimizerValues {
  Value* lr;         // float input with default spec.lr
  Value* grad_norm;  // float: the 2-norm of all gradients, before clipping
  Value* finite;     // bool: the norm and all of `must_be_finite` are finite
  Value* ok;         // bool: finite, and the caller's condition holds
  Value* step;       // int64 state: updates done
  Value* skipped;    // int64 state: steps left out because ok was false
  // float: the largest |update| of an element, in units of the learning rate
  // (with its lr_scale), without decoupled weight decay: |m̂ / (sqrt(v̂) + eps)|
  // by the moments as the update computes them, before they are rounded. The
  // loss hides an exploding update, which rounded moments may cause, so it is
  // measured where spec.moments are not float32 and the optimizer keeps a mean
  // of squares. NaN counts as infinite. It is of this rank's parts; 0 in a step
  // that is not ok. Null: it is not measured.
  Value* update_amax = nullptr;
};

// Adds at the end of the graph: gradient norm, clipping (grad_scale = min(1,
// clip_norm / (norm + 1e-6)), PyTorch's clip_grad_norm_), one update node per
// parameter, moments as state (kMoments), counters (`optimizer.step`,
// `optimizer.skipped`) and the bindings of all of them and of the parameters.
// With spec.clip_previous the norm in grad_scale is state, kPreviousNorm. It
// takes the norm of each step that is ok and has a finite norm. While it is 0,
// grad_scale is 1. With spec.ema the averages of the parameters are state, too
// (ema.h). `names` are the names of this state; without them a name that the
// graph has is changed. A step that is not ok changes only `skipped`.
// `must_be_finite`: amaxes (float, never NaN); if one is infinite, the step is
// not ok. REQUIRES: concrete shapes. With spec.release_gradients the norm may
// be infinite or NaN, `must_be_finite` and `condition` alone decide, and an
// element whose gradient is not finite keeps its values; RunUpdatesEarly
// (early_updates.h) puts the nodes to their gradients. Errors: no parameters; a
// parameter that occurs twice or has another dtype. `loss_scale`: a float of
// rank 0. The caller has multiplied all gradients by it; grad_norm and the
// updates divide them by it. Null: the gradients are not scaled.
// `sum_of_parts`: needed if parameters are divided, so that the norm covers
// whole gradients. `condition`: a bool of rank 0; the step is not ok without
// it. Null: true. `seed`: the run's, which the state `optimizer.seed` (int64,
// 63 bits of it) keeps if moments or masters are rounded stochastically.
OptimizerValues AppendOptimizer(
    Graph& graph, const std::vector<ParameterGradient>& parameters,
    const OptimizerSpec& spec, const std::vector<Value*>& must_be_finite = {},
    Value* loss_scale = nullptr, const SumOfParts& sum_of_parts = {},
    const StateNames& names = {}, Value* condition = nullptr,
    uint64_t seed = 0);

}  // namespace onnx_fp8
