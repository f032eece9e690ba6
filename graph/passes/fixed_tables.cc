// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fixed_tables.h"

#include <cmath>
#include <map>
#include <vector>

namespace onnx_fp8 {
namespace {

// What rounding to the dtype may change of a² + b².
double Tolerance(DType dtype) {
  return dtype == DType::kFloat || dtype == DType::kDouble ? 1e-5
         : dtype == DType::kFloat16                        ? 4e-3
                                                           : 3e-2;
}

// True if element(i)² + other(i)² = 1 for all i below n.
template <typename F, typename G>
bool OnUnitCircle(int64_t n, double tolerance, F element, G other) {
  int64_t plain = 0;  // pairs without a 0
  for (int64_t i = 0; i < n; ++i) {
    double a = element(i), b = other(i);
    // Written so that NaN fails.
    if (!(std::fabs(a * a + b * b - 1) <= tolerance)) return false;
    plain += a != 0 && b != 0;
  }
  return n >= 8 && 2 * plain >= n;
}

// A mask hides something from its first row already; weights may be too large
// to be read whole.
bool IsMask(const Tensor& data) {
  if (data.rank() < 2) return false;
  for (int64_t i = 0; i < data.dim(-1); ++i) {
    double x = DoubleAt(data, i);
    if (x <= -1e9 || std::isinf(x)) return true;
  }
  return false;
}

// Sines and cosines in one tensor.
bool IsEncoding(const Tensor& data) {
  int64_t n = data.size();
  if (data.rank() < 2 || data.dim(-1) % 2 != 0 || n == 0) return false;
  auto x = [&](int64_t i) { return DoubleAt(data, i); };
  double tolerance = Tolerance(data.dtype());
  int64_t half = data.dim(-1) / 2;
  auto upper = [&](int64_t i) { return i / half * 2 * half + i % half; };
  return OnUnitCircle(
             n / 2, tolerance, [&](int64_t i) { return x(2 * i); },
             [&](int64_t i) { return x(2 * i + 1); }) ||
         OnUnitCircle(
             n / 2, tolerance, [&](int64_t i) { return x(upper(i)); },
             [&](int64_t i) { return x(upper(i) + half); });
}

bool ArePair(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) return false;
  return OnUnitCircle(
      a.size(), Tolerance(a.dtype()), [&](int64_t i) { return DoubleAt(a, i); },
      [&](int64_t i) { return DoubleAt(b, i); });
}

// The numbers along one axis if they are positive and fall and all rows are
// alike; else nothing.
std::vector<double> Falling(const Tensor& data) {
  std::vector<int64_t> strides = Strides(data.shape());
  for (int64_t axis = 0; axis < data.rank(); ++axis) {
    int64_t n = data.dim(axis), stride = strides[static_cast<size_t>(axis)];
    if (n < 2 || data.size() == 0) continue;
    std::vector<double> row;
    bool falls = true;
    for (int64_t i = 0; i < n && falls; ++i) {
      row.push_back(DoubleAt(data, i * stride));
      falls = row.back() > 0 && (i == 0 || row[row.size() - 2] > row.back());
    }
    for (int64_t i = 0; i < data.size() && falls; ++i) {
      falls = DoubleAt(data, i) == row[static_cast<size_t>(i / stride % n)];
    }
    if (falls) return row;
  }
  return {};
}

// Half types round a number by 1/256 at most.
bool AreFrequencies(const Tensor& data) {
  std::vector<double> row = Falling(data);
  if (row.size() < 4 || row.back() > row.front() / 10) return false;
  for (size_t i = 2; i < row.size(); ++i) {
    double wanted = row[i - 1] * row[1] / row[0];
    if (std::fabs(row[i] - wanted) > 0.01 * wanted) return false;
  }
  return true;
}

}  // namespace

bool AreFalling(const Tensor& tensor) { return !Falling(tensor).empty(); }

std::unordered_map<const Value*, std::string> FixedTables(
    const std::vector<HeldTensor>& tensors) {
  std::unordered_map<const Value*, std::string> found;
  // By shape and the square of the first element, so that a partner is found
  // without trying them all.
  std::map<Shape, std::multimap<double, const HeldTensor*>> single;
  for (const HeldTensor& tensor : tensors) {
    const auto& [value, data] = tensor;
    if (!IsFloat(data.dtype())) continue;
    if (AreFrequencies(data)) {
      found[value] = "frequencies";
    } else if (data.size() < 8) {
      continue;
    } else if (IsMask(data)) {
      found[value] = "a mask";
    } else if (IsEncoding(data)) {
      found[value] = "sines and cosines";
    } else {
      double first = DoubleAt(data, 0);
      auto& alike = single[data.shape()];
      double wanted = 1 - first * first, room = Tolerance(data.dtype());
      for (auto it = alike.lower_bound(wanted - room);
           it != alike.end() && it->first <= wanted + room; ++it) {
        const Value* other = it->second->value;
        if (!ArePair(data, it->second->data)) continue;
        found[value] = "sines and cosines, with " + other->name;
        found[other] = "sines and cosines, with " + value->name;
        break;
      }
      alike.emplace(first * first, &tensor);
    }
  }
  return found;
}

}  // namespace onnx_fp8
