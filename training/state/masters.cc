// SPDX-License-Identifier: Apache-2.0
#include "training/state/masters.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/master_codes.h"
#include "base/parallel.h"
#include "onnx_fp8/float8.h"
#include "optimizers/master_format.h"
#include "training/ranks/sharded_state.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kPiece = 16384;  // elements that are converted at a time

// Calls fn(floats, begin, n) for pieces of the tensor.
template <typename Fn>
void ForPieces(const Tensor& tensor, Fn fn) {
  const float* x = tensor.data<float>();
  ParallelFor(tensor.size(), kPiece, [&](int64_t begin, int64_t end) {
    std::vector<float> piece(static_cast<size_t>(kPiece));
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t n = std::min(kPiece, end - at);
      CopyMapped(x + at, static_cast<size_t>(n) * sizeof(float), piece.data());
      fn(piece.data(), at, n);
    }
  });
}

// To the nearest bfloat16.
Tensor NearestHalves(const Tensor& weight) {
  Tensor half = Tensor::Allocate(DType::kBFloat16, weight.shape());
  auto* to = half.data<BFloat16>();
  ForPieces(weight, [=](const float* x, int64_t begin, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[begin + i] = EncodeBFloat16(x[i]);
  });
  return half;
}

template <typename T>
void SplitInto(const Tensor& weight, Tensor& half, Tensor& correction) {
  auto* high = static_cast<uint16_t*>(half.raw());
  T* low = correction.data<T>();
  ForPieces(weight, [=](const float* x, int64_t begin, int64_t n) {
    EncodeMasters(x, n, high + begin, low + begin);
  });
}

template <typename T>
void JoinInto(const Tensor& half, const Tensor& correction, Tensor& weight) {
  auto* high = static_cast<const uint16_t*>(half.raw());
  const T* low = correction.data<T>();
  float* x = weight.data<float>();
  ParallelFor(weight.size(), kPiece, [=](int64_t begin, int64_t end) {
    DecodeMasters(high + begin, low + begin, end - begin, x + begin);
  });
}

bool IsCorrection(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kInt16;
}

}  // namespace

std::set<std::string> WeightsToKeepAsHalves(const Graph& model,
                                            const OptimizerSpec& spec) {
  CheckMaster(spec);
  std::set<std::string> names;
  if (!KeepsHalves(spec)) return names;
  const std::unordered_set<const Value*> returned = ReturnedValues(model);
  for (const auto& [name, shape] : ParametersToShard(model)) {
    const Value* value = model.Find(name);
    if (value->dtype == DType::kFloat && !returned.contains(value)) {
      names.insert(name);
    }
  }
  return names;
}

bool IsHalfOfWeight(const Value& value) {
  return value.role == Role::kParameter && value.dtype == DType::kBFloat16;
}

DType DTypeOfWeight(const Value& value) {
  return IsHalfOfWeight(value) ? DType::kFloat : value.dtype;
}

Tensor DecodedMaster(const Tensor& half, const Tensor* correction,
                     const std::string& name) {
  if (!correction) return ConvertTo(half, DType::kFloat);
  Check(half.dtype() == DType::kBFloat16 && IsCorrection(correction->dtype()) &&
            correction->shape() == half.shape(),
        "[", name, "] expected a bfloat16 and a correction of int8 or int16 ",
        "for each element, got ", Name(half.dtype()), ToString(half.shape()),
        " and ", Name(correction->dtype()), ToString(correction->shape()));
  Tensor weight = Tensor::Allocate(DType::kFloat, half.shape());
  if (correction->dtype() == DType::kInt8) {
    JoinInto<int8_t>(half, *correction, weight);
  } else {
    JoinInto<int16_t>(half, *correction, weight);
  }
  return weight;
}

std::string WeightOfCorrection(const std::string& name) {
  const size_t end = name.rfind(kCorrection);
  if (end == std::string::npos) return "";
  const std::string number = name.substr(end + std::size(kCorrection) - 1);
  const bool fits =
      number.empty() ||
      (number.size() > 1 && number[0] == '_' &&
       number.find_first_not_of("0123456789", 1) == std::string::npos);
  return fits ? name.substr(0, end) : "";
}

void JoinCorrections(TensorMap* tensors) {
  std::vector<std::string> joined;
  for (const auto& [name, correction] : *tensors) {
    if (!IsCorrection(correction.dtype())) continue;
    auto half = tensors->find(WeightOfCorrection(name));
    if (half == tensors->end() || half->second.dtype() != DType::kBFloat16) {
      continue;
    }
    half->second = DecodedMaster(half->second, &correction, half->first);
    joined.push_back(name);
  }
  for (const std::string& name : joined) tensors->erase(name);
}

Masters::Masters(const Graph& model, bool is_step, const OptimizerSpec& spec,
                 const std::set<std::string>& frozen) {
  for (const std::string& name : frozen) masters_[name];
  if (!is_step) {
    for (const std::string& name : WeightsToKeepAsHalves(model, spec)) {
      Master& master = masters_[name];
      master.dtype = CorrectionOf(spec);
      if (master.dtype == DType::kUndefined) continue;
      master.correction = StateName(model, name + kCorrection);
    }
    return;
  }
  for (const Value* value : model.Initializers()) {
    if (IsHalfOfWeight(*value)) masters_[value->name];
    if (value->role != Role::kCorrection) continue;
    masters_[WeightOfCorrection(value->name)] = {value->name, value->dtype};
  }
}

std::vector<std::string> Masters::NamesFor(const std::string& name) const {
  std::vector<std::string> names = {name};
  auto it = masters_.find(name);
  if (it != masters_.end() && !it->second.correction.empty()) {
    names.push_back(it->second.correction);
  }
  return names;
}

TensorMap Masters::Encoded(const std::string& name,
                           const Tensor& tensor) const {
  auto it = masters_.find(name);
  // A step holds its weights as they are kept.
  if (it == masters_.end() || tensor.dtype() != DType::kFloat) {
    return {{name, tensor}};
  }
  const Master& master = it->second;
  if (master.correction.empty()) return {{name, NearestHalves(tensor)}};
  Tensor half = Tensor::Allocate(DType::kBFloat16, tensor.shape());
  Tensor correction = Tensor::Allocate(master.dtype, tensor.shape());
  if (master.dtype == DType::kInt8) {
    SplitInto<int8_t>(tensor, half, correction);
  } else {
    SplitInto<int16_t>(tensor, half, correction);
  }
  return {{name, half}, {master.correction, correction}};
}

TensorSource Masters::EncodedFrozen(const std::string& name,
                                    const TensorSource& tensor) const {
  if (!masters_.contains(name)) return tensor;
  return TensorSource(DType::kBFloat16, tensor.shape(),
                      [tensor] { return NearestHalves(tensor.Pull()); });
}

SourceMap Masters::Decoded(SourceMap kept) const {
  for (const auto& [name, master] : masters_) {
    auto it = kept.find(name);
    if (it == kept.end()) continue;
    const TensorSource half = it->second;
    std::optional<TensorSource> correction;
    if (auto own = kept.extract(master.correction)) {
      correction = std::move(own.mapped());
    }
    it->second = TensorSource(DType::kFloat, half.shape(),
                              [half, correction, name = name] {
                                const Tensor own = half.Pull();
                                if (!correction)
                                  return DecodedMaster(own, nullptr, name);
                                const Tensor rest = correction->Pull();
                                return DecodedMaster(own, &rest, name);
                              });
  }
  return kept;
}

}  // namespace onnx_fp8
