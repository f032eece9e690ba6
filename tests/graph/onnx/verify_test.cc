// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/verify.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// The message of Verify, "" if it accepts the graph.
std::string Complaint(const Graph& graph) {
  try {
    Verify(graph, "pass x");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string Complaint(const std::string& text) {
  return Complaint(*ParseGraph(text));
}

constexpr char kGood[] = R"(
input x: float[2]
state m: float[2]
y: float[2] = Add(x, m)
q: float[2] = Neg(y)
output q
output x
update m = y
)";

TEST(Verify, AcceptsAGoodGraph) { EXPECT_EQ(Complaint(kGood), ""); }

TEST(Verify, StateBindings) {
  std::string text = kGood;
  EXPECT_EQ(Complaint(text + "update m = x"),
            "[graph graph] state \"m\" is bound twice (after pass x)");
  EXPECT_EQ(Complaint(text + "update x = y"),
            "[graph graph] expected state that is an initializer, got x "
            "(after pass x)");
  EXPECT_EQ(Complaint(text + "const c: float[3]\nstate n: float[2]\n"
                             "update n = c"),
            "[graph graph] state \"n\": expected a next value of float[2], "
            "got \"c\" of float[3] (after pass x)");
  EXPECT_EQ(Complaint(text + "const c: double[2]\nstate n: float[2]\n"
                             "update n = c"),
            "[graph graph] state \"n\": expected a next value of float[2], "
            "got \"c\" of double[2] (after pass x)");
  EXPECT_EQ(Complaint(text + "captured c: float\nstate n: float[2]\n"
                             "update n = c"),
            "[graph graph] state \"n\": expected a next value that the graph "
            "produces (after pass x)");
}

TEST(Verify, Schemas) {
  EXPECT_EQ(Complaint("y: float[2] = NoSuchOp()"),
            "[NoSuchOp -> y] expected an op of ONNX's opset 24, got NoSuchOp "
            "(after pass x)");
  EXPECT_EQ(Complaint("graph \"g\" opset 19\ny: float[2] = Gelu()"),
            "[Gelu -> y] expected an op of ONNX's opset 19, got Gelu "
            "(after pass x)");
  EXPECT_EQ(Complaint("y: float[2] = com.x.Op()"),
            "[com.x.Op -> y] expected an op of ONNX or of the domain onnx_fp8,"
            " got com.x.Op (after pass x)");
  EXPECT_EQ(Complaint("y: float[2] = onnx_fp8.GeluGrad()"), "");
  EXPECT_EQ(Complaint("y: float[2] = onnx_fp8.NoSuchOp()"),
            "[onnx_fp8.NoSuchOp -> y] expected an op of domain onnx_fp8, got "
            "NoSuchOp (after pass x)");
}

TEST(Verify, InputsAndOutputsAreListedOnce) {
  auto graph = ParseGraph(kGood);
  graph->outputs.push_back(graph->Find("q"));
  EXPECT_EQ(Complaint(*graph),
            "[graph graph] output \"q\" is listed twice (after pass x)");
  graph = ParseGraph(kGood);
  graph->file = "m.onnx";
  graph->inputs.push_back(graph->Find("x"));
  EXPECT_EQ(Complaint(*graph),
            "[m.onnx] input \"x\" is listed twice (after pass x)");
  graph->inputs.clear();
  EXPECT_EQ(Complaint(*graph),
            "[m.onnx] input \"x\" is not in the list of inputs (after pass x)");
  graph = ParseGraph(kGood);
  graph->inputs.push_back(graph->Find("y"));
  EXPECT_EQ(Complaint(*graph),
            "[graph graph] input \"y\": expected a value "
            "without producer (after pass x)");
  graph = ParseGraph(kGood);
  graph->outputs.push_back(graph->AddCaptured("c"));
  EXPECT_EQ(Complaint(*graph),
            "[graph graph] output \"c\": expected a "
            "producer, got none (after pass x)");
}

TEST(Verify, ValuesAreProducedBeforeTheyAreRead) {
  auto graph = ParseGraph(kGood);
  graph->nodes().splice(graph->nodes().end(), graph->nodes(),
                        graph->nodes().begin());
  EXPECT_EQ(Complaint(*graph),
            "[Neg -> q] expected \"y\" to be produced before it "
            "is read (after pass x)");
  EXPECT_EQ(Complaint("captured c: float\ny: float = Neg(c)"),
            "[Neg -> y] expected \"c\" to be produced before it is read "
            "(after pass x)");
}

TEST(Verify, ValuesOfAnotherGraph) {
  auto graph = ParseGraph(kGood);
  auto other = ParseGraph(kGood);
  graph->SetInput(&graph->nodes().front(), 0, other->Find("x"));
  EXPECT_EQ(Complaint(*graph),
            "[Add -> y] reads a value that is not in its "
            "graph (after pass x)");
  graph = ParseGraph(kGood);
  graph->outputs.push_back(other->Find("x"));
  EXPECT_EQ(Complaint(*graph),
            "[graph graph] expected outputs that are values of the graph, got "
            "another (after pass x)");
}

TEST(Verify, UseListsAndProducers) {
  auto graph = ParseGraph(kGood);
  graph->Find("m")->uses.clear();
  EXPECT_EQ(Complaint(*graph),
            "[graph graph] value \"m\": its use list does not agree with the "
            "nodes that read it (after pass x)");
  graph = ParseGraph(kGood);
  graph->Find("y")->producer = &graph->nodes().back();
  EXPECT_EQ(Complaint(*graph),
            "[Neg -> q] expected output \"y\", got none of that "
            "name (after pass x)");
  graph = ParseGraph(kGood);
  graph->Find("y")->producer = nullptr;
  EXPECT_EQ(Complaint(*graph),
            "[Add -> y] expected to be the one producer of "
            "\"y\" (after pass x)");
}

TEST(Verify, InitializersAgreeWithTheirData) {
  auto graph = ParseGraph(kGood);
  graph->Find("m")->shape = Shape{3};
  EXPECT_EQ(Complaint(*graph),
            "[graph graph] initializer \"m\": expected float[2] as its data, "
            "got float[3] (after pass x)");
}

TEST(Verify, SubgraphsReadWhatIsThereAtThatPoint) {
  auto inner = std::make_shared<Graph>();
  inner->AddNode("Neg", {inner->AddCaptured("y")}, {"a"});
  auto outer = std::make_shared<Graph>();
  outer->AddNode("If", {}, {"b"}, {{"then_branch", inner}});
  auto graph = ParseGraph("input x: float[2]\ny: float[2] = Neg(x)");
  graph->AddNode("If", {}, {"z"}, {{"then_branch", outer}});
  EXPECT_EQ(Complaint(*graph), "");
  graph->nodes().splice(graph->nodes().end(), graph->nodes(),
                        graph->nodes().begin());
  EXPECT_EQ(Complaint(*graph),
            "[Neg -> a] expected \"y\" to be produced "
            "before it is read (after pass x)");
}

}  // namespace
}  // namespace onnx_fp8
