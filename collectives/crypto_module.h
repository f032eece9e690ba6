// SPDX-License-Identifier: Apache-2.0
//
// The C interface of libonnx_fp8_crypto.so, the only part that is linked with
// OpenSSL's libcrypto. hmac.h opens it. crypto_module.cc includes nothing else
// of ours.
#pragma once

#include <cstddef>

namespace onnx_fp8 {

struct CryptoModule {
  // HMAC-SHA-256 of `text`, 32 bytes. False: libcrypto has failed.
  bool (*hmac_sha256)(const void* key, size_t key_bytes, const void* text,
                      size_t text_bytes, unsigned char* code);
  // Whether two codes of 32 bytes are equal. The time says nothing about them.
  bool (*equal)(const unsigned char* a, const unsigned char* b);
};

using OpenCryptoModule = void (*)(CryptoModule* module);
inline constexpr char kOpenCryptoModule[] = "onnx_fp8_open_crypto";
inline constexpr char kCryptoModuleFile[] = "libonnx_fp8_crypto.so";

}  // namespace onnx_fp8
