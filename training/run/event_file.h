// SPDX-License-Identifier: Apache-2.0
//
// The files that TensorBoard reads: scalars by tag and step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/growing_file.h"
#include "training/run/metrics.h"

namespace onnx_fp8 {

// CRC-32C: Castagnoli's polynomial (RFC 3720, appendix B.4).
uint32_t Crc32c(std::string_view bytes);

// `data` as a record of a TFRecord file: with its length, and a checksum of
// each.
std::string TfRecord(std::string_view data);

// Errors: `folder` is no folder, and can't become one; this process may not
// write there.
void CheckEventFolder(const std::string& folder);

// A new file in a folder of TensorBoard, for one start of a run. Its tags and
// numbers: docs/formats.md.
class EventFile {
 public:
  // Makes the folder, unless it exists. The name of the file sorts behind the
  // folder's other files of events, in whose order TensorBoard reads them. It
  // then drops what they say about steps beyond `last_step`. Errors: the
  // folder, the file.
  EventFile(const std::string& folder, int64_t last_step);

  // Errors: the disk, naming the file.
  void Append(const StepMetrics& metrics);
  void Append(const ValidationMetrics& metrics);
  void Append(const CastMetrics& metrics);

  // Brings all events to the device. Errors: the disk.
  void Sync() { file_.Sync(); }

 private:
  using Scalars = std::vector<std::pair<std::string, double>>;

  void Append(int64_t step, const Scalars& scalars);

  GrowingFile file_;
  std::string head_;  // the first records, until they are written
};

}  // namespace onnx_fp8
