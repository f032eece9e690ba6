// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/scale_slots.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/shallow_json.h"

namespace onnx_fp8 {

std::string ScaleSlot::Key() const {
  return Concat(fqn, "/", gemm, "/", operand, "/", Name(format), "#",
                occurrence);
}

std::string ScaleSlot::Label() const {
  return Concat(fqn, " ", gemm, " ", operand);
}

std::string SlotsText(const std::vector<ScaleSlot>& slots) {
  nlohmann::json list = nlohmann::json::array();
  for (const ScaleSlot& slot : slots) {
    list.push_back({{"fqn", slot.fqn},
                    {"gemm", slot.gemm},
                    {"operand", slot.operand},
                    {"format", Name(slot.format)},
                    {"occurrence", slot.occurrence}});
    if (slot.scaling == Scaling::kStatic) list.back()["scaling"] = "static";
  }
  return list.dump();
}

std::vector<ScaleSlot> ParseSlots(const std::string& text) {
  std::vector<ScaleSlot> slots;
  const std::string expected = "[scale slots] expected a JSON list of slots";
  auto list = ParseShallowJson(text.data(), text.size(), 4, expected);
  Check(list.is_array(), expected, ", got another text");
  try {
    for (const auto& entry : list) {
      bool fixed = entry.value("scaling", "delayed") == "static";
      slots.push_back({entry.at("fqn"), entry.at("gemm"), entry.at("operand"),
                       ParseDType(entry.at("format").get<std::string>()),
                       entry.at("occurrence"),
                       fixed ? Scaling::kStatic : Scaling::kDelayed});
    }
  } catch (const nlohmann::json::exception& error) {
    Fail(expected, ", got another text");
  }
  return slots;
}

bool AnyDelayed(const std::vector<ScaleSlot>& slots) {
  return std::ranges::any_of(slots, [](const ScaleSlot& slot) {
    return slot.scaling == Scaling::kDelayed;
  });
}

}  // namespace onnx_fp8
