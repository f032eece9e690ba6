// SPDX-License-Identifier: Apache-2.0
//
// A heading and a line for each product:
//   <CRC-32 of what follows> <64 bytes of the algorithm in hex> <product>
#include "providers/cuda/gemm/algorithm_file.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/input_file.h"

namespace onnx_fp8::cuda {
namespace {

constexpr size_t kBytes = sizeof(cublasLtMatmulAlgo_t);
constexpr size_t kCrcDigits = 8;
// More would be no file of ours.
constexpr uint64_t kMostFileBytes = uint64_t{16} << 20;

std::string HexOf(const cublasLtMatmulAlgo_t& algorithm) {
  unsigned char bytes[kBytes];
  std::memcpy(bytes, &algorithm, kBytes);
  std::string text;
  for (unsigned char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// REQUIRES: 2 · kBytes characters.
std::optional<cublasLtMatmulAlgo_t> AlgorithmOf(std::string_view hex) {
  unsigned char bytes[kBytes];
  for (size_t i = 0; i < kBytes; ++i) {
    int high = DigitOf(hex[2 * i]), low = DigitOf(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<unsigned char>(high * 16 + low);
  }
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(&algorithm, bytes, kBytes);
  return algorithm;
}

std::string Line(const std::string& product,
                 const cublasLtMatmulAlgo_t& algorithm) {
  std::string rest = HexOf(algorithm) + " " + product;
  return Hex(Crc32(rest.data(), rest.size())) + " " + rest + "\n";
}

// "" if the file can't be read, or is none of ours.
std::string ContentOf(const std::string& path) {
  try {
    InputFile file(path);
    if (file.size() > kMostFileBytes) return "";
    std::string text(file.size(), '\0');
    file.Read(text.data(), text.size(), 0);
    return text;
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

AlgorithmFile::AlgorithmFile(const std::string& folder,
                             const std::string& writer)
    : heading_("Algorithms of " + writer) {
  if (folder.empty()) return;
  char name[40];
  std::snprintf(name, sizeof name, "/cublaslt_%016llx.txt",
                static_cast<unsigned long long>(Hash(writer)));
  path_ = folder + name;
  known_ = Read();
}

AlgorithmFile::~AlgorithmFile() {
  if (path_.empty() || added_.empty()) return;
  try {
    Algorithms all = added_;
    all.merge(Read());  // what others have written since
    std::string text = heading_ + "\n";
    for (const auto& [product, algorithm] : all) {
      text += Line(product, algorithm);
    }
    MakeDirectories(path_.substr(0, path_.rfind('/')));
    WriteFileAtomically(path_, text);
  } catch (const Error&) {  // the next process asks cuBLASLt again
  }
}

AlgorithmFile::Algorithms AlgorithmFile::Read() const {
  std::istringstream lines(ContentOf(path_));
  std::string line;
  if (!std::getline(lines, line) || line != heading_) return {};
  Algorithms all;
  constexpr size_t kHex = kCrcDigits + 1, kProduct = kHex + 2 * kBytes + 1;
  while (std::getline(lines, line)) {
    if (line.size() <= kProduct) continue;
    std::string_view rest = std::string_view(line).substr(kHex);
    bool whole =
        line.substr(0, kCrcDigits) == Hex(Crc32(rest.data(), rest.size()));
    auto algorithm = AlgorithmOf(rest.substr(0, 2 * kBytes));
    if (whole && algorithm) all[line.substr(kProduct)] = *algorithm;
  }
  return all;
}

std::optional<cublasLtMatmulAlgo_t> AlgorithmFile::Find(
    const std::string& product) const {
  auto found = known_.find(product);
  if (found == known_.end()) return std::nullopt;
  return found->second;
}

std::string CacheFolder() {
  for (const auto& [name, below] : {std::pair{"XDG_CACHE_HOME", "/onnx_fp8"},
                                    {"HOME", "/.cache/onnx_fp8"}}) {
    const char* folder = std::getenv(name);
    if (folder && folder[0] == '/') return std::string(folder) + below;
  }
  return "";
}

void AlgorithmFile::Set(const std::string& product,
                        const cublasLtMatmulAlgo_t& algorithm) {
  added_[product] = algorithm;
}

}  // namespace onnx_fp8::cuda
