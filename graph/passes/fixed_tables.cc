// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fixed_tables.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <map>
#include <numbers>
#include <optional>
#include <vector>

namespace onnx_fp8 {
namespace {

// Some of the elements, from all parts of the tensor.
Tensor Sample(const Tensor& data) {
  int64_t n = std::min<int64_t>(data.size(), 64);
  std::vector<double> some;
  for (int64_t i = 0; i < n; ++i) {
    some.push_back(DoubleAt(data, i * data.size() / n));
  }
  return Tensor::From({n}, some);
}

bool Holds(DType dtype, const Tensor& numbers) {
  Tensor rounded = ConvertTo(numbers, dtype);
  for (int64_t i = 0; i < numbers.size(); ++i) {
    if (DoubleAt(rounded, i) != DoubleAt(numbers, i)) return false;
  }
  return true;
}

// How far rounding may have moved a² + b² from 1. The numbers themselves tell
// whether they were rounded to a half type: such models compute in float.
double Tolerance(const Tensor& data) {
  Tensor sample = Sample(data);
  return Holds(DType::kBFloat16, sample)  ? 3e-2
         : Holds(DType::kFloat16, sample) ? 4e-3
                                          : 1e-5;
}

// A grid of pairs: cosines and sines, or the other way round.
struct Pairs {
  Shape shape;
  std::function<double(int64_t)> first, second;

  int64_t size() const { return NumElements(shape); }
};

bool OnUnitCircle(const Pairs& pairs, double tolerance) {
  int64_t n = pairs.size(), plain = 0;  // pairs without a 0
  for (int64_t i = 0; i < n; ++i) {
    double a = pairs.first(i), b = pairs.second(i);
    // Written so that NaN fails.
    if (!(std::fabs(a * a + b * b - 1) <= tolerance)) return false;
    plain += a != 0 && b != 0;
  }
  return n >= 8 && 2 * plain >= n;
}

// How far the fastest pair turns along the axis, in turns, if each pair turns
// by the same angle from step to step; else 0.
double TurnsAlong(const Pairs& pairs, int64_t axis, double tolerance) {
  using Complex = std::complex<double>;
  int64_t n = pairs.shape[static_cast<size_t>(axis)];
  int64_t stride = Strides(pairs.shape)[static_cast<size_t>(axis)];
  auto at = [&](int64_t i) { return Complex(pairs.first(i), pairs.second(i)); };
  double fastest = 0;
  for (int64_t begin = 0; begin < pairs.size(); ++begin) {
    if (begin / stride % n != 0) continue;
    Complex step = at(begin + stride) * std::conj(at(begin));
    fastest = std::max(fastest, std::fabs(std::arg(step)));
    for (int64_t i = 1; i + 1 < n; ++i) {
      Complex next = at(begin + (i + 1) * stride);
      if (std::abs(next - at(begin + i * stride) * step) > tolerance) return 0;
    }
  }
  return fastest * static_cast<double>(n - 1) / (2 * std::numbers::pi);
}

// Nothing if the pairs are no sines and cosines of positions.
std::optional<FixedTable::Proof> Turn(const Pairs& pairs, double tolerance) {
  constexpr int64_t kSteps = 8, kManySteps = 16;
  constexpr double kTurns = 1, kManyTurns = 3;
  if (pairs.size() == 0 || !OnUnitCircle(pairs, tolerance)) return {};
  // The angles of far positions are rounded to float: 8e-3 at 131072.
  double room = 0.02 + 4 * tolerance;
  std::optional<FixedTable::Proof> best;
  for (int64_t axis = 0; axis < static_cast<int64_t>(pairs.shape.size());
       ++axis) {
    int64_t n = pairs.shape[static_cast<size_t>(axis)];
    if (n < kSteps) continue;
    double turns = TurnsAlong(pairs, axis, room);
    if (turns >= kManyTurns && n >= kManySteps) return FixedTable::kTable;
    if (turns >= kTurns) best = FixedTable::kHint;
  }
  return best;
}

// The first row of a mask already hides something. (Weights may be too large to
// be read whole.)
bool IsMask(const Tensor& data) {
  if (data.rank() < 2) return false;
  for (int64_t i = 0; i < data.dim(-1); ++i) {
    double x = DoubleAt(data, i);
    if (x <= -1e9 || std::isinf(x)) return true;
  }
  return false;
}

// Sines and cosines in one tensor: neighbors, or halves of the last axis.
std::optional<FixedTable::Proof> IsEncoding(const Tensor& data) {
  if (data.rank() < 2 || data.dim(-1) % 2 != 0) return {};
  auto x = [&](int64_t i) { return DoubleAt(data, i); };
  double tolerance = Tolerance(data);
  Shape shape = data.shape();
  shape.back() /= 2;
  int64_t half = shape.back();
  auto upper = [=](int64_t i) { return i / half * 2 * half + i % half; };
  auto neighbors = Turn({shape, [=](int64_t i) { return x(2 * i); },
                         [=](int64_t i) { return x(2 * i + 1); }},
                        tolerance);
  if (neighbors) return neighbors;
  return Turn({shape, [=](int64_t i) { return x(upper(i)); },
               [=](int64_t i) { return x(upper(i) + half); }},
              tolerance);
}

std::optional<FixedTable::Proof> ArePair(const Tensor& a, const Tensor& b) {
  double tolerance = std::max(Tolerance(a), Tolerance(b));
  return Turn({a.shape(), [&](int64_t i) { return DoubleAt(a, i); },
               [&](int64_t i) { return DoubleAt(b, i); }},
              tolerance);
}

// Row k of the first half of the rows is w · cos(2πk i / n), and the same row
// of the second half is w · sin or its opposite. The window w is the row of
// frequency 0.
bool IsFourierBasis(const Tensor& data) {
  int64_t n = data.rank() < 2 ? 0 : data.dim(-1);
  if (n < 8 || data.size() % (2 * n) != 0) return false;
  int64_t rows = data.size() / n / 2;
  if (rows < 4 || rows > n / 2 + 1) return false;
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::fabs(DoubleAt(data, i)));
  }
  if (largest == 0) return false;
  double room = 10 * Tolerance(data) * largest;
  bool plus = true, minus = true;
  for (int64_t k = 0; k < rows && (plus || minus); ++k) {
    for (int64_t i = 0; i < n && (plus || minus); ++i) {
      double window = DoubleAt(data, i);
      auto turns = static_cast<double>(k * i % n) / static_cast<double>(n);
      double angle = 2 * std::numbers::pi * turns;
      double cosine = DoubleAt(data, k * n + i);
      double sine = DoubleAt(data, (rows + k) * n + i);
      bool fits = std::fabs(cosine - window * std::cos(angle)) <= room;
      plus &= fits && std::fabs(sine - window * std::sin(angle)) <= room;
      minus &= fits && std::fabs(sine + window * std::sin(angle)) <= room;
    }
  }
  return plus || minus;
}

// The numbers along one axis, if they are positive and fall and all rows are
// alike; else empty.
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

}  // namespace

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

bool AreFalling(const Tensor& tensor) { return !Falling(tensor).empty(); }

std::unordered_map<const Value*, FixedTable> FixedTables(
    const std::vector<HeldTensor>& tensors) {
  std::unordered_map<const Value*, FixedTable> found;
  // By shape and the square of the first element, to find a partner without
  // trying all tensors.
  std::map<Shape, std::multimap<double, const HeldTensor*>> single;
  for (const HeldTensor& tensor : tensors) {
    const auto& [value, data] = tensor;
    if (!IsFloat(data.dtype())) continue;
    if (AreFrequencies(data)) {
      found[value] = {"frequencies", FixedTable::kHint};
    } else if (data.size() < 8 || data.rank() < 2) {
      continue;
    } else if (IsMask(data)) {
      found[value] = {"a mask", FixedTable::kSure};
    } else if (auto encoding = IsEncoding(data)) {
      found[value] = {"sines and cosines", *encoding};
    } else if (IsFourierBasis(data)) {
      found[value] = {"a Fourier basis", FixedTable::kSure};
    } else {
      double first = DoubleAt(data, 0);
      auto& alike = single[data.shape()];
      double wanted = 1 - first * first, room = Tolerance(data);
      for (auto it = alike.lower_bound(wanted - room);
           it != alike.end() && it->first <= wanted + room; ++it) {
        const Value* other = it->second->value;
        auto proof = ArePair(data, it->second->data);
        if (!proof) continue;
        found[value] = {"sines and cosines, with " + other->name, *proof};
        found[other] = {"sines and cosines, with " + value->name, *proof};
        break;
      }
      alike.emplace(first * first, &tensor);
    }
  }
  return found;
}

}  // namespace onnx_fp8
