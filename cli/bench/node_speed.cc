// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/node_speed.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/bench/timing.h"
#include "providers/executor.h"

namespace onnx_fp8 {
namespace {

// Seconds of work for each time that the host waits.
constexpr double kBetweenWaits = 0.005;
constexpr double kMostRuns = 1000;  // between waits
// A provider records the second run.
constexpr int kUnmeasured = 3;

TensorMap Results(const std::shared_ptr<Graph>& graph,
                  ExecutionProvider& provider) {
  TensorMap state, results;
  TensorMap ours = Executor(graph, provider).Run({}, state);
  for (const auto& [name, tensor] : ours) {
    results[name] = ConvertTo(provider.ToHost(tensor), DType::kFloat);
  }
  return results;
}

double Difference(const Tensor& x, const Tensor& truth) {
  double largest = 0, difference = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    double a = x.data<float>()[i], b = truth.data<float>()[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!std::isfinite(a) || !std::isfinite(b)) {
      return std::numeric_limits<double>::infinity();
    }
    difference = std::max(difference, std::fabs(a - b));
  }
  for (float b : truth.values<float>()) {
    if (std::isfinite(b)) largest = std::max<double>(largest, std::fabs(b));
  }
  return difference == 0 ? 0 : difference / largest;
}

}  // namespace

NodeTime TimeNode(const std::shared_ptr<Graph>& graph,
                  ExecutionProvider& provider, double least) {
  Executor executor(graph, provider);
  TensorMap state;
  auto run = [&] { executor.Run({}, state); };
  for (int i = 0; i < kUnmeasured; ++i) run();
  provider.Synchronize();
  double once = SecondsOf([&] {
    run();
    provider.Synchronize();
  });
  double runs = std::clamp(std::ceil(kBetweenWaits / once), 1.0, kMostRuns);
  std::vector<double> times = Times(
      [&] {
        for (double i = 0; i < runs; ++i) run();
        provider.Synchronize();
      },
      least);
  return {.seconds = Median(times) / runs,
          .runs = static_cast<int64_t>(runs) *
                  static_cast<int64_t>(times.size())};
}

double Difference(const std::shared_ptr<Graph>& graph,
                  ExecutionProvider& provider, ExecutionProvider& truth) {
  graph->outputs = graph->nodes().front().outputs();
  TensorMap ours = Results(graph, provider), theirs = Results(graph, truth);
  double largest = 0;
  for (const auto& [name, tensor] : ours) {
    largest = std::max(largest, Difference(tensor, theirs.at(name)));
  }
  return largest;
}

}  // namespace onnx_fp8
