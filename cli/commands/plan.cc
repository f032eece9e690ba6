// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/joined.h"
#include "cli/commands/commands.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/report/gpu_provider.h"
#include "cli/report/step_forecast.h"
#include "cli/report/text.h"
#include "cli/shapes.h"
#include "training/make_provider.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiga = 1e9;

std::string Milliseconds(double seconds) { return Number(1e3 * seconds, 4); }

std::string Percent(double part, double whole) {
  return whole > 0 ? Number(100 * part / whole, 3) : "0";
}

std::string Bytes(double bytes) { return ByteText(static_cast<size_t>(bytes)); }

const char* Unit(const StepForecast& forecast) {
  return forecast.tokens > 0 ? "tokens" : "samples";
}

void PrintMemory(const RankMemory& memory, const GpuPeaks& gpu,
                 std::ostream& out) {
  out << "\nMemory of a rank: " << ByteText(memory.total()) << " of "
      << Bytes(gpu.memory) << "\n";
  Table table({"what", "size"});
  table.Row({"parameters", ByteText(memory.parameters)});
  table.Row({"optimizer state", ByteText(memory.optimizer)});
  if (memory.scales > 0) table.Row({"FP8 state", ByteText(memory.scales)});
  if (memory.fp8_weights > 0) {
    table.Row({"FP8 copies of weights", ByteText(memory.fp8_weights)});
  }
  if (memory.outside > 0) {
    table.Row({"moments, in the host's memory", ByteText(memory.outside)});
  }
  table.Row({"batch, constants, outputs", ByteText(memory.others)});
  table.Row({"arena", ByteText(memory.arena)});
  table.Row({"  saved activations", ByteText(memory.saved)});
  table.Row({"  gradients of parameters", ByteText(memory.gradients)});
  table.Row({"  operands and results of collectives",
             ByteText(memory.communication)});
  table.Row({"  workspaces", ByteText(memory.workspaces)});
  table.Row({"  temporaries", ByteText(memory.temporaries)});
  table.Print(out);
}

void PrintWork(const Timeline& time, std::ostream& out) {
  out << "\nCompute: " << Milliseconds(time.compute + time.updates) << " ms\n";
  Table table({"nodes that compute", "nodes", "ms", "%", "Tflop/s"});
  for (const WorkTotal& work : time.work) {
    const bool rate = work.seconds > 0 && work.kind != "all other nodes";
    table.Row({work.kind, std::to_string(work.nodes),
               Milliseconds(work.seconds),
               Percent(work.seconds, time.compute + time.updates),
               rate ? Number(work.flops / work.seconds / 1e12, 3) : ""});
  }
  table.Print(out);
}

void PrintHostBytes(const Timeline& time, const GpuPeaks& gpu,
                    std::ostream& out) {
  if (time.host_bytes == 0) return;
  out << "\nThe host's memory: " << Bytes(time.host_bytes)
      << " in each direction, at " << Number(gpu.host_bytes / 1e9, 3)
      << " GB/s\nUpdates of it: " << Milliseconds(time.updates) << " ms, "
      << Milliseconds(time.updates - time.exposed_updates) << " ms hidden, "
      << Milliseconds(time.exposed_updates) << " ms exposed\n";
}

void PrintCollectives(const Timeline& time, std::ostream& out) {
  if (time.collectives.empty()) return;
  out << "\nCommunication: " << Milliseconds(time.communication) << " ms, "
      << Milliseconds(time.communication - time.exposed) << " ms hidden, "
      << Milliseconds(time.exposed) << " ms exposed\n";
  Table table({"collective", "group", "ranks", "calls", "from its node",
               "from other nodes", "ms"});
  for (const CallsTotal& calls : time.collectives) {
    table.Row({calls.op, calls.group, std::to_string(calls.ranks),
               std::to_string(calls.calls), Bytes(calls.node_bytes),
               Bytes(calls.net_bytes), Milliseconds(calls.seconds)});
  }
  table.Print(out);
}

// Words of `efficiency` and the shares that they set.
struct ShareOption {
  const char* kind;
  double Efficiency::*share;
  const char* noun;
};

constexpr ShareOption kShares[] = {
    {"products", &Efficiency::products, "products"},
    {"fp8", &Efficiency::fp8, "products in FP8"},
    {"blocks", &Efficiency::blocks, "products in FP8 with scales of blocks"},
    {"attention", &Efficiency::attention, "attention"},
    {"attention_grad", &Efficiency::attention_grad, "its gradient"},
    {"memory", &Efficiency::memory, "memory"},
    {"quantizing", &Efficiency::quantizing,
     "memory in quantizers that find their scales"}};

Json SharesJson(const Efficiency& efficiency) {
  Json json;
  for (const ShareOption& option : kShares) {
    json[option.kind] = efficiency.*option.share;
  }
  return json;
}

std::string SharesText(const Efficiency& efficiency) {
  std::string text;
  for (const ShareOption& option : kShares) {
    if (!text.empty()) text += ", ";
    text += std::string(option.noun) + " at " +
            Percent(efficiency.*option.share, 1) + " %";
    if (&option == kShares) text += " of their peak";
  }
  return text;
}

Json FitJson(const MemoryFit& fit) {
  return {{"limit", fit.limit},
          {"reserve", fit.reserve},
          {"fits", fit.fits()},
          {"bytes_without", fit.before},
          {"bytes", fit.after},
          {"nodes", fit.again},
          {"ops", fit.ops},
          {"blocks", fit.blocks},
          {"as_blocks", fit.as_blocks},
          {"joins_weights", fit.execution.joins_weights},
          {"gathers_ahead", fit.execution.gathers_ahead},
          {"attention_workspace", fit.execution.attention_workspace},
          {"time_share", fit.time_share}};
}

Json ForecastJson(const StepForecast& forecast, const ForecastSpec& spec) {
  const RankMemory& memory = forecast.memory;
  const Timeline& time = forecast.time;
  const Cluster& cluster = spec.cluster;
  Json json = {
      {"model", spec.session.model},        {"gpu", cluster.gpu.name},
      {"mesh", ToString(spec.mesh)},        {"ranks", spec.mesh.ranks()},
      {"samples", forecast.samples},        {"tokens", forecast.tokens},
      {"trained_numbers", forecast.trained}};
  json["network"] = {{"node_gpus", cluster.network.node_gpus},
                     {"node_gbytes", cluster.network.node_bytes / 1e9},
                     {"net_gbytes", cluster.network.net_bytes / 1e9},
                     {"multiprocessors", cluster.network.multiprocessors}};
  json["efficiency"] = SharesJson(cluster.efficiency);
  json["node_start_us"] = 1e6 * cluster.start;
  json["memory"] = {{"parameters", memory.parameters},
                    {"optimizer", memory.optimizer},
                    {"scales", memory.scales},
                    {"fp8_weights", memory.fp8_weights},
                    {"others", memory.others},
                    {"outside", memory.outside},
                    {"arena", memory.arena},
                    {"saved_activations", memory.saved},
                    {"gradients", memory.gradients},
                    {"communication", memory.communication},
                    {"workspaces", memory.workspaces},
                    {"temporaries", memory.temporaries},
                    {"total", memory.total()},
                    {"gpu", cluster.gpu.memory}};
  if (forecast.fit) json["recompute"] = FitJson(*forecast.fit);
  json["work"] = Json::array();
  for (const WorkTotal& work : time.work) {
    json["work"].push_back({{"kind", work.kind},
                            {"nodes", work.nodes},
                            {"ms", 1e3 * work.seconds},
                            {"flops", work.flops}});
  }
  json["collectives"] = Json::array();
  for (const CallsTotal& calls : time.collectives) {
    json["collectives"].push_back({{"op", calls.op},
                                   {"group", calls.group},
                                   {"ranks", calls.ranks},
                                   {"calls", calls.calls},
                                   {"node_bytes", calls.node_bytes},
                                   {"net_bytes", calls.net_bytes},
                                   {"ms", 1e3 * calls.seconds}});
  }
  json["ms"] = {{"step", 1e3 * time.step},
                {"compute", 1e3 * time.compute},
                {"forward", 1e3 * time.forward},
                {"communication", 1e3 * time.communication},
                {"exposed", 1e3 * time.exposed},
                {"updates", 1e3 * time.updates},
                {"exposed_updates", 1e3 * time.exposed_updates}};
  json["host_bytes"] = time.host_bytes;
  json["model_flops"] = time.model_flops;
  json[std::string(Unit(forecast)) + "_per_second"] = forecast.Speed(spec.mesh);
  json["mfu"] = forecast.Mfu();
  json["notes"] = forecast.notes;
  return json;
}

void PrintForecast(const StepForecast& forecast, const ForecastSpec& spec,
                   std::ostream& out) {
  const Timeline& time = forecast.time;
  const Cluster& cluster = spec.cluster;
  out << "One of " << Grouped(spec.mesh.ranks()) << " ranks on "
      << cluster.gpu.name << ": " << Grouped(forecast.trained)
      << " trained numbers in all, " << Grouped(forecast.samples) << " samples";
  if (forecast.tokens > 0) out << ", " << Grouped(forecast.tokens) << " tokens";
  out << "\n";
  PrintMemory(forecast.memory, cluster.gpu, out);
  PrintWork(time, out);
  PrintHostBytes(time, cluster.gpu, out);
  PrintCollectives(time, out);
  out << "\nStep: " << Milliseconds(time.step) << " ms";
  const double beside = time.communication + time.updates;
  if (beside > 0) {
    out << " (" << Milliseconds(time.compute + beside)
        << " ms if nothing is hidden)";
  }
  out << ", " << Number(forecast.Speed(spec.mesh), 5) << " " << Unit(forecast)
      << "/s for each GPU, MFU " << Percent(forecast.Mfu(), 1) << " % of "
      << forecast.peak / 1e12 << " Tflop/s\n";
  out << "\nAssumed: " << SharesText(cluster.efficiency) << "; "
      << Number(1e6 * cluster.start, 2) << " µs to start a node";
  if (spec.mesh.ranks() > 1) {
    out << "; nodes of " << cluster.network.node_gpus << " GPUs, "
        << Number(cluster.network.node_bytes / 1e9, 4)
        << " GB/s within a node and "
        << Number(cluster.network.net_bytes / 1e9, 4)
        << " GB/s between nodes for each GPU; collectives take "
        << Percent(cluster.network.multiprocessors, 1)
        << " % of the multiprocessors from nodes beside them";
  }
  out << "\n";
  for (const std::string& note : forecast.notes) {
    out << "\nNote: " << note << "\n";
  }
}

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
     "GB/s of the GPU's memory (default: as in the data sheet)",
     "",
     {.min = 0}},
    {"Hardware", "efficiency", OptionKind::kList,
     "KIND=SHARE of the peak that this kind of work reaches; the report names "
     "all kinds and their shares",
     ""},
    {"Own",
     "batch_size",
     OptionKind::kInt,
     "samples of all ranks together (default: the exported size, else 8)",
     "",
     {.min = 1}},
    {"Own",
     "provider",
     OptionKind::kChoice,
     "whose plan (default: cuda, if this build has it)",
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
        {"Loss", "Loss options", "Trained", "LoRA", "Reading", "Recipe",
         "Loss scale"}},
       {"Optimizer", {"Optimizer"}}},
      {"onnx-fp8 plan llama.onnx --loss cross_entropy --mesh dp=64 --shard "
       "parameters --batch-size 128 --shape seq=8192 --dtype bfloat16 "
       "--recipe tensorwise --gpu h100",
       "onnx-fp8 plan mlp.onnx --loss cross_entropy --mesh dp=1024 "
       "--batch-size 4096 --gpu b200 --net 100 --json"}};
}

// "products=0.75", … Errors: OptionError for other words.
Efficiency EfficiencyOf(const std::vector<std::string>& words) {
  Efficiency result;
  for (const std::string& word : words) {
    const size_t split = word.find('=');
    const std::string kind = word.substr(0, split);
    const auto option = std::ranges::find(kShares, kind, &ShareOption::kind);
    double number = 0;
    const char* end = word.data() + word.size();
    bool fits = option != std::end(kShares) && split != std::string::npos;
    if (fits) {
      auto [at, error] = std::from_chars(word.data() + split + 1, end, number);
      fits = error == std::errc() && at == end && number > 0 && number <= 1;
    }
    if (!fits) {
      std::vector<std::string> kinds;
      for (const ShareOption& known : kShares) kinds.emplace_back(known.kind);
      throw OptionError(
          "`efficiency`: expected KIND=SHARE, of " + Joined(kinds) +
          ", with a share above 0 and up to 1, got '" + word + "'");
    }
    result.*(option->share) = number;
  }
  return result;
}

ForecastSpec ForecastOf(const OptionSet& flags) {
  ForecastSpec spec;
  spec.mesh = MeshOf(flags.Text("mesh"));
  spec.session = SessionOptionsOf(flags, flags.Text("MODEL"));
  spec.session.provider = ProviderForGpu(flags);
  // A GPU's, whichever provider's kernels the plan has.
  spec.session.loss_chunk_bytes =
      LossChunkBytes(spec.session.loss_chunk_bytes, "cuda");
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
  NoteKernels(spec.session.provider, flags.Text("gpu"), forecast.notes);
  if (flags.On("json")) {
    Out() << JsonLine(ForecastJson(forecast, spec));
  } else {
    PrintForecast(forecast, spec, Out());
  }
  return 0;
}

}  // namespace onnx_fp8
