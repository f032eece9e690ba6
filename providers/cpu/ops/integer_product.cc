// SPDX-License-Identifier: Apache-2.0
//
// Products of 8-bit codes: MatMulInteger, ConvInteger, QLinearMatMul and
// QLinearConv. Zero points are subtracted from the codes; the kernels of MatMul
// and Conv multiply the differences in double, which is exact: products have 17
// bits.
#include <algorithm>
#include <array>
#include <cmath>

#include "providers/cpu/cpu_provider.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// Operand i with one value for all elements, or one for each index of an axis.
// Errors: another shape.
class PerIndex {
 public:
  PerIndex(const KernelContext& ctx, size_t i, const Shape& shape, int64_t axis)
      : values_(ConvertTo(Operand(ctx, i), DType::kDouble)) {
    if (values_.size() == 1) return;
    axis += axis < 0 ? static_cast<int64_t>(shape.size()) : 0;
    bool fits = axis >= 0 && axis < static_cast<int64_t>(shape.size()) &&
                values_.size() == shape[static_cast<size_t>(axis)];
    Check(fits, "[", ctx.Where(), "] expected operand ", i,
          " to have one element, or one for each of axis ", axis, " of ",
          ToString(shape), ", got shape ", ToString(Operand(ctx, i).shape()));
    view_ = ViewAlong(shape, axis);
  }

  // The value for element e of the shape.
  double At(int64_t e) const {
    return values_
        .data<double>()[values_.size() == 1 ? 0 : e / view_.inner % view_.n];
  }

 private:
  Tensor values_;
  AxisView view_ = {1, 1, 1};
};

// Operand `i` minus its zero points, operand `zero`, in double.
Tensor Centered(const KernelContext& ctx, size_t i, size_t zero, int64_t axis) {
  const Tensor& codes = Operand(ctx, i);
  Check(codes.dtype() == DType::kInt8 || codes.dtype() == DType::kUInt8, "[",
        ctx.Where(), "] expected int8 or uint8 as operand ", i, ", got ",
        Name(codes.dtype()));
  Tensor x = ConvertTo(codes, DType::kDouble);
  if (!ctx.HasIn(zero)) return x;
  PerIndex zeros(ctx, zero, x.shape(), axis);
  double* values = x.data<double>();
  for (int64_t e = 0; e < x.size(); ++e) values[e] -= zeros.At(e);
  return x;
}

// The result of the kernel of `op` for these operands and the node's own
// attributes.
Tensor Product(const KernelContext& ctx, const char* op,
               std::vector<Tensor> in) {
  std::array<Tensor, 1> out;
  KernelContext inner(ctx.node(), in, out);
  CpuKernels().Find("", op)->kernel(inner);
  return out[0];
}

void ToInt32(KernelContext& ctx, const Tensor& sums) {
  Tensor& y = ctx.Out(0, DType::kInt32, sums.shape());
  const double* from = sums.data<double>();
  for (int64_t e = 0; e < sums.size(); ++e) {
    // Wraps around beyond 32 bits, like integers.
    y.data<int32_t>()[e] = static_cast<int32_t>(
        static_cast<uint32_t>(static_cast<int64_t>(from[e])));
  }
}

void MatMulInteger(KernelContext& ctx) {
  Tensor a = Centered(ctx, 0, 2, -2), b = Centered(ctx, 1, 3, -1);
  ToInt32(ctx, Product(ctx, "MatMul", {a, b}));
}

void ConvInteger(KernelContext& ctx) {
  Tensor x = Centered(ctx, 0, 2, 0), w = Centered(ctx, 1, 3, 0);
  ToInt32(ctx, Product(ctx, "Conv", {x, w}));
}

// Operands 6 and 7 are the scale and zero point of the result, 1 and 4 the
// scales of the factors. Scales are multiplied in float, as in ONNX Runtime.
void Requantize(KernelContext& ctx, const Tensor& sums, const PerIndex& a_scale,
                const PerIndex& b_scale) {
  DType to = Operand(ctx, 7).dtype();
  PerIndex scale(ctx, 6, sums.shape(), -1), zero(ctx, 7, sums.shape(), -1);
  Tensor& y = ctx.Out(0, to, sums.shape());
  bool is_signed = to == DType::kInt8;
  Check(is_signed || to == DType::kUInt8, "[", ctx.Where(),
        "] expected a result of int8 or uint8, got ", Name(to));
  const double* from = sums.data<double>();
  auto* bytes = static_cast<uint8_t*>(y.raw());
  double low = is_signed ? -128 : 0, high = is_signed ? 127 : 255;
  for (int64_t e = 0; e < sums.size(); ++e) {
    float factor = static_cast<float>(a_scale.At(e)) *
                   static_cast<float>(b_scale.At(e)) /
                   static_cast<float>(scale.At(e));
    double code = std::nearbyint(static_cast<float>(from[e]) * factor);
    code = std::isnan(code) ? 0 : std::clamp(code + zero.At(e), low, high);
    bytes[e] = static_cast<uint8_t>(static_cast<int>(code));
  }
}

void QLinearMatMul(KernelContext& ctx) {
  Tensor a = Centered(ctx, 0, 2, -2), b = Centered(ctx, 3, 5, -1);
  Tensor sums = Product(ctx, "MatMul", {a, b});
  bool rows = a.rank() > 1;
  Requantize(ctx, sums,
             PerIndex(ctx, 1, sums.shape(), rows && b.rank() > 1 ? -2 : -1),
             PerIndex(ctx, 4, sums.shape(), -1));
}

void QLinearConv(KernelContext& ctx) {
  Tensor x = Centered(ctx, 0, 2, 0), w = Centered(ctx, 3, 5, 0);
  std::vector<Tensor> operands = {x, w};
  if (ctx.HasIn(8)) operands.push_back(ConvertTo(ctx.In(8), DType::kDouble));
  Tensor sums = Product(ctx, "Conv", std::move(operands));
  Requantize(ctx, sums, PerIndex(ctx, 1, sums.shape(), 0),
             PerIndex(ctx, 4, sums.shape(), 1));
}

}  // namespace

void RegisterIntegerProduct(KernelRegistry& r) {
  r.Add("MatMulInteger", MatMulInteger);
  r.Add("ConvInteger", ConvInteger);
  r.Add("QLinearMatMul", QLinearMatMul);
  r.Add("QLinearConv", QLinearConv);
}

}  // namespace onnx_fp8
