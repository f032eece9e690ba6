// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/layer_benchmark.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/parallel.h"
#include "cli/bench/bench_progress.h"
#include "cli/bench/layer_timing.h"
#include "cli/bench/save.h"
#include "cli/interrupt.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/output_place.h"
#include "cli/report/text.h"
#include "onnx_fp8/recipe_text.h"
#include "training/make_provider.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

// Forward, dgrad and wgrad.
constexpr int kProducts = 3;

// Speed of the products in the median run with the recipe.
double GigaFlops(const ProductSize& size, const RivalTimes& times) {
  return kProducts * size.operations() / Median(times.second) / 1e9;
}

std::string RecipeName(const OptionSet& flags) {
  const std::string typed = flags.Text("recipe");
  return typed.ends_with(".json") ? RecipeText(ParseRecipe(typed)) : typed;
}

// `all` may be shorter than the benchmark's sizes.
void PrintTable(const LayerBenchmark& benchmark, const OptionSet& flags,
                const std::vector<RivalTimes>& all) {
  Out() << benchmark.name << ", forward and backward: " << flags.Text("dtype")
        << " and " << RecipeName(flags) << " ("
        << MachineText(flags.Text("provider")) << ")\n";
  std::vector<std::string> header = {
      "M", "K", "N", "high-precision ms", "recipe ms", "speed-up", "GF/s"};
  if (!benchmark.labels.empty()) header.push_back("layer");
  Table table(header);
  for (size_t i = 0; i < all.size(); ++i) {
    const ProductSize& size = benchmark.sizes[i];
    std::vector<std::string> cells = {std::to_string(size.m),
                                      std::to_string(size.k),
                                      std::to_string(size.n),
                                      Fixed(1e3 * Median(all[i].first), 3),
                                      Fixed(1e3 * Median(all[i].second), 3),
                                      Fixed(SpeedUp(all[i]), 2),
                                      Fixed(GigaFlops(size, all[i]), 1)};
    if (!benchmark.labels.empty()) cells.push_back(benchmark.labels[i]);
    table.Row(cells);
  }
  table.Print(Out());
}

Json Milliseconds(const std::vector<double>& seconds) {
  return {{"median", 1e3 * Median(seconds)},
          {"best", 1e3 * *std::ranges::min_element(seconds)}};
}

void PrintJson(const LayerBenchmark& benchmark, const OptionSet& flags,
               const std::vector<RivalTimes>& all) {
  ProviderInfo info = MakeProvider(flags.Text("provider"))->Describe();
  Json report = {{"benchmark", benchmark.name},
                 {"dtype", flags.Text("dtype")},
                 {"recipe", RecipeName(flags)},
                 {"provider", flags.Text("provider")},
                 {"isa", info.isa},
                 {"gemm", info.gemm},
                 {"threads", NumThreads()},
                 {"layers", Json::array()}};
  for (size_t i = 0; i < all.size(); ++i) {
    const ProductSize& size = benchmark.sizes[i];
    Json layer = {{"m", size.m}, {"k", size.k}, {"n", size.n}};
    if (!benchmark.labels.empty()) layer["layer"] = benchmark.labels[i];
    layer["high_precision_ms"] = Milliseconds(all[i].first);
    layer["recipe_ms"] = Milliseconds(all[i].second);
    layer["speedup"] = SpeedUp(all[i]);
    layer["gflops"] = GigaFlops(size, all[i]);
    layer["runs"] = all[i].first.size();
    report["layers"].push_back(layer);
  }
  Out() << JsonLine(report);
}

void Save(const LayerBenchmark& benchmark, const OptionSet& flags,
          const std::vector<RivalTimes>& all) {
  SpeedTable table;
  SpeedGrid& grid = table.speedup;
  grid.m = grid.k = grid.n = benchmark.grid;
  for (const RivalTimes& times : all) grid.values.push_back(SpeedUp(times));
  SaveSpeedTable(flags.Text("save"), table,
                 {.machine = MachineText(flags.Text("provider")),
                  .benchmark = benchmark.name,
                  .recipe = RecipeName(flags),
                  .dtype = flags.Text("dtype")});
}

void Print(const LayerBenchmark& benchmark, const OptionSet& flags,
           const std::vector<RivalTimes>& all) {
  if (flags.On("json")) {
    PrintJson(benchmark, flags, all);
  } else {
    PrintTable(benchmark, flags, all);
  }
}

}  // namespace

Flags LayerFlags(CommandHelp help, std::span<const Option> own) {
  std::vector<Option> rows = {
      {"Shared",
       "seconds",
       OptionKind::kNumber,
       "for each layer, and as long again in high precision; there are at "
       "least three runs",
       "0.5",
       {.min = 0}},
      {"Shared", "save", OptionKind::kFile,
       "write the speed-ups of the grid of `sizes`: the table that "
       "`auto_filter` reads"}};
  rows.insert(rows.end(), own.begin(), own.end());
  help.sections.push_back({"Numbers", {"Recipe", "Loss scale"}});
  help.sections.push_back(
      {"Options", {"seconds", "JSON", "save", "Provider", "Machine"}});
  Flags flags(std::move(help), rows);
  flags.Preset("recipe", "tensorwise");
  return flags;
}

void BenchLayers(const LayerBenchmark& benchmark, const OptionSet& flags) {
  ApplyMachine(flags);
  const SessionOptions options = SessionOptionsOf(flags, "");
  if (!flags.Text("save").empty()) RequireFolderOf(flags.Text("save"));
  std::vector<double> operations;
  for (const ProductSize& size : benchmark.sizes) {
    operations.push_back(2 * kProducts * size.operations());
  }
  std::vector<RivalTimes> all;
  try {
    BenchProgress progress(operations, 2 * flags.Number("seconds"));
    for (const ProductSize& size : benchmark.sizes) {
      progress.Begin(Concat(benchmark.name, " ", SizeText(size)));
      all.push_back(TimeLayer(benchmark.surroundings, size, options,
                              flags.Number("seconds"),
                              [&] { progress.Round(); }));
    }
  } catch (const Interruption&) {
    if (!all.empty()) Print(benchmark, flags, all);
    throw;
  }
  Print(benchmark, flags, all);
  if (flags.Text("save").empty()) return;
  Save(benchmark, flags, all);
  if (flags.On("json")) return;
  Out() << flags.Text("save") << ": speed-ups of " << all.size()
        << " layers, for --auto-filter\n";
}

}  // namespace onnx_fp8
