// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/parallel.h"
#include "cli/bench/bench_progress.h"
#include "cli/bench/benchmarks.h"
#include "cli/bench/gemm_speed.h"
#include "cli/bench/random_tensor.h"
#include "cli/bench/save.h"
#include "cli/bench/timing.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/output_place.h"
#include "graph/builder.h"
#include "onnx_fp8/float8.h"
#include "training/make_provider.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

struct Product {
  ProductSize size;
  std::string layout = "NN";
};

// "M,K,N" or "M,K,N,NT".
Product ParseProduct(const std::string& text) {
  auto read = ReadProductSize(text);
  if (read && read->second.empty()) return {read->first};
  if (read && read->second[0] == ',') {
    std::string layout = read->second.substr(1);
    bool known = layout.size() == 2 &&
                 layout.find_first_not_of("NT") == std::string::npos;
    if (known) return {read->first, layout};
  }
  throw OptionError("`shape`: expected M,K,N and NN, NT, TN or TT, got \"" +
                    text + "\"");
}

const Option kGemmOptions[] = {
    {"Own", "shape", OptionKind::kWords,
     "M,K,N,NT: A is (M,K), B (K,N), T: stored transposed",
     "1024,1024,1024,NN"},
    {"Own", "dtype", OptionKind::kList, "fp32, bf16, fp8", "fp32,fp8"},
    {"Own",
     "seconds",
     OptionKind::kNumber,
     "for each product",
     "0.2",
     {.min = 0}},
    {"Own", "save", OptionKind::kFile,
     "measure products of all `sizes` and write the table that `auto_filter` "
     "reads (a minute)"},
    {"Own", "sizes", OptionKind::kList, "of M, K and N for `save`",
     "64,256,1024,4096"},
};

double InGiga(double x) { return x / 1e9; }

DType OperandOf(const std::string& dtype) {
  if (dtype == "fp8") return DType::kE4M3;
  return dtype == "bf16" ? DType::kBFloat16 : DType::kFloat;
}

void PrintSpeeds(const OptionSet& flags) {
  std::vector<Product> products;
  for (const std::string& shape : flags.List("shape")) {
    products.push_back(ParseProduct(shape));
  }
  std::unique_ptr<ExecutionProvider> provider = MakeProvider("cpu");
  ProviderInfo info = provider->Describe();
  MachinePeaks peaks = provider->MeasurePeaks();
  nlohmann::ordered_json report = {{"isa", info.isa},
                                   {"gemm", info.gemm},
                                   {"threads", NumThreads()},
                                   {"peak", nlohmann::ordered_json::object()},
                                   {"products", nlohmann::json::array()}};
  for (const std::string& dtype : flags.List("dtype")) {
    // Products of bf16 and of FP8 have the same kernels.
    double peak = dtype == "fp32" ? peaks.flops : peaks.eight_bit_flops;
    report["peak"][dtype] = InGiga(peak);
    if (!flags.On("json")) {
      std::printf("%s: %.0f GF/s on registers alone (%s), threads: %d\n",
                  dtype.c_str(), InGiga(peak), info.gemm.c_str(), NumThreads());
    }
    for (const Product& p : products) {
      auto [m, k, n] = p.size;
      GemmSpeed speed = MeasureGemm(p.size, p.layout, OperandOf(dtype),
                                    flags.Number("seconds"));
      report["products"].push_back({{"m", m},
                                    {"k", k},
                                    {"n", n},
                                    {"layout", p.layout},
                                    {"dtype", dtype},
                                    {"gflops", InGiga(speed.best)},
                                    {"median_gflops", InGiga(speed.median)},
                                    {"share_of_peak", speed.best / peak},
                                    {"runs", speed.runs}});
      if (flags.On("json")) continue;
      std::printf("  %6lld %6lld %6lld %s  %8.1f GF/s %4.0f %%\n",
                  static_cast<long long>(m), static_cast<long long>(k),
                  static_cast<long long>(n), p.layout.c_str(),
                  InGiga(speed.best), 100 * speed.best / peak);
    }
  }
  if (flags.On("json")) Out() << JsonLine(report);
}

// Elements per second of QuantizeTensor, which reads its operand twice.
double QuantizeSpeed(double seconds) {
  constexpr int64_t kSize = 2048;
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{kSize, kSize});
  Value* q = b.Ops("QuantizeTensor", {x}, 3,
                   {{"to", static_cast<int64_t>(DType::kE4M3)},
                    {"q_max", Float8Max(DType::kE4M3)}},
                   kDomain)[0];
  auto evaluator = MakeEvaluator();
  std::vector<Tensor> inputs = {RandomTensor({kSize, kSize}, DType::kFloat, 1)};
  auto run = [&] { evaluator->Evaluate(*q->producer, inputs); };
  return static_cast<double>(kSize * kSize) / Times(run, seconds).front();
}

// The table that --auto-filter reads. It has no axis for the orientation of
// operands: products copy them in any case.
void SaveSpeeds(const OptionSet& flags) {
  SpeedTable table;
  std::vector<int64_t> sizes = ParseSizes("sizes", flags.List("sizes"));
  std::vector<ProductSize> products = GridOf(sizes);
  std::vector<double> operations;
  for (int i = 0; i < 2; ++i) {
    for (const ProductSize& size : products) {
      operations.push_back(size.operations());
    }
  }
  BenchProgress progress(operations, flags.Number("seconds"));
  for (SpeedGrid* grid : {&table.fp32, &table.fp8}) {
    DType dtype = grid == &table.fp8 ? DType::kE4M3 : DType::kFloat;
    grid->m = grid->k = grid->n = sizes;
    for (const ProductSize& size : products) {
      progress.Begin(Concat(SizeText(size), ", ", Name(dtype)));
      GemmSpeed speed = MeasureGemm(size, "NT", dtype, flags.Number("seconds"));
      progress.Round(static_cast<size_t>(speed.runs) + 1);
      grid->values.push_back(speed.best);
    }
  }
  table.quantize = QuantizeSpeed(flags.Number("seconds"));
  SaveSpeedTable(flags.Text("save"), table, {.machine = MachineText("cpu")});
  Out() << flags.Text("save") << ": speeds of " << table.fp8.values.size()
        << " products in fp32 and FP8, for --auto-filter\n";
}

}  // namespace

void BenchGemm(const Arguments& arguments) {
  Flags flags({"bench gemm",
               "Time matrix products, and compare them with what the machine "
               "can multiply. With `save`: write what `auto_filter` reads.",
               {{"Options", {"Own", "JSON", "Machine"}}},
               {"onnx-fp8 bench gemm", "onnx-fp8 bench gemm --save speeds.json",
                "onnx-fp8 bench gemm --shape 2048,256,4096,NT --dtype fp8"}},
              kGemmOptions);
  if (!flags.Parse(arguments)) return;
  for (const std::string& dtype : flags.List("dtype")) {
    if (dtype == "fp32" || dtype == "bf16" || dtype == "fp8") continue;
    throw OptionError("`dtype`: expected fp32, bf16 or fp8, got \"" + dtype +
                      "\"");
  }
  flags.RequireBeside("sizes", "save");
  for (const char* other : {"shape", "dtype", "json"}) {
    flags.Exclude(other, "save");
  }
  ApplyMachine(flags);
  if (flags.Given("save")) {
    RequireFolderOf(flags.Text("save"));
    SaveSpeeds(flags);
  } else {
    PrintSpeeds(flags);
  }
}

}  // namespace onnx_fp8
