// SPDX-License-Identifier: Apache-2.0
#include "tests/onnx_fp8/float8_tables.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "base/check.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {

Float8Table ReadFloat8Table(DType format) {
  std::string path =
      SourcePath(format == DType::kE4M3 ? "tests/onnx_fp8/float8_e4m3.bin"
                                        : "tests/onnx_fp8/float8_e5m2.bin");
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  constexpr size_t kFixed = 256 * 4 + 65536;
  Check(bytes.size() > kFixed && (bytes.size() - kFixed) % 5 == 0, "[", path,
        "] expected a table of generate_float8.py, got ", bytes.size(),
        " bytes");
  size_t n = (bytes.size() - kFixed) / 5;
  const char* at = bytes.data();
  auto take = [&](auto& to, size_t count) {
    to.resize(count);
    std::memcpy(to.data(), at, count * sizeof(to[0]));
    at += count * sizeof(to[0]);
  };
  Float8Table table;
  take(table.values, 256);
  take(table.of_bf16, 65536);
  take(table.near, n);
  take(table.of_near, n);
  return table;
}

bool IsNaNCode(DType format, uint8_t code) {
  return format == DType::kE4M3 ? (code & 0x7F) == 0x7F : (code & 0x7F) > 0x7C;
}

}  // namespace onnx_fp8
