// SPDX-License-Identifier: Apache-2.0
#include "tests/graph/fusion.h"

#include <gtest/gtest.h>

#include <map>

#include "graph/onnx/verify.h"
#include "graph/passes/dead_code.h"
#include "graph/print.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {

std::string AfterPass(FusionPass pass, const std::string& text) {
  auto graph = ParseGraph(text);
  pass(*graph);
  Verify(*graph);
  return Print(*graph);
}

Tensor ResultOf(FusionPass pass, const std::string& text) {
  auto graph = ParseGraph(text);
  if (pass) pass(*graph);
  std::map<std::string, Tensor> feeds;
  uint64_t seed = 1;
  for (const Value* input : graph->inputs) {
    feeds[input->name] = RandomNormal(*input->shape, seed++);
  }
  std::string output = graph->outputs[0]->name;
  return RunGraph(*graph, feeds).at(output);
}

void ExpectStays(FusionPass pass, const std::string& text) {
  auto live = ParseGraph(text), after = ParseGraph(text);
  RemoveDeadCode(*live);
  pass(*after);
  RemoveDeadCode(*after);
  EXPECT_EQ(Print(*after), Print(*live));
}

void ExpectSameValues(FusionPass pass, const std::string& text, double bound) {
  Tensor fused = ResultOf(pass, text), plain = ResultOf(nullptr, text);
  ASSERT_EQ(fused.shape(), plain.shape());
  EXPECT_LE(LargestDifference(fused, plain), bound) << text;
}

}  // namespace onnx_fp8
