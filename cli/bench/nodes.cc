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
#include "cli/output.h"
#include "cli/output_place.h"
#include "graph/op_facts.h"
#include "providers/node_profile.h"
#include "training/make_provider.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

// The largest Difference of a right result. A GPU adds the products of FP8
// numbers with few bits, and bfloat16 has a precision of 8 bits.
constexpr double kMostDifference = 0.02;

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

// Errors: OptionError if a group does not exist.
std::vector<Chosen> Choose(const OptionSet& flags, DType dtype) {
  NodeSizes small = SmallNodeSizes();
  std::vector<NodeCase> all =
      CasesOf(flags.On("quick") ? small : NodeSizes(), dtype);
  std::vector<NodeCase> again = CasesOf(small, dtype);
  const std::vector<std::string> only = flags.List("only");
  for (const std::string& group : only) {
    if (std::ranges::find(all, group, &NodeCase::group) != all.end()) continue;
    throw OptionError("`only`: expected some of " + GroupNames() + ", got \"" +
                      group + "\"");
  }
  std::vector<Chosen> chosen;
  for (size_t i = 0; i < all.size(); ++i) {
    bool wanted = only.empty() || std::ranges::count(only, all[i].group) > 0;
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
  Measurement(const OptionSet& flags, DType dtype)
      : dtype_(dtype),
        seconds_(flags.Number("seconds")),
        provider_(
            MakeProvider(flags.Text("provider"), ProviderOptionsOf(flags))),
        cpu_(MakeProvider("cpu")) {
    report_ = {.provider = flags.Text("provider"),
               .dtype = flags.Text("dtype"),
               .machine = MachineText(flags.Text("provider")),
               .quick = flags.On("quick"),
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

void Write(const NodeReport& report, const OptionSet& flags) {
  if (!flags.Text("save").empty()) {
    WriteFileAtomically(flags.Text("save"), report.Json().dump(1) + "\n");
  }
  if (flags.On("json")) {
    Out() << JsonLine(report.Json());
  } else {
    report.Print(Out());
  }
}

const Option kNodeOptions[] = {
    {"Own",
     "only",
     OptionKind::kList,
     "some of the groups {} (default: all)",
     "",
     {.names = GroupNames}},
    {"Own",
     "dtype",
     OptionKind::kChoice,
     "of all that is not FP8",
     "bfloat16",
     {.choices = "float32|bfloat16|float16"}},
    {"Own", "quick", OptionKind::kSwitch,
     "small sizes, which tell little about speed"},
    {"Own",
     "seconds",
     OptionKind::kNumber,
     "for each node, at least",
     "0.05",
     {.min = 0}},
    {"Own", "save", OptionKind::kFile, "write the JSON object into this file"},
};

}  // namespace

void BenchNodes(const Arguments& arguments) {
  Flags flags(
      {"bench nodes",
       "Time the nodes of a training step of LLaMA-2-70B with 8192 tokens, "
       "each "
       "alone, and print the share of the speed that its operations or its "
       "bytes allow on this machine. Nodes that do not multiply are compared "
       "with a copy of as many bytes as their kernels move. Each node is also "
       "compared with the CPU's, with small sizes. Nodes that fail, are wrong "
       "or have no kernel are "
       "named; "
       "the first two kinds give exit code 1. Ctrl-C prints the nodes that are "
       "done.",
       {{"Options", {"Own", "JSON", "Provider", "Machine"}}},
       {"onnx-fp8 bench nodes --provider cuda --only products,casts",
        "onnx-fp8 bench nodes --quick"}},
      kNodeOptions);
  if (!flags.Parse(arguments)) return;
  const DType dtype = PrecisionOf(flags.Text("dtype"));
  std::vector<Chosen> chosen = Choose(flags, dtype);
  if (flags.Given("save")) RequireFolderOf(flags.Text("save"));
  ApplyMachine(flags);
  Measurement measurement(flags, dtype);
  const NodeReport& report = measurement.report();
  try {
    BenchProgress progress(std::vector<double>(chosen.size(), 1),
                           flags.Number("seconds"));
    for (const Chosen& one : chosen) {
      progress.Begin("nodes " + NameOf(one.node));
      measurement.Add(one);
      progress.Round();
    }
  } catch (const Interruption&) {
    Write(report, flags);
    throw;
  }
  Write(report, flags);
  Check(report.Failed() == 0, report.Failed(), " of ", report.results.size(),
        " nodes failed or are wrong");
}

}  // namespace onnx_fp8
