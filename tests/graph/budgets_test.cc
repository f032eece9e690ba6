// SPDX-License-Identifier: Apache-2.0
//
// Graphs that ask for more than a budget: each is tried just above and just
// below it.
#include "onnx_fp8/budgets.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "graph/passes/expand.h"
#include "graph/passes/specialize.h"
#include "graph/passes/unroll_recurrent.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// The error's text; "" if there is none.
std::string ErrorWith(const Graph& graph, const Budgets& budgets) {
  std::map<std::string, Shape> shapes;
  for (const Value* input : graph.inputs) shapes[input->name] = *input->shape;
  Spending spending(budgets);
  try {
    Specialize(graph, shapes, *MakeCpuEvaluator(), nullptr, {}, &spending);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Expects that the graph takes exactly `amount` of the budget.
void ExpectTakes(const Graph& graph, Budget budget, const char* name,
                 int64_t amount) {
  Budgets budgets;
  budgets.*budget = amount;
  EXPECT_EQ(ErrorWith(graph, budgets), "") << name;
  budgets.*budget = amount - 1;
  std::string text = ErrorWith(graph, budgets);
  EXPECT_NE(text.find(Concat("`budget` ", name, "=N raises the budget \"", name,
                             "\"")),
            std::string::npos)
      << text;
}

// y = Loop(trips, go, x) with this body; `more` has further lines.
std::unique_ptr<Graph> LoopOf(int64_t trips, const std::string& body,
                              const std::string& more = "") {
  auto graph = ParseGraph("input x: float[2]\n" + more + "output x\n");
  Value* n = graph->AddInitializer("n", Tensor::Scalar(trips));
  Node* loop =
      graph->AddNode("Loop", {n, nullptr, graph->Find("x")}, {"y"},
                     {{"body", std::shared_ptr<Graph>(ParseGraph(body))}});
  loop->name = "again";
  graph->outputs = {loop->out(0)};
  return graph;
}

constexpr char kHead[] = R"(
input i: int64[]
input go: bool[]
input v: float[2]
)";
constexpr char kGoesOn[] = "goes: bool[] = Identity(go)\noutput goes\n";

std::unique_ptr<Graph> LoopOfNegs(int64_t trips) {
  return LoopOf(trips, std::string(kHead) + kGoesOn +
                           "next: float[2] = Neg(v)\noutput next\n");
}

TEST(Budgets, NodesOfALoop) {
  ExpectTakes(*LoopOfNegs(5), &Budgets::nodes, "nodes", 5);
}

TEST(Budgets, VisitsOfALoop) {
  // The loop node, and in each iteration the iteration itself, Identity and
  // Neg.
  ExpectTakes(*LoopOfNegs(5), &Budgets::visits, "visits", 1 + 5 * 3);
}

// Otherwise it would fill the memory with a million nodes before it fails.
TEST(Budgets, ALoopWithoutEndIsToldAhead) {
  Spending spending;
  auto graph = LoopOfNegs(INT64_MAX);
  EXPECT_THROW(Specialize(*graph, {{"x", {2}}}, *MakeCpuEvaluator(), nullptr,
                          {}, &spending),
               Error);
  EXPECT_TRUE(spending.Has(&Budgets::visits, Budgets().visits - 1));
  EXPECT_NE(ErrorWith(*graph, {}).find("[Loop again] expected at most 1M"),
            std::string::npos);
}

// If the body may end the loop, the trip count is only an upper bound.
TEST(Budgets, ALoopThatEndsItselfMayHaveAnyTripCount) {
  auto graph = LoopOf(INT64_MAX, std::string(kHead) + R"(
const three: int64[] = {3}
goes: bool[] = Less(i, three)
next: float[2] = Neg(v)
output goes
output next
)");
  EXPECT_EQ(ErrorWith(*graph, {}), "");
  // The loop node, and in each of four iterations the iteration, Less and Neg.
  ExpectTakes(*graph, &Budgets::visits, "visits", 1 + 4 * 3);
}

TEST(Budgets, AScanWithoutEndIsToldAhead) {
  auto graph = ParseGraph("input x: float[4194304]\noutput x\n");
  auto body = ParseGraph("input r: float[]\ny: float[] = Neg(r)\noutput y\n");
  Node* scan =
      graph->AddNode("Scan", {graph->Find("x")}, {"ys"},
                     {{"body", std::shared_ptr<Graph>(std::move(body))},
                      {"num_scan_inputs", int64_t{1}}});
  graph->outputs = {scan->out(0)};
  Spending spending;
  EXPECT_THROW(Specialize(*graph, {{"x", {4194304}}}, *MakeCpuEvaluator(),
                          nullptr, {}, &spending),
               Error);
  EXPECT_TRUE(spending.Has(&Budgets::visits, Budgets().visits - 1));
}

TEST(Budgets, ConstantsOfALoop) {
  auto graph = LoopOf(5, std::string(kHead) + kGoesOn + R"(
const sizes: int64[2] = {10,25}
big: float[10,25] = ConstantOfShape(sizes)
next: float[2] = Neg(v)
output next
)");
  ExpectTakes(*graph, &Budgets::constants, "constants", 5 * 10 * 25 * 4);
}

// If a size is not known before, the largest possible size counts.
TEST(Budgets, ConstantsOfAnUnknownSize) {
  auto graph = ParseGraph(R"(
const x: float[3,4]
i: int64[2,?] = NonZero(x)
output i
)");
  ExpectTakes(*graph, &Budgets::constants, "constants", 3 * 4 * 3 * 8);
}

TEST(Budgets, WorkOfProducts) {
  const std::string product = R"(
const a: float[1,10000]
const b: float[10000,1]
p: float[1,1] = MatMul(a, b)
)";
  auto with = [&](int64_t trips) {
    return LoopOf(trips, std::string(kHead) + kGoesOn + product +
                             "next: float[2] = Neg(v)\noutput next\n");
  };
  auto takes = [&](int64_t trips, int64_t work) {
    return ErrorWith(*with(trips), {.work = work}).empty();
  };
  // Operands and results of both nodes count as a little work too.
  EXPECT_TRUE(takes(4, 4 * 22000));
  EXPECT_FALSE(takes(4, 4 * 20000));
}

// Copies of a long sequence are not free, nor is the walk that searches for the
// sources of a branch's condition.
TEST(Budgets, WorkOfSequencesAndVisitsOfSources) {
  auto graph = ParseGraph(R"(
input x: float[2]
const zero: float[] = {0}
a: float[2] = Neg(x)
b: float[2] = Neg(a)
m: float[] = ReduceMax<keepdims=0>(b)
c: bool[] = Greater(m, zero)
)");
  auto yes = ParseGraph("captured x:\ny: float[2] = Neg(x)\noutput y");
  auto no = ParseGraph("captured x:\ny: float[2] = Abs(x)\noutput y");
  Node* node =
      graph->AddNode("If", {graph->Find("c")}, {"z"},
                     {{"then_branch", std::shared_ptr<Graph>(std::move(yes))},
                      {"else_branch", std::shared_ptr<Graph>(std::move(no))}});
  graph->outputs = {node->out(0)};
  // Seven nodes; c, m, b, a and x.
  ExpectTakes(*graph, &Budgets::visits, "visits", 7 + 5);

  auto sequence = ParseGraph("input x: float[2]\noutput x\n");
  Value* x = sequence->Find("x");
  Node* made = sequence->AddNode("SequenceConstruct", {x, x, x}, {"s"});
  Node* at = sequence->AddNode(
      "SequenceAt",
      {made->out(0), sequence->AddInitializer("p", Tensor::Scalar(int64_t{1}))},
      {"y"});
  sequence->outputs = {at->out(0)};
  ExpectTakes(*sequence, &Budgets::work, "work", 3 * 8);
}

// ONNX's inference counts up to the size of the axis.
TEST(Budgets, WorkOfInference) {
  auto graph = ParseGraph(R"(
input x: float[1,1,100000]
y: float[1,1,50000] = MaxPool<auto_pad="SAME_UPPER", kernel_shape=[2], strides=[2]>(x)
output y
)");
  std::string text = ErrorWith(*graph, {.work = 100000});
  EXPECT_NE(text.find("`budget` work=N"), std::string::npos) << text;
  EXPECT_EQ(ErrorWith(*graph, {.work = 110000}), "");
}

// A node of more than 2^30 operations is left to the step, and costs nothing.
TEST(Budgets, ALargeProductIsLeftToTheStep) {
  auto graph = ParseGraph(R"(
const a: float[900,900]
const b: float[900,900]
c: float[900,900] = MatMul(a, b)
output c
)");
  EXPECT_EQ(ErrorWith(*graph, {.work = 1000}), "");
}

TEST(Budgets, NodesOfARecurrentLayer) {
  auto unroll = [](int64_t nodes) {
    auto graph = ParseGraph(R"(
input x: float[6,2,3]
param w: float[1,4,3]
param r: float[1,4,4]
y: float[6,1,2,4] = RNN<hidden_size=4>(x, w, r)
output y
)");
    Spending spending({.nodes = nodes});
    UnrollRecurrent(*graph, &spending);
  };
  // For each step: a part of x, a product and an activation.
  EXPECT_NO_THROW(unroll(6 * 3));
  EXPECT_THROW(unroll(6 * 3 - 1), Error);
  EXPECT_THROW(unroll(5), Error);
}

TEST(Budgets, NodesOfBodies) {
  for (int64_t nodes : {1, 1000}) {
    auto graph =
        ParseGraph("input x: float[2]\ny: float[2] = Celu(x)\noutput y");
    Spending spending({.nodes = nodes});
    auto expand = [&] {
      ExpandNode(*graph, graph->nodes().front(), nullptr, &spending);
    };
    if (nodes == 1) {
      EXPECT_THROW(expand(), Error);
    } else {
      EXPECT_NO_THROW(expand());
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
