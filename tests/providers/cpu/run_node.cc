// SPDX-License-Identifier: Apache-2.0
#include "tests/providers/cpu/run_node.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "providers/cpu/cpu_provider.h"

namespace onnx_fp8 {

std::vector<Tensor> RunNode(const std::string& op,
                            const std::vector<Tensor>& inputs,
                            Attributes attributes, size_t outputs,
                            const std::string& domain) {
  Graph graph;
  std::vector<Value*> in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    std::string name = "x" + std::to_string(i);
    in.push_back(t.defined() ? graph.AddInput(name, t.dtype(), t.shape())
                             : nullptr);
  }
  std::vector<std::string> out;
  for (size_t i = 0; i < outputs; ++i) {
    out.push_back("y" + std::to_string(i));
  }
  Node* node = graph.AddNode(op, in, out, std::move(attributes), domain);
  node->name = "n";
  const KernelEntry* entry = CpuKernels().Find(domain, op);
  Check(entry != nullptr, "[", node->Where(), "] expected a kernel, got none");
  std::vector<Tensor> results(outputs);
  KernelContext context(*node, inputs, results);
  entry->kernel(context);
  return results;
}

std::string ErrorOf(const std::string& op, const std::vector<Tensor>& inputs,
                    Attributes attributes, size_t outputs,
                    const std::string& domain) {
  try {
    RunNode(op, inputs, std::move(attributes), outputs, domain);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Tensor RandomNormal(Shape shape, uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kFloat, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i) {
    auto counter = static_cast<uint64_t>(2 * i);
    double u = 1.0 - RandomUniform(seed, counter);
    double v = RandomUniform(seed, counter + 1);
    t.data<float>()[i] = static_cast<float>(std::sqrt(-2 * std::log(u)) *
                                            std::cos(2 * std::numbers::pi * v));
  }
  return t;
}

Tensor RandomShifted(Shape shape, uint64_t seed) {
  Tensor t = ConvertTo(RandomNormal(std::move(shape), seed), DType::kDouble);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<double>()[i] = 3 + 2 * t.data<double>()[i];
  }
  return t;
}

double LargestDifference(const Tensor& x, const Tensor& y) {
  Check(x.shape() == y.shape(), "expected shape ", ToString(x.shape()),
        ", got ", ToString(y.shape()));
  double largest = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    double d = std::fabs(DoubleAt(x, i) - DoubleAt(y, i));
    if (!(d <= largest)) largest = d;  // also if d is NaN
  }
  return largest;
}

Tensor Count(const Shape& shape) {
  Tensor x = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = static_cast<float>(i);
  }
  return x;
}

Tensor Floats(const Shape& shape, const std::vector<float>& values) {
  return Tensor::From(shape, values);
}

std::vector<double> Doubles(const Tensor& x) {
  std::vector<double> values;
  for (int64_t i = 0; i < x.size(); ++i) values.push_back(DoubleAt(x, i));
  return values;
}

double MatrixAt(const Tensor& x, bool transposed, int64_t i, int64_t j) {
  return DoubleAt(x, transposed ? j * x.dim(1) + i : i * x.dim(1) + j);
}

}  // namespace onnx_fp8
