// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace onnx_fp8 {

// Element types, numbered as in ONNX's TensorProto.DataType.
enum class DType : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kUInt16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUInt32 = 12,
  kUInt64 = 13,
  kBFloat16 = 16,
  kE4M3 = 17,
  kE5M2 = 19,
  kE8M0 = 24,
};

// 16-bit and 8-bit floats are storage only: convert (float8.h) to compute.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct E4M3 {
  uint8_t bits;
};
struct E5M2 {
  uint8_t bits;
};
struct E8M0 {
  uint8_t bits;
};

// Bytes per element; 0 for kUndefined and kString.
size_t ByteSize(DType dtype);

// ONNX's lower-case name: "float", "int64", "float8e4m3fn", ….
const char* Name(DType dtype);

// Inverse of Name; kUndefined for any other text.
DType ParseDType(std::string_view name);

// float16, bfloat16.
bool IsHalf(DType dtype);

// float, double, float16, bfloat16.
bool IsFloat(DType dtype);

// The two 8-bit formats that hold data (not the scale format E8M0).
bool IsFloat8(DType dtype);

// int8 … int64, uint8 … uint64; not bool.
bool IsInteger(DType dtype);

template <typename T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<float>() {
  return DType::kFloat;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kDouble;
}
template <>
constexpr DType DTypeOf<uint8_t>() {
  return DType::kUInt8;
}
template <>
constexpr DType DTypeOf<int8_t>() {
  return DType::kInt8;
}
template <>
constexpr DType DTypeOf<uint16_t>() {
  return DType::kUInt16;
}
template <>
constexpr DType DTypeOf<int16_t>() {
  return DType::kInt16;
}
template <>
constexpr DType DTypeOf<int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType DTypeOf<int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType DTypeOf<bool>() {
  return DType::kBool;
}
template <>
constexpr DType DTypeOf<uint32_t>() {
  return DType::kUInt32;
}
template <>
constexpr DType DTypeOf<uint64_t>() {
  return DType::kUInt64;
}
template <>
constexpr DType DTypeOf<Float16>() {
  return DType::kFloat16;
}
template <>
constexpr DType DTypeOf<BFloat16>() {
  return DType::kBFloat16;
}
template <>
constexpr DType DTypeOf<E4M3>() {
  return DType::kE4M3;
}
template <>
constexpr DType DTypeOf<E5M2>() {
  return DType::kE5M2;
}
template <>
constexpr DType DTypeOf<E8M0>() {
  return DType::kE8M0;
}

}  // namespace onnx_fp8
