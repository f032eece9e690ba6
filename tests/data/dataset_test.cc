// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "data/safetensors.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

// x[i] = (10 i, 10 i + 1), labels[i] = i, for i = first … first + n - 1.
TensorMap Samples(int64_t n, int64_t first = 0) {
  std::vector<float> x;
  std::vector<int64_t> labels;
  for (int64_t i = first; i < first + n; ++i) {
    x.push_back(static_cast<float>(10 * i));
    x.push_back(static_cast<float>(10 * i + 1));
    labels.push_back(i);
  }
  return {{"x", Tensor::From<float>({n, 2}, x)},
          {"labels", Tensor::Ints(labels)}};
}

class DatasetTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const TensorMap& arrays) {
    WriteSafetensors(dir_ / (name + ".safetensors"), Sources(arrays));
    return dir_ / (name + ".safetensors");
  }
  DatasetSpec Spec(const std::vector<std::string>& files, int64_t batch) {
    return {.files = files,
            .inputs = {{"x", DType::kFloat}, {"labels", DType::kInt64}},
            .batch_size = batch};
  }
  std::string ErrorOfSpec(const DatasetSpec& spec) {
    return ErrorOf([&] { Dataset dataset(spec); });
  }
  TempDir dir_;
};

std::vector<int64_t> Labels(const Dataset& dataset, int64_t index) {
  return ToInts(dataset.Batch(index).at("labels"));
}

std::vector<int64_t> Epoch(const Dataset& dataset, int64_t epoch) {
  std::vector<int64_t> all;
  int64_t n = dataset.batches_per_epoch();
  for (int64_t i = epoch * n; i < (epoch + 1) * n; ++i) {
    std::vector<int64_t> labels = Labels(dataset, i);
    all.insert(all.end(), labels.begin(), labels.end());
  }
  return all;
}

TEST_F(DatasetTest, FileOrderWithoutShuffle) {
  DatasetSpec spec = Spec({Write("a", Samples(5))}, 2);
  spec.shuffle = false;
  Dataset dataset(spec);
  EXPECT_EQ(dataset.size(), 5);
  EXPECT_EQ(dataset.batches_per_epoch(), 2);
  EXPECT_EQ(dataset.dropped(), 1);
  ASSERT_EQ(dataset.notes().size(), 1u);
  EXPECT_EQ(dataset.notes()[0],
            "1 of 5 samples are left out of each epoch: they do not fill a "
            "batch of 2");
  for (int64_t epoch : {0, 1}) {
    EXPECT_EQ(Epoch(dataset, epoch), (std::vector<int64_t>{0, 1, 2, 3}));
  }
  Tensor x = dataset.Batch(1).at("x");
  EXPECT_TRUE(Identical(
      x, Tensor::From<float>({2, 2}, std::vector<float>{20, 21, 30, 31})));
  EXPECT_EQ(dataset.SampleShape("x"), (Shape{2}));
  EXPECT_EQ(dataset.SampleShape("labels"), (Shape{}));
}

TEST_F(DatasetTest, EvaluationKeepsTheLastBatch) {
  DatasetSpec spec = Spec({Write("a", Samples(5))}, 4);
  spec.shuffle = false;
  spec.drop_last = false;
  Dataset dataset(spec);
  EXPECT_EQ(dataset.batches_per_epoch(), 2);
  EXPECT_EQ(Labels(dataset, 1), (std::vector<int64_t>{4}));
  EXPECT_EQ(Labels(dataset, 2), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_TRUE(dataset.notes().empty());
  spec.batch_size = 100;
  EXPECT_EQ(Dataset(spec).batches_per_epoch(), 1);
}

TEST_F(DatasetTest, EachEpochIsAnotherPermutation) {
  std::string file = Write("a", Samples(64));
  Dataset dataset(Spec({file}, 8));
  std::vector<int64_t> sorted(64);
  std::iota(sorted.begin(), sorted.end(), 0);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> labels = Epoch(dataset, epoch);
    EXPECT_FALSE(std::ranges::is_sorted(labels));
    EXPECT_EQ(std::ranges::count(epochs, labels), 0);
    epochs.push_back(labels);
    std::ranges::sort(labels);
    EXPECT_EQ(labels, sorted);
  }
  DatasetSpec other = Spec({file}, 8);
  other.seed = 1;
  EXPECT_NE(Epoch(Dataset(other), 0), epochs[0]);
  // x stays with its label.
  TensorMap batch = dataset.Batch(3);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(DoubleAt(batch.at("x"), 2 * i),
              10.0 * static_cast<double>(IntAt(batch.at("labels"), i)));
  }
}

TEST_F(DatasetTest, ABatchDependsOnItsIndexOnly) {
  DatasetSpec spec = Spec({Write("a", Samples(20))}, 3);
  Dataset forward(spec);
  std::vector<std::vector<int64_t>> batches;
  for (int64_t i = 0; i < 18; ++i) batches.push_back(Labels(forward, i));
  for (int64_t i = 17; i >= 0; --i) {
    EXPECT_EQ(Labels(forward, i), batches[static_cast<size_t>(i)]) << i;
    Dataset fresh(spec);
    EXPECT_EQ(Labels(fresh, i), batches[static_cast<size_t>(i)]) << i;
  }
}

// A resumed run depends on the order: it must not change between versions.
TEST_F(DatasetTest, TheOrderIsFixed) {
  DatasetSpec spec = Spec({Write("a", Samples(10))}, 10);
  spec.seed = 42;
  EXPECT_EQ(Labels(Dataset(spec), 0),
            (std::vector<int64_t>{8, 6, 9, 3, 0, 4, 1, 7, 5, 2}));
  EXPECT_EQ(Labels(Dataset(spec), 1),
            (std::vector<int64_t>{7, 2, 1, 3, 5, 9, 8, 0, 6, 4}));
}

TEST_F(DatasetTest, FilesOfTheSameNamesAreConcatenated) {
  DatasetSpec spec = Spec({Write("a", Samples(3)), Write("b", Samples(0, 3)),
                           Write("c", Samples(4, 3))},
                          7);
  spec.shuffle = false;
  Dataset dataset(spec);
  EXPECT_EQ(dataset.size(), 7);
  EXPECT_EQ(Labels(dataset, 0), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(DoubleAt(dataset.Batch(0).at("x"), 13), 61);
}

TEST_F(DatasetTest, FilesOfOtherNamesAreJoined) {
  TensorMap samples = Samples(4);
  Dataset dataset(Spec({Write("a", {{"x", samples.at("x")}}),
                        Write("b", {{"labels", samples.at("labels")},
                                    {"extra", Tensor::Ints({1})}})},
                       4));
  EXPECT_EQ(dataset.Batch(0).size(), 2u);
  ASSERT_EQ(dataset.notes().size(), 1u);
  EXPECT_NE(dataset.notes()[0].find("\"extra\" is no input of the model"),
            std::string::npos);
}

TEST_F(DatasetTest, ManyOtherArraysAreOneNote) {
  TensorMap arrays = Samples(4);
  for (int i = 0; i < 100; ++i) {
    arrays[Concat("other", i)] = Tensor::Ints({i});
  }
  const std::string file = Write("a", arrays);
  const std::vector<std::string> notes = Dataset(Spec({file}, 4)).notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes[0].starts_with(
      "[" + file + "] 100 arrays are no inputs of the model: other0, other1"))
      << notes[0];
  EXPECT_LT(notes[0].size(), 400u);
}

TEST_F(DatasetTest, WholeArraysAreFedUnchanged) {
  TensorMap arrays = Samples(4);
  arrays["edges"] = ConvertTo(Tensor::Ints({1, 2, 3, 4, 5, 6}), DType::kInt32)
                        .Reshaped({2, 3});
  std::string file = Write("a", arrays);
  DatasetSpec spec = Spec({file, Write("b", arrays)}, 2);
  spec.inputs.push_back({"edges", DType::kInt64, true});
  Dataset dataset(spec);
  EXPECT_EQ(dataset.size(), 8);
  for (int64_t i : {0, 5}) {
    const Tensor edges = dataset.Batch(i).at("edges");
    EXPECT_EQ(edges.shape(), (Shape{2, 3}));
    EXPECT_EQ(ToInts(edges), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  }
  EXPECT_EQ(dataset.SampleShape("edges"), (Shape{2, 3}));
  arrays["edges"].data<int32_t>()[0] = 9;
  spec.files[1] = Write("b", arrays);
  EXPECT_NE(ErrorOfSpec(spec).find("b.safetensors] expected the same array "
                                   "\"edges\""),
            std::string::npos);
}

TEST_F(DatasetTest, ConvertsWhatLosesNothingOfSubstance) {
  TensorMap arrays = Samples(4);
  arrays["x"] = ConvertTo(arrays["x"], DType::kDouble);
  arrays["labels"] = ConvertTo(arrays["labels"], DType::kUInt8);
  DatasetSpec spec = Spec({Write("a", arrays)}, 4);
  spec.shuffle = false;
  Dataset dataset(spec);
  EXPECT_TRUE(Identical(dataset.Batch(0).at("x"), Samples(4).at("x")));
  EXPECT_EQ(Labels(dataset, 0), (std::vector<int64_t>{0, 1, 2, 3}));
  ASSERT_EQ(dataset.notes().size(), 2u);
  EXPECT_NE(dataset.notes()[1].find("\"x\" of double is converted to float"),
            std::string::npos);

  spec.inputs[1].dtype = DType::kFloat;
  EXPECT_EQ(DoubleAt(Dataset(spec).Batch(0).at("labels"), 3), 3);
  spec.inputs[0].dtype = DType::kInt64;
  EXPECT_NE(ErrorOfSpec(spec).find(
                "a.safetensors] expected array \"x\" of int64, got double"),
            std::string::npos);
}

TEST_F(DatasetTest, RefusesIntegersThatDoNotFit) {
  auto error = [&](Tensor labels, DType to) {
    DatasetSpec spec{.files = {Write("a", {{"labels", labels}})},
                     .inputs = {{"labels", to}},
                     .batch_size = 2};
    Dataset dataset(spec);
    return ErrorOf([&] { dataset.Batch(0); });
  };
  EXPECT_EQ(error(Tensor::Ints({-5, 7}), DType::kInt32), "");
  EXPECT_NE(error(Tensor::Ints({0, 5'000'000'000}), DType::kInt32)
                .find("labels] expected values that fit int32, got 5e+09"),
            std::string::npos);
  EXPECT_NE(error(Tensor::Ints({0, -1}), DType::kUInt64), "");
  EXPECT_NE(error(Tensor::From({2}, std::vector{uint64_t{0}, ~uint64_t{0}}),
                  DType::kInt64),
            "");
  EXPECT_NE(error(Tensor::Ints({0, 2}), DType::kBool), "");
  EXPECT_EQ(error(Tensor::Ints({0, 1}), DType::kBool), "");
}

// The message names the sample as the caller knows it.
TEST_F(DatasetTest, RefusesElementsOutsideOfTheWeightTheyAreLookedUpIn) {
  const auto ids = [](std::vector<int64_t> rows) {
    const int64_t samples = std::ssize(rows) / 2;
    return TensorMap{{"ids", Tensor::Ints(rows).Reshaped({samples, 2})}};
  };
  const auto error = [&](DatasetSpec spec) {
    spec.inputs = {{.name = "ids", .dtype = DType::kInt64, .looked_up = 5}};
    spec.batch_size = 2;
    spec.shuffle = false;
    const Dataset dataset(spec);
    EXPECT_EQ(ErrorOf([&] { dataset.Batch(0); }), "");
    return ErrorOf([&] { dataset.Batch(1); });
  };
  const std::string a = Write("a", ids({0, 4, 1, 2, 3, 0}));
  EXPECT_EQ(error({.files = {a, a}}), "");
  EXPECT_NE(error({.files = {a, Write("c", ids({1, 5, 1, 1}))}})
                .find("c.safetensors] expected \"ids\" in 0…4, the rows of a "
                      "weight that it looks up, got 5 in sample 0, element 1"),
            std::string::npos);
  const auto rows = [&](const std::vector<int64_t>& samples, const auto&) {
    std::vector<int64_t> all;
    for (int64_t sample : samples) {
      all.insert(all.end(), {0, sample == 3 ? -1 : 1});
    }
    return ids(all);
  };
  EXPECT_NE(error({.files = {"rows"}, .rows = RowSource{rows, 4}})
                .find("[rows] expected \"ids\" in 0…4, the rows of a weight "
                      "that it looks up, got -1 in sample 3, element 1"),
            std::string::npos);
  const auto batch = [&](int64_t index, const auto&) {
    return index == 0 ? ids({0, 1}) : ids({0, 1, 7, 1});
  };
  EXPECT_NE(error({.files = {"batches"}, .source = BatchSource{batch}})
                .find("got 7 in sample 1 of the batch, element 0"),
            std::string::npos);
}

TEST_F(DatasetTest, RefusesArraysOfOtherRowsThanSeqLen) {
  DatasetSpec spec{
      .files = {Write("a", {{"ids", Tensor::Zeros(DType::kInt64, {4, 6})}})},
      .inputs = {{"ids", DType::kInt64}},
      .batch_size = 2,
      .seq_len = 6};
  EXPECT_EQ(ErrorOfSpec(spec), "");
  spec.seq_len = 3;
  EXPECT_NE(ErrorOfSpec(spec).find("a.safetensors] expected rows of 3 elements "
                                   "(`seq_len`) in \"ids\", got rows of 6"),
            std::string::npos);
}

TEST_F(DatasetTest, RefusesWhatDoesNotFit) {
  TensorMap ten = Samples(10), twelve = Samples(12);
  std::string file = Write("a", ten);
  auto expect = [&](const DatasetSpec& spec, const std::string& part) {
    std::string text = ErrorOfSpec(spec);
    EXPECT_NE(text.find(part), std::string::npos)
        << "expected: " << part << "\ngot:      " << text;
  };
  expect(Spec({}, 1), "expected data files");
  expect(Spec({file}, 0), "expected a batch size");
  expect(Spec({file}, INT64_MAX), "expected a batch size");
  expect(Spec({file}, 11),
         "a.safetensors] expected at least one batch of 11 "
         "samples, got 10");
  expect(Spec({Write("e", Samples(0))}, 1), "e.safetensors] holds no samples");
  expect(Spec({Write("b", {{"x", ten["x"]}, {"labels", twelve["labels"]}})}, 1),
         "b.safetensors] array \"x\" has 10 samples, \"labels\" has 12; an "
         "array that is not per sample can be named with `whole`");
  expect(Spec({Write("c", {{"x", ten["x"]}, {"target", ten["labels"]}})}, 1),
         "c.safetensors] expected an array \"labels\", got target, x");
  expect(Spec({Write("d",
                     {{"x", Tensor::Scalar(1.0f)}, {"labels", ten["labels"]}})},
              1),
         "with a sample axis, got a scalar");
  expect(Spec({file, Write("f", {{"x", Tensor::Zeros(DType::kFloat, {1, 3})},
                                 {"labels", Tensor::Ints({1})}})},
              1),
         "f.safetensors] expected array \"x\" of float[2] per sample as in ");
  DatasetSpec whole = Spec({file}, 1);
  for (DatasetInput& input : whole.inputs) input.whole = true;
  expect(whole, "got whole arrays only");
  Dataset dataset(Spec({file}, 1));
  ExpectError([&] { dataset.Batch(-1); }, "got -1");
}

// Items of 4 and of 12 samples: three of four draws are of the first.
TEST_F(DatasetTest, WeightsChooseTheItemsOfABatch) {
  const std::string a = Write("a", Samples(4)), b = Write("b", Samples(12, 4));
  DatasetSpec spec = Spec({a, b}, 8);
  spec.weights = {3, 1};
  const Dataset whole(spec);
  EXPECT_EQ(whole.batches_per_epoch(), 2);
  ASSERT_EQ(whole.notes().size(), 2u);
  EXPECT_EQ(whole.notes()[0],
            "[" + a +
                "] gives 0.75 of the samples, in an epoch of 16 3 passes "
                "over its 4");
  int64_t of_first = 0;
  for (int64_t i = 0; i < 50; ++i) {
    for (int64_t label : Labels(whole, i)) of_first += label < 4;
  }
  EXPECT_NEAR(static_cast<double>(of_first), 300, 40);
  // A batch depends on its index only, and ranks share it.
  spec.ranks = 2;
  const Dataset first(spec);
  spec.rank = 1;
  const Dataset second(spec);
  for (int64_t i : {33, 2}) {
    std::vector<int64_t> shares = Labels(first, i);
    for (int64_t label : Labels(second, i)) shares.push_back(label);
    EXPECT_EQ(shares, Labels(whole, i)) << i;
  }
}

TEST_F(DatasetTest, WeightsNeedItemsThatAreComplete) {
  const TensorMap samples = Samples(4);
  DatasetSpec spec = Spec({Write("a", {{"x", samples.at("x")}}),
                           Write("b", {{"labels", samples.at("labels")}})},
                          2);
  spec.weights = {1, 1};
  EXPECT_NE(ErrorOfSpec(spec).find("a.safetensors] expected 4 samples of "
                                   "\"labels\", as of the other arrays of "
                                   "this item, got 0 (`data_weights`)"),
            std::string::npos);
  spec.weights = {1};
  EXPECT_NE(ErrorOfSpec(spec).find("expected a weight for each item of `data`, "
                                   "2, got 1"),
            std::string::npos);
  spec = Spec({Write("c", samples), Write("d", Samples(0))}, 2);
  spec.weights = {1, 1};
  EXPECT_NE(ErrorOfSpec(spec).find("d.safetensors] holds no samples"),
            std::string::npos);
}

// A caller reads the rows that the order chooses, as from a file.
TEST_F(DatasetTest, RowsOfACallerAreThoseOfAFile) {
  DatasetSpec spec = Spec({Write("a", Samples(20))}, 3);
  const Dataset file(spec);
  spec.files = {"rows"};
  spec.rows = RowSource{
      [](const std::vector<int64_t>& chosen, const std::vector<DatasetInput>&) {
        std::vector<float> x;
        for (int64_t i : chosen) {
          x.push_back(static_cast<float>(10 * i));
          x.push_back(static_cast<float>(10 * i + 1));
        }
        return TensorMap{{"x", Tensor::From<float>({std::ssize(chosen), 2}, x)},
                         {"labels", Tensor::Ints(chosen)}};
      },
      20};
  const Dataset rows(spec);
  EXPECT_EQ(rows.SampleShape("x"), (Shape{2}));
  EXPECT_EQ(rows.dropped(), 2);
  for (int64_t i : {9, 0, 6}) {
    EXPECT_TRUE(Identical(rows.Batch(i).at("x"), file.Batch(i).at("x"))) << i;
    EXPECT_EQ(Labels(rows, i), Labels(file, i)) << i;
  }
  spec.inputs[0].whole = true;
  EXPECT_NE(ErrorOfSpec(spec).find("rows hold samples only"),
            std::string::npos);
  spec.inputs[0].whole = false;
  spec.rows->rows = [](const auto&, const auto&) { return Samples(2); };
  EXPECT_NE(ErrorOfSpec(spec).find("[rows] expected 1 samples of"),
            std::string::npos);
  spec.rows->samples = 0;
  EXPECT_NE(ErrorOfSpec(spec).find("[rows] holds no samples"),
            std::string::npos);
}

// As an array of a file may have them.
TEST_F(DatasetTest, RowsOfACallerMayHaveProbabilitiesAsLabels) {
  DatasetSpec spec = Spec({"rows"}, 1);
  spec.rows = RowSource{
      [](const auto& chosen, const auto&) {
        const auto n = std::ssize(chosen);
        return TensorMap{{"x", Tensor::Zeros(DType::kFloat, {n, 2})},
                         {"labels", Tensor::Zeros(DType::kDouble, {n, 3})}};
      },
      2};
  EXPECT_NE(ErrorOfSpec(spec).find("\"labels\" of int64, got double"),
            std::string::npos);
  spec.inputs[1].or_floats = true;
  const Tensor labels = Dataset(spec).Batch(0).at("labels");
  EXPECT_EQ(labels.dtype(), DType::kFloat);
  EXPECT_EQ(labels.shape(), (Shape{1, 3}));
}

class TokenDatasetTest : public DatasetTest {
 protected:
  std::string WriteTokens(const std::string& name, uint16_t first, int n) {
    std::vector<uint16_t> tokens(static_cast<size_t>(n));
    std::iota(tokens.begin(), tokens.end(), first);
    WriteText(dir_ / name, {reinterpret_cast<const char*>(tokens.data()),
                            tokens.size() * 2});
    return dir_ / name;
  }
  DatasetSpec TokenSpec(const std::vector<std::string>& files) {
    return {.files = files,
            .inputs = {{"input_ids", DType::kInt64}, {"labels", DType::kInt64}},
            .batch_size = 2,
            .shuffle = false,
            .label = "labels",
            .seq_len = 3};
  }
};

TEST_F(TokenDatasetTest, WindowsOfSeveralFiles) {
  // 3 windows in the first file, 1 in the second; no window crosses files.
  Dataset dataset(
      TokenSpec({WriteTokens("a.bin", 0, 11), WriteTokens("b.bin", 100, 4)}));
  EXPECT_EQ(dataset.size(), 4);
  EXPECT_EQ(dataset.SampleShape("labels"), (Shape{3}));
  TensorMap batch = dataset.Batch(1);
  EXPECT_EQ(batch.at("input_ids").shape(), (Shape{2, 3}));
  EXPECT_EQ(ToInts(batch.at("input_ids")),
            (std::vector<int64_t>{6, 7, 8, 100, 101, 102}));
  EXPECT_EQ(ToInts(batch.at("labels")),
            (std::vector<int64_t>{7, 8, 9, 101, 102, 103}));
}

TEST_F(TokenDatasetTest, AFolderAndAPatternAreTheirFiles) {
  DatasetSpec spec =
      TokenSpec({WriteTokens("a.bin", 0, 20), WriteTokens("b.bin", 100, 30)});
  spec.shuffle = true;
  spec.shuffle_block = 4;
  const Dataset files(spec);
  spec.files = {dir_ / ""};
  const Dataset folder(spec);
  spec.files = {dir_ / "?.bin"};
  const Dataset pattern(spec);
  ASSERT_EQ(files.size(), 6 + 9);
  for (int64_t i = 0; i < 10; ++i) {
    const Tensor ids = files.Batch(i).at("input_ids");
    EXPECT_TRUE(Identical(folder.Batch(i).at("input_ids"), ids)) << i;
    EXPECT_TRUE(Identical(pattern.Batch(i).at("input_ids"), ids)) << i;
  }
}

// The shares of ranks are the batch, whatever order a shuffle of blocks makes.
TEST_F(TokenDatasetTest, RanksShareAShuffleOfBlocks) {
  DatasetSpec spec = TokenSpec({WriteTokens("a.bin", 0, 100)});
  spec.shuffle = true;
  spec.shuffle_block = 5;
  spec.batch_size = 4;
  const Dataset whole(spec);
  spec.ranks = 2;
  const Dataset first(spec);
  spec.rank = 1;
  const Dataset second(spec);
  for (int64_t i : {7, 0, 12}) {
    std::vector<int64_t> shares = ToInts(first.Batch(i).at("labels"));
    const std::vector<int64_t> other = ToInts(second.Batch(i).at("labels"));
    shares.insert(shares.end(), other.begin(), other.end());
    EXPECT_EQ(shares, ToInts(whole.Batch(i).at("labels"))) << i;
  }
}

// Token 2 ends a document.
TEST_F(TokenDatasetTest, DocumentsOfARow) {
  DatasetSpec spec = TokenSpec({WriteTokens("a.bin", 1, 7)});
  spec.inputs.push_back({"position_ids", DType::kInt64});
  spec.inputs.push_back({"documents", DType::kInt32});
  spec.segments = "documents";
  spec.eod = 2;
  spec.ignored = -7;
  const Dataset dataset(spec);
  const TensorMap batch = dataset.Batch(0);
  using Numbers = std::vector<int64_t>;
  EXPECT_EQ(ToInts(batch.at("input_ids")), (Numbers{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ToInts(batch.at("labels")), (Numbers{2, -7, 4, 5, 6, 7}));
  EXPECT_EQ(ToInts(batch.at("documents")), (Numbers{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(ToInts(batch.at("position_ids")), (Numbers{0, 1, 0, 0, 1, 2}));
  EXPECT_EQ(batch.at("documents").dtype(), DType::kInt32);
  EXPECT_TRUE(dataset.notes().empty());
  spec.eod = 999;
  const std::vector<std::string> of_none = Dataset(spec).notes();
  ASSERT_EQ(of_none.size(), 1u);
  EXPECT_NE(of_none[0].find("a.bin] the first 6 tokens end no document: "
                            "expected the token that does as `eod`, got 999"),
            std::string::npos);
  spec.eod.reset();
  EXPECT_NE(ErrorOfSpec(spec).find("expected input_ids, position_ids, "
                                   "documents; `eod` tells where documents "
                                   "end"),
            std::string::npos);
  spec = Spec({Write("b", Samples(3))}, 1);
  spec.eod = 2;
  const std::vector<std::string> notes = Dataset(spec).notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("`eod` is for token files"), std::string::npos);
}

TEST_F(TokenDatasetTest, RefusesWhatDoesNotFit) {
  std::string file = WriteTokens("a.bin", 0, 20);
  auto expect = [&](const DatasetSpec& spec, const std::string& part) {
    std::string text = ErrorOfSpec(spec);
    EXPECT_NE(text.find(part), std::string::npos)
        << "expected: " << part << "\ngot:      " << text;
  };
  DatasetSpec spec = TokenSpec({file});
  spec.seq_len = 0;
  expect(spec, "expected a sequence length (`seq_len`)");
  spec.seq_len = 20;
  expect(spec, "a.bin] expected at least 20 + 1 tokens, got 20");
  spec = TokenSpec({file});
  spec.inputs.push_back({"mask", DType::kInt64});
  expect(spec,
         "provides one input and the label \"labels\", expected "
         "input_ids, mask");
  spec = TokenSpec({file});
  spec.inputs[0].dtype = DType::kFloat;
  expect(spec, "holds tokens, but input \"input_ids\" is of float");
  expect(TokenSpec({file, Write("a", Samples(2))}), "got both");
  spec = TokenSpec({file});
  spec.eod = 128001;
  expect(spec,
         "a.bin] expected an `eod` of at most 65535, which tokens of "
         "uint16 can be, got 128001");
}

}  // namespace
}  // namespace onnx_fp8
