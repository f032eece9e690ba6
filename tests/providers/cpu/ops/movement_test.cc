// SPDX-License-Identifier: Apache-2.0
//
// ONNX's own cases cover the semantics (onnx_node_cases_test.cc). This file has
// sizes that need tiles and threads, every element width, and bad input.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/parallel.h"
#include "providers/cpu/strided.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

using Int64s = std::vector<int64_t>;

// Distinct bytes per element, for any dtype.
Tensor Bytes(DType dtype, const Shape& shape) {
  Tensor x = Tensor::Allocate(dtype, shape);
  auto* bytes = static_cast<unsigned char*>(x.raw());
  for (size_t i = 0; i < x.bytes(); ++i) {
    bytes[i] = static_cast<unsigned char>((i * 2654435761u) >> 13);
  }
  return x;
}

// By definition: y[i] = x[Σ i·strides], byte by byte.
Tensor ExpectedView(const Tensor& x, const Shape& shape, int64_t offset,
                    const Int64s& strides) {
  Tensor y = Tensor::Allocate(x.dtype(), shape);
  auto width = static_cast<int64_t>(ByteSize(x.dtype()));
  for (int64_t i = 0; i < y.size(); ++i) {
    int64_t rest = i, from = offset;
    for (size_t d = shape.size(); d-- > 0;) {
      from += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    std::copy_n(static_cast<const char*>(x.raw()) + from * width, width,
                static_cast<char*>(y.raw()) + i * width);
  }
  return y;
}

Tensor ExpectedTranspose(const Tensor& x, const Int64s& perm) {
  Int64s x_strides = Strides(x.shape()), strides;
  Shape shape;
  for (int64_t axis : perm) {
    shape.push_back(x.dim(axis));
    strides.push_back(x_strides[static_cast<size_t>(axis)]);
  }
  return ExpectedView(x, shape, 0, strides);
}

TEST(Transpose, EveryPermutationAndWidth) {
  for (DType dtype :
       {DType::kE4M3, DType::kBFloat16, DType::kFloat, DType::kInt64}) {
    Tensor x = Bytes(dtype, {2, 70, 3, 67});
    Int64s perm = {0, 1, 2, 3};
    do {
      EXPECT_TRUE(Identical(RunNode1("Transpose", {x}, {{"perm", perm}}),
                            ExpectedTranspose(x, perm)))
          << Name(dtype) << " " << ToString(perm);
    } while (std::ranges::next_permutation(perm).found);
  }
}

TEST(Transpose, LargeMatrixOnSeveralThreads) {
  int threads = NumThreads();
  for (int n : {1, 3}) {
    SetNumThreads(n);
    for (DType dtype :
         {DType::kE5M2, DType::kFloat16, DType::kFloat, DType::kDouble}) {
      for (const Shape& shape : {Shape{300, 259}, Shape{2, 20000},
                                 Shape{20000, 3}, Shape{1, 257, 129}}) {
        Tensor x = Bytes(dtype, shape);
        Int64s perm(shape.size());
        std::iota(perm.rbegin(), perm.rend(), 0);
        EXPECT_TRUE(
            Identical(RunNode1("Transpose", {x}), ExpectedTranspose(x, perm)))
            << Name(dtype) << ToString(shape);
      }
    }
  }
  SetNumThreads(threads);
}

TEST(Transpose, ScalarsAndEmpty) {
  EXPECT_EQ(RunNode1("Transpose", {Floats({}, {3})}).shape(), Shape{});
  EXPECT_EQ(RunNode1("Transpose", {Floats({0, 3}, {})}).shape(), (Shape{3, 0}));
  Tensor x = Count({2, 3});
  for (const Int64s& perm : {Int64s{0}, Int64s{0, 0}, Int64s{0, 2}}) {
    EXPECT_NE(ErrorOf("Transpose", {x}, {{"perm", perm}}), "");
  }
}

TEST(CopyStrided, RowsThatThreadsCutInTheMiddle) {
  Tensor x = Bytes(DType::kUInt16, {3, 50000});
  Tensor y = RunNode1("Slice", {x, Tensor::Ints({7}), Tensor::Ints({49999}),
                                Tensor::Ints({1})});
  EXPECT_TRUE(Identical(y, ExpectedView(x, {3, 49992}, 7, {50000, 1})));
  Tensor z = RunNode1(
      "Expand", {Bytes(DType::kUInt16, {3, 1}), Tensor::Ints({2, 3, 40000})});
  EXPECT_TRUE(Identical(z, ExpectedView(Bytes(DType::kUInt16, {3, 1}),
                                        {2, 3, 40000}, 0, {0, 1, 0})));
}

TEST(Reshape, InfersAndRefuses) {
  Tensor x = Count({2, 3, 4});
  auto shape = [&](const Int64s& to, int64_t allow_zero = 0) {
    return RunNode1("Reshape", {x, Tensor::Ints(to)},
                    {{"allowzero", allow_zero}})
        .shape();
  };
  EXPECT_EQ(shape({0, -1}), (Shape{2, 12}));
  EXPECT_EQ(shape({4, -1, 2}), (Shape{4, 3, 2}));
  for (const Int64s& bad :
       {Int64s{-1, -1}, Int64s{5, -1}, Int64s{25}, Int64s{-2, 12},
        Int64s{2, 3, 4, 0}, Int64s{1L << 33, 1L << 33, -1}}) {
    EXPECT_NE(ErrorOf("Reshape", {x, Tensor::Ints(bad)}), "") << ToString(bad);
  }
  EXPECT_EQ(RunNode1("Reshape", {Floats({0, 3}, {}), Tensor::Ints({3, 0})},
                     {{"allowzero", int64_t{1}}})
                .shape(),
            (Shape{3, 0}));
  EXPECT_NE(ErrorOf("Reshape", {Floats({0, 3}, {}), Tensor::Ints({0, -1})}),
            "");
  EXPECT_NE(ErrorOf("Reshape", {x, Floats({1}, {24})}), "");
  EXPECT_NE(ErrorOf("Reshape", {x}), "");
}

TEST(Views, SqueezeUnsqueezeFlatten) {
  Tensor x = Count({1, 3, 1});
  EXPECT_EQ(RunNode1("Squeeze", {x}).shape(), Shape{3});
  EXPECT_EQ(RunNode1("Squeeze", {x, Tensor::Ints({-1})}).shape(),
            (Shape{1, 3}));
  EXPECT_NE(ErrorOf("Squeeze", {x, Tensor::Ints({1})}), "");
  EXPECT_NE(ErrorOf("Squeeze", {x, Tensor::Ints({3})}), "");
  EXPECT_EQ(RunNode1("Unsqueeze", {x, Tensor::Ints({-1, 0})}).shape(),
            (Shape{1, 1, 3, 1, 1}));
  EXPECT_NE(ErrorOf("Unsqueeze", {x, Tensor::Ints({0, -5})}), "");
  EXPECT_EQ(RunNode1("Flatten", {x}, {{"axis", int64_t{-1}}}).shape(),
            (Shape{3, 1}));
  EXPECT_NE(ErrorOf("Flatten", {x}, {{"axis", int64_t{4}}}), "");
}

TEST(Slice, ClampsLikeNumPy) {
  Tensor x = Count({5});
  auto slice = [&](int64_t start, int64_t end, int64_t step) {
    return Doubles(
        RunNode1("Slice", {x, Tensor::Ints({start}), Tensor::Ints({end}),
                           Tensor::Ints({0}), Tensor::Ints({step})}));
  };
  using V = std::vector<double>;
  EXPECT_EQ(slice(INT64_MIN, INT64_MAX, 1), (V{0, 1, 2, 3, 4}));
  EXPECT_EQ(slice(INT64_MAX, INT64_MIN, -1), (V{4, 3, 2, 1, 0}));
  EXPECT_EQ(slice(-1, -6, -2), (V{4, 2, 0}));
  EXPECT_EQ(slice(1, -1, 2), (V{1, 3}));
  EXPECT_EQ(slice(3, INT64_MIN, INT64_MIN), (V{3}));
  EXPECT_EQ(slice(1, INT64_MAX, INT64_MAX), (V{1}));
  EXPECT_EQ(slice(3, 1, 1), V{});
  EXPECT_EQ(slice(5, 9, 1), V{});
  EXPECT_EQ(
      RunNode1("Slice", {Floats({0}, {}), Tensor::Ints({0}), Tensor::Ints({-9}),
                         Tensor::Ints({0}), Tensor::Ints({-1})})
          .shape(),
      Shape{0});
}

TEST(Slice, RefusesBadOperands) {
  Tensor x = Count({2, 5}), one = Tensor::Ints({1}), two = Tensor::Ints({1, 1});
  EXPECT_NE(ErrorOf("Slice", {x, one, one, one, Tensor::Ints({0})}), "");
  EXPECT_NE(ErrorOf("Slice", {x, one, two}), "");
  EXPECT_NE(ErrorOf("Slice", {x, two, two, two}), "");  // axis 1 twice
  EXPECT_NE(ErrorOf("Slice", {x, one, one, Tensor::Ints({2})}), "");
  EXPECT_NE(ErrorOf("Slice", {x, one}), "");
  EXPECT_NE(ErrorOf("Slice", {Floats({}, {1}), one, one}), "");
}

TEST(Concat, AndSplitAreInverse) {
  Tensor x = Bytes(DType::kFloat16, {2, 7, 3});
  std::vector<Tensor> parts = RunNode("Split", {x, Tensor::Ints({3, 0, 4})},
                                      {{"axis", int64_t{-2}}}, 3);
  EXPECT_EQ(parts[1].shape(), (Shape{2, 0, 3}));
  EXPECT_TRUE(Identical(RunNode1("Concat", parts, {{"axis", int64_t{1}}}), x));
}

TEST(Concat, RefusesBadOperands) {
  Attributes axis0 = {{"axis", int64_t{0}}};
  EXPECT_NE(ErrorOf("Concat", {Count({2, 3}), Count({2, 4})}, axis0), "");
  EXPECT_NE(ErrorOf("Concat", {Count({2}), Count({2, 1})}, axis0), "");
  EXPECT_NE(ErrorOf("Concat", {Count({2}), Tensor::Ints({1})}, axis0), "");
  EXPECT_NE(ErrorOf("Concat", {Floats({}, {1})}, axis0), "");
  EXPECT_NE(ErrorOf("Concat", {Count({2})}, {{"axis", int64_t{1}}}), "");
}

TEST(Split, RefusesBadParts) {
  Tensor x = Count({5});
  EXPECT_NE(ErrorOf("Split", {x, Tensor::Ints({2, 2})}, {}, 2), "");
  EXPECT_NE(ErrorOf("Split", {x, Tensor::Ints({6, -1})}, {}, 2), "");
  EXPECT_NE(ErrorOf("Split", {x, Tensor::Ints({2, 3})}, {}, 3), "");
  EXPECT_NE(ErrorOf("Split", {x}, {{"num_outputs", int64_t{2}}}, 3), "");
  EXPECT_NE(ErrorOf("Split", {x}, {}, 4), "");  // 2, 2, 2, -1
}

TEST(ExpandAndTile, RefuseBadSizes) {
  Tensor x = Count({2, 1});
  EXPECT_NE(ErrorOf("Expand", {x, Tensor::Ints({3, 1})}), "");
  EXPECT_NE(ErrorOf("Expand", {x, Tensor::Ints({-1})}), "");
  EXPECT_EQ(RunNode1("Expand", {x, Tensor::Ints({0})}).shape(), (Shape{2, 0}));
  EXPECT_NE(ErrorOf("Tile", {x, Tensor::Ints({1})}), "");
  EXPECT_NE(ErrorOf("Tile", {x, Tensor::Ints({-1, 1})}), "");
  EXPECT_NE(ErrorOf("Tile", {x, Tensor::Ints({INT64_MAX, INT64_MAX})}), "");
  EXPECT_EQ(RunNode1("Tile", {x, Tensor::Ints({0, 3})}).shape(), (Shape{0, 3}));
}

TEST(Blocks, DepthToSpaceUndoesSpaceToDepth) {
  Tensor x = Bytes(DType::kInt8, {2, 3, 6, 4});
  Attributes two = {{"blocksize", int64_t{2}}};
  Tensor y = RunNode1("SpaceToDepth", {x}, two);
  EXPECT_EQ(y.shape(), (Shape{2, 12, 3, 2}));
  EXPECT_TRUE(Identical(RunNode1("DepthToSpace", {y}, two), x));
  EXPECT_NE(ErrorOf("DepthToSpace", {x}, two), "");
  EXPECT_NE(ErrorOf("SpaceToDepth", {x}, {{"blocksize", int64_t{0}}}), "");
  EXPECT_NE(ErrorOf("SpaceToDepth", {x}, {{"blocksize", INT64_MAX}}), "");
  EXPECT_NE(ErrorOf("SpaceToDepth", {Count({4})}, two), "");
}

TEST(ReverseSequence, ReversesPrefixes) {
  Tensor x = Count({3, 2});  // (time, batch)
  EXPECT_EQ(Doubles(RunNode1("ReverseSequence", {x, Tensor::Ints({3, 0})})),
            (std::vector<double>{4, 1, 2, 3, 0, 5}));
  EXPECT_NE(ErrorOf("ReverseSequence", {x, Tensor::Ints({4, 1})}), "");
  EXPECT_NE(ErrorOf("ReverseSequence", {x, Tensor::Ints({1})}), "");
  EXPECT_NE(ErrorOf("ReverseSequence", {x, Tensor::Ints({1, 1})},
                    {{"batch_axis", int64_t{2}}, {"time_axis", int64_t{-1}}}),
            "");
}

TEST(Pad, ModesAndNegativePads) {
  Tensor x = Count({4});
  auto pad = [&](const std::string& mode, const Int64s& pads) {
    return Doubles(RunNode1("Pad", {x, Tensor::Ints(pads), Floats({}, {9})},
                            {{"mode", mode}}));
  };
  using V = std::vector<double>;
  EXPECT_EQ(pad("constant", {1, 2}), (V{9, 0, 1, 2, 3, 9, 9}));
  EXPECT_EQ(pad("constant", {-1, 1}), (V{1, 2, 3, 9}));
  EXPECT_EQ(pad("edge", {2, -1}), (V{0, 0, 0, 1, 2}));
  EXPECT_EQ(pad("wrap", {3, 5}), (V{1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0}));
  // Wider than the axis: back and forth, as in np.pad.
  EXPECT_EQ(pad("reflect", {5, 4}), (V{1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1}));
  EXPECT_EQ(pad("reflect", {1, -1}), (V{1, 0, 1, 2}));
  EXPECT_EQ(pad("constant", {-2, -2}), V{});
}

TEST(Pad, LargeAndEmpty) {
  Tensor x = Bytes(DType::kBFloat16, {40, 30, 50});
  Tensor y = RunNode1("Pad", {x, Tensor::Ints({0, 1, 2, 3, 4, 5})});
  Tensor back = RunNode1(
      "Slice", {y, Tensor::Ints({0, 1, 2}), Tensor::Ints({40, 31, 52})});
  EXPECT_EQ(y.shape(), (Shape{43, 35, 57}));
  EXPECT_TRUE(Identical(back, x));
  std::vector<double> zeros(9, 0);
  EXPECT_EQ(Doubles(RunNode1("Pad",
                             {Floats({0, 3}, {}), Tensor::Ints({1, 0, 2, 0})})),
            zeros);
}

TEST(Pad, RefusesBadOperands) {
  Tensor x = Count({2, 2});
  auto error = [&](const std::string& mode, const Int64s& pads) {
    return ErrorOf("Pad", {x, Tensor::Ints(pads)}, {{"mode", mode}});
  };
  EXPECT_NE(error("mirror", {0, 0, 0, 0}), "");
  EXPECT_NE(error("constant", {0, 0}), "");
  EXPECT_NE(error("constant", {-2, 0, -1, 0}), "");
  EXPECT_NE(error("constant", {INT64_MAX, 0, INT64_MAX, 0}), "");
  EXPECT_NE(error("constant", {1L << 59, 0, 1L << 59, 0}), "");
  EXPECT_NE(error("edge", {-2, 0, 1, 0}), "");
  EXPECT_NE(
      ErrorOf("Pad", {x, Tensor::Ints({0, 0, 0, 0}), Floats({2}, {1, 2})}), "");
  EXPECT_NE(ErrorOf("Pad", {x, Tensor::Ints({0, 0}), {}, Tensor::Ints({2})}),
            "");
}

}  // namespace
}  // namespace onnx_fp8
