// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

namespace onnx_fp8 {

using Code = std::array<unsigned char, 32>;

// HMAC-SHA-256 (RFC 2104). The first call opens the module with libcrypto.
// Errors: there is none, or it fails.
Code Hmac(std::string_view key, std::string_view text);

// Compares in a time that says nothing about the codes.
bool SameCode(const Code& a, const Code& b);

// Fresh random bytes of the system. Errors: the system's.
Code RandomCode();

}  // namespace onnx_fp8
