// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pairwise.h"

#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

LevelPair PairOf(FactorLevel a, FactorLevel b) {
  return a < b ? LevelPair{a, b} : LevelPair{b, a};
}

class PairwiseSearch {
 public:
  PairwiseSearch(const std::vector<size_t>& levels,
                 const std::vector<LevelPair>& refused)
      : levels_(levels), refused_(refused.begin(), refused.end()) {
    for (const LevelPair& pair : PairsOf(levels)) {
      if (!refused_.contains(pair)) missing_.insert(pair);
    }
  }

  bool IsDone() const { return missing_.empty(); }

  // A case with the first missing pair, and with as many others as it can have.
  std::vector<size_t> Next() {
    const auto [first, second] = *missing_.begin();
    std::vector<FactorLevel> chosen = {first, second};
    for (size_t factor = 0; factor < levels_.size(); ++factor) {
      if (factor == first.factor || factor == second.factor) continue;
      chosen.push_back(BestBeside(chosen, factor));
    }
    std::vector<size_t> one(levels_.size());
    for (const FactorLevel& own : chosen) {
      one[own.factor] = own.level;
      ++uses_[own];
      for (const FactorLevel& other : chosen) {
        missing_.erase(PairOf(own, other));
      }
    }
    return one;
  }

 private:
  // The level with the most missing pairs; of equal ones the least used.
  FactorLevel BestBeside(const std::vector<FactorLevel>& chosen,
                         size_t factor) const {
    std::optional<std::tuple<size_t, long>> most;
    FactorLevel best = {factor, 0};
    for (size_t level = 0; level < levels_[factor]; ++level) {
      const FactorLevel own = {factor, level};
      size_t gain = 0;
      bool may = true;
      for (const FactorLevel& other : chosen) {
        may = may && !refused_.contains(PairOf(own, other));
        gain += missing_.contains(PairOf(own, other));
      }
      const auto known = uses_.find(own);
      const std::tuple found = {gain,
                                known == uses_.end() ? 0 : -known->second};
      if (!may || (most && found <= *most)) continue;
      most = found;
      best = own;
    }
    Check(most.has_value(), "no level of factor ", factor, " may be added");
    return best;
  }

  const std::vector<size_t>& levels_;
  const std::set<LevelPair> refused_;
  std::set<LevelPair> missing_;
  std::map<FactorLevel, long> uses_;
};

}  // namespace

std::vector<LevelPair> PairsOf(const std::vector<size_t>& levels) {
  std::vector<LevelPair> pairs;
  for (size_t a = 0; a < levels.size(); ++a) {
    for (size_t b = a + 1; b < levels.size(); ++b) {
      for (size_t i = 0; i < levels[a]; ++i) {
        for (size_t j = 0; j < levels[b]; ++j)
          pairs.push_back({{a, i}, {b, j}});
      }
    }
  }
  return pairs;
}

std::vector<std::vector<size_t>> PairwiseCases(
    const std::vector<size_t>& levels, const std::vector<LevelPair>& refused) {
  PairwiseSearch search(levels, refused);
  std::vector<std::vector<size_t>> cases;
  while (!search.IsDone()) cases.push_back(search.Next());
  return cases;
}

}  // namespace onnx_fp8
