// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/ort_api.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "providers/ort/ep_options.h"

namespace onnx_fp8 {
namespace {

std::atomic<const OrtApi*> runtime = nullptr;
std::atomic<uint32_t> runtime_version = 0;

// 23 of "1.23.2"; 0 if the text is another one.
uint32_t MinorVersion(const std::string& text) {
  if (!text.starts_with("1.")) return 0;
  return static_cast<uint32_t>(std::strtoul(text.c_str() + 2, nullptr, 10));
}

}  // namespace

// A runtime prints a line for each version that it does not have, so its own is
// read first.
void UseRuntime(const OrtApiBase& base, uint32_t least) {
  std::string text = base.GetVersionString();
  uint32_t minor = MinorVersion(text);
  uint32_t version = std::min(minor, kEpVersion);
  const OrtApi* api = version >= least ? base.GetApi(version) : nullptr;
  Check(api != nullptr, "[onnxruntime ", text, "] expected version 1.", least,
        " or later");
  runtime = api;
  runtime_version = minor;
}

const OrtApi& Ort() { return *runtime; }

uint32_t RuntimeVersion() { return runtime_version; }

const OrtEpApi& OrtEps() { return *Ort().GetEpApi(); }

void Must(OrtStatus* status) {
  if (!status) return;
  std::string message = Ort().GetErrorMessage(status);
  Ort().ReleaseStatus(status);
  Fail(message);
}

bool Succeeds(OrtStatus* status) {
  if (status) Ort().ReleaseStatus(status);
  return !status;
}

// The runtime tells their number by an error.
std::string AttributeBytes(const OrtOpAttr* attribute, OrtOpAttrType type) {
  size_t bytes = 0;
  Succeeds(Ort().ReadOpAttr(attribute, type, nullptr, 0, &bytes));
  std::string data(bytes, '\0');
  if (bytes == 0) return data;
  Must(Ort().ReadOpAttr(attribute, type, data.data(), bytes, &bytes));
  data.resize(bytes);
  return data;
}

OrtStatus* StatusOf(const std::exception& error) noexcept {
  return Ort().CreateStatus(ORT_FAIL, InEpOptions(error.what()).c_str());
}

}  // namespace onnx_fp8
