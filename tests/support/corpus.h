// SPDX-License-Identifier: Apache-2.0
//
// Exported models with PyTorch's results: the tree's own small ones
// (tests/fixtures) and, if it exists, the corpus beside the project
// (../shared/corpus or $ONNX_FP8_CORPUS). corpus_files.txt lists the files that
// it is known to hold.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace onnx_fp8 {

struct CorpusFile {
  std::string name;     // case, "nanogpt"
  std::string variant;  // "d18"
  std::string folder;   // of the case
  bool fixture = false;

  std::string model() const { return folder + "/" + variant + ".onnx"; }
  std::string reference() const { return folder + "/reference.safetensors"; }
  nlohmann::json Json(const std::string& file) const;
};

// Every model file, sorted; fixtures first. Reports how many files of the
// corpus are left out because they are missing.
const std::vector<CorpusFile>& CorpusFiles();

// The model files of a folder of cases; none if there is no such folder.
std::vector<CorpusFile> FilesIn(const std::string& folder, bool fixture);

// The message about a corpus at `path` that has `files`; "" if it is complete.
std::string WhatIsMissing(const std::string& path,
                          const std::vector<CorpusFile>& files);

// The files of these variants.
std::vector<CorpusFile> WithVariants(const std::vector<std::string>& variants);

// A test's name for INSTANTIATE_TEST_SUITE_P: "nanogpt_d18".
std::string CorpusTestName(const testing::TestParamInfo<CorpusFile>& info);

void PrintTo(const CorpusFile& file, std::ostream* out);

}  // namespace onnx_fp8
