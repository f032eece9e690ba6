// SPDX-License-Identifier: Apache-2.0
//
// Numbers of the ZIP format (PKWARE's APPNOTE.TXT), for its reader and writer.
#pragma once

#include <cstdint>

namespace onnx_fp8::zip {

// Signatures of records.
inline constexpr uint32_t kLocalHeader = 0x04034b50;
inline constexpr uint32_t kCentralHeader = 0x02014b50;
inline constexpr uint32_t kEnd = 0x06054b50;
inline constexpr uint32_t kEnd64 = 0x06064b50;
inline constexpr uint32_t kEnd64Locator = 0x07064b50;

inline constexpr uint16_t kZip64Extra = 0x0001;  // type of an extra field
inline constexpr uint32_t kIn64 = 0xffffffff;    // "see the zip64 field"

}  // namespace onnx_fp8::zip
