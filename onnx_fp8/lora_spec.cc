// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/lora_spec.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "base/glob.h"
#include "base/number_text.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

constexpr char kUsage[] =
    "`lora`: expected r=16,alpha=32,targets=GLOB,GLOB,dropout=0.05,"
    "init=true|gaussian|false,rslora, or the folder of an adapter, got \"";
constexpr const char* kKeys[] = {"r",    "alpha",  "targets", "dropout",
                                 "init", "rslora", "from"};

OptionError Refused(const std::string& part) {
  return OptionError(Concat(kUsage, part, "\""));
}

// The key at the start of an item: "r" for "r=16", "rslora" for "rslora"; "":
// it begins with no key.
std::string_view LoraKeyOf(std::string_view item) {
  if (item == "rslora") return item;
  const size_t split = item.find('=');
  if (split == std::string_view::npos) return "";
  const std::string_view word = item.substr(0, split);
  return std::ranges::count(kKeys, word) > 0 ? word : "";
}

template <typename Number>
Number NumberOf(const std::string& item, std::string_view text) {
  Number number = 0;
  if (!ReadNumber(text, &number)) throw Refused(item);
  return number;
}

LoraInit InitOf(std::string_view word) {
  const auto* known = std::ranges::find(kLoraInits, word);
  if (known != std::end(kLoraInits)) {
    return static_cast<LoraInit>(known - std::begin(kLoraInits));
  }
  throw OptionError(
      Concat("`lora`: expected init=true, gaussian or false, got ", word,
             ", which this program does not have"));
}

// An item without a key continues the item before it, because targets and paths
// may hold commas.
std::vector<std::string> Items(const std::string& text) {
  std::vector<std::string> items;
  std::string last;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string_view key = LoraKeyOf(item);
    if (!key.empty()) {
      items.push_back(item);
    } else if (last == "targets" || last == "from") {
      items.back() += "," + item;
      continue;
    } else {
      throw Refused(item);
    }
    last = key;
  }
  return items;
}

std::vector<std::string> Targets(const std::string& item,
                                 std::string_view text) {
  std::vector<std::string> targets;
  while (true) {
    const size_t end = std::min(text.find(','), text.size());
    if (end == 0) throw Refused(item);
    targets.emplace_back(text.substr(0, end));
    if (end == text.size()) return targets;
    text.remove_prefix(end + 1);
  }
}

void ApplyItem(const std::string& item, LoraSpec* spec) {
  const std::string_view key = LoraKeyOf(item);
  const std::string_view text =
      std::string_view(item).substr(std::min(key.size() + 1, item.size()));
  if (key == "rslora") {
    if (key.size() < item.size()) throw Refused(item);
    spec->rslora = true;
    return;
  }
  if (text.empty()) throw Refused(item);
  if (key == "r") spec->rank = NumberOf<int64_t>(item, text);
  if (key == "alpha") spec->alpha = NumberOf<double>(item, text);
  if (key == "dropout") spec->dropout = NumberOf<double>(item, text);
  if (key == "targets") spec->targets = Targets(item, text);
  if (key == "init") spec->init = InitOf(text);
  if (key == "from") spec->folder = text;
}

}  // namespace

double LoraSpec::scaling() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

void CheckLora(const LoraSpec& spec) {
  if (spec.rank < 1 || spec.rank > kMaxLoraRank) {
    throw OptionError(Concat("`lora`: expected r from 1 to ", kMaxLoraRank,
                             ", got ", spec.rank));
  }
  if (!std::isfinite(spec.alpha) || spec.alpha <= 0) {
    throw OptionError(
        Concat("`lora`: expected alpha above 0, got ", spec.alpha));
  }
  if (!(spec.dropout >= 0 && spec.dropout < 1)) {
    throw OptionError(Concat("`lora`: expected dropout from 0 to below 1, got ",
                             spec.dropout));
  }
  if (spec.targets.empty() && spec.folder.empty()) {
    throw OptionError(
        "`lora`: expected targets, as in targets=*q_proj*,*v_proj*");
  }
}

LoraSpec ParseLora(const std::string& text) {
  LoraSpec spec;
  const std::string first = text.substr(0, text.find(','));
  if (text.empty()) throw Refused(text);
  if (LoraKeyOf(first).empty()) {
    const bool is_word = first.find('=') != std::string::npos &&
                         first.find('/') == std::string::npos;
    if (is_word) throw Refused(first);
    spec.folder = text;
  } else {
    for (const std::string& item : Items(text)) ApplyItem(item, &spec);
  }
  CheckLora(spec);
  return spec;
}

std::string LoraText(const LoraSpec& spec) {
  std::string text = Concat("r=", spec.rank, ",alpha=", NumberText(spec.alpha));
  for (size_t i = 0; i < spec.targets.size(); ++i) {
    text += (i == 0 ? ",targets=" : ",") + spec.targets[i];
  }
  if (spec.dropout > 0) text += ",dropout=" + NumberText(spec.dropout);
  if (spec.init != LoraInit::kTrue) {
    text += Concat(",init=", kLoraInits[static_cast<size_t>(spec.init)]);
  }
  if (spec.rslora) text += ",rslora";
  if (!spec.folder.empty()) text += ",from=" + spec.folder;
  return text;
}

bool IsLoraTarget(const std::string& target, const std::string& name) {
  return MatchesGlob(target, name) || name.ends_with("." + target);
}

}  // namespace onnx_fp8
