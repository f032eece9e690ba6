// SPDX-License-Identifier: Apache-2.0
#include "collectives/agreement.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/hash.h"

namespace onnx_fp8 {
namespace {

// The texts of all ranks if two of them differ, and nothing otherwise. Each of
// `parts` ends with a zero byte.
std::vector<std::string> DifferentTexts(Communicator& communicator,
                                        const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part + '\0';
  using Digest = std::array<uint64_t, 2>;
  const Digest mine = {text.size(), Hash(text)};
  std::vector<Digest> all(static_cast<size_t>(communicator.size()));
  communicator.AllGather(&mine, all.data(), sizeof(mine));
  if (std::ranges::count(all, all[0]) == std::ssize(all)) return {};
  return GatherTexts(communicator, text);
}

std::vector<std::string> Parts(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\0', begin);
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void CheckEqual(const std::string& what, const std::string& expected,
                const std::string& got, size_t rank) {
  Check(got == expected, "[", what, "] expected ", expected,
        ", as rank 0, got ", got, " on rank ", rank);
}

std::string LineAt(const std::vector<std::string>& lines, size_t i) {
  return i < lines.size() ? lines[i] : "nothing";
}

std::vector<Fact> Facts(const std::string& text) {
  const std::vector<std::string> parts = Parts(text);
  std::vector<Fact> facts;
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    facts.push_back({parts[i], parts[i + 1]});
  }
  return facts;
}

// "--lr 0.1", or "no --lr".
std::string Words(const std::vector<Fact>& facts, const std::string& name) {
  const auto it = std::ranges::find(facts, name, &Fact::name);
  if (it == facts.end()) return "no " + name;
  return it->value.empty() ? name : name + " " + it->value;
}

// A text names the nodes of a plan at most.
constexpr size_t kMostGathered = size_t{1} << 28;

}  // namespace

void CheckAgreement(Communicator& communicator, const std::string& what,
                    const std::vector<std::string>& lines) {
  const std::vector<std::string> texts = DifferentTexts(communicator, lines);
  for (size_t r = 1; r < texts.size(); ++r) {
    const std::vector<std::string> expected = Parts(texts[0]);
    const std::vector<std::string> got = Parts(texts[r]);
    for (size_t i = 0; i < std::max(expected.size(), got.size()); ++i) {
      CheckEqual(what, LineAt(expected, i), LineAt(got, i), r);
    }
  }
}

void CheckAgreement(Communicator& communicator, const std::string& what,
                    const std::vector<Fact>& facts) {
  std::vector<std::string> parts;
  for (const Fact& fact : facts) {
    parts.insert(parts.end(), {fact.name, fact.value});
  }
  const std::vector<std::string> texts = DifferentTexts(communicator, parts);
  for (size_t r = 1; r < texts.size(); ++r) {
    const std::vector<Fact> expected = Facts(texts[0]), got = Facts(texts[r]);
    for (const auto& names : {expected, got}) {
      for (const Fact& fact : names) {
        CheckEqual(what, Words(expected, fact.name), Words(got, fact.name), r);
      }
    }
  }
}

std::vector<std::string> GatherTexts(Communicator& communicator,
                                     const std::string& text) {
  const auto ranks = static_cast<size_t>(communicator.size());
  const uint64_t mine = text.size();
  std::vector<uint64_t> sizes(ranks);
  communicator.AllGather(&mine, sizes.data(), sizeof mine);
  const size_t longest = *std::ranges::max_element(sizes);
  Check(longest <= kMostGathered, "[ranks] expected a text of at most ",
        kMostGathered, " bytes from each rank, got ", longest);
  std::string padded = text, all(ranks * longest, '\0');
  padded.resize(longest);
  if (longest > 0) communicator.AllGather(padded.data(), all.data(), longest);
  std::vector<std::string> texts;
  for (size_t r = 0; r < ranks; ++r) {
    texts.push_back(all.substr(r * longest, sizes[r]));
  }
  return texts;
}

}  // namespace onnx_fp8
