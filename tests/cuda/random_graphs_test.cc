// SPDX-License-Identifier: Apache-2.0
//
// Random graphs of ops that give the same bits on the CPU and on the GPU: run,
// recorded and repeated, with state that moves and other draws each time, in
// two orders of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "graph/print.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/run/executor.h"
#include "tests/cuda/emulation/emulation.h"

namespace onnx_fp8 {
namespace {

// In [-0.5, 0.5).
Tensor RandomFloats(const Shape& shape, uint64_t seed) {
  Tensor t = Tensor::Zeros(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = RandomUniform(seed, static_cast<uint64_t>(i)) - 0.5f;
  }
  return t;
}

class FloatGraphMaker {
 public:
  FloatGraphMaker(Graph& graph, uint64_t seed) : graph_(graph), seed_(seed) {}

  void Run(int nodes) {
    graph_.opset = 23;
    for (const char* name : {"x0", "x1", "x2"}) {
      values_.push_back(graph_.AddInput(name, DType::kFloat, Size()));
    }
    std::vector<Value*> states;
    for (const char* name : {"s0", "s1", "s2"}) {
      Value* state = graph_.AddInitializer(name, Floats(Size()));
      state->role = Role::kMoment;
      values_.push_back(state);
      states.push_back(state);
    }
    for (int i = 0; i < nodes; ++i) AddNode();
    for (Value* state : states) {
      std::vector<Value*> fits;
      for (Value* value : values_) {
        if (value->shape == state->shape) fits.push_back(value);
      }
      if (Below(4) > 0) graph_.state.push_back({state, Recent(fits)});
    }
    for (int i = 0; i < 3; ++i) {
      Value* value = Recent(values_);
      if (std::ranges::count(graph_.outputs, value) == 0) {
        graph_.outputs.push_back(value);
      }
    }
  }

 private:
  size_t Below(size_t n) { return RandomBelow(seed_, count_++, n); }
  Shape Size() {
    const Shape sizes[] = {{7, 45}, {45, 7}, {7, 1}, {45}, {}};
    return sizes[Below(Below(3) ? 2 : 5)];
  }
  Tensor Floats(const Shape& shape) {
    return RandomFloats(shape, RandomBits(seed_, count_++));
  }
  Value* Recent(const std::vector<Value*>& list) {
    size_t n = list.size();
    return list[n - 1 - Below(Below(4) ? std::min<size_t>(n, 5) : n)];
  }
  std::string Name() { return "v" + std::to_string(names_++); }
  Value* Const(const Tensor& value) {
    return graph_.AddInitializer(Name(), value);
  }
  Value* Add(const std::string& op, std::vector<Value*> in, const Shape& shape,
             Attributes attributes = {}, DType dtype = DType::kFloat) {
    Node* node = graph_.AddNode(op, in, {Name()}, attributes);
    node->out(0)->dtype = dtype;
    node->out(0)->shape = shape;
    return node->out(0);
  }

  // Another value that broadcasts to the shape of x.
  Value* Partner(const Value& x) {
    std::vector<Value*> fits;
    for (Value* value : values_) {
      bool row_or_column =
          x.shape->size() == 2 && (*value->shape == Shape{x.dim(1)} ||
                                   *value->shape == Shape{x.dim(0), 1});
      if (row_or_column || value->shape->empty() || value->shape == x.shape) {
        fits.push_back(value);
      }
    }
    return Recent(fits);
  }

  void AddNode() {
    Value* x = Recent(values_);
    const Shape& shape = *x->shape;
    bool matrix = shape.size() == 2 && shape[1] > 1;
    const char* unary[] = {"Neg", "Abs", "Relu", "Sign", "Floor", "Round"};
    const char* binary[] = {"Add", "Sub", "Max", "Min"};
    switch (Below(matrix ? 12 : 3)) {
      case 0:
        return values_.push_back(Add(unary[Below(6)], {x}, shape));
      case 1:
        return values_.push_back(
            Add(binary[Below(4)], {x, Partner(*x)}, shape));
      case 2: {
        Value* half = Const(Tensor::Scalar(0.5f));
        return values_.push_back(Add("Mul", {x, half}, shape));
      }
      case 3:
        return values_.push_back(Add("Transpose", {x}, {shape[1], shape[0]}));
      case 4: {
        Value* turned = Const(Tensor::Ints({shape[1], shape[0]}));
        return values_.push_back(
            Add("Reshape", {x, turned}, {shape[1], shape[0]}));
      }
      case 5: {
        Value* other = Partner(*x);
        Value* less = Add("Less", {x, other}, shape, {}, DType::kBool);
        return values_.push_back(Add("Where", {less, other, x}, shape));
      }
      case 6: {
        Value* axis = Const(Tensor::Ints({1}));
        return values_.push_back(Add("ReduceMax", {x, axis}, {shape[0], 1}));
      }
      case 7: {
        Value* axis = Const(Tensor::Scalar(static_cast<int64_t>(Below(2))));
        Value* sum = Add("CumSum", {x, axis}, shape);
        Value* part = Const(Tensor::Scalar(1.0f / 64));
        return values_.push_back(Add("Mul", {sum, part}, shape));
      }
      case 8: {
        Value* rows = Const(RowsOf(shape));
        return values_.push_back(Add("ScatterElements", {x, rows, x}, shape,
                                     {{"reduction", std::string("add")}}));
      }
      case 9: {
        Value* ratio = Const(Tensor::Scalar(0.25f));
        Value* yes = Const(Tensor::Scalar(true));
        return values_.push_back(Add("Dropout", {x, ratio, yes}, shape));
      }
      case 10: {
        Value *from = Const(Tensor::Ints({1})), *to = Const(Tensor::Ints({3}));
        Value* axis = Const(Tensor::Ints({0}));
        Value* some = Add("Slice", {x, from, to, axis}, {2, shape[1]});
        Value* rest = Const(Floats({shape[0] - 2, shape[1]}));
        return values_.push_back(
            Add("Concat", {some, rest}, shape, {{"axis", int64_t{0}}}));
      }
      default: {
        Value* pads = Const(Tensor::Ints({1, 2, -1, -2}));
        return values_.push_back(
            Add("Pad", {x, pads}, shape, {{"mode", std::string("reflect")}}));
      }
    }
  }

  // Row numbers for every element; many are equal.
  Tensor RowsOf(const Shape& shape) {
    Tensor rows = Tensor::Zeros(DType::kInt64, shape);
    for (int64_t i = 0; i < rows.size(); ++i) {
      size_t row = Below(static_cast<size_t>(shape[0]));
      rows.data<int64_t>()[i] = static_cast<int64_t>(row);
    }
    return rows;
  }

  Graph& graph_;
  uint64_t seed_, count_ = 0;
  int names_ = 0;
  std::vector<Value*> values_;
};

TensorMap Feeds(const Graph& graph, uint64_t seed) {
  TensorMap feeds;
  for (const Value* value : graph.inputs) {
    feeds[value->name] = RandomFloats(*value->shape, seed++);
  }
  return feeds;
}

// `on_host`: the GPU's plan is made as if a state lay in the host's memory.
// Returns whether steps run beside others therefore.
bool RunOnBoth(uint64_t seed, bool on_host = false) {
  auto graph = std::make_shared<Graph>();
  FloatGraphMaker(*graph, seed).Run(5 + static_cast<int>(seed % 30));
  graph->Find("s0")->on_host = on_host;
  const std::string text = Print(*graph);
  auto cpu = MakeCpuProvider();
  auto cuda = MakeCudaProvider();
  Executor on_cpu(graph, *cpu), on_cuda(graph, *cuda);
  TensorMap state, cuda_state;
  for (uint64_t run = 0; run < 4; ++run) {
    TensorMap feeds = Feeds(*graph, 100 * seed + 10 * run);
    TensorMap want = on_cpu.Run(feeds, state, run);
    TensorMap got = on_cuda.Run(feeds, cuda_state, run);
    cuda->Synchronize();
    for (const auto& [name, tensor] : want) {
      EXPECT_TRUE(Identical(cuda->ToHost(got.at(name)), tensor))
          << seed << ", run " << run << ": " << name << "\n"
          << text;
    }
    for (const auto& [name, tensor] : state) {
      EXPECT_TRUE(Identical(cuda->ToHost(cuda_state.at(name)), tensor))
          << seed << ", run " << run << ": state " << name << "\n"
          << text;
    }
  }
  return std::ranges::any_of(on_cuda.plan().steps,
                             [](const Step& step) { return step.beside; });
}

class CudaRandomGraphs : public testing::TestWithParam<uint64_t> {};

TEST_P(CudaRandomGraphs, GiveTheCpusBits) {
  uint64_t before = emulation::Schedule();
  auto reports = emulation::Reports();
  emulation::SetSchedule(GetParam());
  for (uint64_t seed = 0; seed < 40; ++seed) RunOnBoth(seed);
  emulation::SetSchedule(before);
  EXPECT_EQ(emulation::Reports(), reports) << emulation::LastReport();
}

INSTANTIATE_TEST_SUITE_P(Schedules, CudaRandomGraphs, testing::Values(0, 11));

class CudaRandomStreams : public testing::TestWithParam<uint64_t> {};

// A stream that does not wait for the other one runs too early.
TEST_P(CudaRandomStreams, GiveTheCpusBits) {
  const uint64_t before = emulation::Schedule();
  emulation::SetSchedule(GetParam());
  size_t beside = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) beside += RunOnBoth(seed, true);
  emulation::SetSchedule(before);
  EXPECT_GE(beside, 3u);
}

INSTANTIATE_TEST_SUITE_P(Schedules, CudaRandomStreams,
                         testing::Values(emulation::kFirstStreamFirst,
                                         emulation::kLastStreamFirst));

}  // namespace
}  // namespace onnx_fp8
