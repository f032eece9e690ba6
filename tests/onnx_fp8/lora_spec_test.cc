// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/lora_spec.h"

#include <gtest/gtest.h>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

std::string LoraRefusal(const std::string& text) {
  return ErrorOf([&] { ParseLora(text); });
}

TEST(LoraSpec, HasTheDefaultsAndTheScalingOfPeft) {
  LoraSpec spec = ParseLora("targets=q_proj");
  EXPECT_EQ(spec.rank, 8);
  EXPECT_EQ(spec.scaling(), 1);
  EXPECT_EQ(spec.init, LoraInit::kTrue);
  spec = ParseLora("r=16,alpha=32,targets=*q_proj*,*v_proj*,dropout=0.05");
  EXPECT_EQ(spec.scaling(), 2);
  EXPECT_EQ(spec.targets, (std::vector<std::string>{"*q_proj*", "*v_proj*"}));
  EXPECT_EQ(spec.dropout, 0.05);
  EXPECT_EQ(ParseLora("r=16,alpha=32,rslora,targets=a").scaling(), 8);
}

TEST(LoraSpec, IsReadBackFromItsText) {
  for (const char* text :
       {"r=4,alpha=0.5,targets=a,b.c", "r=8,alpha=8,targets=a,init=gaussian",
        "r=8,alpha=8,targets=a,dropout=0.1,init=false,rslora,from=/x/y,z"}) {
    EXPECT_EQ(LoraText(ParseLora(text)), text);
  }
}

TEST(LoraSpec, AnotherTextIsAFolder) {
  const LoraSpec spec = ParseLora("runs/lr=0.1/adapter");
  EXPECT_EQ(spec.folder, "runs/lr=0.1/adapter");
  EXPECT_TRUE(spec.targets.empty());
}

TEST(LoraSpec, RefusesWhatItDoesNotKnow) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected r=16"},
      {"r=16", "expected targets"},
      {"r=0,targets=a", "expected r from 1 to 65536, got 0"},
      {"r=four,targets=a", "got \"r=four\""},
      {"alpha=nan,targets=a", "expected alpha above 0"},
      {"targets=a,dropout=1", "expected dropout from 0 to below 1, got 1"},
      {"targets=a,,b", "got \"targets=a,,b\""},
      {"targets=a,init=pissa", "got pissa, which this program does not have"},
      {"r=16,rank=3,targets=a", "got \"rank=3\""},
      {"R=4,targets=q_proj", "got \"R=4\""},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_NE(LoraRefusal(text).find(part), std::string::npos)
        << text << ": " << LoraRefusal(text);
  }
}

TEST(LoraSpec, TargetsAreGlobsOrEndsOfPaths) {
  EXPECT_TRUE(IsLoraTarget("q_proj", "layers.0.attn.q_proj"));
  EXPECT_TRUE(IsLoraTarget("*attn*", "layers.0.attn.q_proj"));
  EXPECT_TRUE(IsLoraTarget("q_proj", "q_proj"));
  EXPECT_FALSE(IsLoraTarget("proj", "layers.0.attn.q_proj"));
  EXPECT_FALSE(IsLoraTarget("attn", "layers.0.attn.q_proj"));
}

}  // namespace
}  // namespace onnx_fp8
