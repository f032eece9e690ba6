// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cli/commands/commands.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/report/forecast_text.h"
#include "cli/shapes.h"
#include "training/make_provider.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

constexpr double kGiga = 1e9;

const Option kPlanOptions[] = {
    {"Own", "MODEL", OptionKind::kFile,
     "the .onnx file; files with its weights may be missing"},
    {"Hardware",
     "net",
     OptionKind::kNumber,
     "GB/s between nodes for each GPU; 50 is 400 Gb/s",
     "50",
     {.min = 0}},
    {"Hardware",
     "memory_bandwidth",
     OptionKind::kNumber,
     "GB/s of the GPU's memory (default: that of the data sheet)",
     "",
     {.min = 0}},
    {"Hardware", "efficiency", OptionKind::kList,
     "KIND=SHARE: share of the peak that products, attention or memory reach",
     "products=0.78,attention=0.35,memory=0.92"},
    {"Own",
     "batch_size",
     OptionKind::kInt,
     "samples of all ranks together (default: the exported size, else 8)",
     "",
     {.min = 1}},
    {"Own",
     "provider",
     OptionKind::kChoice,
     "whose plan (default: cuda, if this program has it)",
     "",
     {.names = [] { return Barred(ProviderNames()); },
      .field = &SessionOptions::provider}},
};

CommandHelp PlanHelp() {
  return {
      "plan",
      "The training step of one of many GPUs, without running it: memory, "
      "traffic, time.",
      {{"Options", {"MODEL", "JSON", "provider", "Chunk", "Budget", "Machine"}},
       {"Ranks", {"Ranks"}},
       {"Hardware", {"GPU", "Hardware"}},
       {"Batch", {"batch_size", "whole", "Shapes"}},
       {"Training",
        {"Loss", "Loss options", "Trained", "Ties", "Recipe", "Loss scale"}},
       {"Optimizer", {"Optimizer"}}},
      {"onnx-fp8 plan llama.onnx --loss cross_entropy --mesh dp=64 --shard "
       "parameters --batch-size 128 --shape seq=8192 --dtype bfloat16 "
       "--recipe tensorwise --gpu h100",
       "onnx-fp8 plan mlp.onnx --loss cross_entropy --mesh dp=1024 "
       "--batch-size 4096 --gpu b200 --net 100 --json"}};
}

// Errors: OptionError for other words.
Efficiency EfficiencyOf(const std::vector<std::string>& words) {
  Efficiency result;
  for (const std::string& word : words) {
    const size_t split = word.find('=');
    const std::string kind = word.substr(0, split);
    double* share = kind == "products"    ? &result.products
                    : kind == "attention" ? &result.attention
                    : kind == "memory"    ? &result.memory
                                          : nullptr;
    double number = 0;
    const char* end = word.data() + word.size();
    bool fits = share && split != std::string::npos;
    if (fits) {
      auto [at, error] = std::from_chars(word.data() + split + 1, end, number);
      fits = error == std::errc() && at == end && number > 0 && number <= 1;
    }
    if (!fits) {
      throw OptionError(
          "`efficiency`: expected products, attention or memory = a share "
          "above 0 and up to 1, got '" +
          word + "'");
    }
    *share = number;
  }
  return result;
}

ForecastSpec ForecastOf(const OptionSet& flags) {
  ForecastSpec spec;
  spec.mesh = MeshOf(flags.Text("mesh"));
  spec.session = SessionOptionsOf(flags, flags.Text("MODEL"));
  // The provider cuda is the last one.
  if (!flags.Has("provider")) spec.session.provider = ProviderNames().back();
  spec.data.batch_size = flags.Int("batch_size");
  spec.data.whole = flags.List("whole");
  spec.axes = ParseShapeFlag(flags.List("shape"));
  spec.values = ParseValueFlag(flags.List("value"));
  Cluster& cluster = spec.cluster;
  cluster.gpu = *FindGpu(flags.Text("gpu"));
  const double bandwidth = flags.Number("memory_bandwidth");
  if (bandwidth > 0) cluster.gpu.bytes = bandwidth * kGiga;
  cluster.efficiency = EfficiencyOf(flags.List("efficiency"));
  cluster.network =
      ClusterOf(cluster.gpu.node_bytes, flags.Number("net") * kGiga);
  cluster.strides = {{kDataRanks, spec.mesh.tp},
                     {kReplicaRanks, spec.mesh.tp * spec.mesh.dp}};
  return spec;
}

}  // namespace

int PlanCommand(const Arguments& arguments) {
  Flags flags(PlanHelp(), kPlanOptions);
  flags.Preset("gpu", "h100");
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"MODEL", "loss"});
  CheckRanks(flags);
  if (flags.Number("net") == 0) {
    throw OptionError("`net`: expected more than 0, got 0");
  }
  ApplyMachine(flags);
  const ForecastSpec spec = ForecastOf(flags);
  StepForecast forecast = ForecastStep(spec);
  for (std::string& note : forecast.notes) note = InFlags(note);
  if (flags.On("json")) {
    Out() << JsonLine(ForecastJson(forecast, spec));
  } else {
    PrintForecast(forecast, spec, Out());
  }
  return 0;
}

}  // namespace onnx_fp8
