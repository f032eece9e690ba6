// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "cli/bench/bench_progress.h"
#include "cli/bench/benchmarks.h"
#include "cli/bench/moved_bytes.h"
#include "cli/bench/node_cases.h"
#include "cli/bench/node_report.h"
#include "cli/bench/provider_peaks.h"
#include "cli/bench/save.h"
#include "cli/interrupt.h"
#include "cli/json_line.h"
#include "cli/options.h"
#include "cli/output.h"
#include "graph/op_facts.h"
#include "providers/node_profile.h"

namespace onnx_fp8 {
namespace {

// The largest Difference of a right result. A GPU adds the products of FP8
// numbers with few bits, and bfloat16 has a precision of 8 bits.
constexpr double kMostDifference = 0.02;

struct NodeFlags {
  std::string provider = ProviderNames()[0];
  ProviderOptions provider_options;
  std::string dtype = "bfloat16", save;
  std::vector<std::string> only;
  bool quick = false, json = false;
  double seconds = 0.05;
  MachineFlags machine;
};

// A node, and the same one with small sizes for the comparison with the CPU.
struct Chosen {
  NodeCase node, small;
};

std::vector<NodeCase> CasesOf(const NodeSizes& sizes, DType dtype) {
  std::vector<NodeCase> cases = ProductCases(sizes);
  std::ranges::move(OtherCases(sizes, dtype), std::back_inserter(cases));
  return cases;
}

// "products, casts, …".
std::string GroupNames() {
  std::string names, last;
  for (const NodeCase& node : CasesOf(SmallNodeSizes(), DType::kFloat)) {
    if (node.group == last) continue;
    last = node.group;
    names += (names.empty() ? "" : ", ") + last;
  }
  return names;
}

// Errors: UsageError for a group that there is not.
std::vector<Chosen> Choose(const NodeFlags& flags, DType dtype) {
  NodeSizes small = SmallNodeSizes();
  std::vector<NodeCase> all = CasesOf(flags.quick ? small : NodeSizes(), dtype);
  std::vector<NodeCase> again = CasesOf(small, dtype);
  for (const std::string& group : flags.only) {
    if (std::ranges::find(all, group, &NodeCase::group) != all.end()) continue;
    throw UsageError("--only: expected some of " + GroupNames() + ", got \"" +
                     group + "\"");
  }
  std::vector<Chosen> chosen;
  for (size_t i = 0; i < all.size(); ++i) {
    bool wanted =
        flags.only.empty() || std::ranges::count(flags.only, all[i].group) > 0;
    if (wanted) chosen.push_back({all[i], again[i]});
  }
  return chosen;
}

bool Multiplies(const Node& node) {
  OpKind kind = FactsOf(node).kind;
  return kind == OpKind::kProduct || kind == OpKind::kScaledProduct ||
         kind == OpKind::kAttention || kind == OpKind::kAttentionGrad;
}

class Measurement {
 public:
  Measurement(const NodeFlags& flags, DType dtype)
      : dtype_(dtype),
        seconds_(flags.seconds),
        provider_(MakeProvider(flags.provider, flags.provider_options)),
        cpu_(MakeProvider("cpu")) {
    report_ = {.provider = flags.provider,
               .dtype = flags.dtype,
               .machine = MachineText(flags.provider),
               .quick = flags.quick,
               .peaks = PeaksOf(*provider_)};
  }

  void Add(const Chosen& chosen) {
    NodeResult result{.node = chosen.node};
    try {
      Measure(chosen, &result);
    } catch (const Error& error) {
      result.error = error.what();
    }
    report_.results.push_back(result);
  }

  const NodeReport& report() const { return report_; }

 private:
  static bool Has(const ExecutionProvider& provider, const NodeCase& node) {
    return provider.Kernels().Find(node.domain, node.op) != nullptr;
  }

  void Measure(const Chosen& chosen, NodeResult* result) {
    if (!Has(*provider_, chosen.node)) {
      result->note = "there is no kernel";
      return;
    }
    Time(result);
    if (Has(*cpu_, chosen.node)) {
      Compare(chosen.small, result);
    } else {
      result->note = "not compared, because the CPU has no kernel";
    }
  }

  void Time(NodeResult* result) {
    const KernelRegistry& kernels = provider_->Kernels();
    auto graph = MakeNodeGraph(result->node, dtype_, {&kernels});
    const Node& node = graph->nodes().front();
    result->multiplies = Multiplies(node);
    result->cost = report_.peaks.name
                       ? Roofline(*graph, kernels, report_.peaks).nodes.at(0)
                       : DescribeNode(node);
    result->time = TimeNode(node, *provider_, seconds_);
    if (result->multiplies) return;
    // The copy runs right after the node, because clock rates change.
    result->moved = MovedBytes(node, *provider_);
    result->copy = TimeCopy(result->moved, *provider_, seconds_ / 2);
  }

  void Compare(const NodeCase& small, NodeResult* result) {
    auto graph =
        MakeNodeGraph(small, dtype_, {&provider_->Kernels(), &cpu_->Kernels()});
    result->difference = Difference(graph->nodes().front(), *provider_, *cpu_);
    if (result->difference <= kMostDifference) return;
    result->error =
        Concat("it differs from the CPU's by ", 100 * result->difference, " %");
  }

  DType dtype_;
  double seconds_;
  std::unique_ptr<ExecutionProvider> provider_, cpu_;
  NodeReport report_;
};

void Write(const NodeReport& report, const NodeFlags& flags) {
  if (!flags.save.empty()) {
    WriteFileAtomically(flags.save, report.Json().dump(1) + "\n");
  }
  if (flags.json) {
    Out() << JsonLine(report.Json());
  } else {
    report.Print(Out());
  }
}

void AddFlags(Flags& flags, NodeFlags& values) {
  flags.List("--only", &values.only,
             "some of the groups " + GroupNames() + " (default: all)");
  flags.Choice("--dtype", &values.dtype, {"float32", "bfloat16", "float16"},
               "of all that is not FP8 (default: bfloat16)");
  flags.Switch("--quick", &values.quick,
               "small sizes, which tell little about speed");
  flags.Number("--seconds", &values.seconds, 0,
               "for each node, at least (default: 0.05)");
  flags.Switch("--json", &values.json, "print one JSON object");
  flags.File("--save", &values.save, "write the JSON object into this file");
  AddProvider(flags, &values.provider, &values.provider_options);
  values.machine.AddTo(flags);
  flags.Example("onnx-fp8 bench nodes --provider cuda --only products,casts");
  flags.Example("onnx-fp8 bench nodes --quick");
}

}  // namespace

void BenchNodes(const Arguments& arguments) {
  Flags flags(
      "bench nodes",
      "Time the nodes of a training step of LLaMA-2-70B with 8192 tokens, each "
      "alone, and print the share of the speed that its operations or its "
      "bytes allow on this machine. Nodes that do not multiply are compared "
      "with a copy of as many bytes as their kernels move. Each node is also "
      "compared with the CPU's, with small sizes. Nodes that fail, are wrong "
      "or have no kernel are "
      "named; "
      "the first two kinds give exit code 1. Ctrl-C prints the nodes that are "
      "done.");
  NodeFlags values;
  AddFlags(flags, values);
  if (!flags.Parse(arguments)) return;
  DType dtype = RecipeFlags{.dtype = values.dtype}.MakeDType();
  std::vector<Chosen> chosen = Choose(values, dtype);
  if (!values.save.empty()) RequireFolderOf(values.save);
  values.machine.Apply();
  Measurement measurement(values, dtype);
  const NodeReport& report = measurement.report();
  try {
    BenchProgress progress(std::vector<double>(chosen.size(), 1),
                           values.seconds);
    for (const Chosen& one : chosen) {
      progress.Begin("nodes " + NameOf(one.node));
      measurement.Add(one);
      progress.Round();
    }
  } catch (const Interruption&) {
    Write(report, values);
    throw;
  }
  Write(report, values);
  Check(report.Failed() == 0, report.Failed(), " of ", report.results.size(),
        " nodes failed or are wrong");
}

}  // namespace onnx_fp8
