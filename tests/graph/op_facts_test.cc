// SPDX-License-Identifier: Apache-2.0
#include "graph/op_facts.h"

#include <gtest/gtest.h>
#include <onnx/defs/schema.h>

#include <map>
#include <set>

#include "graph/schemas.h"

namespace onnx_fp8 {
namespace {

namespace onnx = ONNX_NAMESPACE;

Node Of(const std::string& op, const std::string& domain) {
  Node node;
  node.op = op;
  node.domain = domain;
  return node;
}

TEST(OpFacts, OurOpsOfEachKind) {
  std::map<OpKind, std::set<std::string>> kinds;
  for (const std::string& name : OpNames()) {
    kinds[FactsOf(Of(name, kDomain)).kind].insert(name);
  }
  using Names = std::set<std::string>;
  EXPECT_EQ(kinds[OpKind::kProduct], Names());
  EXPECT_EQ(kinds[OpKind::kScaledProduct],
            (Names{"ScaledMatMul", "ScaledMatMulAdd", "ScaledMatMulBias",
                   "ScaledMatMulBlock", "ScaledMatMulBlockAdd",
                   "ScaledMatMulBlockBias", "ScaledMatMulPadded",
                   "ScaledMatMulPaddedAdd", "ScaledMatMulPaddedBias"}));
  EXPECT_EQ(kinds[OpKind::kAttention],
            (Names{"Attention", "AttentionBias", "AttentionPacked",
                   "AttentionPackedBias", "AttentionPackedSegments",
                   "AttentionRelative", "AttentionSegments"}));
  EXPECT_EQ(kinds[OpKind::kAttentionGrad],
            (Names{"AttentionGrad", "AttentionBiasGrad", "AttentionPackedGrad",
                   "AttentionPackedBiasGrad", "AttentionPackedSegmentsGrad",
                   "AttentionRelativeGrad", "AttentionSegmentsGrad"}));
  EXPECT_EQ(
      kinds[OpKind::kNorm],
      (Names{"AddLayerNorm", "AddLayerNormGrad", "AddRMSNorm", "AddRMSNormGrad",
             "LayerNormGrad", "RMSNorm", "RMSNormGrad"}));
  EXPECT_EQ(kinds[OpKind::kQuantize],
            (Names{"QuantizeAmax", "QuantizeBlock", "QuantizeBlockTranspose",
                   "QuantizeColumns", "QuantizeTensor", "QuantizeTensorPadded",
                   "QuantizeTensorTranspose", "QuantizeWith",
                   "QuantizeWithPadded", "QuantizeWithTranspose"}));
  EXPECT_EQ(kinds[OpKind::kDequantize], Names{"DequantizeBlock"});
  EXPECT_EQ(kinds[OpKind::kRound], Names{"RoundTo"});
  EXPECT_EQ(kinds[OpKind::kCollective],
            (Names{"AllGather", "AllReduce", "Broadcast", "ReduceScatter"}));
  EXPECT_EQ(kinds[OpKind::kScaleUpdate], Names{"UpdateScale"});
  EXPECT_EQ(kinds[OpKind::kParameterUpdate],
            (Names{"Adam", "AdamW", "SGD", "SGDMomentum"}));
}

TEST(OpFacts, OnlyUpdatesSayWhichOperandIsTheGradient) {
  for (const std::string& name : OpNames()) {
    const OpFacts& facts = FactsOf(Of(name, kDomain));
    bool update = facts.kind == OpKind::kParameterUpdate;
    EXPECT_EQ(facts.gradient, update ? 1 : -1) << name;
  }
}

TEST(OpFacts, EveryOpOfOnnxHasARow) {
  std::set<std::string> missing;
  for (const onnx::OpSchema& schema :
       onnx::OpSchemaRegistry::get_all_schemas()) {
    if (!schema.domain().empty() || schema.Deprecated()) continue;
    if (!FindFacts("", schema.Name())) missing.insert(schema.Name());
  }
  EXPECT_EQ(missing, std::set<std::string>());
}

// Ranks divide a node by its form.
TEST(OpFacts, OpsThatRanksDivideHaveAForm) {
  auto check = [](const std::string& op, const std::string& domain) {
    const OpFacts& facts = FactsOf(Of(op, domain));
    EXPECT_TRUE(facts.division == Division::kWhole ||
                facts.form != OpForm::kAny)
        << op;
  };
  for (const std::string& name : OpNames()) check(name, kDomain);
  for (const onnx::OpSchema& schema :
       onnx::OpSchemaRegistry::get_all_schemas()) {
    if (schema.domain().empty()) check(schema.Name(), "");
  }
}

// A name says nothing without its domain.
TEST(OpFacts, OpsOfOtherDomainsAreElementwise) {
  EXPECT_EQ(FactsOf(Of("MatMul", "")).kind, OpKind::kProduct);
  EXPECT_EQ(FactsOf(Of("Gemm", "")).kind, OpKind::kProduct);
  EXPECT_EQ(FactsOf(Of("LayerNormalization", "")).kind, OpKind::kNorm);
  for (const auto& [op, domain] : {std::pair{"MatMul", "com.x"},
                                   {"MatMul", kDomain},
                                   {"Attention", ""},
                                   {"QuantizeTensor", "com.x"},
                                   {"Relu", ""},
                                   {"None", ""}}) {
    EXPECT_EQ(FactsOf(Of(op, domain)).kind, OpKind::kOther) << op;
    EXPECT_EQ(FactsOf(Of(op, domain)).flops, ElementFlops) << op;
  }
}

}  // namespace
}  // namespace onnx_fp8
