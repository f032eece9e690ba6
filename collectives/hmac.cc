// SPDX-License-Identifier: Apache-2.0
#include "collectives/hmac.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "collectives/crypto_module.h"
#include "collectives/load_module.h"

namespace onnx_fp8 {
namespace {

constexpr Module kCrypto = {.name = "libcrypto",
                            .file = kCryptoModuleFile,
                            .function = kOpenCryptoModule,
                            .remedy =
                                "a build makes it if it finds OpenSSL "
                                "(Debian's libssl-dev)"};

const CryptoModule& Crypto() {
  static const CryptoModule module = [] {
    CryptoModule opened = {};
    reinterpret_cast<OpenCryptoModule>(LoadModule(kCrypto, ModuleFolders()))(
        &opened);
    return opened;
  }();
  return module;
}

}  // namespace

Code Hmac(std::string_view key, std::string_view text) {
  Code code = {};
  Check(Crypto().hmac_sha256(key.data(), key.size(), text.data(), text.size(),
                             code.data()),
        "[libcrypto] expected HMAC-SHA-256, got none");
  return code;
}

bool SameCode(const Code& a, const Code& b) {
  return Crypto().equal(a.data(), b.data());
}

Code RandomCode() {
  Code code = {};
  Check(getrandom(code.data(), code.size(), 0) ==
            static_cast<ssize_t>(code.size()),
        "[TCP] expected random bytes, got ", std::strerror(errno));
  return code;
}

}  // namespace onnx_fp8
