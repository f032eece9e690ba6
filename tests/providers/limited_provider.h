// SPDX-License-Identifier: Apache-2.0
// A provider whose memory ends.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>

#include "providers/provider.h"

namespace onnx_fp8 {

// What a provider may give and has given, in bytes.
struct MemoryAccount {
  size_t limit = std::numeric_limits<size_t>::max();
  size_t used = 0, most_used = 0;
};

// The same provider, but an allocation that would exceed the account's limit is
// an error. Memory counts until it is freed.
std::unique_ptr<ExecutionProvider> MakeLimitedProvider(
    std::unique_ptr<ExecutionProvider> provider,
    std::shared_ptr<MemoryAccount> account);

}  // namespace onnx_fp8
