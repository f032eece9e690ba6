// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "base/parallel.h"
#include "cli/commands/commands.h"
#include "cli/options.h"
#include "cli/report/text.h"
#include "graph/builder.h"
#include "onnx_fp8/float8.h"
#include "onnx_fp8/speed_table.h"
#include "onnx_fp8/tensor.h"
#include "providers/cpu/gemm/gemm.h"

namespace onnx_fp8 {
namespace {

struct Product {
  int64_t m = 0, k = 0, n = 0;
  std::string layout = "NN";
};

struct Timing {
  double best = 0, median = 0;  // operations per second
  int64_t runs = 0;
};

// "M,K,N" or "M,K,N,NT".
Product ParseProduct(const std::string& text) {
  const std::string usage =
      "--shape: expected M,K,N and NN, NT, TN or TT, got \"" + text + "\"";
  Product product;
  const char* at = text.data();
  const char* end = at + text.size();
  for (int64_t* size : {&product.m, &product.k, &product.n}) {
    auto [rest, error] = std::from_chars(at, end, *size);
    if (error != std::errc() || *size < 1 || *size > 1 << 20) {
      throw UsageError(usage);
    }
    at = rest;
    if (size == &product.n) break;
    if (at == end || *at++ != ',') throw UsageError(usage);
  }
  if (at == end) return product;
  product.layout = std::string(at + 1, end);
  bool known = product.layout.size() == 2 &&
               product.layout.find_first_not_of("NT") == std::string::npos;
  if (*at != ',' || !known) throw UsageError(usage);
  return product;
}

// The values do not change the time, but infinities and NaN might.
Tensor RandomMatrix(int64_t rows, int64_t columns, DType dtype, uint64_t seed) {
  Tensor matrix = Tensor::Allocate(DType::kFloat, {rows, columns});
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < rows * columns; ++i) {
    matrix.data<float>()[i] = static_cast<float>(random() % 4096) / 2048 - 1;
  }
  return ConvertTo(matrix, dtype);
}

// Seconds of single runs, ascending; there are at least three.
template <typename Run>
std::vector<double> Times(const Run& run, double seconds) {
  using Clock = std::chrono::steady_clock;
  run();  // the first one allocates
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < 3;) {
    auto begin = Clock::now();
    run();
    std::chrono::duration<double> took = Clock::now() - begin;
    times.push_back(std::max(took.count(), 1e-9));
    spent += times.back();
  }
  std::ranges::sort(times);
  return times;
}

// The product alone, without the node's allocations: the CPU's GEMM.
Timing Measure(const Product& product, DType dtype, double seconds) {
  auto [m, k, n, layout] = product;
  bool ta = layout[0] == 'T', tb = layout[1] == 'T';
  Tensor a = RandomMatrix(ta ? k : m, ta ? m : k, dtype, 1);
  Tensor b = RandomMatrix(tb ? n : k, tb ? k : n, dtype, 2);
  Tensor c = Tensor::Allocate(DType::kFloat, {m, n});
  GemmProblem problem = {.m = m, .n = n, .k = k, .c = c.raw()};
  problem.a = {a.raw(), dtype, a.dim(1), ta};
  problem.b = {b.raw(), dtype, b.dim(1), tb};
  std::vector<double> times = Times([&] { Gemm(problem); }, seconds);
  double operations = 2.0 * static_cast<double>(m) * static_cast<double>(n) *
                      static_cast<double>(k);
  return {operations / times.front(), operations / times[times.size() / 2],
          static_cast<int64_t>(times.size())};
}

struct BenchFlags {
  std::string what;
  std::vector<std::string> shapes = {"1024,1024,1024,NN"};
  std::vector<std::string> dtypes = {"fp32", "fp8"};
  double seconds = 0.2;
  bool json = false;
  std::string save;
  std::vector<std::string> sizes = {"64", "256", "1024", "4096"};
};

double InGiga(double x) { return x / 1e9; }

void BenchGemm(const BenchFlags& flags) {
  std::vector<Product> products;
  for (const std::string& shape : flags.shapes) {
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
  for (const std::string& dtype : flags.dtypes) {
    bool fp8 = dtype == "fp8";
    double peak = fp8 ? peaks.eight_bit_flops : peaks.flops;
    report["peak"][dtype] = InGiga(peak);
    if (!flags.json) {
      std::printf("%s: %.0f GF/s on registers alone (%s), threads: %d\n",
                  dtype.c_str(), InGiga(peak), info.gemm.c_str(), NumThreads());
    }
    for (const Product& p : products) {
      Timing timing =
          Measure(p, fp8 ? DType::kE4M3 : DType::kFloat, flags.seconds);
      report["products"].push_back({{"m", p.m},
                                    {"k", p.k},
                                    {"n", p.n},
                                    {"layout", p.layout},
                                    {"dtype", dtype},
                                    {"gflops", InGiga(timing.best)},
                                    {"median_gflops", InGiga(timing.median)},
                                    {"share_of_peak", timing.best / peak},
                                    {"runs", timing.runs}});
      if (flags.json) continue;
      std::printf("  %6lld %6lld %6lld %s  %8.1f GF/s %4.0f %%\n",
                  static_cast<long long>(p.m), static_cast<long long>(p.k),
                  static_cast<long long>(p.n), p.layout.c_str(),
                  InGiga(timing.best), 100 * timing.best / peak);
    }
  }
  if (flags.json) std::cout << report.dump() << "\n";
}

std::vector<int64_t> ParseSizes(const std::vector<std::string>& words) {
  std::set<int64_t> sizes;
  for (const std::string& word : words) {
    int64_t size = 0;
    const char* end = word.data() + word.size();
    auto [stop, error] = std::from_chars(word.data(), end, size);
    if (error != std::errc() || stop != end || size < 1 || size > 1 << 14) {
      throw UsageError("--sizes: expected numbers from 1 to 16384, got \"" +
                       word + "\"");
    }
    sizes.insert(size);
  }
  return {sizes.begin(), sizes.end()};
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
  std::vector<Tensor> inputs = {RandomMatrix(kSize, kSize, DType::kFloat, 1)};
  auto run = [&] { evaluator->Evaluate(*q->producer, inputs); };
  return static_cast<double>(kSize * kSize) / Times(run, seconds).front();
}

// The table that --auto-filter reads. It has no axis for the orientation of
// operands: products copy them in any case.
void SaveSpeeds(const BenchFlags& flags) {
  SpeedTable table;
  std::vector<int64_t> sizes = ParseSizes(flags.sizes);
  for (SpeedGrid* grid : {&table.fp32, &table.fp8}) {
    DType dtype = grid == &table.fp8 ? DType::kE4M3 : DType::kFloat;
    grid->m = grid->k = grid->n = sizes;
    for (int64_t m : sizes) {
      for (int64_t k : sizes) {
        for (int64_t n : sizes) {
          Timing timing = Measure({m, k, n, "NT"}, dtype, flags.seconds);
          grid->values.push_back(timing.best);
        }
      }
    }
  }
  table.quantize = QuantizeSpeed(flags.seconds);
  ProviderInfo info = MakeProvider("cpu")->Describe();
  std::string machine = Concat(info.isa, ", ", info.gemm, ", ", NumThreads(),
                               NumThreads() == 1 ? " thread" : " threads");
  WriteFileAtomically(flags.save, SpeedTableJson(table, {.machine = machine}));
  std::cout << flags.save << ": speeds of " << table.fp8.values.size()
            << " products in fp32 and FP8, for --auto-filter\n";
}

}  // namespace

int Bench(const Arguments& arguments) {
  Flags flags("bench",
              "Time a part of the program on this machine. gemm: matrix "
              "products, and their share of what the machine can multiply.");
  BenchFlags values;
  MachineFlags machine;
  flags.Positional("WHAT", &values.what, "gemm");
  flags.Words("--shape", &values.shapes,
              "M,K,N,NT: A is (M,K), B (K,N), T: stored transposed (default: "
              "1024,1024,1024,NN)");
  flags.List("--dtype", &values.dtypes, "fp32, fp8 (default: both)");
  flags.Number("--seconds", &values.seconds, 0,
               "for each product (default: 0.2)");
  flags.Switch("--json", &values.json, "print one JSON object");
  flags.File("--save", &values.save,
             "measure products of all --sizes and write the table that "
             "--auto-filter reads (a minute)");
  flags.List("--sizes", &values.sizes,
             "of M, K and N for --save (default: 64,256,1024,4096)");
  machine.AddTo(flags);
  flags.Example("onnx-fp8 bench gemm");
  flags.Example("onnx-fp8 bench gemm --save speeds.json");
  flags.Example("onnx-fp8 bench gemm --shape 2048,256,4096,NT --dtype fp8");
  if (!flags.Parse(arguments)) return 0;
  if (values.what != "gemm") {
    throw UsageError("WHAT: expected gemm, got \"" + values.what + "\"");
  }
  for (const std::string& dtype : values.dtypes) {
    if (dtype == "fp32" || dtype == "fp8") continue;
    throw UsageError("--dtype: expected fp32 or fp8, got \"" + dtype + "\"");
  }
  bool saves = flags.Given("--save");
  if (flags.Given("--sizes") && !saves) {
    throw UsageError("--sizes needs --save");
  }
  for (const char* other : {"--shape", "--dtype", "--json"}) {
    if (saves && flags.Given(other)) {
      throw UsageError(Concat(other, " and --save exclude each other"));
    }
  }
  machine.Apply();
  if (saves) {
    SaveSpeeds(values);
  } else {
    BenchGemm(values);
  }
  return 0;
}

}  // namespace onnx_fp8
