// SPDX-License-Identifier: Apache-2.0
#include "data/weighted_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kPeriod = 65536;
// The own part of this key: other draws have the same seed.
constexpr uint64_t kSourcesKey = 0x736f757263657331;

// Whole numbers with the sum kPeriod, by the largest remainders.
std::vector<int64_t> DrawsOf(const std::vector<double>& weights) {
  for (double weight : weights) {
    Check(std::isfinite(weight) && weight > 0,
          "`data_weights`: expected finite numbers above 0, got ", weight);
  }
  const double most = *std::ranges::max_element(weights);
  double sum = 0;
  for (double weight : weights) sum += weight / most;
  std::vector<int64_t> draws;
  std::vector<double> rest;
  for (double weight : weights) {
    const double exact = weight / most / sum * kPeriod;
    draws.push_back(static_cast<int64_t>(exact));
    rest.push_back(exact - std::floor(exact));
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](size_t i) { return rest[i]; });
  int64_t left = kPeriod - std::reduce(draws.begin(), draws.end());
  for (size_t i = 0; left > 0; ++i, --left) ++draws[order[i % order.size()]];
  for (size_t i = 0; i < draws.size(); ++i) {
    Check(draws[i] > 0, "`data_weights`: expected at least 1/", kPeriod,
          " of the sum of all weights, got ", weights[i]);
  }
  return draws;
}

}  // namespace

WeightedOrder::WeightedOrder(const std::vector<int64_t>& sizes,
                             const std::vector<double>& weights, uint64_t seed,
                             bool shuffle, int64_t block)
    : seed_(seed ^ kSourcesKey) {
  const std::vector<int64_t> draws = DrawsOf(weights);
  int64_t begin = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    // Sources of the same size must not come in the same order.
    const uint64_t own = RandomBits(seed_, ~static_cast<uint64_t>(i));
    sources_.push_back(
        {PassOrder(sizes[i], own, shuffle, block), begin, draws[i]});
    begin += sizes[i];
  }
}

int64_t WeightedOrder::At(int64_t draw) {
  if (draw / kPeriod != period_) OpenPeriod(draw / kPeriod);
  const Draw& now = draws_[static_cast<size_t>(draw % kPeriod)];
  Source& source = sources_[now.source];
  const int64_t place = period_ * source.in_period + now.before;
  const int64_t size = source.order.size();
  return source.begin + source.order.At(place / size, place % size);
}

double WeightedOrder::Share(size_t source) const {
  return static_cast<double>(sources_[source].in_period) / kPeriod;
}

void WeightedOrder::OpenPeriod(int64_t period) {
  const std::vector<uint32_t> places =
      Shuffled(kPeriod, RandomBits(seed_, static_cast<uint64_t>(period)));
  draws_.assign(kPeriod, {});
  size_t next = 0;
  for (uint32_t source = 0; source < sources_.size(); ++source) {
    for (int64_t i = 0; i < sources_[source].in_period; ++i) {
      draws_[places[next++]].source = source;
    }
  }
  std::vector<uint32_t> had(sources_.size(), 0);
  for (Draw& draw : draws_) draw.before = had[draw.source]++;
  period_ = period;
}

}  // namespace onnx_fp8
