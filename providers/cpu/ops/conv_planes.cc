// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/ops/conv_planes.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/parallel.h"
#include "providers/cpu/math/on_isa.h"

namespace onnx_fp8 {
namespace {

// A vector of 64 bytes: one or more registers.
template <typename T>
using Lanes __attribute__((vector_size(64))) = T;

constexpr int kVectors = 4;
// Positions whose sums stay in registers.
template <typename T>
constexpr int64_t kAtOnce = kVectors * 64 / sizeof(T);

// A plane of x with its zeros around it, as large as all windows together. Then
// a tap reads the elements of all positions one after the other, and some that
// lie between them, whose sums are not used.
class Padded {
 public:
  explicit Padded(const Window& w) : w_(w) {
    for (size_t i = 0; i < 3; ++i) {
      sizes_[i] =
          (w.out[i] - 1) * w.stride[i] + 1 + (w.kernel[i] - 1) * w.dilation[i];
    }
    for (int64_t d = 0; d < w.kernel[0]; ++d) {
      for (int64_t h = 0; h < w.kernel[1]; ++h) {
        for (int64_t k = 0; k < w.kernel[2]; ++k) {
          taps_.push_back(At(d * w.dilation[0], h * w.dilation[1]) +
                          k * w.dilation[2]);
        }
      }
    }
  }

  int64_t size() const { return Window::Product(sizes_); }
  // Elements from the first result to the last one.
  int64_t results() const {
    return At((w_.out[0] - 1) * w_.stride[0], (w_.out[1] - 1) * w_.stride[1]) +
           (w_.out[2] - 1) * w_.stride[2] + 1;
  }
  const std::vector<int64_t>& taps() const { return taps_; }

  // Copies the lines of x. The rest of `padded` stays.
  template <typename T>
  void Fill(const T* x, T* padded) const {
    int64_t lo = std::max<int64_t>(0, -w_.pad[2]);
    int64_t hi = std::min(w_.in[2], sizes_[2] - w_.pad[2]);
    if (lo >= hi) return;
    for (int64_t d = 0; d < w_.in[0]; ++d) {
      int64_t pd = d + w_.pad[0];
      for (int64_t h = 0; h < w_.in[1]; ++h) {
        int64_t ph = h + w_.pad[1];
        bool inside = pd >= 0 && pd < sizes_[0] && ph >= 0 && ph < sizes_[1];
        if (!inside) continue;
        const T* line = x + (d * w_.in[1] + h) * w_.in[2];
        std::copy(line + lo, line + hi, padded + At(pd, ph) + w_.pad[2] + lo);
      }
    }
  }

  // Copies the results' lines out of `sums`.
  template <typename T>
  void Take(const T* sums, T* y) const {
    for (int64_t d = 0; d < w_.out[0]; ++d) {
      for (int64_t h = 0; h < w_.out[1]; ++h) {
        const T* line = sums + At(d * w_.stride[0], h * w_.stride[1]);
        for (int64_t i = 0; i < w_.out[2]; ++i) *y++ = line[i * w_.stride[2]];
      }
    }
  }

 private:
  int64_t At(int64_t d, int64_t h) const {
    return (d * sizes_[1] + h) * sizes_[2];
  }

  const Window& w_;
  Window::Axes sizes_;
  std::vector<int64_t> taps_;
};

// sums[i] = start + Σ_t weight[t] · x[i + taps[t]], or adds it, for i below n
// rounded up to kAtOnce.
template <typename T>
void Correlate(const T* x, const T* weight, const int64_t* taps, size_t count,
               T start, bool add, int64_t n, T* sums) {
  OnBestIsa([=] {
    for (int64_t at = 0; at < n; at += kAtOnce<T>) {
      Lanes<T> sum[kVectors], read[kVectors];
      for (Lanes<T>& v : sum) v = start - Lanes<T>{};
      for (size_t t = 0; t < count; ++t) {
        __builtin_memcpy(read, x + at + taps[t], sizeof(read));
        for (int v = 0; v < kVectors; ++v) sum[v] += weight[t] * read[v];
      }
      if (add) {
        __builtin_memcpy(read, sums + at, sizeof(read));
        for (int v = 0; v < kVectors; ++v) sum[v] += read[v];
      }
      __builtin_memcpy(sums + at, sum, sizeof(sum));
    }
  });
}

// Most sums computed per result. With more, products of matrices take less
// time.
constexpr double kMostSums = 32;

template <typename T>
void OverPlanes(const Padded& layout, const Window& w, int64_t planes,
                int64_t shared, int64_t depth, int64_t filters, const T* x,
                const T* weight, const T* bias, T* y) {
  const int64_t plane = Window::Product(w.in), results = Window::Product(w.out);
  const size_t count = layout.taps().size();
  auto taps = static_cast<int64_t>(count);
  ParallelFor(planes, 1, [&](int64_t begin, int64_t end) {
    thread_local std::vector<T> padded, sums;
    // The last block reads and writes behind the end.
    padded.assign(static_cast<size_t>(layout.size() + kAtOnce<T>), T{0});
    sums.resize(static_cast<size_t>(layout.results() + kAtOnce<T>));
    for (int64_t p = begin; p < end; ++p) {
      int64_t filter = p % filters;
      for (int64_t d = 0; d < depth; ++d) {
        layout.Fill(x + (p / shared * depth + d) * plane, padded.data());
        Correlate(padded.data(), weight + (filter * depth + d) * taps,
                  layout.taps().data(), count,
                  bias && d == 0 ? bias[filter] : T{0}, d > 0, layout.results(),
                  sums.data());
      }
      layout.Take(sums.data(), y + p * results);
    }
  });
}

}  // namespace

bool FitsPlanes(const Window& w) {
  // As Padded's, in numbers that don't overflow.
  std::array<double, 3> last, size;
  for (size_t i = 0; i < 3; ++i) {
    last[i] =
        static_cast<double>(w.out[i] - 1) * static_cast<double>(w.stride[i]);
    size[i] = last[i] + 1 +
              static_cast<double>(w.kernel[i] - 1) *
                  static_cast<double>(w.dilation[i]);
  }
  double padded = size[0] * size[1] * size[2];
  double sums = (last[0] * size[1] + last[1]) * size[2] + last[2] + 1;
  auto out = static_cast<double>(Window::Product(w.out));
  auto in = static_cast<double>(Window::Product(w.in));
  return padded <= 8 * (in + out) + 4096 &&
         sums + kAtOnce<float> <= kMostSums * out;
}

template <typename T>
void ConvolvePlanes(const Window& w, int64_t planes, int64_t shared,
                    int64_t depth, int64_t filters, const T* x, const T* weight,
                    const T* bias, T* y) {
  OverPlanes(Padded(w), w, planes, shared, depth, filters, x, weight, bias, y);
}

template void ConvolvePlanes(const Window&, int64_t, int64_t, int64_t, int64_t,
                             const float*, const float*, const float*, float*);
template void ConvolvePlanes(const Window&, int64_t, int64_t, int64_t, int64_t,
                             const double*, const double*, const double*,
                             double*);

}  // namespace onnx_fp8
