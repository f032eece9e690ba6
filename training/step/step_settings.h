// SPDX-License-Identifier: Apache-2.0
//
// The options that a training step in a file was made with. They are decided:
// a session on the file takes them, and refuses others.
#pragma once

#include <map>
#include <string>

#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// All of them as text, by the name of the option. There is also `lr`, the
// default learning rate as a double, which any session may replace.
std::map<std::string, std::string> StepSettings(const SessionOptions& options);

// Replaces options by a step's options. An option counts as given if it is not
// the default, or if options->given names it. Errors: an option that was given
// otherwise than in the step; a text that is no such option. They begin with
// `what`, which says what the file is.
void TakeStepSettings(const std::map<std::string, std::string>& settings,
                      const std::string& what, SessionOptions* options);

// The default learning rate. The step's own is a float, `own`; the settings
// have the double that it was rounded from, unless somebody has changed one of
// them.
double DefaultRate(const std::map<std::string, std::string>& settings,
                   float own);

}  // namespace onnx_fp8
