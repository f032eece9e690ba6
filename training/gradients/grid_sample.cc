// SPDX-License-Identifier: Apache-2.0
//
// GridSample is linear in x: an element of y is a sum of a few elements of x,
// its taps. The weight of a tap is a product of one factor per axis, and the
// factors are piecewise polynomials of the grid. The formulas equal
// providers/cpu/ops/grid_sample.cc, in double as there.
#include <cmath>
#include <string>

#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

// One of the taps along one axis, at every place of y (N,Q).
struct Tap {
  Value* index;   // int64, inside of x
  Value* factor;  // 0 if the tap lies on padding
  Value* slope;   // of the factor by the grid; null: 0
};

class Axis {
 public:
  // `at` (N,Q): double; -1 … 1 spans the axis.
  Axis(C& c, Value* at, int64_t size) : b_(c.b), size_(size) {
    padding_ = c.node.String("padding_mode", "zeros");
    std::string mode = c.node.String("mode", "linear");
    Check(mode == "nearest" || mode == "linear" || mode == "cubic", "[",
          c.node.Where(), "] expected mode nearest, linear or cubic, got ",
          mode);
    bool corners = c.node.Int("align_corners", 0) != 0;
    edge_ = corners ? 0 : 0.5;
    double per_grid = (static_cast<double>(size) - (corners ? 1 : 0)) / 2;
    Value* x = b_.Mul(b_.Add(at, Number(1)), Number(per_grid));
    if (!corners) x = b_.Sub(x, Number(0.5));
    if (c.In(1)->dtype != DType::kDouble) {
      x = b_.Cast(b_.Cast(x, DType::kFloat), DType::kDouble);
    }
    // The element before the first, if the position is no finite number.
    Value* place = b_.Op("Less", {b_.Op("Abs", {x}), Number(HUGE_VAL)});
    x = b_.Op("Where", {place, x, Number(-1)});
    slope_ = Number(per_grid);
    if (mode == "nearest") x = b_.Op("Round", {x});
    if (mode != "cubic") x = Inside(x);
    Value* left = b_.Op("Floor", {x});
    Value* t = b_.Sub(x, left);
    if (mode == "nearest") {
      AddTap(left, Number(1), nullptr);
    } else if (mode == "linear") {
      AddTap(left, b_.Sub(Number(1), t), Number(-1));
      AddTap(b_.Add(left, Number(1)), t, Number(1));
    } else {
      AddCubicTaps(left, t);
    }
  }

  const std::vector<Tap>& taps() const { return taps_; }

 private:
  Value* Number(double x) { return b_.Constant(Tensor::Scalar(x)); }

  // c[0] + c[1] t + c[2] t² + …
  Value* Polynomial(Value* t, const std::vector<double>& c) {
    Value* y = Number(c.back());
    for (size_t i = c.size() - 1; i-- > 0;) {
      y = b_.Add(b_.Mul(y, t), Number(c[i]));
    }
    return y;
  }

  // The position; if it lies outside of x, moved to the edge or mirrored.
  Value* Inside(Value* x) {
    double low = -edge_, high = static_cast<double>(size_) - 1 + edge_;
    if (padding_ == "border") {
      Value* inside = b_.Op("And", {b_.Op("GreaterOrEqual", {x, Number(low)}),
                                    b_.Op("LessOrEqual", {x, Number(high)})});
      slope_ = b_.Op("Where", {inside, slope_, Number(0)});
      Value* clipped =
          b_.Op("Clip", {x, Number(0), Number(static_cast<double>(size_) - 1)});
      return b_.Op("Where", {inside, x, clipped});
    }
    if (padding_ == "reflection") {
      if (high <= low) {
        slope_ = Number(0);
        return b_.Mul(x, Number(0));
      }
      Value* turned = nullptr;
      Value* from = b_.Sub(x, Number(low));
      Value* y = Reflected(x, low, high, &turned);
      Value* sign = b_.Mul(b_.Op("Sign", {from}),
                           b_.Op("Where", {turned, Number(-1), Number(1)}));
      slope_ = b_.Mul(slope_, sign);
      return y;
    }
    return x;
  }

  // Mirrored at the ends of [low, high] until it lies inside; `turned` says
  // whether it runs backwards there.
  Value* Reflected(Value* x, double low, double high, Value** turned) {
    double range = high - low;
    Value* distance = b_.Op(
        "Mod", {b_.Op("Abs", {b_.Sub(x, Number(low))}), Number(2 * range)},
        {{"fmod", int64_t{1}}});
    *turned = b_.Op("Greater", {distance, Number(range)});
    Value* back = b_.Sub(Number(2 * range), distance);
    return b_.Add(b_.Op("Where", {*turned, back, distance}), Number(low));
  }

  // `slope` is by the position.
  void AddTap(Value* position, Value* factor, Value* slope) {
    double last = static_cast<double>(size_) - 1;
    Value* element = position;
    if (slope) slope = b_.Mul(slope, slope_);
    if (padding_ == "zeros") {
      Value* held =
          b_.Op("And", {b_.Op("GreaterOrEqual", {position, Number(0)}),
                        b_.Op("LessOrEqual", {position, Number(last)})});
      factor = b_.Op("Where", {held, factor, Number(0)});
      if (slope) slope = b_.Op("Where", {held, slope, Number(0)});
    } else if (padding_ == "reflection" && last + 2 * edge_ > 0) {
      Value* turned = nullptr;
      element =
          b_.Op("Floor", {Reflected(position, -edge_, last + edge_, &turned)});
    }
    element = b_.Op("Clip", {element, Number(0), Number(last)});
    taps_.push_back({b_.Cast(element, DType::kInt64), factor, slope});
  }

  // Keys' cubic interpolation with a = -0.75.
  void AddCubicTaps(Value* left, Value* t) {
    constexpr double a = -0.75;
    const std::vector<double> near = {1, 0, -(a + 3), a + 2};
    const std::vector<double> far = {-4 * a, 8 * a, -5 * a, a};
    // The tap at `offset` from the left one is `sign` (t − offset) away.
    auto add = [&](double offset, double sign, const std::vector<double>& p) {
      Value* away = b_.Mul(b_.Sub(t, Number(offset)), Number(sign));
      std::vector<double> slope = {p[1] * sign, 2 * p[2] * sign,
                                   3 * p[3] * sign};
      AddTap(b_.Add(left, Number(offset)), Polynomial(away, p),
             Polynomial(away, slope));
    };
    add(-1, 1, far);
    add(0, 1, near);
    add(1, -1, near);
    add(2, -1, far);
  }

  Builder& b_;
  int64_t size_;
  double edge_;
  std::string padding_;
  Value* slope_;  // of the position by the grid
  std::vector<Tap> taps_;
};

class Sampler {
 public:
  explicit Sampler(C& c) : c_(c), b_(c.b), x_(*c.In(0)->shape) {
    int64_t n = x_[0];
    places_ = NumElements(*c.Dy()->shape) / (n * x_[1]);
    Shape in(x_.begin() + 2, x_.end());
    elements_ = NumElements(in);
    strides_ = Strides(in);
    auto axes = static_cast<int64_t>(in.size());
    Value* grid = b_.Cast(c.In(1), DType::kDouble);
    grid = b_.Reshape(grid, {n, places_, axes});
    for (int64_t d = 0; d < axes; ++d) {
      // A grid entry names the axes from the last to the first.
      Value* at = SliceAxis(b_, grid, 2, axes - 1 - d, axes - d);
      axes_.emplace_back(c, b_.Reshape(at, {n, places_}),
                         in[static_cast<size_t>(d)]);
    }
    rows_ = ChannelsLast(c.Dy(), places_);
    if (c.Needs(1)) elements_of_x_ = ChannelsLast(c.In(0), elements_);
    slopes_.resize(axes_.size());
  }

  void Run() {
    std::vector<const Tap*> taps;
    Visit(taps);
    if (c_.Needs(0)) c_.Set(0, FromChannelsLast(dx_));
    if (!c_.Needs(1)) return;
    std::vector<Value*> columns;
    for (size_t d = axes_.size(); d-- > 0;) {
      Value* slope = slopes_[d];
      if (!slope) {
        slope =
            b_.Mul(axes_[d].taps()[0].factor, b_.Constant(Tensor::Scalar(0.0)));
        slope = ExpandTo(b_, slope, {x_[0], places_});
      }
      columns.push_back(b_.Reshape(slope, {x_[0], places_, 1}));
    }
    Value* all = columns.size() == 1
                     ? columns[0]
                     : b_.Op("Concat", columns, {{"axis", int64_t{2}}});
    c_.Set(1, b_.Cast(b_.Reshape(all, *c_.In(1)->shape), c_.In(1)->dtype));
  }

 private:
  // (N,C,…) → (N·size, C).
  Value* ChannelsLast(Value* x, int64_t size) {
    Value* flat = b_.Reshape(x, {x_[0], x_[1], size});
    return b_.Reshape(b_.Transpose(flat, {0, 2, 1}), {x_[0] * size, x_[1]});
  }

  Value* FromChannelsLast(Value* rows) {
    Value* split = b_.Reshape(rows, {x_[0], elements_, x_[1]});
    return b_.Reshape(b_.Transpose(split, {0, 2, 1}), x_);
  }

  // All combinations of one tap per axis.
  void Visit(std::vector<const Tap*>& taps) {
    if (taps.size() == axes_.size()) return Add(taps);
    for (const Tap& tap : axes_[taps.size()].taps()) {
      taps.push_back(&tap);
      Visit(taps);
      taps.pop_back();
    }
  }

  // Product of the factors, but on axis `but` its slope; null: the product is
  // 0.
  Value* Weight(const std::vector<const Tap*>& taps, size_t but) {
    Value* weight = nullptr;
    for (size_t d = 0; d < taps.size(); ++d) {
      Value* factor = d == but ? taps[d]->slope : taps[d]->factor;
      if (!factor) return nullptr;
      weight = weight ? b_.Mul(weight, factor) : factor;
    }
    return weight;
  }

  // Adds the part of one combination of taps: `index` (n·places) is the element
  // of x, flat over (n·elements), that each place of y reads.
  void Add(const std::vector<const Tap*>& taps) {
    int64_t n = x_[0];
    std::vector<int64_t> first;
    for (int64_t i = 0; i < n; ++i) first.push_back(i * elements_);
    Value* index = b_.Reshape(b_.Ints(first), {n, 1});
    for (size_t d = 0; d < taps.size(); ++d) {
      Value* step = b_.Mul(taps[d]->index, b_.Int(strides_[d]));
      index = b_.Add(index, step);
    }
    index = b_.Reshape(index, {n * places_});
    if (c_.Needs(0)) {
      Value* weight = b_.Cast(Weight(taps, axes_.size()), rows_->dtype);
      weight = ExpandTo(b_, weight, {n, places_});
      Value* part =
          b_.Ours("GatherGrad",
                  {b_.Mul(rows_, b_.Reshape(weight, {n * places_, 1})), index},
                  {{"axis", int64_t{0}},
                   {"shape", std::vector<int64_t>{n * elements_, x_[1]}}});
      dx_ = dx_ ? b_.Add(dx_, part) : part;
    }
    if (!c_.Needs(1)) return;
    Value* read =
        b_.Op("Gather", {elements_of_x_, index}, {{"axis", int64_t{0}}});
    Value* by_weight = b_.ReduceSum(b_.Mul(rows_, read), {1}, false);
    by_weight = b_.Cast(b_.Reshape(by_weight, {n, places_}), DType::kDouble);
    for (size_t d = 0; d < taps.size(); ++d) {
      Value* slope = Weight(taps, d);
      if (!slope) continue;
      Value* part = b_.Mul(by_weight, slope);
      slopes_[d] = slopes_[d] ? b_.Add(slopes_[d], part) : part;
    }
  }

  C& c_;
  Builder& b_;
  Shape x_;
  int64_t places_;    // of y, per channel
  int64_t elements_;  // of x, per channel
  std::vector<int64_t> strides_;
  std::vector<Axis> axes_;
  Value* rows_;  // dy (N·places, C)
  Value* elements_of_x_ = nullptr;
  Value* dx_ = nullptr;
  std::vector<Value*> slopes_;
};

void GridSample(C& c) {
  if (NumElements(*c.Dy()->shape) == 0) {
    for (size_t i : {0, 1}) {
      if (c.Needs(i)) c.Set(i, Filled(c.b, 0, c.In(i), *c.In(i)->shape));
    }
    return;
  }
  Sampler(c).Run();
}

}  // namespace

void RegisterGridSampleGradients(GradientRegistry& r) {
  r.Add("GridSample", GridSample);
}

}  // namespace onnx_fp8
