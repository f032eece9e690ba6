// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kSteps = 5, kBatch = 3, kInputs = 4, kHidden = 6;

struct Op {
  const char* name;
  int64_t gates;
  size_t states;  // h, or h and c
};
const Op kOps[] = {{"RNN", 1, 1}, {"GRU", 3, 1}, {"LSTM", 4, 2}};

struct Operands {
  Tensor x, w, r, b, lengths, h, c, peephole;
};

Operands RandomOperands(const Op& op, int64_t directions) {
  int64_t d = directions, rows = op.gates * kHidden;
  Operands o;
  o.x = RandomNormal({kSteps, kBatch, kInputs}, 1);
  o.w = RandomNormal({d, rows, kInputs}, 2);
  o.r = RandomNormal({d, rows, kHidden}, 3);
  o.b = RandomNormal({d, 2 * rows}, 4);
  o.h = RandomNormal({d, kBatch, kHidden}, 5);
  if (op.states == 2) {
    o.c = RandomNormal({d, kBatch, kHidden}, 6);
    o.peephole = RandomNormal({d, 3 * kHidden}, 7);
  }
  return o;
}

std::vector<Tensor> RunOp(const Op& op, const Operands& o,
                          Attributes attributes = {}) {
  std::vector<Tensor> in = {o.x, o.w, o.r, o.b, o.lengths, o.h};
  if (op.states == 2) in.insert(in.end(), {o.c, o.peephole});
  attributes.try_emplace("hidden_size", kHidden);
  return RunNode(op.name, in, std::move(attributes), 1 + op.states);
}

// Rows first … last - 1 of the first axis.
Tensor Rows(const Tensor& t, int64_t first, int64_t last) {
  Shape shape = t.shape();
  int64_t size = t.size() / shape[0];
  shape[0] = last - first;
  return Tensor::View(t.dtype(), shape, nullptr,
                      const_cast<float*>(t.data<float>()) + first * size);
}

// First two axes swapped.
Tensor Swapped(const Tensor& t) {
  Shape shape = t.shape();
  std::swap(shape[0], shape[1]);
  Tensor y = Tensor::Allocate(t.dtype(), shape);
  int64_t size = t.size() / (shape[0] * shape[1]);
  for (int64_t i = 0; i < shape[0]; ++i) {
    for (int64_t j = 0; j < shape[1]; ++j) {
      std::copy_n(t.data<float>() + (j * shape[0] + i) * size, size,
                  y.data<float>() + (i * shape[1] + j) * size);
    }
  }
  return y;
}

Tensor Reversed(const Tensor& t) {
  Tensor y = Tensor::Allocate(t.dtype(), t.shape());
  int64_t n = t.dim(0), size = t.size() / n;
  for (int64_t i = 0; i < n; ++i) {
    std::copy_n(t.data<float>() + i * size, size,
                y.data<float>() + (n - 1 - i) * size);
  }
  return y;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One direction by ONNX's equations, in double; h and c are updated.
class Recurrence {
 public:
  Recurrence(const Op& op, const Operands& o, bool linear_before_reset)
      : op_(op), o_(o), before_(linear_before_reset) {
    for (int64_t i = 0; i < o.h.size(); ++i) {
      h.push_back(DoubleAt(o.h, i));
      if (op.states == 2) c.push_back(DoubleAt(o.c, i));
    }
  }

  void Step(int64_t t) {
    for (int64_t b = 0; b < kBatch; ++b) {
      auto first = h.begin() + b * kHidden;
      std::vector<double> old(first, first + kHidden), next(kHidden);
      for (int64_t j = 0; j < kHidden; ++j) {
        next[static_cast<size_t>(j)] = Cell(t, b, j, old);
      }
      std::copy(next.begin(), next.end(), first);
    }
  }

  std::vector<double> h, c;

 private:
  double FromX(int64_t t, int64_t b, int64_t gate, int64_t j) const {
    int64_t row = gate * kHidden + j;
    double sum = DoubleAt(o_.b, row);
    for (int64_t i = 0; i < kInputs; ++i) {
      sum += DoubleAt(o_.x, (t * kBatch + b) * kInputs + i) *
             DoubleAt(o_.w, row * kInputs + i);
    }
    return sum;
  }
  double FromH(const std::vector<double>& state, int64_t gate,
               int64_t j) const {
    int64_t row = gate * kHidden + j;
    double sum = DoubleAt(o_.b, op_.gates * kHidden + row);
    for (int64_t i = 0; i < kHidden; ++i) {
      sum += state[static_cast<size_t>(i)] * DoubleAt(o_.r, row * kHidden + i);
    }
    return sum;
  }
  double Cell(int64_t t, int64_t b, int64_t j, const std::vector<double>& old) {
    auto gate = [&](int64_t g) { return FromX(t, b, g, j) + FromH(old, g, j); };
    if (op_.gates == 1) return std::tanh(gate(0));
    auto at = static_cast<size_t>(j);
    if (op_.gates == 3) {
      double z = Sigmoid(gate(0)), candidate = 0;
      if (before_) {
        candidate = FromX(t, b, 2, j) + Sigmoid(gate(1)) * FromH(old, 2, j);
      } else {
        std::vector<double> reset = old;
        for (int64_t k = 0; k < kHidden; ++k) {
          reset[static_cast<size_t>(k)] *=
              Sigmoid(FromX(t, b, 1, k) + FromH(old, 1, k));
        }
        candidate = FromX(t, b, 2, j) + FromH(reset, 2, j);
      }
      return (1 - z) * std::tanh(candidate) + z * old[at];
    }
    auto peep = [&](int64_t g) {
      return DoubleAt(o_.peephole, g * kHidden + j);
    };
    double& state = c[static_cast<size_t>(b * kHidden + j)];
    double i = Sigmoid(gate(0) + peep(0) * state);
    double f = Sigmoid(gate(2) + peep(2) * state);
    state = f * state + i * std::tanh(gate(3));
    return Sigmoid(gate(1) + peep(1) * state) * std::tanh(state);
  }

  const Op& op_;
  const Operands& o_;
  bool before_;
};

TEST(Recurrent, FollowsItsEquations) {
  for (const Op& op : kOps) {
    for (int64_t before : {0, 1}) {
      if (before && op.gates != 3) continue;
      Operands o = RandomOperands(op, 1);
      Attributes attributes;
      if (op.gates == 3) attributes["linear_before_reset"] = before;
      auto y = RunOp(op, o, attributes);
      ASSERT_EQ(y[0].shape(), (Shape{kSteps, 1, kBatch, kHidden}));
      Recurrence reference(op, o, before != 0);
      for (int64_t t = 0; t < kSteps; ++t) {
        reference.Step(t);
        for (int64_t i = 0; i < kBatch * kHidden; ++i) {
          EXPECT_NEAR(DoubleAt(y[0], t * kBatch * kHidden + i),
                      reference.h[static_cast<size_t>(i)], 1e-5)
              << op.name << before << " step " << t;
        }
      }
      EXPECT_TRUE(Identical(
          y[1], Rows(y[0], kSteps - 1, kSteps).Reshaped(y[1].shape())));
      for (int64_t i = 0; op.states == 2 && i < y[2].size(); ++i) {
        EXPECT_NEAR(DoubleAt(y[2], i), reference.c[static_cast<size_t>(i)],
                    1e-5);
      }
    }
  }
}

TEST(Recurrent, DirectionsLayoutsAndDoublesAgree) {
  for (const Op& op : kOps) {
    Operands o = RandomOperands(op, 2);
    Attributes both = {{"direction", "bidirectional"}};
    auto y = RunOp(op, o, both);
    auto half = [&](int64_t d) {
      Operands p = o;
      for (Tensor* t : {&p.w, &p.r, &p.b, &p.h, &p.c, &p.peephole}) {
        if (t->defined()) *t = Rows(*t, d, d + 1);
      }
      return p;
    };
    auto forward = RunOp(op, half(0)),
         reverse = RunOp(op, half(1), {{"direction", "reverse"}});
    Operands turned = half(1);
    turned.x = Reversed(turned.x);
    auto backward = RunOp(op, turned);
    EXPECT_TRUE(Identical(Reversed(backward[0]), reverse[0]));
    for (size_t i = 1; i <= op.states; ++i) {
      EXPECT_TRUE(Identical(Rows(y[i], 0, 1), forward[i]));
      EXPECT_TRUE(Identical(Rows(y[i], 1, 2), reverse[i]));
      EXPECT_TRUE(Identical(backward[i], reverse[i]));
    }
    Tensor by_direction = Swapped(y[0]);
    EXPECT_TRUE(Identical(Rows(by_direction, 0, 1), Swapped(forward[0])));
    EXPECT_TRUE(Identical(Rows(by_direction, 1, 2), Swapped(reverse[0])));

    Operands first = o;
    for (Tensor* t : {&first.x, &first.h, &first.c}) {
      if (t->defined()) *t = Swapped(*t);
    }
    both["layout"] = int64_t{1};
    auto z = RunOp(op, first, both);
    EXPECT_EQ(z[0].shape(), (Shape{kBatch, kSteps, 2, kHidden}));
    for (size_t i = 1; i <= op.states; ++i) {
      EXPECT_TRUE(Identical(Swapped(z[i]), y[i]));
    }
    both.erase("layout");
    for (Tensor* t : {&o.x, &o.w, &o.r, &o.b, &o.h, &o.c, &o.peephole}) {
      if (t->defined()) *t = ConvertTo(*t, DType::kDouble);
    }
    EXPECT_LT(LargestDifference(RunOp(op, o, both)[0], y[0]), 1e-5);
  }
}

TEST(Recurrent, ShortSequencesEndEarlyAndAreZeroBehind) {
  const int32_t kLengths[] = {5, 2, 0};
  for (const Op& op : kOps) {
    for (const char* direction : {"forward", "reverse"}) {
      Operands o = RandomOperands(op, 1);
      o.lengths = Tensor::From<int32_t>({kBatch}, kLengths);
      auto y = RunOp(op, o, {{"direction", direction}});
      for (int64_t b = 0; b < kBatch; ++b) {
        int64_t n = kLengths[b];
        // The same sequence, cut to its length.
        Operands cut = o;
        cut.lengths = {};
        cut.x = Rows(o.x, 0, n);
        auto z = RunOp(op, cut, {{"direction", direction}});
        for (int64_t i = 0; i < kHidden; ++i) {
          for (int64_t t = 0; t < kSteps; ++t) {
            int64_t at = (t * kBatch + b) * kHidden + i;
            EXPECT_NEAR(DoubleAt(y[0], at), t < n ? DoubleAt(z[0], at) : 0,
                        1e-6);
          }
          for (size_t s = 1; s <= op.states; ++s) {
            EXPECT_NEAR(DoubleAt(y[s], b * kHidden + i),
                        DoubleAt(z[s], b * kHidden + i), 1e-6);
          }
        }
      }
    }
  }
}

TEST(Recurrent, AttributesAndOptionalOperands) {
  const Op &rnn = kOps[0], &lstm = kOps[2];
  Operands o = RandomOperands(rnn, 1);
  o.b = o.h = {};
  Tensor y = RunOp(rnn, o)[0];
  o.b = Tensor::Zeros(DType::kFloat, {1, 2 * kHidden});
  o.h = Tensor::Zeros(DType::kFloat, {1, kBatch, kHidden});
  EXPECT_TRUE(Identical(RunOp(rnn, o)[0], y));
  // tanh of at most 0.5; relu of at least 0.
  Tensor clipped = RunOp(rnn, o, {{"clip", 0.5f}})[0];
  Tensor relu =
      RunOp(rnn, o, {{"activations", std::vector<std::string>{"Relu"}}})[0];
  double largest = 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    largest = std::max(largest, DoubleAt(clipped, i));
    EXPECT_GE(DoubleAt(relu, i), 0);
  }
  EXPECT_NEAR(largest, std::tanh(0.5), 1e-6);

  // With coupled gates the forget gate's weights do not matter.
  Operands a = RandomOperands(lstm, 1), b = a;
  b.b = a.b.Clone();
  for (int64_t i = 0; i < kHidden; ++i) b.b.data<float>()[2 * kHidden + i] += 1;
  Attributes coupled = {{"input_forget", int64_t{1}}};
  EXPECT_TRUE(
      Identical(RunOp(lstm, a, coupled)[0], RunOp(lstm, b, coupled)[0]));
  EXPECT_FALSE(Identical(RunOp(lstm, a)[0], RunOp(lstm, b)[0]));
  // Only step 0: c = (1 - i) · c0 + i · tanh(…), all in -1 … 1 for such c0.
  a.c = Tensor::Zeros(DType::kFloat, {1, kBatch, kHidden});
  Tensor c = RunOp(lstm, a, coupled)[2];
  for (int64_t i = 0; i < c.size(); ++i)
    EXPECT_LT(std::fabs(DoubleAt(c, i)), 1);
}

TEST(Recurrent, BadInput) {
  for (const Op& op : kOps) {
    Operands good = RandomOperands(op, 1);
    auto fails = [&](auto change, Attributes attributes = {}) {
      Operands o = good;
      change(o);
      EXPECT_THROW(RunOp(op, o, std::move(attributes)), Error) << op.name;
    };
    auto nothing = [](Operands&) {};
    fails([](Operands& o) { o.x = o.x.Reshaped({kSteps, kBatch * kInputs}); });
    fails([](Operands& o) { o.w = RandomNormal({1, 5, kInputs}, 1); });
    fails([](Operands& o) { o.r = RandomNormal({1, 5, kHidden}, 1); });
    fails([](Operands& o) { o.b = RandomNormal({1, 7}, 1); });
    fails([](Operands& o) { o.h = RandomNormal({1, 1, kHidden}, 1); });
    fails([](Operands& o) { o.x = ConvertTo(o.x, DType::kDouble); });
    fails([](Operands& o) {
      o.lengths =
          Tensor::From<int32_t>({kBatch}, std::vector<int32_t>{1, 6, 2});
    });
    fails([](Operands& o) {
      o.lengths = Tensor::From<int32_t>({1}, std::vector<int32_t>{1});
    });
    fails(nothing, {{"direction", "sideways"}});
    fails(nothing, {{"direction", "bidirectional"}});
    fails(nothing, {{"hidden_size", kHidden + 1}});
    fails(nothing, {{"clip", -1.0f}});
    fails(nothing, {{"activations", std::vector<std::string>{"Softsign"}}});
    Attributes unknown = {
        {"activations", std::vector<std::string>(op.states + 1, "Softsign")}};
    fails(nothing, unknown);
  }
}

}  // namespace
}  // namespace onnx_fp8
