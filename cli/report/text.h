// SPDX-License-Identifier: Apache-2.0
//
// Text for people.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace onnx_fp8 {

// Columns as wide as their widest cell, numbers to the right; made Printable.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // REQUIRES: as many cells as the header has.
  void Row(std::vector<std::string> cells);
  // `indent` spaces before each line.
  void Print(std::ostream& out, size_t indent = 2) const;
  bool empty() const { return rows_.size() == 1; }

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Like printf's %.*g.
std::string Number(double value, int digits = 5);
// Like printf's %.*f.
std::string Fixed(double value, int decimals);

// "1.50 MiB", "312 B".
std::string ByteText(size_t bytes);

// "1234567" → "1,234,567".
std::string Grouped(int64_t count);

// What to say of the cause of an EvalResult or a GradientResult.
std::string NotFiniteText(const std::string& cause);

// "42 s", "3 min 20 s", "2 h 05 min".
std::string DurationText(double seconds);

}  // namespace onnx_fp8
