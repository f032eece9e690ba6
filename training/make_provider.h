// SPDX-License-Identifier: Apache-2.0
//
// Providers by name. This file is above the providers, so that none knows
// another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/evaluator.h"
#include "onnx_fp8/provider_options.h"
#include "providers/provider.h"

namespace onnx_fp8 {

// Names of the providers. The first is the default.
std::vector<std::string> ProviderNames();

// Whether this build has the provider's kernels. The kernels of cuda lie in a
// library, which some builds lack. The machine needs no GPU for the answer.
// Errors: no provider has that name; the library is damaged, or belongs to
// another build.
bool HasProvider(const std::string& name);
// The same without errors: a damaged library is of no use.
bool IsUsable(const std::string& name);

// Errors: there is no provider of that name; the message lists the names. This
// build lacks the provider's library; the machine lacks its device.
// OptionError: the provider does not have one of the options.
std::unique_ptr<ExecutionProvider> MakeProvider(
    const std::string& name, const ProviderOptions& options = {});

// The kernels of a provider and the place of its memory, which decide a plan. A
// machine needs no device for them. Errors: MakeProvider's, but for the device.
struct ProviderKernels {
  const KernelRegistry& kernels;
  Device device;
};
ProviderKernels KernelsOf(const std::string& name);

// SessionOptions::loss_chunk_bytes for that provider. Errors: there is no such
// provider.
int64_t LossChunkBytes(int64_t chosen, const std::string& provider);

// Settings of the CPU's kernels. They hold for the whole process, because these
// kernels compute constants whichever provider runs the plan.
struct CpuSettings {
  std::string isa = "auto";            // one of CpuIsaNames()
  std::string accumulate = "float32";  // sums of FP8 products; or "hopper": as
                                       // a Hopper GPU rounds them, slowly
};

// "auto", which is the best one of this machine, and all instruction sets that
// this program knows.
std::vector<std::string> CpuIsaNames();

// REQUIRES: nothing is being computed. Errors: an unknown name; this machine
// lacks the instruction set.
void Apply(const CpuSettings& settings);

// Computes constants while a graph is built. It runs on the host, whichever
// provider runs the plan.
std::unique_ptr<Evaluator> MakeEvaluator();

}  // namespace onnx_fp8
