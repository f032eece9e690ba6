// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/graph_runner.h"

#include <algorithm>
#include <utility>

#include "training/make_provider.h"
#include "training/step/pipelines.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kMostPlans = 8;

}  // namespace

struct GraphRunner::Planned {
  std::vector<Shape> shapes;  // of all feeds
  InputValues values;         // of feeds that decided something
  std::shared_ptr<const Graph> graph;
  std::vector<size_t> inputs;  // of the graph: which feeds they are
  std::vector<std::unique_ptr<Executor>> idle;
};

GraphRunner::GraphRunner(std::shared_ptr<const Graph> graph,
                         const std::string& provider, Fuse fuse)
    : graph_(std::move(graph)),
      fuse_(std::move(fuse)),
      provider_(MakeProvider(provider)) {}

GraphRunner::~GraphRunner() = default;

std::shared_ptr<GraphRunner::Planned> GraphRunner::Find(
    const std::vector<Shape>& shapes, const InputValues& values) {
  auto known = std::ranges::find_if(plans_, [&](const auto& planned) {
    return planned->shapes == shapes &&
           std::ranges::includes(values, planned->values);
  });
  if (known == plans_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, known);
  return plans_.front();
}

std::shared_ptr<GraphRunner::Planned> GraphRunner::Make(
    std::vector<Shape> shapes, const InputValues& values) const {
  std::map<std::string, Shape> by_name;
  for (size_t i = 0; i < shapes.size(); ++i) {
    by_name[graph_->inputs[i]->name] = shapes[i];
  }
  std::unique_ptr<Evaluator> evaluator = MakeEvaluator();
  SpecializeReport report;
  std::shared_ptr<Graph> graph =
      Specialize(*graph_, by_name, *evaluator, &report, values);
  PassRunner runner;
  runner.Begin("run");
  if (fuse_) fuse_(*graph, runner);
  FitToKernels(*graph, provider_->Kernels(), SessionOptions(), *evaluator,
               runner);
  auto planned = std::make_shared<Planned>();
  planned->shapes = std::move(shapes);
  planned->values = std::move(report.values);
  for (const Value* input : graph->inputs) {
    auto it = std::ranges::find(graph_->inputs, input->name, &Value::name);
    planned->inputs.push_back(static_cast<size_t>(it - graph_->inputs.begin()));
  }
  planned->graph = std::move(graph);
  return planned;
}

GraphRunner::Call GraphRunner::Prepare(std::span<const Tensor> feeds) {
  std::vector<Shape> shapes;
  InputValues values;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Tensor& feed = feeds[i];
    shapes.push_back(feed.shape());
    if (MayBeKey(feed.dtype(), feed.shape())) {
      values[graph_->inputs[i]->name] = IntAt(feed, 0);
    }
  }
  Call call(*this);
  std::lock_guard<std::mutex> lock(mutex_);
  call.planned_ = Find(shapes, values);
  if (!call.planned_) {
    call.planned_ = Make(std::move(shapes), values);
    plans_.push_front(call.planned_);
    if (plans_.size() > kMostPlans) plans_.pop_back();
  }
  Planned& planned = *call.planned_;
  if (planned.idle.empty()) {
    call.executor_ = std::make_unique<Executor>(planned.graph, *provider_);
  } else {
    call.executor_ = std::move(planned.idle.back());
    planned.idle.pop_back();
  }
  for (size_t i : planned.inputs) call.feeds_.push_back(feeds[i]);
  return call;
}

GraphRunner::Call::Call(GraphRunner& runner) : runner_(&runner) {
  if (runner.provider_->device() == Device::kHost) return;
  alone_ = std::unique_lock<std::mutex>(runner.device_);
}

GraphRunner::Call::~Call() {
  if (!executor_) return;
  std::lock_guard<std::mutex> lock(runner_->mutex_);
  planned_->idle.push_back(std::move(executor_));
}

size_t GraphRunner::Call::num_results() const {
  return planned_->graph->outputs.size();
}

DType GraphRunner::Call::dtype(size_t i) const {
  return planned_->graph->outputs[i]->dtype;
}

const Shape& GraphRunner::Call::shape(size_t i) const {
  return *planned_->graph->outputs[i]->shape;
}

void GraphRunner::Call::Run(std::span<Tensor> results, uint64_t draw) {
  if (alone_) {
    RunOnDevice(results, draw);
  } else {
    executor_->RunInto(feeds_, results, draw);
  }
}

// Feeds cross the bus, then results.
void GraphRunner::Call::RunOnDevice(std::span<Tensor> results, uint64_t draw) {
  const Graph& graph = *planned_->graph;
  TensorMap feeds, state;
  for (size_t i = 0; i < feeds_.size(); ++i) {
    feeds[graph.inputs[i]->name] = feeds_[i];
  }
  TensorMap outputs = executor_->Run(feeds, state, draw);
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& output = outputs.at(graph.outputs[i]->name);
    runner_->provider_->CopyOut(output, results[i]);
  }
}

}  // namespace onnx_fp8
