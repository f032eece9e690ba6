// SPDX-License-Identifier: Apache-2.0
//
// Providers by name. This file is above the providers, so that none knows
// another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/evaluator.h"
#include "providers/provider.h"

namespace onnx_fp8 {

// Names of the providers of this build. The first is the default.
std::vector<std::string> ProviderNames();

// Errors: this build has no provider of that name; the message lists the names
// that it has.
std::unique_ptr<ExecutionProvider> MakeProvider(const std::string& name);

// Computes constants while a graph is built. It runs on the host, whichever
// provider runs the plan.
std::unique_ptr<Evaluator> MakeEvaluator();

}  // namespace onnx_fp8
