// SPDX-License-Identifier: Apache-2.0
#include "tests/training/random_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "graph/print.h"

namespace onnx_fp8 {
namespace {

using Axes = std::vector<int64_t>;

// Limit of an activation's size, so that a model takes milliseconds.
constexpr int64_t kMostElements = 2048;

class ModelMaker {
 public:
  ModelMaker(Graph& graph, uint64_t seed, bool samples_apart,
             RandomModel* model)
      : graph_(graph),
        b_(graph),
        seed_(seed),
        apart_(samples_apart),
        model_(*model) {}

  void Run() {
    model_.samples = Pick({2, 3, 4, 6});
    fresh_ = Below(3) == 0;
    Begin();
    for (int64_t i = 3 + Below(6); i > 0; --i) {
      if (Below(3) == 0 && at_->rank() > 1) {
        at_ = Linear(at_, Pick({4, 6, 8, 12}));
      } else {
        at_ = Next(at_);
      }
      known_.push_back(at_);
    }
    End();
  }

 private:
  // ---- choices

  int64_t Below(int64_t n) {
    return static_cast<int64_t>(
        RandomBelow(seed_, count_++, static_cast<uint64_t>(n)));
  }
  bool Flip() { return Below(2) == 0; }
  template <typename T>
  T Pick(std::initializer_list<T> list) {
    return list.begin()[Below(std::ssize(list))];
  }
  int64_t Pick(std::initializer_list<int> list) { return Pick<int>(list); }
  std::string Op(std::initializer_list<const char*> list) {
    return Pick<const char*>(list);
  }

  // The first axis that an op may treat like any other.
  int64_t First() const { return apart_ ? 1 : 0; }
  // An axis of the value that may be mixed; -1: none.
  int64_t Axis(const Value* x) {
    return x->rank() > First() ? First() + Below(x->rank() - First()) : -1;
  }
  int64_t Sign(int64_t axis, int64_t rank) {
    return Flip() ? axis : axis - rank;
  }

  // ---- operands

  Tensor Numbers(const Shape& shape, float scale = 1, float shift = 0) {
    Tensor t = Random(shape, 1000 * seed_ + names_);
    for (int64_t i = 0; i < t.size(); ++i) {
      t.data<float>()[i] = scale * t.data<float>()[i] + shift;
    }
    return t;
  }
  Value* Weight(const Shape& shape, float scale = 1, float shift = 0) {
    Tensor data = Numbers(shape, scale, shift);
    return graph_.AddInitializer(Concat("p", names_++, ".weight"), data);
  }
  // Scales of a model that was never trained are ones; its biases are zeros.
  Value* Scale(const Shape& shape) {
    return fresh_ ? Weight(shape, 0, 1) : Weight(shape);
  }
  Value* Bias(const Shape& shape) { return Weight(shape, fresh_ ? 0 : 1); }
  Value* Fixed(const Shape& shape, float scale = 1, float shift = 0) {
    Tensor data = Numbers(shape, scale, shift);
    return graph_.AddInitializer(Concat("c", names_++), data);
  }
  // A mask that is added to scores: random numbers, or exporters' marks of
  // pairs that do not count. A row that sees nothing has finite marks. No
  // difference of the loss shows that row's gradients, because its marks round
  // the scores away.
  Value* Mask(const Shape& shape) {
    Tensor mask = Numbers(shape);
    const int64_t columns = shape.back(), marked = Below(apart_ ? 4 : 3);
    for (int64_t i = 0; marked > 0 && i < mask.size(); ++i) {
      float& x = mask.data<float>()[i];
      const int64_t row = i / columns, column = i % columns;
      const bool seen =
          marked == 3 ? row % 3 != 0 : x < 0.3f || column == row % columns;
      const bool infinite = marked == 2;
      constexpr float kLowest = std::numeric_limits<float>::lowest();
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      x = seen ? 0 : infinite ? -kInfinity : kLowest;
    }
    return graph_.AddInitializer(Concat("c", names_++), mask);
  }
  // A shape that broadcasts to x's. The samples' axis is 1.
  Shape Broadcast(const Value* x) {
    Shape shape = *x->shape;
    for (int64_t i = 0; i < x->rank(); ++i) {
      if ((apart_ && i == 0) || Below(3) == 0) {
        shape[static_cast<size_t>(i)] = 1;
      }
    }
    shape.erase(shape.begin(), shape.begin() + Below(x->rank() + 1));
    return shape;
  }
  // Elements of one sample, if any number of them may come.
  static int64_t Elements(const Value* x) {
    int64_t elements = 1;
    for (int64_t size : *x->shape) elements *= std::abs(size);
    return elements;
  }
  bool Fits(const Value* x) const {
    return Elements(x) <= kMostElements && x->rank() < 6;
  }

  // ---- the ends

  void Begin() {
    const int64_t samples = apart_ ? -1 : model_.samples;
    const int64_t width = Pick({4, 6, 8, 12}), length = Pick({2, 3, 4, 6});
    if (Flip()) {
      model_.rows = Pick({5, 6, 8, 11});
      model_.ids = {length};
      Value* ids = Input("ids", DType::kInt64, {samples, length});
      table_ = Weight({model_.rows, width});
      at_ = b_.Op("Gather", {table_, ids});
    } else {
      model_.x = {width};
      if (Flip()) model_.x.insert(model_.x.begin(), length);
      Shape shape = model_.x;
      shape.insert(shape.begin(), samples);
      at_ = Input("x", DType::kFloat, shape);
    }
    at_ = Linear(at_, Pick({4, 6, 8, 12}));
    known_ = {at_};
  }

  Value* Input(const char* name, DType dtype, const Shape& shape) {
    Value* value = graph_.AddInput(name, dtype, shape);
    value->axis_names.resize(shape.size());
    if (apart_) value->axis_names[0] = "samples";
    return value;
  }

  void End() {
    int64_t samples = apart_ ? -1 : model_.samples;
    int64_t elements = Elements(at_);
    const bool tokens = at_->rank() == 3 && at_->dim(0) == samples && Flip();
    if (!apart_ && elements % samples != 0) {
      at_ = b_.Op("ReduceMean", {at_}, {{"keepdims", int64_t{0}}});
      at_ = b_.Op("Expand", {at_, b_.Ints({samples, 4})});
      elements = 4 * samples;
    }
    if (!tokens && at_->rank() != 2) {
      const int64_t width = apart_ ? elements : elements / samples;
      at_ = b_.Op("Reshape", {at_, b_.Ints({apart_ ? 0 : samples, width})});
    } else if (!tokens && !apart_) {
      at_ = b_.Op("Reshape", {at_, b_.Ints({samples, elements / samples})});
    }
    if (table_ && Flip()) {
      at_ = Linear(at_, table_->dim(1));
      at_ = b_.Op("MatMul", {at_, b_.Op("Transpose", {table_})});
    } else {
      at_ = Linear(at_, Pick({2, 3, 5, 6, 7, 8}));
      if (Below(4) == 0) at_ = Activation(at_);
    }
    model_.classes = at_->dim(-1);
    model_.labels = {at_->dim(1)};
    if (!tokens) model_.labels.clear();
    graph_.outputs = {at_};
  }

  // ---- layers

  Value* Linear(Value* x, int64_t width) {
    const int64_t in = x->dim(-1);
    const float scale = 1.7f / std::sqrt(static_cast<float>(in));
    if (x->rank() == 2 && Flip()) {
      const bool turned = Flip();
      Attributes attributes = {{"transB", int64_t{turned}}};
      if (Below(4) == 0) attributes["alpha"] = 0.5f;
      std::vector<Value*> inputs = {
          x, Weight(turned ? Shape{width, in} : Shape{in, width}, scale)};
      if (Flip()) {
        if (Below(4) == 0) attributes["beta"] = 2.0f;
        Shape bias = {width};
        if (Below(3) == 0) bias = {apart_ ? 1 : x->dim(0), width};
        if (Below(6) == 0) bias = {1};
        inputs.push_back(Bias(bias));
      }
      return b_.Op("Gemm", inputs, attributes);
    }
    Value* y = b_.Op("MatMul", {x, Weight({in, width}, scale)});
    return Flip() ? b_.Add(y, Bias({width})) : y;
  }

  Value* Activation(Value* x) {
    return b_.Op(Op({"Relu", "Tanh", "Sigmoid", "Gelu", "Softplus", "Sin",
                     "LeakyRelu", "Elu", "HardSwish", "Neg", "Erf"}),
                 {x});
  }

  // Heads over the second axis of x (B,T,D).
  Value* Attention(Value* x) {
    const int64_t heads = Pick({1, 2, 3, 4}), depth = Pick({2, 4}),
                  length = x->dim(1), width = heads * depth;
    const Axes split = {0, length, heads, depth};
    const auto part = [&](Value* y, const Axes& perm) {
      return b_.Op("Transpose", {b_.Op("Reshape", {y, b_.Ints(split)})},
                   {{"perm", perm}});
    };
    std::vector<Value*> qkv;
    if (Flip()) {
      qkv = b_.Ops("Split", {Linear(x, 3 * width)}, 3,
                   {{"axis", Sign(2, 3)}, {"num_outputs", int64_t{3}}});
    } else {
      for (int i = 0; i < 3; ++i) qkv.push_back(Linear(x, width));
    }
    Value* scores = b_.Op(
        "MatMul", {part(qkv[0], {0, 2, 1, 3}), part(qkv[1], {0, 2, 3, 1})});
    scores = b_.Mul(scores, Fixed({}, 0, 0.5f));
    if (Flip()) {
      const Shape masks[] = {{length, length},
                             {1, 1, length, length},
                             {heads, length, length},
                             {1, heads, 1, length}};
      scores = b_.Add(scores, Mask(masks[Below(4)]));
    }
    Value* p = b_.Op("Softmax", {scores}, {{"axis", Sign(3, 4)}});
    Value* y =
        b_.Op("Transpose", {b_.Op("MatMul", {p, part(qkv[2], {0, 2, 1, 3})})},
              {{"perm", Axes{0, 2, 1, 3}}});
    y = b_.Op("Reshape", {y, b_.Ints({0, length, width})});
    y = Linear(y, x->dim(2));
    return Flip() ? b_.Add(x, y) : y;
  }

  // ---- ops

  Value* Next(Value* x) {
    Value* y = nullptr;
    switch (Below(17)) {
      case 0:
      case 1:
        y = Activation(x);
        break;
      case 2:
      case 3:
        y = Binary(x);
        break;
      case 4:
        y = WithEarlier(x);
        break;
      case 5:
        y = Norm(x);
        break;
      case 6:
        if (Axis(x) >= 0) {
          y = b_.Op(Op({"Softmax", "LogSoftmax"}), {x},
                    {{"axis", Sign(Axis(x), x->rank())}});
        }
        break;
      case 7:
        y = Reshaped(x);
        break;
      case 8:
        y = Transposed(x);
        break;
      case 9:
        y = Pieces(x);
        break;
      case 10:
        y = Sliced(x);
        break;
      case 11:
        y = Picked(x);
        break;
      case 12:
        y = Reduced(x);
        break;
      case 13:
        y = Expanded(x);
        break;
      case 14:
        y = Product(x);
        break;
      case 15:
        if (x->rank() == 3 && (apart_ || x->dim(0) > 0)) y = Attention(x);
        break;
      default:
        y = Rare(x);
    }
    return y && Fits(y) ? y : x;
  }

  Value* Binary(Value* x) {
    const Shape shape = Broadcast(x);
    switch (Below(5)) {
      case 0: {
        Value* mask = b_.Op("Greater", {Fixed(shape), Fixed({}, 0)});
        return b_.Op("Where", {mask, x, Fixed(Broadcast(x))});
      }
      case 1:
        return b_.Div(
            x, Flip() ? Fixed(shape, 0.5f, 1.5f) : Weight(shape, 0.5f, 1.5f));
      case 2:
        return b_.Op("Pow", {b_.Op("Sigmoid", {x}), Fixed(shape, 0.5f, 1.5f)});
      default: {
        const std::string op = Op({"Add", "Sub", "Mul", "Max", "Min"});
        Value* other = Flip() ? Fixed(shape) : Weight(shape);
        return Flip() ? b_.Op(op, {x, other}) : b_.Op(op, {other, x});
      }
    }
  }

  // Two values of one shape, or one that broadcasts.
  Value* WithEarlier(Value* x) {
    std::vector<Value*> fits;
    for (Value* value : known_) {
      if (value != x && *value->shape == *x->shape) fits.push_back(value);
    }
    if (fits.empty()) return nullptr;
    Value* other = fits[static_cast<size_t>(Below(std::ssize(fits)))];
    if (Below(3) == 0 && Axis(x) >= 0) {
      return b_.Op("Concat", {x, other}, {{"axis", Sign(Axis(x), x->rank())}});
    }
    return b_.Op(Op({"Add", "Mul", "Sub", "Max"}), {x, other});
  }

  Value* Norm(Value* x) {
    const int64_t axis = Axis(x);
    if (axis < 0) return nullptr;
    Shape tail(x->shape->begin() + axis, x->shape->end());
    std::vector<Value*> inputs = {x, Scale(tail)};
    Attributes attributes = {{"axis", Sign(axis, x->rank())}};
    attributes["epsilon"] = 0.1f;
    if (Flip()) return b_.Op("RMSNormalization", inputs, attributes);
    if (Flip()) inputs.push_back(Bias(tail));
    return b_.Op("LayerNormalization", inputs, attributes);
  }

  Value* Reshaped(Value* x) {
    const int64_t first = First();
    if (x->rank() <= first) return nullptr;
    Shape rest(x->shape->begin() + first, x->shape->end());
    switch (Below(4)) {
      case 0: {
        const auto at = static_cast<size_t>(Below(std::ssize(rest)));
        for (int64_t n : {2, 3}) {
          if (rest[at] % n != 0 || Flip()) continue;
          const int64_t other = rest[at] / n;
          rest[at] = Flip() ? n : other;
          rest.insert(rest.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                      rest[at] == n ? other : n);
          break;
        }
        break;
      }
      case 1:
        if (rest.size() < 2) break;
        rest[rest.size() - 2] *= rest.back();
        rest.pop_back();
        break;
      case 2:
        if (Flip() && !apart_) {
          return b_.Op("Flatten", {x}, {{"axis", Below(x->rank() + 1)}});
        }
        return b_.Op("Unsqueeze", {x, b_.Ints({Sign(Axis(x), x->rank() + 1)})});
      default: {
        Axes ones;
        for (int64_t i = first; i < x->rank(); ++i) {
          if (x->dim(i) == 1) ones.push_back(Sign(i, x->rank()));
        }
        if (ones.empty()) break;
        // Without axes the samples' axis might go, too.
        if (Flip() && !apart_) return b_.Op("Squeeze", {x});
        return b_.Op("Squeeze", {x, b_.Ints(ones)});
      }
    }
    if (apart_) rest.insert(rest.begin(), 0);
    if (Flip() && rest.size() > 1) rest.back() = -1;
    return b_.Op("Reshape", {x, b_.Ints(rest)});
  }

  Value* Transposed(Value* x) {
    Axes perm(static_cast<size_t>(x->rank()));
    std::iota(perm.begin(), perm.end(), 0);
    for (int64_t i = x->rank() - 1; i > First(); --i) {
      std::swap(perm[static_cast<size_t>(i)],
                perm[static_cast<size_t>(First() + Below(i - First() + 1))]);
    }
    if (!apart_ && Below(4) == 0) return b_.Op("Transpose", {x});
    return b_.Op("Transpose", {x}, {{"perm", perm}});
  }

  // Some of the pieces of an axis.
  Value* Pieces(Value* x) {
    const int64_t axis = Axis(x);
    if (axis < 0) return nullptr;
    const int64_t n = x->dim(axis), count = Pick({2, 3});
    if (n < count) return nullptr;
    std::vector<Value*> pieces;
    const bool equal = n % count == 0;
    if (equal && Flip()) {
      pieces =
          b_.Ops("Split", {x}, static_cast<size_t>(count),
                 {{"axis", Sign(axis, x->rank())}, {"num_outputs", count}});
    } else {
      Axes sizes(static_cast<size_t>(count), equal ? n / count : 1);
      if (!equal) sizes.back() = n - count + 1;
      pieces = b_.Ops("Split", {x, b_.Ints(sizes)}, static_cast<size_t>(count),
                      {{"axis", Sign(axis, x->rank())}});
    }
    if (*pieces[0]->shape != *pieces.back()->shape) {
      return Flip() ? pieces[0] : pieces.back();
    }
    switch (Below(4)) {
      case 0:
        return b_.Mul(pieces[0], b_.Op("Sigmoid", {pieces.back()}));
      case 1:
        return b_.Op("Concat", {pieces.back(), pieces[0]},
                     {{"axis", Sign(axis, x->rank())}});
      case 2:
        return pieces[static_cast<size_t>(count) - 1];
      default:
        return b_.Add(pieces[0], pieces.back());
    }
  }

  Value* Sliced(Value* x) {
    const int64_t axis = Axis(x);
    if (axis < 0) return nullptr;
    const int64_t n = x->dim(axis), far = Pick({1, 0}) ? n : int64_t{1} << 30;
    const bool narrow = Flip();
    const auto ints = [&](int64_t value) {
      if (!narrow) return b_.Ints({value});
      Tensor t = Tensor::Allocate(DType::kInt32, {1});
      *t.data<int32_t>() = static_cast<int32_t>(value);
      return graph_.AddInitializer(Concat("i", names_++), t);
    };
    Value* axes = ints(Sign(axis, x->rank()));
    switch (Below(6)) {
      case 0:  // all
        return b_.Op("Slice", {x, ints(Flip() ? 0 : -n), ints(far), axes});
      case 1:  // turned
        return b_.Op("Slice", {x, ints(-1), ints(-far - 1), axes, ints(-1)});
      case 2:  // axes absent: those from the first on
        if (apart_ || axis != 0) return nullptr;
        if (Flip()) {
          return b_.Op("Slice",
                       {x, ints(-1), ints(-far - 1), nullptr, ints(-1)});
        }
        return b_.Op("Slice", {x, ints(0), ints(far)});
      case 3:  // every other one
        return b_.Op("Slice", {x, ints(n > 1), ints(far), axes, ints(2)});
      case 4:
        return b_.Op("Slice", {x, ints(0), ints((n + 1) / 2), axes});
      default:
        return b_.Op("Slice",
                     {x, ints(-(n + 1) / 2), ints(far), axes, ints(1)});
    }
  }

  Value* Picked(Value* x) {
    const int64_t axis = Axis(x);
    if (axis < 0) return nullptr;
    const int64_t n = x->dim(axis);
    const Shape shapes[] = {{}, {1}, {2}, {n}, {2, 2}};
    Tensor t = Tensor::Allocate(DType::kInt64, shapes[Below(5)]);
    for (int64_t i = 0; i < t.size(); ++i) {
      t.data<int64_t>()[i] = Sign(Below(n), n);
    }
    if (Flip() && n == t.size()) {
      std::iota(t.data<int64_t>(), t.data<int64_t>() + n, 0);
    }
    if (x->rank() == 1 && t.rank() == 0) return nullptr;
    return b_.Op("Gather", {x, b_.Constant(t)},
                 {{"axis", Sign(axis, x->rank())}});
  }

  Value* Reduced(Value* x) {
    const int64_t axis = Axis(x);
    if (axis < 0 || x->rank() < First() + 2) return nullptr;
    const std::string op = Op({"ReduceSum", "ReduceMean", "ReduceMax",
                               "ReduceL2", "ReduceLogSumExp"});
    Axes axes = {Sign(axis, x->rank())};
    const int64_t second = Axis(x);
    if (Below(3) == 0 && second != axis) axes.push_back(second);
    const bool keeps = std::ssize(axes) == x->rank() || Flip();
    Attributes attributes = {{"keepdims", int64_t{keeps}}};
    if (Below(6) == 0) {
      attributes["noop_with_empty_axes"] = int64_t{1};
      return b_.Op("ReduceSum", {x, b_.Ints({})}, attributes);
    }
    Value* y = b_.Op(op, {x, b_.Ints(axes)}, attributes);
    return keeps && Flip() ? b_.Mul(x, y) : y;
  }

  Value* Expanded(Value* x) {
    Shape shape = *x->shape;
    for (int64_t i = First(); i < x->rank(); ++i) {
      auto& size = shape[static_cast<size_t>(i)];
      if (size == 1 && Flip()) size = Pick({2, 3});
    }
    if (apart_) {
      shape[0] = 1;
    } else if (Below(3) == 0) {
      shape.insert(shape.begin(), 2);
    }
    return b_.Op("Expand", {x, b_.Ints(shape)});
  }

  // A product of two activations, of any ranks.
  Value* Product(Value* x) {
    if (x->rank() < First() + 2) {
      if (apart_ || x->rank() != 1) return nullptr;
      return b_.Op("MatMul", {Fixed({2, 3, x->dim(0)}), x});
    }
    Axes perm(static_cast<size_t>(x->rank()));
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    Value* turned = b_.Op("Transpose", {x}, {{"perm", perm}});
    Value* y = b_.Op("MatMul", {b_.Op("Tanh", {x}), turned});
    return b_.Mul(y, Fixed({}, 0, 0.2f));
  }

  // Ops that few models have.
  Value* Rare(Value* x) {
    const int64_t axis = Axis(x);
    switch (Below(5)) {
      case 0:
        if (axis < 0) return nullptr;
        return b_.Op("CumSum", {x, b_.Int(Sign(axis, x->rank()))});
      case 1:
        return b_.Op("Sqrt", {b_.Add(b_.Op("Abs", {x}), Fixed({}, 0, 0.1f))});
      case 2:
        return b_.Op("Log", {b_.Add(b_.Op("Abs", {x}), Fixed({}, 0, 0.1f))});
      case 3: {
        if (axis < 0) return nullptr;
        Axes pads(static_cast<size_t>(2 * x->rank()));
        pads[static_cast<size_t>(axis)] = Below(2);
        pads[static_cast<size_t>(axis + x->rank())] = 1;
        return b_.Op("Pad", {x, b_.Ints(pads)});
      }
      default:
        return b_.Op("Clip", {x, Fixed({}, 0, -0.8f), Fixed({}, 0, 0.9f)});
    }
  }

  Graph& graph_;
  Builder b_;
  const uint64_t seed_;
  const bool apart_;
  RandomModel& model_;
  uint64_t count_ = 0, names_ = 0;
  bool fresh_ = false;
  Value* at_ = nullptr;
  Value* table_ = nullptr;
  std::vector<Value*> known_;
};

Shape Behind(int64_t samples, Shape shape) {
  shape.insert(shape.begin(), samples);
  return shape;
}

Tensor Classes(const Shape& shape, int64_t classes, uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kInt64, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<int64_t>()[i] = static_cast<int64_t>(RandomBelow(
        seed, static_cast<uint64_t>(i), static_cast<uint64_t>(classes)));
  }
  return t;
}

}  // namespace

uint64_t NumberOfRandomModels() {
  const char* models = std::getenv("ONNX_FP8_RANDOM_MODELS");
  return models ? std::strtoull(models, nullptr, 10) : 200;
}

TensorMap RandomModel::Batch(uint64_t seed, int64_t size) const {
  TensorMap batch;
  batch["labels"] = Classes(Behind(size, labels), classes, 7 * seed + 1);
  if (rows > 0) {
    batch["ids"] = Classes(Behind(size, ids), rows, 7 * seed + 2);
  } else {
    batch["x"] = Random(Behind(size, x), 7 * seed + 3);
  }
  return batch;
}

RandomModel WriteRandomModel(const TempDir& dir, uint64_t seed,
                             bool samples_apart) {
  Graph graph;
  RandomModel model;
  ModelMaker(graph, seed, samples_apart, &model).Run();
  model.text = Print(graph);
  const std::string path = dir / "random.onnx";
  WriteModel(graph, path);
  model.options = Options(path);
  model.options.loss.class_axis = -1;  // where T tokens have T classes
  model.options.optimizer.kind = "sgd";
  model.options.freeze = {"*"};
  model.options.train = {"*.weight"};
  return model;
}

}  // namespace onnx_fp8
