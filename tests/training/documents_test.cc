// SPDX-License-Identifier: Apache-2.0
//
// Several documents in a row (`segment_ids`) train as each of them alone does.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kVocabulary = 23, kModelWidth = 8, kRowLength = 10;

// A language model of one layer with positions as an input; heads of keys are
// repeated for two heads of queries.
std::string WriteLanguageModel(const TempDir& dir, bool causal) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* ids = graph.AddInput("input_ids", DType::kInt64, Shape{-1, -1});
  Value* places = graph.AddInput("position_ids", DType::kInt64, Shape{-1, -1});
  ids->axis_names = places->axis_names = {"batch", "seq"};
  const auto weight = [&](const char* name, const Shape& shape, uint64_t seed) {
    return graph.AddInitializer(name, Random(shape, seed));
  };
  Value* x = b.Add(
      b.Op("Gather",
           {weight("words.weight", {kVocabulary, kModelWidth}, 1), ids}),
      b.Op("Gather",
           {weight("places.weight", {kRowLength, kModelWidth}, 2), places}));
  const auto heads = [&](const char* name, uint64_t seed,
                         const std::vector<int64_t>& perm) {
    Value* y =
        b.Op("MatMul", {x, weight(name, {kModelWidth, kModelWidth}, seed)});
    return b.Op("Transpose", {b.Op("Reshape", {y, b.Ints({0, 0, 2, 4})})},
                {{"perm", perm}});
  };
  Value* q = heads("q.w", 3, {0, 2, 1, 3});
  Value* k_t = heads("k.w", 4, {0, 2, 3, 1});
  Value* v = heads("v.w", 5, {0, 2, 1, 3});
  Value* scores = b.Op("MatMul", {q, k_t});
  if (causal) {
    Value* length = b.Op("Shape", {ids}, {{"start", int64_t{1}}});
    Value* square = b.Op("Concat", {length, length}, {{"axis", int64_t{0}}});
    Value* all = b.Op("Expand", {b.Constant(Tensor::Scalar(true)), square});
    Value* seen = b.Op("Trilu", {all}, {{"upper", int64_t{0}}});
    Value* hidden =
        b.Constant(Tensor::Scalar(-std::numeric_limits<float>::infinity()));
    scores = b.Op("Where", {seen, scores, hidden});
  }
  Value* y = b.Op("MatMul", {b.Op("Softmax", {scores}), v});
  y = b.Op("Reshape", {b.Op("Transpose", {y},
                            {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}),
                       b.Ints({0, 0, kModelWidth})});
  Value* logits = b.Op(
      "MatMul", {b.Add(x, y), weight("head.w", {kModelWidth, kVocabulary}, 6)});
  graph.Rename(logits, "logits");
  graph.outputs = {logits};
  const std::string path = dir / "documents.onnx";
  WriteModel(graph, path);
  return path;
}

// The documents of two rows; the second row is filled up.
const std::vector<std::vector<int64_t>> kDocuments = {{5, 1, 4}, {6}};

int64_t TokenAt(int64_t row, int64_t i) { return (7 * i + 11 * row) % 23; }

// `n` tokens of one row as they are: labels are the next tokens.
TensorMap Alone(int64_t row, int64_t begin, int64_t n) {
  TensorMap feeds;
  for (const char* name : {"input_ids", "position_ids", "labels"}) {
    feeds[name] = Tensor::Allocate(DType::kInt64, {1, n});
  }
  for (int64_t i = 0; i < n; ++i) {
    feeds["input_ids"].data<int64_t>()[i] = TokenAt(row, begin + i);
    feeds["position_ids"].data<int64_t>()[i] = i;
    feeds["labels"].data<int64_t>()[i] =
        i + 1 < n ? TokenAt(row, begin + i + 1) : -100;
  }
  return feeds;
}

TensorMap InRows() {
  const int64_t rows = std::ssize(kDocuments);
  TensorMap feeds;
  for (const char* name : {"input_ids", "position_ids", "labels"}) {
    feeds[name] = Tensor::Zeros(DType::kInt64, {rows, kRowLength});
    std::fill_n(feeds[name].data<int64_t>(), rows * kRowLength,
                std::string(name) == "labels" ? -100 : 0);
  }
  Tensor segments = Tensor::Zeros(DType::kInt32, {rows, kRowLength});
  std::fill_n(segments.data<int32_t>(), rows * kRowLength, 9);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t begin = 0;
    int32_t number = 0;
    for (int64_t n : kDocuments[static_cast<size_t>(row)]) {
      const int64_t at = row * kRowLength + begin;
      for (const auto& [name, own] : Alone(row, begin, n)) {
        std::copy_n(own.data<int64_t>(), n, feeds[name].data<int64_t>() + at);
      }
      std::fill_n(segments.data<int32_t>() + at, n, number++);
      begin += n;
    }
  }
  feeds["segment_ids"] = segments;
  return feeds;
}

SessionOptions ForDocuments(const std::string& model, bool in_rows) {
  SessionOptions options = Options(model);
  options.loss.class_axis = -1;
  if (in_rows) options.segment_ids = "segment_ids";
  return options;
}

// Sums of some dozens of terms in another order, and a softmax whose powers are
// within a few units in the last place: as for the kernels of attention.
constexpr double kRounding = 4e-6;

void ExpectNumbersNear(const std::vector<double>& got,
                       const std::vector<double>& expected,
                       const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double largest = 1;
  for (double number : expected) largest = std::max(largest, std::fabs(number));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], kRounding * largest) << what << " " << i;
  }
}

// The loss of all documents, with a row of numbers for each gradient: means
// over the labels that count.
struct Totals {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

Totals OfDocumentsAlone(const std::string& model) {
  auto session = TrainingSession::Create(ForDocuments(model, false));
  Totals totals;
  double labels = 0;
  for (size_t row = 0; row < kDocuments.size(); ++row) {
    int64_t begin = 0;
    for (int64_t n : kDocuments[row]) {
      const auto own = static_cast<double>(n - 1);
      if (n > 1) {
        const GradientResult result = session->Gradients(
            Alone(static_cast<int64_t>(row), begin, n), false);
        totals.loss += own * result.loss;
        for (const auto& [name, gradient] : result.gradients) {
          std::vector<double>& sum = totals.gradients[name];
          sum.resize(static_cast<size_t>(gradient.size()));
          const std::vector<double> terms = Doubles(gradient);
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += own * terms[i];
        }
      }
      labels += own;
      begin += n;
    }
  }
  totals.loss /= labels;
  for (auto& [name, sum] : totals.gradients) {
    for (double& number : sum) number /= labels;
  }
  return totals;
}

class DocumentsInRows : public testing::TestWithParam<bool> {};

// Also where attention is not fused: then the mask is in front of a Softmax.
TEST_P(DocumentsInRows, TrainAsTheyDoAlone) {
  TempDir dir;
  const std::string model = WriteLanguageModel(dir, GetParam());
  const Totals alone = OfDocumentsAlone(model);
  for (const std::vector<std::string>& skipped :
       {std::vector<std::string>{}, {"FuseAttention"}}) {
    SessionOptions options = ForDocuments(model, true);
    options.skip_passes = skipped;
    const GradientResult result =
        TrainingSession::Create(options)->Gradients(InRows(), false);
    EXPECT_NEAR(result.loss, alone.loss, kRounding * alone.loss);
    ASSERT_EQ(result.gradients.size(), alone.gradients.size());
    for (const auto& [name, gradient] : result.gradients) {
      ExpectNumbersNear(Doubles(gradient), alone.gradients.at(name), name);
    }
  }
}

TEST_P(DocumentsInRows, SeeNoBitOfOthers) {
  TempDir dir;
  auto session = TrainingSession::Create(
      ForDocuments(WriteLanguageModel(dir, GetParam()), true));
  TensorMap feeds = InRows();
  const Tensor before = session->Eval(feeds).outputs.at("logits");
  const std::vector<double> first = Doubles(before);
  Tensor ids = Tensor::Zeros(DType::kInt64, feeds["input_ids"].shape());
  std::copy_n(feeds["input_ids"].data<int64_t>(), ids.size(),
              ids.data<int64_t>());
  ids.data<int64_t>()[5] = (ids.data<int64_t>()[5] + 1) % kVocabulary;
  feeds["input_ids"] = ids;
  const std::vector<double> second =
      Doubles(session->Eval(feeds).outputs.at("logits"));
  for (int64_t token = 0; token < 2 * kRowLength; ++token) {
    const auto at = static_cast<std::ptrdiff_t>(token * kVocabulary);
    EXPECT_EQ(std::equal(first.begin() + at, first.begin() + at + kVocabulary,
                         second.begin() + at),
              token != 5)
        << token;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DocumentsInRows, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Causal" : "BothWays";
                         });

TEST(DocumentsOnRanks, TrainAsOnOne) {
  TempDir dir;
  const SessionOptions options =
      ForDocuments(WriteLanguageModel(dir, true), true);
  const std::vector<Batches> steps = {{InRows()}, {InRows()}};
  const RankRun one = TrainSteps(options, steps);
  const RankRun two = TrainRanks(2, options, steps)[0];
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_NEAR(two.steps[i].loss, one.steps[i].loss,
                kRounding * one.steps[i].loss);
  }
  EXPECT_LT(one.steps[1].loss, one.steps[0].loss);
}

TEST(DocumentsInASession, TheInputIsAddedAndSaid) {
  TempDir dir;
  auto session = TrainingSession::Create(
      ForDocuments(WriteLanguageModel(dir, true), true));
  const std::vector<InputInfo> inputs = session->Inputs();
  ASSERT_EQ(inputs.size(), 3u);
  EXPECT_EQ(inputs[2].name, "segment_ids");
  EXPECT_EQ(inputs[2].dtype, DType::kInt32);
  EXPECT_EQ(inputs[2].axis_names, (std::vector<std::string>{"batch", "seq"}));
  const std::vector<std::string> notes = session->Notes();
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string& note) {
    return note.find(
               "attention keeps to the documents of a row that "
               "segment_ids, an added input, tells apart; positions "
               "begin anew only if one of the inputs input_ids, "
               "position_ids gives them") != std::string::npos;
  }));
  TensorMap feeds = Batch(1);
  feeds["segment_ids"] = Tensor::Zeros(DType::kInt32, {6, kIn});
  ExpectError(
      [&] {
        TrainingSession::Create(ForDocuments(WriteMlp(dir, false), true))
            ->Gradients(feeds, false);
      },
      "expected attention, which `segment_ids` keeps to the documents");
}

}  // namespace
}  // namespace onnx_fp8
