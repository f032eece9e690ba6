// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/master_codec.h"

#include "base/master_codes.h"
#include "providers/cpu/math/narrow_floats.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/math/round_stochastic.h"

namespace onnx_fp8 {
namespace {

template <typename T>
void DecodeSplit(const MasterCodec& codec, int64_t begin, int64_t n, float* x) {
  const uint16_t* half = codec.in + begin;
  const T* rest = static_cast<const T*>(codec.correction_in) + begin;
  OnBestIsa([=] { DecodeMasters(half, rest, n, x); });
}

template <typename T>
void EncodeSplit(const MasterCodec& codec, const float* x, int64_t begin,
                 int64_t n) {
  uint16_t* half = codec.out + begin;
  T* rest = static_cast<T*>(codec.correction_out) + begin;
  OnBestIsa([=] { EncodeMasters(x, n, half, rest); });
}

}  // namespace

void MasterCodec::Decode(int64_t begin, int64_t n, float* x) const {
  if (correction == DType::kInt8) {
    DecodeSplit<int8_t>(*this, begin, n, x);
  } else if (correction == DType::kInt16) {
    DecodeSplit<int16_t>(*this, begin, n, x);
  } else {
    WidenFloats(DType::kBFloat16, in + begin, x, n);
  }
}

void MasterCodec::Encode(const float* x, int64_t begin, int64_t n) const {
  if (correction == DType::kInt8) {
    EncodeSplit<int8_t>(*this, x, begin, n);
  } else if (correction == DType::kInt16) {
    EncodeSplit<int16_t>(*this, x, begin, n);
  } else {
    RoundStochastic(x, out + begin, begin, n, places, key);
  }
}

}  // namespace onnx_fp8
