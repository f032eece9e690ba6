// SPDX-License-Identifier: Apache-2.0
//
// Compares QuantizeTensor and QuantizeBlock with torchao's results for the same
// tensors: data/torchao.npz, written by data/make_torchao.py.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "data/npy.h"
#include "onnx_fp8/float8.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {
namespace {

struct TorchaoResult {
  std::string name;
  Tensor x, q, scale;
  long long rows, columns, to, pow2, scale_to;
};

std::vector<TorchaoResult> ReadResults() {
  TensorMap file =
      ReadNpz(SourcePath("tests/providers/cpu/fp8/data/torchao.npz"));
  std::vector<TorchaoResult> results;
  for (const auto& [name, q] : file) {
    if (!name.ends_with(".q")) continue;
    TorchaoResult c;
    c.name = name.substr(0, name.size() - 2);
    size_t dot = name.find('.');
    c.x = file.at(name.substr(0, dot) + ".x");
    c.q = q;
    c.scale = file.at(c.name + ".scale");
    EXPECT_EQ(std::sscanf(c.name.c_str() + dot + 1, "%lldx%lld.%lld.%lld.%lld",
                          &c.rows, &c.columns, &c.to, &c.pow2, &c.scale_to),
              5)
        << name;
    results.push_back(c);
  }
  return results;
}

// The number of elements that are not the same bit for bit.
int64_t Different(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.bytes(), b.bytes());
  int64_t count = 0;
  size_t size = ByteSize(a.dtype());
  for (int64_t i = 0; i < a.size(); ++i) {
    size_t at = static_cast<size_t>(i) * size;
    count += std::memcmp(static_cast<const char*>(a.raw()) + at,
                         static_cast<const char*>(b.raw()) + at, size) != 0;
  }
  return count;
}

TEST(Torchao, EveryCodeAndEveryScaleIsTheSame) {
  int64_t codes = 0, scales = 0;
  std::set<std::string> rules;
  for (const TorchaoResult& c : ReadResults()) {
    Attributes attributes = {{"to", int64_t{c.to}},
                             {"q_max", Float8Max(static_cast<DType>(c.to))}};
    if (c.rows == 0 && c.columns == 0 && c.pow2 == 0) {
      auto tensor = RunNode("QuantizeTensor", {c.x}, attributes, 3, kDomain);
      EXPECT_EQ(Different(tensor[0], c.q), 0) << c.name;
      EXPECT_EQ(Different(tensor[1], c.scale), 0) << c.name;
    }
    attributes["block_rows"] = int64_t{c.rows};
    attributes["block_columns"] = int64_t{c.columns};
    attributes["pow2"] = int64_t{c.pow2};
    attributes["scale_to"] = int64_t{c.scale_to};
    auto block = RunNode("QuantizeBlock", {c.x}, attributes, 3, kDomain);
    EXPECT_EQ(Different(block[0], c.q), 0) << c.name;
    EXPECT_EQ(Different(block[1], c.scale), 0) << c.name;
    codes += c.q.size();
    scales += c.scale.size();
    rules.insert(c.name.substr(c.name.find('.')));
  }
  // 12 tensors by tensors, rows and columns; one by the MX formats and by
  // blocks of 128.
  EXPECT_EQ(rules.size(), 23u);
  EXPECT_GT(codes, 400000);
  EXPECT_GT(scales, 10000);
}

}  // namespace
}  // namespace onnx_fp8
