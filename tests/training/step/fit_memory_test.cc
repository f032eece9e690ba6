// SPDX-License-Identifier: Apache-2.0
#include "training/step/fit_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/passes/recompute.h"
#include "graph/print.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

TEST(FitMemory, NamesChooseOnlyNodesThatMayRunAgain) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[1]
input g: float[1]
param w: float[1]
mask: float[1] = Neg(x)
a: float[1] = Mul(x, w)
d: float[1] = Mul(g, a)
e: float[1] = Mul(d, mask)
output e
)");
  RecomputeProblem problem;
  problem.graph = graph.get();
  problem.forward = StepHalves(*graph, graph->Find("g")).forward;
  problem.may = NodesThatMayRunAgain(problem.forward, true);
  const RecomputeChoice choice = ChooserOf({.again = {"a", "mask"}})(problem);
  EXPECT_EQ(choice.nodes,
            std::unordered_set<Node*>{graph->Find("a")->producer});
}

// A step on paper: an arena of 200 bytes, and 24 bytes of state, of which 16
// are moments.
PaperStep PlanOf(StepKind kind, Graph* graph) {
  PaperStep paper;
  paper.step.kind = kind;
  paper.step.graph = std::shared_ptr<Graph>(std::shared_ptr<void>(), graph);
  paper.arena = paper.plan.arena_bytes = 200;
  paper.state = 24;
  paper.moments = 16;
  return paper;
}

std::string ComplaintOf(const SessionOptions& options, PaperStep paper) {
  const MemoryFit fit = FitMemory({100, 0}, HardwareOf(Device::kHost), options,
                                  [&](const StepChoice&) { return paper; });
  EXPECT_FALSE(fit.fits());
  return fit.Complaint();
}

TEST(FitMemory, HintsAtWhatTheOptionsLeave) {
  Graph graph;
  SessionOptions options;
  options.recompute = {"blocks"};
  EXPECT_EQ(ComplaintOf(options, PlanOf(StepKind::kTrain, &graph)),
            "expected a step that fits into 100 bytes (`memory`), got one that "
            "needs 224 bytes; `recompute=auto` looks for values to compute "
            "again, `moments=bfloat16` saves up to 8 bytes (half of the "
            "moments), `moments=fp8` saves up to 12 bytes (three quarters of "
            "them), half of the samples in `batch_size` saves up to 100 bytes "
            "(half of the arena), `shard=parameters` with two ranks saves up "
            "to 12 bytes (half of the state), `state_dir` saves up to 24 bytes "
            "(state, which files hold then)");
  options.recompute = {};
  options.memory = "100";
  options.shard.what = Sharding::kParameters;
  PaperStep bfloat16 = PlanOf(StepKind::kMicro, &graph);
  bfloat16.moments = 0;
  EXPECT_EQ(ComplaintOf(options, bfloat16),
            "expected a step that fits into 100 bytes (`memory`), got one that "
            "needs 224 bytes; the step does not say where its backward begins, "
            "so nothing can be computed again, half of the samples in "
            "`batch_size` saves up to 100 bytes (half of the arena), "
            "`state_dir` saves up to 24 bytes (state, which files hold then)");
  PaperStep file = PlanOf(StepKind::kTrain, &graph);
  file.is_in_file = true;
  EXPECT_EQ(ComplaintOf(options, file), ComplaintOf(options, bfloat16));
}

TEST(FitMemory, HintsAtWeightsInFewerBytes) {
  auto graph = ParseGraph(R"(graph "g" opset 24
param w: float[10,4]
param scalar: float[]
param half: bfloat16[8]
frozen f: float[8]
)");
  PaperStep paper = PlanOf(StepKind::kTrain, graph.get());
  for (const Value* value : graph->Initializers()) {
    paper.plan.states.push_back(value);
  }
  const std::string hint =
      "`master=split8` saves up to 40 bytes (a quarter of the trained "
      "weights), `master=bfloat16` saves up to 80 bytes (half of them)";
  EXPECT_NE(ComplaintOf({}, paper).find(hint), std::string::npos);
  // What is left in float32 then can't be kept otherwise.
  SessionOptions halves;
  halves.optimizer.master = "split8";
  EXPECT_EQ(ComplaintOf(halves, paper).find("master"), std::string::npos);
  paper.is_in_file = true;
  EXPECT_EQ(ComplaintOf({}, paper).find("master"), std::string::npos);
}

TEST(FitMemory, SaysThatAStepFitsAsItIs) {
  MemoryFit fit = {.limit = 100, .before = 80, .after = 80};
  EXPECT_EQ(fit.Text(),
            "`memory`: a step needs 80 bytes of 100 bytes; it fits as it is");
  fit.is_searched = false;  // something may run again: the user says so
  EXPECT_EQ(fit.Text(), "`memory`: a step needs 80 bytes of 100 bytes");
  fit = {.limit = 50, .before = 80, .after = 80};
  EXPECT_EQ(fit.Text(), "`memory`: a step needs 80 bytes of 50 bytes");
}

// What the backward of a step chooses, on its own graph.
RecomputeChoice ChosenBy(const RecomputeChooser& chooser, Graph& graph,
                         StepHalves* halves) {
  if (!chooser) return {};
  RecomputeProblem problem;
  problem.graph = &graph;
  problem.forward = halves->forward;
  problem.may = NodesThatMayRunAgain(problem.forward, true);
  return chooser(problem);
}

RecomputeChooser ChooserOfBlocks() {
  return [](const RecomputeProblem& problem) {
    return ChooseRecomputed({.what = {"blocks"}}, *problem.graph,
                            problem.forward);
  };
}

// Equal layers of random nodes, four times as wide inside as between them. The
// backward reads some of their values, the last layer's first.
std::string TextOfLayers(uint32_t seed) {
  std::mt19937 random(seed);
  const size_t layers = 3 + random() % 4, nodes = 2 + random() % 24;
  std::vector<size_t> seconds;  // second operands
  std::vector<bool> reads;
  for (size_t i = 0; i < nodes; ++i) {
    seconds.push_back(i - random() % std::min<size_t>(i + 1, 3));
    reads.push_back(random() % 2 == 0);
  }
  const auto value = [](size_t layer, size_t i) {
    return "v" + std::to_string(layer) + "_" + std::to_string(i);
  };
  std::string text =
      "graph \"g\" opset 24\ninput x: float[16,16]\n"
      "input g: float[16,16]\nparam w: float[16,64]\n"
      "param u: float[64,16]\n";
  std::string x = "x";
  for (size_t layer = 0; layer < layers; ++layer) {
    text += value(layer, 0) + ": float[16,64] = MatMul(" + x + ", w)\n";
    for (size_t i = 0; i < nodes; ++i) {
      text += value(layer, i + 1) + ": float[16,64] = Mul(" + value(layer, i) +
              ", " + value(layer, seconds[i]) + ")\n";
    }
    x = "x" + std::to_string(layer);
    text += x + ": float[16,16] = MatMul(" + value(layer, nodes) + ", u)\n";
  }
  text += "d: float[16,16] = Mul(g, " + x + ")\n";
  text += "d0: float[16,64] = MatMul(d, w)\n";
  size_t made = 0;
  for (size_t layer = layers; layer-- > 0;) {
    for (size_t i = nodes; i-- > 0;) {
      if (!reads[i]) continue;
      const std::string before = "d" + std::to_string(made++);
      text += "d" + std::to_string(made) + ": float[16,64] = Mul(" + before +
              ", " + value(layer, i) + ")\n";
    }
  }
  return text + "output d" + std::to_string(made) + "\n";
}

PaperStep LayersOnPaper(uint32_t seed, const RecomputeChooser& chooser) {
  static const auto provider = MakeCpuProvider();
  PaperStep paper;
  paper.step.graph = ParseGraph(TextOfLayers(seed));
  paper.step.gradient_names.seed = "g";
  Graph& graph = *paper.step.graph;
  StepHalves halves(graph, graph.Find("g"));
  const RecomputeChoice choice = ChosenBy(chooser, graph, &halves);
  RecomputeInBackward(graph, choice.nodes, &halves.backward);
  paper.plan = MakePlan(graph, provider->Kernels());
  paper.arena = paper.plan.arena_bytes;
  return paper;
}

TEST(FitMemory, NeverNeedsMoreThanBlocks) {
  SessionOptions options;
  options.recompute = {"auto"};
  size_t smaller = 0;
  for (uint32_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(seed);
    const auto plan = [&](const StepChoice& choice) {
      return LayersOnPaper(seed, choice.recompute);
    };
    const size_t whole = plan({}).total();
    const size_t least = std::min(whole, plan({ChooserOfBlocks()}).total());
    smaller += least < whole;
    for (size_t limit : {size_t{1}, least, (least + whole) / 2}) {
      PaperStep chosen;
      const MemoryFit fit = FitMemory({limit, 0}, HardwareOf(Device::kHost),
                                      options, plan, &chosen);
      EXPECT_EQ(fit.before, whole);
      EXPECT_LE(fit.after, std::max(limit, least));
      const PaperStep again = plan(ChoiceOf(fit));
      EXPECT_EQ(again.total(), fit.after);
      EXPECT_EQ(Print(*chosen.step.graph), Print(*again.step.graph));
      EXPECT_EQ(chosen.total(), fit.after);
    }
  }
  EXPECT_GT(smaller, 4u);
}

// A step on paper whose plan does not say what its values cost.
TEST(FitMemory, TakesBlocksWhereTheSearchFindsNothing) {
  const auto plan = [](const StepChoice& choice) {
    PaperStep paper;
    paper.step.graph = ParseGraph(TextOfLayers(1));
    paper.step.gradient_names.seed = "g";
    StepHalves halves(*paper.step.graph, paper.step.graph->Find("g"));
    const bool chosen =
        !ChosenBy(choice.recompute, *paper.step.graph, &halves).nodes.empty();
    paper.arena = chosen ? 120 : 200;
    return paper;
  };
  SessionOptions options;
  options.memory = "150";
  const MemoryFit fit =
      FitMemory({150, 0}, HardwareOf(Device::kHost), options, plan);
  EXPECT_TRUE(fit.fits());
  EXPECT_TRUE(fit.as_blocks);
  EXPECT_GT(fit.blocks, 1u);
  const std::string text = fit.Text();
  EXPECT_NE(text.find("of 150 bytes; `recompute=blocks`: "), std::string::npos)
      << text;
  const MemoryFit large =
      FitMemory({100, 0}, HardwareOf(Device::kHost), options, plan);
  EXPECT_FALSE(large.fits());
  EXPECT_EQ(large.after, 120u);
}

// The backward of equal layers reads a value of each. On paper, a layer that
// runs again needs 10 bytes less. The plan has no bytes of values, as above, or
// so many that one of them seems enough: the search then takes all of them.
TEST(FitMemory, RunsAsFewBlocksAgainAsFit) {
  constexpr size_t kLayers = 12;
  std::string text =
      "graph \"g\" opset 24\ninput x0: float[16,64]\n"
      "input g: float[16,64]\nparam w: float[64,64]\n";
  for (size_t i = 0; i < kLayers; ++i) {
    const std::string n = std::to_string(i);
    text += "h" + n + ": float[16,64] = MatMul(x" + n + ", w)\ny" + n +
            ": float[16,64] = Relu(h" + n + ")\nx" + std::to_string(i + 1) +
            ": float[16,64] = Mul(y" + n + ", h" + n + ")\n";
  }
  text += "d0: float[16,64] = Mul(g, x12)\n";
  for (size_t i = 0; i < kLayers; ++i) {
    text += "d" + std::to_string(i + 1) + ": float[16,64] = Mul(d" +
            std::to_string(i) + ", y" + std::to_string(kLayers - 1 - i) + ")\n";
  }
  text += "output x12\noutput d12\n";
  std::vector<size_t> tried;  // layers that run again
  size_t bytes = 0;           // of a value that the backward reads
  const auto plan = [&](const StepChoice& choice) {
    PaperStep paper;
    paper.step.graph = ParseGraph(text);
    paper.plan.alignment = 1;
    paper.step.gradient_names.seed = "g";
    Graph& graph = *paper.step.graph;
    StepHalves halves(graph, graph.Find("g"));
    const auto nodes = ChosenBy(choice.recompute, graph, &halves).nodes;
    size_t again = 0;
    for (size_t i = 0; i < kLayers; ++i) {
      again += std::ranges::any_of(std::array{"h", "y"}, [&](std::string name) {
        return nodes.contains(graph.Find(name + std::to_string(i))->producer);
      });
    }
    for (Node* node : halves.forward) {
      paper.plan.steps.push_back({.node = node});
      if (bytes == 0 || !node->Is("Relu")) continue;
      paper.plan.tenants.push_back({.value = node->out(0), .bytes = bytes});
    }
    tried.push_back(again);
    paper.arena = 1000 - 10 * again;
    return paper;
  };
  SessionOptions options;
  options.recompute = {"auto"};
  for (const auto& [cost, least] : std::vector<std::pair<size_t, size_t>>{
           {0, 1}, {0, 5}, {0, 11}, {1000, 1}, {1000, 5}, {1000, 11}}) {
    SCOPED_TRACE(testing::Message() << cost << " bytes, " << least);
    bytes = cost;
    const size_t limit = 1000 - 10 * least + 3;
    const MemoryFit fit =
        FitMemory({limit, 0}, HardwareOf(Device::kHost), options, plan);
    EXPECT_EQ(fit.after, 1000 - 10 * least);
    EXPECT_EQ(fit.blocks, least);
    EXPECT_FALSE(fit.as_blocks);
    EXPECT_EQ(plan(ChoiceOf(fit)).total(), fit.after);
    EXPECT_GT(fit.time_share, 0);
    EXPECT_LT(fit.time_share, 1);
    EXPECT_LE(tried.size(), 12u);
    tried.clear();
  }
}

// A step on paper of 1000 bytes, of which codes of weights are 100 and the
// workspace of a gradient of attention 512, unless the choice says otherwise.
PaperStep RunOnPaper(const ExecutionChoice& choice) {
  PaperStep paper;
  paper.step.graph = ParseGraph(R"(graph "g" opset 24
input dy: float[1,4,8]
input lse: float[1,2,4]
param w: float[160,32]
q: float8e4m3fn[160,32], s: float[160,1], a: float[], qt: float8e4m3fn[32,160], st: float[32,1] = onnx_fp8.QuantizeBlockTranspose<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(w)
dq: float[1,4,8], dk: float[1,4,8], dv: float[1,4,8] = onnx_fp8.AttentionGrad<heads=2, kv_heads=2>(dy, dy, dy, dy, dy, lse)
all: float[320,32] = onnx_fp8.AllGather<group="dp", ranks=2>(w)
output q
output dq
output all
)");
  const Graph& graph = *paper.step.graph;
  const size_t workspace =
      choice.attention_workspace > 0 ? choice.attention_workspace : 512;
  auto value = std::make_shared<Value>();
  value->dtype = DType::kUInt8;
  value->shape = Shape{static_cast<int64_t>(workspace)};
  paper.plan.workspaces.push_back(value);
  paper.plan.slots.push_back({value.get(), SlotPlace::kArena, 0});
  if (choice.joins_weights) {
    paper.plan.steps.push_back({.node = graph.Find("q")->producer});
  }
  paper.plan.steps.push_back(
      {.node = graph.Find("dq")->producer, .workspace = 0});
  paper.arena = 1000 - (choice.joins_weights ? 0 : 100) - (512 - workspace);
  return paper;
}

TEST(FitMemory, RunsAStepInLessMemory) {
  SessionOptions options;
  options.memory = "1";
  const auto fit_into = [&](size_t limit) {
    return FitMemory(
        {limit, 0}, HardwareOf(Device::kHost), options,
        [](const StepChoice& choice) { return RunOnPaper(choice.execution); });
  };
  EXPECT_FALSE(fit_into(1000).chooses());
  const MemoryFit codes = fit_into(900);
  EXPECT_EQ(codes.after, 900u);
  EXPECT_EQ(codes.execution, (ExecutionChoice{.joins_weights = false}));
  const MemoryFit parts = fit_into(644);
  EXPECT_EQ(parts.after, 644u);
  EXPECT_EQ(parts.execution, (ExecutionChoice{false, true, 256}));
  EXPECT_EQ(parts.Text().find("`memory`: a step needs 644 bytes of 644 bytes; "
                              "the backward makes its own codes of weights; "
                              "gradients of attention come in parts with 256 "
                              "bytes of workspace: 356 bytes less, about "),
            0u)
      << parts.Text();
  const MemoryFit least = fit_into(1);
  EXPECT_EQ(least.after, 452u);
  EXPECT_EQ(least.execution, (ExecutionChoice{false, true, 64}));
  options.recompute = {"blocks"};  // the user's choice is only compared
  EXPECT_FALSE(fit_into(1).chooses());
}

// The codes are none of a weight, and the gradient of attention needs the same
// workspace in any case: only the gather can wait, and the remark says no more.
TEST(FitMemory, NamesOnlyChoicesThatChangeThePlan) {
  size_t usual = 0;  // plans without a choice: a search needs one
  const auto plan = [&](const StepChoice& choice) {
    usual += !choice.recompute && choice.execution == ExecutionChoice{};
    PaperStep paper = RunOnPaper({});
    paper.step.gradient_names.seed = "dy";
    Step gather = {.node = paper.step.graph->Find("all")->producer};
    gather.beside = choice.execution.gathers_ahead;
    paper.plan.steps.push_back(gather);
    paper.arena = gather.beside ? 1000 : 700;
    return paper;
  };
  SessionOptions options;
  options.memory = "1";
  for (size_t limit : {size_t{1}, size_t{800}}) {
    const MemoryFit fit =
        FitMemory({limit, 0}, HardwareOf(Device::kHost), options, plan);
    EXPECT_EQ(fit.after, 700u);
    EXPECT_EQ(fit.execution, (ExecutionChoice{.gathers_ahead = false}));
    EXPECT_EQ(std::exchange(usual, 0), 1u);
  }
}

// The step needs 1000 bytes in any case. The backward can make its own codes;
// the gradient of attention always needs the same workspace.
TEST(FitMemory, PlansNoChoiceTwice) {
  std::vector<ExecutionChoice> planned;  // where nothing runs again
  const auto plan = [&](const StepChoice& choice) {
    if (!choice.recompute) planned.push_back(choice.execution);
    PaperStep paper =
        RunOnPaper({.joins_weights = choice.execution.joins_weights});
    paper.step.gradient_names.seed = "dy";
    paper.arena = 1000;
    return paper;
  };
  SessionOptions options;
  options.memory = "1";
  const MemoryFit fit =
      FitMemory({1, 0}, HardwareOf(Device::kHost), options, plan);
  EXPECT_EQ(fit.after, 1000u);
  EXPECT_FALSE(fit.chooses());
  EXPECT_EQ(planned.size(), 4u);
  for (const ExecutionChoice& choice : planned) {
    EXPECT_EQ(std::ranges::count(planned, choice), 1);
  }
  EXPECT_EQ(std::ranges::count(planned, ExecutionChoice{false}), 1);
}

// Nothing may run again here, and a gather ahead of its reader takes 300 bytes.
TEST(FitMemory, WaitsForParametersAtLast) {
  const auto plan = [](const StepChoice& choice) {
    PaperStep paper;
    paper.step.graph = ParseGraph(R"(graph "g" opset 24
input x: float[4,2]
input g: float[4,2]
param w: float[2,2]
all: float[4,2] = onnx_fp8.AllGather<group="dp", ranks=2>(w)
y: float[4,2] = Mul(x, all)
d: float[4,2] = Mul(g, y)
output d
)");
    paper.step.gradient_names.seed = "g";
    Step gather = {.node = paper.step.graph->Find("all")->producer};
    gather.beside = choice.execution.gathers_ahead;
    paper.plan.steps.push_back(gather);
    paper.arena = gather.beside ? 1000 : 700;
    return paper;
  };
  SessionOptions options;
  options.memory = "800";
  const MemoryFit fit =
      FitMemory({800, 0}, HardwareOf(Device::kHost), options, plan);
  EXPECT_TRUE(fit.fits());
  EXPECT_EQ(fit.execution, (ExecutionChoice{.gathers_ahead = false}));
  const std::string text = fit.Text();
  EXPECT_NE(text.find("; no layer's parameters are gathered while another one "
                      "runs: 300 bytes less, about "),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace onnx_fp8
