// SPDX-License-Identifier: Apache-2.0
#include "collectives/agreement.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/hash.h"
#include "collectives/gather_texts.h"

namespace onnx_fp8 {
namespace {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string LineAt(const std::vector<std::string>& lines, size_t i) {
  return i < lines.size() ? lines[i] : "nothing";
}

}  // namespace

void CheckAgreement(Communicator& communicator, const std::string& what,
                    const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  const size_t ranks = static_cast<size_t>(communicator.size());
  using Digest = std::array<uint64_t, 2>;
  const Digest mine = {text.size(), Hash(text)};
  std::vector<Digest> all(ranks);
  communicator.AllGather(&mine, all.data(), sizeof(mine));
  if (std::ranges::count(all, all[0]) == static_cast<ptrdiff_t>(ranks)) return;

  const std::vector<std::string> texts = GatherTexts(communicator, text);
  const std::vector<std::string> expected = Lines(texts[0]);
  for (size_t r = 1; r < ranks; ++r) {
    const std::vector<std::string> got = Lines(texts[r]);
    const auto [a, b] = std::ranges::mismatch(expected, got);
    const size_t i = static_cast<size_t>(a - expected.begin());
    Check(got == expected, "[", what, "] expected ", LineAt(expected, i),
          ", as rank 0, got ", LineAt(got, i), " on rank ", r);
  }
}

}  // namespace onnx_fp8
