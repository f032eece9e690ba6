// SPDX-License-Identifier: Apache-2.0
#include "tests/providers/quantized_graph.h"

#include <algorithm>
#include <sstream>

#include "graph/schemas/quantize_padded.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

std::string Replaced(std::string text, const std::string& from,
                     const std::string& to) {
  for (size_t at; (at = text.find(from)) != std::string::npos;) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string AttributesOf(const FusedQuantizer& row) {
  std::string text;
  if (row.approximate == "tanh") text = "approximate=\"tanh\"";
  for (const AttributeDefinition& a : row.attributes) {
    if (!text.empty()) text += ", ";
    text += a.kind == AttributeKind::kInt ? "axis=-1" : "epsilon=1e-05";
  }
  return text.empty() ? "" : "<" + text + ">";
}

// The shape of an operand or result of a producer.
std::string ShapeOf(const std::string& name, const QuantizedForm& form) {
  for (const char* row : {"scale", "bias", "dscale", "dbias"}) {
    if (name == row) return form.row;
  }
  for (const char* lead : {"mean", "inv_std"}) {
    if (name == lead) return form.lead;
  }
  return form.shape;
}

struct Matrix {
  int64_t rows, columns;
};

// The matrix of the shape.
Matrix MatrixOf(const std::string& shape) {
  std::istringstream sizes(shape);
  int64_t rows = 1, last = 1;
  for (std::string size; std::getline(sizes, size, ',');) {
    rows *= last;
    last = std::stoll(size);
  }
  return {rows, last};
}

// A quantizer that adds zeros.
std::string PaddedText(const QuantizedForm& form) {
  Matrix m = MatrixOf(form.matrix);
  std::string rows = std::to_string(PaddedSize(m.rows));
  std::string columns = std::to_string(PaddedSize(m.columns));
  std::string text = "$q: float8e4m3fn[" + rows + "," + columns +
                     "], $s: float[], $a: float[]";
  if (!form.t.empty()) {
    text += ", $t: float8e4m3fn[" + columns + "," + rows + "]";
  }
  return text + " = onnx_fp8.QuantizeWithPadded<q_max=448.0, to=17>(";
}

std::string NodeText(const FusedQuantizer& row, const QuantizedForm& form) {
  if (row.padded) return PaddedText(form);
  std::string q = "$q: float8e4m3fn[" + form.matrix + "], $s: float[";
  if (row.by_rows) {
    return q + std::to_string(MatrixOf(form.matrix).rows) +
           ",1], $a: float[] = onnx_fp8.QuantizeBlock<block_columns=0, "
           "block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(";
  }
  q += "], $a: float[]";
  if (form.t.empty())
    return q + " = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(";
  return q + ", $t: float8e4m3fn[" + form.t +
         "] = onnx_fp8.QuantizeWithTranspose<q_max=448.0, to=17>(";
}

// The quantizer of value y.
std::string QuantizerText(const FusedQuantizer& row, const std::string& y,
                          const QuantizedForm& form) {
  std::string text, x = y;
  if (form.exact) text += "$e: float[" + form.shape + "] = Neg($)\n";
  if (form.narrow) {
    text += "$n: float[" + form.shape + "] = onnx_fp8.RoundTo<to=16>($)\n";
    x = "$n";
  }
  if (form.read) text += "$r: float[" + form.shape + "] = Neg(" + x + ")\n";
  if (form.matrix != form.shape) {
    text += "$m: float[" + form.matrix + "] = Reshape(" + x + ", sizes)\n";
    x = "$m";
  }
  text += NodeText(row, form) + x + (row.by_rows ? ")\n" : ", given_$)\n");
  return Replaced(text, "$", y);
}

}  // namespace

std::shared_ptr<Graph> QuantizedGraph(const FusedQuantizer& row,
                                      const QuantizedForm& form) {
  std::string text = "graph \"g\" opset 24\n", operands, results, quantizers;
  std::string rounded;
  for (const std::string& name : row.operands) {
    std::string shape = ShapeOf(name, form), operand = name;
    text += "input " + name + ": float[" + shape + "]\n";
    if (form.operands && shape == form.shape) {
      operand += "_16";
      rounded += operand + ": float[" + shape + "] = onnx_fp8.RoundTo<to=16>(" +
                 name + ")\n";
    }
    operands += (operands.empty() ? "" : ", ") + operand;
  }
  for (size_t i = 0; i < row.results.size(); ++i) {
    std::string name = "out_" + row.results[i];
    results += (i > 0 ? ", " : "") + name + ": float[" +
               ShapeOf(row.results[i], form) + "]";
    if (std::ranges::count(row.quantized, i) == 0) continue;
    if (!row.by_rows) text += "input given_" + name + ": float[]\n";
    quantizers += QuantizerText(row, name, form);
  }
  if (form.matrix != form.shape) {
    text += "const sizes: int64[2] = {" + form.matrix + "}\n";
  }
  std::string op = (row.domain.empty() ? "" : row.domain + ".") + row.producer;
  std::shared_ptr<Graph> graph =
      ParseGraph(text + rounded + results + " = " + op + AttributesOf(row) +
                 "(" + operands + ")\n" + quantizers);
  for (Node& node : graph->nodes()) {
    for (Value* y : node.outputs()) {
      if (y->uses.empty()) graph->outputs.push_back(y);
    }
  }
  return graph;
}

}  // namespace onnx_fp8
