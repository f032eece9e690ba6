// SPDX-License-Identifier: Apache-2.0
//
// The functions of ONNX Runtime. Nothing links to it: the runtime that loads
// this library hands over a table of them.
#pragma once

#include <onnxruntime_c_api.h>

#include <exception>
#include <string>
#include <vector>

#include "base/check.h"

namespace onnx_fp8 {

// The first runtime whose plugin EPs have all that ours needs. Our structs have
// the layout of this version, whatever the header's is.
inline constexpr uint32_t kEpVersion = 23;
// The version of our custom ops, which older runtimes accept too.
inline constexpr uint32_t kCustomOpVersion = 19;

// Takes the table of kEpVersion, or of the runtime's own version if that is
// lower. Errors: the runtime is older than `least`.
void UseRuntime(const OrtApiBase& base, uint32_t least);

// The first version that has tensors of float8e8m0.
inline constexpr uint32_t kE8M0Version = 27;

// REQUIRES: UseRuntime was called.
const OrtApi& Ort();
uint32_t RuntimeVersion();  // 31 of "1.31.1"
// REQUIRES: the runtime has at least kEpVersion.
const OrtEpApi& OrtEps();

// Errors: the status is one.
void Must(OrtStatus* status);

// Whether the call succeeded; frees the status.
bool Succeeds(OrtStatus* status);

// The bytes of an attribute.
std::string AttributeBytes(const OrtOpAttr* attribute, OrtOpAttrType type);

OrtStatus* StatusOf(const std::exception& error) noexcept;

// Calls `f`; an exception becomes a status, because none may leave the library.
template <typename F>
OrtStatus* Guarded(F f) noexcept {
  try {
    f();
    return nullptr;
  } catch (const std::exception& error) {
    return StatusOf(error);
  }
}

// The list that a pair of functions of the runtime gives: its size, then its
// items.
template <typename Item, typename From>
std::vector<Item> ListOf(const From* from,
                         OrtStatus* (*size)(const From*, size_t*),
                         OrtStatus* (*items)(const From*, Item*, size_t)) {
  size_t count = 0;
  Must(size(from, &count));
  std::vector<Item> list(count);
  Must(items(from, list.data(), count));
  return list;
}

}  // namespace onnx_fp8
