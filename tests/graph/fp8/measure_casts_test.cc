// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/measure_casts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "graph/fp8/fp8_rewrite.h"
#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "onnx_fp8/recipe_text.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

constexpr char kMeasuredLayers[] = R"(
input x: float[2,3]
const seed: float[2,4]
param w: float[3,4]
param last: float[4,5]
y: float[2,4] = Gemm(x, w)
z: float[2,5] = MatMul(y, last)
dx: float[2,3] = Gemm<transB=1>(seed, w)
dw: float[3,4] = Gemm<transA=1>(x, seed)
output z
output dx
output dw
)";

std::shared_ptr<Graph> InFp8(const char* recipe) {
  auto graph = ParseGraph(kMeasuredLayers);
  Fp8Rewrite(*graph, {ParseRecipe(recipe)}, graph->Find("seed"),
             {{graph->Find("w"), graph->Find("dw")}});
  return graph;
}

std::vector<std::string> Labels(const CastMeasures& measures) {
  std::vector<std::string> labels;
  for (const MeasuredCast& cast : measures.casts) {
    const std::string copy = cast.use == 2 ? " (2nd copy)" : "";
    labels.push_back(Concat(cast.fqn, " ", cast.gemm, " ", cast.operand, copy));
  }
  return labels;
}

using Names = std::vector<std::string>;

TEST(MeasureCasts, NamesEachQuantizedCopyAndEachProduct) {
  auto graph = InFp8("tensorwise");
  EXPECT_EQ(Labels(MeasureCasts(*graph, {})),
            (Names{"w forward input", "w forward weight", "w forward product",
                   "last forward input", "last forward weight",
                   "last forward product", "w dgrad grad_output",
                   "w dgrad product", "w wgrad product"}));
  // Rows and columns have copies of their own.
  graph = InFp8("rowwise");
  EXPECT_EQ(Labels(MeasureCasts(*graph, {"w"})),
            (Names{"w forward input", "w forward weight", "w forward product",
                   "w dgrad grad_output", "w dgrad weight (2nd copy)",
                   "w dgrad product", "w wgrad input (2nd copy)",
                   "w wgrad grad_output (2nd copy)", "w wgrad product"}));
  Verify(*graph);
}

// The nodes that are there without it, in their order.
TEST(MeasureCasts, ChangesNothingElse) {
  for (const char* recipe : {"tensorwise", "delayed", "rowwise", "mxfp8"}) {
    const auto before = InFp8(recipe), graph = InFp8(recipe);
    const CastMeasures measures = MeasureCasts(*graph, {});
    const auto n = static_cast<int64_t>(measures.casts.size());
    EXPECT_EQ(measures.numbers->shape, Shape{CastStatistics::kNumbers * n})
        << recipe;
    EXPECT_EQ(measures.numbers->dtype, DType::kDouble);
    EXPECT_EQ(graph->outputs.back(), measures.numbers);
    Names of_before, of_graph;
    for (const Node& node : before->nodes()) of_before.push_back(node.op);
    for (const Node& node : graph->nodes()) {
      if (node.IsOurs("CastStatistics")) {
        const Node& quantizer = *node.in(1)->producer;
        EXPECT_EQ(node.in(0), quantizer.in(0));
        EXPECT_EQ(node.in(2), quantizer.out(1));
      }
      if (before->Find(node.out(0)->name)) of_graph.push_back(node.op);
    }
    EXPECT_EQ(of_graph, of_before) << recipe;
  }
}

std::string ErrorOf(Graph& graph, const Names& layers) {
  try {
    MeasureCasts(graph, layers);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MeasureCasts, LayersAreChosenByGlobs) {
  auto graph = InFp8("tensorwise");
  EXPECT_EQ(Labels(MeasureCasts(*graph, {"l?st", "las*"})),
            (Names{"last forward input", "last forward weight",
                   "last forward product"}));
  EXPECT_NE(ErrorOf(*InFp8("tensorwise"), {"w", "*mlp*"})
                .find("`stats`: expected a layer in FP8 that *mlp* matches, "
                      "got last, w"),
            std::string::npos);
  EXPECT_NE(ErrorOf(*ParseGraph(kMeasuredLayers), {})
                .find("`stats`: expected a layer in FP8, got none"),
            std::string::npos);
}

// Two layers of one input, one of them frozen.
std::shared_ptr<Graph> WithFrozenLayer() {
  auto graph = ParseGraph(R"(
input x: float[2,3]
param trained: float[3,4]
param frozen: float[3,5]
y: float[2,4] = MatMul(x, trained)
z: float[2,5] = MatMul(x, frozen)
output y
output z
)");
  graph->Find("frozen")->role = Role::kFrozen;
  Fp8Rewrite(*graph, {ParseRecipe("rowwise")}, nullptr, {});
  return graph;
}

TEST(MeasureCasts, CodesThatLiveOnAreNotCast) {
  EXPECT_EQ(Labels(MeasureCasts(*WithFrozenLayer(), {}, true)),
            (Names{"trained forward input", "trained forward weight",
                   "trained forward product"}));
  EXPECT_EQ(Labels(MeasureCasts(*WithFrozenLayer(), {"frozen"})),
            (Names{"frozen forward weight", "frozen forward product"}));
  try {
    MeasureCasts(*WithFrozenLayer(), {"frozen"}, true);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("`stats`: expected a layer that each step casts, got "
                        "layers whose weights live as codes, and whose inputs "
                        "other layers share: frozen"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace onnx_fp8
