// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/trained_parameters.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "base/glob.h"
#include "base/joined.h"
#include "graph/constants.h"
#include "graph/export_record.h"
#include "graph/op_facts.h"
#include "graph/passes/fixed_tables.h"
#include "graph/passes/parameter_rule.h"
#include "graph/passes/tied_weights.h"

namespace onnx_fp8 {
namespace {

// Scalars of the arithmetic look like scalar parameters. Exporters give them
// rank 0, or a made-up name if an optimization reshaped them.
bool CannotTell(const HeldTensor& tensor) {
  return tensor.data.size() == 1 &&
         (tensor.data.rank() == 0 || IsMadeUpName(tensor.value->name));
}

// Decides and reports. Constants that get a role become initializers.
class Marker {
 public:
  explicit Marker(Graph& graph)
      : graph_(graph),
        record_(ReadExportRecord(graph)),
        has_record_(graph.metadata.contains(kExportRecord)),
        tensors_(HeldTensors(graph)),
        rule_(FindUses(graph, tensors_,
                       record_.from_torch && record_.tensors.empty())),
        tables_(FixedTables(tensors_)) {}

  void Mark() {
    for (HeldTensor& tensor : tensors_) {
      InitializerReport report{tensor.value->name, tensor.value, tensor.data};
      bool bound = IsState(tensor.value->role);
      if (!bound) tensor.value->role = Role::kNone;
      if (bound) {
        report.reason = "state: each run of the file gives it a new value";
        report.noun = "state tensor";
      } else {
        Decide(tensor, &report);
      }
      reports_.push_back(std::move(report));
    }
    for (InitializerReport& report : reports_) {
      if (report.value->role != Role::kNone) Settle(report);
    }
    MarkPadding();
    ParameterNames names = NameParameters(graph_);
    for (InitializerReport& report : reports_) {
      auto named = names.find(report.name);
      report.torch =
          named == names.end() ? ParameterName{report.name} : named->second;
    }
  }

  // Entries of the record that are about no tensor of the file.
  void NoteUnmatched(std::vector<std::string>* notes) const {
    std::set<std::string> held;
    for (const InitializerReport& report : reports_) {
      if (record_.Find(report.name, report.data.shape())) {
        held.insert(report.name);
      }
    }
    std::vector<std::string> lost;
    for (const auto& [name, entry] : record_.tensors) {
      if (entry.full && !held.contains(name)) lost.push_back(name);
    }
    if (lost.empty()) return;
    notes->push_back(
        Concat("the record of the export does not fit ", Joined(lost),
               ": the file has no such tensor, or one of another shape. The "
               "record counts for the other tensors only"));
  }

  // Ties tensors that hold the same numbers, unless the record or their names
  // say that they are two.
  void TieCopies(std::vector<std::string>* notes) {
    TieByRecord();
    if (record_.separate) return;
    std::vector<Value*> weights;
    std::set<std::string> tables;
    for (const InitializerReport& report : reports_) {
      if (report.value->role != Role::kParameter) continue;
      weights.push_back(report.value);
      auto found = rule_.found.find(report.name);
      if (found != rule_.found.end() && found->second.lookup) {
        tables.insert(report.name);
      }
    }
    for (const Tie& tie : FindTies(graph_, weights, tables)) {
      const std::string &first = tie.first->name, &second = tie.second->name;
      // An optimization that folds a tensor into a new one takes its name and
      // its kind. Exporters write tensors that kept them once if they are tied.
      if (IsMadeUpName(first) || IsMadeUpName(second)) {
        Apply(tie, "");
      } else if (notes) {
        notes->push_back(Concat(first, " and ", second,
                                " hold the same numbers and are trained apart "
                                "(`tie` ",
                                first, "=", second, " makes them one)"));
      }
    }
  }

  // "A=B".
  void TieNamed(const std::string& text) {
    size_t cut = text.find('=');
    Check(cut != std::string::npos && cut > 0 && cut + 1 < text.size(), "[",
          graph_.file, "] `tie` expected A=B, got ", text);
    InitializerReport& a = *Named(text.substr(0, cut));
    InitializerReport& b = *Named(text.substr(cut + 1));
    if (a.value == b.value) return;  // tied already
    Check(b.tied_to.empty(), "[", graph_.file, "] `tie` ", text, ": ", b.name,
          " is tied to ", b.tied_to, " already");
    for (InitializerReport* report : {&a, &b}) Settle(*report);
    auto transposed = HoldsTransposed(*a.value, *b.value);
    Check(transposed.has_value(), "[", graph_.file, "] `tie` ", text,
          ": expected the same numbers in both, as they are or transposed");
    Apply({a.value, b.value, *transposed}, "`tie` " + text);
  }

  void Override(const std::vector<std::string>& globs, const char* option,
                Role role) {
    for (const std::string& pattern : globs) {
      for (InitializerReport* report : Matching(pattern, option)) {
        Role before = report->value->role;
        if (role == Role::kFrozen && before != Role::kParameter) continue;
        Check(role == Role::kFrozen || !IsScale(*report->value), "[",
              graph_.file, "] ", option, " ", pattern, " names ", report->name,
              ", the scale of a quantization: scales stay fixed");
        report->value->role = role;
        report->evidence = Evidence::kFlag;
        report->noun = role == Role::kFrozen ? "frozen parameter" : "";
        report->by_values = false;
        report->reason =
            Concat(role == Role::kFrozen ? "frozen: " : "trained: ", option,
                   " ", pattern);
        Settle(*report);
      }
    }
  }

  // Single numbers in Constant nodes are not worth a report.
  std::vector<InitializerReport> TakeReports() {
    std::erase_if(reports_, [](const InitializerReport& report) {
      return report.value->producer &&
             (report.data.size() == 1 || !IsFloat(report.data.dtype()));
    });
    return std::move(reports_);
  }

 private:
  // Sets the role, and says why.
  void Decide(const HeldTensor& tensor, InitializerReport* report) {
    const TensorRecord* record =
        record_.Find(tensor.value->name, tensor.data.shape());
    if (!IsFloat(tensor.data.dtype())) {
      report->reason = Concat("constant: ", Name(tensor.data.dtype()), " data");
    } else if (rule_.running.contains(tensor.value->name)) {
      tensor.value->role = Role::kStatistic;
      report->reason = "state: running statistics of BatchNormalization";
      report->noun = "statistic";
    } else if (record) {
      ByRecord(tensor, *record, report);
    } else if (has_record_ && tensor.value->producer) {
      // onnx_fp8.torch.export makes initializers of all parameters. It lists
      // the graph's Constant nodes, but none of functions and bodies.
      report->evidence = Evidence::kRecord;
      report->noun = "constant";
      report->reason = "constant: a Constant node, by the record of the export";
    } else {
      ByRule(tensor, report);
    }
  }

  void ByRecord(const HeldTensor& tensor, const TensorRecord& record,
                InitializerReport* report) {
    report->evidence = record.full ? Evidence::kRecord : Evidence::kKind;
    std::string by = record.full ? "the record of the export"
                                 : "the kind that the exporter wrote";
    if (record.kind != TensorKind::kParameter) {
      bool buffer = record.kind == TensorKind::kBuffer;
      report->noun = !buffer                      ? "constant"
                     : IsStatistic(*tensor.value) ? "statistic"
                                                  : "buffer";
      report->reason =
          Concat("constant: a ", buffer ? "buffer" : "constant", ", by ", by);
      return;
    }
    if (!record.requires_grad) {
      tensor.value->role = Role::kFrozen;
      report->noun = "frozen parameter";
      report->reason = "frozen: requires no gradient, by " + by;
      return;
    }
    // Whisper's positions are a parameter that never moves.
    auto table = tables_.find(tensor.value);
    if (!record.full && table != tables_.end() &&
        table->second.proof == FixedTable::kTable &&
        UseOf(tensor) != ParameterUse::kLayer) {
      IsTable(table->second, report);
      return;
    }
    tensor.value->role = Role::kParameter;
    report->reason = "trained: a parameter, by " + by;
  }

  static void IsTable(const FixedTable& table, InitializerReport* report) {
    report->noun = "table of " + table.text;
    if (table.text.starts_with("a ")) report->noun = table.text.substr(2);
    if (table.text == "frequencies") report->noun = "vector of frequencies";
    if (table.text.starts_with("sines")) {
      report->noun = "table of sines and cosines";
    }
    report->by_values = true;
    report->reason =
        Concat("constant: ", table.text, " (name it with `train` to train it)");
  }

  // Notes on lookups which row gets no gradient.
  void MarkPadding() {
    for (const InitializerReport& report : reports_) {
      const TensorRecord* record =
          record_.Find(report.name, report.data.shape());
      if (!record || !record->padding_idx || report.data.rank() == 0) continue;
      int64_t rows = report.data.dim(0), row = *record->padding_idx;
      Check(row >= -rows && row < rows, "[", graph_.file,
            "] expected the record's padding_idx of ", report.name,
            " to be one of its ", rows, " rows, got ", row);
      std::vector<const Value*> open = {report.value};
      while (!open.empty()) {
        const Value* value = open.back();
        open.pop_back();
        for (Node* node : value->uses) {
          if (node->Is("Gather") && node->in(0) == value &&
              node->Int("axis", 0) == 0) {
            node->metadata[kPaddingRow] =
                std::to_string(row < 0 ? row + rows : row);
          } else if (node->Is("Identity") || node->Is("Cast")) {
            open.push_back(node->out(0));
          }
        }
      }
    }
  }

  // Nothing if it meets no data.
  std::optional<ParameterUse> UseOf(const HeldTensor& tensor) const {
    auto found = rule_.found.find(tensor.value->name);
    if (found == rule_.found.end()) return {};
    return found->second.use;
  }

  // Whether the numbers show more than the structure.
  bool Proves(const FixedTable& table, std::optional<ParameterUse> use) const {
    if (!use || table.proof == FixedTable::kSure) return true;
    if (use == ParameterUse::kLayer) return false;
    return use == ParameterUse::kArithmetic ||
           table.proof == FixedTable::kTable;
  }

  void ByRule(const HeldTensor& tensor, InitializerReport* report) {
    Value& value = *tensor.value;
    auto use = UseOf(tensor);
    auto lost = rule_.lost.find(value.name);
    auto table = tables_.find(&value);
    report->noun = IsStatistic(value)        ? "statistic"
                   : tensor.data.size() == 1 ? "single number"
                                             : "constant";
    bool factor = rule_.factors.contains(value.name);
    if (use && CannotTell(tensor) && !factor) {
      report->reason =
          "constant: one element (name it with `train` to train it)";
    } else if (table != tables_.end() && Proves(table->second, use)) {
      IsTable(table->second, report);
    } else if (use) {
      value.role = Role::kParameter;
      report->reason =
          "trained: meets data at " + rule_.found.at(value.name).where;
    } else if (lost != rule_.lost.end()) {
      report->reason = "constant: no weight of " + lost->second;
    } else {
      report->reason = "constant: meets no data";
    }
  }

  // The running mean or variance of a normalization.
  static bool IsStatistic(const Value& value) {
    auto reads = [&](const Node* node) {
      const size_t mean = FactsOf(*node).statistics;
      return mean > 0 &&
             (node->in(mean) == &value || node->in(mean + 1) == &value);
    };
    return !value.uses.empty() && std::ranges::all_of(value.uses, reads);
  }

  // Nothing but quantizations reads it, as their scale.
  static bool IsScale(const Value& value) {
    auto scales = [&](const Node* node) {
      return (node->Is("QuantizeLinear") || node->Is("DequantizeLinear")) &&
             node->in(0) != &value;
    };
    return !value.uses.empty() && std::ranges::all_of(value.uses, scales);
  }

  // Tensors of the file whose keys the record joins.
  void TieByRecord() {
    std::map<std::string, Value*> by_key;
    for (const InitializerReport& report : reports_) {
      const TensorRecord* record =
          record_.Find(report.name, report.data.shape());
      if (record && !record->key.empty() && report.value->is_initializer()) {
        by_key.emplace(record->key, report.value);
      }
    }
    for (const auto& group : record_.tied) {
      Value* first = nullptr;
      for (const std::string& key : group) {
        auto held = by_key.find(key);
        if (held == by_key.end() || held->second == first) continue;
        auto transposed = first ? HoldsTransposed(*first, *held->second)
                                : std::optional<bool>{};
        if (transposed) Apply({first, held->second, *transposed}, "");
        if (!first) first = held->second;
      }
    }
  }

  void Settle(InitializerReport& report) {
    Role role = report.value->role;
    report.value = AsInitializer(graph_, report.value);
    report.value->role = role;
  }

  void Apply(const Tie& tie, const std::string& option) {
    std::string first = tie.first->name, second = tie.second->name;
    InitializerReport& a = *Named(first);
    if (tie.second->role == Role::kParameter) a.value->role = Role::kParameter;
    for (InitializerReport& report : reports_) {
      if (report.value != tie.second) continue;
      report.reason = Concat("tied: one tensor with ", first,
                             tie.transposed ? ", transposed" : "",
                             option.empty() ? "" : ": ", option);
      // Tensors that were tied to the second one follow it.
      report.transposed = report.transposed != tie.transposed;
      report.tied_to = first;
      report.value = a.value;
    }
    onnx_fp8::Apply(graph_, tie);
  }

  bool Matches(const InitializerReport& report, const std::string& pattern) {
    return MatchesGlob(pattern, report.name) ||
           MatchesGlob(pattern, report.torch.fqn);
  }

  InitializerReport* Named(const std::string& name) {
    InitializerReport* found = nullptr;
    for (InitializerReport& report : reports_) {
      if (!IsFloat(report.data.dtype())) continue;
      if (report.name == name) return &report;
      if (report.torch.fqn == name) found = &report;
    }
    Check(found, "[", graph_.file, "] `tie` ", name,
          " is no float initializer; `inspect()` lists them");
    return found;
  }

  // By the name of a copy too: it stands for the tensor to which it is tied.
  std::vector<InitializerReport*> Matching(const std::string& pattern,
                                           const char* option) {
    std::vector<InitializerReport*> matches;
    std::string integers;
    for (InitializerReport& report : reports_) {
      if (!Matches(report, pattern)) continue;
      if (!IsFloat(report.data.dtype())) {
        integers = Concat(report.name, ", which holds ",
                          Name(report.data.dtype()), " codes,");
        continue;
      }
      matches.push_back(report.tied_to.empty() ? &report
                                               : Named(report.tied_to));
    }
    Check(!matches.empty(), "[", graph_.file, "] ", option, " ", pattern,
          " matches ", integers.empty() ? "" : integers + " and ",
          "no float initializer; `inspect()` lists them");
    return matches;
  }

  Graph& graph_;
  ExportRecord record_;
  bool has_record_;  // of onnx_fp8.torch.export
  std::vector<HeldTensor> tensors_;
  ParameterRule rule_;
  std::unordered_map<const Value*, FixedTable> tables_;
  std::vector<InitializerReport> reports_;
};

}  // namespace

std::vector<InitializerReport> MarkParameters(Graph& graph,
                                              const ParameterPatterns& patterns,
                                              std::vector<std::string>* notes) {
  Marker marker(graph);
  marker.Mark();
  if (notes) marker.NoteUnmatched(notes);
  if (patterns.tie_copies) marker.TieCopies(notes);
  for (const std::string& pair : patterns.ties) marker.TieNamed(pair);
  marker.Override(patterns.freeze, "`freeze`", Role::kFrozen);
  marker.Override(patterns.train, "`train`", Role::kParameter);
  return marker.TakeReports();
}

}  // namespace onnx_fp8
