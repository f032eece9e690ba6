// SPDX-License-Identifier: Apache-2.0
#include "graph/repeated_runs.h"

#include <algorithm>

namespace onnx_fp8 {
namespace {

// A block has at most this many items. The search compares each item with as
// many others.
constexpr size_t kMostItems = 4096;

class RunFinder {
 public:
  RunFinder(const std::vector<int>& labels,
            const std::function<bool(size_t, size_t)>& counts)
      : labels_(labels), counts_(counts) {}

  // Runs in the part [begin, end) of the items.
  void Search(size_t begin, size_t end, std::vector<RepeatedRun>* runs) const {
    const RepeatedRun run = LongestRun(begin, end);
    if (run.length == 0) return;
    Search(begin, run.begin, runs);
    runs->push_back(run);
    Search(run.end(), end, runs);
  }

 private:
  RepeatedRun LongestRun(size_t begin, size_t end) const {
    RepeatedRun best;
    for (size_t p = 1; p <= std::min((end - begin) / 2, kMostItems); ++p) {
      size_t equal = 0;  // items before i that equal the item one period later
      for (size_t i = begin; i + p <= end; ++i) {
        if (i + p < end && labels_[i] == labels_[i + p]) {
          ++equal;
          continue;
        }
        const RepeatedRun run{i - equal, equal + p, p};
        if (equal >= p && run.length > best.length &&
            counts_(run.begin, run.begin + p)) {
          best = run;
        }
        equal = 0;
      }
    }
    return best;
  }

  const std::vector<int>& labels_;
  const std::function<bool(size_t, size_t)>& counts_;
};

}  // namespace

std::vector<RepeatedRun> FindRepeatedRuns(
    const std::vector<int>& labels,
    const std::function<bool(size_t begin, size_t end)>& counts) {
  std::vector<RepeatedRun> runs;
  RunFinder(labels, counts).Search(0, labels.size(), &runs);
  return runs;
}

}  // namespace onnx_fp8
