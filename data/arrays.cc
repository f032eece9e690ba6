// SPDX-License-Identifier: Apache-2.0
#include "data/arrays.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "data/safetensors.h"

namespace onnx_fp8 {

ArrayFile::ArrayFile(const std::string& path, const Budgets& budgets) {
  std::filesystem::path file(path);
  std::string extension = file.extension().string();
  if (extension == ".npz") {
    npz_.emplace(path, budgets);
    names_ = npz_->names();
    std::ranges::sort(names_);
    return;
  }
  if (extension == ".safetensors") {
    arrays_ = ReadSafetensors(path);
  } else if (extension == ".npy") {
    arrays_[file.stem().string()] = ReadNpy(path);
  } else {
    Fail("[", path, "] expected a .npz, .npy or .safetensors file");
  }
  for (const auto& [name, array] : arrays_) names_.push_back(name);
}

ArrayFile::ArrayFile(TensorMap arrays) : arrays_(std::move(arrays)) {
  for (const auto& [name, array] : arrays_) names_.push_back(name);
}

Tensor ArrayFile::Read(const std::string& name) {
  return npz_ ? npz_->Read(name) : arrays_.at(name);
}

TensorMap ReadArrays(const std::string& path, const Budgets& budgets) {
  ArrayFile file(path, budgets);
  TensorMap arrays;
  for (const std::string& name : file.names()) arrays[name] = file.Read(name);
  return arrays;
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
