// SPDX-License-Identifier: Apache-2.0
#include "training/state/carry_scales.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// Column i of history (H,N), newest last; row 0 is empty between two steps.
void CarryColumn(const Tensor& from, size_t i, size_t j, Tensor* to) {
  int64_t rows = std::min(from.dim(0), to->dim(0)) - 1;
  auto column = static_cast<int64_t>(i), other = static_cast<int64_t>(j);
  for (int64_t row = 1; row <= rows; ++row) {
    to->data<float>()[(to->dim(0) - row) * to->dim(1) + other] =
        from.data<float>()[(from.dim(0) - row) * from.dim(1) + column];
  }
}

bool Delayed(const ScaleSlot& slot) {
  return slot.scaling == Scaling::kDelayed;
}

}  // namespace

ScaleState KeptScales(const std::string& slots, const TensorMap& state,
                      const std::string& folder) {
  ScaleState scales;
  scales.slots = ParseSlots(slots);
  auto n = static_cast<int64_t>(scales.slots.size());
  auto find = [&](const char* name, size_t rank) {
    auto it = state.find(name);
    bool fits = it != state.end() && it->second.dtype() == DType::kFloat &&
                it->second.shape().size() == rank && it->second.dim(-1) == n;
    Check(fits, "[", folder, "] expected the checkpoint to hold ", name,
          " for ", n, " scales, got ",
          it == state.end() ? "none" : ToString(it->second.shape()));
    return it->second;
  };
  if (n > 0) scales.scale = find(kScaleState, 1);
  if (AnyDelayed(scales.slots)) scales.history = find(kHistoryState, 2);
  return scales;
}

std::string CarryScales(const ScaleState& from, ScaleState* to) {
  std::map<std::string, size_t> position;
  for (size_t i = 0; i < from.slots.size(); ++i) {
    if (Delayed(from.slots[i])) position[from.slots[i].Key()] = i;
  }
  size_t carried = 0, fresh = 0;
  for (size_t j = 0; j < to->slots.size(); ++j) {
    if (!Delayed(to->slots[j])) continue;
    auto it = position.find(to->slots[j].Key());
    if (it == position.end()) {
      ++fresh;
      continue;
    }
    ++carried;
    to->scale.data<float>()[j] = from.scale.data<float>()[it->second];
    CarryColumn(from.history, it->second, j, &to->history);
  }
  size_t dropped = position.size() - carried;
  int64_t before = from.history.defined() ? from.history.dim(0) : 0;
  int64_t now = to->history.defined() ? to->history.dim(0) : 0;
  bool length = carried > 0 && before != now;
  if (fresh == 0 && dropped == 0 && !length) return "";
  std::string text = Concat("delayed scales: ", carried, " go on, ", fresh,
                            " start anew, ", dropped, " are dropped");
  if (length)
    text += Concat("; their history is ", now, " steps, was ", before);
  return text;
}

std::vector<ScaleInfo> ScaleInfos(const std::vector<ScaleSlot>& slots,
                                  const Tensor& kept) {
  std::vector<ScaleInfo> infos;
  for (size_t i = 0; i < slots.size(); ++i) {
    infos.push_back({slots[i].Key(),
                     kept.defined() ? kept.data<float>()[i] : slots[i].scale,
                     slots[i].scaling == Scaling::kDelayed});
  }
  return infos;
}

}  // namespace onnx_fp8
