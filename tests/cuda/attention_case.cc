// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/attention_case.h"

#include <ostream>
#include <string_view>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

std::string ShapeText(int b, int rows, int width) {
  return Concat("float[", b, ",", rows, ",", width, "]");
}

std::string AttributesText(const AttentionCase& c) {
  return Concat("<heads=", c.heads, ", kv_heads=", c.groups, ", ", c.attributes,
                c.perm ? Concat(", perm=", c.perm) : "", ">");
}

// (B,T,width), or (T,B,width) where `perm` says so.
std::string RowsText(const AttentionCase& c, int width) {
  bool time_first = c.perm && std::string_view(c.perm) == "[1,0,2]";
  return time_first ? ShapeText(c.t, c.b, width) : ShapeText(c.b, c.t, width);
}

// A constant: documents of 1, 2, 3, … tokens.
std::string SegmentsText(const AttentionCase& c) {
  std::string text = Concat("const segments: int32[", c.b, ",", c.t, "] = {");
  for (int batch = 0; batch < c.b; ++batch) {
    int number = batch, left = 1 + batch;
    for (int i = 0; i < c.t; ++i) {
      text += Concat(batch + i > 0 ? "," : "", number);
      if (--left == 0) left = ++number + 1;
    }
  }
  return text + "}\n";
}

int PackedWidth(const AttentionCase& c) {
  return (c.heads + 2 * c.groups) * c.d;
}

// x (`type`) rounded, as `name`.
std::string RoundText(const std::string& name, const std::string& type,
                      const std::string& x) {
  return name + ": " + type + " = onnx_fp8.RoundTo<to=16>(" + x + ")\n";
}

// Readers of a rounded result: outputs.
std::string ReadersText(const std::string& x, const std::string& type) {
  return Concat("neg_", x, ": ", type, " = Neg(", x, ")\noutput neg_", x,
                "\nq_", x, ": float8e4m3fn", type.substr(5), ", scale_", x,
                ": float[], amax_", x,
                ": float[] = onnx_fp8.QuantizeTensor<to=17, q_max=448.0>(", x,
                ")\noutput amax_", x, "\n");
}

}  // namespace

AttentionCase SmallAttention() {
  return {.name = "",
          .b = 1,
          .t = 5,
          .s = 7,
          .heads = 2,
          .groups = 1,
          .d = 8,
          .e = 8,
          .attributes = "causal=1, scale=0.2, round_to=16"};
}

void PrintTo(const AttentionCase& c, std::ostream* out) { *out << c.name; }

static std::string PackedGraphText(const AttentionCase& c) {
  std::string x = RowsText(c, PackedWidth(c)), y = RowsText(c, c.heads * c.d);
  std::string op = "onnx_fp8.AttentionPacked", operands = "qkv";
  std::string text =
      "graph \"g\" opset 24\ninput qkv: " + x + "\ninput dy: " + y + "\n";
  if (c.bias) {
    text += std::string("input bias: float[") + c.bias + "]\n";
    operands += ", bias";
    op += c.segments ? "Segments" : "Bias";
  }
  if (c.segments) {
    text += SegmentsText(c);
    operands += ", segments";
  }
  return text + Concat("y: ", y, ", lse: float[", c.b, ",", c.heads, ",", c.t,
                       "] = ", op, AttributesText(c), "(", operands,
                       ")\ndqkv: ", x, " = ", op, "Grad", AttributesText(c),
                       "(dy, ", operands, ", y, lse)\n");
}

std::string GraphText(const AttentionCase& c) {
  if (c.perm) return PackedGraphText(c);
  std::string q = ShapeText(c.b, c.t, c.heads * c.d);
  std::string k = ShapeText(c.b, c.s, c.groups * c.d);
  std::string v = ShapeText(c.b, c.s, c.groups * c.e);
  std::string y = ShapeText(c.b, c.t, c.heads * c.e);
  std::string r = Concat("float[", c.heads, ",", c.t + c.s - 1, "]");
  std::string text = "graph \"g\" opset 24\n";
  std::string op = "onnx_fp8.Attention", operands = "q, k, v";
  text += "input q: " + q + "\ninput k: " + k + "\ninput v: " + v +
          "\ninput dy: " + y + "\n";
  if (c.relative) {
    text += "input relative: " + r + "\n";
    operands += ", relative";
  }
  if (c.bias) {
    text += std::string("input bias: float[") + c.bias + "]\n";
    operands += ", bias";
    op += c.relative ? "Relative" : c.segments ? "Segments" : "Bias";
  }
  if (c.segments) {
    text += SegmentsText(c);
    operands += ", segments";
  }
  std::string attributes = AttributesText(c);
  text += Concat("y: ", y, ", lse: float[", c.b, ",", c.heads, ",", c.t,
                 "] = ", op, attributes, "(", operands, ")\n");
  text += "dq: " + q + ", dk: " + k + ", dv: " + v;
  if (c.relative) text += ", dr: " + r;
  text += " = " + op + "Grad" + attributes + "(dy, " + operands + ", y, lse)\n";
  return text;
}

static std::string PackedBFloat16Text(const AttentionCase& c) {
  std::string x = RowsText(c, PackedWidth(c)), y = RowsText(c, c.heads * c.d);
  return Concat(
      "input qkv0: ", x, "\ninput dy0: ", y, "\n", RoundText("qkv", x, "qkv0"),
      RoundText("dy", y, "dy0"), "y0: ", y, ", lse: float[", c.b, ",", c.heads,
      ",", c.t, "] = onnx_fp8.AttentionPacked", AttributesText(c),
      "(qkv)\noutput lse\n", RoundText("y", y, "y0"), ReadersText("y", y),
      "dqkv0: ", x, " = onnx_fp8.AttentionPackedGrad", AttributesText(c),
      "(dy, qkv, y, lse)\n", RoundText("dqkv", x, "dqkv0"),
      ReadersText("dqkv", x));
}

std::string BFloat16Text(const AttentionCase& c) {
  if (c.perm) return PackedBFloat16Text(c);
  std::string q = ShapeText(c.b, c.t, c.heads * c.d);
  std::string k = ShapeText(c.b, c.s, c.groups * c.d);
  std::string v = ShapeText(c.b, c.s, c.groups * c.e);
  std::string y = ShapeText(c.b, c.t, c.heads * c.e);
  std::string attributes = AttributesText(c), text;
  text += "input q0: " + q + "\ninput k0: " + k + "\ninput v0: " + v +
          "\ninput dy0: " + y + "\n";
  text += RoundText("q", q, "q0") + RoundText("k", k, "k0") +
          RoundText("v", v, "v0") + RoundText("dy", y, "dy0");
  text += Concat("y0: ", y, ", lse: float[", c.b, ",", c.heads, ",", c.t,
                 "] = onnx_fp8.Attention", attributes, "(q, k, v)\n",
                 "output lse\n");
  text += RoundText("y", y, "y0") + ReadersText("y", y);
  text += "dq0: " + q + ", dk0: " + k + ", dv0: " + v +
          " = onnx_fp8.AttentionGrad" + attributes + "(dy, q, k, v, y, lse)\n";
  text += RoundText("dq", q, "dq0") + ReadersText("dq", q);
  text += RoundText("dk", k, "dk0") + ReadersText("dk", k);
  text += RoundText("dv", v, "dv0") + ReadersText("dv", v);
  return text;
}

}  // namespace onnx_fp8
