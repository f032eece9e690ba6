// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/add_adapters.h"

#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "tests/graph/parse.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

constexpr char kLoraLayers[] = R"(
input ids: int64[2,5]
const embed.weight: float[7,3]
const fc.weight: float[4,3]
const fc.bias: float[4]
const norm.weight: float[4]
const out.weight: float[4,2]
x: float[2,5,3] = Gather(embed.weight, ids)
wt: float[3,4] = Transpose<perm=[1,0]>(fc.weight)
p: float[2,5,4] = MatMul(x, wt)
h: float[2,5,4] = Add(p, fc.bias)
n: float[2,5,4] = Mul(h, norm.weight)
y: float[2,5,2] = MatMul(n, out.weight)
output y
)";

struct Adapted {
  explicit Adapted(const std::string& lora,
                   const ParameterPatterns& patterns = {},
                   const std::string& text = kLoraLayers)
      : graph(ParseGraph(text)), tensors(MarkParameters(*graph, patterns)) {
    adapters = AddAdapters(*graph, ParseLora(lora), &tensors);
    graph->Sort();
    Verify(*graph);
  }

  // "MatMul(x,wt)->p".
  std::vector<std::string> Nodes() const {
    std::vector<std::string> all;
    for (const Node& node : graph->nodes()) {
      std::string text = node.op + "(";
      for (const Value* in : node.inputs()) text += in->name + ",";
      text.back() = ')';
      all.push_back(text + "->" + node.out(0)->name);
    }
    return all;
  }

  std::unique_ptr<Graph> graph;
  std::vector<InitializerReport> tensors;
  std::vector<Adapter> adapters;
};

std::string AdapterRefusal(const std::string& lora,
                           const ParameterPatterns& patterns = {},
                           const std::string& text = kLoraLayers) {
  return ErrorOf([&] { Adapted(lora, patterns, text); });
}

TEST(AddAdapters, ReadersOfTheLayerReadTheSum) {
  const Adapted fc("r=2,alpha=4,targets=fc");
  EXPECT_EQ(fc.Nodes(),
            (std::vector<std::string>{
                "Gather(embed.weight,ids)->x", "Transpose(fc.weight)->wt",
                "MatMul(x,wt)->p", "Add(p,fc.bias)->fc.lora.Add",
                "Transpose(fc.lora_A.weight)->fc.lora_A.Transpose",
                "MatMul(x,fc.lora_A.Transpose)->fc.lora_A.MatMul",
                "Mul(fc.lora_A.MatMul,fc.lora_scaling)->fc.lora_B.Mul",
                "Transpose(fc.lora_B.weight)->fc.lora_B.Transpose",
                "MatMul(fc.lora_B.Mul,fc.lora_B.Transpose)->fc.lora_B.MatMul",
                "Add(fc.lora.Add,fc.lora_B.MatMul)->h", "Mul(h,norm.weight)->n",
                "MatMul(n,out.weight)->y"}));
  ASSERT_EQ(fc.adapters.size(), 1u);
  EXPECT_EQ(fc.adapters[0].module, "fc");
  EXPECT_TRUE(fc.adapters[0].out_first);
  EXPECT_FALSE(fc.adapters[0].fan_in_fan_out);
  const auto shape = [&](const char* name) {
    return *fc.graph->Find(name)->shape;
  };
  EXPECT_EQ(shape("fc.lora_A.weight"), (Shape{2, 3}));
  EXPECT_EQ(shape("fc.lora_B.weight"), (Shape{4, 2}));
  EXPECT_EQ(fc.graph->Find("fc.lora_scaling")->data.data<float>()[0], 2);
}

TEST(AddAdapters, AnOutputKeepsItsName) {
  const Adapted out("r=2,targets=*out*,dropout=0.5");
  EXPECT_EQ(out.Nodes().back(), "Add(out.lora.Add,out.lora_B.MatMul)->y");
  EXPECT_EQ(out.graph->outputs[0]->name, "y");
  EXPECT_FALSE(out.adapters[0].out_first);
  const Value* dropped = out.graph->Find("out.lora_dropout.Dropout");
  ASSERT_NE(dropped, nullptr);
  EXPECT_EQ(dropped->producer->in(0)->name, "n");
  EXPECT_EQ(dropped->uses.size(), 1u);
}

TEST(AddAdapters, AllOtherParametersAreFrozenUnlessAFlagTrainsThem) {
  const Adapted both("r=2,targets=fc,out", {.train = {"norm*"}});
  for (const Value* value : both.graph->Initializers()) {
    if (value->role == Role::kNone) continue;
    const bool trains = value->name.find("lora_") != std::string::npos ||
                        value->name == "norm.weight";
    EXPECT_EQ(value->role, trains ? Role::kParameter : Role::kFrozen)
        << value->name;
  }
  EXPECT_EQ(both.tensors.size(), 5u + 4u);
}

TEST(AddAdapters, OneWeightOfTwoProductsHasOneAdapter) {
  const Adapted twice("r=2,targets=fc", {}, R"(
input x: float[5,3]
const fc.weight: float[3,3]
h: float[5,3] = MatMul(x, fc.weight)
y: float[5,3] = MatMul(h, fc.weight)
output y
)");
  EXPECT_EQ(twice.adapters.size(), 1u);
  EXPECT_EQ(twice.graph->Find("fc.lora_A.weight")->uses.size(), 2u);
}

TEST(AddAdapters, AWholePathChoosesOneModule) {
  constexpr char kNested[] = R"(
input x: float[5,3]
const fc.weight: float[3,3]
const a.fc.weight: float[3,3]
h: float[5,3] = MatMul(x, fc.weight)
y: float[5,3] = MatMul(h, a.fc.weight)
output y
)";
  EXPECT_EQ(Adapted("targets=fc", {}, kNested).adapters.size(), 1u);
  EXPECT_EQ(Adapted("targets=*fc", {}, kNested).adapters.size(), 2u);
}

TEST(AddAdapters, RefusesByName) {
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(AdapterRefusal("targets=gate"),
         "`lora` target gate matches no linear layer; the model has 2: fc, "
         "out");
  expect(AdapterRefusal("targets=norm"), "target norm matches no linear layer");
  expect(AdapterRefusal("targets=embed"),
         "chooses embed.weight, which is read "
         "by Gather");
  expect(AdapterRefusal("targets=fc", {.train = {"fc.weight"}}),
         "`train` names fc.weight, which has an adapter");
  expect(AdapterRefusal("targets=conv", {}, R"(
input x: float[1,3,8,8]
const conv.weight: float[4,3,1,1]
y: float[1,4,8,8] = Conv(x, conv.weight)
output y
)"),
         "chooses conv.weight, which is read by Conv");
  expect(AdapterRefusal("targets=head", {}, R"(
input ids: int64[5]
const head.weight: float[7,3]
x: float[5,3] = Gather(head.weight, ids)
wt: float[3,7] = Transpose<perm=[1,0]>(head.weight)
y: float[5,7] = MatMul(x, wt)
output y
)"),
         "chooses head.weight, which is read by Gather");
}

}  // namespace
}  // namespace onnx_fp8
