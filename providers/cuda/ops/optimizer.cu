// SPDX-License-Identifier: Apache-2.0
//
// Kernels of graph/schemas/optimizers.cc, with operations in the order of the
// bodies. One kernel updates many tensors. Numbers that are computed once per
// tensor are computed in double, by one thread, before the others run. If FP8
// codes of the new parameters are results, a kernel before reads their scales,
// and one behind writes scales and amaxes. Traffic: each operand is read once,
// each result is written once.
#include <algorithm>
#include <cmath>

#include "base/master_codes.h"
#include "base/moment_codes.h"
#include "base/stochastic_rounding.h"
#include "graph/moment_shapes.h"
#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/check_quantize.h"
#include "providers/cuda/core/encode.h"
#include "providers/cuda/core/load_store.h"
#include "providers/cuda/core/many.h"
#include "providers/cuda/core/result.h"
#include "providers/cuda/core/rows.h"
#include "providers/kernel.h"
#include "providers/ops/element_places.h"
#include "providers/ops/update_layout.h"

namespace onnx_fp8::cuda {
namespace {

enum class Rule : int { kSgd, kMomentum, kAdam, kAdamW };

// How a parameter is kept: as a float, as a bfloat16 that is rounded by draws,
// or as a bfloat16 and a correction of 8 or 16 bits.
enum class Master : int { kFloat, kDrawn, kSplit8, kSplit16 };

// The scalar operands, and attributes that tensors of one call share.
struct Settings {
  Rule rule;
  bool nesterov;
  Master master;
  bool codes;       // moments are codes
  Storage moments;  // how they are kept if they are none
  bool measured;    // UpdateAmax is a result
  // FP8 codes of the new parameter are results: their format, and the floats
  // that they are made of.
  bool quantizes, e4m3;
  Storage rounded;
  float q_max;
  const int64_t* step;  // null without Adam
  const float *lr, *grad_scale;
  const bool* ok;
  // Seeds and numbers of updates for the draws; null if nothing is drawn.
  const int64_t *master_seed, *master_update, *seed, *update;
  float momentum, new1, new2, eps;

  bool operator==(const Settings&) const = default;
};

// What the elements need.
struct Factors {
  float rate, clip, size, root, keep, beta2, decay;
  uint32_t master_key, key;  // of the draws
  ElementPlaces places;
  double correction;  // of the first moment
};

// The kernel's workspace.
struct Space {
  Factors factors;
  // The amax of m / (sqrt(v) / root + eps), which UpdateAmax divides by the
  // correction.
  DeviceAmax largest;
};

// FP8 codes of the new parameter. It lies behind the Space, if there are any.
struct Codes {
  uint8_t* q;
  float *scale_out, *amax_out;
  float scale;  // 0: the parameter's own counts
  DeviceAmax amax;
};

__device__ Codes* CodesBehind(Space* space) {
  static_assert(sizeof(Space) % alignof(Codes) == 0);
  return reinterpret_cast<Codes*>(space + 1);
}

// What a tensor's factors come from.
struct Tuning {
  float lr_scale, weight_decay;
  uint32_t master_stream, stream;  // of the draws
  ElementPlaces places;
  Space* space;
  float* amax;  // UpdateAmax's result; null: nobody asks for it
};

struct Parameter {
  const void* in;
  void* out;
  const void* correction;  // null: there is none
  void* correction_out;
};

// The parameter, its gradient and its moments.
struct State {
  Parameter p;
  const float* g;
  const void *m, *v;
  void *m_out, *v_out;
  int64_t n;
  Space* space;
};

// A moment that is kept as codes.
struct CodedMoment {
  const uint8_t* codes;  // null: there is none
  uint8_t* codes_out;
  const float* scales;
  float* scales_out;
};

struct CodedState {
  Parameter p;
  const float* g;
  CodedMoment m, v;
  MomentBlocks blocks;
  Space* space;
};

// Adam's corrections.
__device__ void Correct(const Settings& s, Factors& f) {
  double t = static_cast<double>(*s.step);
  double new1 = s.new1, new2 = s.new2;
  f.correction = 1 - pow(1 - new1, t);
  f.root = static_cast<float>(sqrt(1 - pow(1 - new2, t)));
}

__global__ void __launch_bounds__(kThreads)
    FactorsKernel(Settings s, Many<Tuning> many) {
  int i = static_cast<int>(threadIdx.x);
  if (i >= many.count) return;
  const Tuning own = many.tensors[i];
  double rate = static_cast<double>(*s.lr) * static_cast<double>(own.lr_scale);
  Factors f = {.rate = static_cast<float>(rate),
               .clip = *s.grad_scale,
               .decay = own.weight_decay,
               .places = own.places};
  if (s.step) {
    double decay = own.weight_decay;
    Correct(s, f);
    f.size = static_cast<float>(rate / f.correction);
    f.keep = static_cast<float>(1 - rate * decay);
    f.beta2 = static_cast<float>(1 - static_cast<double>(s.new2));
  }
  if (s.master_seed) {
    f.master_key = DrawKey(*s.master_seed, own.master_stream, *s.master_update);
  }
  if (s.seed) f.key = DrawKey(*s.seed, own.stream, *s.update);
  *own.space = {f, {0, 0}};
}

struct CodesOfTensor {
  Codes codes;
  const float* scale_in;
  Space* space;
};

// Reads the given scales first, because a result may lie in their memory.
__global__ void __launch_bounds__(kThreads)
    CodesKernel(Many<CodesOfTensor> many) {
  int i = static_cast<int>(threadIdx.x);
  if (i >= many.count) return;
  const CodesOfTensor own = many.tensors[i];
  Codes codes = own.codes;
  codes.scale = *own.scale_in;
  *CodesBehind(own.space) = codes;
}

// UpdateAmax's result. 0 in a skipped step.
__device__ void WriteAmax(const bool* ok, const Space& space, float* amax) {
  double whole = AmaxIn(space.largest) / space.factors.correction;
  *amax = !ok || *ok ? static_cast<float>(whole) : 0.0f;
}

__global__ void __launch_bounds__(kThreads)
    AmaxesKernel(Settings s, Many<Tuning> many) {
  int i = static_cast<int>(threadIdx.x);
  if (i >= many.count) return;
  const Tuning own = many.tensors[i];
  WriteAmax(s.ok, *own.space, own.amax);
}

// The draw of element i.
__device__ uint32_t DrawOfElement(int64_t i, const ElementPlaces& places,
                                  uint32_t key) {
  const int64_t place = places.Of(i);
  return DrawAt(DrawKeyOf(key, place), static_cast<uint32_t>(place));
}

// x as bfloat16, by the draw of element i.
__device__ uint16_t RoundStochastic(float x, int64_t i,
                                    const ElementPlaces& places, uint32_t key) {
  return RoundBFloat16(__float_as_uint(x), DrawOfElement(i, places, key));
}

__device__ float LoadParameter(Master master, const Parameter& x, int64_t i) {
  if (master == Master::kFloat) return static_cast<const float*>(x.in)[i];
  const uint16_t half = static_cast<const uint16_t*>(x.in)[i];
  uint32_t bits = uint32_t{half} << 16;
  if (master == Master::kSplit8) {
    bits = DecodeMaster<8>(half, static_cast<const int8_t*>(x.correction)[i]);
  } else if (master == Master::kSplit16) {
    bits = DecodeMaster<16>(half, static_cast<const int16_t*>(x.correction)[i]);
  }
  return __uint_as_float(bits);
}

template <typename T>
__device__ float StoreSplit(const Parameter& x, int64_t i, float p) {
  constexpr int kBits = 8 * sizeof(T);
  const auto code = EncodeMaster<kBits>(__float_as_uint(p));
  static_cast<uint16_t*>(x.out)[i] = code.half;
  static_cast<T*>(x.correction_out)[i] = static_cast<T>(code.correction);
  return __uint_as_float(DecodeMaster<kBits>(code.half, code.correction));
}

// Returns the number that is kept.
__device__ float StoreParameter(Master master, const Parameter& x, int64_t i,
                                float p, const Factors& f) {
  if (master == Master::kSplit8) return StoreSplit<int8_t>(x, i, p);
  if (master == Master::kSplit16) return StoreSplit<int16_t>(x, i, p);
  if (master == Master::kFloat) {
    static_cast<float*>(x.out)[i] = p;
    return p;
  }
  const uint16_t half = RoundStochastic(p, i, f.places, f.master_key);
  static_cast<uint16_t*>(x.out)[i] = half;
  return __uint_as_float(uint32_t{half} << 16);
}

template <typename T>
__device__ void CopyElement(const void* from, void* to, int64_t i) {
  static_cast<T*>(to)[i] = static_cast<const T*>(from)[i];
}

__device__ void KeepParameter(Master master, const Parameter& x, int64_t i) {
  if (master == Master::kFloat) return CopyElement<float>(x.in, x.out, i);
  CopyElement<uint16_t>(x.in, x.out, i);
  if (master == Master::kSplit8) {
    CopyElement<int8_t>(x.correction, x.correction_out, i);
  } else if (master == Master::kSplit16) {
    CopyElement<int16_t>(x.correction, x.correction_out, i);
  }
}

// A parameter's element and its moments.
struct Weight {
  float p, m, v;
};

__device__ void AdamStep(const Settings& s, const Factors& f, float gradient,
                         Weight& x) {
  bool decoupled = s.rule == Rule::kAdamW;
  float g = gradient * f.clip;
  if (!decoupled) g += f.decay * x.p;
  x.m = x.m + s.new1 * (g - x.m);
  x.v = f.beta2 * x.v + s.new2 * (g * g);
  float denominator = sqrtf(x.v) / f.root + s.eps;
  float start = decoupled ? x.p * f.keep : x.p;
  x.p = start - f.size * (x.m / denominator);
}

__device__ void Descent(const Settings& s, const Factors& f, float gradient,
                        Weight& x) {
  float g = gradient * f.clip + f.decay * x.p;
  if (s.rule == Rule::kMomentum) {
    x.m = s.momentum * x.m + g;
    g = s.nesterov ? g + s.momentum * x.m : x.m;
  }
  x.p = x.p - f.rate * g;
}

__device__ void MoveWeight(const Settings& s, const Factors& f, float gradient,
                           Weight& x) {
  if (s.rule == Rule::kAdam || s.rule == Rule::kAdamW) {
    return AdamStep(s, f, gradient, x);
  }
  Descent(s, f, gradient, x);
}

// An element of UpdateAmax.
__device__ float SizeOf(const Settings& s, const Factors& f, float m, float v) {
  return m / (sqrtf(v) / f.root + s.eps);
}

__device__ void StoreMoments(const Settings& s, const State& x, int64_t i,
                             const Weight& now) {
  if (x.m) Store({x.m_out, s.moments}, i, now.m);
  if (!x.v) return;
  if (s.moments == Storage::kFloat) {
    static_cast<float*>(x.v_out)[i] = now.v;
  } else {
    static_cast<uint16_t*>(x.v_out)[i] = RoundStochastic(
        now.v, i, x.space->factors.places, x.space->factors.key);
  }
}

__device__ void CopyMoment(Storage storage, const void* from, void* to,
                           int64_t i) {
  if (!from) return;
  if (storage == Storage::kFloat) return CopyElement<float>(from, to, i);
  CopyElement<uint16_t>(from, to, i);
}

__device__ uint8_t CodeOfParameter(const Settings& s, float x, float factor) {
  return static_cast<uint8_t>(s.e4m3 ? EncodeProduct<true>(x, factor)
                                     : EncodeProduct<false>(x, factor));
}

// The amaxes of the elements of one thread.
struct Seen {
  AmaxPart update, parameter;

  // `p`: the number that is kept.
  __device__ void AddParameter(const Settings& s, Space* space, int64_t i,
                               float p) {
    if (!s.quantizes) return;
    const Codes* codes = CodesBehind(space);
    const float x = Rounded(s.rounded, p);
    parameter.Add(x);
    if (codes->scale == 0) return;
    codes->q[i] = CodeOfParameter(s, x, 1.0f / codes->scale);
  }

  // All threads of the block call it.
  __device__ void AddOfBlock(const Settings& s, Space* space) const {
    update.AddOfBlock(s.measured ? &space->largest : nullptr);
    parameter.AddOfBlock(s.quantizes ? &CodesBehind(space)->amax : nullptr);
  }
};

// A skipped step, or a gradient that is not finite: results are operands.
__device__ void Keep(const Settings& s, const State& x, int64_t i) {
  KeepParameter(s.master, x.p, i);
  CopyMoment(s.moments, x.m, x.m_out, i);
  CopyMoment(s.moments, x.v, x.v_out, i);
}

__device__ void UpdateElement(const Settings& s, const State& x, int64_t i,
                              Seen& seen) {
  const Factors& f = x.space->factors;
  Weight now = {.p = LoadParameter(s.master, x.p, i)};
  if (x.m) now.m = Load({x.m, s.moments}, i);
  if (x.v) now.v = Load({x.v, s.moments}, i);
  bool taken = *s.ok && isfinite(x.g[i]);
  if (taken) MoveWeight(s, f, x.g[i], now);
  if (s.measured) seen.update.Add(SizeOf(s, f, now.m, now.v));
  if (taken) {
    now.p = StoreParameter(s.master, x.p, i, now.p, f);
    StoreMoments(s, x, i, now);
  } else {
    Keep(s, x, i);
  }
  seen.AddParameter(s, x.space, i, now.p);
}

__global__ void __launch_bounds__(kThreads)
    UpdateKernel(Settings s, Many<State> states) {
  int tensor = TensorOf(states, blockIdx.x);
  const State x = states.tensors[tensor];
  int64_t i =
      static_cast<int64_t>(blockIdx.x - states.begin[tensor]) * kThreads +
      threadIdx.x;
  Seen seen;
  if (i < x.n) UpdateElement(s, x, i, seen);
  seen.AddOfBlock(s, x.space);
}

// ---- codes: a warp has a block of them, so each lane has a few elements

constexpr int kMomentLanes = 32;
constexpr int kMomentsPerLane = kMomentBlock / kMomentLanes;
constexpr int kMomentWarps = kThreads / kMomentLanes;

// The elements of a warp's block.
struct MomentLane {
  int64_t block, begin;
  int count, first;

  __device__ MomentLane(const MomentBlocks& blocks, int64_t its_block)
      : block(its_block),
        begin(blocks.Begin(block)),
        count(static_cast<int>(blocks.Begin(block + 1) - begin)),
        first(static_cast<int>(threadIdx.x) % kMomentLanes) {}

  // The k-th element of the lane.
  __device__ bool Has(int k) const { return first + k * kMomentLanes < count; }
  __device__ int64_t At(int k) const {
    return begin + first + k * kMomentLanes;
  }
};

// The number of this thread's warp.
__device__ int64_t WarpOf(unsigned block) {
  return static_cast<int64_t>(block) * kMomentWarps +
         threadIdx.x / kMomentLanes;
}

__device__ float Decoded(uint8_t code, float scale, bool is_square) {
  float x = Decode<true>(code) * scale;
  return is_square ? MeanOfRoot(x) : x;
}

__device__ uint8_t CodeOf(float x, float scale) {
  float quotient = x / scale;
  return static_cast<uint8_t>(quotient == quotient ? Encode<true>(quotient)
                                                   : kLostMoment);
}

// Encodes the elements of the warp's block. All lanes call it.
template <bool kSquare>
__device__ void EncodeBlock(const MomentLane& lane, float (&x)[kMomentsPerLane],
                            const ElementPlaces& places, uint32_t key,
                            uint8_t* codes, float* scales) {
  float amax = 0;
  ONNX_FP8_UNROLL
  for (int k = 0; k < kMomentsPerLane; ++k) {
    if (!lane.Has(k)) continue;
    if (kSquare) x[k] = sqrtf(x[k]);
    if (isfinite(x[k])) amax = fmaxf(amax, fabsf(x[k]));
  }
  const float scale = MomentScale(MaxOfWarp(amax));
  ONNX_FP8_UNROLL
  for (int k = 0; k < kMomentsPerLane; ++k) {
    if (!lane.Has(k)) continue;
    const int64_t i = lane.At(k);
    codes[i] = kSquare ? static_cast<uint8_t>(CodeOfRoot(
                             x[k], scale, DrawOfElement(i, places, key)))
                       : CodeOf(x[k], scale);
  }
  if (lane.first == 0) scales[lane.block] = scale;
}

__device__ void KeepBlock(const MomentLane& lane, const uint8_t* codes,
                          const float* scales, uint8_t* codes_out,
                          float* scales_out) {
  ONNX_FP8_UNROLL
  for (int k = 0; k < kMomentsPerLane; ++k) {
    if (lane.Has(k)) codes_out[lane.At(k)] = codes[lane.At(k)];
  }
  if (lane.first == 0) scales_out[lane.block] = scales[lane.block];
}

__device__ void KeepMoment(const MomentLane& lane, const CodedMoment& x) {
  if (x.codes) KeepBlock(lane, x.codes, x.scales, x.codes_out, x.scales_out);
}

__device__ void KeepCoded(const Settings& s, const MomentLane& lane,
                          const CodedState& x, Seen& seen) {
  ONNX_FP8_UNROLL
  for (int k = 0; k < kMomentsPerLane; ++k) {
    if (!lane.Has(k)) continue;
    const int64_t i = lane.At(k);
    const float p = LoadParameter(s.master, x.p, i);
    KeepParameter(s.master, x.p, i);
    seen.AddParameter(s, x.space, i, p);
  }
  KeepMoment(lane, x.m);
  KeepMoment(lane, x.v);
}

__device__ void UpdateBlock(const Settings& s, const CodedState& x,
                            int64_t block, Seen& seen) {
  const MomentLane lane(x.blocks, block);
  if (!*s.ok) return KeepCoded(s, lane, x, seen);
  const Factors f = x.space->factors;
  const float m_scale = x.m.scales[block];
  const float v_scale = x.v.codes ? x.v.scales[block] : 0;
  float m[kMomentsPerLane], v[kMomentsPerLane];
  ONNX_FP8_UNROLL
  for (int k = 0; k < kMomentsPerLane; ++k) {
    if (!lane.Has(k)) continue;
    const int64_t i = lane.At(k);
    Weight now = {.p = LoadParameter(s.master, x.p, i),
                  .m = Decoded(x.m.codes[i], m_scale, false)};
    if (x.v.codes) now.v = Decoded(x.v.codes[i], v_scale, true);
    if (isfinite(x.g[i])) MoveWeight(s, f, x.g[i], now);
    if (s.measured) seen.update.Add(SizeOf(s, f, now.m, now.v));
    now.p = StoreParameter(s.master, x.p, i, now.p, f);
    seen.AddParameter(s, x.space, i, now.p);
    m[k] = now.m;
    v[k] = now.v;
  }
  EncodeBlock<false>(lane, m, f.places, f.key, x.m.codes_out, x.m.scales_out);
  if (!x.v.codes) return;
  EncodeBlock<true>(lane, v, f.places, f.key, x.v.codes_out, x.v.scales_out);
}

__global__ void __launch_bounds__(kThreads)
    UpdateCodedKernel(Settings s, Many<CodedState> states) {
  int tensor = TensorOf(states, blockIdx.x);
  const CodedState x = states.tensors[tensor];
  const int64_t block = WarpOf(blockIdx.x - states.begin[tensor]);
  Seen seen;
  if (block < x.blocks.count()) UpdateBlock(s, x, block, seen);
  seen.AddOfBlock(s, x.space);
}

// A new parameter.
struct NewParameter {
  Parameter p;
  int64_t n;
  Space* space;
};

// Blocks that write codes whose scale was not known, once in a run. Few, so
// that they take no time in all other steps.
constexpr unsigned kMostCodeBlocks = 64;

// Writes scales and amaxes, which are complete, and codes that are missing.
__global__ void __launch_bounds__(kThreads)
    CodesEndKernel(Settings s, Many<NewParameter> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const NewParameter x = many.tensors[tensor];
  const unsigned block = blockIdx.x - many.begin[tensor];
  const Codes codes = *CodesBehind(x.space);
  const float own = OwnFactor(s.q_max, &codes.amax);
  const bool known = codes.scale != 0;
  if (block == 0 && threadIdx.x == 0) {
    *codes.scale_out = known ? codes.scale : 1.0f / own;
    *codes.amax_out = AmaxIn(codes.amax);
  }
  if (known) return;
  const int64_t threads =
      static_cast<int64_t>(BlocksOf(many, tensor)) * kThreads;
  for (int64_t i = static_cast<int64_t>(block) * kThreads + threadIdx.x;
       i < x.n; i += threads) {
    const float p = Rounded(s.rounded, LoadParameter(s.master, x.p, i));
    codes.q[i] = CodeOfParameter(s, p, own);
  }
}

__global__ void CorrectKernel(Settings s, Space* space) {
  Factors f = {};
  Correct(s, f);
  *space = {f, {0, 0}};
}

__global__ void __launch_bounds__(kThreads)
    SizesKernel(Settings s, const float* m, const float* v, int64_t n,
                Space* space) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  AmaxPart seen;
  if (i < n) seen.Add(SizeOf(s, space->factors, m[i], v[i]));
  seen.AddOfBlock(&space->largest);
}

__global__ void AmaxKernel(const Space* space, float* amax) {
  WriteAmax(nullptr, *space, amax);
}

__global__ void __launch_bounds__(kThreads)
    DecodeMomentKernel(CodedMoment in, MomentBlocks blocks, bool is_square,
                       float* x) {
  const int64_t block = WarpOf(blockIdx.x);
  if (block >= blocks.count()) return;
  const MomentLane lane(blocks, block);
  ONNX_FP8_UNROLL
  for (int k = 0; k < kMomentsPerLane; ++k) {
    if (!lane.Has(k)) continue;
    const int64_t i = lane.At(k);
    x[i] = Decoded(in.codes[i], in.scales[block], is_square);
  }
}

template <bool kSquare>
__global__ void __launch_bounds__(kThreads)
    EncodeMomentKernel(const float* x, CodedMoment moment, MomentBlocks blocks,
                       const bool* ok, const int64_t* seed,
                       const int64_t* update, DrawSettings draws) {
  const int64_t block = WarpOf(blockIdx.x);
  if (block >= blocks.count()) return;
  const MomentLane lane(blocks, block);
  if (!*ok) return KeepMoment(lane, moment);
  const uint32_t key = kSquare ? DrawKey(*seed, draws.stream, *update) : 0;
  float own[kMomentsPerLane];
  ONNX_FP8_UNROLL
  for (int k = 0; k < kMomentsPerLane; ++k) {
    if (lane.Has(k)) own[k] = x[lane.At(k)];
  }
  EncodeBlock<kSquare>(lane, own, draws.places, key, moment.codes_out,
                       moment.scales_out);
}

__global__ void __launch_bounds__(kThreads)
    RoundStochasticKernel(const float* x, uint16_t* y, int64_t n,
                          const int64_t* seed, const int64_t* update,
                          DrawSettings draws) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const uint32_t key = DrawKey(*seed, draws.stream, *update);
  y[i] = RoundStochastic(x[i], i, draws.places, key);
}

// ---- on the host

constexpr bool Steps(Rule rule) {
  return rule == Rule::kAdam || rule == Rule::kAdamW;
}
constexpr size_t Moments(Rule rule) {
  return Steps(rule) ? 2 : rule == Rule::kMomentum ? 1 : 0;
}

UpdateLayout LayoutFor(const KernelContext& ctx, Rule rule) {
  return LayoutOf(ctx, Moments(rule), Steps(rule));
}

Master MasterOf(const UpdateLayout& layout) {
  if (!layout.halves) return Master::kFloat;
  return !layout.splits()                    ? Master::kDrawn
         : layout.correction == DType::kInt8 ? Master::kSplit8
                                             : Master::kSplit16;
}

// Errors: no 8-bit float, a maximum that is not positive.
void AddCodeFormat(const KernelContext& ctx, Settings& s) {
  const auto to = static_cast<DType>(ctx.Int("to", 0));
  s.quantizes = true;
  s.e4m3 = to == DType::kE4M3;
  s.q_max = ctx.Float("q_max", 0);
  CheckQuantize(ctx);
  s.rounded =
      StorageOf(ctx, static_cast<DType>(ctx.Int(
                         "round_to", static_cast<int64_t>(DType::kFloat))));
}

// Operands: update_layout.h.
Settings SettingsOf(const KernelContext& ctx, Rule rule) {
  const UpdateLayout layout = LayoutFor(ctx, rule);
  auto scalar = [&](size_t i, DType dtype) {
    CheckOperand(ctx, i, dtype, {});
    return ctx.In(i).raw();
  };
  auto integer = [&](size_t i) {
    return static_cast<const int64_t*>(scalar(i, DType::kInt64));
  };
  Settings s = {.rule = rule,
                .nesterov = ctx.Int("nesterov", 0) != 0,
                .master = MasterOf(layout),
                .codes = layout.scales() > 0,
                .moments = layout.kept == DType::kBFloat16 ? Storage::kBFloat16
                                                           : Storage::kFloat};
  s.measured = layout.measured && ctx.HasOut(layout.amax_out());
  size_t next = layout.tensors();
  if (layout.has_step) s.step = integer(next++);
  s.lr = static_cast<const float*>(scalar(next++, DType::kFloat));
  s.grad_scale = static_cast<const float*>(scalar(next++, DType::kFloat));
  s.ok = static_cast<const bool*>(scalar(next, DType::kBool));
  if (layout.draws_master()) {
    s.master_seed = integer(layout.master());
    s.master_update = integer(layout.master() + 1);
  }
  if (layout.draws()) {
    s.seed = integer(layout.seed());
    s.update = integer(layout.seed() + 1);
  }
  s.momentum = ctx.Float("momentum", 0);
  s.new1 = ctx.Float("one_minus_beta1", 0.1f);
  s.new2 = ctx.Float("one_minus_beta2", 0.001f);
  s.eps = ctx.Float("eps", 1e-8f);
  if (layout.quantizes) AddCodeFormat(ctx, s);
  return s;
}

const void* OperandAt(const KernelContext& ctx, size_t i, DType dtype,
                      const Shape& shape) {
  CheckOperand(ctx, i, dtype, shape);
  return ctx.In(i).raw();
}

Parameter ParameterOf(KernelContext& ctx, Rule rule) {
  const UpdateLayout layout = LayoutFor(ctx, rule);
  const Shape shape = Operand(ctx, 0).shape();
  const DType dtype = layout.halves ? DType::kBFloat16 : DType::kFloat;
  Parameter p = {.in = OperandAt(ctx, 0, dtype, shape),
                 .out = ctx.Out(0, dtype, shape).raw()};
  if (layout.splits()) {
    p.correction = OperandAt(ctx, layout.master(), layout.correction, shape);
    p.correction_out =
        ctx.Out(layout.correction_out(), layout.correction, shape).raw();
  }
  return p;
}

State StateOf(KernelContext& ctx, const Settings& s) {
  const Shape shape = Operand(ctx, 0).shape();
  const DType moments = StorageDType(s.moments);
  State x = {
      .p = ParameterOf(ctx, s.rule),
      .g = static_cast<const float*>(OperandAt(ctx, 1, DType::kFloat, shape)),
      .n = ctx.In(0).size()};
  if (Moments(s.rule) > 0) {
    x.m = OperandAt(ctx, 2, moments, shape);
    x.m_out = ctx.Out(1, moments, shape).raw();
  }
  if (Moments(s.rule) > 1) {
    x.v = OperandAt(ctx, 3, moments, shape);
    x.v_out = ctx.Out(2, moments, shape).raw();
  }
  return x;
}

// Operands and results with a moment of that shape: its codes, its scales.
// Errors: others.
CodedMoment CodedMomentOf(KernelContext& ctx, const Shape& shape, size_t codes,
                          size_t scales, size_t codes_out, size_t scales_out) {
  Check(shape.size() >= 2, "[", ctx.Where(),
        "] expected codes of rank 2 or more");
  const Shape blocks = MomentScaleShape(shape);
  return {.codes = static_cast<const uint8_t*>(
              OperandAt(ctx, codes, DType::kE4M3, shape)),
          .codes_out = static_cast<uint8_t*>(
              ctx.Out(codes_out, DType::kE4M3, shape).raw()),
          .scales = static_cast<const float*>(
              OperandAt(ctx, scales, DType::kFloat, blocks)),
          .scales_out = static_cast<float*>(
              ctx.Out(scales_out, DType::kFloat, blocks).raw())};
}

CodedState CodedStateOf(KernelContext& ctx, const Settings& s) {
  const Shape shape = Operand(ctx, 0).shape();
  const UpdateLayout layout = LayoutFor(ctx, s.rule);
  auto moment = [&](size_t i) {
    return CodedMomentOf(ctx, shape, 2 + i, layout.scales_in() + i, 1 + i,
                         layout.scales_out() + i);
  };
  CodedState x = {
      .p = ParameterOf(ctx, s.rule),
      .g = static_cast<const float*>(OperandAt(ctx, 1, DType::kFloat, shape)),
      .m = moment(0)};
  if (layout.moments > 1) x.v = moment(1);
  x.blocks = MomentBlocksOf(shape);
  return x;
}

size_t UpdateWorkspace(KernelContext& ctx) {
  return sizeof(Space) + (ctx.Has("to") ? sizeof(Codes) : 0);
}

Space* SpaceOf(KernelContext& ctx) {
  return static_cast<Space*>(ctx.Workspace(UpdateWorkspace(ctx)));
}

Tuning TuningOf(KernelContext& ctx, const Settings& s) {
  const DrawSettings draws = DrawSettingsOf(ctx);
  Tuning own = {.lr_scale = ctx.Float("lr_scale", 1),
                .weight_decay = ctx.Float("weight_decay", 0),
                .master_stream = DrawSettingsOf(ctx, "master_stream").stream,
                .stream = draws.stream,
                .places = draws.places,
                .space = SpaceOf(ctx)};
  if (!s.measured) return own;
  const size_t amax = LayoutFor(ctx, s.rule).amax_out();
  own.amax = static_cast<float*>(ctx.Out(amax, DType::kFloat, {}).raw());
  return own;
}

CodesOfTensor CodesOf(KernelContext& ctx, const Settings& s) {
  const UpdateLayout layout = LayoutFor(ctx, s.rule);
  const size_t first = layout.codes_out();
  auto number = [&](size_t i) {
    return static_cast<float*>(ctx.Out(i, DType::kFloat, {}).raw());
  };
  const DType to = s.e4m3 ? DType::kE4M3 : DType::kE5M2;
  void* q = ctx.Out(first, to, ctx.In(0).shape()).raw();
  const void* scale = OperandAt(ctx, layout.code_scale_in(), DType::kFloat, {});
  return {{.q = static_cast<uint8_t*>(q),
           .scale_out = number(first + 1),
           .amax_out = number(first + 2)},
          static_cast<const float*>(scale),
          SpaceOf(ctx)};
}

NewParameter NewParameterOf(KernelContext& ctx, const Settings& s) {
  Parameter p = ParameterOf(ctx, s.rule);
  p.in = p.out;
  p.correction = p.correction_out;
  return {p, ctx.In(0).size(), SpaceOf(ctx)};
}

// Launches the kernel that prepares codes of the new parameters, calls start(),
// and launches the kernel that completes the codes.
template <typename Start>
void WithCodes(std::span<KernelContext> nodes, const Settings& s, Start start) {
  if (!s.quantizes) return start();
  std::vector<CodesOfTensor> codes;
  std::vector<NewParameter> parameters;
  for (KernelContext& ctx : nodes) {
    codes.push_back(CodesOf(ctx, s));
    parameters.push_back(NewParameterOf(ctx, s));
  }
  cudaStream_t stream = QueueOf(nodes[0]).stream();
  static_assert(Many<CodesOfTensor>::kMost <= kThreads);
  ForMany(
      codes, [](const CodesOfTensor&) { return 1u; },
      [&](const Many<CodesOfTensor>& many) {
        Launch(CodesKernel, 1, kThreads, 0, stream, many);
      });
  start();
  ForMany(
      parameters,
      [](const NewParameter& x) {
        return std::clamp(BlocksFor(x.n), 1u, kMostCodeBlocks);
      },
      [&](const Many<NewParameter>& many) {
        Launch(CodesEndKernel, many.blocks, kThreads, 0, stream, s, many);
      });
}

unsigned WarpsFor(const MomentBlocks& blocks) {
  const int64_t count = blocks.columns > 0 ? blocks.count() : 0;
  return static_cast<unsigned>(DivideUp(count, kMomentWarps));
}

// Calls start(many) for the states of the nodes.
template <typename T, typename Blocks, typename Start>
void ForStates(std::span<KernelContext> nodes, const Settings& s,
               T state_of(KernelContext&, const Settings&), Blocks blocks_of,
               Start start) {
  static_assert(Many<Tuning>::kMost <= kThreads);
  std::vector<Tuning> tunings;
  std::vector<T> states;
  for (KernelContext& ctx : nodes) {
    tunings.push_back(TuningOf(ctx, s));
    states.push_back(state_of(ctx, s));
    states.back().space = tunings.back().space;
  }
  auto for_tunings = [&](void (*kernel)(Settings, Many<Tuning>)) {
    ForMany(
        tunings, [](const Tuning&) { return 1u; },
        [&](const Many<Tuning>& many) {
          Launch(kernel, 1, kThreads, 0, QueueOf(nodes[0]).stream(), s, many);
        });
  };
  for_tunings(FactorsKernel);
  WithCodes(nodes, s, [&] { ForMany(states, blocks_of, start); });
  if (s.measured) for_tunings(AmaxesKernel);
}

void StartUpdates(std::span<KernelContext> nodes, const Settings& s) {
  cudaStream_t stream = QueueOf(nodes[0]).stream();
  if (s.codes) {
    return ForStates(
        nodes, s, CodedStateOf,
        [](const CodedState& x) { return WarpsFor(x.blocks); },
        [&](const Many<CodedState>& many) {
          Launch(UpdateCodedKernel, many.blocks, kThreads, 0, stream, s, many);
        });
  }
  ForStates(
      nodes, s, StateOf, [](const State& x) { return BlocksFor(x.n); },
      [&](const Many<State>& many) {
        Launch(UpdateKernel, many.blocks, kThreads, 0, stream, s, many);
      });
}

// Neighbors with the same settings share a kernel.
template <Rule kRule>
void UpdateMany(std::span<KernelContext> nodes) {
  while (!nodes.empty()) {
    const Settings settings = SettingsOf(nodes[0], kRule);
    size_t count = 1;
    while (count < nodes.size() &&
           SettingsOf(nodes[count], kRule) == settings) {
      ++count;
    }
    StartUpdates(nodes.first(count), settings);
    nodes = nodes.subspan(count);
  }
}

template <Rule kRule>
void Update(KernelContext& ctx) {
  UpdateMany<kRule>({&ctx, 1});
}

// Inputs: two moments, step.
void UpdateAmax(KernelContext& ctx) {
  const Shape shape = Operand(ctx, 0).shape();
  auto* m = static_cast<const float*>(OperandAt(ctx, 0, DType::kFloat, shape));
  auto* v = static_cast<const float*>(OperandAt(ctx, 1, DType::kFloat, shape));
  const Settings s = {
      .rule = Rule::kAdam,
      .step = static_cast<const int64_t*>(OperandAt(ctx, 2, DType::kInt64, {})),
      .new1 = ctx.Float("one_minus_beta1", 0.1f),
      .new2 = ctx.Float("one_minus_beta2", 0.001f),
      .eps = ctx.Float("eps", 1e-8f)};
  Space* space = SpaceOf(ctx);
  auto* amax = static_cast<float*>(ctx.Out(0, DType::kFloat, {}).raw());
  const int64_t n = ctx.In(0).size();
  cudaStream_t stream = QueueOf(ctx).stream();
  Launch(CorrectKernel, 1, 1, 0, stream, s, space);
  if (n > 0) {
    Launch(SizesKernel, BlocksFor(n), kThreads, 0, stream, s, m, v, n, space);
  }
  Launch(AmaxKernel, 1, 1, 0, stream, space, amax);
}

// Inputs: x, seed, update.
void RoundStochasticOp(KernelContext& ctx) {
  const Shape shape = Operand(ctx, 0).shape();
  CheckOperand(ctx, 0, DType::kFloat, shape);
  for (size_t i : {1, 2}) CheckOperand(ctx, i, DType::kInt64, {});
  auto scalar = [&](size_t i) {
    return static_cast<const int64_t*>(ctx.In(i).raw());
  };
  const int64_t n = ctx.In(0).size();
  void* y = ctx.Out(0, DType::kBFloat16, shape).raw();
  if (n == 0) return;
  Launch(RoundStochasticKernel, BlocksFor(n), kThreads, 0,
         QueueOf(ctx).stream(), static_cast<const float*>(ctx.In(0).raw()),
         static_cast<uint16_t*>(y), n, scalar(1), scalar(2),
         DrawSettingsOf(ctx));
}

// Inputs: codes, scale.
void DecodeMoment(KernelContext& ctx) {
  const Shape shape = Operand(ctx, 0).shape();
  Check(shape.size() >= 2, "[", ctx.Where(),
        "] expected codes of rank 2 or more");
  const CodedMoment moment = {
      .codes =
          static_cast<const uint8_t*>(OperandAt(ctx, 0, DType::kE4M3, shape)),
      .scales = static_cast<const float*>(
          OperandAt(ctx, 1, DType::kFloat, MomentScaleShape(shape)))};
  auto* x = static_cast<float*>(ctx.Out(0, DType::kFloat, shape).raw());
  const MomentBlocks blocks = MomentBlocksOf(shape);
  const unsigned warps = WarpsFor(blocks);
  if (warps == 0) return;
  Launch(DecodeMomentKernel, warps, kThreads, 0, QueueOf(ctx).stream(), moment,
         blocks, ctx.Int("squared", 0) != 0, x);
}

// Inputs: x, codes, scale, ok, and for a mean of squares seed, update.
template <bool kSquare>
void EncodeMoment(KernelContext& ctx) {
  const Shape shape = Operand(ctx, 1).shape();
  const CodedMoment moment = CodedMomentOf(ctx, shape, 1, 2, 0, 1);
  auto* x = static_cast<const float*>(OperandAt(ctx, 0, DType::kFloat, shape));
  auto* ok = static_cast<const bool*>(OperandAt(ctx, 3, DType::kBool, {}));
  const int64_t* draws[2] = {};
  for (size_t i = 0; kSquare && i < 2; ++i) {
    draws[i] =
        static_cast<const int64_t*>(OperandAt(ctx, 4 + i, DType::kInt64, {}));
  }
  const MomentBlocks blocks = MomentBlocksOf(shape);
  const unsigned warps = WarpsFor(blocks);
  if (warps == 0) return;
  Launch(EncodeMomentKernel<kSquare>, warps, kThreads, 0, QueueOf(ctx).stream(),
         x, moment, blocks, ok, draws[0], draws[1], DrawSettingsOf(ctx));
}

template <Rule kRule>
void Register(KernelRegistry& r, const char* op) {
  r.Add(op, Update<kRule>,
        {.in_place = UpdatesInPlace(Moments(kRule), Steps(kRule)),
         .coded_state = true,
         .workspace = UpdateWorkspace,
         .many = UpdateMany<kRule>},
        kDomain);
}

}  // namespace

void RegisterOptimizer(KernelRegistry& r) {
  Register<Rule::kSgd>(r, "SGD");
  Register<Rule::kMomentum>(r, "SGDMomentum");
  Register<Rule::kAdam>(r, "Adam");
  Register<Rule::kAdamW>(r, "AdamW");
  r.Add("UpdateAmax", UpdateAmax, {.workspace = UpdateWorkspace}, kDomain);
  r.Add("RoundStochastic", RoundStochasticOp, {}, kDomain);
  const KernelTraits encode{.in_place = {{1, 0}, {2, 1}}};
  r.Add("DecodeMoment", DecodeMoment, {}, kDomain);
  r.Add("EncodeMoment", EncodeMoment<false>, encode, kDomain);
  r.Add("EncodeSecondMoment", EncodeMoment<true>, encode, kDomain);
}

}  // namespace onnx_fp8::cuda
