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
  return TensorSource(x.dtype(), {x.shape()[1], x.shape()[0]},
                      [x] { return Transposed(x.Pull()); });
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

SourceMap FromTorch(TensorMap* arrays,
                    const std::vector<ParameterInfo>& parameters,
                    const ParameterNames& names, const std::string& path) {
  SourceMap weights;
  auto take = [&](const ParameterInfo& info, const std::string& key,
                  bool turns) {
    auto given = arrays->find(key);
    if (given == arrays->end()) return;
    const Tensor& array = given->second;
    Check(IsFloat(array.dtype()), "[", path, "] expected ", key,
          " of a float type, got ", Name(array.dtype()));
    turns = turns && array.rank() == 2;
    Shape shape = array.shape();
    if (turns) std::swap(shape[0], shape[1]);
    Check(shape == info.shape, "[", path, "] expected ", key, " of shape ",
          ToString(info.shape), ", got ", ToString(shape));
    TensorSource weight(info.dtype, shape, [array, turns, dtype = info.dtype] {
      return ConvertTo(turns ? Transposed(array) : array, dtype);
    });
    weights.insert_or_assign(info.name, std::move(weight));
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
