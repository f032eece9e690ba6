// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace onnx_fp8 {

// The learning rate over a run. With steps t = 1 … T, warm-up W, base rate lr:
//   t <= W:  lr · t / W
//   t >  W:  p = (t - 1 - W) / (T - W), at most 1, and
//            constant  lr
//            linear    lr · (1 - p · (1 - min))
//            cosine    lr · (min + (1 - min) · (1 + cos(π p)) / 2)
//            wsd       lr · (1 - q · (1 - min)), q = (t - 1 - (T - D)) / D, at
//                      least 0: the rate stays until the last D steps. If W + D
//                      is more than T, D is T - W.
// Without warm-up, cosine is PyTorch's CosineAnnealingLR(T_max=T,
// eta_min=min·lr), and linear is its LinearLR(1, min, T): the first step has
// the full rate, and min = 0 would be reached one step after the last. Wsd
// (warm-up, stable, decay; MiniCPM, arXiv:2404.06395) is then transformers'
// get_wsd_schedule(decay_type="linear", num_decay_steps=D, min_lr_ratio=min).
struct Schedule {
  enum class Kind { kConstant, kLinear, kCosine, kWsd };
  Kind kind = Kind::kConstant;
  int64_t warmup = 0;  // steps
  int64_t decay = 0;   // steps, of wsd alone: at least 1
  double min = 0;      // final rate as a fraction of lr, 0 … 1
};

// "constant", "linear:warmup=100", "cosine:warmup=100,min=0.1",
// "wsd:warmup=100,decay=200,min=0.1". Errors: another kind or key, a value
// outside its range, wsd without decay; the message quotes the text.
Schedule ParseSchedule(std::string_view text);

// The inverse of ParseSchedule.
std::string ToString(const Schedule& schedule);

// The rate of step `step` (from 1) of `total`.
double LearningRate(const Schedule& schedule, double lr, int64_t step,
                    int64_t total);

}  // namespace onnx_fp8
