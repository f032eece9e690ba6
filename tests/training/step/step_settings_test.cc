// SPDX-License-Identifier: Apache-2.0
#include "training/step/step_settings.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace onnx_fp8 {
namespace {

// A step of a version that had no Muon, no averages and no other moments.
TEST(StepSettings, OlderStepsLackNewerOnes) {
  std::map<std::string, std::string> settings = StepSettings({});
  for (const char* newer :
       {"muon_for", "muon_nesterov", "adjust_lr_fn", "ns_steps",
        "ns_coefficients", "ema", "moments", "master", "decay"}) {
    EXPECT_EQ(settings.erase(newer), 1u) << newer;
  }
  SessionOptions options;
  EXPECT_NO_THROW(TakeStepSettings(settings, "an older step", &options));
  options.optimizer.ema = 0.9;
  EXPECT_ANY_THROW(TakeStepSettings(settings, "an older step", &options));
}

}  // namespace
}  // namespace onnx_fp8
