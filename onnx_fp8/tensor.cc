// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <type_traits>

#include "base/check.h"
#include "base/out_of_memory.h"
#include "base/saturating_cast.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

// Kernels read matrices across their rows: with pages of 4 KiB nearly every
// row's address would have to be translated anew. The system may ignore it.
void UseHugePages(void* data, size_t bytes) {
#if defined(MADV_HUGEPAGE)
  if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

// Memory of the whole machine. The system promises even more than that, and
// ends the process when it uses too much.
size_t MemoryBytes() {
  static const size_t bytes =
      static_cast<size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) *
      static_cast<size_t>(std::max(0L, sysconf(_SC_PAGE_SIZE)));
  return bytes;
}

void CheckBytes(size_t bytes) {
  Check(bytes <= MemoryBytes(), "expected to need at most the machine's ",
        MemoryBytes(), " bytes of memory, got ", bytes,
        ": use smaller batches or a smaller model");
}

// Zeros of this size or more get pages of their own.
constexpr size_t kLarge = size_t{1} << 20;

// Fresh pages take no memory until they are written. The initial moments of a
// large model are only copied, so they never take any. (calloc would often
// return used pages.)
std::shared_ptr<void> ZeroBytes(size_t bytes) {
  if (bytes < kLarge) {
    std::shared_ptr<void> data = AllocateBytes(bytes);
    std::memset(data.get(), 0, bytes);
    return data;
  }
  CheckBytes(bytes);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) FailOutOfMemory(bytes);
  UseHugePages(data, bytes);
  return std::shared_ptr<void>(data, [bytes](void* p) { munmap(p, bytes); });
}

// Calls fn.operator()<T>() for the C++ type of a numeric dtype.
template <typename Fn>
auto Dispatch(DType dtype, Fn fn) {
  switch (dtype) {
    case DType::kFloat:
      return fn.template operator()<float>();
    case DType::kDouble:
      return fn.template operator()<double>();
    case DType::kUInt8:
      return fn.template operator()<uint8_t>();
    case DType::kInt8:
      return fn.template operator()<int8_t>();
    case DType::kUInt16:
      return fn.template operator()<uint16_t>();
    case DType::kInt16:
      return fn.template operator()<int16_t>();
    case DType::kInt32:
      return fn.template operator()<int32_t>();
    case DType::kInt64:
      return fn.template operator()<int64_t>();
    case DType::kBool:
      return fn.template operator()<bool>();
    case DType::kUInt32:
      return fn.template operator()<uint32_t>();
    case DType::kUInt64:
      return fn.template operator()<uint64_t>();
    case DType::kFloat16:
      return fn.template operator()<Float16>();
    case DType::kBFloat16:
      return fn.template operator()<BFloat16>();
    case DType::kE4M3:
      return fn.template operator()<E4M3>();
    case DType::kE5M2:
      return fn.template operator()<E5M2>();
    case DType::kE8M0:
      return fn.template operator()<E8M0>();
    default:
      Fail("expected a numeric tensor, got ", Name(dtype));
  }
}

// Arithmetic types stay as they are; small floats become float.
template <typename T>
auto Widen(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return x;
  } else {
    return Decode(x);
  }
}

template <typename To, typename From>
To ConvertElement(From from) {
  auto x = Widen(from);
  if constexpr (std::is_arithmetic_v<To>) {
    return SaturatingCast<To>(x);
  } else {
    float f = static_cast<float>(x);
    if constexpr (std::is_same_v<To, Float16>) return EncodeFloat16(f);
    if constexpr (std::is_same_v<To, BFloat16>) return EncodeBFloat16(f);
    if constexpr (std::is_same_v<To, E4M3>) return EncodeE4M3(f);
    if constexpr (std::is_same_v<To, E5M2>) return EncodeE5M2(f);
    if constexpr (std::is_same_v<To, E8M0>) return EncodeE8M0(f);
  }
}

}  // namespace

std::shared_ptr<void> AllocateBytes(size_t bytes) {
  CheckBytes(bytes);
  size_t rounded =
      (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  bool large = rounded >= 2 * kHugePage;
  void* data = nullptr;
  if (posix_memalign(&data, large ? kHugePage : kAlignment, rounded) != 0) {
    FailOutOfMemory(bytes);
  }
  if (large) UseHugePages(data, rounded);
  return std::shared_ptr<void>(data, std::free);
}

Tensor Tensor::Allocate(DType dtype, Shape shape) {
  Tensor t = OfType(dtype, std::move(shape));
  t.owner_ = AllocateBytes(t.bytes());
  t.data_ = t.owner_.get();
  return t;
}

Tensor Tensor::OfType(DType dtype, Shape shape) {
  Check(ByteSize(dtype) > 0, "expected a numeric dtype, got ", Name(dtype));
  Tensor t;
  t.dtype_ = dtype;
  t.size_ = NumElements(shape);
  t.shape_ = std::move(shape);
  size_t size = ByteSize(dtype);
  if (static_cast<size_t>(t.size_) >= SIZE_MAX / 2 / size) {
    Fail("expected a tensor that fits into memory, got shape ",
         ToString(t.shape_));
  }
  return t;
}

Tensor Tensor::Zeros(DType dtype, Shape shape) {
  Tensor t = OfType(dtype, std::move(shape));
  t.owner_ = ZeroBytes(t.bytes());
  t.data_ = t.owner_.get();
  return t;
}

Tensor Tensor::View(DType dtype, Shape shape, std::shared_ptr<void> owner,
                    void* data, Device device) {
  Tensor t;
  t.dtype_ = dtype;
  t.device_ = device;
  t.size_ = NumElements(shape);
  t.shape_ = std::move(shape);
  t.data_ = data;
  t.owner_ = std::move(owner);
  return t;
}

Tensor Tensor::Reshaped(Shape shape) const {
  Check(NumElements(shape) == size_, "expected ", size_,
        " elements, got shape ", ToString(shape));
  Tensor t = *this;
  t.shape_ = std::move(shape);
  return t;
}

Tensor Tensor::Clone() const {
  if (!defined()) return {};
  RequireHost();
  Tensor t = Allocate(dtype_, shape_);
  if (bytes() > 0) std::memcpy(t.data_, data_, bytes());
  return t;
}

void Tensor::RequireHost() const {
  if (on_host()) return;
  Fail("expected a tensor in host memory, got ", Name(dtype_), ToString(shape_),
       " in its provider's");
}

int64_t IntAt(const Tensor& t, int64_t i) {
  t.RequireHost();
  Check(IsInteger(t.dtype()) || t.dtype() == DType::kBool,
        "expected an integer tensor, got ", Name(t.dtype()));
  assert(i >= 0 && i < t.size());
  return Dispatch(t.dtype(), [&]<typename T>() -> int64_t {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<int64_t>(t.data<T>()[i]);
    } else {
      return 0;
    }
  });
}

std::vector<int64_t> ToInts(const Tensor& t) {
  std::vector<int64_t> values(static_cast<size_t>(t.size()));
  for (int64_t i = 0; i < t.size(); ++i) {
    values[static_cast<size_t>(i)] = IntAt(t, i);
  }
  return values;
}

double DoubleAt(const Tensor& t, int64_t i) {
  t.RequireHost();
  assert(i >= 0 && i < t.size());
  return Dispatch(t.dtype(), [&]<typename T>() -> double {
    return static_cast<double>(Widen(t.data<T>()[i]));
  });
}

bool Identical(const Tensor& a, const Tensor& b) {
  a.RequireHost();
  b.RequireHost();
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

Tensor ConvertTo(const Tensor& t, DType dtype) {
  t.RequireHost();
  if (t.dtype() == dtype) return t.Clone();
  Tensor out = Tensor::Allocate(dtype, t.shape());
  Dispatch(t.dtype(), [&]<typename From>() {
    Dispatch(dtype, [&]<typename To>() {
      const From* x = t.data<From>();
      To* y = out.data<To>();
      for (int64_t i = 0; i < t.size(); ++i) {
        y[i] = ConvertElement<To>(x[i]);
      }
    });
  });
  return out;
}

}  // namespace onnx_fp8
