// SPDX-License-Identifier: Apache-2.0
#include "training/step/trains_line.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/check.h"
#include "base/joined.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kNamed = 3;
constexpr size_t kEvidences = static_cast<size_t>(Evidence::kFlag) + 1;

// 11178884 → "11,178,884".
std::string Grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

// With the plural of the noun itself: "2 tables of sines and cosines".
std::string Counted(size_t count, const std::string& noun) {
  if (count == 1) return "1 " + noun;
  size_t end = std::min(noun.find(" of "), noun.find(" that "));
  std::string plural = noun;
  plural.insert(std::min(end, noun.size()), "s");
  return Concat(count, " ", plural);
}

const char* Source(Evidence evidence) {
  switch (evidence) {
    case Evidence::kRule:
      return "guessed from the graph: `train` and `freeze` choose others";
    case Evidence::kKind:
      return "from the file's own list";
    case Evidence::kRecord:
      return "from the record of the export";
    case Evidence::kLora:
      return "adapters of `lora`";
    case Evidence::kFlag:
      return "by `train`";
  }
  return "";
}

std::string Sources(const std::array<size_t, kEvidences>& counts) {
  std::string text;
  size_t kinds = 0;
  for (size_t count : counts) kinds += count > 0;
  for (Evidence evidence : {Evidence::kRecord, Evidence::kKind, Evidence::kLora,
                            Evidence::kFlag, Evidence::kRule}) {
    size_t count = counts[static_cast<size_t>(evidence)];
    if (count == 0) continue;
    if (!text.empty()) text += ", ";
    if (kinds > 1) text += std::to_string(count) + " ";
    text += Source(evidence);
  }
  return text;
}

}  // namespace

std::string TrainsLine(const std::vector<InitializerReport>& tensors,
                       const std::set<std::string>& unused) {
  size_t trained = 0, all = 0;
  int64_t numbers = 0;
  std::array<size_t, kEvidences> sources = {};
  std::map<std::string, std::vector<std::string>> others;
  std::vector<std::string> by_values;
  for (const InitializerReport& tensor : tensors) {
    Role role = tensor.value->role;
    if (!tensor.tied_to.empty() || !IsFloat(tensor.data.dtype())) continue;
    all += role == Role::kParameter || role == Role::kFrozen;
    if (role != Role::kParameter) {
      if (!tensor.noun.empty()) others[tensor.noun].push_back(tensor.name);
      if (tensor.by_values) by_values.push_back(tensor.name);
    } else if (unused.contains(tensor.name)) {
      others["parameter that the loss does not reach"].push_back(tensor.name);
    } else {
      ++trained;
      numbers += tensor.data.size();
      ++sources[static_cast<size_t>(tensor.evidence)];
    }
  }
  std::string line = Concat("trains ", trained, " of ", all, " parameters, ",
                            Grouped(numbers), " numbers");
  if (trained > 0) line += Concat(" (", Sources(sources), ")");
  std::string rest;
  for (const auto& [noun, names] : others) {
    rest += (rest.empty() ? "" : ", ") + Counted(names.size(), noun);
    // Many statistics and constants are what everybody expects.
    if (names.size() <= kNamed && noun != "statistic") {
      rest += " (" + Joined(names) + ")";
    }
  }
  if (!rest.empty()) line += "; not trained: " + rest;
  if (!by_values.empty()) {
    line += Concat(". `train` trains ", Joined(by_values, kNamed),
                   ", which do not move because of their numbers");
  }
  return line;
}

std::string TrainsLineOfStep(const Graph& step) {
  size_t trained = 0, all = 0;
  int64_t numbers = 0;
  for (const Value* value : step.Initializers()) {
    if (value->role != Role::kParameter && value->role != Role::kFrozen) {
      continue;
    }
    ++all;
    if (value->role != Role::kParameter) continue;
    ++trained;
    numbers += value->data.size();
  }
  return Concat("trains ", trained, " of ", all, " parameters, ",
                Grouped(numbers), " numbers (as the step in the file does)");
}

}  // namespace onnx_fp8
