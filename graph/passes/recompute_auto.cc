// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/recompute_auto.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/dependence.h"
#include "graph/node_notes.h"
#include "graph/passes/repeated_blocks.h"
#include "graph/print.h"

namespace onnx_fp8 {
namespace {

// A chain is the nodes that run again so that one value need not live. It has
// at most kLongestChain nodes. The search ends a chain that has grown by
// kIdleGrowth nodes without becoming better.
constexpr size_t kLongestChain = 256;
constexpr size_t kIdleGrowth = 16;
// A round removes at least this part of the excess, so that there are few
// rounds.
constexpr size_t kRoundShare = 4;
// Rounds in a row that help nothing before the search gives up, and all rounds.
constexpr int kMostFailures = 32;
constexpr size_t kMostRounds = 512;

size_t At(int i) { return static_cast<size_t>(i); }

// Nodes that run again so that the results of the first one need not live.
struct Chain {
  std::vector<int> nodes;
  size_t gain = 0;  // bytes freed when most are alive
  double seconds = 0;
};

// Chains of nodes that are the same in all layers, in the order of their first
// nodes.
struct LayerChains {
  int key;
  std::vector<Chain> chains = {};
  size_t gain = 0;
  double seconds = 0;

  double Worth() const { return static_cast<double>(gain) / seconds; }
};

// Bytes and numbers of blocks that would live longer: the largest first, and of
// equal ones the last in the graph.
using Operands = std::priority_queue<std::pair<size_t, int>>;

// Numbers that nodes of one place in their layers share. Copies of weights
// stand outside of layers: there the op and the types decide.
std::vector<int> KeysOf(const std::vector<Node*>& forward) {
  std::unordered_map<const Node*, int> keys;
  int next = 0;
  for (const RepeatedBlocks& run : FindRepeatedBlocks(forward)) {
    size_t period = 0;
    for (const auto& block : run.blocks) {
      period = std::max(period, block.size());
    }
    for (size_t i = 0; i < run.blocks.size(); ++i) {
      // The first block may lack its begin, the last one its end.
      const auto& block = run.blocks[i];
      const size_t skipped = i == 0 ? period - block.size() : 0;
      for (size_t j = 0; j < block.size(); ++j) {
        keys[block[j]] = next + static_cast<int>(skipped + j);
      }
    }
    next += static_cast<int>(period);
  }
  const Dependences of(forward);
  std::map<std::string, int> copies;
  std::vector<int> list;
  for (const Node* node : forward) {
    auto known = keys.find(node);
    if (known != keys.end()) {
      list.push_back(known->second);
    } else if (of.copies.contains(node)) {
      std::string label = OpName(*node);
      for (const Value* in : node->inputs()) {
        label += in ? "|" + TypeText(*in) : "|";
      }
      const auto [copy, added] = copies.emplace(label, next);
      next += added;
      list.push_back(copy->second);
    } else {
      list.push_back(next++);
    }
  }
  return list;
}

class Chooser {
 public:
  explicit Chooser(const RecomputeProblem& problem)
      : problem_(problem),
        memory_(*problem.graph, problem.forward.size(), problem.kept,
                problem.costs),
        keys_(KeysOf(problem.forward)),
        uses_(problem.forward.size()),
        again_(problem.forward.size()),
        chain_of_node_(problem.forward.size()),
        chain_of_block_(memory_.blocks().size()) {
    for (const Node* node : memory_.nodes()) {
      seconds_.push_back(problem.costs.seconds(*node));
      result_.all_seconds += seconds_.back();
    }
    least_seconds_ = 1e-9 * result_.all_seconds + 1e-30;
    for (size_t i = 0; i < problem.forward.size(); ++i) {
      may_.push_back(problem.may.contains(problem.forward[i]));
      moves_alone_.push_back(MovesAlone(static_cast<int>(i)));
    }
  }

  AutoRecompute Run(size_t budget) {
    memory_.Simulate(again_);
    result_.before = memory_.peak();
    while (memory_.peak() > budget && result_.rounds < kMostRounds) {
      ++result_.rounds;
      if (!Improve(budget)) break;
    }
    TakeBack(std::max(budget, memory_.peak()));
    memory_.Simulate(again_);
    result_.after = memory_.peak();
    Collect();
    return std::move(result_);
  }

  AutoRecompute Weigh(const std::unordered_set<Node*>& again) {
    memory_.Simulate(again_);
    result_.before = memory_.peak();
    for (size_t i = 0; i < again_.size(); ++i) {
      again_[i] = again.contains(problem_.forward[i]);
    }
    memory_.Simulate(again_);
    result_.after = memory_.peak();
    Collect();
    return std::move(result_);
  }

 private:
  using Block = LiveMemory::Block;

  // One round. False: nothing is left to choose.
  bool Improve(size_t budget) {
    const std::vector<LayerChains> groups = Candidates();
    if (groups.empty()) return false;
    const size_t excess = memory_.peak() - budget;
    size_t count = 0, gain = 0;
    while (count < groups.size() &&
           (count == 0 || gain < excess / kRoundShare)) {
      gain += groups[count++].gain;
    }
    // A choice that frees less than half of its promise may hinder a better
    // one.
    for (size_t promised : {excess, size_t{0}}) {
      if (TryFirst(groups, count, promised) ||
          TryPart(groups.front(), promised)) {
        failures_ = 0;
        return true;
      }
    }
    banned_.insert(groups.front().key);
    return ++failures_ < kMostFailures;
  }

  // The first `count` groups, or else half of them, a quarter, …, one.
  bool TryFirst(const std::vector<LayerChains>& groups, size_t count,
                size_t promised) {
    for (; count > 0; count /= 2) {
      const auto end = groups.begin() + static_cast<std::ptrdiff_t>(count);
      if (Try({groups.begin(), end}, promised)) return true;
    }
    return false;
  }

  // A layer computed from the layer before it, and so on, would need them all
  // at once: then one of two layers, of four, … drops its value.
  bool TryPart(const LayerChains& group, size_t promised) {
    for (size_t step = 2; step <= group.chains.size(); step *= 2) {
      LayerChains part{group.key};
      for (size_t i = 0; i < group.chains.size(); i += step) {
        part.gain += group.chains[i].gain;
        part.chains.push_back(group.chains[i]);
      }
      if (Try({part}, promised)) return true;
    }
    return false;
  }

  // The best groups first.
  std::vector<LayerChains> Candidates() {
    std::map<int, LayerChains> by_key;
    for (size_t i = 0; i < may_.size(); ++i) {
      const auto node = static_cast<int>(i);
      if (!may_[i] || again_[i] || banned_.contains(keys_[i])) continue;
      if (FreedBy(node) == 0) continue;
      Chain chain = BestChain(node);
      if (chain.gain == 0) continue;
      LayerChains& group =
          by_key.try_emplace(keys_[i], LayerChains{keys_[i]}).first->second;
      group.gain += chain.gain;
      group.seconds += chain.seconds;
      group.chains.push_back(std::move(chain));
    }
    std::vector<LayerChains> groups;
    for (auto& [key, group] : by_key) groups.push_back(std::move(group));
    std::ranges::stable_sort(groups, std::greater<>(), &LayerChains::Worth);
    return groups;
  }

  // Whether nothing reads the block between its last reader of the forward and
  // its first reader of the backward, with the peak between them.
  bool RestsAtPeak(const Block& block) const {
    const int peak = memory_.peak_time();
    return !block.kept && !memory_.RunsInBackward(block.writer) &&
           block.last_forward < peak && peak < block.first_backward;
  }

  size_t FreedBy(int node) const {
    size_t bytes = 0;
    for (int b : memory_.Writes(node)) {
      const Block& block = memory_.blocks()[At(b)];
      if (RestsAtPeak(block)) bytes += block.held;
    }
    return bytes;
  }

  // Bytes that a second run adds at the peak because it reads the block.
  size_t Extends(const Block& block) const {
    const bool there = block.kept || memory_.RunsInBackward(block.writer) ||
                       block.last_backward > memory_.peak_time();
    return there ? 0 : block.bytes_for_second_runs;
  }

  // The node and the makers of its operands, as far as that is worth more than
  // to let the operands live.
  Chain BestChain(int node) {
    ++chain_;
    Operands operands;  // whose makers may run again
    Chain chain, best;
    size_t freed = 0, kept = 0, length = 0;  // `length`: of the best
    for (int next = node; next >= 0; next = TakeMaker(&operands, &kept)) {
      chain.nodes.push_back(next);
      chain_of_node_[At(next)] = chain_;
      freed += FreedBy(next);
      if (!moves_alone_[At(next)]) chain.seconds += seconds_[At(next)];
      AddOperands(next, &operands, &kept);
      chain.gain = freed > kept ? freed - kept : 0;
      const double seconds = std::max(chain.seconds, least_seconds_);
      if (chain.gain > 0 &&
          (length == 0 || IsBetter(chain.gain, seconds, best))) {
        best.gain = chain.gain;
        best.seconds = seconds;
        length = chain.nodes.size();
      }
      const size_t most = length == 0
                              ? kLongestChain
                              : std::min(kLongestChain, length + kIdleGrowth);
      if (chain.nodes.size() >= most) break;
    }
    chain.nodes.resize(length);
    best.nodes = std::move(chain.nodes);
    return best;
  }

  void AddOperands(int node, Operands* operands, size_t* kept) {
    for (int b : memory_.Reads(node)) {
      const Block& block = memory_.blocks()[At(b)];
      const size_t bytes = Extends(block);
      const bool known = chain_of_node_[At(block.writer)] == chain_ ||
                         chain_of_block_[At(b)] == chain_;
      if (known || bytes == 0) continue;
      chain_of_block_[At(b)] = chain_;
      *kept += bytes;
      if (may_[At(block.writer)]) operands->push({bytes, b});
    }
  }

  // Whether only the backward reads the results: the node then runs once.
  bool MovesAlone(int node) const {
    return std::ranges::all_of(memory_.Writes(node), [&](int b) {
      const Block& block = memory_.blocks()[At(b)];
      return !block.kept && std::ranges::all_of(block.readers, [&](int reader) {
        return At(reader) >= memory_.forward();
      });
    });
  }

  static bool IsBetter(size_t gain, double seconds, const Chain& than) {
    return static_cast<double>(gain) * than.seconds >
           static_cast<double>(than.gain) * seconds;
  }

  // Takes the largest operand, with all others of its maker. kNever: there is
  // none.
  int TakeMaker(Operands* operands, size_t* kept) const {
    while (!operands->empty()) {
      const int b = operands->top().second;
      operands->pop();
      const int maker = memory_.blocks()[At(b)].writer;
      if (chain_of_node_[At(maker)] == chain_) continue;
      for (int made : memory_.Writes(maker)) {
        const bool is_operand = chain_of_block_[At(made)] == chain_;
        if (is_operand) *kept -= Extends(memory_.blocks()[At(made)]);
      }
      return maker;
    }
    return LiveMemory::kNever;
  }

  // Chooses the groups if the peak then falls, and by more than half of what
  // they promise to free, or of `promised`, if that is less.
  bool Try(const std::vector<LayerChains>& groups, size_t promised) {
    const size_t before = memory_.peak();
    size_t gain = 0;
    Choice& choice = choices_.emplace_back();
    for (const LayerChains& group : groups) {
      gain += group.gain;
      choice.chains.insert(choice.chains.end(), group.chains.begin(),
                           group.chains.end());
    }
    const size_t enough = std::min(gain, promised) / 2;
    Keep(&choice, choice.chains.size());
    if (memory_.peak() < before && before - memory_.peak() > enough) {
      return true;
    }
    Keep(&choice, 0);
    choices_.pop_back();
    return false;
  }

  // What a round has chosen; the first chains of it are kept.
  struct Choice {
    std::vector<Chain> chains;
    size_t kept = 0;
  };

  void Keep(Choice* choice, size_t count) {
    if (choice->kept == count) return;
    for (; choice->kept < count; ++choice->kept) {
      for (int node : choice->chains[choice->kept].nodes) {
        again_[At(node)] = ++uses_[At(node)] > 0;
      }
    }
    while (choice->kept > count) {
      for (int node : choice->chains[--choice->kept].nodes) {
        again_[At(node)] = --uses_[At(node)] > 0;
      }
    }
    memory_.Simulate(again_);
  }

  // From the last choice, which frees the fewest bytes for a second, as many
  // chains as `limit` allows.
  void TakeBack(size_t limit) {
    for (size_t i = choices_.size(); i-- > 0;) {
      Choice& choice = choices_[i];
      size_t low = 0, high = choice.chains.size();
      while (low < high) {
        const size_t middle = (low + high) / 2;
        Keep(&choice, middle);
        if (memory_.peak() <= limit) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      Keep(&choice, high);
    }
  }

  void Collect() {
    for (size_t i = 0; i < problem_.forward.size(); ++i) {
      const auto node = static_cast<int>(i);
      const int viewed = memory_.ViewedBy(node);
      const int maker = viewed < 0 ? node : memory_.blocks()[At(viewed)].writer;
      if (!memory_.RunsInBackward(maker)) continue;
      result_.nodes.insert(problem_.forward[i]);
      if (viewed < 0 && !memory_.Moves(node)) result_.seconds += seconds_[i];
    }
  }

  const RecomputeProblem& problem_;
  LiveMemory memory_;
  const std::vector<int> keys_;
  std::vector<double> seconds_;  // by node
  double least_seconds_ = 0;
  std::vector<char> may_, moves_alone_;  // by node of the forward
  std::vector<int> uses_;  // by node of the forward: chains that have it
  std::vector<char> again_;
  // The last chain that a node was in, and that a block was an operand of.
  int chain_ = 0;
  std::vector<int> chain_of_node_, chain_of_block_;
  std::vector<Choice> choices_;
  std::unordered_set<int> banned_;  // keys
  int failures_ = 0;                // rounds since the last one that helped
  AutoRecompute result_;
};

}  // namespace

size_t PeakWith(const RecomputeProblem& problem,
                const std::unordered_set<Node*>& again) {
  LiveMemory memory(*problem.graph, problem.forward.size(), problem.kept,
                    problem.costs);
  std::vector<char> chosen;
  for (Node* node : problem.forward) chosen.push_back(again.contains(node));
  memory.Simulate(chosen);
  return memory.peak();
}

AutoRecompute Weigh(const RecomputeProblem& problem,
                    const std::unordered_set<Node*>& again) {
  return Chooser(problem).Weigh(again);
}

AutoRecompute ChooseToFit(const RecomputeProblem& problem, size_t budget) {
  return Chooser(problem).Run(budget);
}

}  // namespace onnx_fp8
