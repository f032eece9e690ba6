// SPDX-License-Identifier: Apache-2.0
//
// Attention whose heads lie beside each other, as linear layers leave them, so
// that nothing is transposed. q (B,T,H·D), k (B,S,G·D), v (B,S,G·E), y
// (B,T,H·E); head h reads group h / (H/G). lse (B,H,T) is the log of the sum of
// e^scores; the backward computes the probabilities again from it, block by
// block, and divides them by their sum: a large lse is rounded. Columns that a
// causal row does not see have no probability, whatever the bias is. The
// probabilities and the gradients of the scores are rounded to the dtype
// `round_to` before they are multiplied; q, k, v and dy are exact in it. As in
// flash attention, the forward rounds before it divides by the sum.
//
// AttentionPacked has q, k and v in one operand: Transpose(qkv, perm) is
// (B,T,(H+2G)·D), with the columns of q, k and v in this order. Transpose(y,
// perm) is (B,T,H·D). perm is [0,1,2], or [1,0,2] if the model has the time
// first. The gradients are one result, too.
//
// AttentionSegments and AttentionPackedSegments are for rows that hold several
// documents: a row sees the columns of its own segment. segments is int32 (B,T)
// and T = S. Their bias is one zero where the model has none.
//
// AttentionRelative adds relative[h][j - i + T - 1] to the score of row i and
// column j in head h, as T5 does: relative is (H,T+S-1), and has a gradient.
#include <algorithm>
#include <iterator>
#include <string>

#include "base/check.h"
#include "graph/attention_shape.h"
#include "graph/schemas.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

void CheckFits(bool fits, const Node& node, const char* expected) {
  std::string got;
  for (const Value* value : node.inputs()) {
    got += value && value->shape ? ToString(*value->shape) : "[?]";
  }
  Check(fits, "[", node.Where(), "] expected ", expected, ", got ", got);
}

// Errors: segments that are not int32 (B,T), or columns that are no rows.
void CheckSegments(const Node& node, size_t place) {
  const Value* segments = node.in(place);
  auto z = ShapeOfAttention(node);
  Check(
      segments->dtype == DType::kInt32 || segments->dtype == DType::kUndefined,
      "[", node.Where(), "] expected segments of int32, got ",
      Name(segments->dtype));
  if (!z || !segments->concrete()) return;
  CheckFits(z->t == z->s && *segments->shape == Shape{z->b, z->t}, node,
            "segments (B,T) and as many columns as rows");
}

void CheckHeads(const Node& node) {
  int64_t heads = node.Int("heads", 0), groups = node.Int("kv_heads", 0);
  Check(heads > 0 && groups > 0 && heads % groups == 0, "[", node.Where(),
        "] expected heads that are a multiple of kv_heads, got ", heads,
        " and ", groups);
}

// Checks the node's operands, with q, k and v from input `first` on.
void CheckOperands(const Node& node, size_t first) {
  CheckHeads(node);
  const Value *q = node.in(first), *k = node.in(first + 1),
              *v = node.in(first + 2);
  int64_t heads = node.Int("heads", 0), groups = node.Int("kv_heads", 0);
  if (!q->concrete() || !k->concrete() || !v->concrete()) return;
  bool ranks = q->rank() == 3 && k->rank() == 3 && v->rank() == 3;
  CheckFits(ranks && q->dim(0) == k->dim(0) && q->dim(0) == v->dim(0) &&
                k->dim(1) == v->dim(1) && q->dim(2) % heads == 0 &&
                k->dim(2) % groups == 0 && v->dim(2) % groups == 0 &&
                q->dim(2) / heads == k->dim(2) / groups,
            node, "q (B,T,H·D), k (B,S,G·D), v (B,S,G·E)");
}

// (q, k, v[, bias]) -> (y, lse)
void InferForward(Node& node) {
  CheckOperands(node, 0);
  const Value *q = node.in(0), *v = node.in(2);
  Value* y = node.out(0);
  SameAs(q, y);
  if (Value* lse = node.out(1)) lse->dtype = q->dtype;
  if (!q->concrete() || !v->concrete()) return;
  int64_t heads = node.Int("heads", 1);
  y->shape->back() = v->dim(2) / node.Int("kv_heads", 1) * heads;
  if (Value* lse = node.out(1)) lse->shape = Shape{q->dim(0), heads, q->dim(1)};
}

// (q, k, v, bias, segments) -> (y, lse)
void InferSegments(Node& node) {
  InferForward(node);
  CheckSegments(node, 4);
}

// (dy, q, k, v, [bias, [segments,]] y, lse) -> (dq, dk, dv)
void InferBackward(Node& node) {
  CheckOperands(node, 1);
  const Value *dy = node.in(0), *y = node.in(node.inputs().size() - 2);
  if (dy->concrete() && y->concrete()) {
    CheckFits(*dy->shape == *y->shape, node, "dy of y's shape");
  }
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    SameAs(node.in(i + 1), node.out(i));
  }
}

// Checks the node's operands, with qkv as input `first`.
void CheckPacked(const Node& node, size_t first) {
  CheckHeads(node);
  std::vector<int64_t> perm = node.Ints("perm");
  Check(perm == std::vector<int64_t>{0, 1, 2} ||
            perm == std::vector<int64_t>{1, 0, 2},
        "[", node.Where(), "] expected perm [0,1,2] or [1,0,2], got ",
        ToString(perm));
  const Value* qkv = node.in(first);
  int64_t heads = node.Int("heads", 0) + 2 * node.Int("kv_heads", 0);
  if (!qkv->concrete()) return;
  CheckFits(qkv->rank() == 3 && qkv->dim(2) % heads == 0, node,
            "qkv of B·T rows of (H+2G)·D elements");
}

// (qkv[, bias]) -> (y, lse)
void InferPacked(Node& node) {
  CheckPacked(node, 0);
  Value *y = node.out(0), *lse = node.out(1);
  SameAs(node.in(0), y);
  if (lse) lse->dtype = y->dtype;
  auto z = ShapeOfAttention(node);
  if (!z) return;
  y->shape->back() = z->heads * z->d;
  if (lse) lse->shape = Shape{z->b, z->heads, z->t};
}

// (qkv, bias, segments) -> (y, lse)
void InferPackedSegments(Node& node) {
  InferPacked(node);
  CheckSegments(node, 2);
}

// (dy, qkv, [bias, [segments,]] y, lse) -> dqkv
void InferPackedBackward(Node& node) {
  CheckPacked(node, 1);
  const Value *dy = node.in(0), *y = node.in(node.inputs().size() - 2);
  if (dy->concrete() && y->concrete()) {
    CheckFits(*dy->shape == *y->shape, node, "dy of y's shape");
  }
  SameAs(node.in(1), node.out(0));
}

// q, k and v of qkv.
constexpr char kUnpack[] =
    R"(
  qkv_rows = Transpose <perm: ints = @perm> (qkv)
  axis_0 = Constant <value_ints = [0]> ()
  q_count_0d = Constant <value_int: int = @heads> ()
  kv_count_0d = Constant <value_int: int = @kv_heads> ()
  q_count = Unsqueeze (q_count_0d, axis_0)
  kv_count = Unsqueeze (kv_count_0d, axis_0)
  qk_count = Add (q_count, kv_count)
  all_count = Add (qk_count, kv_count)
  all_width = Shape <start = 2, end = 3> (qkv_rows)
  head_width = Div (all_width, all_count)
  q_columns = Mul (q_count, head_width)
  kv_columns = Mul (kv_count, head_width)
  widths = Concat <axis = 0> (q_columns, kv_columns, kv_columns)
  q, k, v = Split <axis = 2> (qkv_rows, widths)
)";
constexpr char kUnpackGradients[] =
    R"(
  dy = Transpose <perm: ints = @perm> (dy_packed)
  y = Transpose <perm: ints = @perm> (y_packed)
)";

// Scores s (B,H,T,S). The heads of a group are further rows of its product, so
// that k and v are not repeated: q_rows (B,G,H/G·T,D), k_t (B,G,D,S), v_t
// (B,G,S,E).
constexpr char kScores[] =
    R"(
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  zeros_1d = Constant <value_ints = [0]> ()
  ones_1d = Constant <value_ints = [1]> ()
  heads_0d = Constant <value_int: int = @heads> ()
  groups_0d = Constant <value_int: int = @kv_heads> ()
  heads = Unsqueeze (heads_0d, zeros_1d)
  groups = Unsqueeze (groups_0d, zeros_1d)
  batch = Shape <start = 0, end = 1> (q)
  rows = Shape <start = 1, end = 2> (q)
  q_width = Shape <start = 2, end = 3> (q)
  columns = Shape <start = 1, end = 2> (k)
  v_width = Shape <start = 2, end = 3> (v)
  depth = Div (q_width, heads)
  v_depth = Div (v_width, groups)
  y_width = Mul (v_depth, heads)
  repeats = Div (heads, groups)
  group_rows = Mul (repeats, rows)
  q_split = Concat <axis = 0> (batch, rows, heads, depth)
  k_split = Concat <axis = 0> (batch, columns, groups, depth)
  v_split = Concat <axis = 0> (batch, columns, groups, v_depth)
  q_grouped = Concat <axis = 0> (batch, groups, group_rows, depth)
  y_grouped = Concat <axis = 0> (batch, groups, group_rows, v_depth)
  s_grouped = Concat <axis = 0> (batch, groups, group_rows, columns)
  s_split = Concat <axis = 0> (batch, heads, rows, columns)
  y_split = Concat <axis = 0> (batch, heads, rows, v_depth)
  q_4 = Reshape <allowzero = 1> (q, q_split)
  k_4 = Reshape <allowzero = 1> (k, k_split)
  v_4 = Reshape <allowzero = 1> (v, v_split)
  q_heads = Transpose <perm = [0, 2, 1, 3]> (q_4)
  q_rows = Reshape <allowzero = 1> (q_heads, q_grouped)
  k_t = Transpose <perm = [0, 2, 3, 1]> (k_4)
  v_t = Transpose <perm = [0, 2, 1, 3]> (v_4)
  products = MatMul (q_rows, k_t)
  products_4 = Reshape <allowzero = 1> (products, s_split)
  scale_f = Constant <value_float: float = @scale> ()
  scale = CastLike (scale_f, q)
  scaled = Mul (products_4, scale)
  columns_0d = Squeeze (columns, zeros_1d)
  rows_0d = Squeeze (rows, zeros_1d)
  column_ids = Range (zero, columns_0d, one)
  row_range = Range (zero, rows_0d, one)
  row_ids = Unsqueeze (row_range, ones_1d)
  later = Greater (column_ids, row_ids)
  causal = Constant <value_int: int = @causal> ()
  is_causal = Cast <to = 9> (causal)
  hidden = And (later, is_causal)
  zero_f = CastLike (zero, q)
  unseen = Log (zero_f)
)";
constexpr char kProbabilities[] =
    R"(
  last = Constant <value_ints = [-1]> ()
  largest = ReduceMax (scores, last)
  less = Sub (scores, largest)
  powers = Exp (less)
  total = ReduceSum (powers, last)
  log_total = Log (total)
  lse_4 = Add (largest, log_total)
  lse = Squeeze (lse_4, last)
  powers_rounded = Cast <to: int = @round_to> (powers)
  powers_read = CastLike (powers_rounded, powers)
  powers_rows = Reshape <allowzero = 1> (powers_read, s_grouped)
  sum_rows = MatMul (powers_rows, v_t)
  sums = Reshape <allowzero = 1> (sum_rows, y_split)
  y_heads = Div (sums, total)
  y_4 = Transpose <perm = [0, 2, 1, 3]> (y_heads)
  y_shape = Concat <axis = 0> (batch, rows, y_width)
  y = Reshape <allowzero = 1> (y_4, y_shape)
)";
constexpr char kPackResult[] =
    R"(
  y_packed = Transpose <perm: ints = @perm> (y)
)";
constexpr char kGradients[] =
    R"(
  last = Constant <value_ints = [-1]> ()
  lse_4 = Unsqueeze (lse, last)
  less = Sub (scores, lse_4)
  p_of_lse = Exp (less)
  p_total = ReduceSum (p_of_lse, last)
  p = Div (p_of_lse, p_total)
  p_rounded = Cast <to: int = @round_to> (p)
  p_read = CastLike (p_rounded, p)
  p_rows = Reshape <allowzero = 1> (p_read, s_grouped)
  y_shape_4 = Concat <axis = 0> (batch, rows, heads, v_depth)
  dy_4 = Reshape <allowzero = 1> (dy, y_shape_4)
  dy_heads = Transpose <perm = [0, 2, 1, 3]> (dy_4)
  dy_rows = Reshape <allowzero = 1> (dy_heads, y_grouped)
  y_4 = Reshape <allowzero = 1> (y, y_shape_4)
  y_heads = Transpose <perm = [0, 2, 1, 3]> (y_4)
  dyy = Mul (dy_heads, y_heads)
  along = ReduceSum (dyy, last)
  v_turned = Transpose <perm = [0, 1, 3, 2]> (v_t)
  dp_rows = MatMul (dy_rows, v_turned)
  dp = Reshape <allowzero = 1> (dp_rows, s_split)
  rest = Sub (dp, along)
  ds_whole = Mul (p, rest)
  ds = Mul (ds_whole, scale)
  ds_rounded = Cast <to: int = @round_to> (ds)
  ds_read = CastLike (ds_rounded, ds)
  ds_rows = Reshape <allowzero = 1> (ds_read, s_grouped)
  k_rows = Transpose <perm = [0, 1, 3, 2]> (k_t)
  dq_rows = MatMul (ds_rows, k_rows)
  q_heads_shape = Concat <axis = 0> (batch, heads, rows, depth)
  dq_heads = Reshape <allowzero = 1> (dq_rows, q_heads_shape)
  dq_4 = Transpose <perm = [0, 2, 1, 3]> (dq_heads)
  q_shape = Shape (q)
  dq = Reshape <allowzero = 1> (dq_4, q_shape)
  ds_turned = Transpose <perm = [0, 1, 3, 2]> (ds_rows)
  dk_rows = MatMul (ds_turned, q_rows)
  dk_4 = Transpose <perm = [0, 2, 1, 3]> (dk_rows)
  k_shape = Shape (k)
  dk = Reshape <allowzero = 1> (dk_4, k_shape)
  p_turned = Transpose <perm = [0, 1, 3, 2]> (p_rows)
  dv_rows = MatMul (p_turned, dy_rows)
  dv_4 = Transpose <perm = [0, 2, 1, 3]> (dv_rows)
  v_shape = Shape (v)
  dv = Reshape <allowzero = 1> (dv_4, v_shape)
)";
// relative (H,T+S-1) as (H,T,S).
constexpr char kRelative[] =
    R"(
  last_row = Sub (rows_0d, one)
  distances = Sub (column_ids, row_ids)
  places = Add (distances, last_row)
  spread = Gather <axis = 1> (relative, places)
  moved = Add (scaled, spread)
  biased = Add (moved, bias)
  scores = Where (hidden, unseen, biased)
)";
// Row i of the gradient of the scores belongs T - 1 - i places further right in
// `relative`'s gradient. The rows are reversed and filled up by T zeros; read
// with rows of one element less, each row begins one place further right.
constexpr char kRelativeGradient[] =
    R"(
  ds_unscaled = Div (ds_read, scale)
  ds_batch = ReduceSum <keepdims = 0> (ds_unscaled, zeros_1d)
  minus_one = Constant <value_ints = [-1]> ()
  far = Constant <value_ints = [-9223372036854775807]> ()
  ds_reversed = Slice (ds_batch, minus_one, far, ones_1d, minus_one)
  no_pads = Constant <value_ints = [0, 0, 0, 0, 0]> ()
  pads = Concat <axis = 0> (no_pads, rows)
  ds_padded = Pad (ds_reversed, pads)
  flat_shape = Concat <axis = 0> (heads, minus_one)
  ds_flat = Reshape <allowzero = 0> (ds_padded, flat_shape)
  all_sizes = Add (rows, columns)
  kept_sizes = Sub (all_sizes, ones_1d)
  kept = Mul (rows, kept_sizes)
  ds_kept = Slice (ds_flat, zeros_1d, kept, ones_1d)
  skewed_shape = Concat <axis = 0> (heads, rows, kept_sizes)
  ds_skewed = Reshape <allowzero = 1> (ds_kept, skewed_shape)
  drelative = ReduceSum <keepdims = 0> (ds_skewed, ones_1d)
)";
constexpr char kPackGradients[] =
    R"(
  dqkv_rows = Concat <axis = 2> (dq, dk, dv)
  dqkv = Transpose <perm: ints = @perm> (dqkv_rows)
)";
constexpr char kPlain[] = "scores = Where (hidden, unseen, scaled)\n";
constexpr char kBiased[] =
    "biased = Add (scaled, bias)\n"
    "scores = Where (hidden, unseen, biased)\n";

constexpr char kOfSegments[] =
    R"(
  row_axes = Constant <value_ints = [1, 3]> ()
  column_axes = Constant <value_ints = [1, 2]> ()
  segment_of_row = Unsqueeze (segments, row_axes)
  segment_of_column = Unsqueeze (segments, column_axes)
  same = Equal (segment_of_row, segment_of_column)
  other = Not (same)
  apart = Or (hidden, other)
  biased = Add (scaled, bias)
  scores = Where (apart, unseen, biased)
)";

std::string Body(const std::vector<const char*>& parts) {
  std::string body = std::string(parts.front()) + " {";
  for (size_t i = 1; i < parts.size(); ++i) body += parts[i];
  return body + "}";
}

constexpr OpFacts kForward = {
    OpKind::kAttention,   OpForm::kHeads,  Precision::kNarrowThree,
    ConstantUse::kWeight, Division::kEven, {.flops = AttentionFlops}};
constexpr OpFacts kOfPacked = {
    OpKind::kAttention,   OpForm::kAny,     Precision::kNarrowFirst,
    ConstantUse::kWeight, Division::kWhole, {.flops = AttentionFlops}};
constexpr OpFacts kBackward =
    LateOp(OpKind::kAttentionGrad, {.flops = AttentionGradFlops});

// The ops with segments.
std::vector<OpDefinition> SegmentOps(
    const std::vector<AttributeDefinition>& attributes,
    const std::vector<AttributeDefinition>& packed_attributes) {
  static const std::string of_segments =
      Body({"(q, k, v, bias, segments) => (y, lse)", kScores, kOfSegments,
            kProbabilities});
  static const std::string of_segments_grad =
      Body({"(dy, q, k, v, bias, segments, y, lse) => (dq, dk, dv)", kScores,
            kOfSegments, kGradients});
  static const std::string packed_segments =
      Body({"(qkv, bias, segments) => (y_packed, lse)", kUnpack, kScores,
            kOfSegments, kProbabilities, kPackResult});
  static const std::string packed_segments_grad = Body(
      {"(dy_packed, qkv, bias, segments, y_packed, lse) => (dqkv)", kUnpack,
       kUnpackGradients, kScores, kOfSegments, kGradients, kPackGradients});
  return {
      {"AttentionSegments", attributes, of_segments.c_str(), InferSegments,
       kForward},
      {"AttentionSegmentsGrad", attributes, of_segments_grad.c_str(),
       InferBackward, kBackward},
      {"AttentionPackedSegments", packed_attributes, packed_segments.c_str(),
       InferPackedSegments, kOfPacked},
      {"AttentionPackedSegmentsGrad", packed_attributes,
       packed_segments_grad.c_str(), InferPackedBackward, kBackward},
  };
}

}  // namespace

std::vector<OpDefinition> AttentionOps() {
  const std::vector<AttributeDefinition> attributes = {
      {"heads", AttributeKind::kInt},
      {"kv_heads", AttributeKind::kInt},
      {"scale", AttributeKind::kFloat},
      {"causal", AttributeKind::kInt},
      {"round_to", AttributeKind::kInt}};
  std::vector<AttributeDefinition> packed_attributes = attributes;
  packed_attributes.push_back({"perm", AttributeKind::kInts});
  static const std::string plain =
      Body({"(q, k, v) => (y, lse)", kScores, kPlain, kProbabilities});
  static const std::string biased =
      Body({"(q, k, v, bias) => (y, lse)", kScores, kBiased, kProbabilities});
  static const std::string plain_grad = Body(
      {"(dy, q, k, v, y, lse) => (dq, dk, dv)", kScores, kPlain, kGradients});
  static const std::string biased_grad =
      Body({"(dy, q, k, v, bias, y, lse) => (dq, dk, dv)", kScores, kBiased,
            kGradients});
  static const std::string relative =
      Body({"(q, k, v, relative, bias) => (y, lse)", kScores, kRelative,
            kProbabilities});
  static const std::string relative_grad =
      Body({"(dy, q, k, v, relative, bias, y, lse) => (dq, dk, dv, drelative)",
            kScores, kRelative, kGradients, kRelativeGradient});
  static const std::string packed =
      Body({"(qkv) => (y_packed, lse)", kUnpack, kScores, kPlain,
            kProbabilities, kPackResult});
  static const std::string packed_biased =
      Body({"(qkv, bias) => (y_packed, lse)", kUnpack, kScores, kBiased,
            kProbabilities, kPackResult});
  static const std::string packed_grad =
      Body({"(dy_packed, qkv, y_packed, lse) => (dqkv)", kUnpack,
            kUnpackGradients, kScores, kPlain, kGradients, kPackGradients});
  static const std::string packed_biased_grad =
      Body({"(dy_packed, qkv, bias, y_packed, lse) => (dqkv)", kUnpack,
            kUnpackGradients, kScores, kBiased, kGradients, kPackGradients});
  // The bias broadcasts to the scores (B,H,T,S) and has no gradient.
  std::vector<OpDefinition> ops = {
      {"Attention", attributes, plain.c_str(), InferForward, kForward},
      {"AttentionBias", attributes, biased.c_str(), InferForward, kForward},
      {"AttentionGrad", attributes, plain_grad.c_str(), InferBackward,
       kBackward},
      {"AttentionBiasGrad", attributes, biased_grad.c_str(), InferBackward,
       kBackward},
      {"AttentionRelative", attributes, relative.c_str(), InferForward,
       kForward},
      {"AttentionRelativeGrad", attributes, relative_grad.c_str(),
       InferBackward, kBackward},
      {"AttentionPacked", packed_attributes, packed.c_str(), InferPacked,
       kOfPacked},
      {"AttentionPackedBias", packed_attributes, packed_biased.c_str(),
       InferPacked, kOfPacked},
      {"AttentionPackedGrad", packed_attributes, packed_grad.c_str(),
       InferPackedBackward, kBackward},
      {"AttentionPackedBiasGrad", packed_attributes, packed_biased_grad.c_str(),
       InferPackedBackward, kBackward},
  };
  std::ranges::copy(SegmentOps(attributes, packed_attributes),
                    std::back_inserter(ops));
  return ops;
}

}  // namespace onnx_fp8
