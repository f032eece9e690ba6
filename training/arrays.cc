// SPDX-License-Identifier: Apache-2.0
#include "training/arrays.h"

#include <filesystem>

#include "onnx_fp8/check.h"
#include "training/npy.h"
#include "training/safetensors.h"

namespace onnx_fp8 {

TensorMap ReadArrays(const std::string& path) {
  std::filesystem::path file(path);
  std::string extension = file.extension().string();
  if (extension == ".safetensors") return ReadSafetensors(path);
  if (extension == ".npz") return ReadNpz(path);
  if (extension == ".npy") return {{file.stem().string(), ReadNpy(path)}};
  Fail("[", path, "] expected a .npz, .npy or .safetensors file");
}

Tensor ArrayFromBytes(DType dtype, const Shape& shape,
                      const std::shared_ptr<void>& owner, void* data,
                      size_t bytes, const std::string& where) {
  int64_t count = 0;
  size_t expected = 0;
  size_t width = ByteSize(dtype);
  try {
    count = NumElements(shape);
  } catch (const Error& error) {
    Fail("[", where, "] ", error.what());
  }
  Check(!__builtin_mul_overflow(static_cast<size_t>(count), width, &expected) &&
            expected == bytes,
        "[", where, "] expected ", Name(dtype), ToString(shape), " in ", bytes,
        " bytes, which it does not fill or fit");
  const uint8_t* raw = static_cast<const uint8_t*>(data);
  if (dtype == DType::kBool) {
    for (size_t i = 0; i < bytes; ++i) {
      Check(raw[i] <= 1, "[", where, "] expected a bool to be 0 or 1, got ",
            int{raw[i]});
    }
  }
  if (bytes > 0 && reinterpret_cast<uintptr_t>(data) % width == 0) {
    return Tensor::View(dtype, shape, owner, data);
  }
  Tensor copy = Tensor::Allocate(dtype, shape);
  if (bytes > 0) std::memcpy(copy.raw(), data, bytes);
  return copy;
}

}  // namespace onnx_fp8
