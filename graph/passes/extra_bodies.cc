// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "base/check.h"
#include "graph/passes/extra_bodies_internal.h"

namespace onnx_fp8 {
namespace {

using BodyValues = std::vector<Value*>;

// Longest transform. Its matrix has up to twice this many rows and columns.
constexpr int64_t kLongestTransform = 4096;
// Elimination adds a dozen nodes for each row.
constexpr int64_t kLargestDet = 64;

double NumberAt(const Node& node, const BodyValues& in, size_t i,
                const char* what) {
  Check(
      i < in.size() && in[i] && in[i]->is_constant() && in[i]->data.size() == 1,
      "[", node.Where(), "] expected ", what,
      " to be known from the input shapes, got a computed value");
  return DoubleAt(in[i]->data, 0);
}

int64_t IntAtOr(const Node& node, const BodyValues& in, size_t i,
                const char* what, int64_t otherwise) {
  if (i >= in.size() || !in[i]) return otherwise;
  return static_cast<int64_t>(NumberAt(node, in, i, what));
}

// A discrete Fourier transform of `length` numbers, as a product with a matrix.
struct Transform {
  int64_t length;
  bool is_complex;  // the input
  bool inverse, onesided;

  int64_t bins() const { return onesided ? length / 2 + 1 : length; }
  int64_t rows() const { return onesided && inverse ? bins() : length; }
  int64_t columns() const { return onesided && inverse ? length : bins(); }
  // The result of an inverse transform of half of the bins is real.
  int64_t parts() const { return onesided && inverse ? 1 : 2; }

  // (rows · parts of x, columns · parts of y)
  Tensor Matrix(DType dtype) const {
    int64_t in = is_complex ? 2 : 1, out = parts();
    std::vector<double> m(static_cast<size_t>(rows() * in * columns() * out),
                          0.0);
    for (int64_t n = 0; n < rows(); ++n) {
      // A bin of the other half has the conjugate of its mirror image.
      bool mirrored = onesided && inverse && n > 0 && 2 * n < length;
      double factor = (inverse ? 1.0 / static_cast<double>(length) : 1.0) *
                      (mirrored ? 2 : 1);
      for (int64_t k = 0; k < columns(); ++k) {
        double angle = 2 * std::numbers::pi *
                       static_cast<double>(n * k % length) /
                       static_cast<double>(length);
        double c = factor * std::cos(angle), s = factor * std::sin(angle);
        if (inverse) s = -s;
        auto at = [&](int64_t i, int64_t j) -> double& {
          return m[static_cast<size_t>(((n * in + i) * columns() + k) * out +
                                       j)];
        };
        at(0, 0) = c;
        if (out == 2) at(0, 1) = -s;
        if (in == 2) at(1, 0) = s;
        if (in == 2 && out == 2) at(1, 1) = c;
      }
    }
    return ConvertTo(Tensor::From<double>({rows() * in, columns() * out}, m),
                     dtype);
  }
};

void CheckLength(const Node& node, int64_t length) {
  Check(length > 0 && length <= kLongestTransform, "[", node.Where(),
        "] expected a transform of 1 to ", kLongestTransform, " numbers, got ",
        length);
}

// x (…, rows, parts) → (…, columns, parts)
Value* Apply(Builder& b, const Transform& t, Value* x) {
  Shape lead(x->shape->begin(), x->shape->end() - 2);
  Shape flat = lead, result = lead;
  flat.push_back(x->dim(-2) * x->dim(-1));
  result.insert(result.end(), {t.columns(), t.parts()});
  Value* matrix = b.Constant(t.Matrix(x->dtype));
  return b.Reshape(b.Op("MatMul", {b.Reshape(x, flat), matrix}), result);
}

// The first `length` elements of an axis, with zeros behind if it has fewer.
Value* Fit(Builder& b, Value* x, int64_t axis, int64_t length) {
  if (x->dim(axis) > length) {
    return b.Op("Slice", {x, b.Ints({0}), b.Ints({length}), b.Ints({axis})});
  }
  if (x->dim(axis) == length) return x;
  std::vector<int64_t> pads(2 * x->shape->size(), 0);
  pads[x->shape->size() + static_cast<size_t>(axis)] = length - x->dim(axis);
  return b.Op("Pad", {x, b.Ints(pads)});
}

BodyValues Dft(Builder& b, const Node& node, const BodyValues& in) {
  Value* x = in[0];
  Check(x->rank() >= 2 && (x->dim(-1) == 1 || x->dim(-1) == 2), "[",
        node.Where(), "] expected x (…, 1 or 2), got ", ToString(*x->shape));
  int64_t axis = NormalizeAxis(IntAtOr(node, in, 2, "the axis", -2), x->rank(),
                               node.Where());
  Check(axis < x->rank() - 1, "[", node.Where(),
        "] expected an axis before the last one, got ", axis);
  Transform t = {0, x->dim(-1) == 2, node.Int("inverse", 0) != 0,
                 node.Int("onesided", 0) != 0};
  const bool half = t.inverse && t.onesided;
  int64_t size = x->dim(axis);
  t.length = IntAtOr(node, in, 1, "dft_length", half ? 2 * (size - 1) : size);
  CheckLength(node, t.length);
  Check(!half || t.is_complex, "[", node.Where(),
        "] expected complex numbers for an inverse transform of one side");
  x = Fit(b, x, axis, t.rows());
  std::vector<int64_t> perm;
  for (int64_t i = 0; i < x->rank() - 1; ++i) {
    if (i != axis) perm.push_back(i);
  }
  perm.insert(perm.end(), {axis, x->rank() - 1});
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) {
    back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  }
  return {b.Transpose(Apply(b, t, b.Transpose(x, perm)), back)};
}

// signal (batch, length, 1 or 2) → (batch, frames, bins, 2)
BodyValues Stft(Builder& b, const Node& node, const BodyValues& in) {
  Value* x = in[0];
  if (x->rank() == 2) x = b.Reshape(x, {x->dim(0), x->dim(1), 1});
  int64_t step = IntAtOr(node, in, 1, "frame_step", 0);
  Value* window = in.size() > 2 ? in[2] : nullptr;
  int64_t length =
      IntAtOr(node, in, 3, "frame_length", window ? window->dim(0) : 0);
  CheckLength(node, length);
  Check(x->rank() == 3 && step > 0 && length <= x->dim(1), "[", node.Where(),
        "] expected a signal (batch, samples, 1 or 2), a frame_step above 0 "
        "and frames within the signal, got ",
        ToString(*x->shape), ", ", step, " and ", length);
  Transform t = {length, x->dim(2) == 2, false, node.Int("onesided", 1) != 0};
  int64_t frames = (x->dim(1) - length) / step + 1;
  std::vector<int64_t> places;
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t i = 0; i < length; ++i) places.push_back(f * step + i);
  }
  Value* at = b.Constant(Tensor::From<int64_t>({frames, length}, places));
  Value* y = b.Op("Gather", {x, at}, {{"axis", int64_t{1}}});
  if (window) {
    int64_t width = window->dim(0);
    Check(width <= length, "[", node.Where(), "] expected a window of at most ",
          length, " numbers, got ", width);
    y = b.Mul(y, b.Reshape(Fit(b, window, 0, length), {length, 1}));
  }
  return {Apply(b, t, y)};
}

// Triangles over the bins whose corners are evenly spaced in mel.
BodyValues MelWeightMatrix(Builder& b, const Node& node, const BodyValues& in) {
  auto number = [&](size_t i) { return NumberAt(node, in, i, "its operands"); };
  auto bins = static_cast<int64_t>(number(0));
  auto length = static_cast<int64_t>(number(1));
  double rate = number(2), low = number(3), high = number(4);
  int64_t rows = length / 2 + 1;
  Check(bins > 0 && length > 0 && rate > 0 && bins <= (1 << 16) &&
            rows <= (1 << 16),
        "[", node.Where(), "] expected numbers above 0 and below 65536");
  auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  double from = mel(low);
  double each = (mel(high) - from) / static_cast<double>(bins + 2);
  std::vector<int64_t> corners;
  for (int64_t i = 0; i < bins + 2; ++i) {
    double hertz =
        700 * (std::pow(10, (from + static_cast<double>(i) * each) / 2595) - 1);
    corners.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(length + 1) * hertz / rate)));
  }
  std::vector<double> m(static_cast<size_t>(rows * bins), 0.0);
  for (int64_t i = 0; i < bins; ++i) {
    auto at = static_cast<size_t>(i);
    int64_t left = corners[at], peak = corners[at + 1], right = corners[at + 2];
    auto cell = [&](int64_t row) -> double& {
      Check(row >= 0 && row < rows, "[", node.Where(),
            "] expected edges within half of the sample rate");
      return m[static_cast<size_t>(row * bins + i)];
    };
    for (int64_t j = left; j <= peak && peak > left; ++j) {
      cell(j) =
          static_cast<double>(j - left) / static_cast<double>(peak - left);
    }
    if (peak == left) cell(peak) = 1;
    for (int64_t j = peak; j < right; ++j) {
      cell(j) =
          static_cast<double>(right - j) / static_cast<double>(right - peak);
    }
  }
  auto dtype = static_cast<DType>(
      node.Int("output_datatype", static_cast<int64_t>(DType::kFloat)));
  return {b.Constant(ConvertTo(Tensor::From<double>({rows, bins}, m), dtype))};
}

// Elimination with the largest pivot of each column, for (…, n, n).
BodyValues Det(Builder& b, const Node& node, const BodyValues& in) {
  Value* x = in[0];
  Check(x->rank() >= 2 && x->dim(-1) == x->dim(-2) && x->dim(-1) <= kLargestDet,
        "[", node.Where(), "] expected square matrices of up to ", kLargestDet,
        " rows, got ", ToString(*x->shape));
  Shape lead(x->shape->begin(), x->shape->end() - 2);
  int64_t count = NumElements(lead), n = x->dim(-1);
  Value *zero = b.Scalar(0, x), *one = b.Scalar(1, x);
  Value* det = b.Op("Expand", {one, b.Ints({count})});
  Value* a = b.Reshape(x, {count, n, n});
  Tensor off_on = ConvertTo(Tensor::Ints({0, 1}), x->dtype);
  for (; n > 0; --n) {
    auto part = [&](Value* v, int64_t axis, int64_t begin, int64_t end) {
      return b.Op("Slice", {v, b.Ints({begin}), b.Ints({end}), b.Ints({axis})});
    };
    Value* column = b.Reshape(part(a, 2, 0, 1), {count, n});
    Value* place = b.Op("ArgMax", {b.Op("Abs", {column})},
                        {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
    Value* chosen = b.Reshape(
        b.Op("OneHot", {place, b.Int(n), b.Constant(off_on)}), {count, n, 1});
    Value* row = b.ReduceSum(b.Mul(chosen, a), {1}, true);  // (count, 1, n)
    Value* pivot = b.Reshape(part(row, 2, 0, 1), {count});
    Value* stays = b.Op("Equal", {place, b.Int(0)});
    det = b.Mul(det, b.Op("Where", {stays, pivot, b.Neg(pivot)}));
    if (n == 1) break;
    // The first row takes the place of the chosen one.
    a = b.Add(a, b.Mul(chosen, b.Sub(part(a, 1, 0, 1), row)));
    Value* rest = part(a, 1, 1, n);
    Value* flat = b.Op("Equal", {pivot, zero});
    Value* by = b.Reshape(b.Op("Where", {flat, one, pivot}), {count, 1, 1});
    Value* factor = b.Div(part(rest, 2, 0, 1), by);
    a = b.Sub(part(rest, 2, 1, n), b.Mul(factor, part(row, 2, 1, n)));
  }
  return {b.Reshape(det, lead)};
}

using Build = BodyValues (*)(Builder&, const Node&, const BodyValues&);

const std::map<std::string, Build, std::less<>>& Table() {
  static const std::map<std::string, Build, std::less<>> table = {
      {"DFT", Dft},
      {"Det", Det},
      {"LinearAttention", LinearAttentionBody},
      {"MelWeightMatrix", MelWeightMatrix},
      {"STFT", Stft}};
  return table;
}

}  // namespace

bool HasExtraBody(const Node& node) {
  return node.domain.empty() && Table().contains(node.op);
}

std::vector<Value*> BuildExtraBody(Builder& b, const Node& node,
                                   const BodyValues& in) {
  return Table().find(node.op)->second(b, node, in);
}

}  // namespace onnx_fp8
