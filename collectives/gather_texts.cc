// SPDX-License-Identifier: Apache-2.0
#include "collectives/gather_texts.h"

#include <algorithm>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// A text names the nodes of a plan at most.
constexpr size_t kMostGathered = size_t{1} << 28;

}  // namespace

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
