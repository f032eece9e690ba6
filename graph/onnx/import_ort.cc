// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/import_ort.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/infer_shapes.h"

namespace onnx_fp8 {
namespace {

constexpr char kWhat[] = "DynamicQuantizeLSTM";

// An 8-bit matrix (rows, columns) with one scale and zero point, or a pair for
// each column.
struct Codes {
  Value *matrix, *scale, *zero;
};

// x · codes: x is rounded to 8 bits by its own range.
Value* Product(Builder& b, Value* x, const Codes& codes) {
  std::vector<Value*> q = b.Ops("DynamicQuantizeLinear", {x}, 3);
  Value* sum = b.Op("MatMulInteger", {q[0], codes.matrix, q[2], codes.zero});
  return b.Mul(b.Cast(sum, DType::kFloat), b.Mul(q[1], codes.scale));
}

void CheckForm(const Node& node) {
  Check(node.Float("clip", 0) == 0 && node.Int("input_forget", 0) == 0,
        "expected ", kWhat, " without clip and input_forget, got one");
  for (size_t i = 8; i < 12; ++i) {
    Check(node.in(i) != nullptr, "expected ", kWhat,
          " with scales and zero points, lacks input ", i);
  }
  auto it = node.attributes.find("activations");
  if (it != node.attributes.end()) {
    auto* names = std::get_if<std::vector<std::string>>(&it->second);
    for (size_t i = 0; names && i < names->size(); ++i) {
      Check((*names)[i] == (i % 3 == 0 ? "Sigmoid" : "Tanh"), "expected ",
            kWhat, " with its default activations, got ", (*names)[i]);
    }
  }
  Check(!node.in(4), "expected ", kWhat, " without sequence_lens, got ",
        node.in(4) ? node.in(4)->name : "");
  Check(!node.in(7), "expected ", kWhat, " without peepholes, got ",
        node.in(7) ? node.in(7)->name : "");
}

// One step: h, c and the product of x, with the biases → h, c, h.
std::shared_ptr<Graph> Step(const Graph& outer, const Codes& recurrent) {
  auto body = std::make_shared<Graph>();
  body->name = "lstm.step";
  body->file = outer.file;
  body->opset = outer.opset;
  Value* h = body->AddInput("h", DType::kFloat, std::nullopt);
  Value* c = body->AddInput("c", DType::kFloat, std::nullopt);
  Value* from_x = body->AddInput("from_x", DType::kFloat, std::nullopt);
  auto captured = [&](const Value* value) {
    Value* inner = body->AddCaptured(value->name);
    inner->dtype = value->dtype;
    inner->shape = value->shape;
    return inner;
  };
  Builder b(*body, "lstm.");
  Codes codes = {captured(recurrent.matrix), captured(recurrent.scale),
                 captured(recurrent.zero)};
  Value* gates = b.Add(from_x, Product(b, h, codes));
  std::vector<Value*> parts =
      b.Ops("Split", {gates}, 4,
            {{"axis", int64_t{-1}}, {"num_outputs", int64_t{4}}});
  Value* input = b.Op("Sigmoid", {parts[0]});
  Value* output = b.Op("Sigmoid", {parts[1]});
  Value* forget = b.Op("Sigmoid", {parts[2]});
  Value* fresh = b.Op("Tanh", {parts[3]});
  Value* next = b.Add(b.Mul(forget, c), b.Mul(input, fresh));
  Value* y = b.Mul(output, b.Op("Tanh", {next}));
  body->outputs = {y, next, b.Op("Identity", {y})};
  return body;
}

// The results (Y, Y_h, Y_c) of com.microsoft.DynamicQuantizeLSTM, an LSTM with
// 8-bit weights, as a Scan of integer products: the input is rounded to 8 bits
// as a whole, the state in each step. Errors: sequence_lens, peepholes, other
// activations.
std::vector<Value*> ImportDynamicQuantizeLstm(Builder& b, Node& node) {
  CheckForm(node);
  std::string direction = node.String("direction", "forward");
  const bool both = direction == "bidirectional";
  Check(both || direction == "forward" || direction == "reverse",
        "expected direction forward, reverse or bidirectional, got ",
        direction);
  const int64_t hidden = node.Int("hidden_size", 0);
  Value* x = node.in(0);
  auto of = [&](size_t i, int64_t d) {
    return b.Op("Gather", {node.in(i), b.Int(d)}, {{"axis", int64_t{0}}});
  };
  auto sizes = [&](int64_t begin) {
    return b.Op("Slice", {b.Op("Shape", {x}), b.Ints({begin}),
                          b.Ints({begin + 1}), b.Ints({0})});
  };
  Value* state_shape =
      b.Op("Concat", {sizes(1), b.Ints({hidden})}, {{"axis", int64_t{0}}});
  Value* zeros =
      b.Op("Expand", {b.Constant(Tensor::Scalar(0.0f)), state_shape});
  std::vector<Value*> rows, last_h, last_c;
  for (int64_t d = 0; d < (both ? 2 : 1); ++d) {
    auto codes = [&](size_t matrix, size_t scale) {
      return Codes{of(matrix, d), of(scale, d), of(scale + 1, d)};
    };
    Value* from_x = Product(b, x, codes(1, 8));
    if (node.in(3)) {
      std::vector<Value*> biases =
          b.Ops("Split", {of(3, d)}, 2, {{"num_outputs", int64_t{2}}});
      from_x = b.Add(from_x, b.Add(biases[0], biases[1]));
    }
    int64_t reverse = direction == "reverse" || d == 1;
    Attributes attributes = {
        {"body", Step(b.graph(), codes(2, 10))},
        {"num_scan_inputs", int64_t{1}},
        {"scan_input_directions", std::vector<int64_t>{reverse}},
        {"scan_output_directions", std::vector<int64_t>{reverse}}};
    std::vector<Value*> results = b.Ops(
        "Scan",
        {node.in(5) ? of(5, d) : zeros, node.in(6) ? of(6, d) : zeros, from_x},
        3, attributes);
    for (Value* result : results) result->dtype = DType::kFloat;
    auto with_axis = [&](Value* value, int64_t axis) {
      return b.Op("Unsqueeze", {value, b.Ints({axis})});
    };
    last_h.push_back(with_axis(results[0], 0));
    last_c.push_back(with_axis(results[1], 0));
    rows.push_back(with_axis(results[2], 1));
  }
  auto join = [&](const std::vector<Value*>& parts, int64_t axis) {
    return parts.size() == 1 ? parts[0]
                             : b.Op("Concat", parts, {{"axis", axis}});
  };
  return {join(rows, 1), join(last_h, 0), join(last_c, 0)};
}

using Values = std::vector<Value*>;

// --- products
int64_t RankOf(const Node& node, size_t i) {
  const Value* x = node.in(i);
  Check(x && x->shape, "[", node.Where(), "] expected operand ", i,
        " of known rank, got ", x ? x->name : "none");
  return x->rank();
}

// Operand i with its last two axes swapped if trans… is 1. A vector stays.
Value* Operand(Builder& b, const Node& node, size_t i, const char* transposed,
               const char* batch) {
  Check(node.Int(batch, 0) == 0, "[", node.Where(), "] expected ", batch,
        " 0, got ", node.Int(batch, 0));
  Value* x = node.in(i);
  if (node.Int(transposed, 0) == 0 || RankOf(node, i) < 2) return x;
  return b.SwapLast(x);
}

Values FusedMatMul(Builder& b, Node& node) {
  Value* x = Operand(b, node, 0, "transA", "transBatchA");
  Value* w = Operand(b, node, 1, "transB", "transBatchB");
  Value* y = b.Op("MatMul", {x, w});
  float alpha = node.Float("alpha", 1);
  return {alpha == 1 ? y : b.Mul(y, b.Scalar(double{alpha}, y))};
}

// --- activations
Attributes Tanh() { return {{"approximate", std::string("tanh")}}; }

Value* WithBias(Builder& b, Node& node, size_t x, size_t bias) {
  return node.in(bias) ? b.Add(node.in(x), node.in(bias)) : node.in(x);
}

Values Gelu(Builder& b, Node& node) { return {b.Op("Gelu", {node.in(0)})}; }

Values BiasGelu(Builder& b, Node& node) {
  return {b.Op("Gelu", {WithBias(b, node, 0, 1)})};
}

Values FastGelu(Builder& b, Node& node) {
  return {b.Op("Gelu", {WithBias(b, node, 0, 1)}, Tanh())};
}

Value* Alpha(Builder& b, Node& node) {
  return b.Scalar(double{node.Float("alpha", 1.702f)}, node.in(0));
}

// x σ(α x)
Values QuickGelu(Builder& b, Node& node) {
  Value* x = node.in(0);
  float alpha = node.Float("alpha", 1.702f);
  Value* scaled = alpha == 1 ? x : b.Mul(Alpha(b, node), x);
  return {b.Mul(x, b.Op("Sigmoid", {scaled}))};
}

Values GeluGrad(Builder& b, Node& node) {
  return {b.Ours("GeluGrad", {node.in(0), node.in(1)})};
}

Values BiasGeluGrad(Builder& b, Node& node) {
  return {b.Ours("GeluGrad", {node.in(0), WithBias(b, node, 1, 2)})};
}

Values FastGeluGrad(Builder& b, Node& node) {
  return {b.Ours("GeluTanhGrad", {node.in(0), WithBias(b, node, 1, 2)})};
}

// The slope is s (1 + α x (1 - s)).
Values QuickGeluGrad(Builder& b, Node& node) {
  Value *dy = node.in(0), *x = node.in(1);
  Value* one = b.Scalar(1, x);
  Value* scaled = b.Mul(Alpha(b, node), x);
  Value* s = b.Op("Sigmoid", {scaled});
  Value* inner = b.Add(one, b.Mul(scaled, b.Sub(one, s)));
  return {b.Mul(dy, b.Mul(s, inner))};
}

Values ReluGrad(Builder& b, Node& node) {
  Value *dy = node.in(0), *x = node.in(1);
  Value* zero = b.Scalar(0, x);
  return {b.Op("Where", {b.Op("Greater", {x, zero}), dy, zero})};
}

// The gradient of y = σ(x).
Values SigmoidGrad(Builder& b, Node& node) {
  Value *dy = node.in(0), *y = node.in(1);
  return {b.Mul(dy, b.Mul(y, b.Sub(b.Scalar(1, y), y)))};
}

// The gradient of y = tanh(x).
Values TanhGrad(Builder& b, Node& node) {
  Value *dy = node.in(0), *y = node.in(1);
  return {b.Mul(dy, b.Sub(b.Scalar(1, y), b.Mul(y, y)))};
}

Values SoftmaxGrad(Builder& b, Node& node) {
  return {b.Ours("SoftmaxGrad", {node.in(0), node.in(1)},
                 {{"axis", node.Int("axis", -1)}})};
}

// The gradient of y = log softmax(x): dy - exp(y) Σ dy.
Values LogSoftmaxGrad(Builder& b, Node& node) {
  Value *dy = node.in(0), *y = node.in(1);
  Value* sum = b.ReduceSum(dy, {node.Int("axis", -1)}, true);
  return {b.Sub(dy, b.Mul(b.Op("Exp", {y}), sum))};
}

// dy · mask / (1 - ratio), whatever the mode is.
Values DropoutGrad(Builder& b, Node& node) {
  Value *dy = node.in(0), *ratio = node.in(2);
  Value* kept = b.Mul(dy, b.Cast(node.in(1), dy->dtype));
  Value* dropped = ratio ? b.Cast(ratio, dy->dtype) : b.Scalar(0.5, dy);
  return {b.Div(kept, b.Sub(b.Scalar(1, dy), dropped))};
}

// --- norms
// The axes from `axis` on, and those before it, as int64 vectors.
std::pair<Value*, Value*> NormAxes(Builder& b, Node& node, Value* x) {
  Check(x->shape.has_value(), "[", node.Where(),
        "] expected an operand of known rank, got ", x->name);
  int64_t axis = node.Int("axis", -1);
  if (axis < 0) axis += x->rank();
  std::vector<int64_t> axes, lead;
  for (int64_t i = 0; i < x->rank(); ++i) (i < axis ? lead : axes).push_back(i);
  return {b.Ints(axes), b.Ints(lead)};
}

Attributes DropAxes() {
  return {{"keepdims", int64_t{0}}, {"noop_with_empty_axes", int64_t{1}}};
}

// Outputs: y and the reciprocal of the root of the mean square.
Values SimplifiedLayerNorm(Builder& b, Node& node) {
  Value *x = node.in(0), *scale = node.in(1);
  double epsilon = double{node.Float("epsilon", 1e-5f)};
  Attributes norm = {{"axis", node.Int("axis", -1)},
                     {"epsilon", static_cast<float>(epsilon)}};
  Values results = {b.Op("RMSNormalization", {x, scale}, norm)};
  if (!node.out(1)) return results;
  auto [axes, lead] = NormAxes(b, node, x);
  Value* square = b.Op("ReduceMean", {b.Mul(x, x), axes});
  Value* root = b.Op("Sqrt", {b.Add(square, b.Scalar(epsilon, x))});
  results.push_back(b.Op("Reciprocal", {root}));
  return results;
}

// (dy, x, scale, mean, inv_std); mean is null for the simplified form.
Values NormGrad(Builder& b, Node& node, Value* mean, Value* inv_std) {
  Value *dy = node.in(0), *x = node.in(1), *scale = node.in(2);
  auto [axes, lead] = NormAxes(b, node, x);
  Value* h = b.Mul(mean ? b.Sub(x, mean) : x, inv_std);
  Value* dh = b.Mul(dy, scale);
  Value* along = b.Mul(h, b.Op("ReduceMean", {b.Mul(dh, h), axes}));
  Value* rest = mean ? b.Sub(dh, b.Op("ReduceMean", {dh, axes})) : dh;
  Value* dx = b.Mul(b.Sub(rest, along), inv_std);
  Value* dscale = b.Op("ReduceSum", {b.Mul(dy, h), lead}, DropAxes());
  if (!mean) return {dx, dscale};
  return {dx, dscale, b.Op("ReduceSum", {dy, lead}, DropAxes())};
}

Values LayerNormGrad(Builder& b, Node& node) {
  return NormGrad(b, node, node.in(3), node.in(4));
}

Values SimplifiedLayerNormGrad(Builder& b, Node& node) {
  return NormGrad(b, node, nullptr, node.in(3));
}

// The axes of x that a BatchNormalization averages over: all but the second.
std::vector<int64_t> BatchAxes(const Node& node, size_t i) {
  std::vector<int64_t> axes = {0};
  for (int64_t axis = 2; axis < RankOf(node, i); ++axis) axes.push_back(axis);
  return axes;
}

// One number for each channel, as it meets x.
Value* PerChannel(Builder& b, Value* x, Value* channels) {
  std::vector<int64_t> sizes = {-1};
  for (int64_t axis = 2; axis < x->rank(); ++axis) sizes.push_back(1);
  return b.Op("Reshape", {channels, b.Ints(sizes)});
}

// Outputs: y, the running mean and variance, the batch's mean and the
// reciprocal of its deviation.
Values BatchNormInternal(Builder& b, Node& node) {
  Value* x = node.in(0);
  float epsilon = node.Float("epsilon", 1e-5f);
  Values results = b.Ops("BatchNormalization", node.inputs(), 3,
                         {{"epsilon", epsilon},
                          {"momentum", node.Float("momentum", 0.9f)},
                          {"training_mode", int64_t{1}}});
  if (!node.out(3) && !node.out(4)) return results;
  Attributes drop = {{"keepdims", int64_t{0}}};
  Value* axes = b.Ints(BatchAxes(node, 0));
  Value* mean = b.Op("ReduceMean", {x, axes}, drop);
  Value* centered = b.Sub(x, PerChannel(b, x, mean));
  Value* variance = b.Op("ReduceMean", {b.Mul(centered, centered), axes}, drop);
  Value* root = b.Op("Sqrt", {b.Add(variance, b.Scalar(double{epsilon}, x))});
  results.push_back(mean);
  results.push_back(b.Op("Reciprocal", {root}));
  return results;
}

// (dy, x, scale, mean, inv_std) → (dx, dscale, dbias)
Values BatchNormGrad(Builder& b, Node& node) {
  Value *dy = node.in(0), *x = node.in(1);
  std::vector<int64_t> axes = BatchAxes(node, 1);
  Value* inv_std = PerChannel(b, x, node.in(4));
  Value* h = b.Mul(b.Sub(x, PerChannel(b, x, node.in(3))), inv_std);
  Value* product = b.Mul(dy, h);
  Value* dy_mean = b.Op("ReduceMean", {dy, b.Ints(axes)});
  Value* along = b.Mul(h, b.Op("ReduceMean", {product, b.Ints(axes)}));
  Value* rest = b.Sub(b.Sub(dy, dy_mean), along);
  Value* factor = b.Mul(PerChannel(b, x, node.in(2)), inv_std);
  return {b.Mul(rest, factor), b.ReduceSum(product, axes, false),
          b.ReduceSum(dy, axes, false)};
}

// --- loss
// (dloss, log_prob, labels[, weight]) → dlogits. Labels that are ignored have
// no row of ones.
Values LossGrad(Builder& b, Node& node) {
  Value *dloss = node.in(0), *log_prob = node.in(1), *labels = node.in(2);
  Check(!node.in(3), "[", node.Where(),
        "] expected a loss without weights of classes, got ",
        node.in(3) ? node.in(3)->name : "");
  std::string reduction = node.String("reduction", "mean");
  Value* dscores = dloss;
  Value* ignored = b.Constant(
      ConvertTo(Tensor::Scalar(node.Int("ignore_index", -1)), labels->dtype));
  Value* valid =
      b.Cast(b.Op("Not", {b.Op("Equal", {labels, ignored})}), dloss->dtype);
  if (reduction == "mean") {
    Value* count = b.Op("ReduceSum", {valid}, {{"keepdims", int64_t{0}}});
    dscores = b.Div(dloss, b.Op("Max", {count, b.Scalar(1, count)}));
  }
  Value* one = b.Ints({1});
  Value* each = b.Op("Unsqueeze", {b.Mul(dscores, valid), one});
  // Classes run along axis 1.
  Value* shape = b.Op("Shape", {log_prob});
  Value* classes = b.Op("Gather", {shape, b.Int(1)});
  Value* numbers = b.Op("Range", {b.Int(0), classes, b.Int(1)});
  std::vector<int64_t> column = {-1};
  for (int64_t i = 2; i < RankOf(node, 1); ++i) column.push_back(1);
  Value* ids = b.Op("Reshape", {numbers, b.Ints(column)});
  Value* hot = b.Op(
      "Equal", {b.Op("Unsqueeze", {b.Cast(labels, DType::kInt64), one}), ids});
  Value* miss = b.Sub(b.Op("Exp", {log_prob}), b.Cast(hot, log_prob->dtype));
  return {b.Mul(miss, each)};
}

// --- convolution
// The sizes of x behind its first two axes.
Shape SpatialSizes(const Node& node, size_t i) {
  Check(RankOf(node, i) >= 3, "[", node.Where(), "] expected operand ", i,
        " of rank 3 or more, got ", RankOf(node, i));
  Shape sizes(node.in(i)->shape->begin() + 2, node.in(i)->shape->end());
  Check(IsConcrete(sizes), "[", node.Where(), "] expected operand ", i,
        " of known spatial sizes, got ", ToString(sizes));
  return sizes;
}

Value* SwapFirst(Builder& b, Value* x) {
  std::vector<int64_t> perm = {1, 0};
  for (int64_t i = 2; i < x->rank(); ++i) perm.push_back(i);
  return b.Transpose(x, perm);
}

// (N, g · C, X…) → (C, g · N, X…)
Value* GroupsToImages(Builder& b, Value* x, int64_t groups, int64_t channels) {
  if (groups == 1) return SwapFirst(b, x);
  std::vector<int64_t> split = {0, groups, channels};
  std::vector<int64_t> joined = {channels, -1};
  std::vector<int64_t> perm = {2, 1, 0};
  for (int64_t i = 2; i < x->rank(); ++i) {
    split.push_back(x->dim(i));
    joined.push_back(x->dim(i));
    perm.push_back(i + 1);
  }
  Value* parts = b.Op("Reshape", {x, b.Ints(split)});
  return b.Op("Reshape", {b.Transpose(parts, perm), b.Ints(joined)});
}

// (dy, x, weight) → (dx, dweight, dbias) of a Conv. The gradient of the weight
// is a Conv of x with dy, whose strides and dilations are swapped; rows of x
// that no window reads may give it more taps than the weight has.
Values ConvGrad(Builder& b, Node& node) {
  Value *dy = node.in(0), *x = node.in(1), *weight = node.in(2);
  Check(node.String("auto_pad", "NOTSET") == "NOTSET", "[", node.Where(),
        "] expected auto_pad NOTSET, got ", node.String("auto_pad", "NOTSET"));
  Shape sizes = SpatialSizes(node, 1), taps = SpatialSizes(node, 2);
  size_t n = sizes.size();
  auto strides = node.Ints("strides", std::vector<int64_t>(n, 1));
  auto dilations = node.Ints("dilations", std::vector<int64_t>(n, 1));
  auto pads = node.Ints("pads", std::vector<int64_t>(2 * n, 0));
  Check(taps.size() == n && strides.size() == n && dilations.size() == n &&
            pads.size() == 2 * n,
        "[", node.Where(), "] expected strides, dilations and pads for ", n,
        " axes, got others");
  // Beyond this, sums of these numbers could overflow.
  constexpr int64_t kMost = 1 << 20;
  auto all_within = [](const std::vector<int64_t>& list, int64_t least) {
    return std::ranges::all_of(
        list, [&](int64_t x) { return x >= least && x <= kMost; });
  };
  Check(all_within(strides, 1) && all_within(dilations, 1) &&
            all_within(pads, 0) && all_within(taps, 1) &&
            RankOf(node, 0) == RankOf(node, 1),
        "[", node.Where(), "] expected strides, dilations and taps of 1 to ",
        kMost, ", pads of 0 to ", kMost, " and operands of one rank");
  int64_t groups = node.Int("group", 1), channels = weight->dim(1);
  Check(groups == 1 ||
            (groups > 1 && channels > 0 && x->dim(1) > 0 &&
             x->dim(1) % groups == 0 && x->dim(1) / groups == channels),
        "[", node.Where(), "] expected channels that fit ", groups,
        " groups, got x ", ToString(*x->shape), " and weight ",
        ToString(*weight->shape));
  std::vector<int64_t> unread, ends, axes, rest = {0};
  for (size_t i = 0; i < n; ++i) {
    int64_t window = (taps[i] - 1) * dilations[i] + 1;
    Check(window <= sizes[i] + pads[i] + pads[i + n], "[", node.Where(),
          "] expected a window within x, got ", window, " for a size of ",
          sizes[i]);
    unread.push_back((sizes[i] + pads[i] + pads[i + n] - window) % strides[i]);
    ends.push_back(taps[i]);
    axes.push_back(static_cast<int64_t>(i) + 2);
    rest.push_back(static_cast<int64_t>(i) + 2);
  }
  Value* dx = b.Op("ConvTranspose", {dy, weight},
                   {{"strides", strides},
                    {"dilations", dilations},
                    {"pads", pads},
                    {"group", groups},
                    {"output_padding", unread}});
  Value* images = GroupsToImages(b, x, groups, channels);
  Value* all = b.Op("Conv", {images, SwapFirst(b, dy)},
                    {{"strides", dilations},
                     {"dilations", strides},
                     {"group", groups},
                     {"pads", pads}});
  Value* some = b.Op("Slice", {all, b.Ints(std::vector<int64_t>(n, 0)),
                               b.Ints(ends), b.Ints(axes)});
  return {dx, SwapFirst(b, some), b.ReduceSum(dy, rest, false)};
}

// --- movement
// Zeros of `shape` (a tensor) to which rows are added at places of the axis.
Values GatherGrad(Builder& b, Node& node) {
  Value *shape = node.in(0), *indices = node.in(1), *dy = node.in(2);
  int64_t axis = node.Int("axis", 0);
  Value* zero = b.Ints({0});
  Value* rank = b.Op("Shape", {shape});
  Value* first = axis >= 0 ? b.Ints({axis}) : b.Add(rank, b.Ints({axis}));
  Value* next = b.Add(first, b.Ints({1}));
  Value* before = b.Op("Slice", {shape, zero, first});
  Value* after = b.Op("Slice", {shape, next, rank});
  Value* count = b.Op("Reshape", {b.Op("Size", {indices}), b.Ints({1})});
  Attributes along = {{"axis", int64_t{0}}};
  Value* rows_shape = b.Op("Concat", {before, count, after}, along);
  Value* rows = b.Op("Reshape", {dy, rows_shape}, {{"allowzero", int64_t{1}}});
  Value* ones = b.Op("ConstantOfShape", {b.Op("Shape", {after})},
                     {{"value", Tensor::Ints({1})}});
  Value* places =
      b.Op("Reshape", {indices, b.Op("Concat", {count, ones}, along)},
           {{"allowzero", int64_t{1}}});
  Value* all = b.Op("Expand", {places, rows_shape});
  Value* zeros = b.Op("Expand", {b.Scalar(0, dy), shape});
  return {b.Op("ScatterElements", {zeros, all, rows},
               {{"axis", axis}, {"reduction", std::string("add")}})};
}

// Zeros of `shape` (a tensor) into which dy is put where the Slice read.
Values SliceGrad(Builder& b, Node& node) {
  Value *dy = node.in(0), *shape = node.in(1);
  Value* flat = b.Ints({-1});
  Value* size = b.Op("ReduceProd", {shape}, {{"keepdims", int64_t{0}}});
  Value* numbers = b.Op("Range", {b.Int(0), size, b.Int(1)});
  Values slice = {
      b.Op("Reshape", {numbers, shape}, {{"allowzero", int64_t{1}}})};
  for (size_t i = 2; i < node.inputs().size(); ++i) slice.push_back(node.in(i));
  Value* places = b.Op("Reshape", {b.Op("Slice", slice), flat});
  Value* zeros =
      b.Op("Expand", {b.Scalar(0, dy), b.Op("Unsqueeze", {size, b.Ints({0})})});
  Value* put =
      b.Op("ScatterElements", {zeros, places, b.Op("Reshape", {dy, flat})});
  return {b.Op("Reshape", {put, shape}, {{"allowzero", int64_t{1}}})};
}

// Outputs: the whole and the length of each part.
Values ConcatTraining(Builder& b, Node& node) {
  int64_t axis = node.Int("axis", 0);
  for (const Value* part : node.inputs()) {
    Check(part != nullptr, "[", node.Where(), "] lacks one of its inputs");
  }
  Values results = {b.Op("Concat", node.inputs(), {{"axis", axis}})};
  if (!node.out(1)) return results;
  Values lengths;
  for (Value* part : node.inputs()) {
    Value* shape = b.Op("Shape", {part});
    lengths.push_back(b.Op("Gather", {shape, b.Ints({axis})}));
  }
  results.push_back(b.Op("Concat", lengths, {{"axis", int64_t{0}}}));
  return results;
}

Values SplitTraining(Builder& b, Node& node) {
  return b.Ops("Split", {node.in(0), node.in(1)}, node.outputs().size(),
               {{"axis", node.Int("axis", 0)}});
}

// x · scale, or x / scale.
Values Scale(Builder& b, Node& node) {
  Value* scale = b.Cast(node.in(1), node.in(0)->dtype);
  return {node.Int("scale_down", 0) != 0 ? b.Div(node.in(0), scale)
                                         : b.Mul(node.in(0), scale)};
}

// (buffer, value, overwrite) → (whether it was updated, the new buffer).
Values Accumulate(Builder& b, Node& node) {
  Value* sum = b.Add(node.in(0), node.in(1));
  if (node.in(2)) sum = b.Op("Where", {node.in(2), node.in(1), sum});
  Values results = {b.Constant(Tensor::Scalar(true).Reshaped({1}))};
  if (node.out(1)) results.push_back(sum);
  return results;
}

struct Row {
  const char* op;
  size_t operands;  // that must be there
  Values (*build)(Builder&, Node&);
};

constexpr Row kRows[] = {
    {"BatchNormInternal", 5, BatchNormInternal},
    {"BatchNormalizationGrad", 5, BatchNormGrad},
    {"BiasFastGeluGrad_dX", 3, FastGeluGrad},
    {"BiasGelu", 2, BiasGelu},
    {"BiasGeluGrad_dX", 3, BiasGeluGrad},
    {"ConcatTraining", 1, ConcatTraining},
    {"ConvGrad", 3, ConvGrad},
    {"DropoutGrad", 2, DropoutGrad},
    {"DynamicQuantizeLSTM", 3, ImportDynamicQuantizeLstm},
    {"FastGelu", 1, FastGelu},
    {"FastGeluGrad", 2, FastGeluGrad},
    {"FusedMatMul", 2, FusedMatMul},
    {"GatherGrad", 3, GatherGrad},
    {"Gelu", 1, Gelu},
    {"GeluGrad", 2, GeluGrad},
    {"InPlaceAccumulatorV2", 2, Accumulate},
    {"LayerNormalizationGrad", 5, LayerNormGrad},
    {"LogSoftmaxGrad_13", 2, LogSoftmaxGrad},
    {"QuickGelu", 1, QuickGelu},
    {"QuickGeluGrad", 2, QuickGeluGrad},
    {"ReluGrad", 2, ReluGrad},
    {"Scale", 2, Scale},
    {"SigmoidGrad", 2, SigmoidGrad},
    {"SimplifiedLayerNormalization", 2, SimplifiedLayerNorm},
    {"SimplifiedLayerNormalizationGrad", 4, SimplifiedLayerNormGrad},
    {"SliceGrad", 4, SliceGrad},
    {"SoftmaxCrossEntropyLossGrad", 3, LossGrad},
    {"SoftmaxGrad_13", 2, SoftmaxGrad},
    {"SplitTraining", 2, SplitTraining},
    {"TanhGrad", 2, TanhGrad},
};

const Row* FindRow(std::string_view op) {
  auto row =
      std::ranges::find_if(kRows, [&](const Row& row) { return row.op == op; });
  return row == std::end(kRows) ? nullptr : row;
}

// The node's outputs become `results`, under their own names.
void Replace(Graph& graph, Node* node, const Values& results, Builder& b) {
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    Value* out = node->out(i);
    if (!out) continue;
    Check(i < results.size(), "[", node->Where(), "] expected at most ",
          results.size(), " outputs, got ", node->outputs().size());
    Value* made = results[i];
    if (!made->producer || !made->uses.empty()) made = b.Op("Identity", {made});
    out->dtype = made->dtype;
    if (made->shape) out->shape = made->shape;
    Node* producer = made->producer;
    auto slot = std::ranges::find(producer->outputs(), made);
    graph.MoveOutput(out, producer,
                     static_cast<size_t>(slot - producer->outputs().begin()));
    producer->name = node->name;
  }
  graph.RemoveNode(node);
}

}  // namespace

void ImportOrtOps(Graph& graph) {
  bool any = std::ranges::any_of(graph.nodes(), [](const Node& node) {
    return node.domain == kOrtDomain && FindRow(node.op);
  });
  if (!any) return;
  for (auto it = graph.nodes().begin(); it != graph.nodes().end();) {
    Node* node = &*it++;
    const Row* row = node->domain == kOrtDomain ? FindRow(node->op) : nullptr;
    if (!row) {
      try {
        InferNode(*node, graph.opset);
      } catch (const Error&) {
        // Shapes that are known later judge the node.
      }
      continue;
    }
    ImportOrtOp(graph, node);
  }
}

void ImportOrtOp(Graph& graph, Node* node) {
  const Row& row = *FindRow(node->op);
  for (size_t i = 0; i < row.operands; ++i) {
    Check(node->in(i) != nullptr, "[", node->Where(), "] lacks input ", i);
  }
  Builder b(graph, (node->out(0) ? node->out(0)->name : node->op) + ".", node);
  b.set_metadata(node->metadata);
  try {
    Replace(graph, node, row.build(b, *node), b);
  } catch (const Error& error) {
    Fail("[", graph.file, ": ", node->Where(), "] ", error.what());
  }
}

}  // namespace onnx_fp8
