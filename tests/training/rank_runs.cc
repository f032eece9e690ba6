// SPDX-License-Identifier: Apache-2.0
#include "tests/training/rank_runs.h"

#include <cstring>
#include <optional>

#include "providers/cpu/cpu_provider.h"
#include "tests/support/thread_ranks.h"
#include "training/make_session.h"

namespace onnx_fp8 {

TensorMap ShareOf(const TensorMap& batch, const Communicator& ranks) {
  TensorMap share;
  for (const auto& [name, whole] : batch) {
    const int64_t n = whole.dim(0);
    const int64_t begin = n * ranks.rank() / ranks.size();
    Shape shape = whole.shape();
    shape[0] = n * (ranks.rank() + 1) / ranks.size() - begin;
    Tensor part = Tensor::Allocate(whole.dtype(), shape);
    const size_t row = whole.bytes() / static_cast<size_t>(n);
    std::memcpy(part.raw(),
                static_cast<const std::byte*>(whole.raw()) +
                    static_cast<size_t>(begin) * row,
                part.bytes());
    share[name] = part;
  }
  return share;
}

RankRun TrainSteps(const SessionOptions& options,
                   const std::vector<Batches>& steps, Communicator* ranks) {
  std::optional<MeshRanks> mesh;
  if (ranks) mesh.emplace(Mesh{.dp = ranks->size()}, *ranks);
  auto session =
      MakeSession(options, MakeCpuProvider(), mesh ? &*mesh : nullptr);
  RankRun run;
  for (const Batches& step : steps) {
    Batches mine;
    for (const TensorMap& batch : step) {
      mine.push_back(ranks ? ShareOf(batch, *ranks) : batch);
    }
    run.steps.push_back(session->Step(mine, 1e-2));
  }
  TempDir dir;
  run.weights = Weights(*session, dir);
  run.scales = session->Scales();
  return run;
}

std::vector<RankRun> TrainRanks(int size, const SessionOptions& options,
                                const std::vector<Batches>& steps) {
  std::vector<RankRun> runs(static_cast<size_t>(size));
  RunRanks(size, [&](Communicator& ranks) {
    runs[static_cast<size_t>(ranks.rank())] =
        TrainSteps(options, steps, &ranks);
  });
  for (const RankRun& run : runs) ExpectSame(run.weights, runs[0].weights);
  return runs;
}

}  // namespace onnx_fp8
