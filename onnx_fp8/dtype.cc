// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {
namespace {

struct Row {
  DType dtype;
  size_t bytes;
  const char* name;
};

constexpr Row kRows[] = {
    {DType::kUndefined, 0, "undefined"}, {DType::kFloat, 4, "float"},
    {DType::kUInt8, 1, "uint8"},         {DType::kInt8, 1, "int8"},
    {DType::kUInt16, 2, "uint16"},       {DType::kInt16, 2, "int16"},
    {DType::kInt32, 4, "int32"},         {DType::kInt64, 8, "int64"},
    {DType::kString, 0, "string"},       {DType::kBool, 1, "bool"},
    {DType::kFloat16, 2, "float16"},     {DType::kDouble, 8, "double"},
    {DType::kUInt32, 4, "uint32"},       {DType::kUInt64, 8, "uint64"},
    {DType::kBFloat16, 2, "bfloat16"},   {DType::kE4M3, 1, "float8e4m3fn"},
    {DType::kE5M2, 1, "float8e5m2"},     {DType::kE8M0, 1, "float8e8m0"},
};

const Row& Find(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row;
  }
  return kRows[0];
}

}  // namespace

size_t ByteSize(DType dtype) { return Find(dtype).bytes; }

const char* Name(DType dtype) { return Find(dtype).name; }

DType ParseDType(std::string_view name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.dtype;
  }
  return DType::kUndefined;
}

bool IsHalf(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat || dtype == DType::kDouble || IsHalf(dtype);
}

bool IsFloat8(DType dtype) {
  return dtype == DType::kE4M3 || dtype == DType::kE5M2;
}

bool IsInteger(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kUInt16:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt32:
    case DType::kUInt64:
      return true;
    default:
      return false;
  }
}

}  // namespace onnx_fp8
