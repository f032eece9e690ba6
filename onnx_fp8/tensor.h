// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "onnx_fp8/dtype.h"
#include "onnx_fp8/shape.h"

namespace onnx_fp8 {

// Uninitialized memory, aligned to 64 bytes. Errors: more than the machine has.
std::shared_ptr<void> AllocateBytes(size_t bytes);

// The owner of the memory that a tensor lies in. Only the provider may touch
// bytes of kProvider: a program that reads them reads garbage, or crashes.
enum class Device : uint8_t { kHost, kProvider };

// dtype + shape + shared storage, row-major and contiguous. A copy of a Tensor
// shares the bytes; Clone() copies them. It is not an expression: no operators,
// no autograd. A default Tensor holds nothing (`!defined()`). All functions
// that read or write elements REQUIRE host memory; all but the templates check
// it.
class Tensor {
 public:
  Tensor() = default;

  // Uninitialized memory, aligned to 64 bytes.
  static Tensor Allocate(DType dtype, Shape shape);

  // The type alone, without bytes. REQUIRES: nothing reads or writes the data.
  // Errors: no numeric dtype, a size beyond 64 bits.
  static Tensor OfType(DType dtype, Shape shape);

  // All bytes zero; large ones take no memory before they are written.
  static Tensor Zeros(DType dtype, Shape shape);

  // A view of memory that `owner` keeps alive (a mapped file, an arena).
  // REQUIRES: data holds NumElements(shape) elements and lies on `device`.
  static Tensor View(DType dtype, Shape shape, std::shared_ptr<void> owner,
                     void* data, Device device = Device::kHost);

  template <typename T>
  static Tensor From(Shape shape, std::span<const T> values) {
    Tensor t = Allocate(DTypeOf<T>(), std::move(shape));
    assert(static_cast<size_t>(t.size()) == values.size());
    if (!values.empty()) std::memcpy(t.raw(), values.data(), t.bytes());
    return t;
  }
  template <typename T>
  static Tensor From(Shape shape, const std::vector<T>& values) {
    return From(std::move(shape), std::span<const T>(values));
  }
  template <typename T>
  static Tensor Scalar(T value) {
    return From(Shape{}, std::span<const T>(&value, 1));
  }
  // Rank-1 int64.
  static Tensor Ints(const std::vector<int64_t>& values) {
    return From(Shape{static_cast<int64_t>(values.size())}, values);
  }

  bool defined() const { return dtype_ != DType::kUndefined; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  // Size of one axis; negative axes count from the end. REQUIRES: in range.
  int64_t dim(int64_t axis) const {
    return shape_[static_cast<size_t>(axis < 0 ? axis + rank() : axis)];
  }
  int64_t size() const { return size_; }  // elements
  size_t bytes() const { return static_cast<size_t>(size_) * ByteSize(dtype_); }
  Device device() const { return device_; }
  bool on_host() const { return device_ == Device::kHost; }
  // Errors: the tensor lies in its provider's memory.
  void RequireHost() const;

  // The address of the first byte, on any device.
  void* raw() { return data_; }
  const void* raw() const { return data_; }

  // REQUIRES: T is the element type; host memory.
  template <typename T>
  T* data() {
    assert(DTypeOf<T>() == dtype_ && on_host());
    return static_cast<T*>(data_);
  }
  template <typename T>
  const T* data() const {
    assert(DTypeOf<T>() == dtype_ && on_host());
    return static_cast<const T*>(data_);
  }
  template <typename T>
  std::span<const T> values() const {
    return {data<T>(), static_cast<size_t>(size_)};
  }

  // Same bytes under another shape. REQUIRES: the same number of elements.
  Tensor Reshaped(Shape shape) const;

  Tensor Clone() const;

  // True if the two share their first byte.
  bool SharesDataWith(const Tensor& other) const {
    return data_ == other.data_;
  }

 private:
  DType dtype_ = DType::kUndefined;
  Device device_ = Device::kHost;
  Shape shape_;
  int64_t size_ = 0;
  void* data_ = nullptr;
  std::shared_ptr<void> owner_;
};

// Element i of an integer or bool tensor as int64. Errors: another dtype.
int64_t IntAt(const Tensor& t, int64_t i);

// All elements of an integer or bool tensor as int64. Errors: another dtype.
std::vector<int64_t> ToInts(const Tensor& t);

// Element i of any numeric tensor as double. Errors: string.
double DoubleAt(const Tensor& t, int64_t i);

// Same dtype, shape and bytes.
bool Identical(const Tensor& a, const Tensor& b);

// Numeric conversion of every element (C's rules; to bool: != 0; to 8-bit
// floats saturating). Errors: string.
Tensor ConvertTo(const Tensor& t, DType dtype);

// Tensors by name: graph inputs, outputs, state, arrays of a file.
using TensorMap = std::map<std::string, Tensor>;

}  // namespace onnx_fp8
