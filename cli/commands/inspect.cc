// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/report/gpu_provider.h"
#include "cli/report/memory_text.h"
#include "cli/report/model_report.h"
#include "cli/report/profile_text.h"
#include "cli/report/text.h"
#include "cli/shapes.h"
#include "onnx_fp8/profile_report.h"
#include "onnx_fp8/recipe_text.h"
#include "providers/report/roofline.h"
#include "training/make_provider.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kListedNodes = 20;  // in the text of a roofline

// Whether its bytes take the node's time.
bool IsBoundByMemory(const NodeProfile& node, const GpuPeaks& gpu) {
  return node.milliseconds <= 1e3 * (node.bytes / gpu.bytes);
}

const char* BoundOf(const NodeProfile& node, const GpuPeaks& gpu) {
  const bool by_host =
      node.host_bytes > 0 &&
      node.milliseconds <= 1e3 * (node.host_bytes / gpu.host_bytes);
  if (by_host) return "host";
  return IsBoundByMemory(node, gpu) ? "memory" : "operations";
}

double MemoryBound(const ProfileReport& bound, const GpuPeaks& gpu) {
  double sum = 0;
  for (const NodeProfile& node : bound.nodes) {
    if (IsBoundByMemory(node, gpu)) sum += node.milliseconds;
  }
  return sum;
}

// The least time of a step on the GPU (providers/report/roofline.h).
Json RooflineJson(const ProfileReport& bound, const GpuPeaks& gpu) {
  Json json = {{"gpu", gpu.name},
               {"ms", bound.milliseconds},
               {"ms_bound_by_memory", MemoryBound(bound, gpu)},
               {"peaks",
                {{"fp8_gflops", gpu.fp8 / 1e9},
                 {"narrow_gflops", gpu.narrow / 1e9},
                 {"fp32_gflops", gpu.fp32 / 1e9},
                 {"gbytes", gpu.bytes / 1e9}}}};
  json["roles"] = GroupsJson(bound, "role", &NodeProfile::role);
  json["ops"] = GroupsJson(bound, "op", &NodeProfile::op);
  json["nodes"] = Json::array();
  for (const NodeProfile& node : bound.nodes) {
    json["nodes"].push_back({{"node", node.node},
                             {"op", node.op},
                             {"role", node.role},
                             {"fqn", node.fqn},
                             {"shape", node.shape},
                             {"ms", node.milliseconds},
                             {"flops", node.flops},
                             {"bytes", node.bytes},
                             {"bound", BoundOf(node, gpu)}});
  }
  return json;
}

// The same as text. Lists the longest nodes, or all.
void PrintRoofline(const ProfileReport& bound, const GpuPeaks& gpu,
                   bool all_nodes, std::ostream& out) {
  double all = bound.milliseconds;
  double share = all > 0 ? 100 * MemoryBound(bound, gpu) / all : 0;
  out << "\nLeast time of a step on " << gpu.name << ": " << Number(all, 3)
      << " ms, " << Number(share, 3)
      << " % of it bound by memory. Peaks: " << gpu.fp8 / 1e12
      << " TF/s in FP8, " << gpu.narrow / 1e12 << " in 16 bits, "
      << gpu.fp32 / 1e12 << " in fp32; " << gpu.bytes / 1e12 << " TB/s\n";
  PrintGroups(bound, "role", &NodeProfile::role, out);
  PrintGroups(bound, "op", &NodeProfile::op, out);
  size_t listed = all_nodes ? bound.nodes.size()
                            : std::min(bound.nodes.size(), kListedNodes);
  out << (all_nodes ? "\nNodes, longest first\n" : "\nLongest nodes\n");
  Table table({"node", "role", "shape", "us", "Gflop", "MB", "bound by"});
  for (size_t i = 0; i < listed; ++i) {
    const NodeProfile& node = bound.nodes[i];
    table.Row({node.node, node.role, node.shape,
               Number(1e3 * node.milliseconds, 3), Number(node.flops / 1e9, 3),
               Number(node.bytes / 1e6, 3), BoundOf(node, gpu)});
  }
  table.Print(out);
  if (listed == bound.nodes.size()) return;
  out << "  and " << bound.nodes.size() - listed
      << " shorter ones (--all-nodes lists them)\n";
}

const Option kInspectOptions[] = {
    {"Own", "MODEL", OptionKind::kFile,
     "the .onnx file; files with its weights may be missing"},
    {"Own", "memory_report", OptionKind::kSwitch,
     "list the values in memory when a step needs most of it; needs sizes of "
     "all axes"},
    {"Own", "all_nodes", OptionKind::kSwitch,
     "list all nodes behind `gpu`, not only the longest ones"},
    {"Own", "mesh", OptionKind::kText,
     "tp=T: which layers T ranks divide, and why others stay whole; sizes are "
     "for one rank"},
    {"Own",
     "provider",
     OptionKind::kChoice,
     "whose plan (default: cpu; with `gpu` cuda, if this build has it)",
     "",
     {.names = [] { return Barred(ProviderNames()); },
      .field = &SessionOptions::provider}},
};

CommandHelp InspectHelp() {
  return {"inspect",
          "What training would do with a model: parameters, matrix products, "
          "memory.",
          {{"Options",
            {"MODEL", "JSON", "memory_report", "GPU", "all_nodes", "provider",
             "mesh", "Chunk", "dump_passes", "Budget", "Machine"}},
           {"Model",
            {"Shapes", "Loss", "Loss options", "Trained", "LoRA", "Reading",
             "Recipe", "Loss scale"}},
           {"Optimizer", {"Optimizer"}}},
          {"onnx-fp8 inspect model.onnx --mesh tp=8",
           "onnx-fp8 inspect gpt.onnx --shape batch=8,seq=2048 --recipe "
           "rowwise --auto-filter h100 --recipe-for 'blocks.0.*=off'",
           "onnx-fp8 inspect gpt.onnx --shape batch=8,seq=2048 --loss "
           "cross_entropy --recipe tensorwise --dtype bfloat16 "
           "--memory-report --gpu h200"}};
}

// "[batch,64]".
Json ShapeJson(const InputInfo& info) {
  Json shape = Json::array();
  for (size_t i = 0; i < info.shape.size(); ++i) {
    if (info.shape[i] >= 0) {
      shape.push_back(info.shape[i]);
    } else if (i < info.axis_names.size() && !info.axis_names[i].empty()) {
      shape.push_back(info.axis_names[i]);
    } else {
      shape.push_back(nullptr);
    }
  }
  return shape;
}

std::string TypeText(const InputInfo& info) {
  std::string text = std::string(Name(info.dtype)) + "[";
  bool first = true;
  for (const Json& size : ShapeJson(info)) {
    if (!first) text += ",";
    first = false;
    text += size.is_null()     ? "?"
            : size.is_string() ? size.get<std::string>()
                               : size.dump();
  }
  return text + "]";
}

Json SizeJson(const SizeText& size) {
  return size.value >= 0 ? Json(size.value) : Json(size.text);
}

Json ToJson(const ModelReport& report, const std::string& model) {
  Json json = {{"model", model}};
  for (auto [key, list] : {std::pair{"inputs", &report.inputs},
                           std::pair{"outputs", &report.outputs}}) {
    json[key] = Json::array();
    for (const InputInfo& info : *list) {
      json[key].push_back({{"name", info.name},
                           {"dtype", Name(info.dtype)},
                           {"shape", ShapeJson(info)}});
    }
  }
  json["initializers"] = Json::array();
  for (const InitializerRow& row : report.initializers) {
    Json entry = {{"name", row.name},         {"fqn", row.fqn},
                  {"role", row.role},         {"reason", row.reason},
                  {"dtype", Name(row.dtype)}, {"shape", row.shape}};
    if (!row.remark.empty()) entry["remark"] = row.remark;
    if (!row.next.empty()) entry["next"] = row.next;
    json["initializers"].push_back(entry);
  }
  json["gemms"] = Json::array();
  for (const GemmReport& gemm : report.gemms) {
    Json padding = Json::array();
    for (char axis : gemm.padding) padding.push_back(std::string(1, axis));
    Json row = {{"node", gemm.node},     {"module", gemm.module},
                {"fqn", gemm.fqn},       {"role", gemm.role},
                {"m", SizeJson(gemm.m)}, {"k", SizeJson(gemm.k)},
                {"n", SizeJson(gemm.n)}, {"fp8", gemm.fp8},
                {"reason", gemm.reason}, {"recipe", gemm.recipe},
                {"padding", padding},    {"copies", gemm.copies}};
    if (gemm.speedup) row["speedup"] = *gemm.speedup;
    json["gemms"].push_back(row);
  }
  if (report.specialize) {
    json["specialize"] = {{"nodes_before", report.specialize->nodes_before},
                          {"nodes_after", report.specialize->nodes_after},
                          {"folded", report.specialize->folded},
                          {"seconds", report.specialize->seconds}};
  }
  if (report.memory) {
    const MemoryForecast& m = *report.memory;
    json["memory"] = {
        {"parameters", m.parameters}, {"moments", m.moments},
        {"scaling", m.scaling},       {"fp8_weights", m.fp8_weights},
        {"arena_peak", m.arena},      {"arena_naive", m.naive},
        {"gradients", m.gradients},   {"saved_activations", m.saved},
        {"fp8_copies", m.fp8_copies}, {"averages", m.averages},
        {"outside", m.outside},       {"total", m.total()}};
  }
  if (!report.layers.empty()) {
    json["layers"] = Json::array();
    for (const LayerSplit& layer : report.layers) {
      json["layers"].push_back({{"fqn", layer.weight},
                                {"part", Name(layer.kind)},
                                {"shape", layer.part},
                                {"reason", layer.why}});
    }
    json["divides_tokens"] = report.divides_tokens;
    json["whole_tokens"] = report.whole_tokens;
  }
  json["open_axes"] = report.open_axes;
  json["notes"] = report.notes;
  json["seconds"] = {{"read", report.seconds.read},
                     {"step_graph", report.seconds.step_graph},
                     {"plan", report.seconds.plan}};
  json["passes"] = Json::array();
  for (const PassSeconds& pass : report.passes) {
    json["passes"].push_back({{"name", pass.name}, {"seconds", pass.seconds}});
  }
  return json;
}

void PrintValues(const char* title, const std::vector<InputInfo>& list) {
  Out() << title << "\n";
  Table table({"name", "type"});
  for (const InputInfo& info : list) table.Row({info.name, TypeText(info)});
  table.Print(Out());
}

void PrintInitializers(const ModelReport& report) {
  int64_t trained = 0;
  int64_t numbers = 0;
  Table table({"name", "role", "type", "reason"});
  for (const InitializerRow& row : report.initializers) {
    if (row.role == "trained") {
      ++trained;
      numbers += NumElements(row.shape);
    }
    std::string name = row.fqn.empty() || row.fqn == row.name
                           ? row.name
                           : row.fqn + " (" + row.name + ")";
    // The reason begins with the role, which has its own column.
    std::string reason = row.reason;
    if (reason.starts_with(row.role + ": ")) {
      reason.erase(0, row.role.size() + 2);
    }
    if (!row.remark.empty()) reason += "; " + row.remark;
    table.Row({name, row.role, Name(row.dtype) + ToString(row.shape), reason});
  }
  Out() << "\nInitializers: " << trained << " of " << report.initializers.size()
        << " are trained, " << Grouped(numbers) << " numbers\n";
  table.Print(Out());
}

// The recipes of the products, in the order in which they appear.
std::vector<std::string> RecipesOf(const ModelReport& report) {
  std::vector<std::string> recipes;
  for (const GemmReport& gemm : report.gemms) {
    if (gemm.recipe.empty() || std::ranges::count(recipes, gemm.recipe)) {
      continue;
    }
    recipes.push_back(gemm.recipe);
  }
  return recipes;
}

// "rowwise = i:dyn_row_…"; with the name if the recipe has one.
std::string NamedRecipe(const std::string& label) {
  for (const RecipePreset& preset : RecipePresets()) {
    if (RecipeText(PresetRecipe(preset.name)) != label) continue;
    return std::string(preset.name) + " = " + label;
  }
  return label;
}

void PrintGemms(const ModelReport& report) {
  std::vector<std::string> recipes = RecipesOf(report);
  bool several = recipes.size() > 1;
  std::vector<std::string> header = {"parameter or module",
                                     "role",
                                     "M",
                                     "K",
                                     "N",
                                     "decision",
                                     "reason",
                                     "pad"};
  bool predicted = std::ranges::any_of(
      report.gemms, [](const GemmReport& g) { return g.speedup.has_value(); });
  if (predicted) header.push_back("speed-up");
  bool copied = std::ranges::any_of(
      report.gemms, [](const GemmReport& g) { return !g.copies.empty(); });
  if (several) header.push_back("recipe");
  if (copied) header.push_back("copied on the GPU");
  Table table(header);
  int64_t fp8 = 0;
  int64_t padded = 0;
  for (const GemmReport& g : report.gemms) {
    fp8 += g.fp8;
    padded += !g.padding.empty();
    std::string name = !g.fqn.empty()      ? g.fqn
                       : !g.module.empty() ? g.module
                                           : g.node;
    std::vector<std::string> row = {name,     g.role,   g.m.text,
                                    g.k.text, g.n.text, g.fp8 ? "FP8" : "fp32",
                                    g.reason, g.padding};
    if (predicted) row.push_back(g.speedup ? Number(*g.speedup, 3) : "");
    if (several) {
      auto at = std::ranges::find(recipes, g.recipe) - recipes.begin();
      row.push_back(g.fp8 ? std::to_string(at + 1) : "");
    }
    if (copied) row.push_back(g.copies);
    table.Row(row);
  }
  Out() << "\nMatrix products: " << fp8 << " of " << report.gemms.size()
        << " in FP8";
  if (padded > 0) {
    Out() << ", " << padded
          << " would need padding on a GPU (K and N to multiples of 16, or "
             "of a block)";
  }
  Out() << "\n";
  for (size_t i = 0; i < recipes.size(); ++i) {
    Out() << "Recipe" << (several ? " " + std::to_string(i + 1) : "") << ": "
          << Printable(NamedRecipe(recipes[i])) << "\n";
  }
  if (!table.empty()) table.Print(Out());
}

void PrintLayers(const ModelReport& report, const std::string& mesh) {
  if (report.layers.empty()) return;
  Table table({"layer", "part of a rank", "its weight", "why"});
  size_t divided = 0;
  for (const LayerSplit& layer : report.layers) {
    divided += layer.kind != LayerSplit::kWhole;
    table.Row(
        {layer.weight, Name(layer.kind), ToString(layer.part), layer.why});
  }
  Out() << "\nLayers on the mesh " << mesh << ": " << divided << " of "
        << report.layers.size() << " are divided\n";
  table.Print(Out());
  if (report.divides_tokens) {
    Out() << "  Between them each rank has a part of the tokens.\n";
  }
  if (!report.whole_tokens.empty()) {
    Out() << "  " << (report.divides_tokens ? "Elsewhere" : "Between them")
          << " it has all tokens: " << Printable(report.whole_tokens) << "\n";
  }
}

void PrintMemory(const ModelReport& report) {
  if (report.specialize) {
    Out() << "\nSpecialized: " << report.specialize->folded << " of "
          << report.specialize->nodes_before << " nodes are folded, "
          << report.specialize->nodes_after << " stay\n";
  }
  if (!report.memory) return;
  const MemoryForecast& m = *report.memory;
  Out() << "\nMemory for training: " << ByteText(m.total()) << "\n";
  Table table({"what", "size", ""});
  table.Row({"parameters", ByteText(m.parameters), ""});
  table.Row({"moments", ByteText(m.moments), ""});
  if (m.averages > 0) table.Row({"averages", ByteText(m.averages), ""});
  if (m.scaling > 0) table.Row({"FP8 scales", ByteText(m.scaling), ""});
  if (m.fp8_weights > 0) {
    table.Row({"FP8 copies of weights", ByteText(m.fp8_weights), ""});
  }
  if (m.outside > 0) {
    table.Row(
        {"other state", ByteText(m.outside), "elsewhere: not in the sum"});
  }
  table.Row({"arena peak", ByteText(m.arena),
             "without sharing " + ByteText(m.naive)});
  table.Row({"  saved activations", ByteText(m.saved), "in the arena"});
  table.Row({"  gradients", ByteText(m.gradients), "in the arena"});
  if (m.fp8_copies > 0) {
    table.Row({"  FP8 copies", ByteText(m.fp8_copies), "in the arena"});
  }
  table.Print(Out());
}

}  // namespace

int Inspect(const Arguments& arguments) {
  Flags flags(InspectHelp(), kInspectOptions);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"MODEL"});
  if (flags.On("all_nodes") && !flags.Has("gpu")) {
    throw OptionError("`all_nodes` needs `gpu`, whose nodes it lists");
  }
  ApplyMachine(flags);
  const std::string model = flags.Text("MODEL"), mesh = flags.Text("mesh");
  SessionOptions options = SessionOptionsOf(flags, model);
  const GpuPeaks* gpu = flags.Has("gpu") ? FindGpu(flags.Text("gpu")) : nullptr;
  if (gpu) options.provider = ProviderForGpu(flags);
  ModelReport report =
      MakeModelReport(options, ParseShapeFlag(flags.List("shape")),
                      ParseValueFlag(flags.List("value")), gpu, MeshOf(mesh));
  if (gpu) NoteKernels(options.provider, flags.Text("gpu"), report.notes);
  const bool memory = flags.On("memory_report") && report.memory_report;
  if (flags.On("json")) {
    Json json = ToJson(report, model);
    if (memory) {
      json["memory_report"] = MemoryJson(*report.memory_report, std::nullopt);
    }
    if (report.roofline) {
      json["roofline"] = RooflineJson(*report.roofline, *gpu);
    }
    Out() << JsonLine(json);
    return 0;
  }
  PrintValues("Inputs", report.inputs);
  Out() << "\n";
  PrintValues("Outputs", report.outputs);
  PrintInitializers(report);
  PrintGemms(report);
  PrintLayers(report, mesh);
  PrintMemory(report);
  if (memory) {
    PrintMemoryReport(*report.memory_report, std::nullopt, Out());
  }
  if (report.roofline) {
    PrintRoofline(*report.roofline, *gpu, flags.On("all_nodes"), Out());
  }
  if (!report.open_axes.empty()) {
    std::string example;
    for (const std::string& axis : report.open_axes) {
      example += (example.empty() ? "" : ",") + axis + "=N";
    }
    Out() << "\nGive the open axes sizes for the memory forecast: --shape "
          << Printable(example) << "\n";
  }
  for (const std::string& note : report.notes) {
    Out() << "\nNote: " << Printable(note) << "\n";
  }
  return 0;
}

}  // namespace onnx_fp8
