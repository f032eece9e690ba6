// SPDX-License-Identifier: Apache-2.0
#include "collectives/crypto_module.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace onnx_fp8 {
namespace {

constexpr size_t kCodeBytes = 32;

bool HmacSha256(const void* key, size_t key_bytes, const void* text,
                size_t text_bytes, unsigned char* code) {
  unsigned length = 0;
  return HMAC(EVP_sha256(), key, static_cast<int>(key_bytes),
              static_cast<const unsigned char*>(text), text_bytes, code,
              &length) != nullptr &&
         length == kCodeBytes;
}

bool Equal(const unsigned char* a, const unsigned char* b) {
  return CRYPTO_memcmp(a, b, kCodeBytes) == 0;
}

void Open(CryptoModule* module) {
  // No file of the machine decides which code computes.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  module->hmac_sha256 = HmacSha256;
  module->equal = Equal;
}

}  // namespace
}  // namespace onnx_fp8

extern "C" __attribute__((visibility("default"))) void onnx_fp8_open_crypto(
    onnx_fp8::CryptoModule* module) {
  onnx_fp8::Open(module);
}
