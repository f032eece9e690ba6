// SPDX-License-Identifier: Apache-2.0
#include "cli/report/gpu_provider.h"

#include "base/check.h"
#include "training/make_provider.h"

namespace onnx_fp8 {

std::string ProviderForGpu(const OptionSet& flags) {
  if (flags.Has("provider")) return flags.Text("provider");
  return HasProvider("cuda") ? "cuda" : ProviderNames().front();
}

void NoteKernels(const std::string& provider, const std::string& gpu,
                 std::vector<std::string>& notes) {
  if (KernelsOf(provider).device != Device::kHost) return;
  notes.push_back(
      Concat("the forecast for ", gpu,
             " has the kernels and the plan of the provider ", provider,
             ", whose memory differs: `./dev build --cuda` builds the "
             "provider cuda"));
}

}  // namespace onnx_fp8
