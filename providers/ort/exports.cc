// SPDX-License-Identifier: Apache-2.0
//
// The three functions that libonnx_fp8_ort.so exports.
#include "providers/ort/custom_ops.h"
#include "providers/ort/ep.h"
#include "providers/ort/ort_api.h"

namespace onnx_fp8 {
namespace {

// Also says why a runtime can't be used, whose table we do not have.
template <typename F>
OrtStatus* WithRuntime(const OrtApiBase* base, uint32_t least, F f) noexcept {
  try {
    UseRuntime(*base, least);
    f();
    return nullptr;
  } catch (const std::exception& error) {
    return base->GetApi(1)->CreateStatus(ORT_FAIL, error.what());
  }
}

}  // namespace
}  // namespace onnx_fp8

extern "C" {

__attribute__((visibility("default"))) OrtStatus* CreateEpFactories(
    const char* /*registered_name*/, const OrtApiBase* base,
    const OrtLogger* /*logger*/, OrtEpFactory** factories, size_t most,
    size_t* count) {
  using namespace onnx_fp8;
  return WithRuntime(base, kEpVersion, [&] {
    Check(most >= 1, "expected room for 1 factory, got none");
    factories[0] = MakeEpFactory();
    *count = 1;
  });
}

__attribute__((visibility("default"))) OrtStatus* ReleaseEpFactory(
    OrtEpFactory* factory) {
  onnx_fp8::DeleteEpFactory(factory);
  return nullptr;
}

__attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(
    OrtSessionOptions* session, const OrtApiBase* base) {
  using namespace onnx_fp8;
  return WithRuntime(base, kCustomOpVersion, [&] { AddCustomOps(session); });
}

}  // extern "C"
