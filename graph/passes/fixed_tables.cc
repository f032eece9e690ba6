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
bool IsMask(const Value& value) {
  if (value.data.rank() < 2) return false;
  for (int64_t i = 0; i < value.data.dim(-1); ++i) {
    double x = DoubleAt(value.data, i);
    if (x <= -1e9 || std::isinf(x)) return true;
  }
  return false;
}

// Sines and cosines in one tensor.
bool IsEncoding(const Value& value) {
  int64_t n = value.data.size();
  if (value.data.rank() < 2 || value.data.dim(-1) % 2 != 0 || n == 0) {
    return false;
  }
  auto x = [&](int64_t i) { return DoubleAt(value.data, i); };
  double tolerance = Tolerance(value.dtype);
  int64_t half = value.data.dim(-1) / 2;
  auto upper = [&](int64_t i) { return i / half * 2 * half + i % half; };
  return OnUnitCircle(
             n / 2, tolerance, [&](int64_t i) { return x(2 * i); },
             [&](int64_t i) { return x(2 * i + 1); }) ||
         OnUnitCircle(
             n / 2, tolerance, [&](int64_t i) { return x(upper(i)); },
             [&](int64_t i) { return x(upper(i) + half); });
}

bool ArePair(const Value& a, const Value& b) {
  if (a.dtype != b.dtype) return false;
  return OnUnitCircle(
      a.data.size(), Tolerance(a.dtype),
      [&](int64_t i) { return DoubleAt(a.data, i); },
      [&](int64_t i) { return DoubleAt(b.data, i); });
}

}  // namespace

std::unordered_map<const Value*, std::string> FixedTables(const Graph& graph) {
  std::unordered_map<const Value*, std::string> found;
  // By shape and the square of the first element, so that a partner is found
  // without trying them all.
  std::map<Shape, std::multimap<double, const Value*>> single;
  for (const Value* value : graph.Initializers()) {
    if (!IsFloat(value->dtype) || value->data.size() < 8) {
      continue;
    }
    if (IsMask(*value)) {
      found[value] = "a mask";
    } else if (IsEncoding(*value)) {
      found[value] = "sines and cosines";
    } else {
      double first = DoubleAt(value->data, 0);
      auto& alike = single[value->data.shape()];
      double wanted = 1 - first * first, room = Tolerance(value->dtype);
      for (auto it = alike.lower_bound(wanted - room);
           it != alike.end() && it->first <= wanted + room; ++it) {
        if (!ArePair(*value, *it->second)) continue;
        found[value] = "sines and cosines, with " + it->second->name;
        found[it->second] = "sines and cosines, with " + value->name;
        break;
      }
      alike.emplace(first * first, value);
    }
  }
  return found;
}

}  // namespace onnx_fp8
