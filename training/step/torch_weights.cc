// SPDX-License-Identifier: Apache-2.0
#include "training/step/torch_weights.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace onnx_fp8 {

Tensor Transposed(const Tensor& x) {
  int64_t rows = x.dim(0);
  int64_t columns = x.dim(1);
  Tensor y = Tensor::Allocate(x.dtype(), {columns, rows});
  size_t width = ByteSize(x.dtype());
  auto* from = static_cast<const std::byte*>(x.raw());
  auto* to = static_cast<std::byte*>(y.raw());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      std::memcpy(to + static_cast<size_t>(j * rows + i) * width,
                  from + static_cast<size_t>(i * columns + j) * width, width);
    }
  }
  return y;
}

TensorSource Transposed(const TensorSource& x) {
  return TensorSource(
      x.dtype(), {x.shape()[1], x.shape()[0]},
      [x] { return Transposed(x.Pull()); }, x.stored());
}

SourceMap ToTorch(const SourceMap& weights, const ParameterNames& names,
                  std::vector<std::string>* remarks) {
  SourceMap arrays;
  for (const auto& [name, tensor] : weights) {
    auto it = names.find(name);
    if (it == names.end()) continue;  // running statistics and the like
    arrays.insert_or_assign(
        it->second.fqn, it->second.transposed ? Transposed(tensor) : tensor);
    if (!it->second.remark.empty()) remarks->push_back(it->second.remark);
  }
  return arrays;
}

std::string NameInMessages(const StoredWeight& array, const std::string& key) {
  return array.name == key ? key
                           : Concat(key, " (", array.name, " in the file)");
}

TensorSource ValueOf(const StoredWeight& array, const std::string& key,
                     const Shape& shape, DType dtype, bool turned) {
  const TensorSource& source = array.source;
  const DType own = source.dtype();
  Check(IsFloat(own), "[", array.file, "] expected ",
        NameInMessages(array, key), " of a float type, got ", Name(own),
        IsFloat8(own) ? " without a scale" : "");
  Shape held = source.shape();
  if (turned) std::swap(held[0], held[1]);
  Check(held == shape, "[", array.file, "] expected ",
        NameInMessages(array, key), " of shape ", ToString(shape), ", got ",
        ToString(held));
  const bool widens = IsHalf(own) && dtype == DType::kFloat;
  return TensorSource(
      dtype, shape,
      [source, turned, dtype] {
        Tensor value = source.Pull();
        if (turned) value = Transposed(value);
        return value.dtype() == dtype ? value : ConvertTo(value, dtype);
      },
      widens ? own : DType::kUndefined);
}

SourceMap FromTorch(StoredWeights* arrays,
                    const std::vector<ParameterInfo>& parameters,
                    const ParameterNames& names) {
  SourceMap weights;
  auto take = [&](const ParameterInfo& info, const std::string& key,
                  bool turns) {
    auto given = arrays->find(key);
    if (given == arrays->end()) return;
    const bool turned = turns && given->second.source.shape().size() == 2;
    weights.insert_or_assign(
        info.name, ValueOf(given->second, key, info.shape, info.dtype, turned));
    arrays->erase(given);
  };
  for (const ParameterInfo& info : parameters) {
    take(info, info.fqn, names.at(info.name).transposed);
  }
  // An array under the file's own name has the file's layout.
  for (const ParameterInfo& info : parameters) take(info, info.name, false);
  return weights;
}

}  // namespace onnx_fp8
