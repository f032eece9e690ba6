// SPDX-License-Identifier: Apache-2.0
#include "cli/report/text.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>

#include "base/printable.h"

namespace onnx_fp8 {
namespace {

// Number of code points of UTF-8.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool IsNumber(const std::string& cell) {
  return cell.find_first_not_of("0123456789.,-?") == std::string::npos;
}

}  // namespace

Table::Table(std::vector<std::string> header) {
  rows_.push_back(std::move(header));
}

void Table::Row(std::vector<std::string> cells) {
  assert(cells.size() == rows_[0].size());
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back(std::move(cells));
}

void Table::Print(std::ostream& out, size_t indent) const {
  size_t columns = rows_[0].size();
  std::vector<size_t> width(columns, 0);
  std::vector<bool> right(columns, rows_.size() > 1);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < columns; ++c) {
      width[c] = std::max(width[c], Width(rows_[r][c]));
      if (r > 0 && !IsNumber(rows_[r][c])) right[c] = false;
    }
  }
  for (const auto& row : rows_) {
    std::string line(indent, ' ');
    for (size_t c = 0; c < columns; ++c) {
      std::string pad(width[c] - Width(row[c]), ' ');
      line += right[c] ? pad + row[c] : row[c] + pad;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
}

std::string Number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string Fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string ByteText(size_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[64];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value,
                units[unit]);
  return text;
}

std::string Grouped(int64_t count) {
  std::string text = std::to_string(count);
  size_t first = count < 0 ? 1 : 0;
  for (size_t i = text.size(); i > first + 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

std::string DurationText(double seconds) {
  if (!(seconds < 3.15e7)) return "over a year";
  int64_t s = std::llround(seconds);
  char text[64];
  if (seconds < 9.95) {
    std::snprintf(text, sizeof text, "%.1f s", std::max(0.0, seconds));
  } else if (s < 60) {
    std::snprintf(text, sizeof text, "%d s", static_cast<int>(s));
  } else if (s < 3600) {
    std::snprintf(text, sizeof text, "%d min %02d s", static_cast<int>(s / 60),
                  static_cast<int>(s % 60));
  } else {
    std::snprintf(text, sizeof text, "%d h %02d min",
                  static_cast<int>(s / 3600), static_cast<int>(s / 60 % 60));
  }
  return text;
}

std::string NotFiniteText(const std::string& cause) {
  return cause + "; a step with such a batch would be skipped";
}

}  // namespace onnx_fp8
