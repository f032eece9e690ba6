// SPDX-License-Identifier: Apache-2.0
#include "training/make_provider.h"

#include "base/check.h"
#include "collectives/load_module.h"
#include "onnx_fp8/option_error.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/math/isa.h"
#include "providers/cuda/cuda_provider.h"

namespace onnx_fp8 {
namespace {

std::unique_ptr<ExecutionProvider> MakeCpu(const ProviderOptions& options) {
  if (const char* choice = FirstChoice(options)) {
    throw OptionError(Concat(choice, ": expected the provider cuda, got cpu"));
  }
  if (options.timeline) {
    throw OptionError(
        "`timeline`: expected the provider cuda, got cpu, which does one node "
        "after the other: `profile` writes when each node ran");
  }
  return MakeCpuProvider();
}

struct Row {
  const char* name;
  std::unique_ptr<ExecutionProvider> (*make)(const ProviderOptions&);
  const KernelRegistry& (*kernels)();
  Device device;
};

constexpr Row kProviders[] = {
    {"cpu", MakeCpu, CpuKernels, Device::kHost},
    {"cuda", MakeCudaProvider, CudaKernels, Device::kProvider},
};

// Errors: there is no such provider.
const Row& RowOf(const std::string& name) {
  std::string known;
  for (const Row& row : kProviders) {
    if (name == row.name) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  Fail("[provider ", name, "] expected one of ", known);
}

}  // namespace

std::vector<std::string> ProviderNames() {
  std::vector<std::string> names;
  for (const Row& row : kProviders) names.push_back(row.name);
  return names;
}

bool HasProvider(const std::string& name) {
  try {
    RowOf(name).kernels();
    return true;
  } catch (const NoModule&) {
    return false;
  }
}

bool IsUsable(const std::string& name) {
  try {
    return HasProvider(name);
  } catch (const Error&) {
    return false;
  }
}

std::unique_ptr<ExecutionProvider> MakeProvider(
    const std::string& name, const ProviderOptions& options) {
  return RowOf(name).make(options);
}

ProviderKernels KernelsOf(const std::string& name) {
  const Row& row = RowOf(name);
  return {row.kernels(), row.device};
}

int64_t LossChunkBytes(int64_t chosen, const std::string& provider) {
  if (chosen >= 0) return chosen;
  bool on_host = RowOf(provider).device == Device::kHost;
  return int64_t{1} << (on_host ? 24 : 30);
}

std::vector<std::string> CpuIsaNames() {
  std::vector<std::string> names = {"auto"};
  for (Isa known : AllIsas()) names.push_back(Name(known));
  return names;
}

void Apply(const CpuSettings& settings) {
  bool hopper = settings.accumulate == "hopper";
  Check(hopper || settings.accumulate == "float32",
        "accumulate: expected float32 or hopper, got \"", settings.accumulate,
        "\"");
  ForceIsa(settings.isa);
  SetAccumulation(hopper ? Accumulation::kHopper : Accumulation::kFloat);
}

std::unique_ptr<Evaluator> MakeEvaluator() { return MakeCpuEvaluator(); }

}  // namespace onnx_fp8
