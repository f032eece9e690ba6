// SPDX-License-Identifier: Apache-2.0
//
// Which norms of training steps quantize their results on the GPU, and how
// often weights are decoded there. Nothing runs here.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "providers/cuda/cuda_provider.h"
#include "tests/support/corpus.h"
#include "tests/training/corpus_step.h"
#include "training/make_provider.h"
#include "training/step/pipelines.h"

namespace onnx_fp8 {
namespace {

// How often an op occurs.
using Counts = std::map<std::string, int>;

// The ops of a training step whose names contain "Norm".
Counts NormsOf(const std::string& fixture, const std::string& recipe,
               DType dtype) {
  Counts counts;
  for (const CorpusFile& file : CorpusFiles()) {
    if (!file.fixture || file.name + "/" + file.variant != fixture) continue;
    CorpusCase c(file);
    c.options.recipe = ParseRecipe(recipe);
    c.options.dtype = dtype;
    PassRunner runner;
    TrainingModel model = LoadTrainingModel(c.options, runner);
    auto evaluator = MakeEvaluator();
    StepGraph step =
        BuildStepOf(c, model, StepKind::kTrain, *evaluator, runner);
    FitToKernels(*step.graph, CudaKernels(), c.options, *evaluator, runner);
    for (const Node& node : step.graph->nodes()) {
      if (node.op.find("Norm") != node.op.npos) ++counts[node.op];
    }
  }
  return counts;
}

// All but the gradient of the first norm, which goes to the embedding. In
// bfloat16 a gradient is rounded before it is quantized, and the gradient of
// the norm before it reads it unrounded.
TEST(CudaFusedSteps, GivenScales) {
  for (DType dtype : {DType::kFloat, DType::kBFloat16}) {
    EXPECT_EQ(NormsOf("nanogpt/l17", "delayed", dtype),
              (Counts{{"LayerNormalizationQuantize", 2},
                      {"AddLayerNormQuantize", 3},
                      {"AddLayerNormGradQuantize", 3},
                      {"LayerNormGradQuantize", 1},
                      {"LayerNormGrad", 1}}))
        << Name(dtype);
    EXPECT_EQ(NormsOf("llama/l17", "delayed", dtype),
              (Counts{{"RMSNormQuantize", 2},
                      {"AddRMSNormQuantize", 3},
                      {"AddRMSNormGradQuantize", 3},
                      {"RMSNormGradQuantize", 1},
                      {"RMSNormGrad", 1}}))
        << Name(dtype);
  }
}

// Products of a weight's gradient also read copies with scales of columns,
// which have kernels of their own.
TEST(CudaFusedSteps, ScalesOfRows) {
  for (DType dtype : {DType::kFloat, DType::kBFloat16}) {
    EXPECT_EQ(NormsOf("nanogpt/l17", "rowwise", dtype),
              (Counts{{"LayerNormalizationQuantizeRows", 2},
                      {"AddLayerNormQuantizeRows", 3},
                      {"AddLayerNormGradQuantizeRows", 3},
                      {"LayerNormGradQuantizeRows", 1},
                      {"LayerNormGrad", 1}}))
        << Name(dtype);
    EXPECT_EQ(NormsOf("llama/l17", "rowwise", dtype),
              (Counts{{"RMSNormQuantizeRows", 2},
                      {"AddRMSNormQuantizeRows", 3},
                      {"AddRMSNormGradQuantizeRows", 3},
                      {"RMSNormGradQuantizeRows", 1},
                      {"RMSNormGrad", 1}}))
        << Name(dtype);
  }
}

// The nodes of a step that quantize weights which are kept in fewer bytes.
struct QuantizedMasters {
  int decodings = 0;   // that they read
  int both = 0;        // nodes that write the codes of rows and columns
  int of_one_way = 0;  // other nodes
};

QuantizedMasters QuantizedIn(const Graph& graph) {
  QuantizedMasters found;
  for (const Node& node : graph.nodes()) {
    const bool decodes = node.IsOurs("DecodeMaster") || node.Is("Cast");
    if (!decodes || node.in(0)->role != Role::kParameter) continue;
    const int before = found.both + found.of_one_way;
    for (const Node* reader : node.out(0)->uses) {
      found.both += reader->IsOurs("QuantizeBlockTranspose");
      found.of_one_way +=
          reader->IsOurs("QuantizeBlock") || reader->IsOurs("QuantizeColumns");
    }
    found.decodings += found.both + found.of_one_way > before;
  }
  return found;
}

QuantizedMasters QuantizedMastersOf(const std::string& master, int64_t micro) {
  for (const CorpusFile& file : CorpusFiles()) {
    if (!file.fixture || file.name + "/" + file.variant != "llama/l17") {
      continue;
    }
    CorpusCase c(file);
    c.options.recipe = ParseRecipe("mxfp8");
    c.options.optimizer.master = master;
    c.options.grad_accum = micro;
    PassRunner runner;
    TrainingModel model = LoadTrainingModel(c.options, runner);
    auto evaluator = MakeEvaluator();
    StepGraph step =
        BuildStepOf(c, model, micro > 1 ? StepKind::kMicro : StepKind::kTrain,
                    *evaluator, runner);
    FitToKernels(*step.graph, CudaKernels(), c.options, *evaluator, runner);
    return QuantizedIn(*step.graph);
  }
  return {};
}

// The codes of a weight's rows and columns live as long with micro-batches. In
// one step the backward makes its own, so that no codes wait for it.
TEST(CudaFusedSteps, MicroBatchesDecodeAWeightOnce) {
  for (const char* master : {"split8", "bfloat16"}) {
    SCOPED_TRACE(master);
    const QuantizedMasters alone = QuantizedMastersOf(master, 1);
    const QuantizedMasters shared = QuantizedMastersOf(master, 2);
    EXPECT_EQ(alone.both, 0);
    EXPECT_EQ(alone.decodings, alone.of_one_way);
    EXPECT_GT(shared.both, 0);
    EXPECT_EQ(shared.decodings, shared.both + shared.of_one_way);
    EXPECT_EQ(alone.decodings - shared.decodings, shared.both);
  }
}

}  // namespace
}  // namespace onnx_fp8
