// SPDX-License-Identifier: Apache-2.0
//
// LinearAttention in chunks of its rows. ONNX's own body is a Scan over single
// rows, which would become a dozen nodes for each of them. Within a chunk, G_i
// is the decay from its beginning to row i, S the state before it:
//   u_i = β_i (v_i - (exp(G_i) k_i)ᵀ S - Σ_{j<i} (k_i · exp(G_i - G_j) k_j)
//   u_j) o_i = (exp(G_i) q_i)ᵀ S + Σ_{j≤i} (q_i · exp(G_i - G_j) k_j) u_j
// Without the delta rule u is v. All chunks are computed at once, but for the
// states between them.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "graph/passes/extra_bodies_internal.h"

namespace onnx_fp8 {
namespace {

// Rows of a chunk. The inverse takes log2(kChunk) products; a decay for each
// key takes kChunk² elements.
constexpr int64_t kChunk = 32;

class Chunks {
 public:
  Chunks(Builder& b, const Node& node, const std::vector<Value*>& in)
      : b_(b), node_(node) {
    std::string rule = node.String("update_rule", "gated_delta");
    delta_ = rule.ends_with("delta");
    gated_ = rule.starts_with("gated");
    Check(delta_ || gated_ || rule == "linear", "[", node.Where(),
          "] expected update_rule linear, gated, delta or gated_delta, got ",
          rule);
    auto given = [&](size_t i) { return i < in.size() ? in[i] : nullptr; };
    Check((!gated_ || given(4)) && (!delta_ || given(5)), "[", node.Where(),
          "] expected the operands decay and beta that ", rule, " needs");
    const Value *q = in[0], *v = in[2];
    Check(q->rank() == 3 && in[1]->rank() == 3 && v->rank() == 3, "[",
          node.Where(), "] expected operands (batch, rows, heads · width)");
    heads_ = node.Int("kv_num_heads", 1);
    int64_t q_heads = node.Int("q_num_heads", 1);
    Check(heads_ > 0 && q_heads % heads_ == 0 && q->dim(2) % q_heads == 0 &&
              v->dim(2) % heads_ == 0 &&
              in[1]->dim(2) == q->dim(2) / q_heads * heads_,
          "[", node.Where(), "] expected heads that divide q, k and v, got ",
          q_heads, " and ", heads_);
    shared_ = q_heads / heads_;
    batch_ = q->dim(0);
    rows_ = q->dim(1);
    width_ = q->dim(2) / q_heads;
    values_ = v->dim(2) / heads_;
    Check(rows_ > 0, "[", node.Where(), "] expected rows, got none");
    dtype_ = q->dtype == DType::kDouble ? DType::kDouble : DType::kFloat;
    chunk_ = std::min(rows_, kChunk);
    count_ = (rows_ + chunk_ - 1) / chunk_;
    result_ = q->dtype;
    q_ = ByChunk(in[0], heads_, shared_);
    k_ = ByChunk(in[1], heads_, 1);
    v_ = ByChunk(in[2], heads_, 1);
    if (gated_) {
      decay_ = b_.Op("CumSum", {ByChunk(given(4), heads_, 1), b_.Int(4)});
    }
    if (delta_) beta_ = ByChunk(given(5), given(5)->dim(2), 1);
    state_ = given(3);
    state_dtype_ = state_ ? state_->dtype : result_;
    Shape state = {batch_, heads_, 1, width_, values_};
    state_ = state_ ? b_.Reshape(b_.Cast(state_, dtype_), state)
                    : b_.Op("Expand", {Number(0), b_.Ints(state)});
  }

  std::vector<Value*> Run() {
    Value *from_start = k_, *to_end = k_, *q = q_, *whole = nullptr;
    if (gated_) {
      Value* last = Part(decay_, 4, chunk_ - 1, chunk_);
      Value* since = b_.Op("Exp", {decay_});
      from_start = b_.Mul(k_, since);
      q = b_.Mul(q_, since);
      to_end = b_.Mul(k_, b_.Op("Exp", {b_.Sub(last, decay_)}));
      whole = b_.SwapLast(b_.Op("Exp", {last}));
    }
    Value *u = v_, *from_state = nullptr;
    if (delta_) {
      Value* inverse = Inverse(b_.Mul(Pairs(k_, true), beta_));
      u = Product(inverse, b_.Mul(v_, beta_));
      from_state = Product(inverse, b_.Mul(from_start, beta_));
    }
    to_end = b_.SwapLast(to_end);
    Value* added = delta_ ? nullptr : Product(to_end, u);
    std::vector<Value*> states, updates;
    for (int64_t n = 0; n < count_; ++n) {
      states.push_back(state_);
      Value* kept = gated_ ? b_.Mul(state_, Chunk(whole, n)) : state_;
      if (delta_) {
        updates.push_back(
            b_.Sub(Chunk(u, n), Product(Chunk(from_state, n), state_)));
        state_ = b_.Add(kept, Product(Chunk(to_end, n), updates.back()));
      } else {
        state_ = b_.Add(kept, Chunk(added, n));
      }
    }
    if (delta_) u = Stack(updates);
    Value* o = b_.Add(Product(q, Stack(states)), Product(Pairs(q_, false), u));
    double scale = node_.Float("scale", 0);
    if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(width_));
    o = b_.Transpose(b_.Mul(o, Number(scale)), kByChunk);
    o = b_.Reshape(o, {batch_, count_ * chunk_, heads_ * shared_ * values_});
    if (count_ * chunk_ != rows_) o = Part(o, 1, 0, rows_);
    Value* state = b_.Reshape(state_, {batch_, heads_, width_, values_});
    return {b_.Cast(o, result_), b_.Cast(state, state_dtype_)};
  }

 private:
  // (batch, chunks, rows, heads, shared, width) → (batch, heads, shared,
  // chunks, rows, width), and back.
  inline static const std::vector<int64_t> kByChunk = {0, 3, 4, 1, 2, 5};

  Value* Number(double x) {
    return b_.Constant(ConvertTo(Tensor::Scalar(x), dtype_));
  }
  Value* Product(Value* x, Value* y) { return b_.Op("MatMul", {x, y}); }
  Value* Part(Value* x, int64_t axis, int64_t begin, int64_t end) {
    return b_.Op("Slice",
                 {x, b_.Ints({begin}), b_.Ints({end}), b_.Ints({axis})});
  }

  // x (batch, rows, heads · shared · width), with zeros behind the last row:
  // they change no state.
  Value* ByChunk(Value* x, int64_t heads, int64_t shared) {
    x = b_.Cast(x, dtype_);
    int64_t missing = count_ * chunk_ - rows_;
    if (missing > 0) x = b_.Op("Pad", {x, b_.Ints({0, 0, 0, 0, missing, 0})});
    int64_t width = x->dim(2) / (heads * shared);
    x = b_.Reshape(x, {batch_, count_, chunk_, heads, shared, width});
    return b_.Transpose(x, kByChunk);
  }

  // Chunk n, without the axis of the chunks.
  Value* Chunk(Value* x, int64_t n) {
    Value* part = Part(x, 3, n, n + 1);
    Shape shape = *part->shape;
    shape.erase(shape.begin() + 3);
    return b_.Reshape(part, shape);
  }
  Value* Stack(std::vector<Value*> chunks) {
    for (Value*& chunk : chunks) {
      chunk = b_.Op("Unsqueeze", {chunk, b_.Ints({3})});
    }
    return chunks.size() == 1 ? chunks[0]
                              : b_.Op("Concat", chunks, {{"axis", int64_t{3}}});
  }

  // 1 for j < i, and for j = i if not `strict`; else 0.
  Tensor Triangle(bool strict) const {
    std::vector<double> ones(static_cast<size_t>(chunk_ * chunk_), 0.0);
    for (int64_t i = 0; i < chunk_; ++i) {
      for (int64_t j = 0; j < i + !strict; ++j) {
        ones[static_cast<size_t>(i * chunk_ + j)] = 1;
      }
    }
    return ConvertTo(Tensor::From<double>({chunk_, chunk_}, ones), dtype_);
  }

  // x_i · exp(G_i - G_j) k_j for all rows i and j of a chunk, else 0.
  Value* Pairs(Value* x, bool strict) {
    Tensor ones = Triangle(strict);
    Value* keeps = b_.Constant(ones);
    if (!gated_) return b_.Mul(Product(x, b_.SwapLast(k_)), keeps);
    auto with_axis = [&](Value* value, int64_t axis) {
      return b_.Op("Unsqueeze", {value, b_.Ints({axis})});
    };
    const bool each = decay_->dim(-1) > 1;  // each key has a decay of its own
    Tensor place = each ? ones.Reshaped({chunk_, chunk_, 1}) : ones;
    keeps = b_.Constant(place);
    Value* counts = b_.Constant(ConvertTo(place, DType::kBool));
    Value* since = each ? b_.Sub(with_axis(decay_, 5), with_axis(decay_, 4))
                        : b_.Sub(decay_, b_.SwapLast(decay_));
    // Rows that do not count could overflow.
    since = b_.Op("Where", {counts, since, Number(0)});
    Value* factor = b_.Mul(b_.Op("Exp", {since}), keeps);
    if (!each) return b_.Mul(Product(x, b_.SwapLast(k_)), factor);
    Value* terms = b_.Mul(b_.Mul(with_axis(x, 5), with_axis(k_, 4)), factor);
    return b_.ReduceSum(terms, {6}, false);
  }

  // (1 + L)^-1 of a strictly lower triangle: (1 - L)(1 + L²)(1 + L⁴)…
  Value* Inverse(Value* lower) {
    std::vector<double> ones(static_cast<size_t>(chunk_ * chunk_), 0.0);
    for (int64_t i = 0; i < chunk_; ++i) {
      ones[static_cast<size_t>(i * (chunk_ + 1))] = 1;
    }
    Value* one = b_.Constant(
        ConvertTo(Tensor::From<double>({chunk_, chunk_}, ones), dtype_));
    Value* inverse = b_.Sub(one, lower);
    Value* power = lower;
    for (int64_t reach = 2; reach < chunk_; reach *= 2) {
      power = Product(power, power);
      inverse = Product(inverse, b_.Add(one, power));
    }
    return inverse;
  }

  Builder& b_;
  const Node& node_;
  bool delta_, gated_;
  int64_t batch_, rows_, heads_, shared_, width_, values_, chunk_, count_;
  DType dtype_, result_, state_dtype_;
  Value *q_, *k_, *v_, *decay_ = nullptr, *beta_ = nullptr, *state_;
};

}  // namespace

std::vector<Value*> LinearAttentionBody(Builder& b, const Node& node,
                                        const std::vector<Value*>& in) {
  return Chunks(b, node, in).Run();
}

}  // namespace onnx_fp8
