// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace onnx_fp8 {

// Settings for the parameters whose FQN matches a glob (fnmatch); the first
// group that matches counts.
struct ParameterGroup {
  std::string pattern;
  std::optional<double> weight_decay;
  std::optional<double> lr_scale;  // multiplies the learning rate
};

// Settings of Muon alone; formulas and defaults are torch.optim.Muon's.
struct MuonSettings {
  double momentum = 0.95;
  bool nesterov = true;
  // The numbers a, b and c of the iteration x = a·x + (b·g + c·g²)·x with
  // g = x·xᵀ, which makes all singular values about 1; the number of its steps;
  // and the least norm by which its first x is divided.
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};
  int64_t steps = 5;
  double eps = 1e-7;
  // What a matrix of PyTorch's shape (A, B) multiplies the learning rate by:
  // "original", sqrt(max(1, A / B)), or "match_rms_adamw", 0.2·sqrt(max(A, B)).
  std::string adjust_lr = "original";
  // Globs of the matrices that it updates. Empty: the ones of hidden layers
  // (training/step/hidden_matrices.h).
  std::vector<std::string> only = {};
};

// Hyper-parameters; formulas and defaults are PyTorch's.
struct OptimizerSpec {
  std::string kind = "adamw";  // name of a row in optimizers/*.cc
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  // Unset: the value in the optimizer's row.
  std::optional<double> weight_decay;
  // The parameters that it is for: "all"; "matrices", which have two axes or
  // more (scales of norms and biases have one, but biases of ONNX's recurrent
  // ops and scales of norms over several axes have more); or "layers", the
  // matrices and filters that products, convolutions and recurrent layers read,
  // by graph/weight_uses.h, so neither norms nor biases nor embeddings. Where a
  // group has a weight_decay, it counts instead.
  std::string decay = "all";
  double momentum = 0;  // SGD
  bool nesterov = false;
  MuonSettings muon = {};
  double clip_norm = 0;  // by global norm; 0: no clipping
  // Whether the norm of the step before decides how much is clipped. The first
  // step is not clipped. Needs clip_norm above 0.
  bool clip_previous = false;
  // Whether a parameter is updated as soon as its gradient is known, so that
  // the gradient's memory is free at once. The step is skipped if the loss or
  // an amax of the forward is not finite. After that, elements whose gradient
  // is not finite keep their values. Needs clip_norm 0 or clip_previous.
  bool release_gradients = false;
  // How the moments of float parameters are kept: "float32", "bfloat16" or
  // "fp8". An update reads them as floats, and its new moments are rounded
  // after it: a mean of squares stochastically, by draws from the run's seed,
  // the number of the update, the tensor's name and the element's place, others
  // to the nearest. Double parameters have double moments. With "fp8" a block
  // of 128 elements of a row has a scale; vectors, tensors of fewer than 4,096
  // elements or with rows of fewer than 32, and parts of ranks that cut a block
  // keep floats.
  std::string moments = "float32";
  // How trained float weights are kept: "float32"; "bfloat16", rounded
  // stochastically after each update; "split8" and "split", a bfloat16 and a
  // correction of 8 or 16 bits, of which the latter restores the float.
  // Products read the weight as a float or, rounded to bfloat16, its bfloat16.
  // Double weights, scalars and weights that a subgraph reads stay as they are.
  std::string master = "float32";
  // The decay of an exponential moving average (EMA) of each trained weight,
  // which the state keeps beside the weight, in its dtype; 0: none. Updates
  // whose number `ema_every` divides move it: average += (1 - ema)·(w -
  // average), where w is the updated weight before it is rounded to `master`.
  // The first of them copies w, as PyTorch's AveragedModel does.
  double ema = 0;
  int64_t ema_every = 1;
  std::vector<ParameterGroup> groups;
};

}  // namespace onnx_fp8
