// SPDX-License-Identifier: Apache-2.0
#include "collectives/agreement.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/support/thread_ranks.h"

namespace onnx_fp8 {
namespace {

using Text = std::vector<std::string>;

// The errors of the ranks.
Text Errors(const std::vector<Text>& texts) {
  Text errors(texts.size(), "none");
  RunRanks(static_cast<int>(texts.size()), [&](Communicator& ranks) {
    const size_t rank = static_cast<size_t>(ranks.rank());
    try {
      CheckAgreement(ranks, "order", texts[rank]);
    } catch (const Error& error) {
      errors[rank] = error.what();
    }
  });
  return errors;
}

TEST(AgreementTest, EqualLines) {
  EXPECT_EQ(Errors({{"a", "b"}, {"a", "b"}, {"a", "b"}}), Text(3, "none"));
  EXPECT_EQ(Errors({{}, {}}), Text(2, "none"));
}

TEST(AgreementTest, TheFirstLineThatDiffers) {
  EXPECT_EQ(Errors({{"a", "b"}, {"a", "b"}, {"a", "c"}}),
            Text(3, "[order] expected b, as rank 0, got c on rank 2"));
  EXPECT_EQ(Errors({{"a"}, {"a", "b"}}),
            Text(2, "[order] expected nothing, as rank 0, got b on rank 1"));
  EXPECT_EQ(Errors({{"a", "b"}, {}}),
            Text(2, "[order] expected a, as rank 0, got nothing on rank 1"));
}

TEST(AgreementTest, OnlyTheDigestTravels) {
  RunRanks(2, [](Communicator& ranks) {
    CheckAgreement(ranks, "order", Text(1000, "node"));
    EXPECT_EQ(ranks.wire_bytes().all_gather, 16);
  });
}

}  // namespace
}  // namespace onnx_fp8
