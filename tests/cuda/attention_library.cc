// SPDX-License-Identifier: Apache-2.0
//
// A library for attention on the emulated device, in place of cuDNN. It
// computes in float and rounds where cuDNN does. It is as strict as cuDNN, and
// reports what a caller may not ask.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "providers/cuda/attention/library.h"
#include "providers/cuda/library/library_name.h"
#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/cublaslt_numbers.h"
#include "tests/cuda/emulation/faults.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/work.h"

namespace onnx_fp8::cuda {
namespace {

using emulation::Report;

constexpr int64_t kVector = 8;  // bfloat16 in 16 bytes

float Rounded(float x) { return __bfloat162float(__float2bfloat16(x)); }

int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// ---- rules ------------------------------------------------------------------

// Elements from the first to behind the last one.
int64_t Extent(const LibraryStrides& x, int64_t b, int64_t heads, int64_t rows,
               int64_t d) {
  return (b - 1) * x.batch + (heads - 1) * x.head + (rows - 1) * x.row + d;
}

const char* MistakeIn(const LibraryProblem& p) {
  if (p.b <= 0 || p.t <= 0 || p.s <= 0 || p.groups <= 0) return "no elements";
  if (p.heads % p.groups != 0) return "heads that no groups share";
  if (p.d <= 0 || p.d > 128 || p.d % kVector != 0) return "a width";
  for (const LibraryStrides* x : {&p.q, &p.k, &p.v, &p.y}) {
    if (x->batch % kVector != 0 || x->head % kVector != 0 ||
        x->row % kVector != 0) {
      return "rows that are not aligned to 16 bytes";
    }
  }
  return nullptr;
}

size_t WorkspaceOf(const LibraryProblem& p) {
  if (!p.backward || !p.deterministic) return 256;
  // The gradients of the scores, and a sum for each row.
  int64_t rows = p.b * p.heads * RoundUp(p.t, 64);
  return static_cast<size_t>(rows * (2 * RoundUp(p.s, 128) + 4));
}

void NeedReachable(const char* what, const void* p, int64_t elements,
                   size_t size = sizeof(__nv_bfloat16)) {
  size_t bytes = static_cast<size_t>(elements) * size;
  if (emulation::AddressOf(p) % 16 != 0) {
    Report("attention: ", what, " is not aligned to 16 bytes");
  }
  if (emulation::Reachable(p, bytes)) return;
  Report("attention: ", what, ", ", bytes, " bytes, is ",
         emulation::Describe(p));
  emulation::Fault(cudaErrorIllegalAddress);
}

// ---- numbers ----------------------------------------------------------------

// The rows of one head of one batch.
struct HeadRows {
  const void* data;
  int64_t at, row;

  float Get(int64_t i, int64_t j) const {
    return emulation::LoadFloat(data, CUDA_R_16BF, at + i * row + j);
  }
  void Set(int64_t i, int64_t j, float x) const {
    emulation::StoreFloat(const_cast<void*>(data), CUDA_R_16BF,
                          at + i * row + j, x);
  }
};

HeadRows RowsOf(const void* data, const LibraryStrides& x, int64_t b,
                int64_t head) {
  return {data, b * x.batch + head * x.head, x.row};
}

float Dot(const HeadRows& a, int64_t i, const HeadRows& b, int64_t j,
          int64_t d) {
  float sum = 0;
  for (int64_t k = 0; k < d; ++k) sum += a.Get(i, k) * b.Get(j, k);
  return sum;
}

// The columns that row i sees.
int64_t ColumnsOf(const LibraryProblem& p, int64_t i) {
  return p.causal ? std::min(i + 1, p.s) : p.s;
}

void ForwardRow(const LibraryProblem& p, const LibraryForward& m, int64_t b,
                int64_t head, int64_t i) {
  int64_t group = head / (p.heads / p.groups), n = ColumnsOf(p, i);
  HeadRows q = RowsOf(m.q, p.q, b, head), k = RowsOf(m.k, p.k, b, group),
           v = RowsOf(m.v, p.v, b, group), y = RowsOf(m.y, p.y, b, head);
  std::vector<float> powers(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    powers[static_cast<size_t>(j)] = p.scale * Dot(q, i, k, j, p.d);
  }
  float largest = *std::ranges::max_element(powers), total = 0;
  for (float& x : powers) total += x = std::exp(x - largest);
  for (int64_t c = 0; c < p.d; ++c) {
    float sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      sum += Rounded(powers[static_cast<size_t>(j)]) * v.Get(j, c);
    }
    y.Set(i, c, sum / total);
  }
  if (m.lse) m.lse[(b * p.heads + head) * p.t + i] = largest + std::log(total);
}

void RunForward(const LibraryProblem& p, const LibraryForward& m,
                void* workspace) {
  NeedReachable("q", m.q, Extent(p.q, p.b, p.heads, p.t, p.d));
  NeedReachable("k", m.k, Extent(p.k, p.b, p.groups, p.s, p.d));
  NeedReachable("v", m.v, Extent(p.v, p.b, p.groups, p.s, p.d));
  NeedReachable("y", m.y, Extent(p.y, p.b, p.heads, p.t, p.d));
  if (m.lse) NeedReachable("lse", m.lse, p.b * p.heads * p.t, sizeof(float));
  std::memset(workspace, 0xFF, WorkspaceOf(p));
  for (int64_t b = 0; b < p.b; ++b) {
    for (int64_t head = 0; head < p.heads; ++head) {
      for (int64_t i = 0; i < p.t; ++i) ForwardRow(p, m, b, head, i);
    }
  }
}

// Sums of the gradients of a group's keys and values.
struct KeySums {
  std::vector<float> dk, dv;
};

void BackwardRow(const LibraryProblem& p, const LibraryBackward& m, int64_t b,
                 int64_t head, int64_t i, KeySums& sums) {
  int64_t group = head / (p.heads / p.groups);
  HeadRows q = RowsOf(m.q, p.q, b, head), k = RowsOf(m.k, p.k, b, group),
           v = RowsOf(m.v, p.v, b, group), y = RowsOf(m.y, p.y, b, head),
           dy = RowsOf(m.dy, p.y, b, head);
  float along = Dot(dy, i, y, i, p.d);
  float lse = m.lse[(b * p.heads + head) * p.t + i];
  std::vector<float> dq(static_cast<size_t>(p.d));
  for (int64_t j = 0; j < ColumnsOf(p, i); ++j) {
    float power = std::exp(p.scale * Dot(q, i, k, j, p.d) - lse);
    float ds = power * (Dot(dy, i, v, j, p.d) - along) * p.scale;
    power = Rounded(power);
    ds = Rounded(ds);
    for (int64_t c = 0; c < p.d; ++c) {
      auto at = static_cast<size_t>(j * p.d + c);
      dq[static_cast<size_t>(c)] += ds * k.Get(j, c);
      sums.dk[at] += ds * q.Get(i, c);
      sums.dv[at] += power * dy.Get(i, c);
    }
  }
  HeadRows to = RowsOf(m.dq, p.q, b, head);
  for (int64_t c = 0; c < p.d; ++c) to.Set(i, c, dq[static_cast<size_t>(c)]);
}

void BackwardGroup(const LibraryProblem& p, const LibraryBackward& m, int64_t b,
                   int64_t group) {
  auto n = static_cast<size_t>(p.s * p.d);
  KeySums sums = {std::vector<float>(n), std::vector<float>(n)};
  int64_t repeats = p.heads / p.groups;
  for (int64_t head = group * repeats; head < (group + 1) * repeats; ++head) {
    for (int64_t i = 0; i < p.t; ++i) BackwardRow(p, m, b, head, i, sums);
  }
  HeadRows dk = RowsOf(m.dk, p.k, b, group), dv = RowsOf(m.dv, p.v, b, group);
  for (int64_t j = 0; j < p.s; ++j) {
    for (int64_t c = 0; c < p.d; ++c) {
      dk.Set(j, c, sums.dk[static_cast<size_t>(j * p.d + c)]);
      dv.Set(j, c, sums.dv[static_cast<size_t>(j * p.d + c)]);
    }
  }
}

void RunBackward(const LibraryProblem& p, const LibraryBackward& m,
                 void* workspace) {
  int64_t q = Extent(p.q, p.b, p.heads, p.t, p.d),
          k = Extent(p.k, p.b, p.groups, p.s, p.d),
          v = Extent(p.v, p.b, p.groups, p.s, p.d),
          y = Extent(p.y, p.b, p.heads, p.t, p.d);
  NeedReachable("q", m.q, q);
  NeedReachable("dq", m.dq, q);
  NeedReachable("k", m.k, k);
  NeedReachable("dk", m.dk, k);
  NeedReachable("v", m.v, v);
  NeedReachable("dv", m.dv, v);
  NeedReachable("y", m.y, y);
  NeedReachable("dy", m.dy, y);
  NeedReachable("lse", m.lse, p.b * p.heads * p.t, sizeof(float));
  std::memset(workspace, 0xFF, WorkspaceOf(p));
  for (int64_t b = 0; b < p.b; ++b) {
    for (int64_t group = 0; group < p.groups; ++group) {
      BackwardGroup(p, m, b, group);
    }
  }
}

}  // namespace

struct AttentionLibrary::State {
  std::set<LibraryProblem> plans;

  // Puts run(workspace) into the stream.
  template <typename F>
  void Start(const LibraryProblem& p, void* workspace, cudaStream_t stream,
             F run) {
    if (!plans.contains(p)) Report("attention: no plan was made");
    if (emulation::AddressOf(workspace) % 256 != 0) {
      Report("attention: a workspace that is not aligned to 256 bytes");
    }
    emulation::Enqueue(stream, {.what = "attention by a library",
                                .type = cudaGraphNodeTypeKernel,
                                .run = [p, workspace, run] {
                                  NeedReachable(
                                      "workspace", workspace,
                                      static_cast<int64_t>(WorkspaceOf(p)), 1);
                                  run(workspace);
                                }});
  }
};

AttentionLibrary::AttentionLibrary() : state_(std::make_unique<State>()) {}
AttentionLibrary::~AttentionLibrary() = default;

std::optional<size_t> AttentionLibrary::Workspace(const LibraryProblem& p) {
  if (const char* mistake = MistakeIn(p)) Report("attention: ", mistake);
  // As cuDNN.
  if (p.backward && p.t == 1 && p.s == 1) return std::nullopt;
  state_->plans.insert(p);
  return WorkspaceOf(p);
}

void AttentionLibrary::Run(const LibraryProblem& p, const LibraryForward& m,
                           void* workspace, cudaStream_t stream) {
  emulation::ApiCall call("attentionForward");
  if ((m.lse != nullptr) != p.keeps_lse) Report("attention: lse or none");
  state_->Start(p, workspace, stream,
                [p, m](void* space) { RunForward(p, m, space); });
}

void AttentionLibrary::Run(const LibraryProblem& p, const LibraryBackward& m,
                           void* workspace, cudaStream_t stream) {
  emulation::ApiCall call("attentionBackward");
  state_->Start(p, workspace, stream,
                [p, m](void* space) { RunBackward(p, m, space); });
}

std::string LibraryName() { return "an emulated library"; }

}  // namespace onnx_fp8::cuda
