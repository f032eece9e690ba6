// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/check_inference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "graph/einsum_equation.h"

namespace onnx_fp8 {
namespace {

// Larger constants are data, not shapes, axes or bounds.
constexpr int64_t kMaxKnownElements = 4096;

// With SAME_UPPER and SAME_LOWER ONNX takes a remainder by repeated
// subtraction.
constexpr int64_t kMaxSameAxis = int64_t{1} << 24;

// Larger scales make no image; the product with an axis fits 64 bits.
constexpr double kMaxScale = 1 << 20;

bool Ranked(const Value* value) { return value && value->shape; }

// Checks that the two operands have the same rank, at least 2.
void SameRank(const Node& node, size_t x, size_t w) {
  if (!Ranked(node.in(x)) || !Ranked(node.in(w))) return;
  int64_t rank = node.in(x)->rank();
  if (node.in(w)->rank() == rank && rank >= 2) return;
  Fail("[", node.Where(), "] expected input ", w, " (\"", node.in(w)->name,
       "\") to have the rank of input ", x, ", ", rank, " and at least 2, got ",
       node.in(w)->rank());
}

void SamePads(const Node& node) {
  const Value* x = node.in(0);
  if (!node.String("auto_pad", "NOTSET").starts_with("SAME")) return;
  if (!Ranked(x)) return;
  for (int64_t size : *x->shape) {
    Check(size <= kMaxSameAxis, "[", node.Where(),
          "] expected axes of at most ", kMaxSameAxis, " with auto_pad ",
          node.String("auto_pad", ""), ", got ", size);
  }
}

void Conv(const Node& node) {
  SameRank(node, 0, 1);
  SamePads(node);
}

void QLinearConv(const Node& node) {
  SameRank(node, 0, 3);
  SamePads(node);
}

void MaxUnpool(const Node& node) {
  Check(Ranked(node.in(1)) || !Ranked(node.in(0)), "[", node.Where(),
        "] expected indices of a known rank");
  SameRank(node, 0, 1);
}

void MaxRoiPool(const Node& node) {
  Check(!Ranked(node.in(0)) || node.in(0)->rank() == 4, "[", node.Where(),
        "] expected an input of rank 4");
}

// Operand `i` lists sizes: at most `length` of them, each from `lowest` on.
void Sizes(const Node& node, size_t i, int64_t lowest, int64_t length) {
  const Value* value = node.in(i);
  if (!Ranked(value)) return;
  int64_t count = value->rank() == 1 ? value->dim(0) : 1;
  Check(count <= length, "[", node.Where(), "] expected input ", i, " (\"",
        value->name, "\") to list at most ", length, " sizes, got ", count);
  const Tensor* data = KnownData(value);
  if (!data || !IsInteger(data->dtype())) return;
  for (int64_t size : ToInts(*data)) {
    Check(size >= lowest && size <= kMaxElements, "[", node.Where(),
          "] expected input ", i, " (\"", value->name, "\") to list sizes in ",
          lowest, "…", kMaxElements, ", got ", size);
  }
}

template <size_t kInput, int64_t kLowest>
void SizesAt(const Node& node) {
  Sizes(node, kInput, kLowest, kMaxRank);
}

void Pad(const Node& node) { Sizes(node, 1, -kMaxElements, 2 * kMaxRank); }

void Col2Im(const Node& node) {
  Sizes(node, 1, 0, kMaxRank);
  Sizes(node, 2, 1, kMaxRank);
  const Tensor* block = KnownData(node.in(2));
  if (!block || !IsInteger(block->dtype())) return;
  Check(Plausible(ToInts(*block)), "[", node.Where(),
        "] expected a block that fits into memory");
}

void Reshape(const Node& node) {
  Sizes(node, 1, -1, kMaxRank);
  const Tensor* to = KnownData(node.in(1));
  if (!to || !IsInteger(to->dtype())) return;
  Shape shape = ToInts(*to);
  const Value* x = node.in(0);
  for (size_t i = 0; i < shape.size(); ++i) {
    bool copied = shape[i] == 0 && Ranked(x) && i < x->shape->size();
    if (copied) shape[i] = (*x->shape)[i];
  }
  Check(Plausible(shape), "[", node.Where(),
        "] expected a tensor that fits into memory, got ", ToString(shape));
}

void Tile(const Node& node) {
  Sizes(node, 1, 0, kMaxRank);
  const Tensor* repeats = KnownData(node.in(1));
  const Value* x = node.in(0);
  if (!repeats || !Ranked(x) || !IsInteger(repeats->dtype())) return;
  Shape factors = ToInts(*repeats);
  for (size_t i = 0; i < std::min(factors.size(), x->shape->size()); ++i) {
    Check(Plausible({(*x->shape)[i], factors[i]}), "[", node.Where(),
          "] expected a tensor that fits into memory, got an axis of ",
          (*x->shape)[i], " times ", factors[i]);
  }
}

void Resize(const Node& node) {
  Sizes(node, 3, 0, kMaxRank);
  const Value* x = node.in(0);
  if (Ranked(x) &&
      node.String("keep_aspect_ratio_policy", "stretch") != "stretch") {
    Check(std::ranges::count(*x->shape, 0) == 0, "[", node.Where(),
          "] expected no axis of size 0 where the aspect ratio is kept");
  }
  const Tensor* scales = KnownData(node.in(2));
  for (int64_t i = 0; scales && i < scales->size(); ++i) {
    double scale = DoubleAt(*scales, i);
    Check(scale > 0 && scale <= kMaxScale, "[", node.Where(),
          "] expected scales above 0 and at most ", kMaxScale, ", got ", scale);
  }
}

void Split(const Node& node) {
  auto outputs = static_cast<int64_t>(node.outputs().size());
  if (node.Has("num_outputs")) {
    int64_t count = node.Int("num_outputs", 0);
    Check(count == outputs, "[", node.Where(), "] expected num_outputs to be ",
          outputs, ", the number of outputs, got ", count);
  }
  const Value* x = node.in(0);
  for (size_t i = 0; Ranked(x) && i < x->shape->size(); ++i) {
    Check((*x->shape)[i] <= INT32_MAX, "[", node.Where(),
          "] expected axes of at most ", INT32_MAX, ", got ", (*x->shape)[i]);
  }
  Sizes(node, 1, 0, kMaxKnownElements);
}

void SplitToSequence(const Node& node) {
  Check(!Ranked(node.in(0)) || node.in(0)->rank() > 0, "[", node.Where(),
        "] expected an input of rank 1 or more, got a scalar");
  Sizes(node, 1, 1, kMaxKnownElements);
}

// ONNX adds the lengths up as int.
void ConcatLength(const Node& node) {
  int64_t sum = 0;
  for (const Value* value : node.inputs()) {
    if (!Ranked(value) || value->rank() == 0) return;
    int64_t axis = node.Int("axis", 0);
    if (axis < -value->rank() || axis >= value->rank()) return;
    sum += std::max<int64_t>(value->dim(axis), 0);
    Check(sum <= INT32_MAX, "[", node.Where(), "] expected an axis of at most ",
          INT32_MAX, ", got more");
  }
}

void OneHot(const Node& node) {
  const Tensor* depth = KnownData(node.in(1));
  if (!depth) return;
  Check(depth->size() == 1, "[", node.Where(),
        "] expected a depth of one element, got ", depth->size());
  double value = DoubleAt(*depth, 0);
  Check(value >= 0 && value <= static_cast<double>(kMaxElements), "[",
        node.Where(), "] expected a depth in 0…", kMaxElements, ", got ",
        value);
}

void Range(const Node& node) {
  double bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    const Tensor* data = KnownData(node.in(i));
    if (!data) return;
    Check(data->size() == 1, "[", node.Where(),
          "] expected start, limit and delta of one element each");
    bounds[i] = DoubleAt(*data, 0);
    // The difference of two must fit 64 bits.
    Check(std::abs(bounds[i]) < 0x1p62, "[", node.Where(),
          "] expected finite start, limit and delta below 2^62, got ",
          bounds[i]);
  }
  Check(bounds[2] != 0, "[", node.Where(), "] expected a delta, got 0");
  Check((bounds[1] - bounds[0]) / bounds[2] < 0x1p62, "[", node.Where(),
        "] expected a tensor that fits into memory, got ",
        (bounds[1] - bounds[0]) / bounds[2], " elements");
}

void GatherND(const Node& node) {
  if (!Ranked(node.in(0)) || !Ranked(node.in(1))) return;
  int64_t rank = std::min(node.in(0)->rank(), node.in(1)->rank());
  int64_t batch = node.Int("batch_dims", 0);
  Check(batch >= 0 && batch < std::max<int64_t>(rank, 1), "[", node.Where(),
        "] expected batch_dims in 0…", rank - 1, ", got ", batch);
}

void Transpose(const Node& node) {
  if (!node.Has("perm") || !Ranked(node.in(0))) return;
  auto count = static_cast<int64_t>(node.Ints("perm").size());
  Check(count == node.in(0)->rank(), "[", node.Where(),
        "] expected perm to list ", node.in(0)->rank(), " axes, got ", count);
}

void Stft(const Node& node) { Sizes(node, 1, 1, 1); }

// The inference of normalizations reads the shape at any axis.
void NormAxis(const Node& node) {
  if (!Ranked(node.in(0))) return;
  NormalizeAxis(node.Int("axis", -1), node.in(0)->rank(), node.Where());
}

// Every ellipsis must cover the same number of axes.
void Einsum(const Node& node) {
  std::vector<std::string> terms = EquationTerms(
      node.String("equation", ""), node.inputs().size(), node.Where());
  std::optional<int64_t> covered;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].find("...") == std::string::npos) continue;
    if (!Ranked(node.in(i))) continue;
    int64_t axes =
        node.in(i)->rank() - static_cast<int64_t>(terms[i].size()) + 3;
    Check(axes == covered.value_or(axes), "[", node.Where(),
          "] expected each ellipsis to stand for ", covered.value_or(0),
          " axes, got ", axes);
    covered = axes;
  }
}

using Checks = std::map<std::string, void (*)(const Node&), std::less<>>;

const Checks& Table() {
  static const Checks checks = {
      {"AffineGrid", SizesAt<1, 0>},
      {"AveragePool", SamePads},
      {"CenterCropPad", SizesAt<1, 0>},
      {"Col2Im", Col2Im},
      {"Concat", ConcatLength},
      {"ConstantOfShape", SizesAt<0, 0>},
      {"Conv", Conv},
      {"ConvInteger", Conv},
      {"ConvTranspose", Conv},
      {"DeformConv", Conv},
      {"Einsum", Einsum},
      {"Expand", SizesAt<1, -1>},
      {"GatherND", GatherND},
      {"LayerNormalization", NormAxis},
      {"LpPool", SamePads},
      {"MaxPool", SamePads},
      {"MaxRoiPool", MaxRoiPool},
      {"MaxUnpool", MaxUnpool},
      {"OneHot", OneHot},
      {"Pad", Pad},
      {"QLinearConv", QLinearConv},
      {"RMSNormalization", NormAxis},
      {"Range", Range},
      {"Reshape", Reshape},
      {"Resize", Resize},
      {"STFT", Stft},
      {"Split", Split},
      {"SplitToSequence", SplitToSequence},
      {"Squeeze", SizesAt<1, -kMaxRank>},
      {"Tile", Tile},
      {"TopK", SizesAt<1, 0>},
      {"Transpose", Transpose},
      {"Unsqueeze", SizesAt<1, -kMaxRank>},
  };
  return checks;
}

}  // namespace

const Tensor* KnownData(const Value* value) {
  bool known = value && value->is_initializer() && value->role == Role::kNone &&
               value->data.size() <= kMaxKnownElements;
  return known ? &value->data : nullptr;
}

int64_t InferenceWork(const Node& node) {
  const Value* x = node.in(0);
  bool counts = Ranked(x) && node.attributes.contains("auto_pad") &&
                node.String("auto_pad", "NOTSET").starts_with("SAME");
  int64_t steps = 0;
  for (size_t i = 0; counts && i < x->shape->size(); ++i) {
    steps += std::clamp<int64_t>((*x->shape)[i], 0, kMaxSameAxis);
  }
  return steps;
}

void CheckDeclared(const Node& node, size_t i, DType declared, DType inferred) {
  bool same = declared == DType::kUndefined || inferred == DType::kUndefined ||
              declared == inferred;
  Check(same, "[", node.Where(), "] expected output ", i, " to be declared as ",
        Name(inferred), ", which the node computes, ", "got ", Name(declared));
}

void CheckInference(const Node& node) {
  CheckSizes(node, node.inputs());
  auto check = Table().find(node.op);
  if (check != Table().end()) check->second(node);
}

bool Plausible(const Shape& shape) {
  if (static_cast<int64_t>(shape.size()) > kMaxRank) return false;
  int64_t count = 1;
  for (int64_t size : shape) {
    size = std::max<int64_t>(size, 1);
    if (size > kMaxElements / count) return false;
    count *= size;
  }
  return true;
}

void CheckSizes(const Node& node, const std::vector<Value*>& values) {
  for (const Value* value : values) {
    if (!value || !value->shape || Plausible(*value->shape)) continue;
    Fail("[", node.Where(), "] expected a tensor that fits into memory, got ",
         ToString(*value->shape));
  }
}

}  // namespace onnx_fp8
