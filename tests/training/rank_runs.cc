// SPDX-License-Identifier: Apache-2.0
#include "tests/training/rank_runs.h"

#include <cstring>

#include "providers/cpu/cpu_provider.h"
#include "tests/support/thread_ranks.h"
#include "training/session/make_session.h"
#include "training/state/checkpoint.h"

namespace onnx_fp8 {

TensorMap ShareOf(const TensorMap& batch, int64_t rank, int64_t ranks) {
  TensorMap share;
  for (const auto& [name, whole] : batch) {
    const int64_t n = whole.dim(0);
    const int64_t begin = n * rank / ranks;
    Shape shape = whole.shape();
    shape[0] = n * (rank + 1) / ranks - begin;
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
                   const std::vector<Batches>& steps, const MeshRanks* ranks,
                   double lr) {
  auto session = MakeSession(options, MakeCpuProvider(), ranks);
  RankRun run;
  for (const Batches& step : steps) {
    Batches mine;
    for (const TensorMap& batch : step) {
      mine.push_back(
          ranks ? ShareOf(batch, ranks->data_rank(), ranks->mesh().data_ranks())
                : batch);
    }
    run.steps.push_back(session->Step(mine, lr));
  }
  TempDir dir;
  run.weights = Weights(*session, dir);
  run.scales = session->Scales();
  return run;
}

std::vector<RankRun> TrainRanks(const Mesh& mesh, const SessionOptions& options,
                                const std::vector<Batches>& steps, double lr) {
  std::vector<RankRun> runs(static_cast<size_t>(mesh.ranks()));
  RunRanks(static_cast<int>(mesh.ranks()), [&](Communicator& world) {
    const MeshRanks ranks(mesh, world);
    runs[static_cast<size_t>(world.rank())] =
        TrainSteps(options, steps, &ranks, lr);
  });
  for (const RankRun& run : runs) ExpectSame(run.weights, runs[0].weights);
  return runs;
}

TensorMap StateIn(const std::string& folder) {
  const auto checkpoint = LoadLatestCheckpoint(folder, kAnyModel);
  TensorMap state;
  for (const auto& [name, tensor] : checkpoint->state) {
    state[name] = tensor.Clone();
  }
  for (const auto& [name, tensor] : checkpoint->shards) {
    state[name] = tensor.Whole();
  }
  for (const auto& [name, source] : checkpoint->frozen) {
    state[name] = source.Pull();
  }
  return state;
}

std::vector<Batches> TokenSteps(size_t micro_batches, int64_t samples) {
  std::vector<Batches> steps;
  for (int64_t step = 0; step < 4; ++step) {
    Batches batches;
    for (size_t micro = 0; micro < micro_batches; ++micro) {
      TensorMap batch;
      for (const char* name : {"input_ids", "labels"}) {
        Tensor tokens = Tensor::Allocate(DType::kInt64, {samples, 12});
        for (int64_t i = 0; i < tokens.size(); ++i) {
          tokens.data<int64_t>()[i] = (i * 7 + step * 5 + (name[0] == 'l') +
                                       static_cast<int64_t>(micro) * 3) %
                                      61;
        }
        batch[name] = tokens;
      }
      batches.push_back(batch);
    }
    steps.push_back(batches);
  }
  return steps;
}

}  // namespace onnx_fp8
