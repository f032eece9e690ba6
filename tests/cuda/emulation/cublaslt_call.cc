// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/cublaslt_call.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "tests/cuda/emulation/counts.h"
#include "tests/cuda/emulation/cublaslt_rules.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/work.h"

namespace onnx_fp8::emulation {
namespace {

// What cublasLtMatmulAlgo_t holds.
struct Algorithm {
  uint64_t magic, problem, number, workspace;
  uint16_t alignment[4];  // of A, B, C and D
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

constexpr uint64_t kMagic = 0x454D554C54;
constexpr uint64_t kMaxWorkspace = 1 << 16;
constexpr uint32_t kUsualAlignment = 256;
constexpr uint16_t kAlignmentWithoutAlgorithm = 16;

uint64_t HashOf(const LtProblem& p) {
  uint64_t h = 0;
  auto add = [&](int64_t x) {
    h = (h ^ static_cast<uint64_t>(x)) * 0x9E3779B97F4A7C15;
    h ^= h >> 29;
  };
  for (const LtMatrix* x : {&p.a, &p.b, &p.c, &p.d}) {
    for (int64_t value : {int64_t{x->type}, x->rows, x->columns, x->ld,
                          int64_t{x->batch}, x->stride}) {
      add(value);
    }
  }
  for (int64_t value :
       {int64_t{p.transpose_a}, int64_t{p.transpose_b}, int64_t{p.a_mode},
        int64_t{p.b_mode}, int64_t{p.epilogue}, int64_t{p.bias_type},
        int64_t{p.compute}}) {
    add(value);
  }
  return h;
}

cublasStatus_t Refuse(const char* call, const LtProblem& p,
                      const LtVerdict& v) {
  Explain(call, " refuses m ", p.m, " n ", p.n, " k ", p.k, ": ", v.why);
  return v.status;
}

bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  return AddressOf(a) < AddressOf(b) + b_bytes &&
         AddressOf(b) < AddressOf(a) + a_bytes;
}

bool IsAlignedTo(const void* p, size_t bytes) {
  return AddressOf(p) % bytes == 0;
}

LtVerdict CheckOverlap(const LtProblem& p, const LtOperands& o) {
  size_t bytes = p.d.bytes();
  if (Overlap(o.d, bytes, o.a, p.a.bytes()) ||
      Overlap(o.d, bytes, o.b, p.b.bytes())) {
    return LtInvalid("a result that overlaps an operand");
  }
  if (!Overlap(o.d, bytes, o.c, p.c.bytes())) return {};
  bool in_place = o.c == o.d && p.c.type == p.d.type && p.c.ld == p.d.ld &&
                  p.c.stride == p.d.stride;
  return in_place ? LtVerdict{} : LtInvalid("C and D that partly overlap");
}

LtVerdict CheckOrigin(const Algorithm& algorithm, const LtProblem& p) {
  bool fits = algorithm.magic == kMagic && algorithm.problem == HashOf(p) &&
              algorithm.number < ProductAlgorithms().size();
  if (fits) return {};
  return LtInvalid("an algorithm that is of another product");
}

LtVerdict CheckUse(const Algorithm& algorithm, const LtProblem& p,
                   const LtOperands& o) {
  LtVerdict v = CheckOrigin(algorithm, p);
  if (v.why) return v;
  if (ProductAlgorithms()[algorithm.number].fails) {
    return LtUnsupported("an algorithm that fails");
  }
  const void* operands[] = {o.a, o.b, o.c, o.d};
  for (int i = 0; i < 4; ++i) {
    if (!IsAlignedTo(operands[i], algorithm.alignment[i])) {
      return LtInvalid(
          "an operand that is less aligned than the preference of its "
          "algorithm says (256 bytes by default)");
    }
  }
  if (o.workspace_bytes < algorithm.workspace) {
    return LtInvalid("less workspace than the algorithm needs");
  }
  if (algorithm.workspace > 0 && !IsAlignedTo(o.workspace, 256)) {
    return LtInvalid("a workspace that is not aligned to 256 bytes");
  }
  return {};
}

struct UsedWorkspace {
  size_t bytes;
  cudaStream_t stream;
};

// Products of two streams may run at once.
LtVerdict TakeWorkspace(void* workspace, size_t bytes, cudaStream_t stream) {
  static auto& used = *new std::map<void*, UsedWorkspace>;
  if (bytes == 0) return {};
  std::erase_if(used, [](const auto& u) { return !StreamOf(u.second.stream); });
  for (const auto& [other, use] : used) {
    bool shared = Overlap(workspace, bytes, other, use.bytes);
    if (shared && use.stream != stream) {
      return LtInvalid("a workspace that another stream uses");
    }
  }
  used[workspace] = {bytes, stream};
  return {};
}

}  // namespace

cublasStatus_t FindAlgorithms(const LtProblem& p,
                              const LtPreference& preference, int wanted,
                              cublasLtMatmulHeuristicResult_t results[],
                              int& count) {
  const char* call = "cublasLtMatmulAlgoGetHeuristic";
  LtVerdict v = CheckProblem(p);
  if (v.why) return Refuse(call, p, v);
  const Attributes& t = preference.attributes;
  uint64_t most =
      GetAttribute<uint64_t>(t, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0);
  Algorithm algorithm = {.magic = kMagic,
                         .problem = HashOf(p),
                         .number = 0,
                         .workspace = std::min(most, kMaxWorkspace),
                         .alignment = {}};
  for (int i = 0; i < 4; ++i) {
    auto bytes = GetAttribute<uint32_t>(
        t, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, kUsualAlignment);
    if (bytes == 0 || (IsFp8(p.a.type) && bytes < 16)) {
      return Refuse(call, p,
                    LtUnsupported("operands that are not aligned to 16 bytes"));
    }
    algorithm.alignment[i] = static_cast<uint16_t>(std::min(bytes, 256u));
  }
  count = std::min(wanted, static_cast<int>(ProductAlgorithms().size()));
  for (int i = 0; i < count; ++i) {
    algorithm.number = static_cast<uint64_t>(i);
    results[i] = {};
    std::memcpy(&results[i].algo, &algorithm, sizeof algorithm);
    results[i].workspaceSize = algorithm.workspace;
    results[i].wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CheckAlgorithm(const LtProblem& p,
                              const cublasLtMatmulAlgo_t& given,
                              cublasLtMatmulHeuristicResult_t& result) {
  const char* call = "cublasLtMatmulAlgoCheck";
  Algorithm algorithm;
  std::memcpy(&algorithm, &given, sizeof algorithm);
  LtVerdict v = CheckProblem(p);
  if (!v.why) v = CheckOrigin(algorithm, p);
  if (v.why) return Refuse(call, p, v);
  result.workspaceSize = algorithm.workspace;
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t EnqueueProduct(const LtProblem& p, LtOperands o,
                              const cublasLtMatmulAlgo_t* chosen,
                              cudaStream_t stream) {
  const char* call = "cublasLtMatmul";
  LtVerdict v = CheckProblem(p);
  if (v.why) return Refuse(call, p, v);
  Algorithm algorithm = {.magic = kMagic,
                         .problem = HashOf(p),
                         .number = 0,
                         .workspace = 0,
                         .alignment = {}};
  std::ranges::fill(algorithm.alignment, kAlignmentWithoutAlgorithm);
  if (chosen) std::memcpy(&algorithm, chosen, sizeof algorithm);
  v = CheckUse(algorithm, p, o);
  if (!v.why) v = CheckOverlap(p, o);
  if (!v.why) v = TakeWorkspace(o.workspace, algorithm.workspace, stream);
  if (v.why) return Refuse(call, p, v);
  CountCall(Concat("algorithm ", algorithm.number).c_str());
  o.workspace_bytes = algorithm.workspace;
  o.algorithm = algorithm.number;
  if (!p.device_scalars) {
    o.alpha_value = *o.alpha;
    o.beta_value = *o.beta;
    o.alpha = o.beta = nullptr;
  }
  uint64_t time = ProductAlgorithms()[algorithm.number].time;
  cudaError_t error = Enqueue(stream, {.what = "a matrix product",
                                       .type = cudaGraphNodeTypeKernel,
                                       .run = [p, o] { RunProduct(p, o); },
                                       .time = time});
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                              : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace onnx_fp8::emulation
