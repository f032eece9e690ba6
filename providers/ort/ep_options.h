// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/fp8/gemm_decision.h"
#include "onnx_fp8/session.h"
#include "providers/ort/kernel_context.h"
#include "providers/ort/ort_api.h"
#include "training/make_provider.h"

namespace onnx_fp8 {

inline constexpr char kEpName[] = "onnx_fp8";

struct EpOptions {
  // How plain MatMul and Gemm of the model run in FP8, and with which static
  // scales.
  Fp8Spec spec;
  // As SessionOptions::loss_chunk_bytes, so that a training step computes the
  // bits of a session.
  int64_t loss_chunk = SessionOptions().loss_chunk_bytes;
  Threads threads;
  // The provider that runs our nodes, as in make_provider.h.
  std::string device = ProviderNames().front();
};

// Reads the entries "ep.onnx_fp8.NAME" of the session. Errors: an unknown name,
// with the known ones; a value that does not fit; a recipe that moves scales
// from run to run; static scales without a recipe for them, or the reverse; a
// device whose provider this library lacks.
EpOptions ReadEpOptions(const OrtSessionOptions* session);

// The same from (NAME, value).
EpOptions ParseEpOptions(
    const std::vector<std::pair<std::string, std::string>>& entries);

// A message with options written as "[option ep.onnx_fp8.NAME]".
std::string InEpOptions(const std::string& message);

}  // namespace onnx_fp8
