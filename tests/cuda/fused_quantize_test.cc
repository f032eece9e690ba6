// SPDX-License-Identifier: Apache-2.0
//
// Kernels that also quantize their results give the bits of two kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "graph/onnx/verify.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/passes/fuse_quantize.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "tests/providers/cpu/random_feeds.h"
#include "tests/providers/cpu/special_values.h"
#include "tests/providers/quantized_graph.h"

namespace onnx_fp8 {
namespace {

std::vector<QuantizedForm> Forms() {
  return {
      {"3,7,201", "201", "3,7,1", "3,7,201", "", false, false},
      {"2,10,36", "36", "2,10,1", "2,10,36", "36,20", false, true},
      {"3,12,132", "132", "3,12,1", "36,132", "132,36", true, false},
      {"5,67", "67", "5,1", "5,67", "", true, true},
      {"2,4,68", "68", "2,4,1", "8,68", "68,8", true, true, true},
      // more than a segment, and not whole segments
      {"144,132", "132", "144,1", "144,132", "132,144", true, false},
      // all in bfloat16
      {"144,132", "132", "144,1", "144,132", "132,144", true, false, false,
       true},
      {"5,68", "68", "5,1", "5,68", "", true, true, false, true},
      {"3,7,201", "201", "3,7,1", "3,7,201", "", true, false, false, true},
  };
}

// A matrix and the transpose of its codes. Odd sizes are padded.
QuantizedForm MatrixForm(const FusedQuantizer& row, int64_t rows, int64_t n,
                         bool narrow) {
  if (row.padded) rows -= 3, n -= 3;
  std::string r = std::to_string(rows), c = std::to_string(n);
  std::string shape = r + "," + c;
  return {shape, c, r + ",1", shape, c + "," + r, narrow, false};
}

// A graph on the GPU.
class OnGpu {
 public:
  explicit OnGpu(const std::shared_ptr<Graph>& graph)
      : cuda_(MakeCudaProvider()), executor_(graph, *cuda_) {}

  TensorMap Run(const TensorMap& feeds) {
    TensorMap state, results = executor_.Run(feeds, state);
    cuda_->Synchronize();
    for (auto& [name, tensor] : results) tensor = cuda_->ToHost(tensor);
    return results;
  }

 private:
  std::unique_ptr<ExecutionProvider> cuda_;
  Executor executor_;
};

void ExpectSameBits(const TensorMap& got, const TensorMap& want,
                    const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [name, tensor] : want) {
    const Tensor& other = got.at(name);
    ASSERT_EQ(other.dtype(), tensor.dtype()) << what << ", " << name;
    ASSERT_EQ(other.shape(), tensor.shape()) << what << ", " << name;
    EXPECT_EQ(std::memcmp(other.raw(), tensor.raw(), tensor.bytes()), 0)
        << what << ", " << name;
  }
}

// Random operands, with NaN and infinity in the first one, or without.
TensorMap FeedsOf(const Graph& graph, float given, bool finite) {
  TensorMap feeds = RandomFeeds(graph, {});
  for (auto& [name, tensor] : feeds) {
    if (name.starts_with("given_")) tensor = Tensor::Scalar(given);
  }
  Tensor& x = feeds.at(graph.inputs[0]->name);
  if (finite || x.size() == 0) return feeds;
  x.data<float>()[5] = kNaN;
  x.data<float>()[x.size() / 2] = -kInfinity;
  x.data<float>()[x.size() - 1] = kInfinity;
  return feeds;
}

void ExpectTheBitsOfTwoKernels(const FusedQuantizer& row,
                               const QuantizedForm& form,
                               bool finite_only = false) {
  auto apart = QuantizedGraph(row, form), fused = QuantizedGraph(row, form);
  for (const auto& graph : {apart, fused}) StoreNarrow(*graph, CudaKernels());
  FuseQuantize(*fused, CudaKernels());
  Verify(*fused);
  bool found = std::ranges::any_of(
      fused->nodes(), [&](const Node& node) { return node.IsOurs(row.op); });
  ASSERT_TRUE(found) << form.shape;
  OnGpu one(fused), two(apart);
  for (float given : {0.0f, 0.0078125f}) {
    for (bool finite : {true, false}) {
      if (finite_only && !finite) continue;
      TensorMap feeds = FeedsOf(*apart, given, finite);
      std::string what = form.shape + ", scale " + std::to_string(given) +
                         (finite ? "" : ", not finite");
      ExpectSameBits(one.Run(feeds), two.Run(feeds), what);
    }
  }
}

class FusedQuantizeTest : public testing::TestWithParam<std::string> {};

TEST_P(FusedQuantizeTest, GivesTheBitsOfTwoKernels) {
  const FusedQuantizer& row = *FindFusedQuantizer(GetParam());
  for (const QuantizedForm& form : Forms())
    ExpectTheBitsOfTwoKernels(row, form);
}

std::vector<std::string> AllOps() {
  std::vector<std::string> ops;
  for (const FusedQuantizer& row : FusedQuantizers()) ops.push_back(row.op);
  return ops;
}

INSTANTIATE_TEST_SUITE_P(All, FusedQuantizeTest, testing::ValuesIn(AllOps()),
                         [](const auto& info) { return info.param; });

// Rows that do not fit into registers.
TEST(FusedQuantize, RowsInMemoryToo) {
  for (std::string op :
       {"AddLayerNormQuantize", "RMSNormGradQuantize",
        "LayerNormalizationQuantizePadded", "AddRMSNormGradQuantizePadded",
        "AddRMSNormQuantizeRows", "AddLayerNormGradQuantizeRows"}) {
    bool gradient = op.find("Grad") != op.npos;
    bool narrow = gradient || op.ends_with("Rows");
    std::string n = gradient ? "8196" : "16388";
    ExpectTheBitsOfTwoKernels(
        *FindFusedQuantizer(op),
        {"4," + n, n, "4,1", "4," + n, n + ",4", narrow, gradient});
  }
}

// Several warps work on a row.
TEST(FusedQuantize, LongRowsInRegistersToo) {
  struct LongRows {
    std::string op;
    int64_t rows, n;
  };
  for (const auto& [op, rows, n] :
       {LongRows{"AddLayerNormQuantize", 144, 1028},
        {"RMSNormQuantizePadded", 80, 4100},
        {"RMSNormGradQuantize", 144, 1028},
        {"LayerNormGradQuantizePadded", 80, 2052}}) {
    const FusedQuantizer& row = *FindFusedQuantizer(op);
    QuantizedForm form = MatrixForm(row, rows, n, true);
    for (bool operands : {false, true}) {
      form.operands = operands;
      auto apart = QuantizedGraph(row, form), fused = QuantizedGraph(row, form);
      for (const auto& graph : {apart, fused}) {
        StoreNarrow(*graph, CudaKernels());
      }
      FuseQuantize(*fused, CudaKernels());
      TensorMap feeds = FeedsOf(*apart, 0.0078125f, true);
      ExpectSameBits(OnGpu(fused).Run(feeds), OnGpu(apart).Run(feeds), op);
    }
  }
}

TEST(FusedQuantize, EmptyTensorsHaveScales) {
  for (const char* op :
       {"ReluQuantize", "RMSNormQuantize", "SiluBiasGradQuantize",
        "LayerNormGradQuantize", "AddRMSNormQuantizeRows"}) {
    ExpectTheBitsOfTwoKernels(*FindFusedQuantizer(op),
                              {"0,8", "8", "0,1", "0,8", "", false, true});
  }
}

}  // namespace
}  // namespace onnx_fp8
