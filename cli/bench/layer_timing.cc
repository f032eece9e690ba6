// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/layer_timing.h"

#include <malloc.h>

#include <algorithm>

#include "base/temporary_folder.h"
#include "cli/bench/random_tensor.h"
#include "cli/bench/resident_layer.h"
#include "training/make_provider.h"

namespace onnx_fp8 {
namespace {

bool UsesDelayed(const SessionOptions& options) {
  return options.recipe.Uses(Scaling::kDelayed) ||
         std::ranges::any_of(options.filter.recipes, [](const auto& own) {
           return own.second.Uses(Scaling::kDelayed);
         });
}

// A run returns gradients in new memory, and the system takes as long to clear
// it as a product takes. Training keeps it, so here the C library keeps what a
// run frees.
void KeepFreedMemory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

RivalTimes TimeSessions(const SessionOptions& options, const Tensor& x,
                        double seconds, const std::function<void()>& after) {
  KeepFreedMemory();
  auto first = TrainingSession::Create(HighPrecision(options));
  auto second = TrainingSession::Create(options);
  TensorMap feeds = {{kLayerInput, x}};
  // Delayed scales exist from the first step on. It leaves the weight as it is.
  if (UsesDelayed(options)) second->Step(feeds, 0);
  return TimesByTurns([&] { first->Gradients(feeds, true); },
                      [&] { second->Gradients(feeds, true); }, seconds, after);
}

}  // namespace

SessionOptions HighPrecision(SessionOptions options) {
  options.recipe = Recipe();
  options.filter = {};
  options.scales.clear();
  return options;
}

RivalTimes TimeLayer(Surroundings surroundings, const ProductSize& size,
                     const SessionOptions& options, double seconds,
                     const std::function<void()>& after) {
  TemporaryFolder folder;
  SessionOptions fp8 =
      LayerOptions(options, surroundings, size, folder / "layer.onnx");
  Tensor x = RandomTensor({size.m, size.k}, DType::kFloat, 2);
  auto provider = MakeProvider(options.provider, options.provider_options);
  if (provider->device() == Device::kHost) {
    return TimeSessions(fp8, x, seconds, after);
  }
  ResidentLayer first(HighPrecision(fp8), x, *provider);
  ResidentLayer second(fp8, x, *provider);
  return TimesByTurns([&] { first.Run(); }, [&] { second.Run(); }, seconds,
                      after);
}

}  // namespace onnx_fp8
