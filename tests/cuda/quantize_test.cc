// SPDX-License-Identifier: Apache-2.0
//
// Quantizers with one scale give the CPU's bits on the GPU, for all that x may
// be kept as, and for sizes that are no multiples of a vector or a tile.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/ops/divide_up.h"
#include "providers/passes/expand_missing.h"
#include "providers/passes/store_narrow.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

struct XSizes {
  int64_t rows, columns;
};

// x, rounded to `kept` unless that is a float of 32 bits, quantized by all ops.
std::shared_ptr<Graph> QuantizersOf(const XSizes& x, DType kept) {
  auto sizes = [](int64_t rows, int64_t columns) {
    return Concat("[", rows, ",", columns, "]");
  };
  std::string plain = sizes(x.rows, x.columns);
  std::string turned = sizes(x.columns, x.rows);
  int64_t rows16 = RoundUp(x.rows, 16), columns16 = RoundUp(x.columns, 16);
  std::string text =
      Concat("input x: float", plain,
             "\nconst s0: float[] = {0}\nconst s1: float[] = {0.01}\n"
             // Its inverse is infinite.
             "const s2: float[] = {1e-45}\n");
  bool narrow = kept != DType::kFloat;
  std::string operand = narrow ? "r" : "x";
  if (narrow) {
    text += Concat("r: float", plain,
                   " = onnx_fp8.RoundTo<to=", static_cast<int>(kept), ">(x)\n");
  }
  int i = 0;
  auto add = [&](const std::string& op, const std::string& codes,
                 const std::string& transpose) {
    bool with = op.find("With") != op.npos;
    for (const char* scale : {"s0", "s1", "s2"}) {
      if (!with && scale != std::string("s0")) continue;
      std::string to = i % 2 == 0 ? "float8e4m3fn" : "float8e5m2";
      text += Concat("q", i, ": ", to, codes, ", w", i, ": float[], a", i,
                     ": float[]");
      if (!transpose.empty()) text += Concat(", t", i, ": ", to, transpose);
      text +=
          Concat(" = onnx_fp8.", op,
                 "<to=", i % 2 == 0 ? "17, q_max=448.0" : "19, q_max=57344.0",
                 ">(", operand, with ? Concat(", ", scale) : "", ")\n");
      ++i;
    }
  };
  for (const char* op : {"QuantizeTensor", "QuantizeWith"}) {
    add(op, plain, "");
    if (x.rows == 0) continue;
    add(Concat(op, "Padded"), sizes(rows16, columns16),
        sizes(columns16, rows16));
    if (x.rows % 4 == 0 && x.columns % 4 == 0) {
      add(Concat(op, "Transpose"), plain, turned);
    }
  }
  std::shared_ptr<Graph> graph = ParseGraph(text);
  for (Node& node : graph->nodes()) {
    if (!node.op.starts_with("Quantize")) continue;
    for (Value* y : node.outputs()) graph->outputs.push_back(y);
  }
  return graph;
}

class CudaQuantizeTest : public testing::TestWithParam<XSizes> {};

TEST_P(CudaQuantizeTest, GivesTheCpusBits) {
  for (DType kept : {DType::kFloat, DType::kBFloat16, DType::kFloat16}) {
    auto for_cpu = QuantizersOf(GetParam(), kept);
    auto for_cuda = QuantizersOf(GetParam(), kept);
    auto evaluator = MakeCpuEvaluator();
    ExpandMissing(*for_cpu, CpuKernels(), {}, evaluator.get());
    StoreNarrow(*for_cuda, CudaKernels());
    for (bool finite : {true, false}) {
      TensorMap feeds = RandomFeeds(*for_cpu, {});
      Tensor& x = feeds.at("x");
      if (!finite && x.size() > 0) {
        x.data<float>()[x.size() / 2] = -kInfinity;
        x.data<float>()[x.size() / 3] = kNaN;
        // A NaN that is kept in 16 bits loses its sign on a GPU.
        if (kept == DType::kFloat) x.data<float>()[x.size() - 1] = -kNaN;
      }
      ExpectCpusBytes(for_cpu, for_cuda, feeds,
                      Concat(Name(kept), finite ? "" : ", not finite"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaQuantizeTest,
    testing::Values(XSizes{1, 1}, XSizes{0, 8}, XSizes{3, 5}, XSizes{4, 4},
                    XSizes{12, 132}, XSizes{131, 165}, XSizes{132, 260},
                    XSizes{144, 128}, XSizes{128, 136}),
    [](const auto& info) {
      return Concat("x", info.param.rows, "_", info.param.columns);
    });

}  // namespace
}  // namespace onnx_fp8
