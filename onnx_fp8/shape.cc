// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/shape.h"

#include <algorithm>

#include "base/check.h"

namespace onnx_fp8 {

int64_t NumElements(std::span<const int64_t> shape) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t size : shape) {
    // No Check: it would write the shape out at every call.
    if (size < 0) Fail("expected known axis sizes, got ", ToString(shape));
    empty |= size == 0;
    // Also for an empty tensor: its strides must not overflow.
    if (__builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count)) {
      Fail("expected a tensor of less than 2^63 elements, got shape ",
           ToString(shape));
    }
  }
  return empty ? 0 : count;
}

bool IsConcrete(std::span<const int64_t> shape) {
  return std::ranges::all_of(shape, [](int64_t size) { return size >= 0; });
}

std::vector<int64_t> Strides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

Shape BroadcastShapes(const Shape& a, const Shape& b,
                      const std::string& where) {
  Shape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    // i counts axes from the innermost.
    int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1;
    int64_t db = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (da != db && da != 1 && db != 1) {
      Fail("[", where, "] expected shapes that broadcast, got ", ToString(a),
           " and ", ToString(b));
    }
    out[out.size() - 1 - i] = da == 1 ? db : da;
  }
  return out;
}

int64_t NormalizeAxis(int64_t axis, int64_t rank, const std::string& where) {
  Check(axis >= -rank && axis < rank, "[", where, "] expected an axis in ",
        -rank, "…", rank - 1, ", got ", axis);
  return axis < 0 ? axis + rank : axis;
}

std::string ToString(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ",";
    text += shape[i] < 0 ? "?" : std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace onnx_fp8
