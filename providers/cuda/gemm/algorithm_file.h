// SPDX-License-Identifier: Apache-2.0
//
// The algorithms that cuBLASLt chose, kept in a file for the next process. It
// may read them with the same version of the library on the same kind of device
// only. The file is a cache: one that is missing, cut off or foreign holds
// nothing, and one that can't be written is not written.
#pragma once

#include <cublasLt.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_fp8::cuda {

class AlgorithmFile {
 public:
  // `writer`: the version of the library and the device, in one line. `folder`
  // is made when it is needed; "": nothing is kept.
  AlgorithmFile(const std::string& folder, const std::string& writer);
  // Adds new algorithms to the file, which other processes may have extended.
  ~AlgorithmFile();
  AlgorithmFile(const AlgorithmFile&) = delete;
  AlgorithmFile& operator=(const AlgorithmFile&) = delete;

  // `product`: all that decides on the algorithm, in one line.
  std::optional<cublasLtMatmulAlgo_t> Find(const std::string& product) const;
  void Set(const std::string& product, const cublasLtMatmulAlgo_t& algorithm);

 private:
  using Algorithms = std::map<std::string, cublasLtMatmulAlgo_t, std::less<>>;

  Algorithms Read() const;

  std::string path_, heading_;
  Algorithms known_, added_;
};

// The user's folder for this program's caches, in XDG_CACHE_HOME or ~/.cache;
// "" if the environment names neither.
std::string CacheFolder();

}  // namespace onnx_fp8::cuda
