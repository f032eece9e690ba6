// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The results of the CPU kernel of one node that is not part of a model; an
// undefined input tensor stands for an omitted operand. The node is called "n".
// Result shapes are not known beforehand. Errors: as the kernel's.
std::vector<Tensor> RunNode(const std::string& op,
                            const std::vector<Tensor>& inputs,
                            Attributes attributes = {}, size_t outputs = 1,
                            const std::string& domain = "");

// The one result of a node.
inline Tensor RunNode1(const std::string& op, const std::vector<Tensor>& inputs,
                       Attributes attributes = {},
                       const std::string& domain = "") {
  return RunNode(op, inputs, std::move(attributes), 1, domain)[0];
}

// The message of the Error in which the node must end; "" if it does not.
std::string ErrorOf(const std::string& op, const std::vector<Tensor>& inputs,
                    Attributes attributes = {}, size_t outputs = 1,
                    const std::string& domain = "");

// Standard normal numbers (Box-Muller), the same for the same seed.
Tensor RandomNormal(Shape shape, uint64_t seed);
// The same as doubles, scaled to mean 3 and standard deviation 2.
Tensor RandomShifted(Shape shape, uint64_t seed);

// Largest |x - y| over all elements. REQUIRES: one shape, numeric.
double LargestDifference(const Tensor& x, const Tensor& y);

// Float tensor of 0, 1, 2, … .
Tensor Count(const Shape& shape);

Tensor Floats(const Shape& shape, const std::vector<float>& values);

// Tensor with one axis.
template <typename T>
Tensor Vector(const std::vector<T>& values) {
  return Tensor::From<T>({static_cast<int64_t>(values.size())}, values);
}

// All elements as double.
std::vector<double> Doubles(const Tensor& x);

// Element (i, j) of a matrix, which is stored transposed or not.
double MatrixAt(const Tensor& x, bool transposed, int64_t i, int64_t j);

// All elements of a matrix, row by row.
template <typename T>
std::vector<T> MatrixRows(const Tensor& x, bool transposed) {
  Tensor own = ConvertTo(x, DTypeOf<T>());
  const T* from = own.data<T>();
  int64_t rows = x.dim(transposed ? 1 : 0), columns = x.dim(transposed ? 0 : 1);
  std::vector<T> all;
  all.reserve(static_cast<size_t>(x.size()));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      all.push_back(from[transposed ? j * rows + i : i * columns + j]);
    }
  }
  return all;
}

}  // namespace onnx_fp8
