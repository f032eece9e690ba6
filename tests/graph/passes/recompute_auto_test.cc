// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/recompute_auto.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "base/check.h"
#include "graph/onnx/verify.h"
#include "graph/passes/recompute.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// Bytes and seconds by the names of values and of first results.
using BytesByName = std::map<std::string, size_t>;
using SecondsByName = std::map<std::string, double>;

// "h.again" costs what "h" costs; names that are not there cost nothing.
template <typename T>
T CostOfName(const std::map<std::string, T>& costs, std::string name) {
  if (name.ends_with(".again")) name.resize(name.size() - 6);
  const auto known = costs.find(name);
  return known == costs.end() ? T{} : known->second;
}

RecomputeProblem ProblemOf(Graph& graph, const BytesByName& bytes,
                           const SecondsByName& seconds) {
  RecomputeProblem problem;
  problem.graph = &graph;
  problem.forward = StepHalves(graph, graph.Find("g")).forward;
  problem.may = NodesThatMayRunAgain(problem.forward, true);
  problem.costs = {
      [bytes](const Value& value) { return CostOfName(bytes, value.name); },
      [seconds](const Node& node) {
        return CostOfName(seconds, node.out(0)->name);
      }};
  return problem;
}

std::string ChosenNames(const Graph& graph, const AutoRecompute& found) {
  std::string names;
  for (const Node& node : graph.nodes()) {
    if (found.nodes.contains(const_cast<Node*>(&node))) {
      names += node.out(0)->name + " ";
    }
  }
  return names;
}

// Only the backward's first node, of 1000 bytes, meets all that is kept.
constexpr char kTwoValues[] = R"(graph "g" opset 24
input x: float[1]
input g: float[1]
param w: float[1]
a: float[1] = Mul(x, w)
b: float[1] = Exp(a)
y: float[1] = Neg(b)
d: float[1] = Mul(g, y)
e: float[1] = Neg(d)
z: float[1] = Abs(b)
output e
output z
)";

TEST(ChooseToFit, ChoosesNothingThatFitsAnyway) {
  auto graph = ParseGraph(kTwoValues);
  const auto problem =
      ProblemOf(*graph, {{"b", 100}, {"d", 1000}}, {{"a", 1}, {"b", 1}});
  const AutoRecompute found = ChooseToFit(problem, 1100);
  EXPECT_EQ(found.before, 1100u);
  EXPECT_EQ(found.after, 1100u);
  EXPECT_TRUE(found.nodes.empty());
  EXPECT_EQ(found.seconds, 0);
  EXPECT_EQ(found.all_seconds, 2);
}

TEST(ChooseToFit, LetsASmallOperandLive) {
  auto graph = ParseGraph(kTwoValues);
  const auto problem = ProblemOf(*graph, {{"a", 10}, {"b", 100}, {"d", 1000}},
                                 {{"a", 1}, {"b", 1}});
  const AutoRecompute found = ChooseToFit(problem, 1015);
  EXPECT_EQ(ChosenNames(*graph, found), "b ");
  EXPECT_EQ(found.after, 1010u);
  EXPECT_EQ(found.seconds, 1);
}

TEST(ChooseToFit, ComputesALargeOperandAgain) {
  auto graph = ParseGraph(kTwoValues);
  const auto problem = ProblemOf(*graph, {{"a", 60}, {"b", 100}, {"d", 1000}},
                                 {{"a", 1}, {"b", 1}});
  const AutoRecompute found = ChooseToFit(problem, 1015);
  EXPECT_EQ(ChosenNames(*graph, found), "a b ");
  EXPECT_EQ(found.after, 1000u);
  EXPECT_EQ(found.seconds, 2);
}

// A kernel makes `a`, too, when it makes `b`. If a second run read it, it would
// have memory from the forward on.
TEST(ChooseToFit, ComputesAgainWhatAKernelMakesOnTheWay) {
  auto graph = ParseGraph(kTwoValues);
  auto problem = ProblemOf(*graph, {{"b", 100}, {"d", 1000}}, {{"b", 1}});
  problem.costs.bytes_for_second_runs = [](const Value& value) {
    return size_t{value.name == "a" ? 200u : 100u};
  };
  const AutoRecompute found = ChooseToFit(problem, 1000);
  EXPECT_EQ(found.before, 1100u);
  EXPECT_EQ(found.after, 1000u);
  EXPECT_EQ(ChosenNames(*graph, found), "a b ");
  EXPECT_EQ(PeakWith(problem, {graph->Find("b")->producer}), 1200u);
  problem.may.erase(graph->Find("a")->producer);
  EXPECT_TRUE(ChooseToFit(problem, 0).nodes.empty());
}

// One value rests until the backward, at the end of larger ones.
TEST(ChooseToFit, TakesALongChainForOneValue) {
  constexpr int kNodes = 60;
  std::string text =
      "graph \"g\" opset 24\ninput x: float[1]\ninput g: float[1]\n"
      "param w: float[1]\nv0: float[1] = Mul(x, w)\n";
  BytesByName bytes = {{"v0", 200}, {"d", 1000}};
  for (int i = 1; i < kNodes; ++i) {
    const std::string name = "v" + std::to_string(i);
    text += name + ": float[1] = Mul(v" + std::to_string(i - 1) + ", w)\n";
    bytes[name] = i + 1 < kNodes ? 200 : 100;
  }
  const std::string last = "v" + std::to_string(kNodes - 1);
  text += "y: float[1] = Neg(" + last + ")\nd: float[1] = Mul(g, y)\n" +
          "e: float[1] = Neg(d)\nz: float[1] = Abs(" + last + ")\n" +
          "output e\noutput z\n";
  auto graph = ParseGraph(text);
  const auto problem = ProblemOf(*graph, bytes, {});
  const AutoRecompute found = ChooseToFit(problem, 1000);
  EXPECT_EQ(found.before, 1100u);
  EXPECT_EQ(found.after, 1000u);
  EXPECT_EQ(found.nodes.size(), size_t{kNodes});
}

// The least that it can reach.
TEST(ChooseToFit, ComesAsNearAsItCan) {
  auto graph = ParseGraph(kTwoValues);
  const auto problem = ProblemOf(*graph, {{"b", 100}, {"d", 1000}}, {});
  EXPECT_EQ(ChooseToFit(problem, 0).after, 1000u);
}

TEST(ChooseToFit, LeavesWhatMayNotRunAgain) {
  auto graph = ParseGraph(kTwoValues);
  auto problem = ProblemOf(*graph, {{"b", 100}, {"d", 1000}}, {});
  problem.may.erase(graph->Find("b")->producer);
  EXPECT_TRUE(ChooseToFit(problem, 0).nodes.empty());
}

TEST(ChooseToFit, LeavesWhatLivesToTheEnd) {
  auto graph = ParseGraph(kTwoValues);
  auto problem = ProblemOf(*graph, {{"b", 100}, {"d", 1000}}, {});
  problem.kept = {graph->Find("b")};
  EXPECT_TRUE(ChooseToFit(problem, 0).nodes.empty());
}

TEST(ChooseToFit, AViewGoesWithItsValue) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[1]
input g: float[1]
param w: float[1]
const shape: int64[2] = {1,1}
a: float[1] = Mul(x, w)
v: float[1,1] = Reshape(a, shape)
y: float[1,1] = Neg(v)
d: float[1,1] = Mul(g, y)
e: float[1,1] = Neg(d)
z: float[1,1] = Abs(v)
output e
output z
)");
  const auto problem =
      ProblemOf(*graph, {{"a", 100}, {"v", 100}, {"d", 1000}}, {});
  const AutoRecompute found = ChooseToFit(problem, 1000);
  EXPECT_EQ(found.before, 1100u);
  EXPECT_EQ(found.after, 1000u);
  EXPECT_EQ(ChosenNames(*graph, found), "a v ");
}

TEST(ChooseToFit, OfEqualLayersNoMoreThanTheBudgetNeeds) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,2]
input g: float[2,2]
param w: float[2,2]
p0: float[2,2] = MatMul(x, w)
r0: float[2,2] = Relu(p0)
p1: float[2,2] = MatMul(r0, w)
r1: float[2,2] = Relu(p1)
p2: float[2,2] = MatMul(r1, w)
r2: float[2,2] = Relu(p2)
p3: float[2,2] = MatMul(r2, w)
r3: float[2,2] = Relu(p3)
y: float[2,2] = Neg(r3)
d: float[2,2] = Mul(g, y)
e: float[2,2] = Neg(d)
z3: float[2,2] = Abs(r3)
z2: float[2,2] = Abs(r2)
z1: float[2,2] = Abs(r1)
z0: float[2,2] = Abs(r0)
output e
output z0
output z1
output z2
output z3
)");
  const auto problem = ProblemOf(
      *graph, {{"r0", 100}, {"r1", 100}, {"r2", 100}, {"r3", 100}, {"d", 1000}},
      {{"r0", 1}, {"r1", 1}, {"r2", 1}, {"r3", 1}});
  const AutoRecompute found = ChooseToFit(problem, 1250);
  EXPECT_EQ(found.before, 1400u);
  EXPECT_EQ(found.after, 1200u);
  EXPECT_EQ(ChosenNames(*graph, found), "r0 r1 ");
}

// All layers at once would need as much memory in the backward.
TEST(ChooseToFit, OfAChainOfLayersEverySecond) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,2]
input g: float[2,2]
param w: float[2,2]
r0: float[2,2] = MatMul(x, w)
r1: float[2,2] = MatMul(r0, w)
r2: float[2,2] = MatMul(r1, w)
r3: float[2,2] = MatMul(r2, w)
y: float[2,2] = Neg(r3)
d: float[2,2] = Mul(g, y)
z3: float[2,2] = Mul(d, r3)
z2: float[2,2] = Mul(d, r2)
z1: float[2,2] = Mul(d, r1)
z0: float[2,2] = Mul(d, r0)
output z0
output z1
output z2
output z3
)");
  const auto problem = ProblemOf(
      *graph, {{"r0", 100}, {"r1", 100}, {"r2", 100}, {"r3", 100}, {"d", 50}},
      {{"r0", 1}, {"r1", 1}, {"r2", 1}, {"r3", 1}});
  const AutoRecompute found = ChooseToFit(problem, 320);
  EXPECT_EQ(found.before, 450u);
  EXPECT_EQ(found.after, 300u);
  EXPECT_EQ(ChosenNames(*graph, found), "r0 r2 ");
}

// Values of the forward that only the peak makes rivals: a knapsack.
struct Knapsack {
  std::vector<size_t> bytes;
  std::vector<double> seconds;
  std::unique_ptr<Graph> graph;
  RecomputeProblem problem;
};

constexpr size_t kAtPeak = 100000;  // more than all items

Knapsack MakeKnapsack(std::mt19937& random, size_t items) {
  Knapsack sack;
  std::string forward, backward, outputs;
  BytesByName bytes = {{"d", kAtPeak}};
  SecondsByName seconds;
  for (size_t i = 0; i < items; ++i) {
    sack.bytes.push_back(1 + random() % 100);
    sack.seconds.push_back(1 + static_cast<double>(random() % 50));
    const std::string h = "h" + std::to_string(i);
    const std::string y = "y" + std::to_string(i);
    const std::string z = "z" + std::to_string(i);
    forward +=
        h + ": float[1] = Mul(x, w)\n" + y + ": float[1] = Neg(" + h + ")\n";
    backward = z + ": float[1] = Abs(" + h + ")\n" + backward;
    outputs += "output " + y + "\noutput " + z + "\n";
    bytes[h] = sack.bytes.back();
    seconds[h] = sack.seconds.back();
  }
  sack.graph = ParseGraph(
      "graph \"g\" opset 24\ninput x: float[1]\ninput g: float[1]\n"
      "param w: float[1]\n" +
      forward + "d: float[1] = Mul(g, y0)\ne: float[1] = Neg(d)\n" + backward +
      "output e\n" + outputs);
  sack.problem = ProblemOf(*sack.graph, bytes, seconds);
  return sack;
}

// The least seconds that free `needed` bytes.
double LeastSeconds(const Knapsack& sack, size_t needed) {
  double least = 1e9;
  for (size_t set = 0; set < size_t{1} << sack.bytes.size(); ++set) {
    size_t freed = 0;
    double seconds = 0;
    for (size_t i = 0; i < sack.bytes.size(); ++i) {
      if ((set >> i & 1) == 0) continue;
      freed += sack.bytes[i];
      seconds += sack.seconds[i];
    }
    if (freed >= needed) least = std::min(least, seconds);
  }
  return least;
}

// Greedy costs at most its last item more than the best choice.
TEST(ChooseToFit, IsNearTheBestKnapsack) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const Knapsack sack = MakeKnapsack(random, 1 + random() % 9);
    size_t all = 0;
    double longest = 0;
    for (size_t bytes : sack.bytes) all += bytes;
    for (double seconds : sack.seconds) longest = std::max(longest, seconds);
    const size_t needed = random() % (all + 1);
    const AutoRecompute found =
        ChooseToFit(sack.problem, kAtPeak + all - needed);
    EXPECT_EQ(found.before, kAtPeak + all);
    EXPECT_LE(found.after, kAtPeak + all - needed);
    const double least = LeastSeconds(sack, needed);
    EXPECT_GE(found.seconds, least - 1e-6);
    EXPECT_LE(found.seconds, least + longest + 1e-6);
    EXPECT_EQ(PeakWith(sack.problem, found.nodes), found.after);
    const AutoRecompute same = Weigh(sack.problem, found.nodes);
    EXPECT_EQ(same.before, found.before);
    EXPECT_EQ(same.after, found.after);
    EXPECT_EQ(same.seconds, found.seconds);
    EXPECT_EQ(same.nodes, found.nodes);
  }
}

// The simulation knows what RecomputeInBackward will do.
TEST(ChooseToFit, PredictsTheRewrittenGraph) {
  std::mt19937 random(8);
  for (int i = 0; i < 20; ++i) {
    const Knapsack sack = MakeKnapsack(random, 6);
    const AutoRecompute found = ChooseToFit(sack.problem, kAtPeak + 50);
    StepHalves halves(*sack.graph, sack.graph->Find("g"));
    RecomputeInBackward(*sack.graph, found.nodes, &halves.backward);
    Verify(*sack.graph);
    RecomputeProblem rewritten = sack.problem;
    rewritten.forward = StepHalves(*sack.graph, sack.graph->Find("g")).forward;
    EXPECT_EQ(PeakWith(rewritten, {}), found.after);
  }
}

// A random graph whose every node may run again.
std::string RandomStep(std::mt19937& random, size_t forward, size_t backward,
                       BytesByName* bytes, SecondsByName* seconds) {
  std::string text =
      "graph \"g\" opset 24\ninput x: float[1]\ninput g: float[1]\n"
      "param w: float[1]\nv0: float[1] = Mul(x, w)\n";
  (*bytes)["v0"] = 1 + random() % 100;
  (*seconds)["v0"] = 1 + static_cast<double>(random() % 10);
  for (size_t i = 1; i < forward; ++i) {
    const std::string name = "v" + std::to_string(i);
    text += name + ": float[1] = Mul(v" + std::to_string(i - 1) + ", v" +
            std::to_string(random() % i) + ")\n";
    (*bytes)[name] = 1 + random() % 100;
    (*seconds)[name] = 1 + static_cast<double>(random() % 10);
  }
  text += "b0: float[1] = Mul(g, v" + std::to_string(forward - 1) + ")\n";
  for (size_t i = 1; i < backward; ++i) {
    const std::string name = "b" + std::to_string(i);
    text += name + ": float[1] = Mul(b" + std::to_string(i - 1) + ", v" +
            std::to_string(random() % forward) + ")\n";
    (*bytes)[name] = 1 + random() % 20;
  }
  return text + "output b" + std::to_string(backward - 1) + "\n";
}

TEST(ChooseToFit, NeverClaimsLessThanTheBestSubset) {
  std::mt19937 random(9);
  size_t fits = 0, shrunk = 0;
  for (int i = 0; i < 60; ++i) {
    BytesByName bytes;
    SecondsByName seconds;
    const size_t forward = 2 + random() % 6;
    auto graph =
        ParseGraph(RandomStep(random, forward, forward + 1, &bytes, &seconds));
    const auto problem = ProblemOf(*graph, bytes, seconds);
    const size_t before = PeakWith(problem, {});
    for (size_t share : {0, 25, 50, 75, 100}) {
      const size_t budget = before * share / 100;
      const AutoRecompute found = ChooseToFit(problem, budget);
      EXPECT_EQ(found.before, before);
      EXPECT_LE(found.after, before);
      EXPECT_EQ(PeakWith(problem, found.nodes), found.after);
      EXPECT_TRUE(share < 100 || found.nodes.empty());
      shrunk += found.after < before;
      double least = 1e9;
      for (size_t set = 0; set < size_t{1} << forward; ++set) {
        std::unordered_set<Node*> nodes;
        double sum = 0;
        for (size_t k = 0; k < forward; ++k) {
          if ((set >> k & 1) == 0) continue;
          nodes.insert(problem.forward[k]);
          sum += problem.costs.seconds(*problem.forward[k]);
        }
        if (PeakWith(problem, nodes) <= budget) least = std::min(least, sum);
      }
      if (found.after > budget) continue;
      ++fits;
      double chosen = 0;
      for (const Node* node : found.nodes) {
        chosen += problem.costs.seconds(*node);
      }
      EXPECT_GE(chosen, least - 1e-6);
      // Nodes that move to the backward run once.
      EXPECT_LE(found.seconds, chosen + 1e-6);
    }
  }
  EXPECT_GT(fits, 60u);  // all budgets of the whole, and some others
  EXPECT_GT(shrunk, 10u);
}

// A chain of values of random bytes, none of which repeats. The backward reads
// them in turn, while its first value lives, which is by far the largest.
struct LongChain {
  explicit LongChain(size_t nodes) {
    std::mt19937 random(10);
    graph.opset = 24;
    BytesByName bytes = {{"d", size_t{1} << 40}};
    Value* w = graph.AddInitializer("w", Tensor::Zeros(DType::kFloat, {1}));
    w->role = Role::kParameter;
    Value* g = graph.AddInput("g", DType::kFloat, Shape{1});
    Value* x = graph.AddInput("x", DType::kFloat, Shape{1});
    std::vector<Value*> values;
    for (size_t i = 0; i < nodes; ++i) {
      const std::string name = "v" + std::to_string(i);
      x = Mul(x, w, name);
      values.push_back(x);
      bytes[name] = 1 + random() % 1000;
    }
    Value* const first = Mul(g, x, "d");
    Value* d = first;
    for (size_t i = nodes; i-- > 0;) {
      d = Mul(d, values[i], "b" + std::to_string(i));
    }
    graph.outputs = {Mul(d, first, "e")};
    problem = ProblemOf(graph, bytes, {});
    problem.costs.seconds = [](const Node&) { return 1.0; };
  }

  Value* Mul(Value* a, Value* b, const std::string& name) {
    Value* value = graph.AddNode("Mul", {a, b}, {name})->out(0);
    value->dtype = DType::kFloat;
    value->shape = Shape{1};
    return value;
  }

  Graph graph;
  RecomputeProblem problem;
};

TEST(ChooseToFit, TakesThousandsOfNodes) {
  LongChain chain(2000);
  const size_t before = PeakWith(chain.problem, {});
  const AutoRecompute found = ChooseToFit(chain.problem, before - 80000);
  EXPECT_LE(found.after, before - 80000);
  EXPECT_GE(found.nodes.size(), 80u);
}

// All values at once free next to nothing, because the last ones need all
// others, and one value at a time takes a round for each.
TEST(ChooseToFit, HalvesAChoiceThatIsTooLarge) {
  LongChain chain(300);
  const AutoRecompute found = ChooseToFit(chain.problem, 0);
  EXPECT_GT(found.nodes.size(), 150u);
  EXPECT_LT(found.rounds, 60u);
}

}  // namespace
}  // namespace onnx_fp8
