// SPDX-License-Identifier: Apache-2.0
#include "graph/batch_statistics.h"

#include <set>

#include "graph/export_record.h"
#include "graph/node_notes.h"
#include "graph/op_facts.h"
#include "graph/views.h"

namespace onnx_fp8 {
namespace {

constexpr char kMean[] = "running_mean";
constexpr char kVariance[] = "running_var";
constexpr char kCount[] = "num_batches_tracked";

class Collector {
 public:
  Collector(const Graph& graph, const ParameterNames& names)
      : graph_(graph), names_(names), record_(ReadExportRecord(graph)) {}

  void Visit(const Graph& graph) {
    for (const Node& node : graph.nodes()) {
      if (const size_t mean = FactsOf(node).statistics) {
        Add(node, mean, kMean);
        Add(node, mean + 1, kVariance);
      }
      for (const Graph* body : node.Subgraphs()) Visit(*body);
    }
  }

  std::vector<BatchStatistic> Take() { return std::move(found_); }

 private:
  void Add(const Node& node, size_t slot, const std::string& suffix) {
    const Value* operand = node.in(slot);
    if (!operand) return;
    // TorchScript's exporter gives equal tensors one initializer.
    const Value* held = BehindCopies(operand);
    // A body reads the tensors of the graph around it.
    Value* value = graph_.Find(held->name);
    if (!value || !value->is_initializer()) return;
    std::string key = Key(node, *operand, *value, suffix);
    if (key.empty() || !taken_.insert(key).second) return;
    BatchStatistic statistic{value, key, NormalizesByBatch(node), ""};
    if (suffix == kMean && key.ends_with(suffix)) {
      statistic.count_key = key.substr(0, key.size() - suffix.size()) + kCount;
    }
    found_.push_back(std::move(statistic));
  }

  std::string Key(const Node& node, const Value& operand, const Value& value,
                  const std::string& suffix) const {
    auto named = names_.find(value.name);
    bool own = operand.name == value.name;  // not by way of an Identity
    if (named != names_.end() && own) return named->second.fqn;
    const TensorRecord* known = record_.Find(value.name, value.data.shape());
    if (known && own && !known->key.empty()) return known->key;
    if (!IsMadeUpName(operand.name)) return operand.name;
    std::string module = ModulePath(node);
    return module.empty() ? "" : module + "." + suffix;
  }

  const Graph& graph_;
  const ParameterNames& names_;
  const ExportRecord record_;
  std::set<std::string> taken_;
  std::vector<BatchStatistic> found_;
};

}  // namespace

bool NormalizesByBatch(const Node& node) {
  return FactsOf(node).statistics > 0 && node.Int("training_mode", 0) != 0;
}

std::vector<BatchStatistic> BatchStatistics(const Graph& graph,
                                            const ParameterNames& names) {
  Collector collector(graph, names);
  collector.Visit(graph);
  return collector.Take();
}

}  // namespace onnx_fp8
