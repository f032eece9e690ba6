// SPDX-License-Identifier: Apache-2.0
#include "collectives/agreement.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/support/thread_ranks.h"

namespace onnx_fp8 {
namespace {

using Text = std::vector<std::string>;

// The errors of the ranks, each with its lines or facts.
template <typename T>
Text Errors(const std::vector<std::vector<T>>& texts) {
  Text errors(texts.size(), "none");
  RunRanks(static_cast<int>(texts.size()), [&](Communicator& ranks) {
    const size_t rank = static_cast<size_t>(ranks.rank());
    try {
      CheckAgreement(ranks, "ranks", texts[rank]);
    } catch (const Error& error) {
      errors[rank] = error.what();
    }
  });
  return errors;
}

TEST(AgreementTest, EqualLines) {
  EXPECT_EQ(Errors<std::string>({{"a", "b"}, {"a", "b"}, {"a", "b"}}),
            Text(3, "none"));
  EXPECT_EQ(Errors<std::string>({{}, {}}), Text(2, "none"));
}

TEST(AgreementTest, TheFirstLineThatDiffers) {
  EXPECT_EQ(Errors<std::string>({{"a", "b"}, {"a", "b"}, {"a", "c"}}),
            Text(3, "[ranks] expected b, as rank 0, got c on rank 2"));
  EXPECT_EQ(Errors<std::string>({{"a"}, {"a", "b"}}),
            Text(2, "[ranks] expected nothing, as rank 0, got b on rank 1"));
  EXPECT_EQ(Errors<std::string>({{"a", "b"}, {}}),
            Text(2, "[ranks] expected a, as rank 0, got nothing on rank 1"));
}

// A fact that only one rank has moves no other fact.
TEST(AgreementTest, FactsByName) {
  const std::vector<Fact> facts = {{"--eps", "1"}, {"--lr", "0.1"}};
  EXPECT_EQ(Errors<Fact>({facts, facts}), Text(2, "none"));
  EXPECT_EQ(
      Errors<Fact>({facts, {{"--eps", "1"}, {"--lr", "0.2"}}}),
      Text(2, "[ranks] expected --lr 0.1, as rank 0, got --lr 0.2 on rank 1"));
  EXPECT_EQ(
      Errors<Fact>(
          {facts, facts, {{"--bias", ""}, {"--eps", "1"}, {"--lr", "0.1"}}}),
      Text(3, "[ranks] expected no --bias, as rank 0, got --bias on rank 2"));
  EXPECT_EQ(
      Errors<Fact>({facts, {{"--lr", "0.1"}}}),
      Text(2, "[ranks] expected --eps 1, as rank 0, got no --eps on rank 1"));
}

TEST(AgreementTest, OnlyTheDigestTravels) {
  RunRanks(2, [](Communicator& ranks) {
    CheckAgreement(ranks, "order", Text(1000, "node"));
    EXPECT_EQ(ranks.wire_bytes().all_gather, 16);
  });
}

}  // namespace
}  // namespace onnx_fp8
