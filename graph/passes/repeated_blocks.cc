// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/repeated_blocks.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>

#include "graph/dependence.h"
#include "graph/node_notes.h"
#include "graph/op_facts.h"
#include "graph/print.h"
#include "graph/repeated_runs.h"

namespace onnx_fp8 {
namespace {

class Finder {
 public:
  explicit Finder(const std::vector<Node*>& nodes) {
    const Dependences of(nodes);
    std::ranges::copy_if(
        nodes, std::back_inserter(nodes_),
        [&](const Node* node) { return of.activations.contains(node); });
    std::unordered_map<std::string, int> known;
    for (const Node* node : nodes_) {
      labels_.push_back(
          known.emplace(LabelOf(*node), static_cast<int>(known.size()))
              .first->second);
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const Value* in : nodes_[i]->inputs()) {
        if (in) last_reader_[in] = i;
      }
    }
  }

  std::vector<RepeatedBlocks> Run() const {
    std::vector<RepeatedBlocks> found;
    const auto has_product = [&](size_t begin, size_t end) {
      return HasProduct(begin, end);
    };
    for (const RepeatedRun& run : FindRepeatedRuns(labels_, has_product)) {
      found.push_back(Cut(run));
    }
    return found;
  }

 private:
  static std::string LabelOf(const Node& node) {
    std::string label = OpName(node);
    for (const auto& values : {node.inputs(), node.outputs()}) {
      label += "|";
      for (const Value* value : values) {
        label += value ? TypeText(*value) + "," : ",";
      }
    }
    return label;
  }

  bool HasProduct(size_t begin, size_t end) const {
    return std::any_of(nodes_.begin() + static_cast<std::ptrdiff_t>(begin),
                       nodes_.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const Node* node) {
                         const OpFacts& facts = FactsOf(*node);
                         return facts.kind == OpKind::kProduct ||
                                facts.kind == OpKind::kScaledProduct ||
                                facts.weights != 0;
                       });
  }

  // Bytes that cross each place of the run: results of earlier nodes that nodes
  // from there on read.
  std::vector<size_t> BytesAcross(const RepeatedRun& run) const {
    std::vector<size_t> more(run.length + 2), less(run.length + 2);
    for (size_t i = 0; i < run.end(); ++i) {
      for (const Value* out : nodes_[i]->outputs()) {
        const auto last = last_reader_.find(out);
        if (last == last_reader_.end() || last->second < run.begin) continue;
        more[std::max(i + 1, run.begin) - run.begin] += BytesOf(*out);
        less[std::min(last->second, run.end()) + 1 - run.begin] +=
            BytesOf(*out);
      }
    }
    std::vector<size_t> across;
    size_t bytes = 0;
    for (size_t at = 0; at <= run.length; ++at) {
      bytes = bytes + more[at] - less[at];
      across.push_back(bytes);
    }
    return across;
  }

  RepeatedBlocks Cut(const RepeatedRun& run) const {
    const std::vector<size_t> across = BytesAcross(run);
    size_t best = 0;
    double least = 0;  // bytes of a cut
    for (size_t phase = 0; phase < run.period; ++phase) {
      double sum = 0, cuts = 0;
      for (size_t at = phase; at < run.length; at += run.period) {
        if (at == 0) continue;
        sum += static_cast<double>(across[at]);
        ++cuts;
      }
      if (phase == 0 || sum / cuts < least) {
        best = phase;
        least = sum / cuts;
      }
    }
    std::vector<size_t> places = {run.begin};
    for (size_t at = best; at < run.length; at += run.period) {
      if (at > 0) places.push_back(run.begin + at);
    }
    places.push_back(run.end());
    RepeatedBlocks found;
    for (size_t i = 0; i + 1 < places.size(); ++i) {
      AddBlock(places[i], places[i + 1], &found);
    }
    return found;
  }

  void AddBlock(size_t begin, size_t end, RepeatedBlocks* found) const {
    std::vector<Node*>& block = found->blocks.emplace_back();
    for (size_t i = begin; i < end; ++i) {
      block.push_back(nodes_[i]);
      const bool leaves =
          std::ranges::any_of(nodes_[i]->outputs(), [&](const Value* out) {
            const auto last = last_reader_.find(out);
            return last != last_reader_.end() && last->second >= end;
          });
      if (leaves) found->ends.insert(nodes_[i]);
    }
  }

  std::vector<Node*> nodes_;  // that compute activations, in order
  std::vector<int> labels_;
  std::unordered_map<const Value*, size_t> last_reader_;
};

}  // namespace

std::vector<RepeatedBlocks> FindRepeatedBlocks(
    const std::vector<Node*>& nodes) {
  return Finder(nodes).Run();
}

}  // namespace onnx_fp8
