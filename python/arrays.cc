// SPDX-License-Identifier: Apache-2.0
#include "python/arrays.h"

#include <nanobind/ndarray.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

namespace nb = nanobind;
using nb::dlpack::dtype_code;

struct DTypeRow {
  DType dtype;
  dtype_code code;
  uint8_t bits;
  bool in_numpy = true;
};

constexpr DTypeRow kDTypes[] = {
    {DType::kFloat, dtype_code::Float, 32},
    {DType::kDouble, dtype_code::Float, 64},
    {DType::kFloat16, dtype_code::Float, 16},
    {DType::kBFloat16, dtype_code::Bfloat, 16, false},
    {DType::kE4M3, dtype_code::Float8_E4M3FN, 8, false},
    {DType::kE5M2, dtype_code::Float8_E5M2, 8, false},
    {DType::kE8M0, dtype_code::Float8_E8M0FNU, 8, false},
    {DType::kInt8, dtype_code::Int, 8},
    {DType::kInt16, dtype_code::Int, 16},
    {DType::kInt32, dtype_code::Int, 32},
    {DType::kInt64, dtype_code::Int, 64},
    {DType::kUInt8, dtype_code::UInt, 8},
    {DType::kUInt16, dtype_code::UInt, 16},
    {DType::kUInt32, dtype_code::UInt, 32},
    {DType::kUInt64, dtype_code::UInt, 64},
    {DType::kBool, dtype_code::Bool, 8},
};

DType DTypeFrom(nb::dlpack::dtype type) {
  for (const DTypeRow& row : kDTypes) {
    if (static_cast<uint8_t>(row.code) == type.code && row.bits == type.bits &&
        type.lanes == 1) {
      return row.dtype;
    }
  }
  return DType::kUndefined;
}

// As numpy holds it.
nb::dlpack::dtype StoredType(DType dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype != dtype) continue;
    dtype_code code = row.in_numpy ? row.code : dtype_code::UInt;
    return {static_cast<uint8_t>(code), row.bits, 1};
  }
  Fail("[array] expected numbers, got ", Name(dtype));
}

bool IsRowMajor(const nb::ndarray<nb::ro>& array) {
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    int64_t size = static_cast<int64_t>(array.shape(i));
    if (size == 0) return true;
    if (size != 1 && array.stride(i) != expected) return false;
    expected *= size;
  }
  return true;
}

}  // namespace

Tensor TensorOf(const nb::object& array, const std::string& dtype,
                const std::string& name) {
  nb::ndarray<nb::ro> view;
  Check(nb::try_cast(array, view), "[", name,
        "] expected an array of numbers, got ",
        nb::type_name(array.type()).c_str());
  Check(view.device_type() == nb::device::cpu::value, "[", name,
        "] expected an array in the host's memory, got one of a device");
  Check(IsRowMajor(view), "[", name,
        "] expected a row-major array, got other strides");
  DType type = DTypeFrom(view.dtype());
  if (!dtype.empty()) {
    DType wanted = ParseDType(dtype);
    Check(ByteSize(wanted) == ByteSize(type), "[", name, "] expected ",
          ByteSize(wanted), " bytes for each ", dtype, ", got ",
          ByteSize(type));
    type = wanted;
  }
  Check(type != DType::kUndefined, "[", name,
        "] expected a dtype of ONNX, got one of DLPack's code ",
        static_cast<int>(view.dtype().code), " and ",
        static_cast<int>(view.dtype().bits), " bits");
  Shape shape;
  for (size_t i = 0; i < view.ndim(); ++i) {
    shape.push_back(static_cast<int64_t>(view.shape(i)));
  }
  // Any thread may be the last one that holds the array.
  std::shared_ptr<void> owner(new nb::ndarray<nb::ro>(view), [](void* held) {
    nb::gil_scoped_acquire python;
    delete static_cast<nb::ndarray<nb::ro>*>(held);
  });
  // Nothing writes into feeds and into state that is copied.
  return Tensor::View(type, std::move(shape), std::move(owner),
                      const_cast<void*>(view.data()));
}

nb::tuple ArrayOf(const Tensor& tensor) {
  std::vector<size_t> shape(tensor.shape().begin(), tensor.shape().end());
  auto held = std::make_unique<Tensor>(tensor);
  void* data = held->raw();
  nb::capsule owner(held.release(), [](void* tensor) noexcept {
    delete static_cast<Tensor*>(tensor);
  });
  nb::ndarray<nb::numpy> array(data, shape.size(), shape.data(), owner, nullptr,
                               StoredType(tensor.dtype()));
  return nb::make_tuple(array.cast(), Name(tensor.dtype()));
}

nb::dict ArraysOf(const TensorMap& tensors) {
  nb::dict arrays;
  for (const auto& [name, tensor] : tensors) {
    arrays[name.c_str()] = ArrayOf(tensor);
  }
  return arrays;
}

}  // namespace onnx_fp8
