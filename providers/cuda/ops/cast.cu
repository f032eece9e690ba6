// SPDX-License-Identifier: Apache-2.0
//
// Cast among float, double, float16, bfloat16, FP8, int32, int64, uint8 and
// bool; RoundTo, which may measure its result. Traffic: the operand is read
// once, the result is written once.
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/encode.h"
#include "providers/cuda/core/many.h"
#include "providers/cuda/ops/convert.h"
#include "providers/kernel.h"
#include "providers/ops/bits.h"

namespace onnx_fp8::cuda {
namespace {

template <bool kE4M3>
struct Code {
  uint8_t byte;
};

template <bool kE4M3>
__device__ float Number(Code<kE4M3> x) {
  return Decode<kE4M3>(x.byte);
}

template <typename T>
__device__ auto Number(T x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __half2float(x);
  } else {
    return x;
  }
}

// To integers: NaN becomes 0, too large numbers the largest one.
template <typename To, typename From>
__device__ To Converted(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, __half>) {
    return __float2half_rn(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, Code<true>>) {
    return {static_cast<uint8_t>(Encode<true>(static_cast<float>(x)))};
  } else if constexpr (std::is_same_v<To, Code<false>>) {
    return {static_cast<uint8_t>(Encode<false>(static_cast<float>(x)))};
  } else if constexpr (std::is_integral_v<To> &&
                       std::is_floating_point_v<From>) {
    constexpr bool kSigned = std::is_signed_v<To>;
    constexpr int kBits = 8 * sizeof(To) - (kSigned ? 1 : 0);
    constexpr From kEnd = static_cast<From>(uint64_t{1} << (kBits - 1)) * 2;
    constexpr To kMost = static_cast<To>((uint64_t{1} << (kBits - 1)) * 2 - 1);
    if (x != x) return 0;
    if (x >= kEnd) return kMost;
    if (x < (kSigned ? -kEnd : From{0})) {
      return kSigned ? static_cast<To>(-kMost - 1) : To{0};
    }
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// All loads start before the first store. REQUIRES: x and y are aligned to 16
// bytes.
template <typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    ConvertKernel(const From* x, To* y, int64_t n) {
  int64_t first = blockIdx.x * kPerBlock + threadIdx.x;
  VectorOf4<From> in[kAtOnce];
  ONNX_FP8_UNROLL
  for (int v = 0; v < kAtOnce; ++v) {
    int64_t at = first + v * kThreads;
    if ((at + 1) * 4 <= n)
      in[v] = reinterpret_cast<const VectorOf4<From>*>(x)[at];
  }
  ONNX_FP8_UNROLL
  for (int v = 0; v < kAtOnce; ++v) {
    int64_t at = first + v * kThreads;
    if ((at + 1) * 4 > n) continue;
    VectorOf4<To> out;
    for (int k = 0; k < 4; ++k) out.x[k] = Converted<To>(Number(in[v].x[k]));
    reinterpret_cast<VectorOf4<To>*>(y)[at] = out;
  }
  int64_t rest = n / 4 * 4 + threadIdx.x;
  if (blockIdx.x + 1 == gridDim.x && rest < n) {
    y[rest] = Converted<To>(Number(x[rest]));
  }
}

// fn.operator()<T>() with the type of the device. Errors: another dtype.
template <typename Fn>
void ForType(DType dtype, const std::string& where, Fn fn) {
  switch (dtype) {
    case DType::kFloat:
      return fn.template operator()<float>();
    case DType::kDouble:
      return fn.template operator()<double>();
    case DType::kBFloat16:
      return fn.template operator()<__nv_bfloat16>();
    case DType::kFloat16:
      return fn.template operator()<__half>();
    case DType::kE4M3:
      return fn.template operator()<Code<true>>();
    case DType::kE5M2:
      return fn.template operator()<Code<false>>();
    case DType::kInt64:
      return fn.template operator()<int64_t>();
    case DType::kInt32:
      return fn.template operator()<int32_t>();
    case DType::kUInt8:
      return fn.template operator()<uint8_t>();
    case DType::kBool:
      return fn.template operator()<bool>();
    default:
      Fail("[", where,
           "] expected a dtype that the GPU converts (float, "
           "double, float16, bfloat16, float8e4m3fn, float8e5m2, int64, int32, "
           "uint8, bool), got ",
           Name(dtype));
  }
}

struct Same {
  Storage storage;
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = Rounded(storage, in[0]);
  }
};

void Cast(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  Check(!IsFloat8(to) || ctx.Int("saturate", 1) != 0, "[", ctx.Where(),
        "] expected saturate = 1 on the GPU, got 0");
  Tensor& y = ctx.Out(0, to, x.shape());
  Convert(QueueOf(ctx), ctx.Where(), x.raw(), x.dtype(), y.raw(), to, x.size());
}

// ---- RoundTo of many floats, such as all weights: one kernel

struct Rounding {
  FloatsIn x;   // floats
  FloatsOut y;  // in 16 bits
  int64_t n;
  DeviceAmax* amax;  // of y; null: nobody asks for it
};

// Elements of a block.
constexpr int64_t kRoundRun = kPerBlock * kPerThread;

__global__ void __launch_bounds__(kThreads) RoundKernel(Many<Rounding> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Rounding& z = many.tensors[tensor];
  const FloatsIn from = {z.x.data, Storage::kFloat};
  int64_t first = (blockIdx.x - many.begin[tensor]) * kRoundRun;
  Vector raw[kAtOnce];
  AmaxPart seen;
  auto place = [&](int v) {
    return first + (v * kThreads + int64_t{threadIdx.x}) * kPerThread;
  };
  ONNX_FP8_UNROLL
  for (int v = 0; v < kAtOnce; ++v) {
    if (place(v) + kPerThread <= z.n) raw[v] = LoadVector4(from, place(v));
  }
  ONNX_FP8_UNROLL
  for (int v = 0; v < kAtOnce; ++v) {
    if (place(v) + kPerThread > z.n) continue;
    float x[kPerThread];
    ToFloats(Storage::kFloat, raw[v], x);
    Store4(z.y, place(v), x);
    if (z.amax) seen.Add4(x);
  }
  int64_t rest = z.n / kPerThread * kPerThread + threadIdx.x;
  if (rest >= first && rest < first + kRoundRun && rest < z.n) {
    seen.Add(Store(z.y, rest, Load(from, rest)));
  }
  seen.AddOfBlock(z.amax);
}

void RoundMany(std::span<KernelContext> nodes) {
  std::vector<Rounding> all;
  for (KernelContext& ctx : nodes) {
    const Tensor& x = Operand(ctx, 0);
    Storage to = StorageOf(ctx, static_cast<DType>(ctx.Int("to", 0)));
    FloatsOut y = FloatsTo(ctx, 0, x.shape());
    bool narrows = x.dtype() == DType::kFloat && y.data != x.raw() &&
                   y.storage == to && to != Storage::kFloat;
    if (narrows) {
      all.push_back({FloatsOf(ctx, 0), y, x.size(), ClearedAmax(ctx, 0)});
    } else {
      MapElements<1, 1>(ctx, Same{to});
    }
  }
  auto blocks = [](const Rounding& z) {
    return static_cast<unsigned>(DivideUp(z.n, kRoundRun));
  };
  ForMany(all, blocks, [&](const Many<Rounding>& many) {
    Launch(RoundKernel, many.blocks, kThreads, 0, QueueOf(nodes[0]).stream(),
           many);
  });
}

void RoundTo(KernelContext& ctx) { RoundMany({&ctx, 1}); }

void BitCast(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Tensor& y = ctx.Out(0, BitCastTarget(ctx), x.shape());
  if (x.bytes() == 0) return;
  ONNX_FP8_CUDA(cudaMemcpyAsync(y.raw(), x.raw(), x.bytes(), cudaMemcpyDefault,
                                QueueOf(ctx).stream()));
}

}  // namespace

void Convert(const Queue& queue, const std::string& where, const void* x,
             DType dtype, void* to, DType to_dtype, int64_t n) {
  if (n == 0) return;
  if (dtype == to_dtype) {
    ONNX_FP8_CUDA(cudaMemcpyAsync(to, x,
                                  static_cast<size_t>(n) * ByteSize(dtype),
                                  cudaMemcpyDefault, queue.stream()));
    return;
  }
  auto blocks = static_cast<unsigned>(DivideUp(DivideUp(n, 4), kPerBlock));
  ForType(dtype, where, [&]<typename From>() {
    ForType(to_dtype, where, [&]<typename To>() {
      Launch(ConvertKernel<From, To>, blocks, kThreads, 0, queue.stream(),
             static_cast<const From*>(x), static_cast<To*>(to), n);
    });
  });
}

void RegisterCast(KernelRegistry& r) {
  r.Add("BitCast", BitCast);
  r.Add("Cast", Cast);
  r.Add("RoundTo", RoundTo,
        {.in_place = {{0, 0}},
         .measures = {0},
         .narrow_in = {0},
         .narrow_out = {0},
         .many = RoundMany},
        kDomain);
}

}  // namespace onnx_fp8::cuda
