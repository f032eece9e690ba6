// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/parallel.h"
#include "cli/bench/bench_progress.h"
#include "cli/bench/benchmarks.h"
#include "cli/bench/causal_attention.h"
#include "cli/bench/gemm_speed.h"
#include "cli/bench/provider_peaks.h"
#include "cli/bench/random_tensor.h"
#include "cli/bench/save.h"
#include "cli/bench/sliced_attention.h"
#include "cli/bench/timing.h"
#include "cli/interrupt.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/report/text.h"
#include "graph/builder.h"
#include "training/make_provider.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

struct AttentionCase {
  std::string dtype;  // "fp32" or "bf16"
  CausalSizes sizes;
};

struct AttentionSpeed {
  AttentionCase of;
  double forward = 0, backward = 0;  // operations per second
  size_t rounds = 0;                 // runs of both
  double gemm = 0;                   // of the same dtype
};

// The nodes of causal attention and of its gradient. Operands of bfloat16 are
// stored in 16 bits, as in a training step.
class AttentionNodes {
 public:
  explicit AttentionNodes(const AttentionCase& c) {
    Builder b(graph_);
    DType dtype = FloatNamed(c.dtype);
    const CausalSizes& sizes = c.sizes;
    Shape shape = {sizes.batch, sizes.sequence, sizes.heads * sizes.head_size};
    std::vector<Value*> in;
    for (const char* name : {"dy", "q", "k", "v"}) {
      in.push_back(graph_.AddInput(name, DType::kFloat, shape));
      operands_.push_back(RandomTensor(shape, dtype, operands_.size()));
    }
    Attributes attributes = CausalAttributes(sizes, dtype);
    std::vector<Value*> y =
        b.Ops("Attention", {in[1], in[2], in[3]}, 2, attributes, kDomain);
    std::vector<Value*> gradients =
        b.Ops("AttentionGrad", {in[0], in[1], in[2], in[3], y[0], y[1]}, 3,
              attributes, kDomain);
    forward_ = y[0]->producer;
    backward_ = gradients[0]->producer;
    if (dtype != DType::kFloat) {
      for (Value* value : in) value->narrow = dtype;
    }
  }

  AttentionSpeed Measure(const AttentionCase& c, double seconds) const {
    auto evaluator = MakeEvaluator();
    std::vector<Tensor> inputs(operands_.begin() + 1, operands_.end());
    std::vector<Tensor> all = operands_;
    std::ranges::copy(evaluator->Evaluate(*forward_, inputs),
                      std::back_inserter(all));
    auto forward = [&] { evaluator->Evaluate(*forward_, inputs); };
    auto backward = [&] { evaluator->Evaluate(*backward_, all); };
    AttentionSpeed speed = {c};
    std::vector<double> times = Times(forward, seconds);
    speed.forward = c.sizes.operations() / times.front();
    speed.rounds = times.size() + 1;
    times = Times(backward, seconds);
    speed.backward = kBackwardCost * c.sizes.operations() / times.front();
    speed.rounds = std::min(speed.rounds, times.size() + 1);
    return speed;
  }

 private:
  Graph graph_;
  std::vector<Tensor> operands_;  // dy, q, k, v
  Node* forward_;
  Node* backward_;
};

const Option kAttentionOptions[] = {
    {"Own", "sequence", OptionKind::kList, "T, the lengths of sequences",
     "256,1024,4096"},
    {"Own", "head_size", OptionKind::kList, "D, the sizes of a head", "64,128"},
    {"Own", "dtype", OptionKind::kList, "", "fp32,bf16"},
    {"Own",
     "heads",
     OptionKind::kInt,
     "H, the number of heads",
     "4",
     {.min = 1, .max = 1024}},
    {"Own",
     "batch",
     OptionKind::kInt,
     "B, the number of sequences (default: 2048 / T, and at least 1)",
     "",
     {.min = 1}},
    {"Own", "slices", OptionKind::kList,
     "into how many calls the batch is divided, with one workspace for all",
     "1"},
    {"Own",
     "seconds",
     OptionKind::kNumber,
     "for each direction of each case, and for the product",
     "0.2",
     {.min = 0}},
};

std::vector<AttentionCase> CasesOf(const OptionSet& flags) {
  std::vector<AttentionCase> cases;
  const int64_t batch = flags.Int("batch"), heads = flags.Int("heads");
  for (const std::string& dtype : flags.List("dtype")) {
    for (int64_t head_size :
         ParseSizes("head_size", flags.List("head_size"), 1024)) {
      for (int64_t sequence :
           ParseSizes("sequence", flags.List("sequence"), 1 << 16)) {
        int64_t of_sequence = std::max<int64_t>(1, 2048 / sequence);
        cases.push_back({dtype,
                         {.batch = batch > 0 ? batch : of_sequence,
                          .sequence = sequence,
                          .heads = heads,
                          .kv_heads = heads,
                          .head_size = head_size}});
      }
    }
  }
  return cases;
}

void PrintAttention(const std::vector<AttentionSpeed>& speeds) {
  Out() << "causal attention (" << MachineText("cpu")
        << "); %: of the GEMM of 1024x1024x1024 in the same dtype\n";
  Table table({"dtype", "head size", "T", "batch", "GEMM GF/s", "forward GF/s",
               "%", "backward GF/s", "%"});
  auto text = [](double value) { return std::to_string(std::lround(value)); };
  for (const AttentionSpeed& s : speeds) {
    table.Row({s.of.dtype, std::to_string(s.of.sizes.head_size),
               std::to_string(s.of.sizes.sequence),
               std::to_string(s.of.sizes.batch), text(s.gemm / 1e9),
               text(s.forward / 1e9), text(100 * s.forward / s.gemm),
               text(s.backward / 1e9), text(100 * s.backward / s.gemm)});
  }
  table.Print(Out());
}

void PrintAttentionJson(const std::vector<AttentionSpeed>& speeds) {
  ProviderInfo info = MakeProvider("cpu")->Describe();
  Json report = {{"benchmark", "attention"},
                 {"isa", info.isa},
                 {"gemm", info.gemm},
                 {"threads", NumThreads()},
                 {"cases", Json::array()}};
  for (const AttentionSpeed& s : speeds) {
    report["cases"].push_back({{"dtype", s.of.dtype},
                               {"head_size", s.of.sizes.head_size},
                               {"sequence", s.of.sizes.sequence},
                               {"batch", s.of.sizes.batch},
                               {"heads", s.of.sizes.heads},
                               {"gemm_gflops", s.gemm / 1e9},
                               {"forward_gflops", s.forward / 1e9},
                               {"backward_gflops", s.backward / 1e9},
                               {"forward_share", s.forward / s.gemm},
                               {"backward_share", s.backward / s.gemm}});
  }
  Out() << JsonLine(report);
}

void MeasureAttention(const OptionSet& flags,
                      const std::vector<AttentionCase>& cases,
                      std::vector<AttentionSpeed>* speeds) {
  std::vector<double> operations;
  for (const AttentionCase& c : cases) {
    operations.push_back((1 + kBackwardCost) * c.sizes.operations());
  }
  BenchProgress progress(operations, 3 * flags.Number("seconds"));
  for (const AttentionCase& c : cases) {
    progress.Begin(Concat("attention ", c.dtype, ", head size ",
                          c.sizes.head_size, ", T ", c.sizes.sequence));
    // Measured for each case, because machines are now slower, now faster.
    GemmSpeed gemm = MeasureGemm({1024, 1024, 1024}, "NT", FloatNamed(c.dtype),
                                 flags.Number("seconds"));
    AttentionSpeed speed =
        AttentionNodes(c).Measure(c, flags.Number("seconds"));
    progress.Round(speed.rounds);
    speed.gemm = gemm.best;
    speeds->push_back(speed);
  }
}

void MeasureSliced(const OptionSet& flags,
                   const std::vector<AttentionCase>& cases,
                   SlicedAttentionReport* report) {
  auto provider =
      MakeProvider(flags.Text("provider"), ProviderOptionsOf(flags));
  *report = {.provider = flags.Text("provider"),
             .machine = MachineText(flags.Text("provider")),
             .nondeterministic = flags.On("nondeterministic"),
             .peaks = PeaksOf(*provider)};
  std::vector<int64_t> slices = ParseSizes("slices", flags.List("slices"));
  BenchProgress progress(std::vector<double>(cases.size() * slices.size(), 1),
                         2 * flags.Number("seconds"));
  for (const AttentionCase& c : cases) {
    for (int64_t count : slices) {
      SlicedAttention one = {
          .dtype = c.dtype, .sizes = c.sizes, .slices = count};
      progress.Begin(Concat("attention ", c.dtype, ", head size ",
                            c.sizes.head_size, ", T ", c.sizes.sequence,
                            ", slices ", count));
      Measure(*provider, flags.Number("seconds"), &one);
      report->cases.push_back(one);
      progress.Round();
    }
  }
}

// Prints what is measured, also if it is interrupted.
template <typename MeasureAll, typename PrintAll>
void PrintAnyway(const MeasureAll& measure, const PrintAll& print) {
  try {
    measure();
  } catch (const Interruption&) {
    print();
    throw;
  }
  print();
}

void BenchOnCpu(const OptionSet& flags,
                const std::vector<AttentionCase>& cases) {
  std::vector<AttentionSpeed> speeds;
  PrintAnyway([&] { MeasureAttention(flags, cases, &speeds); },
              [&] {
                if (speeds.empty()) return;
                flags.On("json") ? PrintAttentionJson(speeds)
                                 : PrintAttention(speeds);
              });
}

// Errors: some cases failed.
void BenchSliced(const OptionSet& flags,
                 const std::vector<AttentionCase>& cases) {
  SlicedAttentionReport report;
  PrintAnyway([&] { MeasureSliced(flags, cases, &report); },
              [&] {
                if (report.cases.empty()) return;
                if (flags.On("json")) {
                  Out() << JsonLine(report.Json());
                } else {
                  report.Print(Out());
                }
              });
  Check(report.Failed() == 0, report.Failed(), " of ", report.cases.size(),
        " cases failed");
}

}  // namespace

void BenchAttention(const Arguments& arguments) {
  Flags flags({"bench attention",
               "Time causal attention and its gradient. On the CPU the best "
               "runs are compared with the best matrix product of "
               "1024x1024x1024 in the same dtype. On a GPU, or with `slices`, "
               "the median runs are compared with the peak of the dtype. "
               "Operations are 4 B H T T D / 2 forward, and 2.5 times that "
               "backward.",
               {{"Options", {"Own", "JSON", "Provider", "Machine"}}},
               {"onnx-fp8 bench attention",
                "onnx-fp8 bench attention --sequence 1024 --head-size 64 "
                "--dtype bf16",
                "onnx-fp8 bench attention --provider cuda --batch 16 --slices "
                "1,4,8"}},
              kAttentionOptions);
  if (!flags.Parse(arguments)) return;
  for (const std::string& dtype : flags.List("dtype")) {
    if (dtype == "fp32" || dtype == "bf16") continue;
    throw OptionError("`dtype`: expected fp32 or bf16, got \"" + dtype + "\"");
  }
  const std::vector<AttentionCase> cases = CasesOf(flags);
  ApplyMachine(flags);
  if (flags.Text("provider") != "cpu" || flags.Given("slices")) {
    BenchSliced(flags, cases);
  } else {
    BenchOnCpu(flags, cases);
  }
}

}  // namespace onnx_fp8
