// SPDX-License-Identifier: Apache-2.0
#include "cli/report/gpu_provider.h"

#include "base/check.h"
#include "cli/flags.h"
#include "training/make_provider.h"

namespace onnx_fp8 {

std::string ProviderForGpu(const OptionSet& flags) {
  if (flags.Has("provider")) return flags.Text("provider");
  return HasProvider("cuda") ? "cuda" : ProviderNames().front();
}

void NoteKernels(const std::string& provider, const std::string& gpu,
                 std::vector<std::string>& notes) {
  if (KernelsOf(provider).device != Device::kHost) return;
  const char* remedy = IsUsable("cuda")
                           ? "`provider=cuda` has the kernels of a GPU"
                           : "`./dev build --cuda` builds the provider cuda";
  notes.push_back(
      InFlags(Concat("the forecast for ", gpu,
                     " has the kernels and the plan of the provider ", provider,
                     ", whose memory differs: ", remedy)));
}

}  // namespace onnx_fp8
