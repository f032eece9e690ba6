// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cli/api_names.h"
#include "cli/budget_flags.h"
#include "cli/commands/commands.h"
#include "cli/json_line.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/report/forecast_text.h"
#include "cli/shard_flags.h"

namespace onnx_fp8 {
namespace {

constexpr double kGiga = 1e9;
constexpr double kNetBytes = 50;  // GB/s: 400 Gb/s for each GPU

struct PlanFlags {
  std::string model, gpu = "h100", provider;
  int64_t batch_size = 0;
  std::vector<std::string> whole, shape, value, efficiency;
  double net = kNetBytes, bandwidth = 0;
  int64_t loss_chunk_bytes = SessionOptions().loss_chunk_bytes;
  ShardFlags shard;
  LossFlags loss;
  ParameterFlags parameters;
  RecipeFlags recipe;
  OptimizerFlags optimizer;
  BudgetFlags budgets;
  MachineFlags machine;
  bool json = false;

  void AddTo(Flags& flags) {
    flags.Positional("MODEL", &model,
                     "the .onnx file; files with its weights may be missing");
    flags.Group("Ranks");
    shard.AddTo(flags);
    flags.Group("Hardware");
    std::vector<std::string> gpus;
    for (const GpuPeaks& peaks : KnownGpus()) gpus.push_back(peaks.name);
    flags.Choice("--gpu", &gpu, gpus, "the GPU of a rank (default: h100)");
    flags.Number("--net", &net, 0,
                 "GB/s between nodes for each GPU (default: 50, which is 400 "
                 "Gb/s)");
    flags.Number("--memory-bandwidth", &bandwidth, 0,
                 "GB/s of the GPU's memory (default: that of the data sheet)");
    flags.List("--efficiency", &efficiency,
               "KIND=SHARE: share of the peak that products, attention or "
               "memory reach (default: products=0.78, attention=0.35, "
               "memory=0.92)");
    flags.Group("Batch");
    flags.Int("--batch-size", &batch_size, 1,
              "samples of all ranks together (default: the exported size, else "
              "8)");
    flags.List("--whole", &whole, "inputs that are fed whole: no sample axis");
    flags.List("--shape", &shape, "AXIS=N: sizes of other open axes");
    AddValueFlag(flags, &value);
    flags.Group("Training");
    loss.AddTo(flags);
    parameters.AddTo(flags);
    recipe.AddTo(flags);
    flags.Group("Optimizer");
    optimizer.AddTo(flags);
    flags.Group("Options");
    flags.Switch("--json", &json, "print one JSON object");
    flags.Choice("--provider", &provider, ProviderNames(),
                 "whose plan (default: cuda, if this build has it)");
    AddLossChunk(flags, &loss_chunk_bytes);
    budgets.AddTo(flags);
    machine.AddTo(flags);
    flags.Example(
        "onnx-fp8 plan llama.onnx --loss cross_entropy --mesh dp=64 --shard "
        "parameters --batch-size 128 --shape seq=8192 --dtype bfloat16 "
        "--recipe tensorwise --gpu h100");
    flags.Example(
        "onnx-fp8 plan mlp.onnx --loss cross_entropy --mesh dp=1024 "
        "--batch-size 4096 --gpu b200 --net 100 --json");
  }

  // Errors: UsageError for other words.
  Efficiency MakeEfficiency() const;
  ForecastSpec Make(const Flags& flags) const;
};

Efficiency PlanFlags::MakeEfficiency() const {
  Efficiency result;
  for (const std::string& word : efficiency) {
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
      throw UsageError(
          "--efficiency: expected products, attention or memory = a share "
          "above 0 and up to 1, got '" +
          word + "'");
    }
    *share = number;
  }
  return result;
}

ForecastSpec PlanFlags::Make(const Flags& flags) const {
  ForecastSpec spec;
  spec.mesh = MeshOf(shard.mesh);
  spec.session.shard = shard.Make();
  SessionOptions& options = spec.session;
  options.model = model;
  options.loss = loss.Make();
  options.optimizer = optimizer.Make(flags);
  recipe.Fill(&options);
  parameters.Fill(&options);
  options.budgets = budgets.Make();
  options.bucket_bytes = shard.bucket_bytes;
  options.loss_chunk_bytes = loss_chunk_bytes;
  options.provider = provider;
  if (provider.empty()) options.provider = HasProvider("cuda") ? "cuda" : "cpu";
  spec.data.batch_size = batch_size;
  spec.data.whole = whole;
  spec.axes = ParseShapeFlag(shape);
  spec.values = ParseValueFlag(value);
  Cluster& cluster = spec.cluster;
  cluster.gpu = *FindGpu(gpu);
  if (bandwidth > 0) cluster.gpu.bytes = bandwidth * kGiga;
  cluster.efficiency = MakeEfficiency();
  cluster.network = ClusterOf(cluster.gpu.node_bytes, net * kGiga);
  cluster.strides = {{kDataRanks, spec.mesh.tp},
                     {kReplicaRanks, spec.mesh.tp * spec.mesh.dp}};
  return spec;
}

}  // namespace

int PlanCommand(const Arguments& arguments) {
  Flags flags("plan",
              "The training step of one of many GPUs, without running it: "
              "memory, traffic, time.");
  PlanFlags values;
  values.AddTo(flags);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"MODEL", "--loss"});
  values.shard.Check(flags);
  if (values.net == 0) throw UsageError("--net: expected more than 0, got 0");
  values.machine.Apply();
  const ForecastSpec spec = values.Make(flags);
  StepForecast forecast = ForecastStep(spec);
  for (std::string& note : forecast.notes) note = InFlags(note);
  if (values.json) {
    Out() << JsonLine(ForecastJson(forecast, spec));
  } else {
    PrintForecast(forecast, spec, Out());
  }
  return 0;
}

}  // namespace onnx_fp8
